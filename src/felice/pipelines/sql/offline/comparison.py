"""Compares records with the expected ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from felice.pipelines.sql.catalogue import near
from felice.pipelines.sql.rows.plain import json_text

Record = Mapping[str, Any]
TOLERANCE = 0.000001
"""How much doubles may differ."""


def difference(found: Sequence[Record], expected: Sequence[Record], *, has_inputs: bool) -> str | None:
    """The first difference, as a sentence; None if there is none. Topics that are not expected are not compared."""
    topics = list(dict.fromkeys(one["topic"] for one in expected))
    for topic in topics:
        own = [one for one in found if one["topic"] == topic]
        wanted = [one for one in expected if one["topic"] == topic]
        for number, (one, other) in enumerate(zip(own, wanted, strict=False), 1):
            why = _record_difference(one, other, has_inputs=has_inputs)
            if why is not None:
                return f"record {number} of topic {topic}: {why}"
        if len(own) != len(wanted):
            more = own[len(wanted) :] or wanted[len(own) :]
            what = "more" if len(own) > len(wanted) else "fewer"
            return (
                f"topic {topic} has {len(own)} records, {what} than the expected {len(wanted)}; the first is "
                f"{_told(more[0])}{_like(topic, found) if not own else ''}"
            )
    return None


def _record_difference(found: Record, expected: Record, *, has_inputs: bool) -> str | None:
    for part in ("key", "value"):
        why = value_difference(found.get(part), expected.get(part), part)
        if why is not None:
            return why
    time = expected.get("timestamp")
    if time is not None and (time != 0 or has_inputs) and found["timestamp"] != time:
        return f"expected the timestamp {time}, and got {found['timestamp']}"
    window = expected.get("window")
    if window is not None:
        own = found.get("window")
        if own is None or any(own.get(name) != window[name] for name in window):
            return f"expected the window {window}, and got {own}"
    elif found.get("window") is not None and expected.get("window", 0) is None:
        return f"expected no window, and got {found['window']}"
    headers = expected.get("headers")
    if headers is not None and list(found.get("headers") or ()) != list(headers):
        return f"expected the headers {headers}, and got {found.get('headers')}"
    return None


def value_difference(found: Any, expected: Any, path: str) -> str | None:
    """Where two values differ; None if they are equal."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return _object_difference(found, expected, path)
    if isinstance(expected, list) and isinstance(found, list):
        if len(found) != len(expected):
            return f"{path}: expected {len(expected)} elements, and got {len(found)}: {_told(found)}"
        pairs = enumerate(zip(found, expected, strict=True))
        return next((why for n, (a, b) in pairs if (why := value_difference(a, b, f"{path}[{n}]"))), None)
    return (
        None if _is_equal(found, expected) else f"{path}: expected {_told(expected)}, and got {_told(found)}"
    )


def _object_difference(found: Mapping[str, Any], expected: Mapping[str, Any], path: str) -> str | None:
    names = {name: name for name in found} if set(found) == set(expected) else {}
    if not names:
        by_capitals = {name.upper(): name for name in found}
        for name in expected:
            own = name if name in found else by_capitals.get(name.upper())
            if own is None:
                return f"{path}: expected a field {name}, and got {_told(found)}"
            names[name] = own
        if len(expected) != len(found):
            extra = sorted(set(found) - set(names.values()))
            return f"{path}: got fields that are not expected: {', '.join(extra)}"
    for name, own in names.items():
        if (why := value_difference(found[own], expected[name], f"{path}.{name}")) is not None:
            return why
    return None


def _is_equal(found: Any, expected: Any) -> bool:
    if isinstance(found, bool) or isinstance(expected, bool):
        return found is expected
    if _is_number(found) and _is_number(expected):
        if found == expected:
            return True
        if isinstance(found, float) or isinstance(expected, float):
            return abs(float(found) - float(expected)) <= TOLERANCE
        return False
    return bool(found == expected) and isinstance(found, type(expected))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal)


def _like(topic: str, found: Sequence[Record]) -> str:
    """A hint at the topic with records whose name is most like a name: names of SQL are folded to capitals."""
    return near(topic, sorted({one["topic"] for one in found}))


def _told(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
