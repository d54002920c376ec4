"""A follower's checks of the batches that a leader sent, before it appends any of them.

Keeps true: either every returned batch can be appended unchanged, or the whole
            response is refused.
"""

from __future__ import annotations

from felice.env import Buffer
from felice.log.batch_places import MAX_RELATIVE_OFFSET
from felice.records.batch import BatchHeader, iter_batches, verify_crc
from felice.records.control import EndTransactionMarker, end_transaction_marker
from felice.records.errors import CorruptBatch, InvalidRecord
from felice.records.reader import read_batch


class OverlappingBatch(InvalidRecord):
    """The first batch begins below the end of the log, which has other records there."""

    def __init__(self, log_name: str, base_offset: int, log_end_offset: int) -> None:
        super().__init__(f"{log_name}: got offset {base_offset}, expected at least {log_end_offset}")
        self.base_offset = base_offset


def checked_batches(
    records: Buffer, *, log_start_offset: int, log_end_offset: int, leader_epoch: int, log_name: str
) -> list[BatchHeader]:
    """Headers of the batches from `log_end_offset` on, whole and in order.

    Raises `CorruptBatch`, `InvalidRecord`, and `OverlappingBatch` for a log that is not a prefix of its leader's.
    If the log has no records, the first batch may begin below its start, when it holds that offset: DeleteRecords may
    have moved the leader's log start into a batch, and a leader sends whole batches.
    """
    headers: list[BatchHeader] = []
    is_empty = log_start_offset == log_end_offset
    next_offset = log_end_offset
    for header in iter_batches(records):
        if header.leader_epoch > leader_epoch:
            # KAFKA-18723: the leader changed while it answered. The follower fetches the rest in the new epoch.
            break
        if not verify_crc(records, header):
            raise CorruptBatch(
                f"{log_name}: the CRC of the batch at offset {header.base_offset} does not hold"
            )
        overlaps = not headers and 0 <= header.base_offset < next_offset < header.next_offset
        if overlaps and not is_empty:
            raise OverlappingBatch(log_name, header.base_offset, next_offset)
        if (header.base_offset < next_offset and not overlaps) or header.last_offset_delta < 0:
            raise InvalidRecord(
                f"{log_name}: got offset {header.base_offset}, expected at least {next_offset}"
            )
        next_offset = header.next_offset
        headers.append(header)
    return headers


def in_write_groups(headers: list[BatchHeader], segment_bytes: int) -> list[list[BatchHeader]]:
    """Groups the batches that one write brings to disk: all together, unless a segment cannot hold so much."""
    if not headers:
        return []
    size_bytes = headers[-1].end - headers[0].position
    span = headers[-1].last_offset - headers[0].base_offset
    if size_bytes <= segment_bytes and span <= MAX_RELATIVE_OFFSET:
        return [headers]
    return [[header] for header in headers]


def marker_in(records: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """The transaction marker in a batch; None if the batch holds none."""
    if not header.is_control:
        return None
    found = read_batch(records, header)
    return end_transaction_marker(found[0]) if found else None
