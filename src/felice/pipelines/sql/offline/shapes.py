"""What a test must look like before it runs: its fields and their types. Fields that are not known are left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], str | None]
"""A value to what is wrong with it, beginning with its place; None if nothing is."""
_LONGEST = 60


def fault_of(case: Any) -> str | None:
    """What is wrong with a test; None if it can run."""
    return _TEST(case)


def _expected(what: str, value: Any) -> str:
    told = repr(value)
    return f": expected {what}, and got {told if len(told) <= _LONGEST else told[:_LONGEST] + '...'}"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else _expected("a text", value)


def _whole(least: int, most: int) -> Check:
    def check(value: Any) -> str | None:
        if type(value) is int and least <= value <= most:
            return None
        return _expected(f"a whole number from {least} to {most}", value)

    return check


def _or_null(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _list_of(check: Check) -> Check:
    def check_all(value: Any) -> str | None:
        if not isinstance(value, list):
            return _expected("a list", value)
        faults = ((place, check(one)) for place, one in enumerate(value))
        return next((f"[{place}]{fault}" for place, fault in faults if fault is not None), None)

    return check_all


def _object(needed: Mapping[str, Check], others: Mapping[str, Check]) -> Check:
    def check_all(value: Any) -> str | None:
        if not isinstance(value, dict):
            return _expected("an object", value)
        for name in needed:
            if name not in value:
                return f": it lacks the field {name}"
        checks = {**needed, **{name: _or_null(check) for name, check in others.items()}}
        faults = ((name, check(value[name])) for name, check in checks.items() if name in value)
        return next((f".{name}{fault}" for name, fault in faults if fault is not None), None)

    return check_all


_COUNT = _whole(1, 2**31 - 1)
_TIME = _whole(-(2**63), 2**63 - 1)
_HEADER = _object({"KEY": _text}, {"VALUE": _text})
_WINDOW = _object({"start": _TIME}, {"end": _TIME, "type": _text})
_RECORD = _object({"topic": _text}, {"timestamp": _TIME, "window": _WINDOW, "headers": _list_of(_HEADER)})
_REFERENCES = _list_of(_object({"name": _text, "schema": lambda value: None}, {}))
_TOPIC = _object(
    {"name": _text},
    {
        "partitions": _COUNT,
        "replicas": _COUNT,
        "keyFormat": _text,
        "valueFormat": _text,
        "keySchemaId": _COUNT,
        "valueSchemaId": _COUNT,
        "keySchemaReferences": _REFERENCES,
        "valueSchemaReferences": _REFERENCES,
    },
)
_TEST = _object(
    {"name": _text, "statements": _list_of(_text)},
    {
        "properties": _object({}, {}),
        "topics": _list_of(_TOPIC),
        "inputs": _list_of(_RECORD),
        "outputs": _list_of(_RECORD),
        "expected_error": _text,
    },
)
