"""Selects the fetched batches that a reader may see. Pure.

Keeps true:  With read_committed, no batch of an aborted transaction is visible. Control batches are never visible: they
             hold transaction markers, not data. The next fetch starts after the last whole batch, visible or not,
             because compaction and markers leave gaps in the offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from felice.records.aborted import AbortedTransactions
from felice.records.batch import BatchHeader, iter_batches

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class AbortedRow(Protocol):
    """One row of `aborted_transactions` in a Fetch response."""

    producer_id: int
    first_offset: int


def aborted_filter(aborted: Sequence[AbortedRow] | None) -> AbortedTransactions:
    """A filter for the batches of the aborted transactions in a Fetch response."""
    return AbortedTransactions((row.producer_id, row.first_offset) for row in aborted or ())


def whole_batches(records: memoryview) -> list[BatchHeader]:
    """Headers of the whole batches in a Fetch response; the last batch may be cut off and is left out (KIP-74)."""
    return list(iter_batches(records))


def visible_batches(
    records: memoryview, headers: Iterable[BatchHeader], aborted: Sequence[AbortedRow] | None
) -> Iterator[BatchHeader]:
    """Headers of the batches whose records the application may see."""
    filtered = aborted_filter(aborted)
    return (header for header in headers if not filtered.hides(records, header) and not header.is_control)


def visible_ranges(records: memoryview, headers: Iterable[BatchHeader]) -> Iterator[memoryview]:
    """The bytes of these batches; adjacent batches come as one range."""
    start = end = -1
    for header in headers:
        if header.position != end:
            if end > start:
                yield records[start:end]
            start = header.position
        end = header.end
    if end > start:
        yield records[start:end]
