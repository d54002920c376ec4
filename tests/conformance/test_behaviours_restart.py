"""A clean restart keeps ids, epochs, sequences, offsets, groups, configs and records."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from conformance.batches import batch_headers_of
from conformance.group_calls import Member, commit, committed, fetch_group, find_coordinator
from conformance.targets import Target
from conformance.test_behaviours_admin import config_of, delete_records, describe, node_id
from conformance.test_behaviours_produce import new_producer_id, sequenced
from conformance.topics import create_topic_over, list_offset, metadata_of, produce, produce_values
from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.delete_groups import DeleteGroupsRequest
from felice.protocol.messages.list_groups import ListGroupsRequest
from felice.protocol.messages.metadata import MetadataRequest

INITIAL_DELAY_MS = 1500


@dataclass(slots=True)
class Before:
    """The state before the stop."""

    producer_id: int
    topic: Any
    cluster_id: str
    node_id: str


@pytest.fixture(scope="module")
def restarted() -> Iterator[tuple[Target, Before]]:
    with Target({"group.initial.rebalance.delay.ms": str(INITIAL_DELAY_MS)}) as target:
        with target.wire() as wire:
            before = prepare(wire)
        target.restart()
        yield target, before


def prepare(wire: Wire) -> Before:
    create_topic_over(wire, "kept", 2, retention_ms=-1)
    producer_id = new_producer_id(wire)
    for sequence in range(6):
        assert produce(wire, "kept", sequenced(producer_id, sequence)).error_code == 0
    produce_values(wire, "kept", [b"a", b"b", b"c"], partition=1)
    assert delete_records(wire, "kept", 2, partition=1).error_code == 0
    for group in ("kept", "deleted"):
        find_coordinator(wire, group)
        assert commit(wire, "kept", 4, group_id=group, leader_epoch=0, metadata="note") == 0
    wire.ask(DeleteGroupsRequest(groups_names=["deleted"]), 2)
    answer = wire.ask(MetadataRequest(topics=[]), 12)
    return Before(producer_id, metadata_of(wire, "kept"), answer.cluster_id, node_id(wire))


@pytest.fixture
def wire(restarted: tuple[Target, Before]) -> Iterator[Wire]:
    with restarted[0].wire() as connection:
        find_coordinator(connection, "kept")
        yield connection


@pytest.fixture
def before(restarted: tuple[Target, Before]) -> Before:
    return restarted[1]


def test_topic_ids_survive_a_restart(wire: Wire, before: Before) -> None:
    """26, 28: of the cluster, the broker and the topic."""
    assert wire.ask(MetadataRequest(topics=[]), 12).cluster_id == before.cluster_id
    assert node_id(wire) == before.node_id
    assert metadata_of(wire, "kept").topic_id == before.topic.topic_id


def test_leader_epochs_do_not_go_down(wire: Wire, before: Before) -> None:
    """25: consumers would take a lower epoch for a loss of records."""
    old = {row.partition_index: row.leader_epoch for row in before.topic.partitions}
    new = {row.partition_index: row.leader_epoch for row in metadata_of(wire, "kept").partitions}
    assert all(new[partition] >= old[partition] for partition in (0, 1))


def test_producer_state_survives_a_restart(wire: Wire, before: Before) -> None:
    """31: the last batch is still a duplicate, and only the next sequence is accepted."""
    last = produce(wire, "kept", sequenced(before.producer_id, 5))
    assert (last.error_code, last.base_offset) == (0, 5)
    row = produce(wire, "kept", sequenced(before.producer_id, 9))
    assert row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(wire, "kept", sequenced(before.producer_id, 6)).base_offset == 6


def test_producer_ids_are_not_given_again(wire: Wire, before: Before) -> None:
    """31: two producers with one id would share their sequences."""
    assert new_producer_id(wire) > before.producer_id


def test_records_and_watermarks_survive_a_restart(wire: Wire) -> None:
    """48, 50, 83: deleted records stay deleted."""
    assert [header.base_offset for header in batch_headers_of(wire, "kept")][:6] == list(range(6))
    assert (list_offset(wire, "kept", -2, 1).offset, list_offset(wire, "kept", -1, 1).offset) == (2, 3)


def test_topic_configs_survive_a_restart(wire: Wire) -> None:
    """78: of the topic, with their source."""
    row = config_of(wire, "kept", "retention.ms")
    assert (row.value, row.config_source) == ("-1", 1)
    assert describe(wire, 4, node_id(wire), ["num.partitions"]).error_code == 0


def test_commits_stay_and_deleted_groups_stay_deleted(wire: Wire) -> None:
    """70, 73: with leader epoch and metadata."""
    row = fetch_group(wire, "kept").topics[0].partitions[0]
    assert (row.committed_offset, row.committed_leader_epoch, row.metadata) == (4, 0, "note")
    find_coordinator(wire, "deleted")
    assert committed(wire, "deleted", "kept") == -1
    assert "deleted" not in [row.group_id for row in wire.ask(ListGroupsRequest(), 4).groups]


def test_the_first_join_of_an_empty_group_waits_for_others(wire: Wire) -> None:
    """62: for group.initial.rebalance.delay.ms; the connection stays open meanwhile."""
    began = time.monotonic()
    member = Member(wire, "slow")
    find_coordinator(wire, "slow")
    answer = member.join()
    assert answer.error_code == 0
    assert time.monotonic() - began >= INITIAL_DELAY_MS / 1000 * 0.95
