"""Prometheus' text format, written in slices of time between which the broker serves its clients.

Keeps true: writing holds the event loop for about `SLICE_S` at a time, however many series there are.
The format needs a few lines of code; a library would write the whole page in one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

from felice.env import Clock
from felice.server.metrics.families import Families, Family
from felice.server.metrics.names import Dialect, exposed, labels_in

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLICE_S = 0.002
_ROWS_BETWEEN_LOOKS = 50


async def render(families: Families, dialect: Dialect, clock: Clock) -> list[bytes]:
    """The page as pieces of bytes."""
    pieces = []
    began_s = clock.monotonic()
    lines: list[str] = []
    for found in families:
        for block in _blocks(found, dialect) if found is not None else ("",):
            lines.append(block)
            if clock.monotonic() - began_s >= SLICE_S:
                pieces.append("".join(lines).encode(errors="backslashreplace"))
                lines = []
                await asyncio.sleep(0)
                began_s = clock.monotonic()
    pieces.append("".join(lines).encode(errors="backslashreplace"))
    return pieces


def _blocks(family: Family, dialect: Dialect) -> Iterator[str]:
    """The family's lines, a few at a time. A family without rows has no lines."""
    name = name_of(family, dialect)
    head = f"# HELP {name} {family.help}\n# TYPE {name} {family.kind.value}\n"
    lines = _lines(family, name, dialect)
    while block := "".join(islice(lines, _ROWS_BETWEEN_LOOKS)):
        yield head + block
        head = ""


def name_of(family: Family, dialect: Dialect) -> str:
    """The family's name in a dialect."""
    if dialect in family.other_names:
        return family.other_names[dialect]
    return family.name if isinstance(family.name, str) else exposed(family.name, dialect)


def _lines(family: Family, name: str, dialect: Dialect) -> Iterator[str]:
    is_lowered = dialect is Dialect.CONFLUENT
    for labels, value in family.rows:
        if is_lowered:
            labels = labels_in(dialect, labels)
        yield f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n"
