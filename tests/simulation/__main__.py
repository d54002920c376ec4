"""`make simulate SEEDS=n [KIND=cluster] [SEED=k]`: plays stories; says how to play again those that fail.

python -m simulation --seeds 1000         seeds 0 to 999
python -m simulation --seed 421           this one, with its whole trace
python -m simulation --bugs               each planted bug until a story finds it
"""

from __future__ import annotations

import argparse
import gc
import sys
import time

from simulation import hunt
from simulation.half import BROKER, HALVES, Half
from simulation.story import Verdict

_COLLECT_EVERY = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one, with its trace")
    parser.add_argument("--bugs", action="store_true", help="hunt the planted bugs instead")
    parser.add_argument("--kind", choices=[*HALVES, "both"], help="of one broker or of a cluster; both")
    options = parser.parse_args()
    only = options.kind or ("both" if options.seed is None else BROKER.name)
    halves = [half for half in HALVES.values() if only in (half.name, "both")]
    if options.bugs:
        return max(_hunt_all(half) for half in halves)
    if options.seed is not None:
        verdict = halves[0].run(options.seed)
        print("\n".join(verdict.trace))
        print(f"{verdict.told()}\nfingerprint {verdict.fingerprint}")
        return 1 if verdict.anomalies else 0
    return max(_play(half, range(options.first, options.first + options.seeds)) for half in halves)


def _play(half: Half, seeds: range) -> int:
    began, failed, records, world_s = time.monotonic(), list[int](), 0, 0.0
    for done, seed in enumerate(seeds, 1):
        verdict = half.run(seed)
        records, world_s = records + verdict.records, world_s + verdict.world_s
        if verdict.anomalies:
            failed.append(seed)
            _tell(half, verdict)
        if done % _COLLECT_EVERY == 0 or done == len(seeds):
            gc.collect()
            rate = done / (time.monotonic() - began)
            line = f"{half.name}: {done} of {len(seeds)} seeds, {len(failed)} failed, {rate:.1f} a second"
            print(f"{line}; {records} records, {world_s / 60:.0f} minutes of the worlds' time", flush=True)
    if failed:
        print(f"{half.name}: failed: {' '.join(map(str, failed))}")
    return 1 if failed else 0


def _tell(half: Half, verdict: Verdict) -> None:
    print(verdict.told())
    print("the last of its trace:")
    print("\n".join(verdict.trace[-30:]))
    print(f"to play it again: make simulate KIND={half.name} SEED={verdict.plan.seed}", flush=True)


def _hunt_all(half: Half) -> int:
    free = 0
    for bug in hunt.BUGS[half.name]:
        found = hunt.hunt(bug, hunt.PATIENCE, half)
        free += found is None
        how = (
            f"found by seed {found.seed}, the {found.tried}. tried: {found.anomaly}" if found else "NOT FOUND"
        )
        print(f"{bug.name}: {bug.what}: {how}", flush=True)
    return 1 if free else 0


if __name__ == "__main__":
    sys.exit(main())
