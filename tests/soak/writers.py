"""Load of writes: idempotent producers, transactions, exactly-once copies, a compacted topic, one with retention."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_END, TopicPartition

from checkers.history import History, Written, anomalies
from conformance.wire import unique_name
from soak.actor import Actor, passing, wait_until
from soak.clients import WAIT_S, Ledger, Topics, library_of, read_all, read_of

PARTITIONS = 3
SEGMENT_BYTES = 1 << 20
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Idempotent(Actor):
    """A new topic each round: acknowledged records are there once, in order; then the topic is deleted."""

    name = "idempotent producers"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._topics = Topics(bootstrap)

    def round(self, number: int, seconds: float) -> list[str]:
        library = library_of(number)
        topic = self._topics.create(unique_name("promises"), PARTITIONS)
        producer = library.package.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "compression.type": CODECS[number % len(CODECS)],
                "linger.ms": 5,
            }
        )
        ledger = Ledger(f"{library.name}-{number}")
        for count, moment in enumerate(passing(seconds * 0.8, 150)):
            ledger.send(producer, topic, count, count % PARTITIONS)
            producer.poll(0)
            wait_until(moment)
        left = producer.flush(WAIT_S)
        reader = library_of(number + 1)
        read = [read_of(message) for message in read_all(self._bootstrap, topic, PARTITIONS, reader)]
        self._topics.delete(topic)
        late = [f"{left} records were not delivered in {WAIT_S} s"] if left else []
        return [*late, *ledger.failures, *anomalies(History(ledger.written(), read))]


class Transactions(Actor):
    """Transactions of a few records with few transactional ids; some are aborted, some are left open for the next
    producer.
    """

    name = "transactions"
    IDS = 7

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._topics = Topics(bootstrap)
        self._dice = random.Random(11)

    def round(self, number: int, seconds: float) -> list[str]:
        topic = self._topics.create(unique_name("transactions"), PARTITIONS)
        transactional_id = f"soak-{number % self.IDS}"
        producer = self._producer(transactional_id)
        ledgers = [Ledger(f"w-{number}-{turn}") for turn, _ in enumerate(passing(seconds * 0.8, 4))]
        fates = [self._dice.choice(("commit", "commit", "abort")) for _ in ledgers]
        moments = passing(seconds * 0.8, 4)
        for ledger, fate, moment in zip(ledgers, fates, moments, strict=True):
            self._transaction(producer, topic, ledger, fate)
            wait_until(moment)
        if number % 3 == 0:  # left for the next producer with this id, or for the timeout, to abort
            abandoned = Ledger(f"w-{number}-abandoned")
            producer.begin_transaction()
            abandoned.send(producer, topic, 0, 0)
            producer.flush(WAIT_S)
            producer = self._producer(transactional_id)
        faults = self._check(topic, [(x, fate) for x, fate in zip(ledgers, fates, strict=True)])
        self._topics.delete(topic)
        return faults

    def _producer(self, transactional_id: str) -> Any:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 120_000,
            }
        )
        producer.init_transactions(WAIT_S)
        return producer

    def _transaction(self, producer: Any, topic: str, ledger: Ledger, fate: str) -> None:
        producer.begin_transaction()
        for number in range(12):
            ledger.send(producer, topic, number, number % PARTITIONS)
        if fate == "commit":
            producer.commit_transaction(WAIT_S)
        else:
            producer.flush(WAIT_S)
            producer.abort_transaction(WAIT_S)

    def _check(self, topic: str, fates: list[tuple[Ledger, str]]) -> list[str]:
        written = [record for ledger, fate in fates if fate == "commit" for record in ledger.written()]
        read = [read_of(message) for message in read_all(self._bootstrap, topic, PARTITIONS)]
        failures = [failure for ledger, _ in fates for failure in ledger.failures]
        return [*failures, *anomalies(History(written, read))]


class Copies(Actor):
    """Consume, produce and commit offsets in one transaction, aborted at random: exactly one copy remains."""

    name = "exactly-once copies"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._topics = Topics(bootstrap)
        self._dice = random.Random(12)

    def round(self, number: int, seconds: float) -> list[str]:
        source, target = (self._topics.create(unique_name(name), 2) for name in ("source", "target"))
        values = self._fill(source, int(seconds * 20))
        group = f"copier-{number % 5}"
        left = len(values)
        while left > 0:  # every abort ends a copier, as with an application that starts again
            left -= self._live(group, source, target, left)
        found = Counter(m.value() for m in read_all(self._bootstrap, target, 2))
        self._topics.delete(source, target)
        twice = [f"{value!r} was copied {count} times" for value, count in found.items() if count > 1]
        return [
            *twice,
            *(f"{value!r} was not copied" for value in values if value not in found),
            *(f"{value!r} was never written" for value in found if value not in values),
        ]

    def _fill(self, topic: str, count: int) -> set[bytes]:
        producer = confluent_kafka.Producer({"bootstrap.servers": self._bootstrap})
        values = [b"%06d" % number for number in range(count)]
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(WAIT_S) == 0
        return set(values)

    def _live(self, group: str, source: str, target: str, wanted: int) -> int:
        """Copy until a transaction is aborted or nothing is left; returns how many records were copied."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": f"id-of-{group}"}
        )
        producer.init_transactions(WAIT_S)
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([source])
        copied = 0
        try:
            while copied < wanted:
                batch = [m for m in consumer.consume(50, 1) if m.error() is None]
                if not batch:
                    continue
                producer.begin_transaction()
                for message in batch:
                    producer.produce(target, message.value())
                place = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(place, consumer.consumer_group_metadata(), WAIT_S)
                if self._dice.random() < 0.2:
                    producer.abort_transaction(WAIT_S)
                    break
                producer.commit_transaction(WAIT_S)
                copied += len(batch)
        finally:
            consumer.close()
        return copied


class Compacted(Actor):
    """One topic that the cleaner compacts during the whole run: each key's last value is there."""

    name = "compaction"
    KEYS = 1500

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._dice = random.Random(13)
        self._last: dict[bytes, bytes | None] = {}
        self._count = 0
        self._topic = Topics(bootstrap).create(
            "compacted",
            PARTITIONS,
            cleanup_policy="compact",
            segment_bytes=SEGMENT_BYTES,
            segment_ms=15_000,
            min_cleanable_dirty_ratio=0.2,
            delete_retention_ms=10_000,
            file_delete_delay_ms=5000,
        )

    def round(self, number: int, seconds: float) -> list[str]:
        library = library_of(number)
        options = {"bootstrap.servers": self._bootstrap, "compression.type": CODECS[number % len(CODECS)]}
        producer = library.package.Producer({**options, "linger.ms": 20, "enable.idempotence": True})
        for moment in passing(seconds * 0.7, 200):
            self._write(producer)
            producer.poll(0)
            wait_until(moment)
        left = producer.flush(WAIT_S)
        return [f"{left} records were not delivered in {WAIT_S} s"] if left else self._check(number)

    def _write(self, producer: Any) -> None:
        key = b"key-%d" % self._dice.randrange(self.KEYS)
        value = None if self._dice.random() < 0.05 else (b"%d:" % self._count).ljust(300, b"x")
        self._count += 1
        self._last[key] = value
        # An explicit partition: the libraries' partitioners differ, and a key's order is kept only within a
        # partition.
        producer.produce(self._topic, value, key, partition=zlib.crc32(key) % PARTITIONS)

    def _check(self, number: int) -> list[str]:
        found: dict[bytes, bytes | None] = {}
        offsets: dict[int, int] = {}
        faults: list[str] = []
        for message in read_all(self._bootstrap, self._topic, PARTITIONS, library_of(number + 1)):
            found[message.key()] = message.value()
            if message.offset() <= offsets.get(message.partition(), -1):
                faults.append(f"offset {message.offset()} came twice")
            offsets[message.partition()] = message.offset()
        wrong = [key for key, value in self._last.items() if found.get(key) != value]
        return faults + [
            f"{key!r} is {(found.get(key) or b'')[:9]!r} and not {(self._last[key] or b'')[:9]!r}"
            for key in wrong[:9]
        ]


class Retained(Actor):
    """One topic whose old segments are deleted during the whole run: the newest records are there once, in order."""

    name = "retention"
    PARTITIONS = 2

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._topic = Topics(bootstrap).create(
            "retained",
            self.PARTITIONS,
            segment_bytes=SEGMENT_BYTES,
            retention_bytes=6 * SEGMENT_BYTES,
            file_delete_delay_ms=5000,
        )
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "tail", "enable.auto.commit": False}
        )

    def round(self, number: int, seconds: float) -> list[str]:
        starts = {p: self._consumer.get_watermark_offsets(self._at(p), WAIT_S)[1] for p in range(2)}
        self._consumer.assign([self._at(p, start) for p, start in starts.items()])
        producer = confluent_kafka.Producer({"bootstrap.servers": self._bootstrap, "acks": "all"})
        ledger = Ledger(f"w-{number}")
        for count, moment in enumerate(passing(seconds * 0.8, 100)):
            ledger.send(producer, self._topic, count, count % self.PARTITIONS, size=1000)
            producer.poll(0)
            wait_until(moment)
        left = producer.flush(WAIT_S)
        written = ledger.written()
        read = [read_of(message) for message in self._tail(len(written))]
        late = [f"{left} records were not delivered in {WAIT_S} s"] if left else []
        return [*late, *ledger.failures, *anomalies(History(written, read)), *self._unreachable(written)]

    def _at(self, partition: int, offset: int = OFFSET_END) -> TopicPartition:
        return TopicPartition(self._topic, partition, offset)

    def _tail(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            came = self._consumer.consume(min(1000, count - len(found)), WAIT_S)
            if not came:
                break
            found += came
        # Records that came twice are surplus.
        return found + self._consumer.consume(1000, 1)

    def _unreachable(self, written: list[Written]) -> list[str]:
        """After enough time the log starts later than before."""
        low, high = self._consumer.get_watermark_offsets(self._at(0), WAIT_S)
        kept = 12 * SEGMENT_BYTES // 1000
        if high - low > kept:
            return [f"{high - low} records of partition 0 are kept, where retention allows {kept} at most"]
        return []

    def close(self) -> None:
        self._consumer.close()
