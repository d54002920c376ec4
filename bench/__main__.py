"""`python -m bench`: runs workloads, prints medians and the ratio between systems."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench import workloads
from bench.attacks import ATTACKS, misses, raise_own_limit, run_attack
from bench.cluster_workloads import CLUSTER_WORKLOADS
from bench.clusters import CLUSTERS
from bench.rdkafka import CompilerMissing
from bench.systems import Felice, apache_kafka, warm_memory
from bench.workloads import Figures
from peers.cache import PeerMissing

SYSTEMS: dict[str, Callable[[], Any]] = {"felice": Felice, "kafka": apache_kafka}

# Workloads on a broker that is already running and warm.
STEADY: dict[str, Callable[..., Any]] = {
    "librdkafka-100b": lambda scale: workloads.librdkafka(int(10_000_000 * scale), 100),
    "librdkafka-1kb": lambda scale: workloads.librdkafka(int(2_000_000 * scale), 1000),
    "client-100b": lambda scale: workloads.own_client(int(1_000_000 * scale), 100),
    "client-1kb": lambda scale: workloads.own_client(int(300_000 * scale), 1000),
    "client-arrow-100b": lambda scale: workloads.own_client_arrow(int(10_000_000 * scale), 100),
    "latency": lambda scale: workloads.latency(int(2000 * scale)),
    "synchronous-1": lambda scale: workloads.synchronous(1, 4 * scale),
    "synchronous-16": lambda scale: workloads.synchronous(16, 4 * scale),
    "synchronous-64": lambda scale: workloads.synchronous(64, 4 * scale),
}
# The registry, which finds so many schemas in its topic.
REGISTRIES = {f"registry-{count}": count for count in (1, 10_000, 100_000)}
CONNECT = (
    "connect-files",
    "connect-jdbc",
    "connect-s3",
    "connect-idle-1",
    "connect-idle-5",
    "connect-idle-20",
)
USUAL = [*STEADY, "start", "spark", "cleaner", *REGISTRIES]
"""What is measured if nothing is named: it needs nothing but Felice. Those of Connect need peers (`make peers`)."""
SINGLE = [*USUAL, *CONNECT]
ALL = [*SINGLE, *CLUSTER_WORKLOADS, *ATTACKS, "attacks"]

Results = dict[str, dict[str, list[Figures]]]


def run_steady(names: list[str], systems: list[str], turns: int, scale: float) -> Results:
    """Runs all systems at once; each is idle during the turns of the others. The order of turns alternates."""
    results: Results = {name: {system: [] for system in systems} for name in names}
    with ExitStack() as stack:
        running = {system: stack.enter_context(SYSTEMS[system]()) for system in systems}
        for name in names:
            load = STEADY[name](scale)
            for turn in range(turns):
                for system in systems if turn % 2 == 0 else reversed(systems):
                    results[name][system].append(load(running[system]))
                    click.echo(f"{name} {system} turn {turn + 1}/{turns}", err=True)
    return results


def run_start(systems: list[str], turns: int) -> Results:
    """Measures starts; the systems take turns."""
    found: dict[str, list[Figures]] = {system: [] for system in systems}
    for _ in range(turns):
        for system in systems:
            found[system].append(workloads.start_up(SYSTEMS[system]))
    return {"start": found}


def run_spark(scale: float) -> Results:
    """Measures the Spark source and sink, once."""
    from bench.spark import source_and_sink

    return {"spark": {"felice": [source_and_sink(int(4_000_000 * scale), 100)]}}


def run_cleaner(scale: float, turns: int) -> Results:
    """Measures the log cleaner."""
    from bench.cleaner import clean_keys

    return {"cleaner": {"felice": [clean_keys(int(1_000_000 * scale), 100) for _ in range(turns)]}}


def run_registry(name: str, scale: float, turns: int) -> Results:
    """Measures `felice registry`, beside a broker of Felice."""
    from bench.registry import stored_schemas

    return {name: {"felice": [stored_schemas(REGISTRIES[name], 4 * scale) for _ in range(turns)]}}


def run_connect(name: str, scale: float, turns: int) -> Results:
    """Measures `felice connect` beside what else does the same: Kafka Connect, or a program written by hand."""
    from bench.connect import compared

    return {name: compared(name, scale, turns)}


def run_attacks(names: list[str], turns: int) -> Results:
    """Runs each attack on its own broker, and prints the targets that were missed."""
    raise_own_limit()
    results: Results = {}
    for name in names:
        results[name] = {"felice": [run_attack(name) for _ in range(turns)]}
        for figures in results[name]["felice"]:
            for miss in misses(name, figures):
                click.echo(miss, err=True)
    return results


def run_clusters(name: str, systems: list[str], turns: int, scale: float) -> Results:
    """Runs one cluster at a time, because two idle clusters of three brokers would disturb each other."""
    load = CLUSTER_WORKLOADS[name](scale)
    results: dict[str, list[Figures]] = {system: [] for system in systems}
    for turn in range(turns):
        for system in systems if turn % 2 == 0 else reversed(systems):
            results[system].append(load(CLUSTERS[system]))
            click.echo(f"{name} {system} turn {turn + 1}/{turns}: {results[system][-1]}", err=True)
    return {name: results}


def medians(results: Results) -> dict[str, dict[str, Figures]]:
    """The median of each figure over all turns."""
    return {
        name: {
            system: {figure: statistics.median(turn[figure] for turn in turns) for figure in turns[0]}
            for system, turns in by_system.items()
        }
        for name, by_system in results.items()
    }


def show(found: dict[str, dict[str, Figures]]) -> None:
    """Prints a table of figures for each set of systems, with the ratio of the first two."""
    sets = {tuple(by_system) for by_system in found.values()}
    for systems in sorted(sets):
        _show(list(systems), {name: by for name, by in found.items() if tuple(by) == systems})


def _show(systems: list[str], found: dict[str, dict[str, Figures]]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("workload", "figure", *systems, *(["ratio"] if len(systems) == 2 else [])):
        table.add_column(heading, justify="left" if heading in ("workload", "figure") else "right")
    for name, by_system in found.items():
        for figure in next(iter(by_system.values())):
            values = [by_system[system][figure] for system in systems]
            row = [name, figure, *(f"{value:,.2f}" if value < 100 else f"{value:,.0f}" for value in values)]
            if len(values) == 2 and values[1]:
                row.append(f"{values[0] / values[1]:.2f}")
            table.add_row(*row)
    Console(width=120).print(table)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(ALL))
@click.option("--system", "systems", multiple=True, type=click.Choice(list(CLUSTERS)), help="May come often.")
@click.option(
    "--turns", default=3, show_default=True, help="How often each is measured; the median is shown."
)
@click.option("--scale", default=1.0, show_default=True, help="Share of the usual number of records.")
@click.option("--json", "as_json", is_flag=True, help="Print every turn as JSON.")
def main(names: tuple[str, ...], systems: tuple[str, ...], turns: int, scale: float, as_json: bool) -> None:
    """Measure workloads (all of one broker, if none is named) on Felice and on Apache Kafka.

    Of clusters, `felice` is `felice start --processes 3`, and `kafka` three brokers with controllers in them.

    \b
    python -m bench librdkafka-100b --system felice --system kafka
    python -m bench cluster-failover --system felice-zookeeper --system kafka
    python -m bench attacks --turns 1
    """
    wanted = list(names or USUAL)
    chosen = list(systems or ["felice"])
    if unknown := [system for system in chosen if system not in SYSTEMS and set(wanted) & set(SINGLE)]:
        raise click.UsageError(f"{', '.join(unknown)} can only be measured by cluster-*")
    results: Results = {}
    if any(name in SINGLE or name == "cluster-replication" for name in wanted):
        warm_memory(8)
    if steady := [name for name in wanted if name in STEADY]:
        results |= run_steady(steady, chosen, turns, scale)
    if "start" in wanted:
        results |= run_start(chosen, turns)
    if "spark" in wanted:
        results |= run_spark(scale)
    if "cleaner" in wanted:
        results |= run_cleaner(scale, turns)
    for name in wanted:
        if name in REGISTRIES:
            results |= run_registry(name, scale, turns)
        if name in CONNECT:
            results |= run_connect(name, scale, turns)
    attacks = list(ATTACKS) if "attacks" in wanted else [name for name in wanted if name in ATTACKS]
    if attacks:
        results |= run_attacks(attacks, turns)
    for name in wanted:
        if name in CLUSTER_WORKLOADS:
            results |= run_clusters(name, chosen, turns, scale)
    click.echo(json.dumps(results)) if as_json else show(medians(results))


if __name__ == "__main__":
    try:
        main()
    except (CompilerMissing, PeerMissing) as missing:
        sys.exit(f"error: {missing}")
