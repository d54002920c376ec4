"""Retention: which segments are deleted, as a function of facts."""

from __future__ import annotations

from typing import Any

import pytest

from felice.log.retention import Reason, SegmentFacts, deletable

NOW = 1_000_000
HOUR = 3_600_000


def segments(*specs: tuple[int, int], active_empty: bool = False) -> list[SegmentFacts]:
    """Segments of ten offsets each, from (size, age in ms). The last is active."""
    facts = [
        SegmentFacts(10 * i, 10 * (i + 1), size, NOW - age, i == len(specs) - 1)
        for i, (size, age) in enumerate(specs)
    ]
    if active_empty:
        end = facts[-1].base_offset
        facts[-1] = SegmentFacts(end, end, 0, NOW, True)
    return facts


def decide(facts: list[SegmentFacts], **rules: Any) -> list[Reason]:
    defaults = {
        "now_ms": NOW,
        "high_watermark": facts[-1].end_offset,
        "log_start_offset": 0,
        "retention_bytes": -1,
        "retention_ms": -1,
    }
    return deletable(facts, **{**defaults, **rules})


def test_without_limits_nothing_is_deleted() -> None:
    assert decide(segments((100, 9 * HOUR), (100, 0))) == []


@pytest.mark.parametrize(
    ("retention_bytes", "gone"), [(400, 0), (301, 0), (300, 1), (299, 1), (200, 2), (100, 3), (0, 4)]
)
def test_size_keeps_at_least_retention_bytes(retention_bytes: int, gone: int) -> None:
    facts = segments((100, 0), (100, 0), (100, 0), (100, 0))
    assert decide(facts, retention_bytes=retention_bytes) == [Reason.SIZE] * gone


def test_time_stops_at_the_first_segment_that_is_young_enough() -> None:
    facts = segments((1, 50), (1, 40), (1, 10), (1, 45))
    assert decide(facts, retention_ms=39) == [Reason.TIME] * 2


def test_a_segment_exactly_as_old_as_allowed_stays() -> None:
    assert decide(segments((1, 50), (1, 0)), retention_ms=50) == []


def test_the_active_segment_is_deleted_too_if_it_has_data() -> None:
    assert decide(segments((1, 50), (1, 50)), retention_ms=10) == [Reason.TIME] * 2


def test_an_empty_active_segment_stays() -> None:
    assert decide(segments((1, 50), (0, 0), active_empty=True), retention_ms=0, now_ms=NOW + 5) == [
        Reason.TIME
    ]


def test_nothing_at_or_above_the_high_watermark_is_deleted() -> None:
    facts = segments((1, 50), (1, 50), (1, 50))
    assert decide(facts, retention_ms=10, high_watermark=19) == [Reason.TIME]
    assert decide(facts, retention_ms=10, high_watermark=20) == [Reason.TIME] * 2
    assert decide(facts, retention_bytes=0, high_watermark=9) == []


def test_segments_below_the_log_start_are_deleted_whatever_the_limits() -> None:
    facts = segments((1, 0), (1, 0), (1, 0))
    assert decide(facts, log_start_offset=9) == []
    assert decide(facts, log_start_offset=10) == [Reason.LOG_START]
    assert decide(facts, log_start_offset=30) == [Reason.LOG_START] * 2


def test_size_counts_only_segments_above_the_log_start() -> None:
    facts = segments((100, 0), (100, 0), (100, 0))
    assert decide(facts, log_start_offset=10, retention_bytes=200) == [Reason.LOG_START]
