"""HTML and SVG of records: tables, bars and lines, without any library."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any

from felice.pipelines.streams.record import Record, Windowed

BARS, LINES = 20, 5
WIDTH, HEIGHT, BAR = 480, 160, 18
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e")
LONGEST_TEXT = 200


def message(text: str) -> str:
    """One line."""
    return f"<em>{escape(text)}</em>"


def table(records: Sequence[Record]) -> str:
    """One row for each record. A value's fields are columns if all values are dicts."""
    fields = _fields(records)
    head = ["time", "key", *(fields or ["value"])]
    body = [
        [_time(one.timestamp), _key(one.key), *([one.value.get(name) for name in fields] or [one.value])]
        for one in records
    ]
    rows = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in body)
    return f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>{rows}</table>"


def bars(values: Sequence[tuple[str, float]]) -> str:
    """A horizontal bar for each name, the greatest first."""
    largest = sorted(values, key=lambda one: -abs(one[1]))[:BARS]
    top = max((abs(value) for _, value in largest), default=0) or 1
    drawn = [
        f'<rect x="120" y="{number * BAR}" width="{abs(value) / top * (WIDTH - 200):.1f}" height="{BAR - 4}" '
        f'fill="{COLOURS[0 if value >= 0 else 2]}"/>'
        f'<text x="115" y="{number * BAR + 11}" text-anchor="end">{_text(name)}</text>'
        f'<text x="{125 + abs(value) / top * (WIDTH - 200):.1f}" y="{number * BAR + 11}">{value:g}</text>'
        for number, (name, value) in enumerate(largest)
    ]
    return _svg(drawn, BAR * len(largest))


def lines(points: Sequence[tuple[str, int, float]]) -> str:
    """A line over time for each of the first names: (name, time, value)."""
    series: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for name, time, value in points:
        series[name].append((time, value))
    named = [(name, sorted(series[name])) for name in sorted(series)[:LINES]]
    times = [time for _, line in named for time, _ in line]
    values = [value for _, line in named for _, value in line]
    left, low = min(times), min(0, *values)
    wide, high = max(times) - left or 1, max(values) - low or 1

    def point(time: int, value: float) -> str:
        return (
            f"{(time - left) / wide * (WIDTH - 20):.1f},{HEIGHT - (value - low) / high * (HEIGHT - 20):.1f}"
        )

    drawn = [
        f'<polyline fill="none" stroke="{COLOURS[number]}" points="{" ".join(point(*one) for one in line)}"/>'
        f'<text x="5" y="{12 + 12 * number}" fill="{COLOURS[number]}">{_text(name)}</text>'
        for number, (name, line) in enumerate(named)
    ]
    return _svg(drawn, HEIGHT)


def _svg(drawn: Sequence[str], height: int) -> str:
    style = 'font-family="sans-serif" font-size="11"'
    return f'<svg width="{WIDTH}" height="{height}" {style}>{"".join(drawn)}</svg>'


def _fields(records: Sequence[Record]) -> list[str]:
    if not all(isinstance(one.value, dict) for one in records):
        return []
    return list(dict.fromkeys(str(name) for one in records for name in one.value))


def _key(key: Any) -> Any:
    if not isinstance(key, Windowed):
        return key
    return f"{key.key} from {_time(key.window.start)} to {_time(key.window.end)}"


def _time(timestamp: int) -> str:
    try:
        time = datetime.datetime.fromtimestamp(timestamp / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return time.strftime("%Y-%m-%d %H:%M:%S") + f".{timestamp % 1000:03d}"


def _text(value: Any) -> str:
    text = "" if value is None else str(value)
    return escape(text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…")
