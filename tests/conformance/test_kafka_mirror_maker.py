"""MirrorMaker 2 from Maven between two brokers: topics, records, heartbeats, checkpoints, and a group that changes
brokers. Then `felice mirror` goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from conformance.kafka_application import KafkaApplication
from conformance.targets import Target
from conformance.test_kafka_connect import write_properties
from conformance.test_mirror import mirroring
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.pipelines.connect.connectors.mirror import records
from peers.apache_kafka import free_port
from waiting import wait_until

pytestmark = pytest.mark.timeout(1800)

PARTITIONS = 2
RECORDS = 500
TIMEOUT_S = 450.0
POLL_S = 60.0


@pytest.fixture
def other_broker() -> Iterator[Target]:
    with Target() as target:
        yield target


def mirror_properties(source: Target, target: Target, topic: str) -> dict[str, object]:
    return {
        "clusters": "A, B",
        "A.bootstrap.servers": source.bootstrap,
        "B.bootstrap.servers": target.bootstrap,
        "A->B.enabled": "true",
        "A->B.topics": topic,
        "A->B.groups": "group-of-.*",
        "A->B.sync.group.offsets.enabled": "true",
        "B->A.enabled": "false",
        "tasks.max": 1,
        "replication.factor": 1,
        **{f"{name}.topic.replication.factor": 1 for name in ("checkpoints", "heartbeats", "offset-syncs")},
        **{f"{name}.storage.replication.factor": 1 for name in ("offset", "config", "status")},
        "offset.storage.partitions": 2,
        "status.storage.partitions": 1,
        "offset.flush.interval.ms": 1000,
        # A worker that loses its session, or stops its tasks by force, copies some records twice.
        **{f"{name}.session.timeout.ms": 60_000 for name in "AB"},
        "task.shutdown.graceful.timeout.ms": 60_000,
        "emit.heartbeats.interval.seconds": 1,
        "emit.checkpoints.interval.seconds": 1,
        "sync.group.offsets.interval.seconds": 1,
        "sync.topic.configs.interval.seconds": 2,
        "refresh.topics.interval.seconds": 2,
        "refresh.groups.interval.seconds": 2,
        "offset.lag.max": 0,
        "plugin.discovery": "service_load",
        "listeners": f"http://127.0.0.1:{free_port()}",
    }


def produce(broker: Target, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for number in numbers:
        headers = [("number", b"%d" % number)]
        producer.produce(topic, f"v{number}", f"k{number}", partition=number % PARTITIONS, headers=headers)
    assert producer.flush(POLL_S) == 0


def group_consumer(broker: Target, group: str) -> Consumer:
    options = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    return Consumer({**options, "enable.auto.commit": False})


def consume_some(broker: Target, group: str, topic: str, count: int) -> list[bytes]:
    """Joins, reads this many records (or those that exist), commits and leaves."""
    consumer = group_consumer(broker, group)
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < count and (message := consumer.poll(POLL_S)) is not None:
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def read_partition(broker: Target, topic: str, partition: int) -> list[tuple[bytes, bytes, object, int]]:
    consumer = group_consumer(broker, "reader")
    end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=POLL_S)[1]
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    while len(found) < end:
        message = consumer.poll(POLL_S)
        assert message is not None and message.error() is None, message
        found.append((message.key(), message.value(), message.headers(), message.timestamp()[1]))
    consumer.close()
    return found


def committed(broker: Target, group: str, topic: str) -> list[int]:
    consumer = group_consumer(broker, group)
    places = consumer.committed(
        [TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=POLL_S
    )
    consumer.close()
    return [place.offset for place in places]


def test_topics_records_and_groups_are_mirrored(broker: Target, other_broker: Target, tmp_path: Path) -> None:
    topic = create_topic(broker, unique_name("orders"), PARTITIONS, max_message_bytes=123456)
    group = f"group-of-{topic}"
    produce(broker, topic, range(RECORDS))
    assert len(consume_some(broker, group, topic, 200)) == 200
    file = write_properties(tmp_path / "mirror.properties", mirror_properties(broker, other_broker, topic))
    mirrored = f"A.{topic}"
    there = AdminClient({"bootstrap.servers": other_broker.bootstrap})
    with KafkaApplication(tmp_path, "org.apache.kafka.connect.mirror.MirrorMaker", file) as application:
        try:
            wait_until(lambda: mirrored in there.list_topics(timeout=POLL_S).topics, TIMEOUT_S)
            wait_until(lambda: sizes(other_broker, mirrored) == sizes(broker, topic), TIMEOUT_S)
            produce(broker, topic, range(RECORDS, RECORDS + 100))
            wait_until(lambda: sizes(other_broker, mirrored) == sizes(broker, topic), TIMEOUT_S)
            # All of it: MirrorMaker translates a place exactly only where a group has caught up.
            assert len(consume_some(broker, group, topic, RECORDS + 100 - 200)) == RECORDS + 100 - 200
            wait_until(lambda: moved_over(broker, other_broker, group, topic), TIMEOUT_S)
            produce(broker, topic, range(RECORDS + 100, RECORDS + 150))
            wait_until(lambda: sizes(other_broker, mirrored) == sizes(broker, topic), TIMEOUT_S)
            extra = {"heartbeats", "A.checkpoints.internal"}
            wait_until(lambda: extra <= set(there.list_topics(timeout=POLL_S).topics), TIMEOUT_S)
            wait_until(lambda: sum(sizes(other_broker, "heartbeats", 1)) > 0, TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {application.account()}") from error
        application.stop()
        assert "syncing topic ACLs" not in application.errors(), "there are none, and it knows"
    for number in range(PARTITIONS):
        assert read_partition(other_broker, mirrored, number) == read_partition(broker, topic, number)
    [asked] = there.describe_configs([ConfigResource(ResourceType.TOPIC, mirrored)]).values()
    assert asked.result(POLL_S)["max.message.bytes"].value == "123456"
    left = consume_some(other_broker, group, mirrored, 50)
    assert set(left) == {b"v%d" % number for number in range(RECORDS + 100, RECORDS + 150)}
    for read, there_is, kept_in in (
        (records.checkpoint, "A.checkpoints.internal", other_broker),
        (records.heartbeat, "heartbeats", other_broker),
        (records.offset_sync, "mm2-offset-syncs.B.internal", broker),
    ):
        for key, value, _, _ in read_partition(kept_in, there_is, 0):
            assert records.encoded(*read(key, value)) == (key, value)
    given = {name: str(value) for name, value in mirror_properties(broker, other_broker, topic).items()}
    with mirroring(given):
        produce(broker, topic, range(RECORDS + 150, RECORDS + 200))
        wait_until(lambda: sizes(other_broker, mirrored) == sizes(broker, topic), TIMEOUT_S)
        assert len(consume_some(broker, group, topic, 100)) == 100
        wait_until(lambda: moved_over(broker, other_broker, group, topic), TIMEOUT_S)
    for number in range(PARTITIONS):
        assert read_partition(other_broker, mirrored, number) == read_partition(broker, topic, number)


def sizes(broker: Target, topic: str, partitions: int = PARTITIONS) -> list[int]:
    consumer = group_consumer(broker, "reader")
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found = [consumer.get_watermark_offsets(place, timeout=POLL_S)[1] for place in places]
    consumer.close()
    return found


def moved_over(source: Target, target: Target, group: str, topic: str) -> bool:
    return committed(target, group, f"A.{topic}") == committed(source, group, topic)
