"""How keys and values become bytes in topics, and plain values in stores.

Keeps true: `read(write(x)) == x`; a value that does not come back is refused. None stays None: it is never given to a
            format.
            Two keys, or two values, are the same if and only if their bytes are: `write` decides, never Python's `==`,
            for which 1, 1.0 and True are equal.
How:        A store finds a row by `key_bytes(key)`. It holds `pack(value)`: a number, a text or bytes of Python's own
            types, everything else as it is written. An aggregator may change a list that it gets; without the packed
            copy this would also change the table's old value. A value of a class, such as a number of numpy, is packed
            as the plain value that its bytes stand for: state is read without any class.
"""

from __future__ import annotations

import json
import math
import struct
import uuid
from collections.abc import Callable
from functools import cached_property
from json import encoder
from typing import Any, NoReturn, Protocol

from felice.dataclass import dataclass
from felice.pipelines.errors import FormatError
from felice.pipelines.streams.record import Window, Windowed, changes_of
from felice.pipelines.streams.telling import shown

_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_NULL = _INT.pack(-1)
_TWO_LONGS = struct.Struct(">qq")
# JSON, or a value, with too many levels raises RecursionError.
UNREADABLE = ValueError, struct.error, RecursionError
"""What `Format.read` raises of bytes in another format."""
UNWRITABLE = ValueError, TypeError, AttributeError, OverflowError, struct.error, RecursionError
"""What `Format.write` raises of values that the format cannot hold."""


class Format:
    """One format of keys or values. One of your own has a `name`, `write` and `read`.

    It is sent to Spark's workers with `pickle`. Its class may raise ValueError or TypeError for what it cannot write or
    read. Two keys are the same if `write` gives the same bytes.
    """

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

    @property
    def layout(self) -> str:
        """The structure of the values, if the format cannot read values of another structure under the same name."""
        return ""

    @property
    def writer(self) -> Callable[[Any], bytes | None]:
        """`write`, which is None for values that stand for null in this format."""
        return self.write

    @property
    def plain(self) -> type | None:
        """The type whose values `pack` and `unpack` return unchanged, so that stores need not call `pack` and `unpack`.
        Values of its subclasses are packed.
        """
        return None

    def written(self, value: str) -> tuple[str, dict[str, Any]]:
        """An expression for the bytes that `writer` returns for a value, with fewer calls. Names are in braces.
        `value` is the text of an expression for the value, which is not null.
        """
        return f"{{write}}({value})", {"write": self.writer}

    def pack(self, value: Any) -> Any:
        """The value as a store keeps it: of a plain type, and not changed when the value is changed later."""
        return self.write(value)

    def unpack(self, packed: Any) -> Any:
        """The value of a packed form."""
        return self.read(packed)

    def key_bytes(self, key: Any) -> bytes:
        """The bytes by which a store finds the row of a key. Raises a `FormatError` that names a key without bytes."""
        try:
            return self.write(key)
        except UNWRITABLE as error:
            raise self.refusal(key, error) from None

    def bytes_of_packed(self, packed: Any) -> bytes:
        """The bytes of a key that earlier releases found rows by: they compared packed keys."""
        return self.write(self.unpack(packed))

    def is_same(self, one: Any, other: Any) -> bool:
        """Whether both are null, or have the same bytes."""
        if one is other or (type(one) is type(other) and type(one) in _COMPARED and one == other):
            return True
        return self.encode(one) == self.encode(other)

    def field(self, name: str) -> Callable[[Any], Any]:
        """The function that returns this field of a value, None if the value lacks it.

        Raises ValueError if no value of the format has a field of this name.
        """
        return lambda value: value.get(name)

    def of_topic(self, topic: str, part: str) -> Format:
        """The format where it writes a topic's keys or values: `part` is "key" or "value"."""
        return self

    def placed_by(self, data: bytes) -> bytes | None:
        """The bytes that chose the partition of a record whose key has these bytes; None if they are not known."""
        return data

    def refusal(self, value: Any, error: Exception) -> FormatError:
        """The error that names a value that cannot be written."""
        return FormatError(f"{shown(value)} cannot be written as {self.name}: {error}")

    def encode(self, value: Any) -> bytes | None:
        """`write`, with None for null, and a `FormatError` that names the value."""
        if value is None:
            return None
        try:
            return self.writer(value)
        except UNWRITABLE as error:
            raise self.refusal(value, error) from None

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
        write = self.writer
        return [None if value is None else write(value) for value in values]

    def decode_all(self, data: list[bytes | None]) -> list[Any]:
        """The value of each. One of `UNREADABLE` says that `decode` fails for one."""
        read = self.read
        return [None if one is None else read(one) for one in data]


_COMPARED = frozenset((str, int))
"""Types whose equal values have equal bytes in each format."""


class _Bytes(Format):
    name = "bytes"

    def write(self, value: bytes) -> bytes:
        if type(value) is bytes:
            return value
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"{type(value).__name__} is not bytes")
        return bytes(value)

    def read(self, data: bytes) -> bytes:
        return data

    def written(self, value: str) -> tuple[str, dict[str, Any]]:
        text, names = Format.written(self, value)
        return f"{value} if type({value}) is bytes else {text}", names

    def pack(self, value: Any) -> Any:
        # An aggregator that began with a bytearray goes on with one, a copy each time.
        return bytearray(value) if isinstance(value, bytearray) else self.write(value)

    def unpack(self, packed: Any) -> Any:
        return packed if type(packed) is bytes else bytearray(packed)

    def bytes_of_packed(self, packed: Any) -> bytes:
        return self.write(packed)

    def decode_all(self, data: list[bytes | None]) -> list[Any]:
        return data


class _String(Format):
    name = "string"

    # Not `value.encode`: that of a subclass may be another function. Joins call this for each record.
    write = staticmethod(str.encode)  # type: ignore[assignment]

    def read(self, data: bytes) -> str:
        return data.decode()

    def written(self, value: str) -> tuple[str, dict[str, Any]]:
        return f"{{encode}}({value})", {"encode": str.encode}

    def pack(self, value: Any) -> Any:
        return value if type(value) is str and value.isascii() else str.encode(value).decode()

    def unpack(self, packed: Any) -> Any:
        return packed

    def encode_all(self, values: list[Any]) -> list[bytes | None]:
        encode = str.encode
        return [None if value is None else encode(value) for value in values]

    def decode_all(self, data: list[bytes | None]) -> list[Any]:
        return [None if one is None else one.decode() for one in data]


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


# The public methods of `json` make or wrap these for each text, which takes longer than the work itself.
_scan = json.JSONDecoder(parse_constant=_no_json).scan_once  # type: ignore[attr-defined]
_quoted = encoder.encode_basestring
_chunks = encoder.c_make_encoder(  # type: ignore[attr-defined]
    None, json.JSONEncoder().default, _quoted, None, ":", ",", False, False, False
)
_SCALARS = frozenset((str, int, float, bool, type(None)))
_MANY = dict, list, tuple


def _check_names(value: Any) -> None:
    """Refuse names that are not text: JSON has no others, so 7 would come back as "7"."""
    if isinstance(value, dict):
        try:
            "".join(value)
        except TypeError:
            wrong = next(name for name in value if not isinstance(name, str))
            raise TypeError(f"the name {shown(wrong)} is not text") from None
        value = value.values()
    for one in value:
        if type(one) not in _SCALARS and isinstance(one, _MANY):
            _check_names(one)


def _whole_characters(text: str) -> str:
    """The text with each pair of surrogates as the one character that it stands for, as JSON's reader makes it."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class _Json(Format):
    name = "json"
    plain = int

    def write(self, value: Any) -> bytes:
        kind = type(value)
        if kind is str:
            text = _quoted(value)
        elif kind is int:
            return str(value).encode()
        else:
            text = self._text(value)
        try:
            return text.encode()
        except UnicodeEncodeError:
            # JSON can escape half of a pair of surrogates, so such a text passes as it came.
            return _whole_characters(text).encode(errors="backslashreplace")

    def _text(self, value: Any) -> str:
        if value is None:
            raise TypeError("null is no value")
        if isinstance(value, _MANY):
            _check_names(value)
        return "".join(_chunks(value, 0))

    def read(self, data: bytes) -> Any:
        try:
            text = data.decode()
            value, end = _scan(text, 0)
            if end == len(text):
                return value
        except (ValueError, StopIteration):
            pass
        # With white space around it, in UTF-16 or UTF-32, with a byte order mark, or no JSON.
        return json.loads(data, parse_constant=_no_json)

    def pack(self, value: Any) -> Any:
        kind = type(value)
        if kind is int or kind is bool or (kind is float and math.isfinite(value)):
            return value
        if kind is str:
            return value if value.isascii() else _whole_characters(value)
        return self.write(value)

    def unpack(self, packed: Any) -> Any:
        return self.read(packed) if type(packed) is bytes else packed

    def placed_by(self, data: bytes) -> bytes | None:
        return None  # Other writers put spaces elsewhere.


@dataclass(frozen=True, slots=True)
class _Number(Format):
    label: str
    layout: str
    kind: type[float]
    end: float
    """A number of this type with `-end` <= number < `end` is its own packed form. With 0 there is no such number."""

    @property
    def name(self) -> str:
        """The name of Kafka's serializer for this format."""
        return self.label

    def write(self, value: float) -> bytes:
        if value != value:
            value = math.nan  # Java has one NaN in bytes.
        return struct.pack(self.layout, value)

    def read(self, data: bytes) -> Any:
        return struct.unpack(self.layout, data)[0]

    def pack(self, value: Any) -> Any:
        if type(value) is self.kind and -self.end <= value < self.end:
            return value
        return self.read(self.write(value))

    def unpack(self, packed: Any) -> Any:
        return packed


class _Boolean(Format):
    name = "boolean"

    def write(self, value: Any) -> bytes:
        if type(value) is not bool:
            raise TypeError(f"{type(value).__name__} is not true or false")
        return b"\1" if value else b"\0"

    def read(self, data: bytes) -> bool:
        if data not in (b"\0", b"\1"):
            raise ValueError("expected one byte, 0 or 1")
        return data == b"\1"


class _Uuid(Format):
    """A text, as Kafka's serializer writes it."""

    name = "uuid"

    def write(self, value: Any) -> bytes:
        if not isinstance(value, uuid.UUID):
            raise TypeError(f"{type(value).__name__} is not uuid.UUID")
        return str(value).encode()

    def read(self, data: bytes) -> uuid.UUID:
        return uuid.UUID(data.decode())


class _Windowed(Format):
    key: Format

    @property
    def name(self) -> str:
        return f"windowed {self.key.name}"

    def bytes_of_packed(self, packed: Any) -> bytes:
        key, start, end = packed
        return self.write(Windowed(self.key.unpack(key), Window(start, end)))


class WindowEnds(Protocol):
    """Says where windows end."""

    def end_of(self, start: int) -> int:
        """The end of the window that begins then."""


@dataclass(frozen=True, slots=True)
class FixedSize:
    """Windows of one size."""

    size_ms: int

    def end_of(self, start: int) -> int:
        """So long after the start."""
        return start + self.size_ms


@dataclass(frozen=True, slots=True)
class _TimeWindowed(_Windowed):
    key: Format
    ends: WindowEnds

    def of_topic(self, topic: str, part: str) -> Format:
        return _TimeWindowed(self.key.of_topic(topic, part), self.ends)

    @cached_property
    def write(self) -> Callable[[Windowed], bytes]:
        write, pack = self.key.write, _LONG.pack
        return lambda value: write(value[0]) + pack(value[1][0])

    def written(self, value: str) -> tuple[str, dict[str, Any]]:
        key, names = self.key.written(f"{value}[0]")
        return f"({key}) + {{pack}}({value}[1][0])", names | {"pack": _LONG.pack}

    def placed_by(self, data: bytes) -> bytes | None:
        return self.key.placed_by(data[:-8])  # Windows are made where the records are.

    def read(self, data: bytes) -> Windowed:
        (start,) = _LONG.unpack(data[-8:])
        return Windowed(self.key.read(data[:-8]), Window(start, self.ends.end_of(start)))


@dataclass(frozen=True, slots=True)
class _SessionWindowed(_Windowed):
    key: Format

    def of_topic(self, topic: str, part: str) -> Format:
        return _SessionWindowed(self.key.of_topic(topic, part))

    @cached_property
    def write(self) -> Callable[[Windowed], bytes]:
        write, pack = self.key.write, _TWO_LONGS.pack
        return lambda value: write(value[0]) + pack(value[1][1], value[1][0])

    def written(self, value: str) -> tuple[str, dict[str, Any]]:
        key, names = self.key.written(f"{value}[0]")
        return f"({key}) + {{pack}}({value}[1][1], {value}[1][0])", names | {"pack": _TWO_LONGS.pack}

    def placed_by(self, data: bytes) -> bytes | None:
        return self.key.placed_by(data[:-16])

    def read(self, data: bytes) -> Windowed:
        end, start = _TWO_LONGS.unpack(data[-16:])
        return Windowed(self.key.read(data[:-16]), Window(start, end))


def time_windowed(key: str | Format, size_ms: int) -> Format:
    """The format of Kafka's TimeWindowedSerializer: a key and its window's start. Reading needs the window's size."""
    if size_ms < 1:
        raise ValueError(f"the size of windows is {size_ms} ms, but must be at least 1")
    return _TimeWindowed(format_of(key), FixedSize(size_ms))


def windowed_by(key: Format, ends: WindowEnds) -> Format:
    """`time_windowed` for windows of several sizes."""
    return _TimeWindowed(key, ends)


def session_windowed(key: str | Format) -> Format:
    """The format of Kafka's SessionWindowedSerializer: a key, and its session's end and start."""
    return _SessionWindowed(format_of(key))


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
STRING: Format = _String()
JSON: Format = _Json()
FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        BYTES,
        STRING,
        JSON,
        _Boolean(),
        _Uuid(),
        # With the layout, not with a `Struct`: a `Struct` cannot be pickled, and formats are sent to the workers.
        _Number("short", ">h", int, 1 << 15),
        _Number("int", ">i", int, 1 << 31),
        _Number("long", ">q", int, 1 << 63),
        _Number("float", ">f", float, 0),
        _Number("double", ">d", float, math.inf),
    )
}


def format_of(given: str | Format) -> Format:
    """The format with this name; a `Format` is returned unchanged. Raises ValueError with the names that exist."""
    if isinstance(given, Format):
        return given
    if given in ("avro", "json_schema", "protobuf"):
        raise ValueError(
            f"the format {given} needs a registry: give {given}(REGISTRY, ...) of felice.streams instead"
        )
    if given not in FORMATS:
        raise ValueError(f"no format {given!r}; formats are {', '.join(FORMATS)}")
    return FORMATS[given]
