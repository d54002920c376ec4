"""How keys and values become bytes in topics, and plain values in stores.

Keeps true: `read(write(x)) == x`. None stays None: it is never given to a format.
How:        A store holds `pack(x)`: numbers, text and bytes unchanged, lists and dicts as JSON. An aggregator may
            change a list that it gets; without the packed copy this would also change the table's old value.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.record import Window, Windowed, changes_of
from felice.pipelines.streams.telling import shown

_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_NULL = _INT.pack(-1)
_TWO_LONGS = struct.Struct(">qq")
# JSON, or a value, with too many levels raises RecursionError.
UNREADABLE = ValueError, struct.error, RecursionError
"""What `Format.read` raises of bytes in another format."""
UNWRITABLE = ValueError, TypeError, AttributeError, struct.error, RecursionError
"""What `Format.write` raises of values that the format cannot hold."""


class FormatError(ValueError):
    """Bytes that are not in the expected format, or a value that the format cannot hold."""


class Format:
    """One format of keys or values."""

    @property
    def name(self) -> str:
        """The name in messages and options."""
        raise NotImplementedError

    def write(self, value: Any) -> bytes:
        """The bytes of a value, as Kafka's serializer of this format writes them."""
        raise NotImplementedError

    def read(self, data: bytes) -> Any:
        """The value of these bytes."""
        raise NotImplementedError

    def pack(self, value: Any) -> Any:
        """The value in a form that can be a key of a dict, and that does not change when the value is changed later."""
        return value

    def unpack(self, packed: Any) -> Any:
        """The value of a packed form."""
        return packed

    def placed_by(self, value: Any) -> bytes | None:
        """The bytes that chose the partition of a record with this key; None if the key does not determine them."""
        return self.encode(value)

    def encode(self, value: Any) -> bytes | None:
        """`write`, with None for null, and a `FormatError` that names the value."""
        if value is None:
            return None
        try:
            return self.write(value)
        except UNWRITABLE as error:
            raise FormatError(f"{shown(value)} cannot be written as {self.name}: {error}") from None

    def decode(self, data: bytes | None) -> Any:
        """`read`, with None for null, and a `FormatError` that shows the bytes."""
        if data is None:
            return None
        try:
            return self.read(data)
        except UNREADABLE as error:
            raise FormatError(f"{data[:80]!r} is not {self.name}: {error}") from None

    def encode_all(self, values: list[Any]) -> list[bytes | None]:
        """The bytes of each value. One of `UNWRITABLE` says that `encode` fails for a value."""
        write = self.write
        return [None if value is None else write(value) for value in values]

    def decode_all(self, data: list[bytes | None]) -> list[Any]:
        """The value of each. One of `UNREADABLE` says that `decode` fails for one."""
        read = self.read
        return [None if one is None else read(one) for one in data]


class _Bytes(Format):
    name = "bytes"

    def write(self, value: bytes) -> bytes:
        return bytes(memoryview(value))

    def read(self, data: bytes) -> bytes:
        return data


class _String(Format):
    name = "string"

    def write(self, value: str) -> bytes:
        return value.encode()

    def read(self, data: bytes) -> str:
        return data.decode()

    def decode_all(self, data: list[bytes | None]) -> list[Any]:
        return [None if one is None else one.decode() for one in data]


_UNCHANGEABLE = (int, str, float)
_from_json = json.JSONDecoder().decode
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class _Json(Format):
    name = "json"

    def write(self, value: Any) -> bytes:
        # Counts are common, and this takes a third of the encoder's time.
        return str(value).encode() if type(value) is int else _to_json(value).encode()

    def read(self, data: bytes) -> Any:
        try:
            return _from_json(data.decode())
        except ValueError:
            return json.loads(data)  # In UTF-16 or UTF-32, with a byte order mark, or no JSON.

    def pack(self, value: Any) -> Any:
        return value if isinstance(value, _UNCHANGEABLE) else self.write(value)

    def unpack(self, packed: Any) -> Any:
        return _from_json(packed.decode()) if isinstance(packed, bytes) else packed

    def placed_by(self, value: Any) -> bytes | None:
        return None  # Other writers put spaces elsewhere.


@dataclass(frozen=True, slots=True)
class _Number(Format):
    label: str
    layout: str

    @property
    def name(self) -> str:
        """The name of Kafka's serializer for this format."""
        return self.label

    def write(self, value: float) -> bytes:
        return struct.pack(self.layout, value)

    def read(self, data: bytes) -> Any:
        return struct.unpack(self.layout, data)[0]


class _Windowed(Format):
    key: Format

    @property
    def name(self) -> str:
        return f"windowed {self.key.name}"

    def pack(self, value: Windowed) -> Any:
        return self.key.pack(value.key), value.window.start, value.window.end

    def placed_by(self, value: Windowed) -> bytes | None:
        return self.key.placed_by(value.key)  # Windows are made where the records are.

    def unpack(self, packed: Any) -> Windowed:
        key, start, end = packed
        return Windowed(self.key.unpack(key), Window(start, end))


@dataclass(frozen=True, slots=True)
class _TimeWindowed(_Windowed):
    key: Format
    size_ms: int

    def write(self, value: Windowed) -> bytes:
        key, (start, _) = value
        return self.key.write(key) + _LONG.pack(start)

    def read(self, data: bytes) -> Windowed:
        (start,) = _LONG.unpack(data[-8:])
        return Windowed(self.key.read(data[:-8]), Window(start, start + self.size_ms))


@dataclass(frozen=True, slots=True)
class _SessionWindowed(_Windowed):
    key: Format

    def write(self, value: Windowed) -> bytes:
        key, (start, end) = value
        return self.key.write(key) + _TWO_LONGS.pack(end, start)

    def read(self, data: bytes) -> Windowed:
        end, start = _TWO_LONGS.unpack(data[-16:])
        return Windowed(self.key.read(data[:-16]), Window(start, end))


def time_windowed(key: Format, size_ms: int) -> Format:
    """The format of Kafka's TimeWindowedSerializer: a key and its window's start. Reading needs the window's size."""
    return _TimeWindowed(key, size_ms)


def session_windowed(key: Format) -> Format:
    """The format of Kafka's SessionWindowedSerializer: a key, and its session's end and start."""
    return _SessionWindowed(key)


@dataclass(frozen=True, slots=True)
class _Pair(Format):
    label: str
    one: Format
    other: Format
    make: Callable[[list[Any], list[Any]], list[Any]]
    """Makes the pairs of two columns."""

    @property
    def name(self) -> str:
        return self.label

    def write(self, value: tuple[Any, Any]) -> bytes:
        return _joined(self.one.encode(value[0]), self.other.encode(value[1]))

    def read(self, data: bytes) -> Any:
        return self.decode_all([data])[0]

    def encode_all(self, values: list[Any]) -> list[bytes | None]:
        if None in values:
            return Format.encode_all(self, values)  # A class with slots has no `super()`.
        ones = self.one.encode_all([value[0] for value in values])
        return list(map(_joined, ones, self.other.encode_all([value[1] for value in values])))

    def decode_all(self, data: list[bytes | None]) -> list[Any]:
        given = [one for one in data if one is not None]
        if len(given) < len(data):
            return Format.decode_all(self, data)
        pairs = list(map(_divided, given))
        ones = self.one.decode_all([one for one, _ in pairs])
        return self.make(ones, self.other.decode_all([other for _, other in pairs]))


def _joined(one: bytes | None, other: bytes | None) -> bytes:
    length = _NULL if one is None else _INT.pack(len(one))
    return length + (one or b"") + (b"" if other is None else b"\0" + other)


def _divided(data: bytes) -> tuple[bytes | None, bytes | None]:
    (length,) = _INT.unpack_from(data)
    end = 4 if length < 0 else 4 + length
    return None if length < 0 else data[4:end], data[end + 1 :] if len(data) > end else None


def pair_of(one: Format, other: Format) -> Format:
    """The format of two values in a repartition.

    The bytes are the length of the first value (-1 for null), the first value, and, unless the second value is null,
    a zero and the second value.
    """
    return _Pair(f"pair of {one.name} and {other.name}", one, other, _pairs)


def change_of(value: Format) -> Format:
    """The format of a table's change in a repartition: the pair of its new and its old value."""
    return _Pair(f"change of {value.name}", value, value, changes_of)


def _pairs(ones: list[Any], others: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(ones, others, strict=True))


BYTES: Format = _Bytes()
JSON: Format = _Json()
FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        BYTES,
        _String(),
        JSON,
        # With the layout, not with a `Struct`: a `Struct` cannot be pickled, and formats are sent to the workers.
        _Number("int", ">i"),
        _Number("long", ">q"),
        _Number("double", ">d"),
    )
}


def format_of(given: str | Format) -> Format:
    """The format with this name; a `Format` is returned unchanged. Raises ValueError with the names that exist."""
    if isinstance(given, Format):
        return given
    if given not in FORMATS:
        raise ValueError(f"no format {given!r}; formats are {', '.join(FORMATS)}")
    return FORMATS[given]
