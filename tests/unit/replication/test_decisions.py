"""Small decisions: which replicas are throttled, the replica for a consumer's rack, resigning."""

from __future__ import annotations

import pytest

from felice.metadata.image import PartitionImage
from felice.metadata.layout import NO_LEADER, StateNode
from felice.replication.leader import Leader, without
from felice.replication.selector import NO_PREFERENCE, same_rack_replica
from felice.replication.throttle import is_throttled


def test_replicas_are_throttled_by_partition_and_broker() -> None:
    assert is_throttled(("0:1", "2:3"), 2, 3)
    assert not is_throttled(("0:1", "2:3"), 2, 1)
    assert not is_throttled((), 0, 1)
    assert is_throttled(("*",), 7, 7)


def leader_with(ends: dict[int, int], isr: tuple[int, ...], starts: dict[int, int] | None = None) -> Leader:
    image = PartitionImage(0, (1, 2, 3), leader=1, leader_epoch=0, isr=isr, partition_epoch=0)
    leader = Leader(1, image, epoch_start_offset=0, now_ms=0)
    for replica, end in ends.items():
        leader.on_follower_fetch(
            replica,
            end,
            log_start_offset=(starts or {}).get(replica, 0),
            log_end_offset=10,
            broker_epoch=-1,
            current_leader_epoch=0,
            registered_epoch=None,
            now_ms=0,
        )
    return leader


RACKS = {1: "a", 2: "b", 3: "b"}


@pytest.mark.parametrize(
    ("ends", "isr", "rack", "offset", "chosen"),
    [
        ({2: 8, 3: 9}, (1, 2, 3), "b", 5, 3),
        ({2: 9, 3: 8}, (1, 2, 3), "b", 5, 2),
        ({2: 9, 3: 9}, (1, 2, 3), "b", 5, 2),
        ({2: 9, 3: 9}, (1, 2, 3), "a", 5, NO_PREFERENCE),
        ({2: 9, 3: 9}, (1, 2, 3), "c", 5, NO_PREFERENCE),
        ({2: 9, 3: 9}, (1, 2, 3), "", 5, NO_PREFERENCE),
        ({2: 9, 3: 9}, (1, 3), "b", 5, 3),
        ({2: 4, 3: 4}, (1, 2, 3), "b", 5, NO_PREFERENCE),
        ({}, (1, 2, 3), "b", 0, NO_PREFERENCE),
    ],
)
def test_a_consumer_is_sent_to_its_rack(
    ends: dict[int, int], isr: tuple[int, ...], rack: str, offset: int, chosen: int
) -> None:
    assert same_rack_replica(leader_with(ends, isr), RACKS, rack, offset) == chosen


def test_a_consumer_is_not_sent_to_a_replica_that_deleted_its_offset_or_to_an_empty_rack() -> None:
    leader = leader_with({2: 9, 3: 8}, (1, 2, 3), starts={2: 6})
    assert same_rack_replica(leader, RACKS, "b", 5) == 3
    assert same_rack_replica(leader, {1: "a", 3: None}, "b", 5) == NO_PREFERENCE


@pytest.mark.parametrize(
    ("broker", "state", "after"),
    [
        # A leader hands over to the first in-sync replica in the order of the assignment, under a new epoch.
        (1, StateNode(1, 4, 7, (3, 1, 2)), StateNode(2, 5, 7, (3, 2))),
        # A follower leaves; the leader epoch stays.
        (2, StateNode(1, 4, 7, (1, 2, 3)), StateNode(1, 4, 7, (1, 3))),
        # The last member stays: no other replica is known to have all records.
        (1, StateNode(1, 4, 7, (1,)), None),
        (1, StateNode(NO_LEADER, 4, 7, (1,)), None),
        # The broker was not in the ISR.
        (2, StateNode(1, 4, 7, (1, 3)), None),
    ],
)
def test_a_broker_resigns_from_a_replica(broker: int, state: StateNode, after: StateNode | None) -> None:
    assert without(broker, state, (1, 2, 3)) == after


def test_the_last_in_sync_replica_hands_over_to_a_fallback_if_unclean_elections_are_allowed() -> None:
    alone = StateNode(1, 4, 7, (1,))
    assert without(1, alone, (1, 2, 3), fallbacks=(3, 2)) == StateNode(3, 5, 7, (3,))
    assert without(1, StateNode(NO_LEADER, 4, 7, (1,)), (1, 2, 3), fallbacks=(3,)) == StateNode(
        NO_LEADER, 4, 7, (3,)
    )
    # An in-sync replica comes before the fallbacks.
    assert without(1, StateNode(1, 4, 7, (1, 2)), (1, 2, 3), fallbacks=(3,)) == StateNode(2, 5, 7, (2,))
    # A broker does not hand over another broker's leadership.
    assert without(2, alone, (1, 2, 3), fallbacks=(3,)) is None
