"""Decisions without a store: placement, names, elections, changes of configuration."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.config import TOPIC_OPTIONS
from felice.controller import duties, topic_names
from felice.controller.config_changes import ChangeKind, ConfigChange, apply_changes
from felice.controller.duties import StateChange, TopicChange, due, rebalanced, state_change
from felice.controller.election import (
    elect_after_liveness_change,
    fence_previous_incarnation,
    first_state,
    preferred,
    step_down,
)
from felice.controller.placement import PlacementError, alternating, check_assignment, place_replicas
from felice.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from felice.metadata.layout import MAX_STATES_PER_TRANSACTION, NO_LEADER, StateNode
from felice.protocol.errors import ApiError, BrokenInvariant, ErrorCode
from felice.protocol.primitives import ZERO_UUID


def _unracked(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def test_replicas_go_round_the_brokers_as_in_kafkas_own_example() -> None:
    # The comment over AdminUtils.assignReplicasToBrokers: 5 brokers, 10 partitions, 3 replicas, all from 0.
    placed = place_replicas(_unracked(0, 1, 2, 3, 4), 10, 3, start_index=0, start_shift=0)
    assert placed == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


@given(st.integers(1, 8), st.integers(1, 40), st.data())
def test_every_placement_is_sound_and_even(brokers: int, partitions: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, brokers))
    start, shift = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))
    ids = [10 * number for number in range(brokers)]
    placed = place_replicas(_unracked(*ids), partitions, factor, start_index=start, start_shift=shift)
    check_assignment(placed, ids)
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in ids) <= 1


def test_replicas_go_round_the_racks_as_in_kafkas_own_example() -> None:
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert alternating(racks) == [0, 3, 1, 5, 4, 2]
    assert place_replicas(racks, 7, 3, start_index=0, start_shift=0) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=8), st.integers(1, 30), st.data())
def test_no_rack_holds_two_replicas_while_another_holds_none(
    racks: list[str], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    start, shift = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))
    rack_of = dict(enumerate(racks))
    placed = place_replicas(rack_of, partitions, factor, start_index=start, start_shift=shift)
    check_assignment(placed, list(rack_of))
    for replicas in placed.values():
        assert len({rack_of[replica] for replica in replicas}) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in rack_of) <= 1


def test_racks_do_not_count_if_a_broker_has_none() -> None:
    placed = place_replicas({1: "a", 2: "a", 3: None}, 1, 2, start_index=0, start_shift=0)
    assert placed == {0: (1, 2)}


def test_added_partitions_continue_the_placement_of_the_others() -> None:
    whole = place_replicas(_unracked(1, 2, 3), 6, 1, start_index=1, start_shift=0)
    assert place_replicas(_unracked(1, 2, 3), 2, 1, start_index=1, start_shift=0, first_partition=4) == {
        4: whole[4],
        5: whole[5],
    }


@pytest.mark.parametrize(
    ("assignment", "fault"),
    [
        ({}, "consecutive"),
        ({1: (1,)}, "consecutive"),
        ({0: (1,), 2: (1,)}, "consecutive"),
        ({0: ()}, "at least one"),
        ({0: (1, 2), 1: (1,)}, "same number"),
        ({0: (1, 1)}, "twice"),
        ({0: (9,)}, "not alive"),
    ],
)
def test_an_impossible_assignment_is_refused(assignment: dict[int, tuple[int, ...]], fault: str) -> None:
    with pytest.raises(PlacementError, match=fault):
        check_assignment(assignment, [1, 2, 3])


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_legal_topic_names(name: str) -> None:
    assert topic_names.fault_of(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n"])
def test_illegal_topic_names(name: str) -> None:
    assert topic_names.fault_of(name)


def test_dots_and_underscores_collide() -> None:
    assert topic_names.collision_of("a.b", ["a_b", "c"]) == "a_b"
    assert topic_names.collision_of("a_b", ["a.b"]) == "a.b"
    assert topic_names.collision_of("a.b", ["a.b", "ab"]) is None


def test_a_new_partition_is_led_by_its_first_replica_alive() -> None:
    assert first_state((1, 2, 3), {2, 3}, 7) == StateNode(2, 0, 7, (2, 3))
    assert first_state((1,), set(), 7) == StateNode(NO_LEADER, 0, 7, (1,))


def _led(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionImage:
    return PartitionImage(0, replicas, leader, 4, isr, partition_epoch=0)


def test_an_election_takes_the_next_epoch_and_the_first_in_sync_replica_alive() -> None:
    assert elect_after_liveness_change(_led(1, (1, 3)), {2, 3}, 9) == StateNode(3, 5, 9, (3,))
    assert elect_after_liveness_change(_led(NO_LEADER, (3, 2)), {1, 2, 3}, 9) == StateNode(2, 5, 9, (3, 2))


def test_a_live_leader_keeps_its_epoch_when_another_broker_dies() -> None:
    assert elect_after_liveness_change(_led(1, (1, 2, 3)), {1, 2}, 9) == StateNode(1, 4, 9, (1, 2))
    assert elect_after_liveness_change(_led(1, (1, 2)), {1, 2, 3}, 9) is None


def test_without_a_live_in_sync_replica_there_is_no_leader_and_the_isr_is_kept() -> None:
    dead = _led(1, (1,), (1, 2))
    assert elect_after_liveness_change(dead, {2}, 9) == StateNode(NO_LEADER, 5, 9, (1,))
    assert elect_after_liveness_change(dead, {2}, 9, allows_unclean=True) == StateNode(2, 5, 9, (2,))
    assert elect_after_liveness_change(_led(NO_LEADER, (1,), (1, 2)), {2}, 9) is None


def test_a_resigning_leader_leaves_the_isr_unless_it_is_the_last_member() -> None:
    assert step_down(_led(1, (1, 2, 3)), 1, {2, 3}, 9) == StateNode(2, 5, 9, (2, 3))
    assert step_down(_led(1, (1, 2, 3)), 2, {1, 3}, 9) == StateNode(1, 4, 9, (1, 3))
    assert step_down(_led(1, (1,)), 1, {2, 3}, 9) is None
    assert step_down(_led(1, (1, 2)), 3, {1, 2}, 9) is None


def test_a_returning_broker_leads_only_partitions_without_another_candidate_in_a_new_epoch() -> None:
    assert fence_previous_incarnation(_led(1, (1, 2)), 1, {2, 3}, 9) == StateNode(2, 5, 9, (2,))
    assert fence_previous_incarnation(_led(1, (1, 2)), 1, set(), 9) == StateNode(1, 5, 9, (1,))
    assert fence_previous_incarnation(_led(2, (1, 2)), 1, set(), 9) is None


def test_the_preferred_leader_is_the_first_replica_if_it_is_in_sync() -> None:
    assert preferred(_led(2, (1, 2)), {1, 2}, 9) == StateNode(1, 5, 9, (1, 2))
    assert preferred(_led(2, (2, 3)), {1, 2}, 9) is None
    assert preferred(_led(2, (1, 2)), {2}, 9) is None
    assert preferred(_led(1, (1, 2)), {1, 2}, 9) is None


def _changed(current: dict[str, str], *changes: ConfigChange) -> dict[str, str]:
    effective = {"cleanup.policy": "delete"}
    return apply_changes(current, effective, changes, TOPIC_OPTIONS)


def test_set_delete_append_and_subtract() -> None:
    assert _changed({}, ConfigChange("retention.ms", ChangeKind.SET, "5")) == {"retention.ms": "5"}
    assert _changed({"retention.ms": "5"}, ConfigChange("retention.ms", ChangeKind.DELETE, "ignored")) == {}
    # An append to an option without override starts from the value in force.
    both = _changed({}, ConfigChange("cleanup.policy", ChangeKind.APPEND, "compact"))
    assert both == {"cleanup.policy": "delete,compact"}
    assert _changed(both, ConfigChange("cleanup.policy", ChangeKind.APPEND, "compact")) == both
    assert _changed(both, ConfigChange("cleanup.policy", ChangeKind.SUBTRACT, "delete")) == {
        "cleanup.policy": "compact"
    }


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([ConfigChange("retention.ms", ChangeKind.APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ([ConfigChange("retention.ms", ChangeKind.SET, None)], ErrorCode.INVALID_REQUEST),
        ([ConfigChange("retention.ms", 9, "5")], ErrorCode.INVALID_REQUEST),
        ([ConfigChange("a", 0, "1"), ConfigChange("a", ChangeKind.DELETE, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_impossible_changes_are_refused(changes: list[ConfigChange], code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        _changed({"retention.ms": "1"}, *changes)
    assert refused.value.code == code


def test_reassignments_end_in_transactions_of_bounded_size() -> None:
    moved = tuple(
        PartitionImage(number, (2, 1), 1, 0, (2, 1), 0, adding=(2,), removing=(1,))
        for number in range(2 * MAX_STATES_PER_TRANSACTION + 1)
    )
    brokers = {broker_id: BrokerImage(broker_id, {}, None, 0) for broker_id in (1, 2)}
    image = ClusterImage(brokers=brokers, topics={"t": TopicImage("t", ZERO_UUID, moved)})
    [decision] = due(image, 1, lambda topic: False)
    assert isinstance(decision, TopicChange)
    assert len(decision.states) == MAX_STATES_PER_TRANSACTION
    # The other partitions keep their state.
    assert decision.node.adding == dict.fromkeys(range(MAX_STATES_PER_TRANSACTION, len(moved)), (2,))


def test_a_changed_configuration_causes_elections_in_unchanged_topics() -> None:
    """`unclean.leader.election.enable` was set for a topic without a leader, or for all topics."""
    leaderless = PartitionImage(0, (1, 2), NO_LEADER, 4, (1,), partition_epoch=0)
    brokers = {2: BrokerImage(2, {}, None, 0)}
    before = ClusterImage(brokers=brokers, topics={"t": TopicImage("t", ZERO_UUID, (leaderless,))})
    asked: list[str] = []

    def allows_unclean(topic: str) -> bool:
        asked.append(topic)
        return True

    assert not due(replace(before), 1, allows_unclean, before) and not asked, "nothing changed"
    settings = {"unclean.leader.election.enable": "true"}
    for after in (
        replace(before, topic_configs={"t": settings}),
        replace(before, broker_configs={"": settings}),
    ):
        [elected] = due(after, 1, allows_unclean, before)
        assert isinstance(elected, StateChange)
        assert (elected.state.leader, elected.state.isr) == (2, (2,))


_LED = PartitionImage(0, (1, 2), leader=1, leader_epoch=4, isr=(1, 2), partition_epoch=0)


@pytest.mark.parametrize(
    ("invariant", "state"),
    [
        ("C2", StateNode(NO_LEADER, 5, 1, ())),
        ("R4", StateNode(1, 4, 1, (2,))),
        ("R4", StateNode(1, 4, 1, (1, 3))),
        ("R2", StateNode(2, 4, 1, (1, 2))),
        ("R2", StateNode(NO_LEADER, 3, 1, (1, 2))),
    ],
)
def test_no_decision_breaks_an_invariant(invariant: str, state: StateNode) -> None:
    topic = TopicImage("t", ZERO_UUID, (_LED,))
    with pytest.raises(BrokenInvariant, match=rf"invariant {invariant} is broken.*partition=t-0") as error:
        state_change(topic, _LED, state)
    assert error.value.name == invariant


def test_a_broken_decision_leaves_the_other_partitions_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    def elect(partition: PartitionImage, *_: object, **__: object) -> StateNode:
        return StateNode(2, 5 if partition.partition else 4, 1, (2,))

    monkeypatch.setattr(duties, "elect_after_liveness_change", elect)
    topic = TopicImage("t", ZERO_UUID, (_LED, replace(_LED, partition=1)))
    found: list[BrokenInvariant] = []
    decided = due(ClusterImage(topics={"t": topic}), 1, lambda name: False, None, found.append)
    assert [one.partition for one in decided if isinstance(one, StateChange)] == [1]
    assert [error.name for error in found] == ["R2"]


def test_a_broken_preferred_election_leaves_the_other_partitions_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def elect(partition: PartitionImage, *_: object) -> StateNode:
        return StateNode(2, 5 if partition.partition else 4, 1, (2,))

    monkeypatch.setattr(duties, "preferred", elect)
    led_by_another = replace(_LED, replicas=(2, 1))
    topic = TopicImage("t", ZERO_UUID, (led_by_another, replace(led_by_another, partition=1)))
    alive = BrokerImage(2, {}, None, 0)
    found: list[BrokenInvariant] = []
    decided = rebalanced(ClusterImage(brokers={2: alive}, topics={"t": topic}), 1, 10, found.append)
    assert [one.partition for one in decided if isinstance(one, StateChange)] == [1]
    assert [error.name for error in found] == ["R2"]
