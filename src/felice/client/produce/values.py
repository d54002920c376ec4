"""Converts the keys, values and headers that an application passes to those of a record.

Keeps true:  A value of another type is refused with a `TypeError` that names the argument and the given type.
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
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked: Headers = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise TypeError(f"expected a header's name as str, got {type(name).__name__}")
        checked.append((name, as_bytes(value, f"header {name!r}")))
    return checked
