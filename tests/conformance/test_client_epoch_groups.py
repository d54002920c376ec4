"""Our consumer with `group.protocol=consumer` (KIP-848), alone and beside librdkafka's in one group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import confluent_kafka
import pytest

from conformance.group_members import PARTITIONS, fill
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.client import AdminClient, Consumer, KafkaError, KafkaException, Producer, TopicPartition, aio
from felice.client.aio import AIOConsumer
from waiting import LIMIT_S, wait_until

# Heartbeats and assignments in quick succession: the rules do not depend on them, the time does.
QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Target]:
    with Target(QUICK) as target:
        yield target


@pytest.fixture
def topic(broker: Target) -> str:
    return create_topic(broker, unique_name("epochs"), PARTITIONS)


class Group:
    """Members of one group, polled in turn, and what they read and what their callbacks got."""

    def __init__(self, broker: Target, topic: str) -> None:
        self.bootstrap, self.topic, self.name = broker.bootstrap, topic, f"g-{topic}"
        self.members: list[Any] = []
        self.added = 0
        self.read: list[bytes] = []
        self.events: list[tuple[int, str, list[int]]] = []
        self.errors: list[Any] = []

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *exc: object) -> None:
        for member in self.members:
            member.close()

    def add(self, *topics: str, kind: Callable[..., Any] = Consumer, **keys: Any) -> Any:
        member = kind(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.name,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                **{name.replace("_", "."): value for name, value in keys.items()},
            }
        )
        number, self.added = self.added, self.added + 1

        def note(what: str) -> Callable[[Any, list[Any]], None]:
            return lambda _, tps: self.events.append((number, what, sorted(tp.partition for tp in tps)))

        member.subscribe(
            list(topics) or [self.topic],
            on_assign=note("assign"),
            on_revoke=note("revoke"),
            on_lost=note("lost"),
        )
        self.members.append(member)
        return member

    def remove(self, member: Any) -> None:
        self.members.remove(member)
        member.close()

    def spin(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not until():
            assert time.monotonic() < deadline, (self.shares(), self.events, self.errors, len(self.read))
            for member in self.members:
                message = member.poll(0.01)
                if message is not None and message.error() is not None:
                    self.errors.append(message.error())
                elif message is not None:
                    self.read.append(message.value())

    def shares(self) -> list[list[int]]:
        return [sorted(tp.partition for tp in member.assignment()) for member in self.members]

    def balanced(self) -> bool:
        shares = self.shares()
        sizes = {len(share) for share in shares}
        return max(sizes) - min(sizes) <= 1 and sorted(chain(*shares)) == list(range(PARTITIONS))


def test_five_members_of_two_clients_come_and_go_and_every_record_is_read_once(
    broker: Target, topic: str
) -> None:
    with Group(broker, topic) as group:
        for count, kind in enumerate(
            (Consumer, confluent_kafka.Consumer, Consumer, confluent_kafka.Consumer, Consumer)
        ):
            fill(broker, topic)
            group.add(kind=kind)
            group.spin(lambda count=count: group.balanced() and len(group.read) == 60 * (count + 1))
        for count in range(4):
            group.remove(group.members[0])
            fill(broker, topic)
            group.spin(lambda count=count: group.balanced() and len(group.read) == 60 * (count + 6))
        assert not group.errors
        assert not [event for event in group.events if event[1] == "lost"]
        # Nobody gave up more than what moved: the callbacks got increments.
        assert all(len(numbers) < PARTITIONS for _, what, numbers in group.events[1:] if what == "assign"), (
            group.events
        )


def test_a_static_member_returns_to_its_partitions_and_nobody_notices(broker: Target, topic: str) -> None:
    with Group(broker, topic) as group:
        first = group.add(group_instance_id="a")
        group.spin(group.balanced)
        group.add(group_instance_id="b")
        group.spin(group.balanced)
        before, told = group.shares(), len(group.events)
        group.remove(first)
        again = group.add(group_instance_id="a")
        group.spin(lambda: sorted(tp.partition for tp in again.assignment()) == before[0])
        assert group.shares() == [before[1], before[0]]
        assert [event for event in group.events[told:] if event[0] == 1] == []


def test_an_instance_id_that_another_member_holds_is_a_fatal_error(broker: Target, topic: str) -> None:
    with Group(broker, topic) as group:
        group.add(group_instance_id="a")
        group.spin(group.balanced)
        second = group.add(group_instance_id="a")
        group.spin(lambda: bool(group.errors))
        assert group.errors[0].fatal() and group.errors[0] == KafkaError._FATAL
        with pytest.raises(KafkaException):
            second.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        assert len(group.shares()[0]) == PARTITIONS


def test_an_expression_finds_topics_and_takes_back_what_it_found(broker: Target, topic: str) -> None:
    other = create_topic(broker, f"{topic}-other", 2)
    with Group(broker, topic) as group:
        member = group.add(f"^{topic}.*")
        group.spin(lambda: len(member.assignment()) == PARTITIONS + 2)
        member.subscribe([other])
        group.spin(lambda: {tp.topic for tp in member.assignment()} == {other})
        member.subscribe([topic, f"^{other}$"])
        group.spin(lambda: len(member.assignment()) == PARTITIONS + 2)
        member.unsubscribe()
        assert member.assignment() == []


def test_an_expression_that_is_none_is_a_fatal_error(broker: Target, topic: str) -> None:
    with Group(broker, topic) as group:
        group.add("^(a)\\1")
        group.spin(lambda: bool(group.errors))
        assert group.errors[0].fatal()


def test_an_assignor_that_the_broker_lacks_is_a_fatal_error(broker: Target, topic: str) -> None:
    with Group(broker, topic) as group:
        ranged = group.add(group_remote_assignor="range")
        group.spin(lambda: len(ranged.assignment()) == PARTITIONS)
        group.add(group_remote_assignor="nope")
        group.spin(lambda: bool(group.errors))
        assert group.errors[0].fatal() and "nope" in group.errors[0].str()


def test_members_of_both_protocols_share_a_group(broker: Target, topic: str) -> None:
    with Group(broker, topic) as group:
        group.add(group_protocol="classic", heartbeat_interval_ms=100)
        group.spin(group.balanced)
        new = group.add()
        group.spin(group.balanced)
        group.remove(new)
        group.spin(group.balanced)


def test_positions_go_on_after_a_member_that_committed(broker: Target, topic: str) -> None:
    fill(broker, topic)
    with Group(broker, topic) as group:
        first = group.add(enable_auto_commit=False)
        group.spin(lambda: len(group.read) >= 25)
        first.commit(asynchronous=False)
        group.remove(first)
        group.add()
        group.spin(lambda: len(group.read) >= 60)
        assert sorted(group.read) == sorted(set(group.read))


def test_offsets_are_committed_in_a_transaction_and_a_former_member_is_refused(
    broker: Target, topic: str
) -> None:
    fill(broker, topic)
    with (
        Group(broker, topic) as group,
        Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"t-{topic}"}) as producer,
    ):
        member = group.add(enable_auto_commit=False)
        group.spin(lambda: len(group.read) == 60)
        producer.init_transactions(LIMIT_S)
        metadata = member.consumer_group_metadata()
        for offset in (3, 5):
            producer.begin_transaction()
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, LIMIT_S)
            producer.commit_transaction(LIMIT_S)
        assert [row.offset for row in member.committed([TopicPartition(topic, 0)])] == [5]
        group.remove(member)
        group.add()
        group.spin(lambda: len(group.shares()[0]) == PARTITIONS)
        producer.begin_transaction()
        with pytest.raises(KafkaException) as refused:
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], metadata, LIMIT_S)
        assert refused.value.error.txn_requires_abort()
        producer.abort_transaction(LIMIT_S)


def test_a_topic_that_is_deleted_is_taken_away_and_its_successor_is_read(broker: Target, topic: str) -> None:
    fill(broker, topic)
    with AdminClient({"bootstrap.servers": broker.bootstrap}) as admin, Group(broker, topic) as group:
        member = group.add()
        group.spin(lambda: len(group.read) == 60)
        admin.delete_topics([topic])[topic].result(LIMIT_S)
        wait_until(lambda: topic not in admin.list_topics().topics)
        group.spin(lambda: not member.assignment())
        create_topic(broker, topic, PARTITIONS)
        fill(broker, topic, 5)
        group.spin(lambda: len(group.read) == 90)


def test_the_asyncio_consumers_share_a_group(broker: Target, topic: str) -> None:
    fill(broker, topic)
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"g-{topic}",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }

    async def main() -> None:
        values: list[bytes | None] = []
        async with asyncio.timeout(LIMIT_S), aio.Consumer(config) as first, AIOConsumer(config) as second:
            await first.subscribe([topic])
            while len(values) < 60:
                values += (await first.consume_arrow(60, 0.1))["value"].to_pylist()
            await second.subscribe([topic])
            while {len(first.assignment()), len(await second.assignment())} != {PARTITIONS // 2}:
                assert len(await first.consume_arrow(1, 0.05)) == 0
                assert await second.consume(1, 0.05) == []
        assert len(set(values)) == 60

    asyncio.run(main())
