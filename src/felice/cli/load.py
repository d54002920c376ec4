"""Writes and reads a load and measures it, for `felice perf`, `felice advise` and Kafka's performance tools."""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypedDict

from felice.cli.consume import check_reached
from felice.cli.faults import Fault
from felice.cli.options import delivery_limit
from felice.cli.output import progress
from felice.cli.produce import brief_parting, send_when_room, undelivered
from felice.dataclass import dataclass

if TYPE_CHECKING:
    from felice.client import Consumer, KafkaError, Message, Producer, TopicPartition

MIB = 1024 * 1024
_REPORT_EVERY = 10_000
# As in Kafka's tool: longer runs keep every second latency, every third, and so on.
_MOST_LATENCIES = 500_000
_LONGEST_PAUSE_S = 1.0
_BATCH_RECORDS = 5000
_BATCH_WAIT_S = 0.2
_SHARES = (50, 95, 99, 99.9)


class ProducedLoad(TypedDict):
    """The result of a produced load. `latency_ms` has average, max, p50, p95, p99 and p99.9."""

    records: int
    seconds: float
    records_per_second: float
    mib_per_second: float
    latency_ms: dict[str, float]


class ConsumedLoad(TypedDict):
    """The result of a consumed load. The first record comes after joining the group."""

    records: int
    seconds: float
    records_per_second: float
    mib_per_second: float
    seconds_to_first_record: float
    records_per_second_after_first: float


@dataclass(frozen=True, slots=True)
class Load:
    """The records to send. A negative `per_second` means no limit; `transaction_s` makes transactions that long."""

    topic: str
    records: int
    value: Callable[[int], bytes]
    per_second: float = -1
    transaction_s: float | None = None


def same_value(size_bytes: int) -> Callable[[int], bytes]:
    """Every record has the same random bytes."""
    value = random.Random(0).randbytes(size_bytes)
    return lambda number: value


class LoadObserver(Protocol):
    """Follows a load that is produced."""

    def begin(self) -> None:
        """The producer is ready, and the first record comes."""

    def add(self, latency_ms: float, size_bytes: int) -> None:
        """A record was delivered."""


class Deliveries:
    """Counts delivered records and their latencies, from `begin` (or since it was made) to the last delivery.

    Count, average and maximum include every record. Percentiles come from at most 500,000 latencies.
    """

    def __init__(self, expected: int) -> None:
        self.begun = self._last = time.perf_counter()
        self.count = 0
        self._size_bytes = 0
        self._total_ms = 0.0
        self._max_ms = 0.0
        self._every = -(-expected // _MOST_LATENCIES)
        self._kept_ms = array("d")

    def begin(self) -> None:
        """Starts the clock again, so that the time to make the producer does not count."""
        self.begun = self._last = time.perf_counter()

    def add(self, latency_ms: float, size_bytes: int) -> None:
        """Counts one record."""
        self._last = time.perf_counter()
        if self.count % self._every == 0:
            self._kept_ms.append(latency_ms)
        self.count += 1
        self._size_bytes += size_bytes
        self._total_ms += latency_ms
        self._max_ms = max(self._max_ms, latency_ms)

    def summary(self) -> ProducedLoad:
        """The rates until the last delivery, and the latencies."""
        elapsed_s = max(self._last - self.begun, 1e-9)
        ordered = sorted(self._kept_ms)
        return {
            "records": self.count,
            "seconds": round(elapsed_s, 3),
            "records_per_second": round(self.count / elapsed_s, 6),
            "mib_per_second": round(self._size_bytes / elapsed_s / MIB, 2),
            "latency_ms": {
                "average": round(self._total_ms / max(self.count, 1), 2),
                "max": round(self._max_ms, 2),
                **{f"p{share:g}": round(percentile(ordered, share), 2) for share in _SHARES},
            },
        }


def percentile(ordered: list[float], share: float) -> float:
    """The value below which `share` percent of the ordered values are; 0 if there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))] if ordered else 0.0


def produce_load(config: Mapping[str, object], load: Load, observer: LoadObserver, *, quiet: bool) -> None:
    """Sends all records; the observer sees each delivery. Raises the first failure at the end."""
    from felice.client import KafkaException, Producer

    failures = _Failures(observer.add)
    sent = 0
    try:
        with (
            Producer({**delivery_limit(config), **config}) as producer,
            brief_parting(producer),
            progress("producing", load.records, quiet=quiet) as advance,
        ):
            transactions = _Transactions(producer, load.transaction_s)
            observer.begin()
            begun = time.perf_counter()
            while sent < load.records:
                transactions.before_record()
                value = load.value(sent)
                send_when_room(producer, load.topic, value=value, on_delivery=failures.on_delivery)
                sent += 1
                transactions.after_record()
                _serve(producer, begun, sent, load.per_second)
                if sent % _REPORT_EVERY == 0:
                    advance(_REPORT_EVERY)
            transactions.end()
            producer.flush()
    except KeyboardInterrupt:
        if failures.count:
            raise undelivered(failures.count, sent) from None
        raise
    if failures.first is not None:
        raise KafkaException(failures.first)


class _Failures:
    def __init__(self, on_delivered: Callable[[float, int], None]) -> None:
        self.count = 0
        self.first: KafkaError | None = None
        self._on_delivered = on_delivered

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._on_delivered((message.latency() or 0.0) * 1000, len(message.value() or b""))
        else:
            self.count += 1
            self.first = self.first or error


class _Transactions:
    """Begins a transaction with its first record, and commits it after `duration_s`. None: no transactions."""

    def __init__(self, producer: Producer, duration_s: float | None) -> None:
        self._producer = producer
        self._duration_s = duration_s
        self._begun: float | None = None
        if duration_s is not None:
            producer.init_transactions()

    def before_record(self) -> None:
        if self._duration_s is not None and self._begun is None:
            self._producer.begin_transaction()
            self._begun = time.perf_counter()

    def after_record(self) -> None:
        if self._begun is not None and time.perf_counter() - self._begun >= (self._duration_s or 0):
            self.end()

    def end(self) -> None:
        if self._begun is not None:
            self._producer.commit_transaction()
            self._begun = None


def _serve(producer: Producer, begun: float, sent: int, per_second: float) -> None:
    """Calls the delivery callbacks that are due, and waits if more was sent than `per_second` allows."""
    if per_second > 0:
        while (ahead_s := sent / per_second - (time.perf_counter() - begun)) > 0.001:
            producer.poll(min(ahead_s, _LONGEST_PAUSE_S))
    if sent % 100 == 0:
        producer.poll(0)


class Rebalances:
    """How long a consumer was without partitions, as Kafka's tool counts it."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._begun = time.perf_counter()

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Ends a rebalance."""
        self.total_s += time.perf_counter() - self._begun

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begins a rebalance."""
        self._begun = time.perf_counter()


def consume_batches(
    config: Mapping[str, object], topic: str, rebalances: Rebalances, *, records: int, timeout_s: float
) -> Iterator[list[Message]]:
    """Yields up to `records` records in lists. Ends when none came for `timeout_s`.

    Raises `KafkaException` for an error that ends the reading; if no record came, also for the last transient error,
    and `Fault` if no broker answers.
    """
    from felice.client import Consumer, KafkaException

    count, last = 0, time.perf_counter()
    failed: KafkaError | None = None
    # Until a record or the end of a partition comes, it is unknown whether any broker was reached.
    is_unheard = True
    with Consumer({"auto.offset.reset": "earliest", **config}) as consumer:
        consumer.subscribe([topic], on_assign=rebalances.on_assign, on_revoke=rebalances.on_revoke)
        while count < records and time.perf_counter() - last < timeout_s:
            found = consumer.consume(min(_BATCH_RECORDS, records - count), _BATCH_WAIT_S)
            failed = _failure_after(found, failed)
            is_unheard = is_unheard and not found
            messages = [message for message in found if message.error() is None]
            if messages:
                last = time.perf_counter()
                count += len(messages)
                yield messages
        if failed is not None and count == 0:
            raise KafkaException(failed)
        if is_unheard:
            check_reached(consumer)


def _failure_after(found: list[Message], failed: KafkaError | None) -> KafkaError | None:
    """The last transient error, or None if a record or the end of a partition came after it: then reading works.

    Raises `KafkaException` for an error that ends the reading. A damaged batch does not: the consumer skips it.
    """
    from felice.client import KafkaError, KafkaException

    for message in found:
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            failed = None
        elif error.retriable() or error.code() == KafkaError._BAD_MSG:
            failed = error
        else:
            raise KafkaException(error)
    return failed


def consume_load(
    config: Mapping[str, object], topic: str, *, records: int, timeout_s: float, quiet: bool
) -> ConsumedLoad:
    """Reads up to `records` records from the beginning. Ends when none came for `timeout_s`."""
    count = size = 0
    begun = last = first = time.perf_counter()
    settings = {"client.id": "perf-consumer", "group.id": f"perf-{time.time_ns()}", **config}
    with progress("consuming", records, quiet=quiet) as advance:
        for messages in consume_batches(settings, topic, Rebalances(), records=records, timeout_s=timeout_s):
            last = time.perf_counter()
            size += size_of(messages)
            first = last if count == 0 else first
            count += len(messages)
            advance(len(messages))
    elapsed_s = max(last - begun, 1e-9)
    fetch_s = max(last - first, 1e-9)
    return {
        "records": count,
        "seconds": round(elapsed_s, 3),
        "records_per_second": round(count / elapsed_s, 1),
        "mib_per_second": round(size / elapsed_s / MIB, 2),
        "seconds_to_first_record": round(first - begun, 3),
        "records_per_second_after_first": round(count / fetch_s, 1),
    }


def size_of(messages: list[Message]) -> int:
    """Bytes of keys and values."""
    return sum(len(message.value() or b"") + len(message.key() or b"") for message in messages)


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """The record that `round_trips` sends again and again."""

    value_bytes: int
    key_bytes: int | None = None
    headers: int = 0
    header_key_bytes: int = 0
    header_value_bytes: int = 0  # -1: null


def round_trips(
    config: Mapping[str, object],
    topic: str,
    shape: RoundTrip,
    *,
    records: int,
    acks: str,
    timeout_s: float = 60,
) -> Iterator[float]:
    """Sends one record at a time and reads it; yields the ms from sending to reading. The topic must be idle."""
    from felice.client import Consumer, Producer

    reading = {"group.id": f"latency-{time.time_ns()}", "enable.auto.commit": False, "fetch.wait.max.ms": 0}
    chance = random.Random(0)
    with (
        Producer({"linger.ms": 0, **delivery_limit(config), **config, "acks": acks}) as producer,
        Consumer({**config, **reading}) as consumer,
    ):
        consumer.assign(_ends(consumer, topic, timeout_s))
        for _ in range(records):
            sent = _random_record(shape, chance)
            begun = time.perf_counter()
            _send_and_wait(producer, topic, sent)
            received = consumer.poll(timeout_s)
            elapsed_ms = (time.perf_counter() - begun) * 1000
            _check_received(received, sent, timeout_s)
            yield elapsed_ms


def _ends(consumer: Consumer, topic: str, timeout_s: float) -> list[TopicPartition]:
    """The end of each partition as an offset, so that the first record sent is the first record read."""
    from felice.client import OFFSET_END, KafkaException, TopicPartition

    found = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    starts = []
    for number in found.partitions:
        watermarks = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout_s)
        starts.append(TopicPartition(topic, number, watermarks[1] if watermarks else OFFSET_END))
    return starts


@dataclass(frozen=True, slots=True)
class _Sent:
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes | None]]


def _random_record(shape: RoundTrip, chance: random.Random) -> _Sent:
    return _Sent(
        None if shape.key_bytes is None else _letters(chance, shape.key_bytes),
        _letters(chance, shape.value_bytes),
        [
            (
                _letters(chance, shape.header_key_bytes).decode(),
                None if shape.header_value_bytes < 0 else _letters(chance, shape.header_value_bytes),
            )
            for _ in range(shape.headers)
        ],
    )


def _letters(chance: random.Random, size: int) -> bytes:
    return bytes(chance.choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=size))


def _send_and_wait(producer: Producer, topic: str, record: _Sent) -> None:
    from felice.client import KafkaException

    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        failures.extend([error] if error is not None else [])

    producer.produce(
        topic, value=record.value, key=record.key, headers=record.headers, on_delivery=on_delivery
    )
    producer.flush()
    if failures:
        raise KafkaException(failures[0])


def _check_received(received: Message | None, sent: _Sent, timeout_s: float) -> None:
    from felice.client import KafkaException

    if received is None:
        raise Fault(f"poll() timed out before finding a result (timeout:[{timeout_s * 1000:.0f}ms])")
    if received.error() is not None:
        raise KafkaException(received.error())
    if (received.value(), received.key()) != (sent.value, sent.key):
        raise Fault(
            "the record that was read is not the one that was sent; nothing else may write to the topic meanwhile"
        )
