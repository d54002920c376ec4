"""The checkers of committed offsets and of the owners of partitions."""

from __future__ import annotations

import pytest

from checkers.offsets import Commit, CommittedOffset, Owned, commit_anomalies, ownership_anomalies

COMMITS = [Commit(0, 5, 1.0, 1.1), Commit(0, 9, 2.0, 2.1), Commit(0, 12, 3.0)]


@pytest.mark.parametrize(
    "observed",
    [
        [CommittedOffset(0, -1, 0.1, 0.2), CommittedOffset(0, 5, 1.5, 1.6), CommittedOffset(0, 9, 2.5, 2.6)],
        [CommittedOffset(0, 5, 1.05, 2.05)],
        [CommittedOffset(0, 12, 4.0, 4.1)],
        # Requested at the same time: either may have been answered first.
        [CommittedOffset(0, 9, 2.05, 2.3), CommittedOffset(0, 5, 2.06, 2.4)],
    ],
)
def test_committed_offsets_that_go_forward_pass(observed: list[CommittedOffset]) -> None:
    assert commit_anomalies(COMMITS, observed) == []


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        ([CommittedOffset(0, 5, 2.5, 2.6)], "forgotten: "),
        ([CommittedOffset(0, -1, 2.5, 2.6)], "forgotten: "),
        ([CommittedOffset(0, 12, 4.0, 4.1), CommittedOffset(0, 9, 4.2, 4.3)], "back: "),
        ([CommittedOffset(0, 10, 4.0, 4.1)], "invented: "),
        ([CommittedOffset(0, 12, 2.5, 2.6)], "invented: "),
    ],
)
def test_other_committed_offsets_are_found(observed: list[CommittedOffset], said: str) -> None:
    assert any(fault.startswith(said) for fault in commit_anomalies(COMMITS, observed))


def test_a_partition_has_one_owner_in_a_generation() -> None:
    good = [Owned(1, "a", 0), Owned(1, "b", 1), Owned(2, "b", 0), Owned(1, "a", 0)]
    assert ownership_anomalies(good) == []
    assert len(ownership_anomalies([*good, Owned(2, "a", 0)])) == 1
