"""Metrics in Prometheus' text format. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Rows = Sequence[tuple[Mapping[str, str], float]]
"""Labels, and the value that they have."""


def family(name: str, kind: str, told: str, rows: Rows) -> Iterator[str]:
    """The lines of one metric: its help, its kind (gauge, counter), and a line for each value; none without values."""
    if rows:
        yield f"# HELP {name} {told}\n# TYPE {name} {kind}\n"
    for labels, value in rows:
        written = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{written}}} {value}\n" if written else f"{name} {value}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
