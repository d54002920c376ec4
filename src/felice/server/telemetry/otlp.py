"""Reads the part of OpenTelemetry's metrics protobuf that Kafka's clients send: gauges and sums of numbers.

Keeps true: every fault of the bytes raises `BadTelemetry`. Reading is lazy and never nests deeper than the format.
            At most `MAX_FIELDS` fields are read, and `MAX_ATTRIBUTES` attributes are kept for a point, so time and
            memory are bounded.
Histograms and summaries are skipped: no Kafka client sends them. A generated decoder would need a library of its own
for five message types.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

from felice.dataclass import dataclass
from felice.protocol.primitives import Buffer

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_DELTA = 1

MAX_FIELDS = 500_000
"""A point of Kafka's clients has about 25 fields."""
MAX_ATTRIBUTES = 16

# Numbers of fields.
_RESOURCE_METRICS = 1
_RESOURCE, _SCOPE_METRICS = 1, 2
_ATTRIBUTES = 1
_METRICS = 2
_NAME, _GAUGE, _SUM = 1, 5, 7
_POINTS, _TEMPORALITY, _IS_MONOTONIC = 1, 2, 3
_FACTS = (_TEMPORALITY, _IS_MONOTONIC)
_AS_DOUBLE, _AS_INT, _POINT_ATTRIBUTES = 4, 6, 7
_KEY, _VALUE = 1, 2
_TEXT, _BOOL, _INT, _DOUBLE = 1, 2, 3, 4

Value: TypeAlias = int | memoryview
"""A varint, or the bytes of any other type."""
Attributes: TypeAlias = tuple[tuple[str, str], ...]


class BadTelemetry(ValueError):
    """Bytes that are not the metrics of a client."""


@dataclass(frozen=True, slots=True)
class Point:
    """A value of a metric."""

    name: str
    attributes: Attributes
    value: float
    is_delta: bool
    """Whether the value is what was added since the last push, and not the sum."""
    is_counter: bool


def points(data: Buffer) -> Iterator[Point]:
    """The points of a push, one by one. Raises `BadTelemetry`."""
    try:
        yield from _Reader().points(memoryview(data))
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise BadTelemetry(str(error)) from None


class _Reader:
    """Reads one push, and counts its fields."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def points(self, view: memoryview) -> Iterator[Point]:
        """The points of all resources."""
        for number, resource_metrics in self._fields(view):
            if number == _RESOURCE_METRICS:
                yield from self._of_resource(_bytes(resource_metrics))

    def _of_resource(self, view: memoryview) -> Iterator[Point]:
        shared: Attributes = ()
        scopes = []
        for number, value in self._fields(view):
            if number == _RESOURCE:
                shared = self._attributes(shared, _bytes(value), _ATTRIBUTES)
            elif number == _SCOPE_METRICS:
                scopes.append(_bytes(value))
        for scope in scopes:
            for number, value in self._fields(scope):
                if number == _METRICS:
                    yield from self._of_metric(_bytes(value), shared)

    def _of_metric(self, view: memoryview, shared: Attributes) -> Iterator[Point]:
        name, kind, data = "", 0, view[:0]
        for number, value in self._fields(view):
            if number == _NAME:
                name = _text(value)
            elif number in (_GAUGE, _SUM):
                kind, data = number, _bytes(value)
        facts = {}
        if kind == _SUM:
            facts = {number: value for number, value in self._fields(data) if number in _FACTS}
        is_delta, is_counter = facts.get(_TEMPORALITY) == _DELTA, facts.get(_IS_MONOTONIC) == 1
        for number, value in self._fields(data):
            if number == _POINTS:
                point = _bytes(value)
                attributes = self._attributes(shared, point, _POINT_ATTRIBUTES)
                yield Point(name, attributes, self._amount(point), is_delta, is_counter)

    def _amount(self, view: memoryview) -> float:
        amount = 0.0
        for number, value in self._fields(view):
            if number == _AS_DOUBLE:
                amount = float(struct.unpack("<d", _bytes(value))[0])
            elif number == _AS_INT:
                amount = float(struct.unpack("<q", _bytes(value))[0])
        return amount

    def _attributes(self, before: Attributes, view: memoryview, wanted: int) -> Attributes:
        """The attributes in the fields of a number, behind those from before. The first `MAX_ATTRIBUTES` count."""
        found = list(before)
        for number, value in self._fields(view):
            if number == wanted and len(found) < MAX_ATTRIBUTES:
                found.append(self._attribute(_bytes(value)))
        return tuple(found)

    def _attribute(self, view: memoryview) -> tuple[str, str]:
        key, text = "", ""
        for number, value in self._fields(view):
            if number == _KEY:
                key = _text(value)
            elif number == _VALUE:
                text = self._any_value(_bytes(value))
        return key, text

    def _any_value(self, view: memoryview) -> str:
        for number, value in self._fields(view):
            if number == _TEXT:
                return _text(value)
            if number == _BOOL:
                return "true" if value else "false"
            if number == _INT and isinstance(value, int):
                return str(value - (1 << 64) if value >= 1 << 63 else value)
            if number == _DOUBLE:
                return str(struct.unpack("<d", _bytes(value))[0])
        return ""

    def _fields(self, view: memoryview) -> Iterator[tuple[int, Value]]:
        """The fields of a message: their numbers and values."""
        at = 0
        while at < len(view):
            self._left -= 1
            if self._left < 0:
                raise BadTelemetry(f"there are more than {MAX_FIELDS} fields")
            tag, at = _varint(view, at)
            kind = tag & 7
            if kind == _VARINT:
                number, at = _varint(view, at)
                yield tag >> 3, number
                continue
            size, at = _size(view, at, kind)
            yield tag >> 3, view[at : at + size]
            at += size


def _size(view: memoryview, at: int, kind: int) -> tuple[int, int]:
    """The size of a field's value, and where the value begins."""
    if kind == _BYTES:
        size, at = _varint(view, at)
    elif kind in (_FIXED_64, _FIXED_32):
        size = 8 if kind == _FIXED_64 else 4
    else:
        raise BadTelemetry(f"wire type {kind} is unknown")
    if size > len(view) - at:
        raise BadTelemetry(f"a field of {size} bytes goes beyond the end")
    return size, at


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    number = 0
    for place in range(_MAX_VARINT_BYTES):
        byte = view[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise BadTelemetry("a varint is too long")


def _bytes(value: Value) -> memoryview:
    if isinstance(value, int):
        raise BadTelemetry("a number where a message must be")
    return value


def _text(value: Value) -> str:
    return bytes(_bytes(value)).decode()
