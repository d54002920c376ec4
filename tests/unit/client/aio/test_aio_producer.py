"""The asyncio producers, with this package's names and with confluent_kafka's."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from felice.client import KafkaError, KafkaException
from felice.client.aio import AIOConsumer, AIOProducer, Producer
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.produce import ProduceRequest
from felice.records.reader import read_records
from unit.client.fake_broker import FakeBroker, Hang
from waiting import LIMIT_S


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 2}) as started:
        yield started


@asynccontextmanager
async def native(broker: FakeBroker, **options: Any) -> AsyncIterator[Producer]:
    async with Producer(config(broker, options)) as producer:
        yield producer


@asynccontextmanager
async def named(broker: FakeBroker, **options: Any) -> AsyncIterator[AIOProducer]:
    async with AIOProducer(config(broker, options)) as producer:
        yield producer


def config(broker: FakeBroker, options: dict[str, Any]) -> dict[str, Any]:
    more = {name.replace("_", "."): value for name, value in options.items()}
    return {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, **more}


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def test_a_record_with_every_field(broker: FakeBroker) -> None:
    async with native(broker) as producer:
        future = await producer.send("t", "v", "k", 1, 77, {"h": b"x"})
        message = await future
        plain = await producer.send_and_wait("t", b"w", partition=1)
    assert (message.topic(), message.partition(), message.offset()) == ("t", 1, 0)
    first, second = read_records(bytes(broker.logs["t", 1]))
    assert (first.key, first.value, first.timestamp, first.headers) == (b"k", b"v", 77, (("h", b"x"),))
    assert (second.key, second.value, second.headers, plain.offset()) == (None, b"w", (), 1)
    assert abs(second.timestamp / 1000 - time.time()) < 3600


async def test_a_record_with_every_field_of_the_other_names(broker: FakeBroker) -> None:
    async with named(broker) as producer:
        message = await (
            await producer.produce("t", "v", "k", partition=1, timestamp=77, headers=[("h", b"x")])
        )
        assert bool(producer) and await producer.poll(5) == 0
    assert (message.partition(), message.offset()) == (1, 0)
    [record] = read_records(bytes(broker.logs["t", 1]))
    assert (record.key, record.value, record.timestamp, record.headers) == (b"k", b"v", 77, (("h", b"x"),))


async def test_a_failed_record_raises(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, broker.produce_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    async with native(broker) as producer:
        with pytest.raises(KafkaException) as raised:
            await producer.send_and_wait("t", b"v")
        assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert len(producer) == 0 and bool(producer)


async def test_a_cancelled_future_changes_nothing_for_the_others(broker: FakeBroker) -> None:
    async with native(broker, linger_ms=50) as producer:
        first, second = [await producer.send("t", value, partition=0) for value in (b"1", b"2")]
        first.cancel()
        assert (await second).offset() == 1
    assert broker.values("t", 0) == [b"1", b"2"]


async def test_a_full_queue_makes_the_sender_wait_but_not_linger(broker: FakeBroker) -> None:
    async with native(broker, queue_buffering_max_messages=2, linger_ms=60_000) as producer:
        futures = [await producer.send("t", b"%d" % number, partition=0) for number in range(7)]
        assert len(producer) <= 2
        await producer.flush()
        assert [(await future).offset() for future in futures] == list(range(7))


async def test_a_flush_sends_what_would_linger(broker: FakeBroker) -> None:
    async with native(broker, linger_ms=60_000) as producer:
        async with asyncio.timeout(LIMIT_S / 2):
            future = await producer.send("t", b"v")
            assert len(producer) == 1
            await producer.flush()
            assert future.done() and len(producer) == 0
            # The next records linger again.
            later = await producer.send("t", b"w")
            await asyncio.sleep(0.05)
            assert not later.done()


async def test_a_flush_with_a_time_limit_returns_what_is_left(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, Hang)
    async with named(broker) as producer:
        future = await producer.produce("t", b"v")
        assert await producer.flush(0.1) == 1 == len(producer)
        await producer.purge()
        assert await producer.flush() == 0
        with pytest.raises(KafkaException):
            await future


@pytest.mark.parametrize("in_queue", [True, False])
async def test_a_purge_drops_what_waits_or_what_is_in_flight(broker: FakeBroker, in_queue: bool) -> None:
    broker.script(ProduceRequest, Hang)
    async with named(broker, max_in_flight_requests_per_connection=1) as producer:
        sent = await producer.produce("t", b"1", partition=0)
        await until(lambda: broker.asked(ProduceRequest))
        waiting = await producer.produce("t", b"2", partition=0)
        await producer.purge(in_queue=in_queue, in_flight=not in_queue)
        dropped, other = (waiting, sent) if in_queue else (sent, waiting)
        with pytest.raises(KafkaException) as raised:
            await dropped
        assert raised.value.code == (KafkaError._PURGE_QUEUE if in_queue else KafkaError._PURGE_INFLIGHT)
        assert not other.done()
        await producer.purge()


async def test_topics_and_the_cluster(broker: FakeBroker) -> None:
    async with native(broker) as producer:
        assert sorted((await producer.metadata()).topics) == ["t"]
        assert sorted((await producer.metadata(["t"])).topics) == ["t"]
    async with named(broker) as producer:
        assert sorted((await producer.list_topics()).topics) == ["t"]
        assert sorted((await producer.list_topics("t", 60)).topics) == ["t"]
        assert await producer.cluster_id() == "fake"
    asked = [
        None if row.topics is None else [each.name for each in row.topics]
        for row in broker.asked(MetadataRequest)
    ]
    assert asked == [None, ["t"], None, ["t"], []]


async def test_a_list_of_topics_waits_no_longer_than_its_timeout(broker: FakeBroker) -> None:
    broker.script(MetadataRequest, Hang)
    async with named(broker) as producer:
        with pytest.raises(KafkaException, match=r"no answer in 0.1 s") as late:
            await producer.list_topics(timeout=0.1)
        assert late.value.code == KafkaError._TRANSPORT


async def test_a_producer_that_was_not_started_refuses_calls(broker: FakeBroker) -> None:
    producer = Producer(config(broker, {}))
    for call in (
        lambda: producer.send("t"),
        producer.flush,
        producer.metadata,
        producer.init_transactions,
        producer.begin_transaction,
    ):
        with pytest.raises(RuntimeError, match="not started"):
            await call()
    await producer.close()
    await producer.start()
    core = producer._core
    await producer.start()
    assert producer._core is core
    await producer.send_and_wait("t", b"v")
    await producer.close()
    with pytest.raises(RuntimeError, match="not started"):
        await producer.send("t")


async def test_a_closed_producer_has_sent_its_records(broker: FakeBroker) -> None:
    async with native(broker, linger_ms=60_000) as producer:
        await producer.send("t", b"v", partition=1)
    assert broker.values("t", 1) == [b"v"]


async def test_callbacks_may_be_coroutines_and_may_fail(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    async def slowly(error: KafkaError) -> None:
        await asyncio.sleep(0)
        told.append(error.name())

    def at_once(error: KafkaError) -> None:
        told.append(error.name())
        raise ValueError("odd")

    async def failing(error: KafkaError) -> None:
        await asyncio.sleep(0)
        told.append(error.name())
        raise KeyError("later")

    for number, callback in enumerate((slowly, at_once, failing)):
        options = {"bootstrap.servers": "127.0.0.1:1", "error_cb": callback, "message.timeout.ms": 100}
        async with Producer(options) as producer:
            with pytest.raises(KafkaException):
                await producer.send_and_wait("t", b"v")
            await until(lambda number=number: len(told) > number)
    assert set(told) == {"_ALL_BROKERS_DOWN"}
    await asyncio.sleep(0)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "a callback raised ValueError: odd" in errors
    assert "a callback raised KeyError: 'later'" in errors


@pytest.mark.parametrize(
    ("kind", "given", "named_"),
    [
        (AIOProducer, {"max_workers": 4}, "AIOProducer: no effect.*: max_workers"),
        (
            AIOProducer,
            {"buffer_timeout": 1.0, "batch_size": 10, "executor": object()},
            "AIOProducer: no effect.*: batch_size, buffer_timeout, executor",
        ),
        (
            AIOConsumer,
            {"max_workers": 4, "executor": object()},
            "AIOConsumer: no effect.*: executor, max_workers",
        ),
        (AIOConsumer, {}, None),
        (AIOProducer, {}, None),
    ],
)
async def test_arguments_without_effect_are_named_in_a_warning(
    broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    kind: type[Any],
    given: dict[str, Any],
    named_: str | None,
) -> None:
    options = {"bootstrap.servers": broker.bootstrap, **({"group.id": "g"} if kind is AIOConsumer else {})}
    await kind(options, **given).close()
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == (named_ is not None)
    if named_ is not None:
        assert warnings[0].name == "felice.client"
        assert re.search(named_ + "$", warnings[0].getMessage())


@pytest.mark.parametrize("make", [native, named])
async def test_a_close_ends_while_other_tasks_go_on_sending(broker: FakeBroker, make: Any) -> None:
    futures: list[asyncio.Future[Any]] = []
    refused: list[Exception] = []
    async with make(broker, queue_buffering_max_messages=10) as producer:
        send = getattr(producer, "send", None) or producer.produce

        async def go_on() -> None:
            while True:
                try:
                    futures.append(await send("t", b"v", partition=0))
                except Exception as error:
                    refused.append(error)
                    return

        tasks = [asyncio.create_task(go_on()) for _ in range(3)]
        await until(lambda: len(futures) > 30)
        async with asyncio.timeout(LIMIT_S):
            await producer.close()
            await asyncio.gather(*tasks)
    assert len(refused) == 3
    assert all(isinstance(error, KafkaException | RuntimeError) for error in refused)
    assert all(future.done() for future in futures)
    assert len(producer) == 0


async def test_tasks_may_close_at_once_and_a_producer_may_start_again(broker: FakeBroker) -> None:
    producer = Producer(config(broker, {"linger_ms": 20}))
    await producer.start()
    future = await producer.send("t", b"1", partition=0)
    await asyncio.gather(*(producer.close() for _ in range(3)))
    assert (await future).offset() == 0
    await producer.start()
    assert (await producer.send_and_wait("t", b"2", partition=0)).offset() == 1
    await producer.close()


async def test_a_close_that_is_cancelled_gives_every_future_its_result(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, Hang)
    producer = Producer(config(broker, {}))
    await producer.start()
    futures = [await producer.send("t", b"%d" % number, partition=0) for number in range(3)]
    futures.append(await producer.send("unknown", b"v"))
    await until(lambda: broker.asked(ProduceRequest))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.close(), 0.1)
    names = {(await asyncio.gather(future, return_exceptions=True))[0].error.name() for future in futures}
    assert names <= {"_PURGE_QUEUE", "_PURGE_INFLIGHT"}


async def test_a_future_cancelled_inside_a_callback_costs_no_other_its_result(broker: FakeBroker) -> None:
    async with native(broker, linger_ms=20) as producer:
        first, second = [await producer.send("t", b"v", partition=0) for _ in range(2)]
        first.add_done_callback(lambda done: 1 / 0)
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        assert (await second).offset() == 1


@pytest.mark.parametrize(
    "wrong", [{"timestamp": 1.5}, {"timestamp": None}, {"partition": -2}, {"headers": ["ab"]}]
)
@pytest.mark.parametrize("make", [native, named])
async def test_what_cannot_be_a_record_is_refused(
    broker: FakeBroker, make: Any, wrong: dict[str, Any]
) -> None:
    async with make(broker) as producer:
        send = getattr(producer, "send", None) or producer.produce
        with pytest.raises((TypeError, KafkaException)):
            await send("t", b"v", **wrong)
        assert len(producer) == 0
