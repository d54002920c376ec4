"""The follower's decisions one by one; `tests/scenarios/replication` shows them together."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.env import SystemDisk
from felice.log.epochs import LeaderEpochs
from felice.replication import follower
from felice.replication.follower import RestartAt, TruncateTo


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    found = LeaderEpochs(SystemDisk(), Path("unused"))
    for epoch, start_offset in entries:
        found.assign(epoch, start_offset)
    return found


@pytest.mark.parametrize(
    ("ours", "theirs", "cut"),
    [
        # Both logs have the epoch: truncate where it ends first.
        ([(1, 0), (3, 10)], (1, 8), 8),
        ([(1, 0), (3, 10)], (1, 15), 10),
        ([(1, 0), (3, 10)], (3, 12), 12),
        # This log never had the epoch: truncate to the end of the next lower epoch here.
        ([(1, 0), (3, 10)], (2, 15), 10),
        ([(1, 0), (3, 10)], (2, 5), 10),
        # The leader's epoch is older than all epochs here.
        ([(4, 0)], (2, 5), 0),
        # Never beyond this log's end.
        ([], (2, 50), 20),
    ],
)
def test_the_log_is_truncated_where_both_logs_last_agree(
    ours: list[tuple[int, int]], theirs: tuple[int, int], cut: int
) -> None:
    remedy = follower.after_divergence(epochs(*ours), *theirs, log_end_offset=20, high_watermark=10)
    assert remedy == TruncateTo(cut, is_unclean=cut < 10)


@pytest.mark.parametrize(
    ("start", "end", "remedy"),
    [
        (0, 15, TruncateTo(15, is_unclean=False)),
        (0, 5, TruncateTo(5, is_unclean=True)),
        (30, 40, RestartAt(30)),
        (20, 40, None),
        (0, 20, None),
    ],
)
def test_a_leader_that_lacks_our_end_offset_is_shorter_or_starts_later(
    start: int, end: int, remedy: object
) -> None:
    found = follower.after_out_of_range(
        log_end_offset=20, high_watermark=10, leader_start_offset=start, leader_end_offset=end
    )
    assert found == remedy


@pytest.mark.parametrize(
    ("leader_start", "remedy"),
    [
        (20, RestartAt(20)),
        (25, RestartAt(20)),
        (19, TruncateTo(15, is_unclean=False)),
        (0, TruncateTo(15, is_unclean=False)),
    ],
)
def test_records_where_the_leader_has_another_batch_are_removed(leader_start: int, remedy: object) -> None:
    def found(high_watermark: int) -> object:
        return follower.after_overlap(
            batch_offset=15,
            log_end_offset=20,
            high_watermark=high_watermark,
            leader_start_offset=leader_start,
        )

    assert found(15) == remedy
    if isinstance(remedy, TruncateTo):
        assert found(16) == TruncateTo(15, is_unclean=True)


def test_the_watermark_rises_to_the_leaders_as_far_as_the_log_goes() -> None:
    assert follower.next_high_watermark(3, 5, 10) == 5
    assert follower.next_high_watermark(3, 15, 10) == 10
    # A new leader may know a lower high watermark.
    assert follower.next_high_watermark(3, 1, 10) == 3


def test_a_fetch_names_the_epoch_of_the_last_record_not_of_an_empty_epoch() -> None:
    def asked(known: LeaderEpochs, start: int, end: int) -> int:
        return follower.next_fetch(
            known, log_start_offset=start, log_end_offset=end, leader_epoch=9
        ).last_fetched_epoch

    assert asked(epochs((1, 0), (3, 20)), 0, 20) == 1
    assert asked(epochs((1, 0), (3, 19)), 0, 20) == 3
    assert asked(epochs((3, 20)), 20, 20) == 3
    assert asked(epochs(), 0, 0) == -1


def test_without_epochs_only_committed_records_stay() -> None:
    def remedy(known: LeaderEpochs, high_watermark: int) -> object:
        return follower.before_following(
            known, log_start_offset=2, log_end_offset=20, high_watermark=high_watermark
        )

    assert remedy(epochs(), 7) == TruncateTo(7, is_unclean=False)
    assert remedy(epochs(), 0) == TruncateTo(2, is_unclean=False)
    assert remedy(epochs(), 20) is None
    assert remedy(epochs((1, 2)), 7) is None
