"""librdkafka's consumers with the protocol of KIP-848: the broker assigns their partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from conformance.group_members import PARTITIONS, TIMEOUT_S, filled_topic, held, opened_consumers, shares
from conformance.targets import Target
from conformance.wire import unique_name
from waiting import wait_until

NAME = unique_name("by848")


@pytest.fixture(scope="module")
def topic(broker: Target) -> str:
    return filled_topic(broker, NAME)


@pytest.fixture
def consumers(broker: Target) -> Iterator[Callable[..., Consumer]]:
    with opened_consumers(broker, group_protocol="consumer") as another:
        yield another


class Poll:
    """Polls consumers in turn, and keeps what they read and what was taken from them."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.revoked: dict[Consumer, set[int]] = {}

    def subscribe(self, consumer: Consumer, *topics: str) -> None:
        self.revoked[consumer] = set()
        consumer.subscribe(
            list(topics),
            on_revoke=lambda _, partitions: self.revoked[consumer].update(p.partition for p in partitions),
        )

    def until(self, holds: Callable[[], bool], *consumers: Consumer) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            assert time.monotonic() < deadline, [held(consumer) for consumer in consumers]
            for consumer in consumers:
                message = consumer.poll(0.02)
                if message is not None:
                    assert message.error() is None, message.error()
                    self.values.append(message.value())


@pytest.fixture
def polling() -> Poll:
    return Poll()


def test_members_come_and_go_and_only_moved_partitions_are_revoked(
    broker: Target, topic: str, consumers: Callable[..., Consumer], polling: Poll
) -> None:
    group = unique_name("g")
    first, second, third = (consumers(group) for _ in range(3))
    polling.subscribe(first, topic)
    polling.until(lambda: len(polling.values) == 10 * PARTITIONS, first)
    assert held(first) == set(range(PARTITIONS))
    first.commit(asynchronous=False)
    polling.subscribe(second, topic)
    polling.until(shares(first, second), first, second)
    kept = held(first)
    assert polling.revoked[first] == set(range(PARTITIONS)) - kept
    polling.subscribe(third, topic)
    polling.until(shares(first, second, third), first, second, third)
    third.close()
    polling.until(shares(first, second), first, second)
    # The offsets were committed by the first member: nobody reads a record again.
    assert len(polling.values) == 10 * PARTITIONS


def test_a_member_commits_and_another_one_goes_on(
    topic: str, consumers: Callable[..., Consumer], polling: Poll
) -> None:
    group = unique_name("g")
    first = consumers(group)
    polling.subscribe(first, topic)
    polling.until(lambda: len(polling.values) >= 25, first)
    first.commit(asynchronous=False)
    first.close()
    second = consumers(group)
    polling.subscribe(second, topic)
    polling.until(lambda: len(polling.values) >= 10 * PARTITIONS, second)
    assert len(polling.values) == len(set(polling.values)) == 10 * PARTITIONS


def test_a_regular_expression_finds_topics(
    broker: Target, topic: str, consumers: Callable[..., Consumer], polling: Poll
) -> None:
    consumer = consumers(unique_name("g"))
    polling.subscribe(consumer, f"^{topic[:-1]}.*")
    polling.until(lambda: len(polling.values) >= 10 * PARTITIONS, consumer)
    bad = consumers(unique_name("g"))
    bad.subscribe(["^(a)\\1"])

    def is_refused() -> bool:
        message = bad.poll(0.1)
        return message is not None and message.error() is not None

    wait_until(is_refused, TIMEOUT_S)


def test_a_static_member_returns_to_its_partitions(
    topic: str, consumers: Callable[..., Consumer], polling: Poll
) -> None:
    group = unique_name("g")
    first, second = consumers(group, group_instance_id="one"), consumers(group, group_instance_id="two")
    for consumer in (first, second):
        polling.subscribe(consumer, topic)
    polling.until(shares(first, second), first, second)
    had, second_had = held(first), held(second)
    polling.revoked[second].clear()
    first.close()
    again = consumers(group, group_instance_id="one")
    polling.subscribe(again, topic)
    polling.until(lambda: held(again) == had, again, second)
    assert held(second) == second_had and not polling.revoked[second]


def test_members_of_both_protocols_share_a_group(
    broker: Target, topic: str, consumers: Callable[..., Consumer], polling: Poll
) -> None:
    group = unique_name("g")
    old = consumers(group, group_protocol="classic", session_timeout_ms=10_000, heartbeat_interval_ms=200)
    polling.subscribe(old, topic)
    polling.until(shares(old), old)
    new = consumers(group)
    polling.subscribe(new, topic)
    polling.until(shares(old, new), old, new)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result()
    assert described.type == ConsumerGroupType.CONSUMER
    assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [3, 3]
    new.close()
    polling.until(shares(old), old)
    assert admin.describe_consumer_groups([group])[group].result().type == ConsumerGroupType.CLASSIC


def test_the_administrator_sees_and_deletes_a_group(
    broker: Target, topic: str, consumers: Callable[..., Consumer], polling: Poll
) -> None:
    group = unique_name("g")
    consumer = consumers(group, client_id="reader")
    polling.subscribe(consumer, topic)
    polling.until(shares(consumer), consumer)
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result()
    assert described.state == ConsumerGroupState.STABLE
    assert described.partition_assignor == "uniform"
    (member,) = described.members
    assert member.client_id == "reader"
    assert (
        len(member.assignment.topic_partitions)
        == len(member.target_assignment.topic_partitions)
        == PARTITIONS
    )
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result().valid
    assert group in [row.group_id for row in listed]
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result()
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    consumer.close()
    admin.delete_consumer_groups([group])[group].result()
    assert group not in [row.group_id for row in admin.list_consumer_groups().result().valid]
