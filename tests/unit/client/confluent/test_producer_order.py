"""The records of each thread are in each partition in the order of its calls, also while metadata are missing."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from felice.client import Producer
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse
from felice.records.kernels import IMPLEMENTATION
from unit.client.confluent.test_producer import producer
from unit.client.fake_broker import FakeBroker, Hang

LIMIT_S = 120
THREADS = 3
PARTITIONS = 2


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"known": 1}) as started:
        yield started


def produce_in_threads(made: Producer, count: int, **keys: Any) -> list[threading.Thread]:
    """Each thread sends `count` records "thread number"; it polls while the queue is full."""

    def produce(name: int) -> None:
        for number in range(count):
            while True:
                try:
                    made.produce("t", b"%d %d" % (name, number), **keys)
                    break
                except BufferError:
                    made.poll(0.01)

    threads = [threading.Thread(target=produce, args=(name,)) for name in range(THREADS)]
    for thread in threads:
        thread.start()
    return threads


def check(broker: FakeBroker, count: int) -> None:
    """Every record is there once, and those of a thread are in order in each partition."""
    seen: dict[bytes, set[int]] = defaultdict(set)
    for partition in range(PARTITIONS):
        last: dict[bytes, int] = defaultdict(lambda: -1)
        for value in broker.values("t", partition):
            assert value is not None
            name, _, number = value.partition(b" ")
            assert int(number) > last[name], f"partition {partition}: {value!r} after {last[name]}"
            last[name] = int(number)
            seen[name].add(int(number))
    assert {name: len(numbers) for name, numbers in seen.items()} == {
        b"%d" % name: count for name in range(THREADS)
    }


def late(broker: FakeBroker, seconds: float) -> Callable[[Any, int], MetadataResponse]:
    """The topic appears this long after the first request for it."""
    began: list[float] = []

    def answer(request: Any, version: int) -> MetadataResponse:
        began.append(time.monotonic())
        if began[-1] - began[0] >= seconds and "t" not in broker.topics:
            broker.topics["t"] = (broker.topics["known"][0], PARTITIONS)
        return broker._metadata(request, version)

    return answer


@pytest.mark.parametrize(
    "keys",
    [
        {"partition": 0},
        {"partition": 1, "headers": {"a": b"b"}},
        {"key": b"key"},
        {},
        {"partition": 0, "on_delivery": lambda error, message: None},
    ],
    ids=["partition", "headers", "key", "no key", "callback"],
)
def test_records_that_wait_for_their_topic_are_not_overtaken(
    broker: FakeBroker, keys: dict[str, Any]
) -> None:
    broker.handlers[MetadataRequest] = late(broker, 0.02)
    with producer(broker, batch_num_messages=1000, queue_buffering_max_messages=20_000) as made:
        for thread in produce_in_threads(made, 12_000, **keys):
            thread.join(LIMIT_S)
        assert made.flush(LIMIT_S) == 0
    check(broker, 12_000)


def test_text_and_bytes_take_different_ways_and_stay_in_order(broker: FakeBroker) -> None:
    """Text is encoded before it is queued, bytes may go without the lock."""
    broker.handlers[MetadataRequest] = late(broker, 0.02)
    with producer(broker) as made:
        for number in range(30_000):
            value = b"0 %d" % number
            made.produce("t", value.decode() if number % 7 == 0 else value, partition=0)
        assert made.flush(LIMIT_S) == 0
    numbers = [int((value or b"").split()[1]) for value in broker.values("t", 0)]
    assert numbers == list(range(30_000))


def test_reports_belong_to_their_records_when_threads_fill_a_batch_together(broker: FakeBroker) -> None:
    broker.topics["t"] = (broker.topics["known"][0], PARTITIONS)
    wrong: list[tuple[bytes, bytes | None]] = []
    served: list[None] = []

    def report_for(value: bytes) -> Callable[[object, Any], None]:
        def report(error: object, message: Any) -> None:
            served.append(None)
            if message.value() != value:
                wrong.append((value, message.value()))

        return report

    with producer(broker, linger_ms=20, batch_num_messages=50) as made:

        def produce(name: int) -> None:
            for number in range(4_000):
                value = b"%d %d" % (name, number)
                # Every second record takes the way under the lock.
                content: Any = value.decode() if number % 2 else value
                made.produce("t", content, partition=0, on_delivery=report_for(value))

        threads = [threading.Thread(target=produce, args=(name,)) for name in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        assert made.flush(LIMIT_S) == 0
    assert not wrong
    assert len(served) == THREADS * 4_000


@pytest.mark.skipif(IMPLEMENTATION == "plain", reason="the plain buffer takes no offers")
def test_a_program_that_began_before_the_metadata_came_soon_needs_no_lock(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it never pauses: the held records are appended faster than it adds further ones to them."""
    broker.handlers[MetadataRequest] = late(broker, 0.05)
    with producer(broker, linger_ms=20, queue_buffering_max_messages=0) as made:
        accumulator, behind_held = made._accumulator, 0
        made.produce("t", b"v", partition=0)
        while not accumulator.topics["t"].queues or accumulator.is_catching_up("t"):
            made.produce("t", b"v", partition=0)
            behind_held += accumulator.is_catching_up("t")
            assert behind_held < 2_000, (
                "measured: fewer than 30, and without a pause behind each, 12,000 and more"
            )
        slow, usual = list[object](), accumulator._append_or_hold
        monkeypatch.setattr(
            accumulator, "_append_or_hold", lambda record: slow.append(record) or usual(record)
        )
        for _ in range(1_000):
            made.produce("t", b"v", partition=0)
        assert len(slow) < 500, "only the first record of a batch takes the lock"
        assert made.flush(LIMIT_S) == 0


@pytest.mark.parametrize("name", ["round_robin", "custom"])
def test_a_partitioner_is_asked_once_for_each_record(broker: FakeBroker, name: str) -> None:
    asked: list[bytes | None] = []

    def custom(key: bytes | None, partitions: int) -> int:
        asked.append(key)
        return 0

    broker.script(MetadataRequest, *[broker._metadata] * 3)
    broker.handlers[MetadataRequest] = late(broker, 0.05)
    choice: Any = custom if name == "custom" else name
    with producer(broker, partitioner=choice, linger_ms=20) as made:
        for number in range(10):
            made.produce("t", b"%d" % number, key=b"%d" % number)
        made.flush(LIMIT_S)
        for number in range(10, 20):
            made.produce("t", b"%d" % number, key=b"%d" % number)
    if name == "custom":
        assert asked == [b"%d" % number for number in range(20)]
    else:
        assert [len(broker.values("t", partition)) for partition in range(PARTITIONS)] == [10, 10]


def test_a_partitioner_may_produce(broker: FakeBroker) -> None:
    """It is called without the producer's lock."""
    made: Producer

    def custom(key: bytes | None, partitions: int) -> int:
        if key == b"outer":
            made.produce("t", b"inner", key=b"inner")
        return 0

    made = producer(broker, partitioner=custom)
    made.produce("t", b"outer", key=b"outer")
    broker.topics["t"] = (broker.topics["known"][0], PARTITIONS)
    assert made.flush(LIMIT_S) == 0
    made.produce("t", b"outer", key=b"outer")
    made.close()
    assert broker.values("t", 0) == [b"outer", b"inner", b"inner", b"outer"]


@pytest.mark.parametrize(
    "partitioner", ["murmur2_random", "consistent_random", "random", "round_robin", "sticky"]
)
def test_records_without_a_key_go_to_partitions_with_a_leader(broker: FakeBroker, partitioner: str) -> None:
    broker.topics["t"] = (broker.topics["known"][0], 3)

    def without_leader(request: Any, version: int) -> MetadataResponse:
        response = broker._metadata(request, version)
        for topic in response.topics:
            if topic.name == "t":
                topic.partitions[1].leader_id = -1
        return response

    broker.handlers[MetadataRequest] = without_leader
    with producer(broker, partitioner=partitioner, sticky_partitioning_linger_ms=0) as made:
        for number in range(60):
            made.produce("t", b"%d" % number)
            if number % 10 == 9:
                assert made.flush(LIMIT_S) == 0
    assert not broker.values("t", 1)
    assert len(broker.values("t", 0)) + len(broker.values("t", 2)) == 60


def test_a_purge_of_waiting_records_lets_later_ones_through_in_order(broker: FakeBroker) -> None:
    broker.script(MetadataRequest, Hang)
    with producer(broker, request_timeout_ms=200) as made:
        for number in range(5):
            made.produce("t", b"0 %d" % number, partition=0)
        made.purge()
        for number in range(5, 10):
            made.produce("t", b"0 %d" % number, partition=0)
        broker.topics["t"] = (broker.topics["known"][0], PARTITIONS)
        assert made.flush(LIMIT_S) == 0
    assert broker.values("t", 0) == [b"0 %d" % number for number in range(5, 10)]
