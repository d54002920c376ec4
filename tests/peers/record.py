"""A record as every client sees it, so that what one wrote and another read can be compared."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PeerRecord:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0
    offset: int = -1
