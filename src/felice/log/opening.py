"""Brings a partition's files into the state that `Log` starts from.

Keeps true: the loaded segments are consecutive. Only the last one, the active segment, may be empty. Files that an
            interrupted deletion or swap left are gone.
            A log that ends below its recovery point is not loaded: flushed records are missing there.

After a clean stop the files are believed, except for indexes that cannot be right. After an unclean stop the batches
above the recovery point are scanned (`recovery`), and the log ends before the first bad batch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from uuid import UUID

from felice.config import TopicConfig
from felice.dataclass import dataclass
from felice.log import failed_sync, partition_metadata, recovery, segment_swap
from felice.log.durability import Durability
from felice.log.epochs import FILE_NAME as EPOCHS_FILE_NAME
from felice.log.epochs import LeaderEpochs
from felice.log.errors import CorruptLog
from felice.log.files import OpenFiles
from felice.log.producers import ProducerStates
from felice.log.segment import DELETED_SUFFIX, LOG_SUFFIX, SUFFIXES, Segment
from felice.log.segments import Segments

_log = logging.getLogger("felice.log")


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """The state that a `Log` starts from."""

    segments: Segments
    epochs: LeaderEpochs
    producers: ProducerStates
    durability: Durability
    topic_id: UUID | None
    log_start_offset: int = 0
    cuts: list[recovery.Cut] = field(default_factory=list)
    # Files of segments that lie below the log start. They wait for file.delete.delay.ms.
    deleted_files: list[tuple[int, Path]] = field(default_factory=list)


def begin(
    files: OpenFiles,
    directory: Path,
    config: TopicConfig,
    topic_id: UUID | None,
    *,
    producer_id_expiration_ms: int,
    now_ms: int,
) -> LoadedLog:
    """The state of a new log in a directory that was just made and holds no segment. Raises OSError."""
    segments = Segments([new_segment(files, directory, 0, config, now_ms, with_files=False)])
    producers = ProducerStates(producer_id_expiration_ms)
    producers.clear(0)
    epochs = LeaderEpochs(files.disk, directory)
    epochs.begin()
    return LoadedLog(segments, epochs, producers, Durability(files, directory, now_ms), topic_id)


def load(
    files: OpenFiles,
    directory: Path,
    config: TopicConfig,
    *,
    recovery_point: int,
    log_start_offset: int,
    clean_shutdown: bool,
    producer_id_expiration_ms: int,
    now_ms: int,
) -> LoadedLog:
    """Loads the log in `directory`, or begins one there. Raises `CorruptLog` or OSError."""
    epochs = LeaderEpochs(files.disk, directory)
    producers = ProducerStates(producer_id_expiration_ms)
    durability = Durability(files, directory, now_ms)
    topic_id = partition_metadata.read(files.disk, directory)
    epochs_known = load_epochs(epochs, directory, clean_shutdown=clean_shutdown)
    opened = open_segments(
        files,
        directory,
        config,
        epochs,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean_shutdown=clean_shutdown,
        now_ms=now_ms,
    )
    deleted_files: list[tuple[int, Path]] = []
    if (end_offset := opened.segments[-1].next_offset) < log_start_offset:
        if clean_shutdown:
            # No clean stop leaves such a log: the checkpoint is damaged, and must not cost the records.
            reason = f"the log ends at {end_offset}, but its checkpoint lets it begin at {log_start_offset}"
            raise CorruptLog(directory, 0, reason)
        # The log start was moved beyond all that is left: none of these records may be read again.
        deleted_files = _delete(opened.segments, durability, now_ms + config.file_delete_delay_ms)
        segment = new_segment(files, directory, log_start_offset, config, now_ms)
        opened = Opened([segment], [], opened.cuts, is_new=True)
    segments = Segments(opened.segments)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    durability.on_loaded(segments.end_offset, recovery_point, is_new=opened.is_new, is_clean=clean_shutdown)
    if clean_shutdown and not (opened.is_new and segments.active.has_files):
        durability.on_saved(segments.end_offset)
    if opened.cuts:
        durability.sync_cut(segments.active)
    if not epochs_known:
        rebuild_epochs(epochs, segments)
    loaded = LoadedLog(
        segments, epochs, producers, durability, topic_id, log_start_offset, opened.cuts, deleted_files
    )
    _restore(loaded, opened, files, directory, now_ms)
    return loaded


def _restore(loaded: LoadedLog, opened: Opened, files: OpenFiles, directory: Path, now_ms: int) -> None:
    """Brings epochs, producers and rebuilt transaction indexes in line with the segments. Raises OSError."""
    loaded.epochs.truncate_from_end(loaded.segments.end_offset)
    loaded.epochs.truncate_from_start(loaded.log_start_offset)
    recovery.restore_producers(
        loaded.producers,
        files.disk,
        directory,
        loaded.segments,
        log_start_offset=loaded.log_start_offset,
        now_ms=now_ms,
        rescanned=opened.rescanned,
    )
    rebuilt = [segment.transaction_index.end_rebuild() for segment in opened.contradicted]
    # No later flush covers these files. Without a sync, a power failure would bring back the old index, and
    # consumers would read aborted records as committed.
    failed_sync.sync(files.disk, directory.parent, rebuilt)


def _delete(segments: Sequence[Segment], durability: Durability, due_ms: int) -> list[tuple[int, Path]]:
    """Renames the files of segments, to be removed when `due_ms` has come."""
    renamed = []
    for segment in segments:
        renamed += [(due_ms, path) for path in segment.mark_deleted()]
        durability.remove_snapshot(segment.base_offset)
    return renamed


def write_again(loaded: LoadedLog, files: OpenFiles, directory: Path) -> None:
    """Writes all above the recovery point once more and syncs it (see `failed_sync`). Raises OSError.

    Everything below the recovery point is on disk. The indexes were just rebuilt.
    """
    where = files.disk, directory.parent
    recovery_point = loaded.durability.recovery_point
    if loaded.topic_id is not None:
        failed_sync.write_again(*where, files.get(directory / partition_metadata.FILE_NAME))
    for segment in loaded.segments.since(recovery_point):
        for file in segment.open_files(with_indexes=False):
            failed_sync.write_again(*where, file, segment.position_of(recovery_point))


@dataclass(frozen=True, slots=True)
class Opened:
    """The segments of a log after recovery."""

    segments: list[Segment]
    rescanned: list[Segment]
    cuts: list[recovery.Cut]
    # Rescanned segments whose transaction index contradicted the log and is being rebuilt.
    contradicted: list[Segment] = field(default_factory=list)
    is_new: bool = False


def open_segments(
    files: OpenFiles,
    directory: Path,
    config: TopicConfig,
    epochs: LeaderEpochs,
    *,
    recovery_point: int,
    log_start_offset: int,
    clean_shutdown: bool,
    now_ms: int,
) -> Opened:
    """Opens the segments in `directory` and recovers them if needed. Raises `CorruptLog` or OSError."""
    base_offsets = _tidy(files, directory, None if clean_shutdown else recovery_point)
    if not base_offsets:
        _check_end(directory / f"{log_start_offset:020d}{LOG_SUFFIX}", 0, log_start_offset, recovery_point)
        # An empty log that starts at 0 needs no file that shows where it begins.
        segment = new_segment(
            files, directory, log_start_offset, config, now_ms, with_files=log_start_offset > 0
        )
        return Opened([segment], [], [], is_new=True)
    segments = [
        Segment.open(
            files, directory, base, index_bytes=config.segment_index_bytes, sealed=base != base_offsets[-1]
        )
        for base in base_offsets
    ]
    if clean_shutdown:
        for segment in segments:
            recovery.prepare_segment(segment, index_interval_bytes=config.index_interval_bytes)
        opened = Opened(segments, [], [])
    else:
        opened = _recover(segments, epochs, config, recovery_point)
    opened.contradicted.extend(recovery.begin_transaction_index_rebuilds(opened.segments, config))
    opened.rescanned.extend(opened.contradicted)
    last = opened.segments[-1]
    _check_end(last.log_path, last.size_bytes, last.next_offset, recovery_point)
    return opened


def _check_end(path: Path, position: int, log_end_offset: int, recovery_point: int) -> None:
    if log_end_offset < recovery_point:
        raise CorruptLog(
            path, position, f"the log ends at offset {log_end_offset}, but was flushed up to {recovery_point}"
        )


def new_segment(
    files: OpenFiles,
    directory: Path,
    base_offset: int,
    config: TopicConfig,
    now_ms: int,
    *,
    with_files: bool = True,
) -> Segment:
    """Creates an empty active segment with the sizes that the topic's configuration sets."""
    return Segment.create(
        files,
        directory,
        base_offset,
        index_bytes=config.segment_index_bytes,
        created_ms=now_ms,
        with_files=with_files,
    )


def _tidy(files: OpenFiles, directory: Path, recovery_point: int | None) -> list[int]:
    """Completes interrupted swaps, removes what interrupted deletions left, and returns the base offsets."""
    names = segment_swap.finish(files, directory)
    for name in names:
        if name.endswith((DELETED_SUFFIX, ".tmp")):
            # If the log is loaded again, the removal of deleted files may run at the same time.
            with suppress(FileNotFoundError):
                files.disk.remove(directory / name)
    base_offsets = sorted(
        int(name[:-4]) for name in names if name.endswith(LOG_SUFFIX) and name[:-4].isdigit()
    )
    for name in names:
        stem, _, suffix = name.partition(".")
        if f".{suffix}" in SUFFIXES and stem.isdigit() and int(stem) not in base_offsets:
            _log.warning("an index file without a log is removed", extra={"path": str(directory / name)})
            files.disk.remove(directory / name)
    return _without_empty(files, directory, base_offsets, recovery_point)


def _without_empty(
    files: OpenFiles, directory: Path, base_offsets: list[int], recovery_point: int | None
) -> list[int]:
    """Removes empty segments beside others: a failed roll may have left one that the log did not use.

    The first segment stays if a power failure may have emptied it: without it the log would seem to begin later.
    """
    kept: list[int] = []
    for number, base_offset in enumerate(base_offsets):
        stem = directory / f"{base_offset:020d}"
        following = base_offsets[number + 1] if number + 1 < len(base_offsets) else None
        is_last_resort = following is None and not kept
        was_lost = following is not None and recovery_point is not None and following > recovery_point
        if is_last_resort or (was_lost and not kept) or files.disk.size(stem.with_suffix(LOG_SUFFIX)):
            kept.append(base_offset)
            continue
        for path in map(stem.with_suffix, SUFFIXES):
            if files.disk.exists(path):
                files.disk.remove(path)
    return kept


def _recover(
    segments: Sequence[Segment], epochs: LeaderEpochs, config: TopicConfig, recovery_point: int
) -> Opened:
    """Scans from the segment that holds the recovery point. A cut ends the log there."""
    kept: list[Segment] = []
    rescanned: list[Segment] = []
    cuts: list[recovery.Cut] = []
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        # A segment that ends at the recovery point was active at that flush. Its indexes were not synced, so scan it.
        if following is not None and following < recovery_point:
            recovery.prepare_segment(segment, index_interval_bytes=config.index_interval_bytes)
            kept.append(segment)
            continue
        if not rescanned:
            epochs.truncate_from_end(segment.base_offset)
        if cuts:
            segment.mark_deleted()
            continue
        cut = _recover_one(segment, epochs, config, recovery_point, following)
        kept.append(segment)
        rescanned.append(segment)
        if cut is not None:
            cuts.append(cut)
    for segment in rescanned[:-1]:
        segment.seal()
    return Opened(kept, rescanned, cuts)


def _recover_one(
    segment: Segment, epochs: LeaderEpochs, config: TopicConfig, recovery_point: int, following: int | None
) -> recovery.Cut | None:
    cut = recovery.recover_segment(
        segment, epochs, recovery_point=recovery_point, index_interval_bytes=config.index_interval_bytes
    )
    if cut is None and following is not None and segment.next_offset > following:
        raise CorruptLog(
            segment.log_path,
            segment.size_bytes,
            f"it goes up to offset {segment.next_offset}, but the next segment begins at {following}",
        )
    may_have_gaps = config.is_compacted and segment.size_bytes > 0
    if cut is None and following is not None and segment.next_offset < following and not may_have_gaps:
        # The power failed before this segment's tail was written, but after the next one's head. Records after
        # the gap must not be served. Only a cleaner may leave gaps.
        reason = f"offset {segment.next_offset} is missing: the next segment begins at {following}"
        cut = recovery.Cut(segment.log_path, segment.size_bytes, 0, reason)
        cut.report()
    return cut


def load_epochs(epochs: LeaderEpochs, directory: Path, *, clean_shutdown: bool) -> bool:
    """Reads the epoch history; False if the file is damaged and must be rebuilt from the log."""
    try:
        epochs.load(is_on_disk=clean_shutdown)
    except ValueError as error:
        _log.warning(
            "the epoch history is rebuilt from the log",
            extra={"path": str(directory / EPOCHS_FILE_NAME), "reason": str(error)},
        )
        return False
    return True


def rebuild_epochs(epochs: LeaderEpochs, segments: Sequence[Segment]) -> None:
    """Takes the epoch history from the batches, each of which carries its epoch."""
    epochs.clear()
    for segment in segments:
        for header in segment.headers(0):
            epochs.assign(header.leader_epoch, header.base_offset)
