"""Fills an Apache Kafka with what an import must bring, and says what is in a cluster."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from peers.clients import CODECS
from waiting import wait_until

TIMEOUT_S = 120
OPEN = "left-open"
_COORDINATOR_LOADS = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)
TOPICS = ("plain", "compacted", "moving")
# What the broker says about a record: topic, partition, offset, key and value.
Row = tuple[str, int, int, bytes | None, bytes | None]


def make_topics(bootstrap: str) -> None:
    configs = {
        "plain": {"segment.bytes": "1048576", "retention.ms": "-1"},
        "compacted": {"cleanup.policy": "compact"},
        "moving": {},
    }
    wanted = [NewTopic(name, num_partitions=2, config=config) for name, config in configs.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(wanted).values():
        future.result(TIMEOUT_S)


def fill(bootstrap: str) -> None:
    """Records with every codec and over several segments, keys that repeat, and a user with a password."""
    chance = random.Random(7)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for number in range(60):
            value = chance.randbytes(20_000).hex()[:20_000]
            producer.produce("plain", value, key=f"{codec}-{number}", partition=number % 2)
            producer.produce("compacted", f"{codec} {number}", key=f"k{number % 7}", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    user = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.alter_user_scram_credentials([user]).values():
        future.result(TIMEOUT_S)


def transact(bootstrap: str) -> Producer:
    """Commits a transaction, aborts one, and leaves one open, which lives as long as the producer is referenced."""
    done = transactional(bootstrap, "done")
    for end in (done.commit_transaction, done.abort_transaction):
        done.begin_transaction()
        for number in range(10):
            done.produce("moving", f"{end.__name__} {number}", partition=number % 2)
        end(TIMEOUT_S)
    left = transactional(bootstrap, OPEN)
    left.begin_transaction()
    for number in range(6):
        left.produce("moving", f"open {number}", partition=0)
    assert left.flush(TIMEOUT_S) == 0
    return left


def transactional(bootstrap: str, name: str) -> Producer:
    """A producer whose transactions outlive a kill for long."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def commit_offsets(bootstrap: str, group: str, **options: str) -> dict[tuple[str, int], int]:
    """Reads a little as a member of the group, and commits; returns the offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    consumer.subscribe(["plain"])
    seen = 0
    while seen < 50:
        seen += len(consumer.consume(50 - seen, TIMEOUT_S))
    committed = consumer.commit(asynchronous=False)
    consumer.close()
    return {(one.topic, one.partition): one.offset for one in committed if one.offset >= 0}


def offsets_of(bootstrap: str, group: str, topics: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The committed offsets of a group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})

    def ask() -> list[TopicPartition] | None:
        try:
            return consumer.committed([TopicPartition(*one) for one in topics], TIMEOUT_S)
        except KafkaException as error:
            # A broker that has just started loads its groups.
            assert error.args[0].code() in _COORDINATOR_LOADS, error
            return None

    with contextlib.closing(consumer):
        found = wait_until(ask, TIMEOUT_S)
    return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}


def rows_of(bootstrap: str, topics: Sequence[str] = TOPICS) -> list[Row]:
    """Every record of the topics, also those of transactions that were aborted or are open."""
    return sorted(_read(bootstrap, topics), key=lambda row: row[:3])


def _read(bootstrap: str, topics: Sequence[str]) -> Iterator[Row]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
        }
    )
    with contextlib.closing(consumer):
        known = consumer.list_topics(timeout=TIMEOUT_S).topics
        places = [
            TopicPartition(topic, number, OFFSET_BEGINNING)
            for topic in topics
            for number in known[topic].partitions
        ]
        consumer.assign(places)
        left = len(places)
        while left:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{left} partitions were not read to their ends"
            if (error := message.error()) is None:
                yield _row(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                left -= 1
            else:
                raise AssertionError(error.str())


def _row(message: Message) -> Row:
    return message.topic(), message.partition(), message.offset(), message.key(), message.value()
