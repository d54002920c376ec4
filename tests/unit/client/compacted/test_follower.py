"""What ends the following of a topic, and what does not, with a scripted broker."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from felice.client.compacted.errors import FollowingStopped
from felice.client.compacted.follower import Follower, OnRecord
from felice.client.compacted.identity import TopicIdentity
from felice.client.compacted.records import CompactedRecord
from felice.client.options import ConsumerSettings
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from felice.records.batch import HEADER_SIZE
from felice.records.builder import build_batch
from felice.records.record import Record
from unit.client.fake_broker import Disconnect, FakeBroker
from waiting import until


def batch(*values: bytes) -> bytearray:
    records = [Record(number, 7, value, value, (("h", b"x"),)) for number, value in enumerate(values)]
    return bytearray(build_batch(records))


class Followed:
    """A scripted broker with the topic `t`, and what a follower of it read."""

    def __init__(self) -> None:
        self.broker = FakeBroker({"t": 1})
        self.seen: list[CompactedRecord] = []

    @asynccontextmanager
    async def follower(self, on_record: OnRecord | None = None) -> AsyncIterator[Follower]:
        config = {
            "bootstrap.servers": self.broker.bootstrap,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
            "fetch.error.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
        }
        identity = TopicIdentity("t", self.broker.topics["t"][0])
        follower = Follower(ConsumerSettings.parse(config), identity, on_record or self.seen.append)
        try:
            await follower.start()
            yield follower
        finally:
            await follower.stop()

    @property
    def keys(self) -> list[bytes | None]:
        return [record.key for record in self.seen]


def refusing(code: ErrorCode) -> Any:
    """A response to Fetch with this error of the partition."""

    def answer(request: FetchRequest, version: int) -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionData(partition_index=row.partition, error_code=code, records=b"")
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


def test_records_arrive_whole_and_the_position_follows() -> None:
    async def main() -> None:
        followed = Followed()
        with followed.broker as broker:
            broker.append("t", 0, batch(b"a", b"b"))
            async with followed.follower() as follower:
                assert await follower.end(0) == 2
                await follower.wait_position(2)
                assert followed.seen[1] == CompactedRecord(b"b", b"b", 1, 7, [("h", b"x")])
                waiting = asyncio.create_task(follower.wait_position(3))
                broker.append("t", 0, batch(b"c"))
                await waiting
                assert followed.keys == [b"a", b"b", b"c"]

    asyncio.run(main())


def test_a_record_is_done_before_the_next_one_and_the_position() -> None:
    """What is done with a record may take a while, and is a coroutine then."""

    async def scenario() -> None:
        followed, goes_on = Followed(), asyncio.Event()

        async def slow(record: CompactedRecord) -> None:
            followed.seen.append(record)
            await goes_on.wait()

        with followed.broker as broker:
            broker.append("t", 0, batch(b"a", b"b"))
            async with followed.follower(slow) as follower:
                await until(lambda: followed.keys == [b"a"])
                await asyncio.sleep(0)
                assert (followed.keys, follower.position) == ([b"a"], 0)
                goes_on.set()
                await follower.wait_position(2)
                assert followed.keys == [b"a", b"b"]

    asyncio.run(scenario())


def test_a_damaged_batch_ends_the_following_before_anything_behind_it() -> None:
    async def main() -> None:
        followed = Followed()
        with followed.broker as broker:
            damaged = batch(b"b")
            damaged[HEADER_SIZE + 8] ^= 1
            broker.append("t", 0, batch(b"a"))
            broker.append("t", 0, damaged)
            broker.append("t", 0, batch(b"c"))
            async with followed.follower() as follower:
                with pytest.raises(FollowingStopped, match="cannot be read any further.*offset 1.*CRC"):
                    await follower.wait_position(3)
                assert followed.keys == [b"a"]
                with pytest.raises(FollowingStopped):
                    await follower.end(0)

    asyncio.run(main())


def test_records_that_were_removed_before_they_were_read_end_the_following() -> None:
    async def main() -> None:
        followed = Followed()
        with followed.broker as broker:
            broker.script(FetchRequest, refusing(ErrorCode.OFFSET_OUT_OF_RANGE))
            async with followed.follower() as follower:
                with pytest.raises(FollowingStopped, match="offset 0 is out of range"):
                    await follower.wait_position(1)

    asyncio.run(main())


@pytest.mark.parametrize(
    "trouble",
    [
        Disconnect,
        refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        refusing(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        refusing(ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_other_errors_do_not_end_the_following(trouble: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        followed = Followed()
        with followed.broker as broker, caplog.at_level(logging.WARNING):
            broker.script(FetchRequest, *[trouble] * 5)
            async with followed.follower() as follower:
                await until(lambda: not broker.scripts[FetchRequest])
                broker.append("t", 0, batch(b"a"))
                await follower.wait_position(1)
                assert follower.trouble is None
        refused = [row for row in caplog.messages if "authorization" in row]
        assert len(refused) == (1 if "authorization" in caplog.text else 0)

    asyncio.run(main())


def test_another_topic_of_the_name_ends_the_following_and_none_of_its_records_is_passed_on() -> None:
    async def main() -> None:
        followed = Followed()
        with followed.broker as broker:
            broker.append("t", 0, batch(b"a"))
            async with followed.follower() as follower:
                await follower.wait_position(1)
                fetch, (old, _) = broker.handlers[FetchRequest], broker.topics["t"]

                def by_id(request: FetchRequest, version: int) -> Any:
                    known = all(topic.topic_id != old for topic in request.topics)
                    return (fetch if known else refusing(ErrorCode.UNKNOWN_TOPIC_ID))(request, version)

                broker.handlers[FetchRequest] = by_id
                refused = len(broker.asked(FetchRequest)) + 2
                await until(lambda: len(broker.asked(FetchRequest)) > refused)
                broker.append("t", 0, batch(b"of the new topic"))
                broker.topics["t"] = uuid.uuid4(), 1
                with pytest.raises(FollowingStopped, match="its id changed"):
                    await follower.wait_position(2)
        assert followed.keys == [b"a"]

    asyncio.run(main())
