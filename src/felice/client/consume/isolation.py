"""Which of the fetched batches a reader may see. Pure.

Keeps true:  with read_committed no batch of an aborted transaction passes, and with either level no control batch
             is handed out as data (they mark, they do not say). The offset to go on from is the end of the last
             whole batch, whether it was seen or not: compaction and markers leave gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from felice.records.aborted import AbortedTransactions
from felice.records.batch import BatchHeader, iter_batches

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class AbortedRow(Protocol):
    """One row of a Fetch reply's aborted list."""

    producer_id: int
    first_offset: int


def aborted_filter(aborted: Sequence[AbortedRow] | None) -> AbortedTransactions:
    return AbortedTransactions((row.producer_id, row.first_offset) for row in aborted or ())


def whole_batches(records: memoryview) -> list[BatchHeader]:
    """Headers of the whole batches at the front of a reply; a cut one at its end is left out (KIP-74)."""
    return list(iter_batches(records))


def visible_batches(
    records: memoryview, headers: Iterable[BatchHeader], aborted: Sequence[AbortedRow] | None
) -> Iterator[BatchHeader]:
    """Headers of the batches whose records may be handed out."""
    filtered = aborted_filter(aborted)
    return (header for header in headers if not filtered.hides(records, header) and not header.is_control)


def visible_ranges(records: memoryview, headers: Iterable[BatchHeader]) -> Iterator[memoryview]:
    """The bytes of these batches, neighbours together."""
    start = end = -1
    for header in headers:
        if header.position != end:
            if end > start:
                yield records[start:end]
            start = header.position
        end = header.end
    if end > start:
        yield records[start:end]
