"""Real consumers in groups: they share partitions, hand them over, keep their positions, and restart."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from conformance.group_members import PARTITIONS, TIMEOUT_S, filled_topic, held, opened_consumers, shares
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from peers.python_clients import CLIENTS
from waiting import wait_until


@pytest.fixture(scope="module")
def topic(broker: Target) -> str:
    return filled_topic(broker, unique_name("shared"))


@pytest.fixture
def consumers(broker: Target) -> Iterator[Callable[..., Consumer]]:
    with opened_consumers(broker, session_timeout_ms=60_000, heartbeat_interval_ms=200) as another:
        yield another


def poll_until(holds: Callable[[], bool], *consumers: Consumer) -> list[bytes]:
    """Polls all consumers in turn until `holds` is true; returns what they read meanwhile."""
    values = []
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, [held(consumer) for consumer in consumers]
        for consumer in consumers:
            message = consumer.poll(0.02)
            if message is not None:
                assert message.error() is None, message.error()
                values.append(message.value())
    return values


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_three_consumers_come_and_go(consumers: Callable[..., Consumer], topic: str, strategy: str) -> None:
    group = unique_name("group")
    members = [consumers(group, partition_assignment_strategy=strategy) for _ in range(3)]
    for count in (1, 2, 3):
        members[count - 1].subscribe([topic])
        poll_until(shares(*members[:count]), *members[:count])
    members.pop().close()
    poll_until(shares(*members), *members)


def test_cooperative_members_keep_what_they_can(consumers: Callable[..., Consumer], topic: str) -> None:
    """KIP-429: a partition that a member keeps is never revoked."""
    group = unique_name("group")
    first, second = (consumers(group, partition_assignment_strategy="cooperative-sticky") for _ in range(2))
    revoked: list[int] = []
    first.subscribe([topic], on_revoke=lambda _, parts: revoked.extend(part.partition for part in parts))
    poll_until(shares(first), first)
    second.subscribe([topic])
    poll_until(shares(first, second), first, second)
    assert sorted(revoked) == sorted(held(second))


def test_members_read_on_where_the_group_left_off(consumers: Callable[..., Consumer], topic: str) -> None:
    group = unique_name("group")
    first = consumers(group)
    first.subscribe([topic])
    seen: list[bytes] = []
    while len(seen) < 25:
        seen += [message.value() for message in first.consume(25 - len(seen), 1.0)]
    first.commit(asynchronous=False)
    first.close()
    second = consumers(group)
    second.subscribe([topic])
    rest = [message.value() for message in second.consume(10 * PARTITIONS - 25, TIMEOUT_S)]
    assert len(set(seen) | set(rest)) == len(seen) + len(rest) == 10 * PARTITIONS


def test_a_static_member_comes_back_to_its_partitions(
    consumers: Callable[..., Consumer], topic: str, broker: Target
) -> None:
    """65: no rebalance if the member is back before its session ends."""
    group = unique_name("group")
    first = consumers(group, group_instance_id="one", session_timeout_ms=120_000)
    second = consumers(group, group_instance_id="two", session_timeout_ms=120_000)
    assigned: list[int] = []
    first.subscribe([topic], on_assign=lambda _, parts: assigned.append(len(parts)))
    second.subscribe([topic])
    poll_until(shares(first, second), first, second)
    before, rebalances = held(second), len(assigned)
    second.close()
    again = consumers(group, group_instance_id="two", session_timeout_ms=120_000)
    again.subscribe([topic])
    poll_until(lambda: held(again) == before, first, again)
    assert len(assigned) == rebalances


def test_clients_of_three_kinds_share_a_group(broker: Target, topic: str) -> None:
    """Members lead or follow as it happens; all use `range`, and each is polled on its own thread."""
    group = unique_name("group")
    kinds = ("confluent-kafka", "kafka-python", "aiokafka")
    with contextlib.ExitStack() as stack:
        members = [CLIENTS[kind]().join(broker.bootstrap, group, [topic]) for kind in kinds]
        for member in members:
            stack.callback(member.leave)
        wait_until(lambda: [len(member.assignment()) for member in members] == [2, 2, 2], TIMEOUT_S)


def test_groups_survive_a_restart() -> None:
    """73: members, offsets and deletions."""
    with Target() as own:
        topic = create_topic(own, "kept", PARTITIONS)
        admin = AdminClient({"bootstrap.servers": own.bootstrap})
        for group in ("kept", "deleted"):
            consumer = Consumer({"bootstrap.servers": own.bootstrap, "group.id": group})
            offsets = [TopicPartition(topic, partition, 100 + partition) for partition in range(PARTITIONS)]
            consumer.commit(offsets=offsets, asynchronous=False)
            consumer.close()
        admin.delete_consumer_groups(["deleted"])["deleted"].result()
        own.restart()
        consumer = Consumer({"bootstrap.servers": own.bootstrap, "group.id": "kept"})
        wanted = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        found = {row.partition: row.offset for row in consumer.committed(wanted, timeout=TIMEOUT_S)}
        consumer.close()
        assert found == {partition: 100 + partition for partition in range(PARTITIONS)}
        admin = AdminClient({"bootstrap.servers": own.bootstrap})

        def listed() -> tuple[int, list[str]]:
            found = admin.list_consumer_groups().result()
            return len(found.errors), [row.group_id for row in found.valid]

        # A coordinator that still reads another of its partitions says so, and lists nothing.
        wait_until(lambda: listed()[0] == 0)
        assert listed() == (0, ["kept"])


def test_an_administrator_describes_and_resets(
    consumers: Callable[..., Consumer], topic: str, broker: Target
) -> None:
    group = unique_name("group")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    member = consumers(group, client_id="reader")
    member.subscribe([topic])
    poll_until(shares(member), member)
    described = admin.describe_consumer_groups([group])[group].result()
    assert described.state == ConsumerGroupState.STABLE
    assert [row.client_id for row in described.members] == ["reader"]
    assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result()
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    member.close()

    def is_empty() -> bool:
        return bool(admin.describe_consumer_groups([group])[group].result().state == ConsumerGroupState.EMPTY)

    # librdkafka waits only 5 s for the answer to its LeaveGroup.
    wait_until(is_empty, TIMEOUT_S)
    admin.delete_consumer_groups([group])[group].result()
    assert group not in [row.group_id for row in admin.list_consumer_groups().result().valid]
