"""Refuses values that a format would write as other values: 1.5 as a long, a field that the schema lacks, NaN in JSON.

Keeps true:  what the checks accept is read again as an equal value, but for what a type means by itself: a float has 32
             bits, a time in milliseconds no microseconds, and a field that is missing gets its default.
Why:         confluent_kafka's serializers, and those with its names, write the other values without a word.
How:         a schema becomes a function once; records pass through it before they are encoded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Number
from operator import index
from typing import Any

Check = Callable[[Any, str], None]
"""(value, its place in the whole) -> None. Raises ValueError for a value that would change."""

_LARGEST_FLOAT = 3.4028235677973366e38
"""From here on a number has no place in 32 bits."""
_MOST_SHOWN = 100


def avro_check(schema: Any) -> Callable[[Any], None]:
    """The check of values for a schema that fastavro has parsed."""
    check = _Avro().of(schema)
    return lambda value: check(value, "")


def check_json(value: Any, path: str = "") -> None:
    """Raise ValueError for names that are not text, and numbers that JSON does not have."""
    if isinstance(value, dict):
        for name, member in value.items():
            if not isinstance(name, str):
                raise _refusal(path, name, "is no text, as JSON's names are")
            check_json(member, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for number, member in enumerate(value):
            check_json(member, f"{path}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise _refusal(path, value, "is no number of JSON")


def checked(check: Callable[[Any], None], write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that writes values as `write` does, after the check of each."""

    def checked_write(value: Any) -> Any:
        check(value)
        return write(value)

    return checked_write


def _refusal(path: str, value: Any, why: str) -> ValueError:
    text = repr(value)
    short = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    place = path.lstrip(".")
    return ValueError(f"{f'the field {place}: ' if place else ''}{short} {why}")


def _whole(bits: int) -> Check:
    end = 1 << bits - 1

    def check(value: Any, path: str) -> None:
        try:
            number = None if isinstance(value, bool) else index(value)
        except TypeError:
            number = None
        if number is None:
            raise _refusal(path, value, "is no whole number, as the schema says")
        if not -end <= number < end:
            raise _refusal(path, value, f"has no place in {bits} bits")

    return check


def _logical(value: Any, path: str) -> None:
    """Of a whole number with a meaning: a moment or a date, for which fastavro also takes the number."""
    if isinstance(value, Number) and not isinstance(value, int):
        raise _refusal(path, value, "is no whole number, as the schema says")


def _truth(value: Any, path: str) -> None:
    if not isinstance(value, bool):
        raise _refusal(path, value, "is not true or false, as the schema says")


def _double(value: Any, path: str) -> None:
    if isinstance(value, bool | str):
        raise _refusal(path, value, "is no number, as the schema says")
    if not _is_double(value):
        raise _refusal(path, value, "is no double: it would be rounded")


def _is_double(value: Any) -> bool:
    try:
        return bool(float(value) == value or value != value)
    except OverflowError:
        return False


def _float(value: Any, path: str) -> None:
    if isinstance(value, bool | str):
        raise _refusal(path, value, "is no number, as the schema says")
    if isinstance(value, int | float) and math.isfinite(value) and abs(value) >= _LARGEST_FLOAT:
        raise _refusal(path, value, "is too large for a float of 32 bits")


def _any(value: Any, path: str) -> None: ...


_SIMPLE: dict[str, Check] = {
    "boolean": _truth,
    "int": _whole(32),
    "long": _whole(64),
    "float": _float,
    "double": _double,
}


_NUMBERS = ("int", "long", "float", "double")


class _Avro:
    def __init__(self) -> None:
        self._named: dict[str, Check] = {}

    def of(self, schema: Any) -> Check:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in _SIMPLE or schema not in self._named:
                return _SIMPLE.get(schema, _any)
            # A record that contains itself has its check later.
            return lambda value, path: self._named[schema](value, path)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            return self._array(self.of(schema["items"]))
        if kind == "map":
            return self._map(self.of(schema["values"]))
        if "logicalType" in schema and kind in ("int", "long"):
            return _logical
        return _SIMPLE.get(kind, _any) if isinstance(kind, str) else self.of(kind)

    def _record(self, schema: dict[str, Any]) -> Check:
        name = schema["name"]
        self._named[name] = _any
        fields = {field["name"]: self.of(field["type"]) for field in schema["fields"]}

        def check(value: Any, path: str) -> None:
            if isinstance(value, tuple) and len(value) == 2:
                value = value[1]
            if not isinstance(value, Mapping):
                return  # fastavro refuses it.
            for field, member in value.items():
                if field in fields:
                    fields[field](member, f"{path}.{field}")
                elif field != "-type":
                    raise _refusal(
                        f"{path}.{field}", member, f"would be lost: the record {name} has no such field"
                    )

        self._named[name] = check
        return check

    def _array(self, item: Check) -> Check:
        def check(value: Any, path: str) -> None:
            if isinstance(value, str | bytes | Mapping):
                raise _refusal(path, value, "is no list, as the schema says")
            for number, member in enumerate(value):
                item(member, f"{path}[{number}]")

        return check

    def _map(self, values: Check) -> Check:
        def check(value: Any, path: str) -> None:
            if not isinstance(value, Mapping):
                raise _refusal(path, value, "is no map, as the schema says")
            for name, member in value.items():
                values(member, f"{path}.{name}")

        return check

    def _union(self, branches: list[Any]) -> Check:
        checks = [self.of(branch) for branch in branches if branch != "null"]
        names = [_name(branch) for branch in branches if branch != "null"]
        # fastavro takes the first that holds the number; a double holds each, rounded.
        numbers = [one for name, one in zip(names, checks, strict=True) if name in _NUMBERS]

        def check(value: Any, path: str) -> None:
            if value is None:
                return
            if isinstance(value, tuple) and len(value) == 2 and value[0] in names:
                checks[names.index(value[0])](value[1], path)
                return
            is_number = isinstance(value, int) and not isinstance(value, bool) and numbers
            errors = []
            for one in numbers if is_number else checks:
                try:
                    one(value, path)
                    return
                except (ValueError, TypeError) as error:
                    if one in (_float, _double) and is_number:
                        raise
                    errors.append(error)
            if errors:
                raise errors[0]

        return check


def _name(branch: Any) -> str:
    if isinstance(branch, str):
        return branch
    return str(branch.get("name") or branch["type"])
