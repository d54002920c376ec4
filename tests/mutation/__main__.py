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
    targets = options.only or list(trial.PACKAGES)
    mutants = trial.generate(targets)
    shares = []
    for target in targets:
        population = trial.chosen(mutants, target)
        sample = draw(population, options.sample, options.seed)
        print(f"{target}: {len(sample)} of {len(population)} mutants, seed {options.seed}", flush=True)
        shares.append(_report(target, trial.survivors_of(sample, target), len(sample), len(population)))
    print("\nSurvivors:")
    print("\n".join(line for line, _ in shares))
    return 1 if any(share.value >= options.limit for _, share in shares) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "only", nargs="*", help="a package (log), a folder or a file (log/segment.py); all packages"
    )
    parser.add_argument("--sample", type=int, help="this many random mutants of each; all of them")
    parser.add_argument("--seed", type=int, default=1, help="of the random choice")
    parser.add_argument("--limit", type=float, default=0.10, help="fail at this share of survivors; 0.10")
    return parser.parse_args()


def _report(target: str, alive: Sequence[trial.Survivor], sample: int, population: int) -> tuple[str, Share]:
    unnoticed = [survivor for survivor in alive if not survivor.refused_by_mypy]
    share = Share(len(unnoticed), sample, population)
    files: dict[str, int] = defaultdict(int)
    for survivor in alive:
        print(f"\n{survivor}")
    for survivor in unnoticed:
        files[survivor.mutant.partition(".x")[0]] += 1
    line = f"{target}: {share}; mypy refuses {len(alive) - len(unnoticed)} more"
    print(f"\n{line}")
    for name, count in sorted(files.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {count:3} {name}")
    sys.stdout.flush()
    return line, share


if __name__ == "__main__":
    sys.exit(main())
