"""The consumer and the blocking client fetch from the replica that the leader names (KIP-392), and otherwise from the
leader.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from felice.client import Consumer, TopicPartition
from felice.client.blocking import BlockingClient
from felice.client.net.read_replicas import ReadReplicas
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse
from felice.records.builder import build_batch
from felice.records.reader import read_records
from felice.records.record import Record
from unit.client.fake_broker import Disconnect, FakeBroker, brokers_at

RACK = "r"
VALUES = [b"0", b"1", b"2"]


class Racks:
    """Broker 1 leads partition 0 of topic t and sends consumers of rack r to broker 2."""

    def __init__(self, leader: FakeBroker, replica: FakeBroker) -> None:
        self.leader, self.replica = leader, replica
        self.ports = {1: leader.port, 2: replica.port}
        self.offline: list[int] = []
        self._metadata_of = leader.handlers[MetadataRequest]
        self._fetch_of = leader.handlers[FetchRequest]
        leader.handlers[FetchRequest] = self._fetch
        for broker in (leader, replica):
            broker.handlers[MetadataRequest] = self._metadata
        for value in VALUES:
            self.append(value)

    def append(self, value: bytes) -> None:
        for broker in (self.leader, self.replica):
            broker.append("t", 0, build_batch([Record(0, 1, None, value)]))

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        response: MetadataResponse = self._metadata_of(request, version)
        response.brokers = brokers_at(self.ports)
        for topic in response.topics:
            for row in topic.partitions:
                row.replica_nodes, row.isr_nodes, row.offline_replicas = [1, 2], [1, 2], self.offline
        return response

    def _fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        response: FetchResponse = self._fetch_of(request, version)
        if request.rack_id == RACK:
            for row in response.responses[0].partitions:
                row.preferred_read_replica, row.records = 2, b""
        return response

    def racks_told(self) -> list[str]:
        return [request.rack_id for request in self.leader.asked(FetchRequest)]


@pytest.fixture
def racks() -> Iterator[Racks]:
    with FakeBroker({"t": 1}) as leader, FakeBroker({"t": 1}) as replica:
        yield Racks(leader, replica)


Read = Callable[..., list[bytes | None]]


def read_with_consumer(racks: Racks, count: int = 3, max_age_ms: int = 300_000) -> list[bytes | None]:
    """The values of the first messages; an error is returned as its name."""
    config: dict[str, Any] = {
        "bootstrap.servers": racks.leader.bootstrap,
        "group.id": "g",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 10,
        "fetch.error.backoff.ms": 5,
        "retry.backoff.ms": 5,
        "client.rack": RACK,
        "metadata.max.age.ms": max_age_ms,
    }
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        found = consumer.consume(count, 60)
    return [message.error().name() if message.error() else message.value() for message in found]


def read_with_blocking_client(racks: Racks, count: int = 3, max_age_ms: int = 300_000) -> list[bytes | None]:
    with BlockingClient(
        racks.leader.bootstrap, client_rack=RACK, metadata_max_age_ms=max_age_ms, fetch_max_wait_ms=10
    ) as client:
        pieces = list(client.fetch({("t", 0): (0, count)}))
    return [record.value for piece in pieces for record in read_records(piece.data)]


@pytest.fixture(params=[read_with_consumer, read_with_blocking_client])
def read(request: pytest.FixtureRequest) -> Read:
    found: Read = request.param
    return found


def test_the_replica_that_the_leader_names_serves_the_records(racks: Racks, read: Read) -> None:
    assert read(racks) == VALUES
    assert racks.racks_told() == [RACK]
    assert racks.replica.asked(FetchRequest)[0].rack_id == RACK


def test_the_leader_is_asked_again_after_the_maximal_age_of_the_metadata(racks: Racks, read: Read) -> None:
    """The fourth record is written when the leader has been asked twice."""
    usual = racks.replica.handlers[FetchRequest]

    def slow(request: FetchRequest, version: int) -> Any:
        time.sleep(0.02)
        if len(racks.racks_told()) >= 2 and racks.leader.ends["t", 0] == 3:
            racks.append(b"3")
        return usual(request, version)

    racks.replica.handlers[FetchRequest] = slow
    assert read(racks, 4, max_age_ms=200) == [*VALUES, b"3"]
    assert set(racks.racks_told()) == {RACK}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ],
)
def test_after_an_error_of_the_replica_the_leader_serves_the_records(
    racks: Racks, read: Read, code: int
) -> None:
    row = PartitionData(partition_index=0, error_code=code, high_watermark=-1)
    topic = FetchableTopicResponse(topic="t", topic_id=racks.replica.topics["t"][0], partitions=[row])
    racks.replica.handlers[FetchRequest] = lambda request, version: FetchResponse(responses=[topic])
    assert read(racks) == VALUES
    assert racks.racks_told()[:2] == [RACK, ""], "the leader must not name the replica again"
    assert len(racks.replica.asked(FetchRequest)) == 1


def test_an_error_of_one_partition_costs_no_other_partition_its_replica() -> None:
    """The replica answers once: partition 0 has an error, partition 1 its first record."""
    with FakeBroker({"t": 2}) as leader, FakeBroker({"t": 2}) as replica:
        Racks(leader, replica)
        for value in VALUES:
            for broker in (leader, replica):
                broker.append("t", 1, build_batch([Record(0, 1, None, value)]))
        usual = replica.handlers[FetchRequest]

        def fail_in_one(request: FetchRequest, version: int) -> FetchResponse:
            response: FetchResponse = usual(request, version)
            for row in response.responses[0].partitions:
                if row.partition_index == 0:
                    row.error_code, row.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, None
                else:
                    row.records = build_batch([Record(0, 1, None, VALUES[0])])
            return response

        replica.script(FetchRequest, fail_in_one)
        with BlockingClient(leader.bootstrap, client_rack=RACK, fetch_max_wait_ms=10) as client:
            pieces = list(client.fetch({("t", 0): (0, 3), ("t", 1): (0, 3)}))
        assert sum(len(list(read_records(piece.data))) for piece in pieces) == 6
        asked = [
            (request.rack_id, row.partition)
            for request in leader.asked(FetchRequest)
            for row in request.topics[0].partitions
        ]
        assert ("", 0) in asked
        assert ("", 1) not in asked, "the replica answered for partition 1"


def test_after_an_error_of_the_whole_response_of_the_replica_the_leader_serves_the_records(
    racks: Racks, read: Read
) -> None:
    racks.replica.handlers[FetchRequest] = lambda request, version: FetchResponse(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR
    )
    assert read(racks) == VALUES
    assert racks.racks_told()[:2] == [RACK, ""]


def test_after_a_replica_that_stands_still_the_leader_serves_the_records(racks: Racks) -> None:
    """The replica never gets the third record."""
    with FakeBroker({"t": 1}) as replica:
        for value in VALUES[:2]:
            replica.append("t", 0, build_batch([Record(0, 1, None, value)]))
        racks.ports[2] = replica.port
        replica.handlers[MetadataRequest] = racks.leader.handlers[MetadataRequest]
        with BlockingClient(
            racks.leader.bootstrap, client_rack=RACK, fetch_max_wait_ms=10, retry_timeout_ms=300
        ) as client:
            pieces = list(client.fetch({("t", 0): (0, 3)}))
    assert [record.value for piece in pieces for record in read_records(piece.data)] == VALUES


def test_after_a_lost_connection_to_the_replica_the_leader_serves_the_records(
    racks: Racks, read: Read
) -> None:
    racks.replica.handlers[FetchRequest] = lambda request, version: Disconnect
    assert read(racks) == VALUES
    assert len(racks.replica.asked(FetchRequest)) == 1


def test_if_no_connection_to_the_replica_can_be_made_the_leader_serves_the_records(
    racks: Racks, read: Read
) -> None:
    racks.ports[2] = 1
    assert read(racks) == VALUES
    assert racks.racks_told()[:2] == [RACK, ""]


def test_an_answer_of_the_replica_ends_the_series_of_its_failures(
    racks: Racks, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[tuple[str, int]] = []
    monkeypatch.setattr(ReadReplicas, "answered", lambda self, partition: answered.append(partition))
    assert read(racks) == VALUES
    assert set(answered) == {("t", 0)}
    answered.clear()
    racks.ports[2] = 1
    assert read(racks) == VALUES
    assert answered == [], "the leader's answer says nothing of the replica"


def test_a_replica_that_is_not_in_the_metadata_is_left_out(racks: Racks, read: Read) -> None:
    del racks.ports[2]
    assert read(racks) == VALUES
    assert racks.racks_told()[:2] == [RACK, ""]


def test_a_replica_that_is_offline_is_left_out(racks: Racks, read: Read) -> None:
    racks.offline = [2]
    assert read(racks) == VALUES
    assert racks.replica.asked(FetchRequest) == []


def test_an_error_of_a_broker_that_led_the_partition_does_not_count_as_that_of_a_replica() -> None:
    """Broker 1 fails, and the metadata that is read then says that broker 2 no longer leads partition 1."""
    with FakeBroker({"t": 2}) as first, FakeBroker({"t": 2}) as second:
        racks, leaders = Racks(first, second), [1, 2]
        usual = first.handlers[MetadataRequest]

        def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
            response: MetadataResponse = usual(request, version)
            for topic in response.topics:
                for row in topic.partitions:
                    row.leader_id = leaders[row.partition_index]
            return response

        first.handlers[MetadataRequest] = second.handlers[MetadataRequest] = metadata

        def fail(request: FetchRequest, version: int) -> Any:
            leaders[1] = 1
            return Disconnect

        first.script(FetchRequest, fail)
        for broker in (first, second):
            broker.append("t", 1, build_batch([Record(0, 1, None, b"other")]))
        row = PartitionData(partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=-1)
        topic = FetchableTopicResponse(topic="t", topic_id=second.topics["t"][0], partitions=[row])
        second.script(FetchRequest, FetchResponse(responses=[topic]))
        with BlockingClient(first.bootstrap, client_rack=RACK, fetch_max_wait_ms=10) as client:
            pieces = list(client.fetch({("t", 0): (0, 3), ("t", 1): (0, 1)}))
        assert sum(len(list(read_records(piece.data))) for piece in pieces) == 4
        assert set(racks.racks_told()) == {RACK}, "no replica failed"
