"""`make simulate SEEDS=n [SEED=k]`: plays stories, and tells of the first that fails how to play it again.

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
from simulation.story import Verdict, run

_COLLECT_EVERY = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one, with its trace")
    parser.add_argument("--bugs", action="store_true", help="hunt the planted bugs instead")
    options = parser.parse_args()
    if options.bugs:
        return _hunt_all()
    if options.seed is not None:
        verdict = run(options.seed)
        print("\n".join(verdict.trace))
        print(f"{verdict.told()}\nfingerprint {verdict.fingerprint}")
        return 1 if verdict.anomalies else 0
    return _play(range(options.first, options.first + options.seeds))


def _play(seeds: range) -> int:
    began, failed, records, world_s = time.monotonic(), list[int](), 0, 0.0
    for done, seed in enumerate(seeds, 1):
        verdict = run(seed)
        records, world_s = records + verdict.records, world_s + verdict.world_s
        if verdict.anomalies:
            failed.append(seed)
            _tell(verdict)
        if done % _COLLECT_EVERY == 0 or done == len(seeds):
            gc.collect()
            rate = done / (time.monotonic() - began)
            line = f"{done} of {len(seeds)} seeds, {len(failed)} failed, {rate:.1f} a second"
            print(f"{line}; {records} records, {world_s / 60:.0f} minutes of the worlds' time", flush=True)
    if failed:
        print(f"failed: {' '.join(map(str, failed))}")
    return 1 if failed else 0


def _tell(verdict: Verdict) -> None:
    print(verdict.told())
    print("the last of its trace:")
    print("\n".join(verdict.trace[-30:]))
    print(f"to play it again: make simulate SEED={verdict.plan.seed}", flush=True)


def _hunt_all() -> int:
    free = 0
    for bug in hunt.BUGS:
        found = hunt.hunt(bug, hunt.PATIENCE)
        free += found is None
        how = (
            f"found by seed {found.seed}, the {found.tried}. tried: {found.anomaly}" if found else "NOT FOUND"
        )
        print(f"{bug.name}: {bug.what}: {how}", flush=True)
    return 1 if free else 0


if __name__ == "__main__":
    sys.exit(main())
