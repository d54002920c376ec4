"""The memory of delivered batches is used again, but never while something may read it."""

import asyncio

import pytest

from felice.client import Producer, aio
from felice.client.produce import spare_buffers
from felice.client.produce.accumulator import Accumulator, Limits
from felice.client.produce.batches import ANONYMOUS, ProducerBatch
from felice.client.produce.partitioners import make_partitioner
from felice.client.produce.spare_buffers import SpareBuffers
from felice.records.batch import BatchHeader
from felice.records.compression import Codec
from felice.records.kernels import IMPLEMENTATION
from felice.records.reader import read_batch
from unit.client.fake_broker import FakeBroker
from waiting import LIMIT_S

LARGE = 300_000


def test_a_large_buffer_without_views_is_kept_for_a_large_batch() -> None:
    spares, buffer = SpareBuffers(), bytearray(LARGE)
    spares.put(buffer)
    assert spares.take(1000) is None
    assert spares.take(LARGE) is buffer
    assert spares.take(LARGE) is None


def test_a_buffer_is_large_from_the_least_size_on() -> None:
    spares, least = SpareBuffers(), spare_buffers._LEAST_BYTES
    spares.put(bytearray(least - 1))
    assert spares.kept_bytes == 0
    spares.put(bytearray(least))
    assert spares.take(least - 1) is None
    assert spares.take(least) is not None


@pytest.mark.parametrize("data", [bytes(LARGE), bytearray(1000), memoryview(bytearray(LARGE))])
def test_other_data_is_not_kept(data: bytes) -> None:
    spares = SpareBuffers()
    spares.put(data)
    assert spares.kept_bytes == 0
    assert spares.take(LARGE) is None


def test_a_buffer_with_a_view_is_not_kept() -> None:
    spares, buffer = SpareBuffers(), bytearray(LARGE)
    view = memoryview(buffer)[10:20]
    spares.put(buffer)
    assert spares.take(LARGE) is None
    assert bytes(view) == bytes(10)


def test_the_kept_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_buffers, "_MOST_BYTES", 2 * LARGE)
    spares = SpareBuffers()
    for _ in range(5):
        spares.put(bytearray(LARGE))
    assert LARGE < spares.kept_bytes <= 2 * LARGE
    assert spares.take(LARGE) is not None
    assert spares.take(LARGE) is not None
    assert spares.take(LARGE) is None
    assert spares.kept_bytes == 0


def made(codec: Codec = Codec.NONE) -> Accumulator:
    partitioner = make_partitioner("murmur2_random")
    accumulator = Accumulator(Limits(batch_size_bytes=2 * LARGE), partitioner, lambda: 0.0, codec)
    accumulator.open_topic("t", 1, (0,))
    return accumulator


def sent(accumulator: Accumulator, value: bytes) -> ProducerBatch:
    """A batch of one record, as it is after its first request."""
    accumulator.append("t", 0, 1000, None, value, None, None)
    accumulator.flushing = 1
    accumulator.close_lingering(0.0)
    queue = accumulator.topics["t"].queues[0]
    batch = queue.take(ANONYMOUS, 1)
    queue.in_flight.remove(batch)
    return batch


def values(batch: ProducerBatch) -> list[bytes | None]:
    return [record.value for record in read_batch(batch.data, BatchHeader.parse(batch.data))]


@pytest.mark.skipif(IMPLEMENTATION == "plain", reason="the plain buffer takes over no memory")
def test_the_next_batch_has_the_memory_of_an_acknowledged_one() -> None:
    accumulator = made()
    first = sent(accumulator, b"a" * LARGE)
    memory = first.data
    accumulator.release_batch(first, acknowledged=True)
    second = sent(accumulator, b"b" * (LARGE // 2))
    assert second.data is memory
    assert values(second) == [b"b" * (LARGE // 2)]


@pytest.mark.parametrize(("acknowledged", "attempts"), [(False, 1), (True, 2)])
def test_a_batch_that_failed_or_was_sent_twice_keeps_its_memory(acknowledged: bool, attempts: int) -> None:
    accumulator = made()
    first = sent(accumulator, b"a" * LARGE)
    first.attempts = attempts
    accumulator.release_batch(first, acknowledged=acknowledged)
    assert sent(accumulator, b"b" * LARGE).data is not first.data
    assert values(first) == [b"a" * LARGE]


def test_compressed_bytes_are_not_used_again() -> None:
    accumulator = made(Codec.LZ4)
    first = sent(accumulator, bytes(range(256)) * (LARGE // 256))
    accumulator.release_batch(first, acknowledged=True)
    assert first.data


def test_released_records_make_room() -> None:
    accumulator = made()
    batch = sent(accumulator, b"a")
    assert accumulator.record_count == 1
    accumulator.release_batch(batch, acknowledged=True)
    assert (accumulator.record_count, accumulator.size_bytes) == (0, 0)


def test_reports_have_their_values_although_the_memory_is_used_again() -> None:
    found: list[bytes | None] = []
    with FakeBroker({"t": 1}) as broker, Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for letter in (b"a", b"b", b"c"):
            for report in (lambda error, message: found.append(message.value()), None):
                producer.produce("t", letter * LARGE, on_delivery=report)
                assert producer.flush(LIMIT_S) == 0
                assert producer._accumulator._spares.kept_bytes > LARGE
    assert found == [b"a" * LARGE, b"b" * LARGE, b"c" * LARGE]


def test_the_asyncio_producer_uses_memory_again() -> None:
    async def run(bootstrap: str) -> None:
        async with aio.Producer({"bootstrap.servers": bootstrap}) as producer:
            for letter in (b"a", b"b"):
                message = await producer.send_and_wait("t", letter * LARGE)
                assert message.value() == letter * LARGE
                assert producer._accumulator._spares.kept_bytes > LARGE

    with FakeBroker({"t": 1}) as broker:
        asyncio.run(run(broker.bootstrap))
