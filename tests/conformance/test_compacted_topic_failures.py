"""A compacted topic whose broker fails, and which others delete: what a caller is told, and what is written."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from felice.client import KafkaError, KafkaException
from felice.client.aio import Producer
from felice.client.compacted import identity
from felice.client.compacted.errors import Fenced, FollowingStopped, OutcomeUnknown
from felice.client.compacted.topic import CompactedTopic
from felice.protocol.errors import ErrorCode
from felice.testing import AsyncBroker, Cluster
from waiting import until

NAME = "_mapping"
FENCE = "mapping-writer"

BytesTopic = CompactedTopic[bytes, bytes]


def with_broker(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test, a coroutine, with a broker of its own."""

    @wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        async def main(directory: str) -> None:
            async with AsyncBroker(data_dir=directory) as broker:
                await test(broker, *arguments, **fixtures)

        # A directory of its own: a broker without one loses everything when it stops.
        with TemporaryDirectory() as directory:
            asyncio.run(main(directory))

    # pytest looks for a fixture for each parameter; the broker is none.
    signature = inspect.signature(test)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    return run


def topic_of(broker: AsyncBroker | Cluster, **options: Any) -> BytesTopic:
    config = {
        "bootstrap.servers": broker.bootstrap,
        "reconnect.backoff.max.ms": 200,
        "client.id": options.pop("client_id", "topic"),
    }
    return CompactedTopic(config, NAME, **{"replication_factor": 1, **options})


async def leading(broker: AsyncBroker, **options: Any) -> BytesTopic:
    """A topic that is started, and whose fence is taken over."""
    topic = topic_of(broker, fence=FENCE, **options)
    await topic.start()
    await topic.take_over()
    return topic


# Brokers that are down


@with_broker
async def test_start_waits_for_a_broker_and_names_the_reason_if_none_comes(broker: AsyncBroker) -> None:
    topic = topic_of(broker)
    await broker.stop()
    with pytest.raises(KafkaException, match="topic '_mapping' is not ready in 1 s: .*[Rr]efused") as raised:
        await topic.start(1.0)
    assert raised.value.code == KafkaError._TIMED_OUT
    with pytest.raises(KafkaException, match="not followed"):
        await topic.write([(b"a", b"1")])
    starting = asyncio.create_task(topic.start())
    await broker.start()
    await starting
    await topic.wait_read(await topic.write([(b"a", b"1")]))
    assert topic.mapping == {b"a": b"1"}
    await topic.stop()


@pytest.mark.parametrize("fence", [None, FENCE])
def test_calls_wait_for_a_broker_that_is_down_and_go_on_when_it_returns(
    fence: str | None, tmp_path: Path
) -> None:
    async def main() -> None:
        async with AsyncBroker(data_dir=tmp_path) as broker:
            topic = topic_of(broker, fence=fence, write_timeout_s=60.0)
            await topic.start()
            if fence is not None:
                await topic.take_over()
            await topic.write([(b"a", b"before")])
            await broker.stop()
            with pytest.raises(KafkaException, match="no broker told its end in time.*[Rr]efused") as raised:
                await topic.wait_end(0.5)
            assert raised.value.code == KafkaError._TIMED_OUT
            writing = asyncio.create_task(topic.write([(b"a", b"after")]))
            await asyncio.sleep(0.2)
            assert not writing.done()
            await broker.start()
            await topic.wait_read(await writing)
            assert topic.mapping == {b"a": b"after"}
            await topic.stop()

    asyncio.run(main())


@with_broker
async def test_a_write_that_no_broker_gets_in_time_is_not_written_and_the_next_one_is(
    broker: AsyncBroker,
) -> None:
    topic = await leading(broker, write_timeout_s=0.5)
    await broker.stop()
    with pytest.raises(KafkaException, match="nothing was written") as raised:
        await topic.write([(b"a", b"lost")])
    assert not isinstance(raised.value, OutcomeUnknown)
    await broker.start()

    async def write() -> bool:
        try:
            await topic.write([(b"b", b"1")])
        except OutcomeUnknown:
            raise
        except KafkaException as error:
            assert error.error.retriable() or error.code == KafkaError._MSG_TIMED_OUT
            return False
        return True

    while not await write():
        await asyncio.sleep(0.05)
    await topic.wait_end()
    assert topic.mapping == {b"b": b"1"}
    await topic.stop()


def test_writes_and_reading_go_on_when_the_leader_of_the_topic_is_killed() -> None:
    async def main(cluster: Cluster) -> None:
        topic = topic_of(cluster, fence=FENCE, replication_factor=3, write_timeout_s=60.0)
        other = topic_of(cluster, replication_factor=3)
        await topic.start()
        await other.start()
        await topic.take_over()
        await topic.write([(b"a", b"1")])
        await asyncio.to_thread(cluster.wait_in_sync)
        cluster.kill_broker(cluster.leader(NAME))
        offset = await topic.write([(b"b", b"2")])
        await other.wait_read(offset)
        assert other.mapping == {b"a": b"1", b"b": b"2"}
        await topic.stop()
        await other.stop()

    with Cluster(brokers=3) as cluster:
        asyncio.run(main(cluster))


# Lost responses


@with_broker
async def test_a_commit_whose_response_is_lost_is_repeated(broker: AsyncBroker) -> None:
    topic = await leading(broker)
    with broker.faults.drop("EndTxn", applied=True):
        await topic.write([(b"a", b"1"), (b"b", b"1")])
    broker.faults.assert_all_fired()
    assert await topic.wait_end() and topic.mapping == {b"a": b"1", b"b": b"1"}
    await topic.stop()


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_without_a_response_has_an_unknown_outcome_until_the_next_take_over(applied: bool) -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            topic = await leading(broker, write_timeout_s=0.5)
            hole = broker.faults.black_hole("EndTxn", applied=applied)
            with hole, pytest.raises(OutcomeUnknown, match="take_over"):
                await topic.write([(b"a", b"1"), (b"b", b"1")])
            with pytest.raises(KafkaException, match="the outcome of the last write is unknown") as raised:
                await topic.write([(b"c", b"1")])
            assert raised.value.code == KafkaError._STATE
            await topic.take_over()
            await topic.wait_end()
            assert topic.mapping == ({b"a": b"1", b"b": b"1"} if applied else {})
            await topic.write([(b"c", b"1")])
            await topic.stop()

    asyncio.run(main())


@pytest.mark.parametrize("applied", [True, False])
def test_a_writer_that_was_fenced_while_its_response_was_lost_does_not_know_the_outcome(
    applied: bool,
) -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            older = await leading(broker, client_id="older")
            newer = topic_of(broker, fence=FENCE, client_id="newer")
            await newer.start()
            # The second attempt waits, so that the other writer takes over before it.
            broker.faults.drop("EndTxn", client_id="older", applied=applied)
            late = broker.faults.black_hole("FindCoordinator", client_id="older")
            writing = asyncio.create_task(older.write([(b"a", b"1")]))
            await until(lambda: late.fired or writing.done())
            await newer.take_over()
            await newer.wait_end()
            seen = dict(newer.mapping)
            late.remove()
            with pytest.raises(OutcomeUnknown):
                await writing
            assert seen == ({b"a": b"1"} if applied else {})
            await older.take_over()
            await older.wait_end()
            assert older.mapping == seen
            await older.stop()
            await newer.stop()

    asyncio.run(main())


@with_broker
async def test_a_writer_that_was_fenced_between_its_records_and_the_commit_adds_nothing(
    broker: AsyncBroker,
) -> None:
    older = await leading(broker, client_id="older")
    newer = topic_of(broker, fence=FENCE, client_id="newer")
    await newer.start()
    slow = broker.faults.delay("Produce", 2_000, client_id="older", times=1)
    writing = asyncio.create_task(older.write([(b"a", b"1")]))
    await until(lambda: slow.fired)
    await newer.take_over()
    await newer.write([(b"a", b"newer")])
    with pytest.raises(Fenced):
        await writing
    await newer.wait_end()
    assert newer.mapping == {b"a": b"newer"}
    await older.stop()
    await newer.stop()


@with_broker
async def test_a_write_without_a_fence_and_without_a_response_has_an_unknown_outcome(
    broker: AsyncBroker,
) -> None:
    topic = topic_of(broker, write_timeout_s=0.5)
    await topic.start()
    hole = broker.faults.black_hole("Produce", applied=True)
    with hole, pytest.raises(OutcomeUnknown, match="may be written"):
        await topic.write([(b"a", b"1")])
    await topic.write([(b"b", b"1")])
    await topic.wait_end()
    assert topic.mapping == {b"a": b"1", b"b": b"1"}
    await topic.stop()


@with_broker
async def test_a_refusal_of_a_repeated_write_without_a_fence_leaves_the_first_attempt_open(
    broker: AsyncBroker,
) -> None:
    topic = topic_of(broker)
    await topic.start()
    broker.faults.drop("Produce", applied=True)
    broker.faults.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(OutcomeUnknown):
        await topic.write([(b"a", b"1")])
    broker.faults.assert_all_fired()
    await topic.wait_end()
    assert topic.mapping == {b"a": b"1"}
    await topic.stop()


@pytest.mark.parametrize("fence", [None, FENCE])
def test_an_offset_that_the_broker_no_longer_knows_is_at_most_the_end(fence: str | None) -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            topic = topic_of(broker, fence=fence)
            await topic.start()
            if fence is not None:
                await topic.take_over()
            # As for a repeated batch that is older than what the broker remembers of the producer.
            broker.faults.fail("Produce", ErrorCode.DUPLICATE_SEQUENCE_NUMBER, applied=True)
            await topic.wait_read(await topic.write([(b"a", b"1"), (b"b", b"1")]))
            broker.faults.assert_all_fired()
            assert topic.mapping == {b"a": b"1", b"b": b"1"}
            await topic.stop()

    asyncio.run(main())


# Refused writes


@pytest.mark.parametrize("fence", [None, FENCE])
def test_a_refused_write_writes_nothing_and_the_next_one_is_written(fence: str | None) -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            topic = topic_of(broker, fence=fence)
            await topic.start()
            if fence is not None:
                await topic.take_over()
            broker.faults.fail("Produce", ErrorCode.INVALID_RECORD)
            with pytest.raises(KafkaException) as raised:
                await topic.write([(b"a", b"1"), (b"b", b"1")])
            assert raised.value.code == ErrorCode.INVALID_RECORD
            assert not isinstance(raised.value, OutcomeUnknown | Fenced)
            await topic.write([(b"c", b"1")])
            await topic.wait_end()
            assert topic.mapping == {b"c": b"1"}
            await topic.stop()

    asyncio.run(main())


@pytest.mark.parametrize("fence", [None, FENCE])
def test_only_a_fence_lets_a_write_be_larger_than_a_batch(fence: str | None) -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            topic = topic_of(broker, fence=fence)
            await topic.start()
            records: list[tuple[bytes, bytes | None]] = [
                (b"%d" % number, bytes(300_000)) for number in range(5)
            ]
            with pytest.raises(KafkaException) as raised:
                await topic.write([(b"a", bytes(1_000_001))])
            assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
            if fence is None:
                with pytest.raises(KafkaException, match="one batch") as raised:
                    await topic.write(records)
                assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
            else:
                await topic.take_over()
                await topic.wait_read(await topic.write(records))
            assert len(topic.mapping) == (0 if fence is None else 5)
            await topic.stop()

    asyncio.run(main())


@pytest.mark.parametrize("fence", [None, FENCE])
def test_a_batch_that_the_broker_finds_too_large_is_split_only_in_a_transaction(fence: str | None) -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            topic = topic_of(broker, fence=fence, topic_configs={"max.message.bytes": "2000"})
            await topic.start()
            records: list[tuple[bytes, bytes | None]] = [(b"%d" % number, bytes(400)) for number in range(9)]
            if fence is None:
                with pytest.raises(KafkaException) as raised:
                    await topic.write(records)
                assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
                assert await topic.wait_end() == 0
            else:
                await topic.take_over()
                await topic.wait_read(await topic.write(records))
                assert len(topic.mapping) == 9
            await topic.stop()

    asyncio.run(main())


@with_broker
async def test_cancelled_writes_leave_the_writer_usable(broker: AsyncBroker) -> None:
    topic = await leading(broker)
    with broker.faults.delay("Produce", 500, times=1) as slow:
        writing = asyncio.create_task(topic.write([(b"a", b"1")]))
        await until(lambda: slow.fired)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    await topic.write([(b"b", b"1")])
    await topic.wait_end()
    assert topic.mapping == {b"b": b"1"}
    await topic.stop()


# The topic itself


@with_broker
async def test_a_topic_that_was_created_again_is_another_topic(broker: AsyncBroker) -> None:
    topic = await leading(broker)
    await topic.write([(b"a", b"1")])
    await broker.delete_topic(NAME)
    await broker.create_topic(NAME, configs={"cleanup.policy": "compact"})
    with pytest.raises(FollowingStopped, match="deleted and created again"):
        while True:
            await topic.wait_end()
            await asyncio.sleep(0.05)
    with pytest.raises(FollowingStopped):
        await topic.write([(b"b", b"1")])
    with pytest.raises(FollowingStopped):
        await topic.take_over()
    assert await broker.records(NAME) == []
    await topic.stop()
    await topic.start()
    assert topic.mapping == {}
    await topic.stop()


@pytest.mark.parametrize("fence", [None, FENCE])
def test_a_write_never_goes_to_another_topic_of_the_name(fence: str | None) -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            topic = topic_of(broker, fence=fence)
            await topic.start()
            if fence is not None:
                await topic.take_over()
            await topic.write([(b"a", b"1")])
            # The follower does not learn of it: only the writer can.
            with broker.faults.black_hole("Fetch"):
                await broker.delete_topic(NAME)
                await broker.create_topic(NAME, configs={"cleanup.policy": "compact"})
                # Without a fence, an attempt that was refused because the topic's id is unknown leaves it open.
                with pytest.raises(FollowingStopped if fence else (FollowingStopped, OutcomeUnknown)):
                    await topic.write([(b"b", b"1")])
                with pytest.raises(FollowingStopped, match="its id changed"):
                    await topic.write([(b"b", b"1")])
            assert await broker.records(NAME) == []
            await topic.stop()

    asyncio.run(main())


@with_broker
async def test_a_deleted_topic_stops_the_following(
    broker: AsyncBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "MISSING_S", 0.5)
    topic = topic_of(broker)
    await topic.start()
    await broker.delete_topic(NAME)
    with pytest.raises(FollowingStopped, match="topic '_mapping' was deleted"):
        await topic.wait_read(0)
    with pytest.raises(FollowingStopped):
        await topic.write([(b"a", b"1")])
    await topic.stop()


@with_broker
async def test_the_end_is_behind_open_transactions_of_other_producers(broker: AsyncBroker) -> None:
    topic, writer = topic_of(broker), topic_of(broker)
    await topic.start()
    await writer.start()
    async with Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "other"}) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_and_wait(NAME, b"1", b"open", 0)
        offset = await writer.write([(b"a", b"1")])
        with pytest.raises(KafkaException, match="was not read in time; read up to 0"):
            await topic.wait_end(0.3)
        waiting = asyncio.create_task(topic.wait_end())
        await producer.commit_transaction()
        assert await waiting > offset
    assert topic.mapping == {b"open": b"1", b"a": b"1"}
    await topic.stop()
    await writer.stop()


@with_broker
async def test_fewer_brokers_than_replicas_are_warned_of(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topic_of(broker, replication_factor=3)
    with caplog.at_level(logging.WARNING, "felice.client.compacted"):
        await topic.start()
    assert "replication factor 1, below the wanted 3" in caplog.text
    await topic.stop()
