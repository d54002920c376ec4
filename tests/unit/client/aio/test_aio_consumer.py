"""The asyncio consumers, with this package's names and with confluent_kafka's."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from felice.client import OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from felice.client.aio import AIOConsumer, Consumer
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from felice.records.builder import build_batch
from felice.records.record import Record
from unit.client.fake_broker import FakeBroker, Hang


class Committing(FakeBroker):
    """Accepts every commit, and knows the commits so far."""

    def __init__(self) -> None:
        super().__init__({"t": 2})
        self.committed: dict[int, tuple[int, str]] = {}
        self.handlers[OffsetCommitRequest] = self._commit
        self.handlers[OffsetFetchRequest] = self._fetch_commits

    def _commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        rows = [row for topic in request.topics for row in topic.partitions]
        for row in rows:
            self.committed[row.partition_index] = row.committed_offset, row.committed_metadata
        answers = [OffsetCommitResponsePartition(partition_index=row.partition_index) for row in rows]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=answers)])

    def _fetch_commits(self, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        wanted = [number for topic in request.groups[0].topics or [] for number in topic.partition_indexes]
        rows = []
        for number in wanted:
            offset, text = self.committed.get(number, (-1, ""))
            rows.append(
                OffsetFetchResponsePartitions(partition_index=number, committed_offset=offset, metadata=text)
            )
        topics = [OffsetFetchResponseTopics(name="t", partitions=rows)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


@pytest.fixture
def broker() -> Iterator[Committing]:
    with Committing() as started:
        for value in (b"0", b"1", b"2"):
            started.append("t", 0, build_batch([Record(0, 1, None, value)]))
        started.append("t", 1, build_batch([Record(0, 1, None, b"other")]))
        yield started


def config(broker: FakeBroker, options: dict[str, Any]) -> dict[str, Any]:
    more = {name if name == "on_commit" else name.replace("_", "."): value for name, value in options.items()}
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "fetch.wait.max.ms": 10,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        **more,
    }


@asynccontextmanager
async def native(broker: FakeBroker, **options: Any) -> AsyncIterator[Consumer]:
    async with Consumer(config(broker, options)) as consumer:
        yield consumer


@asynccontextmanager
async def named(broker: FakeBroker, **options: Any) -> AsyncIterator[AIOConsumer]:
    async with AIOConsumer(config(broker, options)) as consumer:
        yield consumer


def at(offset: int, partition: int = 0) -> TopicPartition:
    return TopicPartition("t", partition, offset)


def facts(rows: list[TopicPartition]) -> list[tuple[int, int]]:
    return [(row.partition, row.offset) for row in rows]


async def test_messages_come_in_their_order(broker: Committing) -> None:
    async with native(broker) as consumer:
        consumer.assign([at(0)])
        values = []
        async for message in consumer:
            values.append(message.value())
            if len(values) == 3:
                break
        assert values == [b"0", b"1", b"2"]
        assert await consumer.poll(0.02) is None
        assert await consumer.consume(5, 0.02) == []
        broker.append("t", 0, build_batch([Record(0, 1, None, b"3")]))
        late = await consumer.poll()
        assert late is not None and late.value() == b"3"


async def test_an_iteration_raises_error_events(broker: Committing) -> None:
    async with native(broker, enable_partition_eof=True) as consumer:
        consumer.assign([at(3)])
        with pytest.raises(KafkaException) as raised:
            async for _ in consumer:
                pass
        assert raised.value.code == KafkaError._PARTITION_EOF


async def test_consume_returns_what_there_is_at_once(broker: Committing) -> None:
    async with native(broker) as consumer:
        consumer.assign([at(1)])
        messages = await consumer.consume(100, 60)
        while len(messages) < 2:
            messages += await consumer.consume(100, 60)
        assert [message.value() for message in messages] == [b"1", b"2"]
        one = native(broker)
        async with one as second:
            second.assign([at(0)])
            assert len(await second.consume(1)) == 1


async def test_consume_of_the_other_names_waits_for_all(broker: Committing) -> None:
    async with named(broker) as consumer:
        await consumer.assign([at(0)])
        assert [message.value() for message in await consumer.consume(2)] == [b"0", b"1"]
        first = await consumer.poll()
        assert first is not None and first.value() == b"2"
        started = time.monotonic()
        assert await consumer.consume(5, 0.1) == []
        assert time.monotonic() - started >= 0.1
        assert await consumer.poll(0) is None


async def test_the_assignment_changes_in_steps(broker: Committing) -> None:
    async with named(broker) as consumer:
        await consumer.assign([at(1)])
        await consumer.incremental_assign([at(0, 1)])
        assert facts(await consumer.assignment()) == [(0, OFFSET_INVALID), (1, OFFSET_INVALID)]
        messages = await consumer.consume(3, 60)
        assert sorted(message.value() or b"" for message in messages) == [b"1", b"2", b"other"]
        await consumer.incremental_unassign([at(0, 1)])
        assert facts(await consumer.assignment()) == [(0, OFFSET_INVALID)]
        await consumer.unassign()
        assert await consumer.assignment() == []


async def test_seek_pause_and_resume(broker: Committing) -> None:
    async with named(broker) as consumer:
        await consumer.assign([at(0)])
        assert len(await consumer.consume(3, 60)) == 3
        await consumer.pause([at(0)])
        await consumer.seek(at(1))
        assert await consumer.poll(0.1) is None
        await consumer.resume([at(0)])
        message = await consumer.poll(60)
        assert message is not None and message.value() == b"1"
        assert facts(await consumer.position([at(0), at(0, 1)])) == [(0, 2), (1, OFFSET_INVALID)]


async def test_native_seek_pause_and_resume(broker: Committing) -> None:
    async with native(broker) as consumer:
        consumer.assign([at(0)])
        assert facts(consumer.assignment()) == [(0, OFFSET_INVALID)]
        assert await consumer.poll(60) is not None
        consumer.pause([at(0)])
        consumer.seek(at(2))
        assert await consumer.poll(0.1) is None
        consumer.resume([at(0)])
        message = await consumer.poll(60)
        assert message is not None and message.value() == b"2"


@pytest.mark.parametrize("is_named", [True, False])
async def test_commits_of_a_message_of_offsets_and_of_positions(broker: Committing, is_named: bool) -> None:
    async with named(broker) if is_named else native(broker) as consumer:
        assigned = consumer.assign([at(0)])
        if assigned is not None:
            await assigned
        options = {"asynchronous": False} if is_named else {}
        message = await consumer.poll(60)
        assert facts(await consumer.commit(message, **options)) == [(0, 1)]
        offsets = [TopicPartition("t", 1, 5, "note")]
        assert facts(await consumer.commit(offsets=offsets, **options)) == [(1, 5)]
        assert broker.committed == {0: (1, ""), 1: (5, "note")}
        await consumer.poll(60)
        assert facts(await consumer.commit(**options)) == [(0, 2)]
        found = await consumer.committed([at(0), at(0, 1)])
        assert [(row.partition, row.offset, row.metadata) for row in found] == [(0, 2, None), (1, 5, "note")]
        with pytest.raises(ValueError, match="mutually exclusive"):
            await consumer.commit(message, offsets, **options)


async def test_a_commit_that_nobody_waits_for_is_told(broker: Committing) -> None:
    told: asyncio.Queue[Any] = asyncio.Queue()
    async with named(broker, on_commit=lambda *result: told.put_nowait(result)) as consumer:
        assert await consumer.commit(offsets=[at(4)]) is None
        error, rows = await told.get()
        assert error is None and facts(rows) == [(0, 4)]
        assert await consumer.commit() is None
        error, rows = await told.get()
        assert error == KafkaError._NO_OFFSET and rows == []


async def test_stored_offsets_are_committed(broker: Committing) -> None:
    async with named(broker, enable_auto_offset_store=False) as consumer:
        await consumer.assign([at(0), at(0, 1)])
        message = next(row for row in await consumer.consume(4, 60) if row.partition() == 0)
        await consumer.store_offsets(message)
        await consumer.store_offsets(offsets=[TopicPartition("t", 1, 1, "note")])
        with pytest.raises(ValueError, match="expected either message or offsets"):
            await consumer.store_offsets()
        assert sorted(facts(await consumer.commit(asynchronous=False) or [])) == [(0, 1), (1, 1)]
        assert broker.committed[1] == (1, "note")


async def test_offsets_by_time_and_the_ends_of_a_partition(broker: Committing) -> None:
    async with named(broker) as consumer, native(broker) as other:
        assert await consumer.get_watermark_offsets(at(0)) == (0, 3)
        assert await other.watermarks(at(0)) == (0, 3)
        assert await consumer.get_watermark_offsets(at(0), cached=True) == (OFFSET_INVALID, OFFSET_INVALID)
        await consumer.assign([at(0)])
        await consumer.consume(3, 60)
        assert await consumer.get_watermark_offsets(at(0), cached=True) == (0, 3)
        for ask in (consumer.offsets_for_times, other.offsets_for_times):
            rows = [
                ListOffsetsPartitionResponse(partition_index=0, offset=2, leader_epoch=3),
                ListOffsetsPartitionResponse(
                    partition_index=1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                ),
            ]
            answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])
            broker.script(ListOffsetsRequest, answer)
            first, second = await ask([at(77), at(88, 1)])
            assert (first.offset, first.leader_epoch, first.error) == (2, 3, None)
            assert (second.offset, second.error) == (88, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        times = [
            (row.partition_index, row.timestamp)
            for request in broker.asked(ListOffsetsRequest)[-2:]
            for row in request.topics[0].partitions
        ]
        assert times == [(0, 77), (1, 88)] * 2
        answer = ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name="t", partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=-1)]
                )
            ]
        )
        broker.script(ListOffsetsRequest, answer)
        [none] = await consumer.offsets_for_times([at(99)], 60)
        assert none.offset == OFFSET_END


async def test_the_ends_of_a_refused_partition_are_an_error(broker: Committing) -> None:
    rows = [ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    async with native(broker) as consumer:
        broker.script(
            ListOffsetsRequest,
            ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)]),
        )
        with pytest.raises(KafkaException) as raised:
            await consumer.watermarks(at(0))
        assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_topics_and_the_cluster(broker: Committing) -> None:
    async with named(broker) as consumer, native(broker) as other:
        assert sorted((await consumer.list_topics()).topics) == ["t"]
        assert sorted((await consumer.list_topics("t", 60)).topics) == ["t"]
        assert await consumer.cluster_id() == "fake"
        assert sorted((await other.metadata()).topics) == ["t"]
        assert sorted((await other.metadata(["t"])).topics) == ["t"]
        assert (await consumer.consumer_group_metadata()).group_id == "g"
        assert (other.consumer_group_metadata().group_id, other.consumer_group_metadata().generation_id) == (
            "g",
            -1,
        )
    asked = [
        None if row.topics is None else [each.name for each in row.topics]
        for row in broker.asked(MetadataRequest)
    ]
    assert asked == [None, ["t"], [], None, ["t"]]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda consumer: consumer.list_topics(timeout=0.1), KafkaError._TRANSPORT),
        (lambda consumer: consumer.cluster_id(0.1), KafkaError._TIMED_OUT),
    ],
)
async def test_questions_wait_no_longer_than_their_timeout(broker: Committing, call: Any, code: int) -> None:
    broker.script(MetadataRequest, Hang)
    async with named(broker) as consumer:
        with pytest.raises(KafkaException, match=r"no answer in 0.1 s") as late:
            await call(consumer)
        assert late.value.code == code


@pytest.mark.parametrize(
    ("handled", "call"),
    [
        (OffsetFetchRequest, lambda consumer: consumer.committed([at(0)], 0.3)),
        (ListOffsetsRequest, lambda consumer: consumer.offsets_for_times([at(0)], 0.3)),
        (ListOffsetsRequest, lambda consumer: consumer.get_watermark_offsets(at(0), 0.3)),
    ],
)
async def test_questions_about_offsets_end_after_their_timeout(
    broker: Committing, handled: type, call: Any
) -> None:
    refusal = {
        OffsetFetchRequest: OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        ),
        ListOffsetsRequest: ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name="t",
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=0, error_code=ErrorCode.OFFSET_NOT_AVAILABLE
                        )
                    ],
                )
            ]
        ),
    }[handled]
    broker.handlers[handled] = lambda request, version: refusal
    async with named(broker, request_timeout_ms=120_000) as consumer:
        for _ in range(5):
            before, started = len(broker.asked(handled)), time.monotonic()
            with contextlib.suppress(KafkaException):
                await call(consumer)
            took_s = time.monotonic() - started
            assert took_s < 60, "without the timeout of 0.3 s it is 120 s"
            if took_s <= 0.6:  # on a slow machine not each time
                assert len(broker.asked(handled)) > before + 1
                return


async def test_a_closed_consumer_refuses_calls(broker: Committing) -> None:
    consumer = AIOConsumer(config(broker, {}))
    await consumer.close()
    await consumer.close()
    for call in (
        lambda: consumer.poll(0),
        lambda: consumer.subscribe(["t"]),
        lambda: consumer.assign([at(0)]),
        lambda: consumer.assignment(),
        lambda: consumer.commit(),
        lambda: consumer.committed([at(0)], 1),
    ):
        with pytest.raises(RuntimeError, match="Consumer closed"):
            await call()


async def test_a_consumer_that_was_not_started_refuses_calls(broker: Committing) -> None:
    consumer = Consumer(config(broker, {}))
    with pytest.raises(RuntimeError, match="not started"):
        consumer.assign([at(0)])
    await consumer.close()
    await consumer.start()
    core = consumer.core
    await consumer.start()
    assert consumer.core is core
    consumer.assign([at(0)])
    assert await consumer.poll(60) is not None
    await consumer.close()
    with pytest.raises(RuntimeError, match="not started"):
        await consumer.poll(0)


async def test_a_columnar_read_takes_rows_up_to_its_limit(broker: Committing) -> None:
    pytest.importorskip("pyarrow")
    async with native(broker) as consumer:
        consumer.assign([at(0)])
        table = await consumer.consume_arrow(2, 60)
        assert table["value"].to_pylist() == [b"0", b"1"]
        started = time.monotonic()
        rest = await consumer.consume_arrow(100, 0.1, with_headers=True)
        assert rest["value"].to_pylist() == [b"2"] and "headers" in rest.column_names
        assert 0.1 <= time.monotonic() - started < 40
