"""A compacted topic as a mapping, against a real broker: reading, following, writing, fences."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from felice.client import KafkaError, KafkaException
from felice.client.admin.core import Admin
from felice.client.admin.model import NewTopic
from felice.client.compacted.errors import Fenced, FollowingStopped, UnfitTopic
from felice.client.compacted.records import CompactedRecord, Conversion
from felice.client.compacted.topic import CompactedTopic
from felice.testing import AsyncBroker

NAME = "_mapping"
FENCE = "mapping-writer"

TEXT: Conversion[str, str] = Conversion(str.encode, bytes.decode, str.encode, bytes.decode)

BytesTopic = CompactedTopic[bytes, bytes]


def with_broker(test: Callable[[AsyncBroker], Awaitable[None]]) -> Callable[[], None]:
    """The test as a coroutine with a broker of its own."""

    def run() -> None:
        async def main() -> None:
            async with AsyncBroker() as broker:
                await test(broker)

        asyncio.run(main())

    run.__name__ = test.__name__  # type: ignore[attr-defined]
    return run


def topic_of(broker: AsyncBroker, **options: Any) -> BytesTopic:
    return CompactedTopic({"bootstrap.servers": broker.bootstrap}, NAME, replication_factor=1, **options)


@with_broker
async def test_records_are_read_to_the_end_and_followed(broker: AsyncBroker) -> None:
    seen: list[CompactedRecord] = []
    writer, reader = topic_of(broker), topic_of(broker, on_record=seen.append)
    await writer.start()
    await writer.write([(b"a", b"1"), (b"b", b"1")])
    await reader.start()
    assert reader.mapping == {b"a": b"1", b"b": b"1"}
    offset = await writer.write([(b"a", b"2"), (b"b", None)])
    await reader.wait_read(offset)
    assert reader.mapping == {b"a": b"2"}
    assert [(row.offset, row.key, row.value) for row in seen] == [
        (0, b"a", b"1"),
        (1, b"b", b"1"),
        (2, b"a", b"2"),
        (3, b"b", None),
    ]
    assert offset == 3 and await writer.wait_end() == 4
    await writer.stop()
    await reader.stop()


@with_broker
async def test_the_newest_writer_fences_the_others(broker: AsyncBroker) -> None:
    older, newer = topic_of(broker, fence=FENCE), topic_of(broker, fence=FENCE)
    await older.start()
    with pytest.raises(KafkaException, match="take_over"):
        await older.write([(b"a", b"too early")])
    await older.take_over()
    await older.write([(b"a", b"older")])
    await newer.start()
    await newer.take_over()
    for _ in range(2):
        with pytest.raises(Fenced):
            await older.write([(b"a", b"late"), (b"b", b"late")])
    await newer.write([(b"a", b"newer")])
    await older.wait_end()
    assert older.mapping == newer.mapping or await newer.wait_end()
    assert older.mapping == {b"a": b"newer"}
    await older.take_over()
    await older.write([(b"a", b"again")])
    await newer.wait_end()
    assert newer.mapping == {b"a": b"again"}
    await older.stop()
    await newer.stop()


@with_broker
async def test_keys_and_values_are_converted(broker: AsyncBroker) -> None:
    config = {"bootstrap.servers": broker.bootstrap}
    topic = CompactedTopic(config, NAME, conversion=TEXT, replication_factor=1)
    await topic.start()
    await topic.wait_read(await topic.write([("clé", "valeur")]))
    assert topic.mapping == {"clé": "valeur"}
    await topic.stop()


@with_broker
async def test_an_error_of_on_record_stops_the_following(broker: AsyncBroker) -> None:
    seen: list[int] = []

    def refuse_the_second(record: CompactedRecord) -> None:
        seen.append(record.offset)
        if record.offset == 1:
            raise ValueError("no such command")

    topic = topic_of(broker, on_record=refuse_the_second)
    await topic.start()
    await topic.wait_read(await topic.write([(b"a", b"")]))
    offset = await topic.write([(b"b", b""), (b"c", b"")])
    with pytest.raises(FollowingStopped, match="offset 1 was not applied: ValueError: no such command"):
        await topic.wait_read(offset)
    with pytest.raises(FollowingStopped) as raised:
        await topic.write([(b"d", b"")])
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(FollowingStopped):
        await topic.wait_end()
    assert seen == [0, 1]
    await topic.stop()


@pytest.mark.parametrize(
    ("partitions", "policy", "reason"),
    [
        (3, "compact", "has 3 partitions, it must have 1"),
        (1, "delete", "cleanup.policy=delete, it must be compact"),
        (1, "compact,delete", "cleanup.policy=compact,delete, it must be compact"),
    ],
)
def test_a_topic_that_cannot_be_a_mapping_is_refused(partitions: int, policy: str, reason: str) -> None:
    async def main() -> None:
        async with AsyncBroker() as broker, Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            await admin.create_topics([NewTopic(NAME, partitions, 1, config={"cleanup.policy": policy})])
            topic = topic_of(broker)
            with pytest.raises(UnfitTopic, match=reason) as raised:
                await topic.start()
            assert raised.value.code == KafkaError._INVALID_ARG

    asyncio.run(main())
