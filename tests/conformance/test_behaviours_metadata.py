"""Rules 21-30: Metadata."""

import uuid
from typing import Any

import pytest

from conformance.batches import fetch_request
from conformance.targets import Target
from conformance.topics import (
    REQUEST_TIMEOUT_MS,
    batch_of,
    create_topic_over,
    has_leaders,
    metadata_of,
    new_topic,
    produce,
)
from conformance.wire import Wire, unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.delete_topics import DeleteTopicsRequest
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from waiting import wait_until

OPERATIONS_NOT_ASKED = -2147483648
ZERO_UUID = uuid.UUID(int=0)


def ask_for(wire: Wire, *names: str, version: int = 12, auto_create: bool = True) -> Any:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return wire.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=auto_create), version)


def all_names(wire: Wire) -> list[str]:
    return [row.name for row in wire.ask(MetadataRequest(topics=None), 12).topics]


@pytest.mark.parametrize("version", [1, 5, 9, 12, 13])
def test_null_topics_are_all_and_empty_topics_are_none(wire: Wire, version: int) -> None:
    """21: from v1."""
    topic = new_topic(wire)
    assert topic in [row.name for row in wire.ask(MetadataRequest(topics=None), version).topics]
    assert wire.ask(MetadataRequest(topics=[]), version).topics == []


def test_empty_topics_are_all_in_version_0(wire: Wire) -> None:
    """21: v0 has no null."""
    topic = new_topic(wire)
    assert topic in [row.name for row in wire.ask(MetadataRequest(topics=[]), 0).topics]


@pytest.mark.parametrize("version", [1, 4, 9, 13])
def test_metadata_starts_to_create_a_named_topic(wire: Wire, version: int) -> None:
    """22: the response waits a moment for the creation; after it the client repeats its request."""
    topic = unique_name("auto")
    first = ask_for(wire, topic, version=version).topics[0]
    assert first.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # A row without an error is complete, so that the client can produce at once.
    led = [partition.leader_id >= 0 for partition in first.partitions]
    assert led == ([True] if first.error_code == ErrorCode.NONE else [])
    wait_until(lambda: has_leaders(wire, topic, 1))


def test_a_client_may_decline_auto_creation(wire: Wire) -> None:
    """22: from v4."""
    topic = unique_name("declined")
    answer = ask_for(wire, topic, version=4, auto_create=False).topics[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic not in all_names(wire)


def test_a_broker_may_decline_auto_creation(strict_broker: Target) -> None:
    """22: auto.create.topics.enable=false."""
    topic = unique_name("declined")
    with strict_broker.wire() as wire:
        assert ask_for(wire, topic).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert ask_for(wire, topic, version=1).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert topic not in all_names(wire)


@pytest.mark.parametrize("name", ["bad name", "a" * 250, "..", "ünïcode", ""])
def test_a_topic_with_an_invalid_name_is_not_created(wire: Wire, name: str) -> None:
    """22, 84: auto-creation obeys the rules for names."""
    assert ask_for(wire, name).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert name not in all_names(wire)


@pytest.mark.felice_only  # KRaft brokers may still say NOT_LEADER_OR_FOLLOWER for a moment
def test_a_topic_takes_records_as_soon_as_its_leader_shows(wire: Wire) -> None:
    """23: there is no error between the first Metadata with a leader and the first produce request."""
    for _ in range(5):
        topic = unique_name("quick")
        wanted = CreatableTopic(name=topic, num_partitions=3, replication_factor=1)
        wire.send(CreateTopicsRequest(topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS), 5)
        wire.receive(CreateTopicsRequest(), 5)
        while not has_leaders(wire, topic, 3):
            pass
        for partition in range(3):
            assert produce(wire, topic, batch_of(b"a"), partition).error_code == 0


def test_leader_epochs_are_known(wire: Wire) -> None:
    """25: 0 or more from v7 for partitions with a leader."""
    topic = metadata_of(wire, new_topic(wire, partitions=3))
    assert all(row.leader_epoch >= 0 for row in topic.partitions)


@pytest.mark.parametrize("version", range(14))
def test_the_live_broker_is_listed_as_it_was_reached(broker: Target, wire: Wire, version: int) -> None:
    """26: host and port of the listener, a stable id, and the cluster's id from v2."""
    answer = ask_for(wire, version=version)
    host, _, port = broker.bootstrap.rpartition(":")
    assert [(row.host, row.port) for row in answer.brokers] == [(host, int(port))]
    assert {row.node_id for row in answer.brokers} == {row.node_id for row in ask_for(wire).brokers}
    if version >= 1:
        assert answer.controller_id in [row.node_id for row in answer.brokers]
    if version >= 2:
        assert answer.cluster_id


def test_topics_have_ids_and_can_be_asked_for_by_them(wire: Wire) -> None:
    """27: non-zero from v10, asked by id with a null name from v12."""
    topic = new_topic(wire)
    topic_id = ask_for(wire, topic, version=10).topics[0].topic_id
    assert topic_id != ZERO_UUID
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    answer = wire.ask(asked, 12).topics[0]
    assert (answer.error_code, answer.name, answer.topic_id) == (0, topic, topic_id)


def test_an_unknown_topic_id_is_answered_without_a_name(wire: Wire) -> None:
    """27: UNKNOWN_TOPIC_ID."""
    unknown = uuid.uuid4()
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=unknown)])
    answer = wire.ask(asked, 12).topics[0]
    assert (answer.error_code, answer.name, answer.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_may_not_be_used_before_version_12(wire: Wire, version: int) -> None:
    """27: INVALID_REQUEST."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="a", topic_id=uuid.uuid4())])
    answer = wire.ask(asked, version)
    assert [row.error_code for row in answer.topics] == [ErrorCode.INVALID_REQUEST]


def test_a_recreated_topic_has_another_id_and_the_old_one_is_unknown(wire: Wire) -> None:
    """28: a fetch by the old id gets UNKNOWN_TOPIC_ID."""
    topic = new_topic(wire)
    old = metadata_of(wire, topic).topic_id
    wire.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=REQUEST_TIMEOUT_MS), 5)
    wait_until(lambda: metadata_of(wire, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    create_topic_over(wire, topic)
    assert metadata_of(wire, topic).topic_id not in (old, ZERO_UUID)
    asked = fetch_request("", max_wait_ms=0)
    asked.topics[0].topic_id = old
    answer = wire.ask(asked, 13)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [8, 9, 10, 12])
def test_authorized_operations_are_returned_only_on_request(wire: Wire, version: int) -> None:
    """30: -2147483648 otherwise."""
    topic = new_topic(wire)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    answer = wire.ask(asked, version)
    assert answer.topics[0].topic_authorized_operations == OPERATIONS_NOT_ASKED
    assert answer.cluster_authorized_operations == OPERATIONS_NOT_ASKED
    asked.include_topic_authorized_operations = True
    assert wire.ask(asked, version).topics[0].topic_authorized_operations > 0
