"""`make simulate SEEDS=n [KIND=cluster|producer] [SEED=k]`: runs simulations and prints how to repeat those that fail.

python -m simulation --seeds 1000         seeds 0 to 999
python -m simulation --seed 421           this seed, with its whole trace
python -m simulation --bugs               for each injected fault: the seed that finds it
"""

from __future__ import annotations

import argparse
import gc
import sys
import time

from simulation import search
from simulation.run import RunResult
from simulation.simulation_kind import BROKER, SIMULATION_KINDS, SimulationKind

_COLLECT_EVERY = 20


def main() -> int:
    """Run what the command line asks for.

    Returns the exit status: 1 after an anomaly or an injected fault not found.
    """
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run only this seed and print its trace")
    parser.add_argument("--bugs", action="store_true", help="search for the injected faults instead")
    parser.add_argument(
        "--kind", choices=[*SIMULATION_KINDS, "all"], help="one broker, a cluster, a producer, or all"
    )
    options = parser.parse_args()
    only = options.kind or ("all" if options.seed is None else BROKER.name)
    kinds = [kind for kind in SIMULATION_KINDS.values() if only in (kind.name, "all")]
    if options.bugs:
        return max(_search_all(kind) for kind in kinds)
    if options.seed is not None:
        result = kinds[0].run(options.seed)
        print("\n".join(result.trace))
        print(f"{result.describe()}\nfingerprint {result.fingerprint}")
        return 1 if result.anomalies else 0
    return max(_run_seeds(kind, range(options.first, options.first + options.seeds)) for kind in kinds)


def _run_seeds(kind: SimulationKind, seeds: range) -> int:
    began, failed, records, world_s = time.monotonic(), list[int](), 0, 0.0
    for done, seed in enumerate(seeds, 1):
        result = kind.run(seed)
        records, world_s = records + result.records, world_s + result.world_s
        if result.anomalies:
            failed.append(seed)
            _print_failure(kind, result)
        if done % _COLLECT_EVERY == 0 or done == len(seeds):
            gc.collect()
            rate = done / (time.monotonic() - began)
            line = f"{kind.name}: {done} of {len(seeds)} seeds, {len(failed)} failed, {rate:.1f} a second"
            print(f"{line}; {records} records, {world_s / 60:.0f} minutes of simulated time", flush=True)
    if failed:
        print(f"{kind.name}: failed: {' '.join(map(str, failed))}")
    return 1 if failed else 0


def _print_failure(kind: SimulationKind, result: RunResult) -> None:
    print(result.describe())
    print("the last lines of its trace:")
    print("\n".join(result.trace[-30:]))
    print(f"to repeat it: make simulate KIND={kind.name} SEED={result.plan.seed}", flush=True)


def _search_all(kind: SimulationKind) -> int:
    not_found = 0
    for fault in search.INJECTED_FAULTS[kind.name]:
        found = search.search(fault, search.MAX_RUNS, kind)
        not_found += found is None
        how = (
            f"found by seed {found.seed}, the {found.tried}. tried: {found.anomaly}" if found else "NOT FOUND"
        )
        print(f"{fault.name}: {fault.description}: {how}", flush=True)
    return 1 if not_found else 0


if __name__ == "__main__":
    sys.exit(main())
