"""The results of `bench.full`: `table.md`, `result.json` and a chart for each workload, from the turns of a run."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.programs import NATS_SERVER
from bench.programs import directory as programs_directory
from bench.systems import ROOT

Row = Mapping[str, Any]
# By workload, figure and system: the values of all turns.
Found = dict[str, dict[str, dict[str, list[float]]]]


def write(directory: Path, rows: Sequence[Row]) -> None:
    """Writes table, charts and JSON."""
    found = collected(rows)
    (directory / "table.md").write_text(_table(found, rows))
    (directory / "result.json").write_text(json.dumps(_result(found, rows), indent=1) + "\n")
    for workload, figures in found.items():
        _chart(directory / f"{workload}.svg", workload, figures)


def collected(rows: Iterable[Row]) -> Found:
    """The values of all turns. Of turns with different sizes only those of the last size count."""
    rows = list(rows)
    last = {row["workload"]: (row["scale"], row["gigabytes"]) for row in rows}
    found: Found = {}
    for row in rows:
        if (row["scale"], row["gigabytes"]) == last[row["workload"]]:
            for figure, value in row["figures"].items():
                by_system = found.setdefault(row["workload"], {}).setdefault(figure, {})
                by_system.setdefault(row["system"], []).append(value)
    return found


def ratio(mine: Sequence[float], other: Sequence[float]) -> tuple[float, float, float] | None:
    """The ratio of the medians, and the least and the greatest ratio of turns of the same number."""
    if not all(other):
        return None
    pairs = [one / two for one, two in zip(mine, other, strict=False)]
    return statistics.median(mine) / statistics.median(other), min(pairs), max(pairs)


def _table(found: Found, rows: Sequence[Row]) -> str:
    lines = [
        "| workload | figure | system | median | range | turns | first system / this one |",
        "|---|---|---|---|---|---|---|",
    ]
    for workload, figures in found.items():
        for figure, by_system in figures.items():
            first = next(iter(by_system.values()))
            for system, values in by_system.items():
                compared = ratio(first, values) if values is not first else None
                shown = "" if compared is None else "{:.2f} ({:.2f} to {:.2f})".format(*compared)
                spread = f"{_number(min(values))} to {_number(max(values))}"
                cells = (
                    workload,
                    figure,
                    system,
                    _number(statistics.median(values)),
                    spread,
                    str(len(values)),
                    shown,
                )
                lines.append(f"| {' | '.join(cells)} |")
    for reason in sorted({f"{row['system']}: {row['unavailable']}" for row in rows if row["unavailable"]}):
        lines.append(f"\nNot measured: {reason}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def _result(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "machine": _machine(),
        "versions": _versions(),
        "commands": {
            workload: f"make bench-full ONLY={workload} TURNS={max(row['turn'] for row in mine) + 1}"
            f" SCALE={mine[-1]['scale']:g} GIGABYTES={mine[-1]['gigabytes']:g}"
            for workload in found
            if (mine := [row for row in rows if row["workload"] == workload])
        },
        "results": {
            workload: {
                figure: {
                    system: {
                        "median": statistics.median(values),
                        "least": min(values),
                        "greatest": max(values),
                        "turns": values,
                    }
                    for system, values in by_system.items()
                }
                for figure, by_system in figures.items()
            }
            for workload, figures in found.items()
        },
        "turns": list(rows),
    }


def _machine() -> dict[str, Any]:
    cpus = Path("/proc/cpuinfo").read_text()
    model = next((line.partition(":")[2].strip() for line in cpus.splitlines() if "model name" in line), "")
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory GiB": round(memory_gib, 1),
        "kernel": platform.release(),
        "system": platform.platform(),
    }


def _versions() -> dict[str, str]:
    from peers import versions

    redis = programs_directory() / "redis/usr/bin/redis-server"
    rabbitmq = [
        path.name for path in programs_directory().glob("rabbitmq/usr/lib/rabbitmq/lib/rabbitmq_server-*")
    ]
    return {
        "felice": _output(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
        "python": platform.python_version(),
        "kafka": versions.KAFKA,
        "java": _output(["java", "-version"]).partition("\n")[0],
        "librdkafka": _output(["pkg-config", "--modversion", "rdkafka"]),
        "confluent-kafka": _package("confluent-kafka"),
        "redis": _output(["redis-server", "--version"]) or _output([str(redis), "--version"]),
        "rabbitmq": ", ".join(rabbitmq),
        "nats": NATS_SERVER.rpartition("@")[2],
    }


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _output(command: Sequence[str]) -> str:
    """What a program prints; empty if it is not here."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except OSError:
        return ""
    return (done.stdout or done.stderr).strip() if done.returncode == 0 else ""


def _chart(path: Path, workload: str, figures: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """A bar for each system's median and a line for its range, one panel for each figure."""
    import altair
    import pandas

    panels = []
    for figure, by_system in figures.items():
        table = pandas.DataFrame(
            [
                {
                    "system": system,
                    "median": statistics.median(values),
                    "least": min(values),
                    "greatest": max(values),
                }
                for system, values in by_system.items()
            ]
        )
        base = altair.Chart(table, title=figure).encode(y=altair.Y("system", title=None, sort=None))
        bars = base.mark_bar(opacity=0.7).encode(x=altair.X("median", title=None))
        panels.append(bars + base.mark_rule(strokeWidth=2).encode(x="least", x2="greatest"))
    altair.vconcat(*panels, title=workload).save(str(path))
