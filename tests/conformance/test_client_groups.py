"""Groups of our consumer: after every rebalance each partition has one member, nothing is lost, and committed records
are not read again.
"""

import time
import uuid
from itertools import chain
from typing import Any

import pytest

from conformance.targets import Target
from felice.client import AdminClient, Consumer, KafkaError, NewPartitions, NewTopic, Producer, TopicPartition
from waiting import LIMIT_S, wait_until

PARTITIONS = 4


@pytest.fixture
def topic(broker: Target) -> str:
    name = f"ours-{uuid.uuid4().hex[:8]}"
    with AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(LIMIT_S)
    return name


class Group:
    """Members of one group, which the test polls in turn, and everything that their callbacks received."""

    def __init__(self, bootstrap: str, topic: str, **keys: Any) -> None:
        self.topic = topic
        self.config = {
            "bootstrap.servers": bootstrap,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 60_000,
            "heartbeat.interval.ms": 100,
            **{name.replace("_", "."): value for name, value in keys.items()},
        }
        self.members: list[Consumer] = []
        self.read: list[tuple[int, int]] = []
        self.events: list[tuple[int, str, list[int]]] = []
        self.errors: list[KafkaError] = []

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *exc: object) -> None:
        for member in self.members:
            member.close()

    def add(self, topics: list[str] | None = None, **keys: Any) -> Consumer:
        given = {name.replace("_", "."): value for name, value in keys.items()}
        member, number = Consumer({**self.config, **given}), len(self.members)

        def note(what: str) -> Any:
            return lambda _, tps: self.events.append((number, what, sorted(tp.partition for tp in tps)))

        self.members.append(member)
        member.subscribe(
            topics or [self.topic], on_assign=note("assign"), on_revoke=note("revoke"), on_lost=note("lost")
        )
        return member

    def spin(self, until: Any, timeout: float = LIMIT_S) -> None:
        deadline = time.monotonic() + timeout
        while not until():
            assert time.monotonic() < deadline, (self.shares(), self.events, self.errors, len(self.read))
            for member in self.members:
                message = member.poll(0.01)
                error = message.error() if message is not None else None
                if error is not None:
                    self.errors.append(error)
                elif message is not None:
                    self.read.append((message.partition() or 0, message.offset() or 0))

    def shares(self) -> list[list[int]]:
        return [sorted(tp.partition for tp in member.assignment()) for member in self.members]

    def balanced(self) -> bool:
        shares = self.shares()
        return all(shares) and sorted(chain(*shares)) == list(range(PARTITIONS))


def produce(broker: Target, topic: str, count: int) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_come_and_go_and_every_record_is_read_once(strategy: str, broker: Target, topic: str) -> None:
    with Group(broker.bootstrap, topic, partition_assignment_strategy=strategy) as group:
        group.add()
        produce(broker, topic, 100)
        group.spin(lambda: len(group.read) == 100)
        group.add()
        group.spin(group.balanced)
        produce(broker, topic, 100)
        group.spin(lambda: len(group.read) == 200)
        group.members.pop(0).close()
        group.spin(group.balanced)
        produce(broker, topic, 100)
        group.spin(lambda: len(group.read) == 300)
        assert len(set(group.read)) == 300
        assert not group.errors


def test_a_cooperative_member_keeps_the_partitions_of_its_next_assignment(broker: Target, topic: str) -> None:
    with Group(broker.bootstrap, topic, partition_assignment_strategy="cooperative-sticky") as group:
        group.add()
        group.spin(group.balanced)
        group.add()
        group.spin(group.balanced)
        revoked = [numbers for number, what, numbers in group.events if (number, what) == (0, "revoke")]
        assert [len(numbers) for numbers in revoked] == [2]


def test_positions_survive_in_the_group(broker: Target, topic: str) -> None:
    produce(broker, topic, 40)
    with Group(broker.bootstrap, topic) as group:
        group.add()
        group.spin(lambda: len(group.read) == 40)
    produce(broker, topic, 8)
    with Group(broker.bootstrap, topic) as group:
        group.add()
        group.spin(lambda: len(group.read) == 8)
        time.sleep(0.2)
        group.spin(lambda: True)
        assert sorted(group.read) == [(number, offset) for number in range(PARTITIONS) for offset in (10, 11)]


def test_static_member_comes_back_to_its_partitions_without_a_rebalance(broker: Target, topic: str) -> None:
    with Group(broker.bootstrap, topic) as group:
        group.add(group_instance_id="a")
        group.add(group_instance_id="b")
        group.spin(group.balanced)
        before = group.shares()
        group.members.pop(0).close()
        told = len([event for event in group.events if event[0] == 1])
        group.members.insert(0, group.add(group_instance_id="a"))
        group.members.pop()
        group.spin(group.balanced)
        assert group.shares() == before
        assert len([event for event in group.events if event[0] == 1]) == told + 1


def test_two_members_of_one_instance_id_do_not_live_together(broker: Target, topic: str) -> None:
    with Group(broker.bootstrap, topic) as group:
        group.add(group_instance_id="a")
        group.spin(group.balanced)
        group.add(group_instance_id="a")
        group.spin(lambda: any(error.code() == KafkaError._FATAL for error in group.errors))


def test_member_that_is_not_polled_leaves_and_comes_back(broker: Target, topic: str) -> None:
    produce(broker, topic, 4)
    with (
        AdminClient({"bootstrap.servers": broker.bootstrap}) as admin,
        Group(broker.bootstrap, topic, max_poll_interval_ms=6000, session_timeout_ms=6000) as group,
    ):
        name = group.config["group.id"]

        def members() -> int:
            return len(admin.describe_consumer_groups([name])[name].result(LIMIT_S).members)

        one = group.add()
        # On a busy machine it may have been too late already here, and have read again.
        group.spin(lambda: len(group.read) >= 4)
        wait_until(lambda: members() == 0)
        group.spin(lambda: any(error.code() == KafkaError._MAX_POLL_EXCEEDED for error in group.errors))
        group.spin(lambda: [what for _, what, _ in group.events][-2:] == ["lost", "assign"])
        assert len(one.assignment()) == PARTITIONS


def test_callback_may_choose_where_to_begin(broker: Target, topic: str) -> None:
    produce(broker, topic, 40)
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"b-{topic}",
        "auto.offset.reset": "earliest",
    }

    def from_seven(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = 7
        consumer.assign(partitions)

    with Consumer(config) as consumer:
        consumer.subscribe([topic], on_assign=from_seven)
        messages = consumer.consume(12, LIMIT_S)
        assert sorted(message.offset() or 0 for message in messages) == sorted([7, 8, 9] * PARTITIONS)


def test_pattern_finds_topics_that_come_later(broker: Target, topic: str) -> None:
    with (
        AdminClient({"bootstrap.servers": broker.bootstrap}) as admin,
        Group(broker.bootstrap, topic, metadata_max_age_ms=300) as group,
    ):
        one = group.add([f"^{topic}.*"])
        group.spin(group.balanced)
        admin.create_topics([NewTopic(f"{topic}-later", 2)])[f"{topic}-later"].result(LIMIT_S)
        group.spin(lambda: len(one.assignment()) == PARTITIONS + 2)


def test_new_partitions_are_taken_up(broker: Target, topic: str) -> None:
    with (
        AdminClient({"bootstrap.servers": broker.bootstrap}) as admin,
        Group(broker.bootstrap, topic, metadata_max_age_ms=300) as group,
    ):
        one = group.add()
        group.spin(group.balanced)
        admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(LIMIT_S)
        group.spin(lambda: len(one.assignment()) == PARTITIONS + 2)


def test_a_missing_topic_is_reported_and_read_once_it_exists(broker: Target, topic: str) -> None:
    with (
        AdminClient({"bootstrap.servers": broker.bootstrap}) as admin,
        Group(broker.bootstrap, topic) as group,
    ):
        one = group.add([f"{topic}-not-yet"])
        group.spin(lambda: any(error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART for error in group.errors))
        admin.create_topics([NewTopic(f"{topic}-not-yet", 1)])[f"{topic}-not-yet"].result(LIMIT_S)
        group.spin(lambda: len(one.assignment()) == 1)


def test_unsubscribe_gives_everything_back(broker: Target, topic: str) -> None:
    with Group(broker.bootstrap, topic) as group:
        group.add()
        group.add()
        group.spin(group.balanced)
        group.members[0].unsubscribe()
        group.spin(lambda: len(group.members[1].assignment()) == PARTITIONS)
        assert group.members[0].assignment() == []
