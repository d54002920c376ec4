"""What a consumer commits when partitions are taken from it, after seeks and at its end: our client and confluent_kafka
on one broker, with the offsets that librdkafka commits.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

import felice.client
from conformance.targets import Target
from waiting import LIMIT_S, wait_until

BOTH = pytest.mark.parametrize("kafka", [felice.client, confluent_kafka], ids=["felice", "confluent"])
OURS = pytest.mark.parametrize("kafka", [felice.client], ids=["felice"])
NONE = felice.client.OFFSET_INVALID
COUNT = 20


class World:
    """A topic of two partitions with 20 records each, and consumers of one group."""

    def __init__(self, kafka: Any, bootstrap: str) -> None:
        self.kafka, self.bootstrap = kafka, bootstrap
        self.group = self.topic = f"progress-{uuid.uuid4().hex[:8]}"
        self.told: list[Any] = []
        self.made: list[Any] = []
        with felice.client.AdminClient({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics([felice.client.NewTopic(self.topic, 2)])[self.topic].result(LIMIT_S)
        producer = felice.client.Producer({"bootstrap.servers": bootstrap})
        for number in range(COUNT):
            for partition in (0, 1):
                producer.produce(self.topic, b"%d" % number, partition=partition)
        producer.flush()
        producer.close()

    def consumer(self, **keys: Any) -> Any:
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 3_600_000,
            "on_commit": lambda error, rows: self.told.append([(row.partition, row.offset) for row in rows]),
        }
        self.made.append(self.kafka.Consumer(config | {k.replace("_", "."): v for k, v in keys.items()}))
        return self.made[-1]

    def at(self, partition: int, *offset: int) -> Any:
        return self.kafka.TopicPartition(self.topic, partition, *offset)

    def read(self, consumer: Any, count: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []

        def has_all() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append((message.partition(), message.offset()))
            return len(found) == count

        wait_until(has_all)
        return found

    def begun(self, count: int = 4, **keys: Any) -> Any:
        """A consumer that was assigned partition 0 from its begin and has read some records."""
        consumer = self.consumer(**keys)
        consumer.assign([self.at(0, 0)])
        assert self.read(consumer, count) == [(0, offset) for offset in range(count)]
        return consumer

    def committed(self) -> list[int]:
        config = {"bootstrap.servers": self.bootstrap, "group.id": self.group}
        with felice.client.Consumer(config) as asking:
            places = [felice.client.TopicPartition(self.topic, number) for number in (0, 1)]
            return [row.offset for row in asking.committed(places, LIMIT_S)]

    def refusal(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            call(*arguments, **named)
        except self.kafka.KafkaException as error:
            return error.args[0].name()
        except Exception as error:
            return type(error)
        return None

    def close(self) -> None:
        for consumer in self.made:
            consumer.close()


@pytest.fixture
def world(kafka: Any, broker: Target) -> Iterator[World]:
    made = World(kafka, broker.bootstrap)
    yield made
    made.close()


def unassign(world: World, consumer: Any) -> None:
    consumer.unassign()


def assign_another(world: World, consumer: Any) -> None:
    consumer.assign([world.at(1, 0)])


def assign_it_elsewhere(world: World, consumer: Any) -> None:
    consumer.assign([world.at(0, 10)])


def assign_nothing(world: World, consumer: Any) -> None:
    consumer.assign([])


def incremental_unassign(world: World, consumer: Any) -> None:
    consumer.incremental_unassign([world.at(0)])


def unsubscribe(world: World, consumer: Any) -> None:
    consumer.unsubscribe()


def close(world: World, consumer: Any) -> None:
    consumer.close()


def pause_and_unassign(world: World, consumer: Any) -> None:
    consumer.pause([world.at(0)])
    consumer.unassign()


def seek_and_unassign(world: World, consumer: Any) -> None:
    consumer.seek(world.at(0, 9))
    consumer.unassign()


ENDS = [
    unassign,
    assign_another,
    assign_it_elsewhere,
    assign_nothing,
    incremental_unassign,
    close,
    pause_and_unassign,
    seek_and_unassign,
]


@BOTH
@pytest.mark.parametrize("end", ENDS)
def test_what_was_handed_out_is_committed_when_the_partition_is_taken_away(world: World, end: Any) -> None:
    consumer = world.begun()
    end(world, consumer)
    if end is not close:
        wait_until(lambda: world.committed() == [4, NONE])
    consumer.close()
    assert world.committed() == [4, NONE]
    assert [(0, 4)] in world.told


@BOTH
@pytest.mark.parametrize("end", [unassign, assign_another, close])
def test_without_automatic_commits_nothing_is_committed(world: World, end: Any) -> None:
    consumer = world.begun(enable_auto_commit=False)
    end(world, consumer)
    consumer.close()
    assert (world.committed(), world.told) == ([NONE, NONE], [])


@BOTH
@pytest.mark.parametrize("end", [unassign, assign_another, close])
def test_stored_offsets_are_committed_when_the_partition_is_taken_away(world: World, end: Any) -> None:
    consumer = world.begun(enable_auto_offset_store=False)
    consumer.store_offsets(offsets=[world.at(0, 3)])
    end(world, consumer)
    consumer.close()
    assert world.committed() == [3, NONE]


@OURS
def test_what_was_handed_out_is_committed_by_unsubscribe(world: World) -> None:
    consumer = world.begun()
    consumer.unsubscribe()
    assert world.committed() == [4, NONE], "before it returns; confluent_kafka does it when it is closed"


@OURS
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("end", ["unsubscribe", "subscribe to another topic", "close", "a second member"])
def test_a_member_commits_before_it_gives_up_its_partitions(world: World, strategy: str, end: str) -> None:
    consumer = world.consumer(partition_assignment_strategy=strategy)
    consumer.subscribe([world.topic])
    world.read(consumer, COUNT + 4)
    if end == "unsubscribe":
        consumer.unsubscribe()
    elif end == "subscribe to another topic":
        other = World(world.kafka, world.bootstrap)
        consumer.subscribe([other.topic])
        world.read(consumer, 1)
    elif end == "a second member":
        second = world.consumer(partition_assignment_strategy=strategy, enable_auto_commit=False)
        second.subscribe([world.topic])

        def is_shared() -> bool:
            consumer.poll(0.05)
            second.poll(0.05)
            return len(consumer.assignment()) == len(second.assignment()) == 1

        consumer.pause(consumer.assignment())
        wait_until(is_shared)
    else:
        consumer.close()
    wait_until(lambda: sum(world.committed()) >= COUNT + 4)
    consumer.close()


@BOTH
@pytest.mark.parametrize("to", [1, 8])
def test_a_seek_does_not_forget_what_was_read(world: World, to: int) -> None:
    consumer = world.begun(enable_auto_commit=False)
    consumer.seek(world.at(0, to))
    assert [row.offset for row in consumer.commit(asynchronous=False)] == [4]
    assert world.refusal(consumer.commit, asynchronous=False) == "_NO_OFFSET"
    assert world.read(consumer, 1) == [(0, to)]


@BOTH
def test_a_seek_does_not_hide_what_was_read_from_automatic_commits(world: World) -> None:
    consumer = world.begun(auto_commit_interval_ms=100)
    consumer.seek(world.at(0, 8))
    consumer.pause([world.at(0)])
    wait_until(lambda: world.committed() == [4, NONE])


@BOTH
def test_records_read_after_a_seek_are_committed(world: World) -> None:
    consumer = world.begun()
    consumer.seek(world.at(0, 1))
    assert world.read(consumer, 1) == [(0, 1)]
    consumer.close()
    assert world.committed() == [2, NONE]


@BOTH
def test_assigned_again_without_an_offset_a_partition_begins_at_the_committed_one(world: World) -> None:
    consumer = world.begun(enable_auto_commit=False)
    consumer.assign([world.at(0)])
    assert world.read(consumer, 1) == [(0, 0)], "none is committed: auto.offset.reset"
    consumer.commit(offsets=[world.at(0, 2)], asynchronous=False)
    consumer.assign([world.at(0)])
    assert world.read(consumer, 1) == [(0, 2)]
    automatic = world.consumer()
    automatic.assign([world.at(0, 0)])
    world.read(automatic, 3)
    automatic.assign([world.at(0)])
    assert world.read(automatic, 1) == [(0, 3)], "what the assignment commits is looked up after the commit"


@BOTH
def test_the_close_waits_for_commits_on_their_way(world: World) -> None:
    consumer = world.begun(enable_auto_commit=False)
    consumer.commit()
    consumer.close()
    assert (world.committed(), world.told) == ([4, NONE], [[(0, 4)]])


@BOTH
def test_on_commit_is_called_for_asynchronous_commits_only(world: World) -> None:
    consumer = world.begun(enable_auto_commit=False)
    consumer.pause([world.at(0)])
    consumer.commit(asynchronous=False)
    consumer.commit(offsets=[world.at(0, 3)], asynchronous=False)
    consumer.commit(offsets=[world.at(0, 1)])

    def is_told() -> bool:
        consumer.poll(0.05)
        return bool(world.told)

    wait_until(is_told)
    assert world.told == [[(0, 1)]]


@BOTH
def test_arguments_that_cannot_be_right_are_refused(world: World) -> None:
    consumer = world.consumer(enable_auto_offset_store=False)
    assert world.refusal(consumer.seek, world.at(0, 3)) == "_UNKNOWN_PARTITION"
    assert world.refusal(consumer.store_offsets) is ValueError
    assert world.refusal(consumer.assign, [world.at(0, 0), world.at(0, 3)]) == "_INVALID_ARG"
    assert world.refusal(consumer.incremental_assign, [world.at(0), world.at(0)]) == "_INVALID_ARG"
    consumer.assign([world.at(0, 0)])
    world.read(consumer, 1)
    assert world.refusal(consumer.seek, world.kafka.TopicPartition("another", 0, 3)) == "_UNKNOWN_PARTITION"
    assert world.refusal(consumer.seek, world.at(1, 3)) == "_STATE"
    for count in (2.5, "5", None):
        assert world.refusal(consumer.consume, count) is TypeError
    assert world.refusal(consumer.consume, -1) is ValueError
    assert world.read(consumer, 1) == [(0, 1)], "a refused call takes nothing"
    consumer.close()
    for call in (lambda: consumer.poll(0), lambda: consumer.consume(1, 0)):
        assert world.refusal(call) is RuntimeError
