"""Decides which batches a read_committed reader must not deliver.

Keeps true:  once a producer's aborted transaction has begun, its batches are hidden until its ABORT
             marker. The caller passes all batches, control batches too, in offset order.
Each fetch response brings the list of aborted transactions as (producer id, first offset). The broker sends
nothing above the last stable offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from felice.protocol.primitives import Buffer
from felice.records.batch import BatchHeader
from felice.records.control import ControlType, control_type
from felice.records.reader import read_batch


class AbortedTransactions:
    """The filter. See the module."""

    __slots__ = ("_open_producer_ids", "_upcoming")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        # Brokers should sort them by first offset, but some do not, and the order matters here.
        self._upcoming = deque(sorted((first_offset, producer_id) for producer_id, first_offset in aborted))
        self._open_producer_ids: set[int] = set()

    def hides(self, buffer: Buffer, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction. Control batches are never hidden."""
        while self._upcoming and self._upcoming[0][0] <= header.last_offset:
            self._open_producer_ids.add(self._upcoming.popleft()[1])
        if header.producer_id not in self._open_producer_ids:
            return False
        if header.is_control:
            if is_abort_marker(buffer, header):
                self._open_producer_ids.discard(header.producer_id)
            return False
        return header.is_transactional


def is_abort_marker(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether the batch is the control batch that ends an aborted transaction."""
    if not header.is_control:
        return False
    records = read_batch(buffer, header)
    return bool(records) and control_type(records[0].key) is ControlType.ABORT
