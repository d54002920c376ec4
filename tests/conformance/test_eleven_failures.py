"""Eleven published failures of another compatible broker, each reproduced with the client that met it.

What the rules are in full stands in the tests beside these (`test_behaviours_*`): here is what a user would see.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

import felice.client
from conformance.group_calls import Member, find_coordinator
from conformance.targets import Target
from conformance.topics import create_topic, list_offset
from conformance.transaction_calls import (
    WireProducer,
    fetch_row,
    find_transaction_coordinator,
    until_settled,
    visible,
)
from conformance.wire import Wire, api_named, request_header, unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from felice.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from felice.protocol.messages.describe_groups import DescribeGroupsRequest
from waiting import wait_until

TOPIC_RESOURCE = 2
WAIT_S = 60.0
START_MS = int(time.time() * 1000) - 60_000
PACKAGES = [pytest.param(confluent_kafka, id="confluent"), pytest.param(felice.client, id="felice")]


@pytest.fixture
def topic(broker: Target) -> str:
    return create_topic(broker, unique_name("t"))


def produce_one_batch(broker: Target, topic: str, values: list[bytes]) -> None:
    """Records with one second between any two timestamps."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 500})
    for number, value in enumerate(values):
        producer.produce(topic, value, timestamp=START_MS + 1000 * number)
    assert producer.flush(WAIT_S) == 0


def consumer_of(broker: Target, package: Any = confluent_kafka, isolation: str = "read_committed") -> Any:
    options = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": unique_name("g"),
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    }
    return package.Consumer(options)


def values_from(consumer: Any, topic: str, offset: int, package: Any = confluent_kafka) -> list[bytes]:
    """The records of partition 0 from that offset to the end."""
    consumer.assign([package.TopicPartition(topic, 0, offset)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None, "nothing more comes, and no end"
        if message.error() is None:
            found.append(message.value())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            return found


def test_1_a_consumer_may_begin_in_the_middle_of_a_batch(broker: Target, topic: str) -> None:
    produce_one_batch(broker, topic, [b"a", b"b", b"c", b"d"])
    with consumer_of(broker) as consumer:
        assert [values_from(consumer, topic, offset) for offset in range(5)] == [
            [b"a", b"b", b"c", b"d"],
            [b"b", b"c", b"d"],
            [b"c", b"d"],
            [b"d"],
            [],
        ]


def test_2_a_time_within_a_batch_leads_to_its_record(broker: Target, topic: str) -> None:
    produce_one_batch(broker, topic, [b"a", b"b", b"c", b"d"])
    with consumer_of(broker) as consumer:
        for after_ms, offset in ((-5000, 0), (0, 0), (1, 1), (1000, 1), (2500, 3), (3000, 3)):
            asked = TopicPartition(topic, 0, START_MS + after_ms)
            [found] = consumer.offsets_for_times([asked], timeout=WAIT_S)
            assert found.offset == offset, f"{after_ms} ms after the first"


def test_3_growing_a_topic_is_answered_topic_by_topic(broker: Target, wire: Wire, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_S)
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS
    wanted = [
        CreatePartitionsTopic(name=name, count=4, assignments=None) for name in (topic, "no-such-topic")
    ]
    for version in range(4):
        asked = CreatePartitionsRequest(topics=wanted, timeout_ms=60_000, validate_only=True)
        rows = {row.name: row.error_code for row in wire.ask(asked, version).results}
        assert rows == {topic: 0, "no-such-topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("text", ["here I was", "", "é" * 100])
def test_4_the_text_of_a_commit_is_kept(broker: Target, topic: str, text: str) -> None:
    with consumer_of(broker) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 7, metadata=text)], asynchronous=False)
        [found] = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
    assert found.offset == 7
    assert (found.metadata or "") == text


@pytest.mark.parametrize("version", range(1, 5))
def test_5_configs_of_an_empty_list_of_names_are_all_of_them(wire: Wire, topic: str, version: int) -> None:
    def described(names: list[str] | None) -> list[str]:
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=names
        )
        [row] = wire.ask(DescribeConfigsRequest(resources=[resource]), version).results
        assert row.error_code == 0
        return sorted(config.name for config in row.configs)

    assert described(["retention.ms"]) == ["retention.ms"]
    assert described([]) == described(None) != []
    assert wire.ask(DescribeConfigsRequest(resources=[]), version).results == []


def test_6_the_timeout_of_transactions_is_bounded(broker: Target, wire: Wire) -> None:
    def begin(timeout_ms: int) -> None:
        name = unique_name("id")
        find_transaction_coordinator(wire, name)
        options = {"transactional.id": name, "transaction.timeout.ms": timeout_ms}
        Producer({"bootstrap.servers": broker.bootstrap, **options}).init_transactions(WAIT_S)

    begin(900_000)
    with pytest.raises(KafkaException) as refused:
        begin(900_001)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def outcome_of(producer: Producer, topic: str, value: bytes, key: bytes | None = None) -> int | None:
    """The code of the error, or None."""
    outcomes: list[Any] = []
    producer.produce(topic, value, key, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(WAIT_S) == 0
    return None if outcomes[0] is None else int(outcomes[0].code())


def test_7_max_message_bytes_is_the_topics_and_may_change(broker: Target, wire: Wire) -> None:
    topic = create_topic(broker, unique_name("small"), max_message_bytes=2000)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    assert outcome_of(producer, topic, b"x" * 1500) is None
    assert outcome_of(producer, topic, b"x" * 3000) == KafkaError.MSG_SIZE_TOO_LARGE
    resource = ConfigResource(ResourceType.TOPIC, topic)
    bigger = ConfigEntry("max.message.bytes", "4000", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(bigger)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    wait_until(lambda: outcome_of(producer, topic, b"x" * 3000) is None)
    assert outcome_of(producer, topic, b"x" * 5000) == KafkaError.MSG_SIZE_TOO_LARGE


class RestlessMember:
    """Joins, takes its assignment, and joins again when the group rebalances, as clients do."""

    def __init__(self, wire: Wire, group: str) -> None:
        self._member = Member(wire, group, session_timeout_ms=120_000)
        self.errors: list[int] = []
        self.generation = -1
        self.is_leaving = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.is_leaving and not self.errors:
            if self._take_part():
                self._beat()
        if not self.errors:
            self._heed(self._member.leave().members[0].error_code)

    def _take_part(self) -> bool:
        answer = self._member.join()
        if not self._heed(answer.error_code):
            return False
        plan = {row.member_id: b"work" for row in answer.members}
        if not self._heed(self._member.sync(plan).error_code):
            return False
        self.generation = self._member.generation
        return True

    def _beat(self) -> None:
        while not self.is_leaving and self._heed(self._member.heartbeat()):
            time.sleep(0.02)

    def _heed(self, error: int) -> bool:
        """Whether the member may go on; a rebalance is no error."""
        if error not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.errors.append(error)
        return error == ErrorCode.NONE


def test_8_members_that_come_and_go_at_once_stay_known(wire: Wire, connect: Callable[[], Wire]) -> None:
    """No correct member gets UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION."""
    group = unique_name("restless")
    find_coordinator(wire, group)
    members = []
    for _ in range(10):
        members.append(RestlessMember(connect(), group))
        time.sleep(0.03)
    for member in members[::3]:
        member.is_leaving = True
    stayed = [member for member in members if not member.is_leaving]
    try:
        wait_until(lambda: any(m.errors for m in members) or are_together(wire, group, stayed), WAIT_S)
    finally:
        for member in members:
            member.is_leaving = True
        for member in members:
            member.thread.join(WAIT_S)
    assert [member.errors for member in members] == [[]] * len(members)


def are_together(wire: Wire, group: str, members: list[RestlessMember]) -> bool:
    [described] = wire.ask(DescribeGroupsRequest(groups=[group]), 5).groups
    return (
        described.group_state == "Stable"
        and len(described.members) == len(members)
        and len({member.generation for member in members}) == 1
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_9_aborted_records_never_reach_a_committed_reader(broker: Target, topic: str, package: Any) -> None:
    """At every start offset, also within and after aborted records."""
    options = {"transactional.id": unique_name("id"), "linger.ms": 0}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **options})
    producer.init_transactions(WAIT_S)
    for values, end in (
        ((b"a", b"b"), producer.commit_transaction),
        ((b"c", b"d", b"e"), producer.abort_transaction),
        ((b"f",), producer.commit_transaction),
    ):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
            assert producer.flush(WAIT_S) == 0
        end(WAIT_S)
    expected = {0: b"a", 1: b"b", 7: b"f"}  # 2, 6 and 8 are markers, 3 to 5 were aborted
    with consumer_of(broker, package) as reader:
        for start in range(9):
            found = values_from(reader, topic, start, package)
            assert found == [value for offset, value in expected.items() if offset >= start]
    with consumer_of(broker, package, "read_uncommitted") as reader:
        assert values_from(reader, topic, 0, package) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_10_a_compacted_topic_refuses_a_record_without_a_key(broker: Target, wire: Wire) -> None:
    topic = create_topic(broker, unique_name("compacted"), cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    assert outcome_of(producer, topic, b"lost for ever") == KafkaError.INVALID_RECORD
    assert list_offset(wire, topic, -1).offset == 0
    assert outcome_of(producer, topic, b"kept", b"key") is None
    assert list_offset(wire, topic, -1).offset == 1


def test_11_transactions_end_in_every_version_offered_and_in_no_other(
    broker: Target, wire: Wire, topic: str
) -> None:
    api = api_named("EndTxn")
    offered = next(row for row in wire.ask(ApiVersionsRequest(), 0).api_keys if row.api_key == api.key)
    values: list[bytes] = []
    for version in range(offered.min_version, min(offered.max_version, api.versions.max) + 1):
        producer = WireProducer(wire, unique_name("id")).begin_life()
        values.append(b"version %d" % version)
        producer.write(topic, values[-1])
        assert until_settled(lambda p=producer, v=version: p.end(True, v)) == 0
        wait_until(lambda: visible(fetch_row(wire, topic)) == values)
    assert offered.min_version == 0
    for version in (-1, offered.max_version + 1):
        with broker.wire() as other:
            other.send_frame(request_header(api.key, version, 1, "wire", 1) + b"\0" * 16)
            assert other.is_closed_by_peer()
