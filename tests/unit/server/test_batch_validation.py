"""Large batches are validated on threads, a bounded number at a time, and keep the order of their connection."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.wire import Wire
from felice.config import BrokerConfig, TopicConfig
from felice.log import timestamps
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.records.batch import BatchHeader, write_header
from felice.records.builder import build_batch
from felice.records.compression import Codec
from felice.records.record import Record
from felice.records.validate import INLINE_MAX_BYTES, ProduceRules
from felice.server.handlers import produce
from felice.server.process.embedded import EmbeddedBroker
from felice.server.replicas.image_follower import ImageFollower
from felice.server.writes import batch_validation
from felice.server.writes.batch_validation import BatchValidation

RULES = ProduceRules.of(TopicConfig())
LIMIT_BYTES = 8 * 1024 * 1024


def batch(size: int, codec: Codec = Codec.GZIP, sequence: int = -1, producer_id: int = -1) -> bytes:
    now_ms = int(time.time() * 1000)
    data = bytearray(build_batch([Record(0, now_ms, b"k", bytes(size))], codec))
    if producer_id >= 0:
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        write_header(data, BatchHeader.parse(data)._replace(**fields))
    return bytes(data)


LARGE = batch(INLINE_MAX_BYTES)
TOO_LARGE = batch(LIMIT_BYTES)
SMALL = batch(100)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    limits = {"felice.batch.max.decompressed.bytes": str(LIMIT_BYTES)}
    with EmbeddedBroker(tmp_path / "data", properties=limits) as running:
        yield running


@pytest.fixture
def wire(broker: EmbeddedBroker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as connection:
        for name, codec in (("t", "producer"), ("packed", "zstd")):
            configs = [CreatableTopicConfig(name="compression.type", value=codec)]
            topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=configs)
            assert connection.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0
        yield connection


def request(*batches: bytes, topic: str = "t", acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=each) for index, each in enumerate(batches)]
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def rows(answer: Any) -> list[tuple[int, int]]:
    return [(row.error_code, row.base_offset) for row in answer.responses[0].partition_responses]


class Watching:
    """`validation_result`, with a count of the calls under way, and where they ran."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.large_on: list[str] = []
        self.small_on: list[str] = []
        self._lock = threading.Lock()
        self._validate = batch_validation.validation_result

    def __call__(self, *args: Any, on_loop: bool) -> Any:
        if not on_loop:
            with self._lock:
                self.running += 1
                self.most = max(self.most, self.running)
        try:
            (self.small_on if on_loop else self.large_on).append(threading.current_thread().name)
            return self._validate(*args, on_loop=on_loop)
        finally:
            if not on_loop:
                with self._lock:
                    self.running -= 1


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Watching:
    found = Watching()
    # The speed of this machine moves no batch to a thread.
    monkeypatch.setattr(produce, "_VALIDATION_ON_LOOP_S", 60.0)
    monkeypatch.setattr(batch_validation, "validation_result", found)
    return found


def test_a_large_batch_is_validated_on_a_thread_and_a_small_one_on_the_loop(
    wire: Wire, watching: Watching
) -> None:
    assert rows(wire.ask(request(SMALL, LARGE), 9)) == [(0, 0), (0, 0)]
    assert len(watching.large_on) == 1
    assert watching.large_on[0] not in watching.small_on


def test_uncompressed_batches_beyond_some_megabytes_are_validated_on_threads(
    wire: Wire, watching: Watching
) -> None:
    topic = CreatableTopic(name="wide", num_partitions=5, replication_factor=1)
    assert wire.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0
    plain = batch(INLINE_MAX_BYTES // 3, Codec.NONE)
    assert rows(wire.ask(request(*[plain] * 5, topic="wide"), 9)) == [(0, 0)] * 5
    assert len(watching.large_on) == 3, "two of them are within the limit"
    assert not watching.small_on, "the log validates these when it appends them"


def test_many_small_batches_of_one_request_do_not_hold_the_loop(
    wire: Wire, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*args: Any, on_loop: bool) -> Any:
        if on_loop:
            time.sleep(0.02)
        return watching(*args, on_loop=on_loop)

    monkeypatch.setattr(produce, "_VALIDATION_ON_LOOP_S", 0.01)
    monkeypatch.setattr(batch_validation, "validation_result", slow)
    data = [PartitionProduceData(index=0, records=batch(10, Codec.GZIP, number, 7)) for number in range(5)]
    topics = [TopicProduceData(name="t", partition_data=data)]
    asked = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
    assert rows(wire.ask(asked, 9)) == [(0, offset) for offset in range(5)]
    assert len(watching.small_on) <= 1 < len(watching.large_on)


def test_a_batch_that_expands_beyond_the_limit_is_refused_and_its_neighbour_is_not(wire: Wire) -> None:
    assert rows(wire.ask(request(TOO_LARGE, LARGE), 9)) == [(ErrorCode.MESSAGE_TOO_LARGE, -1), (0, 0)]


def test_batches_that_are_rebuilt_on_the_loop_take_bounded_memory_beside_the_request(
    wire: Wire, watching: Watching
) -> None:
    """A few KB of zeros are stored as many MB: after some of them, the others are rebuilt one at a time on threads."""
    configs = [CreatableTopicConfig(name="compression.type", value="uncompressed")]
    topic = CreatableTopic(name="plain", num_partitions=1, replication_factor=1, configs=configs)
    assert wire.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0
    on_loop = INLINE_MAX_BYTES // 1_000_100 + 1
    data = [PartitionProduceData(index=0, records=batch(1_000_000)) for _ in range(on_loop + 3)]
    topics = [TopicProduceData(name="plain", partition_data=data)]
    answer = wire.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
    assert rows(answer) == [(0, offset) for offset in range(on_loop + 3)]
    assert (len(watching.small_on), len(watching.large_on)) == (on_loop, 3)


def test_a_request_that_waits_for_a_thread_keeps_no_batch_that_was_rebuilt(
    broker: EmbeddedBroker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many connections with such requests would exceed any limit for one request."""
    ends: list[list[int]] = []
    validate = BatchValidation.validate_large

    async def watched(self: BatchValidation, *args: Any, **options: Any) -> Any:
        partitions = broker.broker.services.partitions
        ends.append([partitions.find("packed", number).log_end_offset for number in range(2)])
        return await validate(self, *args, **options)

    monkeypatch.setattr(BatchValidation, "validate_large", watched)
    data = [PartitionProduceData(index=index, records=LARGE) for index in (0, 1, 0)]
    topics = [TopicProduceData(name="packed", partition_data=data)]
    answer = wire.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
    assert rows(answer) == [(0, 0), (0, 0), (0, 1)]
    assert ends == [[0, 0], [1, 0], [1, 1]], "each batch is in the log before the next is rebuilt"


def test_a_large_batch_for_a_topic_with_a_codec_is_stored_in_that_codec(
    wire: Wire, watching: Watching
) -> None:
    assert rows(wire.ask(request(LARGE, topic="packed"), 9)) == [(0, 0)]
    assert len(watching.large_on) == 1


@pytest.mark.parametrize("acks", [1, -1])
def test_batches_of_one_producer_are_appended_in_their_order(wire: Wire, acks: int) -> None:
    """The small ones behind a large one would be out of order if they overtook it."""
    sent = [
        request(batch(INLINE_MAX_BYTES if sequence % 2 == 0 else 10, Codec.GZIP, sequence, 7), acks=acks)
        for sequence in range(6)
    ]
    numbers = [wire.send(each, 9) for each in sent]
    answers = [rows(wire.receive(each, 9, number)) for each, number in zip(sent, numbers, strict=True)]
    assert answers == [[(0, offset)] for offset in range(6)]


def test_without_acks_a_large_batch_is_appended_or_closes_the_connection(
    broker: EmbeddedBroker, wire: Wire
) -> None:
    wire.send(request(LARGE, acks=0), 9)
    assert rows(wire.ask(request(SMALL), 9)) == [(0, 1)]
    with Wire(broker.bootstrap) as other:
        other.send(request(TOO_LARGE, acks=0), 9)
        assert other.is_closed_by_peer()


def test_other_connections_are_served_while_a_batch_is_on_a_thread(
    broker: EmbeddedBroker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    validation_result = batch_validation.validation_result

    def blocked(*args: Any, on_loop: bool) -> Any:
        assert on_loop or go_on.wait(60)
        return validation_result(*args, on_loop=on_loop)

    monkeypatch.setattr(batch_validation, "validation_result", blocked)
    asked = request(LARGE)
    wire.send(asked, 9)
    with Wire(broker.bootstrap) as other:
        assert other.ask(MetadataRequest(topics=[])).brokers
        assert rows(other.ask(request(SMALL), 9)) == [(0, 0)]
        go_on.set()
        assert rows(wire.receive(asked, 9)) == [(0, 1)]


def test_a_broker_whose_session_ends_while_a_batch_is_on_a_thread_does_not_append_it(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a suspended process: nothing but the clock has told it yet."""
    validation_result = batch_validation.validation_result
    has_ended = threading.Event()

    def ending(*args: Any, on_loop: bool) -> Any:
        if not on_loop:
            has_ended.set()
        return validation_result(*args, on_loop=on_loop)

    check = ImageFollower.check_session

    def checked(follower: ImageFollower) -> None:
        if has_ended.is_set():
            follower.stop_leading()
        check(follower)

    monkeypatch.setattr(batch_validation, "validation_result", ending)
    monkeypatch.setattr(ImageFollower, "check_session", checked)
    assert rows(wire.ask(request(LARGE), 9)) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


def test_no_more_batches_are_on_threads_than_the_limit_says(watching: Watching) -> None:
    async def scenario() -> None:
        validation = BatchValidation(lambda: BrokerConfig(felice_large_batches_max_at_once=2))
        verdicts = await asyncio.gather(
            *(validation.validate_large(LARGE, RULES, now_ms=0, zstd_allowed=True) for _ in range(8))
        )
        assert not any(
            isinstance(verdict, ApiError) and verdict.code == ErrorCode.CORRUPT_MESSAGE
            for verdict in verdicts
        )

    asyncio.run(scenario())
    assert len(watching.large_on) == 8
    assert watching.most <= 2


def test_a_thread_counts_until_it_has_ended_though_its_client_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on, began = threading.Event(), []

    def blocked(*args: Any, on_loop: bool) -> ApiError:
        began.append(threading.get_ident())
        assert go_on.wait(60)
        return ApiError(ErrorCode.INVALID_RECORD)

    monkeypatch.setattr(batch_validation, "validation_result", blocked)

    async def scenario() -> None:
        async with asyncio.timeout(60):
            validation = BatchValidation(lambda: BrokerConfig(felice_large_batches_max_at_once=1))

            def work() -> asyncio.Task[Any]:
                return asyncio.create_task(
                    validation.validate_large(LARGE, RULES, now_ms=0, zstd_allowed=True)
                )

            left = work()
            while not began:
                await asyncio.sleep(0.01)
            left.cancel()
            await asyncio.wait([left])
            waits = work()
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(began) == 1
            go_on.set()
            await waits
            assert len(began) == 2

    asyncio.run(scenario())


def test_a_batch_is_searched_for_a_timestamp_on_a_thread(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    find = timestamps.BatchSearch.find

    def noted(search: timestamps.BatchSearch) -> Any:
        threads.append(threading.current_thread().name)
        return find(search)

    monkeypatch.setattr(timestamps.BatchSearch, "find", noted)
    now_ms = int(time.time() * 1000)
    records = [Record(index, now_ms + index, b"k", b"v") for index in range(20_000)]
    for batch_of in (records[:10], records):
        assert rows(wire.ask(request(bytes(build_batch(batch_of, Codec.GZIP))), 9))[0][0] == 0
    for timestamp, offset in (
        (now_ms + 5, 5),
        (now_ms + 15_000, 15_010),
        (-3, 20_009),
        (now_ms + 20_000, -1),
    ):
        asked = ListOffsetsTopic(
            name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
        )
        [row] = wire.ask(ListOffsetsRequest(topics=[asked]), 8).topics[0].partitions
        assert (row.error_code, row.offset) == (0, offset)
    assert len(threads) == 3
    assert len(set(threads) - {"MainThread"}) >= 1
    assert all(name.startswith("asyncio") for name in threads)
