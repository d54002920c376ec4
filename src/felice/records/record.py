"""One decoded record: absolute offset, timestamp in milliseconds, key, value, headers.

A null key or value is None, which differs from an empty one. Headers keep their order and
duplicates.
"""

from __future__ import annotations

from typing import NamedTuple

Header = tuple[str, bytes | None]
Headers = tuple[Header, ...]


class Record(NamedTuple):
    """One record. See the module."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
