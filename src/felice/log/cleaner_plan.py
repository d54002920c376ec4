"""Decides which log the cleaner takes next, how far it may go, and which segments it merges. Pure.

Keeps true: the cleaner never touches the active segment, nor anything at or above the last stable offset, nor a
            segment with a record younger than min.compaction.lag.ms: only whole segments below all three.
            The segment made from a group exceeds no limit of a segment: bytes, index bytes, and offsets
            that an index can hold relative to the first.

The rules are Kafka's (KIP-58, KIP-354). `cleaner_pass` does the work, `server` has the threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from felice.config import TopicConfig
from felice.dataclass import dataclass
from felice.log.batch_places import MAX_RELATIVE_OFFSET


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """Facts about one segment that the plan depends on."""

    base_offset: int
    next_offset: int
    size_bytes: int
    index_bytes: int
    """Size in bytes of the larger of offset and time index."""
    largest_timestamp: int
    first_timestamp: int
    """Timestamp of its first batch; 0 if unused because the topic has no max.compaction.lag.ms."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """One compacted log as of now. The last segment is the active one."""

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    clean_offset: int | None
    """The offset in `cleaner-offset-checkpoint`: everything below was cleaned."""
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The part of a log that a pass would clean: `first_dirty_offset..end_offset` is new since the last pass."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """A record has waited longer than max.compaction.lag.ms."""
    is_reset: bool
    """The checkpoint did not fit the log and was ignored."""

    @property
    def dirty_ratio(self) -> float:
        """Dirty bytes as a share of all cleanable bytes."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable(log: LogFacts, now_ms: int) -> Cleanable:
    """Determines the clean part, the dirty part and the end of a pass over `log`."""
    first_dirty = log.clean_offset if log.clean_offset is not None else log.log_start_offset
    is_reset = not log.log_start_offset <= first_dirty <= log.log_end_offset
    if is_reset:
        first_dirty = log.log_start_offset
    closed = log.segments[:-1]
    bound = _whole_segments_below(log, _uncleanable_offset(log, first_dirty, now_ms))
    dirty = [
        segment for segment in closed if _holds_from(segment, first_dirty) and segment.next_offset <= bound
    ]
    clean = [segment for segment in closed if not _holds_from(segment, first_dirty)]
    return Cleanable(
        first_dirty,
        max(first_dirty, bound),
        sum(segment.size_bytes for segment in clean),
        sum(segment.size_bytes for segment in dirty),
        _is_overdue(dirty, log.config.max_compaction_lag_ms, now_ms),
        is_reset,
    )


def _holds_from(segment: SegmentFacts, offset: int) -> bool:
    return segment.next_offset > offset


def _uncleanable_offset(log: LogFacts, first_dirty: int, now_ms: int) -> int:
    """The first offset that cleaning must not touch."""
    bound = min(log.last_stable_offset, log.segments[-1].base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in log.segments[:-1]:
            if _holds_from(segment, first_dirty) and segment.largest_timestamp > now_ms - lag_ms:
                return min(bound, segment.base_offset)
    return bound


def _whole_segments_below(log: LogFacts, offset: int) -> int:
    """The end of the last closed segment that lies wholly below `offset`."""
    ends = [following.base_offset for following in log.segments[1:]]
    return max((end for end in ends if end <= offset), default=log.segments[0].base_offset)


def _is_overdue(dirty: Iterable[SegmentFacts], max_lag_ms: int, now_ms: int) -> bool:
    earliest = min(
        (segment.first_timestamp for segment in dirty if segment.first_timestamp > 0), default=now_ms
    )
    return earliest < now_ms - max_lag_ms


def is_due(found: Cleanable, config: TopicConfig) -> bool:
    """Whether a pass should run: a record is overdue, or min.cleanable.dirty.ratio is exceeded."""
    if found.dirty_bytes == 0:
        return False
    return found.is_overdue or found.dirty_ratio > config.min_cleanable_dirty_ratio


def groups(
    segments: Sequence[SegmentFacts], *, segment_bytes: int, index_bytes: int
) -> list[list[SegmentFacts]]:
    """Runs of adjacent segments, each to be merged into one: together they fit into one segment as they are now."""
    found: list[list[SegmentFacts]] = []
    size = indexed = 0
    for segment in segments:
        fits = (
            bool(found)
            and size + segment.size_bytes <= segment_bytes
            and indexed + segment.index_bytes <= index_bytes
            and segment.next_offset - 1 - found[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        )
        if fits:
            found[-1].append(segment)
            size, indexed = size + segment.size_bytes, indexed + segment.index_bytes
        else:
            found.append([segment])
            size, indexed = segment.size_bytes, segment.index_bytes
    return found
