"""`python -m bench.full` (`make bench-full`): every workload, on every system that it is for, in alternating turns.

Each turn is written to `turns.jsonl` in the directory of results when it ends, so a run that was interrupted goes on
where it stopped. `report` makes a table, charts and `result.json` of all turns.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench import connectors, group_load, kafka_loads, log_loads, report, streams, workloads
from bench.attacks import raise_own_limit
from bench.cluster_workloads import CLUSTER_WORKLOADS
from bench.clusters import CLUSTERS
from bench.others import OTHERS
from bench.programs import Unavailable
from bench.python_clients import confluent_client, own_client, python_client
from bench.race import race
from bench.rdkafka import CompilerMissing
from bench.secured import login, secured_felice, secured_kafka
from bench.systems import Felice, apache_kafka, warm_memory

Figures = dict[str, float]
Factory = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Options:
    """`scale` is the share of the usual number of records, `gigabytes` the size of the largest log."""

    scale: float
    gigabytes: float

    def of(self, count: int, least: int = 1) -> int:
        """The scaled number."""
        return max(least, int(count * self.scale))


@dataclass(frozen=True, slots=True)
class Workload:
    """`load` makes the function that measures one turn on a system. Systems run beside each other, and each is idle
    during the turns of the others, unless a turn needs a system of its own.
    """

    systems: dict[str, Factory]
    load: Callable[[Options], Callable[[Any], Figures]]
    has_own_system: bool = False
    is_warmed_up: bool = True


def _kafka_like(*options: str) -> dict[str, Factory]:
    return {"felice": lambda: Felice(*options), "kafka": lambda: apache_kafka(*options)}


_SIDE_BY_SIDE = _kafka_like()
_RACE: dict[str, Factory] = {**_SIDE_BY_SIDE, **OTHERS}
_SECURED: dict[str, Factory] = {"felice": secured_felice, "kafka": secured_kafka}
_PYTHON: dict[str, Factory] = {"felice.client": own_client, "confluent-kafka": confluent_client}
_CONNECTORS: dict[str, Factory] = {
    "felice": connectors.felice_connector,
    "jvm connector": connectors.jvm_connector,
}
_STREAMS: dict[str, Factory] = {
    "felice.streams": streams.felice_streams,
    "kafka streams": streams.kafka_streams,
}
_SQL: dict[str, Factory] = {"felice.sql": streams.felice_sql, **_STREAMS}
_THREE: dict[str, Factory] = {name: lambda name=name: _handed(CLUSTERS[name]) for name in ("felice", "kafka")}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@contextmanager
def _handed(make: Any) -> Any:
    """Hands the factory itself to a load that starts and stops its systems."""
    yield make


def _race() -> dict[str, Workload]:
    sizes = {"128b": 128, "512b": 512, "1kb": 1000, "10kb": 10_000}
    return {
        f"race-{label}": Workload(_RACE, lambda o, size=size: race(o.of(1_000_000), size))
        for label, size in sizes.items()
    }


def _throughput() -> dict[str, Workload]:
    rdkafka, java = workloads.librdkafka, kafka_loads.java_tools
    found = {
        "librdkafka-100b": Workload(_SIDE_BY_SIDE, lambda o: rdkafka(o.of(10_000_000), 100)),
        "librdkafka-1kb": Workload(_SIDE_BY_SIDE, lambda o: rdkafka(o.of(2_000_000), 1000)),
        "java-100b": Workload(_SIDE_BY_SIDE, lambda o: java(o.of(5_000_000), 100)),
        "java-1kb": Workload(_SIDE_BY_SIDE, lambda o: java(o.of(1_000_000), 1000)),
        "java-lz4-1kb": Workload(_SIDE_BY_SIDE, lambda o: java(o.of(1_000_000), 1000, "lz4")),
    }
    for codec in CODECS:
        found[f"codec-{codec}"] = Workload(
            _SIDE_BY_SIDE, lambda o, codec=codec: rdkafka(o.of(1_000_000), 1000, codec=codec)
        )
    for count in (1, 6, 64, 2000):
        found[f"partitions-{count}"] = Workload(
            _SIDE_BY_SIDE, lambda o, count=count: rdkafka(o.of(5_000_000), 100, partitions=count)
        )
    for label, listener in (("tls", "TLS"), ("sasl", "LOGIN"), ("sasl-tls", "BOTH")):
        for size, name in ((100, "100b"), (1000, "1kb")):
            found[f"{label}-{name}"] = Workload(
                _SECURED,
                lambda o, listener=listener, size=size: rdkafka(
                    o.of(200_000_000 // size), size, login=login(listener)
                ),
            )
    return found


def _small_requests() -> dict[str, Workload]:
    found = {
        f"synchronous-{count}": Workload(
            _SIDE_BY_SIDE, lambda o, count=count: workloads.synchronous(count, max(0.5, 4 * o.scale))
        )
        for count in (1, 16, 64)
    }
    for rate in (100, 2000):
        found[f"latency-{rate}"] = Workload(
            _SIDE_BY_SIDE, lambda o, rate=rate: kafka_loads.fixed_rate(rate, max(2.0, 20 * o.scale))
        )
    found["latency-half-load"] = Workload(
        _SIDE_BY_SIDE, lambda o: workloads.latency_under_load(200_000, max(2.0, 10 * o.scale), 1000)
    )
    found["connections-idle-1000"] = Workload(_SIDE_BY_SIDE, lambda o: kafka_loads.idle_connections(1000))
    found["connections-active-1000"] = Workload(
        _SIDE_BY_SIDE, lambda o: workloads.synchronous(1000, max(1.0, 8 * o.scale))
    )
    for count in (1, 100, 1000):
        found[f"groups-{count}"] = Workload(
            _SIDE_BY_SIDE, lambda o, count=count: kafka_loads.groups(o.of(count), max(3, 3000 // count))
        )
    found["consumer-group-100"] = Workload(
        _SIDE_BY_SIDE, lambda options: group_load.group, is_warmed_up=False
    )
    found["transactions"] = Workload(
        _SIDE_BY_SIDE, lambda o: kafka_loads.transactions(o.of(500, least=20), 100)
    )
    return found


def _logs() -> dict[str, Workload]:
    def sizes(options: Options) -> tuple[float, ...]:
        return (*(size for size in (0.001, 1.0) if size < options.gigabytes), options.gigabytes)

    return {
        "start": Workload(
            {name: lambda make=make: _handed(make) for name, make in _SIDE_BY_SIDE.items()},
            lambda o: workloads.start_up,
            has_own_system=True,
            is_warmed_up=False,
        ),
        "recovery": Workload(
            _SIDE_BY_SIDE,
            lambda o: log_loads.recovery(o.gigabytes / 2),
            has_own_system=True,
            is_warmed_up=False,
        ),
        "log-sizes": Workload(
            _SIDE_BY_SIDE,
            lambda o: log_loads.log_sizes(sizes(o), o.of(1000, least=100)),
            has_own_system=True,
            is_warmed_up=False,
        ),
        "compaction": Workload(
            _kafka_like(*log_loads.COMPACTION_OPTIONS),
            lambda o: log_loads.compaction(o.of(250_000, least=50_000), 100),
            is_warmed_up=False,
        ),
    }


def _spark() -> dict[str, Workload]:
    return {
        "spark-batch": Workload(_CONNECTORS, lambda o: connectors.batches(o.of(4_000_000), 100)),
        "spark-stream": Workload(_CONNECTORS, lambda o: connectors.streams(o.of(4_000_000), 100)),
        "spark-trigger": Workload(
            _CONNECTORS, lambda o: connectors.triggers(max(5.0, 20 * o.scale)), is_warmed_up=False
        ),
    }


def _streams() -> dict[str, Workload]:
    found = {
        f"{label}-{kind}": Workload(
            systems,
            lambda o, kind=kind: streams.application(kind, o.of(1_000_000), max(2.0, 10 * o.scale)),
            is_warmed_up=False,
        )
        for label, systems, kinds in (
            ("streams", _STREAMS, streams.KINDS),
            ("sql", _SQL, tuple(streams.STATEMENTS)),
        )
        for kind in kinds
    }
    for kind in streams.LARGE:
        for name, keys in streams.MANY_KEYS.items():
            found[f"streams-{kind}-{name}"] = Workload(
                _STREAMS,
                lambda o, kind=kind, keys=keys: streams.many_keys(
                    kind, keys, o.of(2_000_000), max(2.0, 10 * o.scale)
                ),
                is_warmed_up=False,
            )
    return found


def _rest() -> dict[str, Workload]:
    found = {
        "python-100b": Workload(_PYTHON, lambda o: python_client(o.of(1_000_000), 100)),
        "python-1kb": Workload(_PYTHON, lambda o: python_client(o.of(300_000), 1000)),
    }
    for name in ("cluster-replication", "cluster-failover", "cluster-rolling-restart", "cluster-create-1000"):
        found[name] = Workload(
            _THREE,
            lambda o, name=name: CLUSTER_WORKLOADS[name](o.scale),
            has_own_system=True,
            is_warmed_up=False,
        )
    return found


WORKLOADS = {**_race(), **_throughput(), **_small_requests(), **_logs(), **_spark(), **_streams(), **_rest()}


class Run:
    """One run: its turns so far, and the file that keeps them."""

    def __init__(self, directory: Path, options: Options, turns: int) -> None:
        self.turns = turns
        self._options = options
        self._file = directory / "turns.jsonl"
        self.rows = [json.loads(line) for line in _lines(self._file)]

    def measure(self, name: str) -> None:
        """All turns of one workload that are missing."""
        workload = WORKLOADS[name]
        missing = [
            (turn, system)
            for turn in range(self.turns)
            for system in (list(workload.systems) if turn % 2 == 0 else list(workload.systems)[::-1])
            if not self._has(name, system, turn)
        ]
        load = workload.load(self._options)
        with ExitStack() as stack:
            running: dict[str, Any] = {}
            for turn, system in missing:
                try:
                    if workload.has_own_system:
                        with workload.systems[system]() as own:
                            figures = load(own)
                    else:
                        if system not in running:
                            running[system] = stack.enter_context(workload.systems[system]())
                            self._warm_up(workload, running[system])
                        figures = load(running[system])
                except (Unavailable, CompilerMissing) as missed:
                    self._keep(name, system, turn, {}, str(missed))
                else:
                    self._keep(name, system, turn, figures, None)

    def _warm_up(self, workload: Workload, system: Any) -> None:
        """A tenth of the load, not counted: Java compiles its code, and all have touched their memory."""
        if workload.is_warmed_up:
            workload.load(Options(self._options.scale / 10, self._options.gigabytes))(system)

    def _has(self, name: str, system: str, turn: int) -> bool:
        mine = (name, system, turn, self._options.scale, self._options.gigabytes)
        return any(
            (row["workload"], row["system"], row["turn"], row["scale"], row["gigabytes"]) == mine
            and row["unavailable"] is None
            for row in self.rows
        )

    def _keep(self, name: str, system: str, turn: int, figures: Figures, unavailable: str | None) -> None:
        row = {
            "workload": name,
            "system": system,
            "turn": turn,
            "scale": self._options.scale,
            "gigabytes": self._options.gigabytes,
            "figures": figures,
            "unavailable": unavailable,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load": os.getloadavg()[0],
        }
        self.rows.append(row)
        with self._file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        shown = unavailable or ", ".join(f"{key} {value:,.2f}" for key, value in figures.items())
        click.echo(f"{name} {system} turn {turn + 1}/{self.turns}: {shown}", err=True)


def _lines(file: Path) -> Sequence[str]:
    return file.read_text().splitlines() if file.exists() else []


@click.command()
@click.argument("names", nargs=-1)
@click.option("--turns", default=5, show_default=True, help="How often each system is measured.")
@click.option("--scale", default=1.0, show_default=True, help="Share of the usual number of records.")
@click.option(
    "--gigabytes", default=20.0, show_default=True, help="The largest log; recovery uses half of it."
)
@click.option("--out", default="bench-result", show_default=True, type=click.Path(file_okay=False))
@click.option("--fresh", is_flag=True, help="Forget the turns of an earlier run in that directory.")
@click.option("--list", "is_list", is_flag=True, help="Print the names of the workloads.")
def main(
    names: tuple[str, ...], turns: int, scale: float, gigabytes: float, out: str, fresh: bool, is_list: bool
) -> None:
    """Measure workloads (all, if none is named) and write a table, charts and JSON.

    \b
    python -m bench.full transactions --turns 1
    python -m bench.full race-128b race-1kb --scale 0.1
    """
    if is_list:
        click.echo("\n".join(WORKLOADS))
        return
    if unknown := [name for name in names if name not in WORKLOADS]:
        raise click.UsageError(f"no such workload: {', '.join(unknown)}; see --list")
    directory = Path(out)
    directory.mkdir(parents=True, exist_ok=True)
    if fresh:
        (directory / "turns.jsonl").unlink(missing_ok=True)
    raise_own_limit()
    warm_memory(min(8, 1 + int(gigabytes)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the systems under test are stopped
    run = Run(directory, Options(scale, gigabytes), turns)
    failures = []
    for name in names or WORKLOADS:
        try:
            run.measure(name)
        except Exception as error:  # the other workloads are still worth their turns
            failures.append(name)
            click.echo(f"{name} failed: {error!r}", err=True)
        report.write(directory, run.rows)
    click.echo((directory / "table.md").read_text())
    if failures:
        raise SystemExit(f"failed: {', '.join(failures)}")


if __name__ == "__main__":
    main()
