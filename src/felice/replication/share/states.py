"""The states of a record of a share group, with their numbers in Kafka's requests and records."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple


class RecordState(IntEnum):
    """The state of a record. ACQUIRED is never written: for the next leader such a record is AVAILABLE."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Undeliverable, and its copy in the dead-letter topic is not yet written (KIP-1191)."""
    ARCHIVED = 4


DONE = frozenset([RecordState.ACKNOWLEDGED, RecordState.ARCHIVED])
"""States that a record does not leave."""


class StateBatch(NamedTuple):
    """Neighbouring offsets with the same state and number of deliveries, as they are written and read."""

    first: int
    last: int
    state: int
    deliveries: int


def joined(batches: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """Sorted batches without overlaps, neighbours of equal state and deliveries as one."""
    result: list[StateBatch] = []
    for batch in batches:
        before = result[-1] if result else None
        if before is not None and before.last + 1 == batch.first and before[2:] == batch[2:]:
            result[-1] = StateBatch(before.first, batch.last, batch.state, batch.deliveries)
        else:
            result.append(batch)
    return tuple(result)
