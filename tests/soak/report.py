"""A run as a table in Markdown and a chart, made from its files alone, also while it is still running."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soak.samples import Sample, read_samples
from soak.verdict import PARTS, SAMPLES_NEEDED, changes, errors_in, growth

SAMPLES, LOAD, BROKER_LOG = "samples.jsonl", "load.json", "data.stderr"
CHARTED = {
    "resident memory (MiB)": "rss_mib",
    "open files": "open_files",
    "processor (% of a core)": "cpu_percent",
    "worst answer of the event loop (ms)": "worst_ping_ms",
    "log directory (MiB)": "log_mib",
}


def load_so_far(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / LOAD).read_text())
    return found


def faults_of(directory: Path, checks_growth: bool = True) -> list[str]:
    """Every anomaly; empty for a good run."""
    samples = read_samples(directory / SAMPLES)
    errors = [f"the broker's log: {line}" for line in errors_in((directory / BROKER_LOG).read_text())]
    return [*load_so_far(directory)["faults"], *errors, *(growth(samples) if checks_growth else [])]


def write_report(directory: Path) -> str:
    samples = read_samples(directory / SAMPLES)
    text = "\n".join([*_summary(directory, samples), "", *_table(samples), ""])
    (directory / "report.md").write_text(text)
    _chart(samples).save(str(directory / "chart.html"))
    _chart(samples).save(str(directory / "chart.png"), ppi=110)
    return text


def _summary(directory: Path, samples: Sequence[Sample]) -> list[str]:
    load, faults = load_so_far(directory), faults_of(directory)
    rounds = ", ".join(f"{count} of {name}" for name, count in load["rounds"].items())
    minutes = samples[-1].at_s / 60 if samples else 0
    return [
        f"# Soak of {minutes:.0f} minutes: {'FAULTS' if faults else 'flat, no anomaly'}",
        "",
        f"Rounds: {rounds}." + ("" if load["is_complete"] else " The run has not ended."),
        "",
        *(f"- {fault}" for fault in faults),
    ]


def _table(samples: Sequence[Sample]) -> list[str]:
    if len(samples) < SAMPLES_NEEDED:
        return []
    rows = [
        f"| {change.figure} | {change.first:,.1f} | {change.last:,.1f} | {change.ratio:+.1%} "
        f"| {change.bound} | {'' if not change.bound else 'kept' if change.is_kept else 'BROKEN'} |"
        for change in changes(samples)
    ]
    return [
        f"Medians of the second and of the last of {PARTS} equal parts (the first is warm-up).",
        "",
        "| figure | second part | last part | change | bound | |",
        "|---|---:|---:|---:|---|---|",
        *rows,
    ]


def _chart(samples: Sequence[Sample]) -> Any:
    import altair

    rows = [
        {"minute": sample.at_s / 60, "figure": title, "value": getattr(sample, figure)}
        for sample in samples
        for title, figure in CHARTED.items()
    ]
    title = altair.Header(labelAngle=0, labelAlign="left", labelOrient="top")
    return (
        altair.Chart(altair.Data(values=rows), width=760, height=110)
        .mark_line(strokeWidth=1)
        .encode(
            x=altair.X("minute:Q", title="minutes"),
            y=altair.Y("value:Q", title=None, scale=altair.Scale(zero=True)),
            row=altair.Row("figure:N", title=None, sort=list(CHARTED), header=title),
        )
        .resolve_scale(y="independent")
    )
