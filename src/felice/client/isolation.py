"""Which of the fetched batches a reader may see. Pure.

Keeps true:  with read_committed no batch of an aborted transaction passes, and with either level no control batch
             is handed out as data (they mark, they do not say). The offset to go on from is the end of the last
             whole batch, whether it was seen or not: compaction and markers leave gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from felice.records.batch import BatchHeader, iter_batches
from felice.records.control import ControlType, control_type
from felice.records.reader import read_batch

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class AbortedRow(Protocol):
    """One row of a Fetch reply's aborted list."""

    producer_id: int
    first_offset: int


class AbortedTransactions:
    """Follows one fetch reply: which producers are inside a transaction that will turn out aborted."""

    def __init__(self, aborted: Sequence[AbortedRow] | None) -> None:
        # Sorted here too: the rule is the broker's, and one that broke it leaked aborted rows.
        self._coming = sorted(
            ((row.first_offset, row.producer_id) for row in aborted or ()), reverse=True
        )
        self._open: set[int] = set()

    def hides(self, buffer: memoryview, header: BatchHeader) -> bool:
        """True if the batch belongs to an aborted transaction; call for every batch, in order."""
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._open.add(self._coming.pop()[1])
        if header.is_control:
            if header.producer_id in self._open and _is_abort(buffer, header):
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def _is_abort(buffer: memoryview, header: BatchHeader) -> bool:
    records = read_batch(buffer, header)
    return bool(records) and control_type(records[0].key) is ControlType.ABORT


def whole_batches(records: memoryview) -> list[BatchHeader]:
    """Headers of the whole batches at the front of a reply; a cut one at its end is left out (KIP-74)."""
    return list(iter_batches(records))


def visible_batches(
    records: memoryview, headers: Iterable[BatchHeader], aborted: Sequence[AbortedRow] | None
) -> Iterator[BatchHeader]:
    """Headers of the batches whose records may be handed out."""
    filtered = AbortedTransactions(aborted)
    return (header for header in headers if not filtered.hides(records, header))


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

