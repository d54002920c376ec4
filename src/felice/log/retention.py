"""Decides which segments may be deleted. Pure.

Keeps true: only a run of the oldest segments is deleted; nothing at or above the high
            watermark is deleted, nor an empty active segment. If the active segment
            qualifies too, the log rolls first, so that its offsets continue.

The rules are Kafka's: a segment may be deleted when it ends at or below the log start,
when the rest of the log still holds `retention.bytes`, or when its newest record is
older than `retention.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from felice.dataclass import dataclass


class Reason(Enum):
    """Why a segment is deleted."""

    LOG_START = "it ends below the log start offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """Facts about one segment that retention depends on. `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp: int
    is_active: bool


def deletable(
    segments: Sequence[SegmentFacts],
    *,
    now_ms: int,
    high_watermark: int,
    log_start_offset: int,
    retention_bytes: int,
    retention_ms: int,
) -> list[Reason]:
    """Reasons to delete the oldest segments, from the first segment on; -1 for bytes or ms means no limit."""
    reasons: list[Reason] = []

    def take(rule: Callable[[SegmentFacts], bool], reason: Reason) -> None:
        for segment in segments[len(reasons) :]:
            is_last_and_empty = segment.is_active and segment.size_bytes == 0
            if is_last_and_empty or high_watermark < segment.end_offset or not rule(segment):
                return
            reasons.append(reason)

    take(lambda segment: not segment.is_active and segment.end_offset <= log_start_offset, Reason.LOG_START)
    if retention_bytes >= 0:
        take(_surplus(segments[len(reasons) :], retention_bytes), Reason.SIZE)
    if retention_ms >= 0:
        take(lambda segment: now_ms - segment.largest_timestamp > retention_ms, Reason.TIME)
    return reasons


def _surplus(segments: Iterable[SegmentFacts], retention_bytes: int) -> Callable[[SegmentFacts], bool]:
    """Returns a rule that allows deletions while the remaining log holds at least `retention_bytes`."""
    surplus = sum(segment.size_bytes for segment in segments) - retention_bytes

    def rule(segment: SegmentFacts) -> bool:
        nonlocal surplus
        if surplus < segment.size_bytes:
            return False
        surplus -= segment.size_bytes
        return True

    return rule
