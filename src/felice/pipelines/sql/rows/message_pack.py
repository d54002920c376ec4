"""MessagePack of what values of SQL are made of, in Python: as msgspec writes it, and for texts that it refuses.

A map is read as a list of pairs: a key may be a list, which no dict takes.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Iterator
from typing import Any

_TEXT = (0xA0, 32, ((0xD9, ">B"), (0xDA, ">H"), (0xDB, ">I")))
_BYTES = (0, 0, ((0xC4, ">B"), (0xC5, ">H"), (0xC6, ">I")))
_ARRAY = (0x90, 16, ((0xDC, ">H"), (0xDD, ">I")))
_MAP = (0x80, 16, ((0xDE, ">H"), (0xDF, ">I")))
_POSITIVE = (0, 128, ((0xCC, ">B"), (0xCD, ">H"), (0xCE, ">I"), (0xCF, ">Q")))
_NEGATIVE = ((0xD0, ">b"), (0xD1, ">h"), (0xD2, ">i"), (0xD3, ">q"))
_ENDS = {layout: 1 << 8 * struct.calcsize(layout) for layout in (">B", ">H", ">I", ">Q")}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_DOUBLE = 0xCB
_LENGTHS = {code: (kind, layout) for kind in (_TEXT, _BYTES, _ARRAY, _MAP) for code, layout in kind[2]}
_NUMBERS = dict((*_POSITIVE[2], *_NEGATIVE, (_DOUBLE, ">d")))


def packed(value: Any) -> bytes:
    """The bytes of a value. Raises ValueError for a number of more than 64 bits, TypeError for other types."""
    return b"".join(_parts(value))


def _parts(value: Any) -> Iterator[bytes]:
    match value:
        case None:
            yield b"\xc0"
        case bool():
            yield b"\xc3" if value else b"\xc2"
        case int():
            yield _head(_POSITIVE, value) if value >= 0 else _negative(value)
        case float():
            yield struct.pack(">Bd", _DOUBLE, value)
        case str() | decimal.Decimal():
            text = str(value).encode(errors="surrogatepass")
            yield _head(_TEXT, len(text)) + text
        case bytes():
            yield _head(_BYTES, len(value)) + value
        case list() | tuple():
            yield _head(_ARRAY, len(value))
            for one in value:
                yield from _parts(one)
        case dict():
            yield _head(_MAP, len(value))
            for pair in value.items():
                for one in pair:
                    yield from _parts(one)
        case _:
            raise TypeError(f"{type(value).__name__} is not a value of SQL")


def _head(kind: tuple[int, int, tuple[tuple[int, str], ...]], number: int) -> bytes:
    base, few, longer = kind
    if number < few:
        return bytes((base + number,))
    for code, layout in longer:
        if number < _ENDS[layout]:
            return bytes((code,)) + struct.pack(layout, number)
    raise ValueError(f"{number} has no place in MessagePack")


def _negative(number: int) -> bytes:
    if number >= -32:
        return struct.pack(">b", number)
    for code, layout in _NEGATIVE:
        if number >= -1 << 8 * struct.calcsize(layout) - 1:
            return bytes((code,)) + struct.pack(layout, number)
    raise ValueError(f"{number} has no place in MessagePack")


def unpacked(data: bytes) -> Any:
    """The value of these bytes, with lists for maps (of pairs). Raises ValueError for other bytes."""
    try:
        value, end = _value(data, 0)
    except (IndexError, struct.error):
        raise ValueError("the data of MessagePack ends too early") from None
    if end != len(data):
        raise ValueError(f"expected {end} bytes of MessagePack, and got {len(data)}")
    return value


def _value(data: bytes, place: int) -> tuple[Any, int]:
    code = data[place]
    place += 1
    if code in _CONSTANTS:
        return _CONSTANTS[code], place
    if code < 0x80 or code >= 0xE0:
        return code if code < 0x80 else code - 256, place
    if (layout := _NUMBERS.get(code)) is not None:
        return struct.unpack_from(layout, data, place)[0], place + struct.calcsize(layout)
    if code < 0xC0:
        kind = _MAP if code < 0x90 else _ARRAY if code < 0xA0 else _TEXT
        return _long_value(kind, data, place, code - kind[0])
    if code not in _LENGTHS:
        raise ValueError(f"the byte {code} is nothing that rows have")
    kind, layout = _LENGTHS[code]
    (length,) = struct.unpack_from(layout, data, place)
    return _long_value(kind, data, place + struct.calcsize(layout), length)


def _long_value(kind: Any, data: bytes, place: int, length: int) -> tuple[Any, int]:
    if kind is _ARRAY:
        return _values(data, place, length)
    if kind is _MAP:
        flat, place = _values(data, place, 2 * length)
        return list(zip(flat[::2], flat[1::2], strict=True)), place
    found, end = data[place : place + length], place + length
    if len(found) < length:
        raise IndexError
    return found.decode(errors="surrogatepass") if kind is _TEXT else found, end


def _values(data: bytes, place: int, count: int) -> tuple[list[Any], int]:
    values = []
    for _ in range(count):
        one, place = _value(data, place)
        values.append(one)
    return values, place
