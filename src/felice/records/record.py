"""One record as people see it: absolute offset, timestamp in milliseconds, key, value, headers.

A null key or value is None and differs from an empty one; headers keep their order and their
duplicates.
"""

from __future__ import annotations

from typing import NamedTuple

Header = tuple[str, bytes | None]
Headers = tuple[Header, ...]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
