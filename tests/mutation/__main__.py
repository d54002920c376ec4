"""`make mutate [ONLY=log/segment.py] [SAMPLE=n] [SEED=k]`: which one-line faults no quick test would notice."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence

from mutation import trial
from mutation.sample import Share, draw


def main() -> int:
    options = _options()
    mutants = trial.generate()
    targets = options.only or list(trial.PACKAGES)
    population = {target: trial.chosen(mutants, target) for target in targets}
    samples = {target: draw(found, options.sample, options.seed) for target, found in population.items()}
    names = sorted({name for sample in samples.values() for name in sample})
    print(f"{len(names)} of {len(mutants)} mutants, seed {options.seed}", flush=True)
    survivors = {survivor.mutant: survivor for survivor in trial.survivors_of(names)}
    for survivor in survivors.values():
        print(f"\n{survivor}")
    print()
    shares = []
    for target, sample in samples.items():
        alive = [survivors[name] for name in sample if name in survivors]
        shares.append(_report(target, alive, len(sample), len(population[target])))
    return 1 if any(share.value >= options.limit for share in shares) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "only", nargs="*", help="a package (log), a folder or a file (log/segment.py); all packages"
    )
    parser.add_argument("--sample", type=int, help="this many random mutants of each; all of them")
    parser.add_argument("--seed", type=int, default=1, help="of the random choice")
    parser.add_argument("--limit", type=float, default=0.10, help="fail at this share of survivors; 0.10")
    return parser.parse_args()


def _report(target: str, alive: Sequence[trial.Survivor], sample: int, population: int) -> Share:
    unnoticed = [survivor for survivor in alive if not survivor.refused_by_mypy]
    share = Share(len(unnoticed), sample, population)
    print(f"{target}: {share}; mypy refuses {len(alive) - len(unnoticed)} more")
    files: dict[str, int] = defaultdict(int)
    for survivor in unnoticed:
        files[survivor.mutant.partition(".x")[0]] += 1
    for name, count in sorted(files.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {count:3} {name}")
    return share


if __name__ == "__main__":
    sys.exit(main())
