"""Checks and repairs a log's files before they are served.

Keeps true: after an unclean stop the log is whole batches up to the first bad
            byte, and nothing behind it; indexes, epochs and producers agree with
            those batches. Flushed records are served or refused, never cut: a
            fault below the recovery point raises `CorruptLog`, and the partition
            stays offline until an operator decides.

After a clean stop no scan is needed: indexes are checked, and rebuilt if they are
missing or cannot be right.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from felice.config import TopicConfig
from felice.dataclass import dataclass
from felice.env import Disk, File
from felice.log import snapshots
from felice.log.batch_places import MAX_RELATIVE_OFFSET
from felice.log.epochs import LeaderEpochs
from felice.log.errors import CorruptLog
from felice.log.producers import ProducerStates
from felice.log.segment import Segment
from felice.log.transaction_index import AbortedTransaction
from felice.protocol.errors import ApiError
from felice.records.batch import HEADER_SIZE, BatchHeader, verify_crc
from felice.records.control import EndTransactionMarker, end_transaction_marker
from felice.records.reader import read_batch

_log = logging.getLogger("felice.log")

_WINDOW_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Cut:
    """The bytes that a recovery removed from the end of the log."""

    path: Path
    position: int
    removed_bytes: int
    reason: str

    def report(self) -> None:
        """Logs a warning."""
        _log.warning(
            "the end of a log was cut off",
            extra={
                "path": str(self.path),
                "position": self.position,
                "removed_bytes": self.removed_bytes,
                "reason": self.reason,
            },
        )


def verified_batches(file: File, first_offset: int) -> Iterator[BatchHeader]:
    """Headers of a segment's batches, each checked by its CRC. Raises `CorruptLog` at the first bad batch."""
    path, end = file.path, file.size_bytes
    position, next_offset = 0, first_offset
    window, start = b"", 0
    while position < end:
        if position - start + HEADER_SIZE > len(window):
            window, start = file.pread(_WINDOW_BYTES, position), position
        header = _header(path, window, position - start, position)
        if position + header.size_bytes > end:
            raise CorruptLog(
                path, position, f"a batch of {header.size_bytes} bytes goes beyond the end at {end}"
            )
        if header.end > len(window):
            window, start = file.pread(max(_WINDOW_BYTES, header.size_bytes), position), position
            header = header._replace(position=0)
        if not verify_crc(window, header):
            raise CorruptLog(
                path, position, f"the CRC of the batch at offset {header.base_offset} does not hold"
            )
        if header.last_offset - first_offset > MAX_RELATIVE_OFFSET:
            raise CorruptLog(path, position, f"offset {header.base_offset} does not belong to this segment")
        if header.base_offset < next_offset:
            raise CorruptLog(
                path, position, f"found offset {header.base_offset}, expected at least {next_offset}"
            )
        yield header._replace(position=position)
        position += header.size_bytes
        next_offset = header.next_offset


def _header(path: Path, window: bytes, at: int, position: int) -> BatchHeader:
    try:
        header = BatchHeader.parse(window, at)
    except ApiError as error:
        raise CorruptLog(path, position, error.message) from error
    if header.last_offset_delta < 0:
        raise CorruptLog(path, position, f"the batch has last offset delta {header.last_offset_delta}")
    return header


def recover_segment(
    segment: Segment, epochs: LeaderEpochs, *, recovery_point: int, index_interval_bytes: int
) -> Cut | None:
    """Scans a segment after an unclean stop, rebuilds its indexes and cuts it at its first bad batch.

    Returns the cut, if any. Raises `CorruptLog` if the bad batch lies below the recovery point.
    """
    size_bytes = segment.size_bytes
    segment.reset()
    segment.transaction_index.clear()
    cut = None
    try:
        for header in verified_batches(segment.log_file(), segment.base_offset):
            segment.note(header, header.position, index_interval_bytes)
            epochs.assign(header.leader_epoch, header.base_offset)
    except CorruptLog as fault:
        if segment.next_offset < recovery_point:
            raise
        cut = Cut(segment.log_path, segment.size_bytes, size_bytes - segment.size_bytes, fault.reason)
        segment.repair()
        cut.report()
    segment.write_indexes()
    return cut


def prepare_segment(segment: Segment, *, index_interval_bytes: int) -> None:
    """Prepares a segment that needs no recovery. Rebuilds its indexes if they cannot be right."""
    fault = segment.index_fault()
    if fault is None:
        segment.locate_end()
        if segment.largest_holds():
            return
        fault = f"{segment.time_index.path}: its last entry matches no batch"
    _log.warning("an index is damaged", extra={"reason": fault})
    segment.rebuild_indexes(index_interval_bytes)


def begin_transaction_index_rebuilds(segments: Sequence[Segment], config: TopicConfig) -> list[Segment]:
    """Finds transaction indexes that contradict the log, and starts to rebuild them. Returns their segments.

    The markers in the log must be replayed to write the entries again. The file has no checksum, and a wrong entry
    would show aborted records to consumers. The log's own CRCs are verified first, because the log could be the
    damaged part: raises `CorruptLog`.
    """
    contradicted = []
    undecided_from = segments[-1].next_offset
    for segment in reversed(segments):
        fault = segment.transaction_index.fault(segment.base_offset)
        for entry in [] if fault else reversed(list(segment.transaction_index.entries())):
            if not _ends_there(segment, entry) or not _begins_there(segments, entry, config):
                fault = f"the log has no aborted transaction like {entry}"
            elif entry.last_stable_offset > undecided_from:
                fault = (
                    f"the last stable offset of {entry} is above the start of a transaction that ended later"
                )
            undecided_from = min(undecided_from, entry.first_offset)
        if fault is not None:
            _log.warning(
                "a transaction index is rebuilt from the log",
                extra={"path": str(segment.transaction_index.path), "reason": fault},
            )
            contradicted.append(segment)
    for segment in segments if contradicted else ():
        for _ in verified_batches(segment.log_file(), segment.base_offset):
            pass
    for segment in contradicted:
        segment.transaction_index.begin_rebuild()
    return contradicted[::-1]


def _ends_there(segment: Segment, entry: AbortedTransaction) -> bool:
    found = _batch_at(segment, entry.last_offset)
    return found is not None and found.is_control and found.producer_id == entry.producer_id


def _begins_there(segments: Sequence[Segment], entry: AbortedTransaction, config: TopicConfig) -> bool:
    """Whether the log may have the entry's first batch. Retention or the cleaner may have removed that batch."""
    if entry.first_offset < segments[0].base_offset or config.is_compacted:
        return 0 <= entry.first_offset <= entry.last_offset
    number = bisect_right(segments, entry.first_offset, key=lambda segment: segment.base_offset) - 1
    found = _batch_at(segments[number], entry.first_offset)
    return found is not None and not found.is_control and found.producer_id == entry.producer_id


def _batch_at(segment: Segment, offset: int) -> BatchHeader | None:
    """The batch that begins at `offset`; None if there is none."""
    position = segment.position_of(offset)
    header = segment.header_at(position) if position < segment.size_bytes else None
    return header if header is not None and header.base_offset == offset else None


def marker_of(segment: Segment, header: BatchHeader) -> EndTransactionMarker | None:
    """The transaction marker in a control batch of the log; None if the batch holds none."""
    data = segment.batch_at(header)
    records = read_batch(data, header._replace(position=0))
    return end_transaction_marker(records[0]) if records else None


def restore_producers(
    states: ProducerStates,
    disk: Disk,
    directory: Path,
    segments: Sequence[Segment],
    *,
    log_start_offset: int,
    now_ms: int,
    rescanned: Collection[Segment],
) -> None:
    """Restores producer state as of the log's end: the newest readable snapshot, then the batches after it.

    `rescanned` segments lost their transaction index. Replaying their markers rebuilds it, which takes a snapshot
    from below them.
    """
    log_end_offset = segments[-1].next_offset
    newest = min((segment.base_offset for segment in rescanned), default=log_end_offset)
    states.clear(log_start_offset)
    found = snapshots.offsets_in(disk, directory)
    for offset in reversed(found):
        path = snapshots.path_of(directory, offset)
        if offset > log_end_offset:
            disk.remove(path)
        elif offset <= newest and _restore_from(states, disk, path, offset, now_ms):
            break
    for segment in segments:
        if segment.next_offset > states.end_offset:
            _replay(states, segment, now_ms, writes_index=segment in rescanned)
    states.end_offset = log_end_offset
    if len(found) > 1:
        _remove_strays(disk, directory, segments)


def _remove_strays(disk: Disk, directory: Path, segments: Sequence[Segment]) -> None:
    """Removes snapshots of old stops: only the newest is kept, and those at the start of a segment."""
    base_offsets = {segment.base_offset for segment in segments}
    for offset in snapshots.offsets_in(disk, directory)[:-1]:
        if offset not in base_offsets:
            disk.remove(snapshots.path_of(directory, offset))


def _restore_from(states: ProducerStates, disk: Disk, path: Path, offset: int, now_ms: int) -> bool:
    try:
        states.restore(snapshots.decode(disk.read_bytes(path)), offset, now_ms)
    except snapshots.CorruptSnapshot as fault:
        _log.warning("a damaged snapshot is removed", extra={"path": str(path), "reason": str(fault)})
        disk.remove(path)
        return False
    return True


def _replay(states: ProducerStates, segment: Segment, now_ms: int, *, writes_index: bool) -> None:
    for header in segment.headers(segment.position_of(states.end_offset)):
        if not header.has_producer_id:
            continue
        if not header.is_control:
            states.update(header, header.base_offset, now_ms)
        elif (marker := marker_of(segment, header)) is not None:
            aborted = states.complete(header, marker, header.base_offset, now_ms)
            if aborted is not None and writes_index:
                segment.transaction_index.append(aborted)
