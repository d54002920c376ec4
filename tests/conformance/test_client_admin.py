"""Our AdminClient against a real broker: every call works, and errors name the item at fault."""

import gc
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from conformance.targets import Target
from felice.client import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from felice.client.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from waiting import LIMIT_S, wait_until


@pytest.fixture
def admin(broker: Target) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": broker.bootstrap}) as made:
        yield made


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"admin-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "3600000"})])[name].result(LIMIT_S)
    return name


def error_code(future: "Future[Any]") -> int:
    error = future.exception(LIMIT_S)
    assert isinstance(error, KafkaException), error
    return error.args[0].code()


def produce(broker: Target, topic: str, count: int) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for number in range(count):
            producer.produce(topic, b"v", partition=0, timestamp=1000 + number)


def test_topics_are_created_described_widened_and_deleted(admin: AdminClient, topic: str) -> None:
    assert error_code(admin.create_topics([NewTopic(topic, 1)])[topic]) == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(LIMIT_S)

    def described() -> Any:
        return admin.describe_topics([topic])[topic].result(LIMIT_S)

    # What the controller has decided reaches the brokers a moment later.
    wait_until(lambda: len(described().partitions) == 4)
    assert [row.id for row in described().partitions] == [0, 1, 2, 3]
    assert described().partitions[0].leader == described().partitions[0].replicas[0]
    assert (
        error_code(admin.create_partitions([NewPartitions(topic, 3)])[topic]) == KafkaError.INVALID_PARTITIONS
    )
    admin.delete_topics([topic])[topic].result(LIMIT_S)
    assert error_code(admin.delete_topics([topic])[topic]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_one_bad_topic_does_not_fail_the_others(admin: AdminClient) -> None:
    good = f"admin-{uuid.uuid4().hex[:8]}"
    futures = admin.create_topics([NewTopic(good, 1), NewTopic("bad name", 1), NewTopic(f"{good}-0", 0)])
    futures[good].result(LIMIT_S)
    assert error_code(futures["bad name"]) == KafkaError.TOPIC_EXCEPTION
    assert error_code(futures[f"{good}-0"]) == KafkaError.INVALID_PARTITIONS


def test_validation_alone_creates_nothing(admin: AdminClient) -> None:
    name = f"admin-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 1)], validate_only=True)[name].result(LIMIT_S)
    assert name not in admin.list_topics().topics


def test_configs_are_described_changed_and_refused(admin: AdminClient, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def retention() -> ConfigEntry:
        entry: ConfigEntry = admin.describe_configs([resource])[resource].result(LIMIT_S)["retention.ms"]
        return entry

    assert (retention().value, retention().source) == ("3600000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)

    def change(value: str | None, operation: AlterConfigOpType) -> "Future[Any]":
        entry = ConfigEntry("retention.ms", value, incremental_operation=operation)
        changed = ConfigResource("topic", topic, incremental_configs=[entry])
        return admin.incremental_alter_configs([changed])[changed]

    change("7200000", AlterConfigOpType.SET).result(LIMIT_S)
    assert retention().value == "7200000"
    assert error_code(change("soon", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG
    change(None, AlterConfigOpType.DELETE).result(LIMIT_S)
    assert retention().is_default


def test_broker_configs_come_from_that_broker(admin: AdminClient) -> None:
    number = next(iter(admin.list_topics().brokers))
    resource = ConfigResource("broker", str(number))
    assert "log.retention.ms" in admin.describe_configs([resource])[resource].result(LIMIT_S)
    missing = ConfigResource("broker", "4711")
    assert error_code(admin.describe_configs([missing])[missing]) == KafkaError._UNKNOWN_BROKER


def test_offsets_are_listed_by_every_spec(admin: AdminClient, broker: Target, topic: str) -> None:
    produce(broker, topic, 10)

    def offset(spec: OffsetSpec) -> int:
        partition = TopicPartition(topic, 0)
        return int(admin.list_offsets({partition: spec})[partition].result(LIMIT_S).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.for_timestamp(1004)) == 4
    assert offset(OffsetSpec.max_timestamp()) == 9
    nowhere = TopicPartition(topic, 99)
    assert (
        error_code(admin.list_offsets({nowhere: OffsetSpec.latest()})[nowhere])
        == KafkaError.UNKNOWN_TOPIC_OR_PART
    )


def test_records_are_deleted_up_to_an_offset_or_all(admin: AdminClient, broker: Target, topic: str) -> None:
    produce(broker, topic, 10)
    for wanted, left in ((4, 4), (OFFSET_END, 10)):
        partition = TopicPartition(topic, 0, wanted)
        assert admin.delete_records([partition])[partition].result(LIMIT_S).low_watermark == left
    beyond = TopicPartition(topic, 0, 99)
    assert error_code(admin.delete_records([beyond])[beyond]) == KafkaError.OFFSET_OUT_OF_RANGE


def test_offsets_of_a_group_are_set_listed_and_deleted(admin: AdminClient, topic: str) -> None:
    group = f"g-{topic}"
    wanted = ConsumerGroupTopicPartitions(
        group, [TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 6, "note")]
    )
    rows = admin.alter_consumer_group_offsets([wanted])[group].result(LIMIT_S).topic_partitions
    assert [row.error for row in rows] == [None, None]
    found = {row.id: row for row in admin.list_groups()}[group]
    assert (found.state, found.members, found.error) == ("Empty", [], None)

    def committed() -> dict[int, tuple[int, str | None]]:
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(
            LIMIT_S
        )
        return {row.partition: (row.offset, row.metadata) for row in answer.topic_partitions}

    assert committed() == {0: (5, None), 1: (6, "note")}
    some = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1)])
    admin.delete_consumer_group_offsets([some])[group].result(LIMIT_S)
    assert committed() == {0: (5, None)}
    admin.delete_consumer_groups([group])[group].result(LIMIT_S)
    assert error_code(admin.delete_consumer_groups([group])[group]) == KafkaError.GROUP_ID_NOT_FOUND


def test_group_with_a_member_is_described_and_protected(
    admin: AdminClient, broker: Target, topic: str
) -> None:
    group = f"g-{topic}"
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "someone"}
    with Consumer(config) as consumer:
        consumer.subscribe([topic])

        def has_joined() -> bool:
            consumer.poll(0.05)
            return bool(consumer.assignment())

        wait_until(has_joined)
        described = admin.describe_consumer_groups([group])[group].result(LIMIT_S)
        assert described.state is ConsumerGroupState.STABLE and described.partition_assignor == "range"
        [member] = described.members
        assert member.client_id == "someone"
        assert sorted(tp.partition for tp in member.assignment.topic_partitions) == [0, 1]
        assert error_code(admin.delete_consumer_groups([group])[group]) == KafkaError.NON_EMPTY_GROUP
        listed = admin.list_consumer_groups(states=[ConsumerGroupState.STABLE]).result(LIMIT_S)
        assert group in [row.group_id for row in listed.valid] and not listed.errors
    assert admin.describe_consumer_groups([group])[group].result(LIMIT_S).state is ConsumerGroupState.EMPTY
    assert (
        admin.describe_consumer_groups(["no-such"])["no-such"].result(LIMIT_S).state
        is ConsumerGroupState.DEAD
    )


def test_cluster_is_described(admin: AdminClient) -> None:
    described = admin.describe_cluster().result(LIMIT_S)
    assert described.cluster_id == admin.cluster_id() and len(described.nodes) == 1


def test_wrong_arguments_raise_at_once(admin: AdminClient) -> None:
    with pytest.raises(ValueError, match="topic"):
        admin.create_topics([])
    with pytest.raises(KafkaException, match="twice"):
        admin.delete_topics(["a", "a"])
    with pytest.raises(ValueError, match="galaxy"):
        ConfigResource("galaxy", "x")


def test_unreachable_cluster_is_an_error_with_the_address() -> None:
    with AdminClient({"bootstrap.servers": "127.0.0.1:1"}) as admin:
        with pytest.raises(KafkaException, match=r"127\.0\.0\.1:1"):
            admin.list_topics(timeout=LIMIT_S)
        assert error_code(admin.describe_cluster()) == KafkaError._ALL_BROKERS_DOWN


def test_client_that_nobody_refers_to_still_answers(broker: Target) -> None:
    future = AdminClient({"bootstrap.servers": broker.bootstrap}).describe_cluster()
    gc.collect()
    assert future.result(LIMIT_S).nodes
