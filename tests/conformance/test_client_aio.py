"""Our asyncio client, and the blocking one for executors, against a real broker."""

import asyncio
import pickle
import uuid
from typing import Any

import pytest

from conformance.targets import Target
from felice.client import KafkaException, NewTopic, TopicPartition
from felice.client.aio import Admin, Consumer, Producer
from felice.client.blocking import EARLIEST, LATEST, BlockingClient, OffsetOutOfRange
from felice.records.builder import build_batch
from felice.records.compression import Codec
from felice.records.reader import read_records
from felice.records.record import Record
from waiting import LIMIT_S


def new_name() -> str:
    return f"aio-{uuid.uuid4().hex[:8]}"


async def create(bootstrap: str, name: str, partitions: int) -> None:
    async with Admin({"bootstrap.servers": bootstrap}) as admin:
        assert await admin.create_topics([NewTopic(name, partitions)]) == {name: None}


def test_records_go_there_and_back_as_coroutines(broker: Target) -> None:
    async def main() -> None:
        name = new_name()
        await create(broker.bootstrap, name, 2)
        async with Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1}) as producer:
            sent = [await producer.send(name, b"%d" % number, partition=number % 2) for number in range(100)]
            messages = await asyncio.gather(*sent)
            assert sorted(message.offset() or 0 for message in messages) == sorted([*range(50), *range(50)])
            assert (await producer.send_and_wait(name, "last", key="k")).error() is None
            with pytest.raises(KafkaException):
                await producer.send(name, b"v", partition=9)
        revoked: list[Any] = []

        async def on_revoke(partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            revoked.extend(partitions)

        config = {"bootstrap.servers": broker.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
        async with Consumer(config) as consumer:
            await consumer.subscribe([name], on_revoke=on_revoke)
            values = set()
            async with asyncio.timeout(LIMIT_S):
                async for message in consumer:
                    values.add(message.value())
                    if len(values) == 101:
                        break
            rows = await consumer.commit()
            assert sum(row.offset for row in rows) == 101
        assert len(revoked) == 2

    asyncio.run(main())


def test_full_queue_makes_the_sender_wait_instead_of_failing(broker: Target) -> None:
    async def main() -> None:
        name = new_name()
        await create(broker.bootstrap, name, 1)
        config = {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": 10, "linger.ms": 0}
        async with Producer(config) as producer:
            for number in range(200):
                await producer.send(name, b"%d" % number)
                assert len(producer) <= 10
            await producer.flush()
            assert len(producer) == 0

    asyncio.run(main())


@pytest.mark.parametrize("codec", list(Codec))
def test_raw_batches_cross_the_blocking_client_whole(broker: Target, codec: Codec) -> None:
    name = new_name()
    asyncio.run(create(broker.bootstrap, name, 3))
    batches = [
        (name, number % 3, build_batch([Record(0, 1000 + i, b"k", b"%d" % number) for i in range(50)], codec))
        for number in range(30)
    ]
    with pickle.loads(pickle.dumps(BlockingClient(broker.bootstrap))) as client:
        rows = client.produce(batches)
        assert [row.base_offset for row in rows] == [number // 3 * 50 for number in range(30)]
        partitions = [(name, number) for number in range(3)]
        ends = client.list_offsets(dict.fromkeys(partitions, LATEST))
        starts = client.list_offsets(dict.fromkeys(partitions, EARLIEST))
        assert [ends[key].offset for key in partitions] == [500] * 3
        assert client.list_offsets({(name, 0): 1049})[name, 0].offset == 49
        found: dict[int, list[int]] = {0: [], 1: [], 2: []}
        ranges = {key: (starts[key].offset, ends[key].offset) for key in partitions}
        for piece in client.fetch(ranges, max_bytes=4000):
            found[piece.partition] += [record.offset for record in read_records(piece.data)]
        assert found == {number: list(range(500)) for number in range(3)}
        with pytest.raises(OffsetOutOfRange):
            list(client.fetch_raw(name, 0, 10_000, 10_001))
