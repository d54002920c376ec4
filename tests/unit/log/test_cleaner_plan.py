"""The cleaner's plan: which log is cleaned next, how far, and which segments are merged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from felice.config import TopicConfig
from felice.log.cleaner_plan import Cleanable, LogFacts, SegmentFacts, cleanable, groups, is_due

NOW = 1_000_000
COMPACT = TopicConfig(cleanup_policy=("compact",))


def segment(
    base: int, end: int, size: int = 100, *, largest: int = 1, first: int = 0, index: int = 8
) -> SegmentFacts:
    return SegmentFacts(base, end, size, index, largest, first)


def facts(*segments: SegmentFacts, **changes: object) -> LogFacts:
    end = segments[-1].next_offset
    return replace(LogFacts(segments, 0, end, end, None, COMPACT), **changes)  # type: ignore[arg-type]


THREE = (segment(0, 10), segment(10, 20, 300), segment(20, 25))


def test_everything_but_the_active_segment_is_dirty_at_first() -> None:
    found = cleanable(facts(*THREE), NOW)
    assert found == Cleanable(0, 20, 0, 400, False, False)
    assert found.dirty_ratio == 1.0


def test_the_dirty_ratio_counts_cleanable_bytes() -> None:
    found = cleanable(facts(*THREE, clean_offset=10), NOW)
    assert (found.first_dirty_offset, found.clean_bytes, found.dirty_bytes) == (10, 100, 300)
    assert found.dirty_ratio == 0.75


@pytest.mark.parametrize(("stable", "end"), [(25, 20), (20, 20), (19, 10), (10, 10), (9, 0), (0, 0)])
def test_only_whole_segments_below_the_last_stable_offset_are_cleaned(stable: int, end: int) -> None:
    assert cleanable(facts(*THREE, last_stable_offset=stable), NOW).end_offset == end


def test_a_segment_with_a_record_younger_than_min_compaction_lag_is_not_cleaned() -> None:
    config = replace(COMPACT, min_compaction_lag_ms=1000)
    old, young = segment(0, 10, largest=NOW - 1000), segment(10, 20, largest=NOW - 999)
    assert cleanable(facts(old, young, segment(20, 20), config=config), NOW).end_offset == 10
    assert cleanable(facts(old, young, segment(20, 20), config=config), NOW + 1).end_offset == 20


@pytest.mark.parametrize(("clean", "start", "first"), [(5, 8, 8), (26, 0, 0), (25, 0, 25), (None, 8, 8)])
def test_a_checkpoint_that_does_not_fit_the_log_is_ignored(clean: int, start: int, first: int) -> None:
    found = cleanable(facts(*THREE, clean_offset=clean, log_start_offset=start), NOW)
    assert found.first_dirty_offset == first
    assert found.is_reset == (clean in (5, 26))


def test_a_log_is_due_by_its_ratio_or_by_its_age() -> None:
    half = cleanable(facts(segment(0, 10), segment(10, 20), segment(20, 20), clean_offset=10), NOW)
    assert half.dirty_ratio == 0.5
    assert not is_due(half, COMPACT)
    assert is_due(half, replace(COMPACT, min_cleanable_dirty_ratio=0.49))
    assert is_due(replace(half, is_overdue=True), COMPACT)
    assert not is_due(replace(half, dirty_bytes=0, is_overdue=True), COMPACT)


def test_a_record_that_waits_longer_than_max_compaction_lag_makes_its_log_overdue() -> None:
    config = replace(COMPACT, max_compaction_lag_ms=1000)
    waiting = facts(segment(0, 10, first=NOW - 1000), segment(10, 10), config=config)
    assert not cleanable(waiting, NOW).is_overdue
    assert cleanable(waiting, NOW + 1).is_overdue
    assert not cleanable(replace(waiting, clean_offset=10), NOW + 1).is_overdue


def test_a_compacted_log_rolls_by_max_compaction_lag() -> None:
    config = replace(COMPACT, max_compaction_lag_ms=1000)
    assert config.max_segment_ms == 1000
    assert replace(config, cleanup_policy=("delete",)).max_segment_ms == config.segment_ms


def bases(found: list[list[SegmentFacts]]) -> list[list[int]]:
    return [[one.base_offset for one in group] for group in found]


def test_groups_hold_no_more_than_one_segment_may() -> None:
    four = [segment(0, 10, 40), segment(10, 20, 60), segment(20, 30, 1), segment(30, 40, 99)]
    assert bases(groups(four, segment_bytes=100, index_bytes=1000)) == [[0, 10], [20, 30]]
    assert bases(groups(four, segment_bytes=1000, index_bytes=16)) == [[0, 10], [20, 30]]
    assert bases(groups(four, segment_bytes=10, index_bytes=8)) == [[0], [10], [20], [30]]
    assert groups([], segment_bytes=1, index_bytes=1) == []


def test_groups_span_no_more_offsets_than_an_index_can_hold() -> None:
    wide = [segment(0, 10), segment(10, 2**31), segment(2**31, 2**31 + 1)]
    assert bases(groups(wide, segment_bytes=1000, index_bytes=1000)) == [[0, 10], [2**31]]
