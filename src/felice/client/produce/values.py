"""Converts the keys, values and headers that an application passes to those of a record.

Keeps true:  A value of another type is refused with a `TypeError` that names the argument and the given type. A text
             that UTF-8 cannot encode raises `UnicodeEncodeError`: what passes here can be encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

Headers = list[tuple[str, bytes | None]]
Content: TypeAlias = bytes | bytearray | memoryview | str | None
"""The types that an application may pass as key or value."""
HeadersInput: TypeAlias = Mapping[str, Content] | Iterable[tuple[str, Content]] | None
"""The types that an application may pass as headers."""


def as_bytes(value: object, what: str) -> bytes | None:
    """Convert a key or value: bytes stay, a str is encoded as UTF-8."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"expected {what} as bytes, str or None, got {type(value).__name__}; "
        "turn it into bytes first, for example with a serializer of felice.client.serialization"
    )


def as_headers(headers: HeadersInput) -> Headers | None:
    """Convert headers, given as a mapping or as pairs, with values of bytes, str or None."""
    pairs: Iterable[object]
    if type(headers) is list:
        pairs = headers
    elif type(headers) is dict:
        pairs = headers.items()
    elif headers is None:
        return None
    else:
        pairs = _pairs(headers)
    checked: Headers = []
    for pair in pairs:
        if (type(pair) is not tuple and not isinstance(pair, list)) or len(pair) != 2:
            raise TypeError(f"expected a header as a pair of name and value, got {pair!r:.80}")
        name, value = pair
        if type(value) is not bytes:
            value = as_bytes(value, f"header {name!r}")
        if not isinstance(name, str):
            raise TypeError(f"expected a header's name as str, got {type(name).__name__}")
        if not name.isascii():
            name.encode()
        checked.append((name, value))
    return checked or None


def _pairs(headers: object) -> Iterable[object]:
    if isinstance(headers, Mapping):
        return headers.items()
    if isinstance(headers, str | bytes | bytearray | memoryview) or not isinstance(headers, Iterable):
        raise TypeError(f"expected headers as dict or (name, value) pairs, got {type(headers).__name__}")
    return headers
