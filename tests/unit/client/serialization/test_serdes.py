"""Clients that convert objects: what serializers are given, whose errors are raised, and who closes them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from felice.client import (
    DeserializingConsumer,
    KafkaException,
    Message,
    SerializingProducer,
    TopicPartition,
)
from felice.client.aio.serializing import AsyncDeserializingConsumer, AsyncSerializingProducer
from felice.client.error import (
    ConsumeError,
    KafkaError,
    KeyDeserializationError,
    KeySerializationError,
    SerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from felice.client.serialization import (
    Deserializer,
    DeserializerBuilder,
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    MessageField,
    SerializationContext,
    Serializer,
    SerializerBuilder,
    StringDeserializer,
    StringSerializer,
)
from felice.records.builder import build_batch
from felice.records.reader import read_records
from felice.records.record import Record
from unit.client.fake_broker import FakeBroker

Call = tuple[Any, str, MessageField, Any]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 2}) as started:
        started.append(
            "t", 0, build_batch([Record(0, 1, b"k", b"v", (("h", b"x"),)), Record(0, 1, b"k", b"w")])
        )
        yield started


class Recording:
    """Adds or removes a letter, and keeps its arguments."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self.calls: list[Call] = []
        self._change = change

    def __call__(self, obj: Any, ctx: SerializationContext) -> Any:
        self.calls.append((obj, ctx.topic, ctx.field, ctx.headers))
        return self._change(obj)


class RecordingLater(Recording):
    """A coroutine function that does the same."""

    async def __call__(self, obj: Any, ctx: SerializationContext) -> Any:
        await asyncio.sleep(0)
        return super().__call__(obj, ctx)


async def done(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def made(kind: Callable[..., Any], config: Mapping[str, Any]) -> Any:
    return await done(kind(config))


SYNC_OR_ASYNC = pytest.mark.parametrize("is_async", [False, True])


async def produced(
    broker: FakeBroker, is_async: bool, serdes: dict[str, Any], *arguments: Any, **more: Any
) -> Message:
    """The report of one record."""
    config = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, **serdes}
    if is_async:
        async with await AsyncSerializingProducer(config) as later:
            return await (await later.produce(*arguments, **more))
    reports: list[Message] = []
    with SerializingProducer(config) as producer:
        producer.produce(*arguments, on_delivery=lambda error, message: reports.append(message), **more)
        producer.flush()
    return reports[0]


@SYNC_OR_ASYNC
async def test_objects_are_serialized_with_their_context(broker: FakeBroker, is_async: bool) -> None:
    kind = RecordingLater if is_async else Recording
    key, value = kind(lambda obj: obj + "k"), kind(lambda obj: obj + "v")
    headers = [("h", b"x")]
    message = await produced(
        broker,
        is_async,
        {"key.serializer": key, "value.serializer": value},
        "t",
        "a",
        "b",
        1,
        timestamp=77,
        headers=headers,
    )
    assert key.calls == [("a", "t", MessageField.KEY, headers)]
    assert value.calls == [("b", "t", MessageField.VALUE, headers)]
    [record] = read_records(bytes(broker.logs["t", 1]))
    assert (record.key, record.value, record.timestamp, record.headers) == (b"ak", b"bv", 77, (("h", b"x"),))
    assert (message.partition(), message.key(), message.value()) == (1, b"ak", b"bv")


@SYNC_OR_ASYNC
async def test_without_serializers_bytes_and_text_pass_through(broker: FakeBroker, is_async: bool) -> None:
    message = await produced(broker, is_async, {}, "t", b"a", "b")
    assert (message.key(), message.value()) == (b"a", b"b")


@SYNC_OR_ASYNC
@pytest.mark.parametrize(
    ("part", "error"), [("key", KeySerializationError), ("value", ValueSerializationError)]
)
async def test_an_object_that_cannot_be_serialized_is_an_error_and_not_produced(
    broker: FakeBroker, is_async: bool, part: str, error: type[Any]
) -> None:
    cause = ValueError("odd")

    def fail(obj: Any, ctx: SerializationContext) -> bytes:
        raise cause

    with pytest.raises(error) as raised:
        await produced(broker, is_async, {f"{part}.serializer": fail}, "t", b"a", b"b", 1)
    assert raised.value.exception is cause and raised.value.__cause__ is cause
    assert raised.value.name == f"_{part.upper()}_SERIALIZATION" and "odd" in str(raised.value)
    assert broker.values("t", 1) == []


@SYNC_OR_ASYNC
async def test_the_topic_is_a_string(broker: FakeBroker, is_async: bool) -> None:
    with pytest.raises(TypeError):
        await produced(broker, is_async, {"key.serializer": StringSerializer()}, 5, "a")


async def consumed(broker: FakeBroker, is_async: bool, serdes: dict[str, Any], count: int = 1) -> list[Any]:
    """So many messages of the partition's beginning, or what a poll raised."""
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False, **serdes}
    start = [TopicPartition("t", 0, 0)]
    if is_async:
        async with await AsyncDeserializingConsumer(config) as later:
            await later.assign(start)
            return [await later.poll(60) for _ in range(count)]
    with DeserializingConsumer(config) as consumer:
        consumer.assign(start)
        return [consumer.poll(60) for _ in range(count)]


@SYNC_OR_ASYNC
async def test_bytes_are_deserialized_with_their_context(broker: FakeBroker, is_async: bool) -> None:
    kind = RecordingLater if is_async else Recording
    key, value = kind(lambda data: data.decode() + "!"), kind(lambda data: data.decode() + "?")
    first, second = await consumed(
        broker, is_async, {"key.deserializer": key, "value.deserializer": value}, 2
    )
    assert (first.key(), first.value(), first.offset()) == ("k!", "v?", 0)
    assert (second.key(), second.value(), second.offset()) == ("k!", "w?", 1)
    assert key.calls == [(b"k", "t", MessageField.KEY, [("h", b"x")]), (b"k", "t", MessageField.KEY, None)]
    assert value.calls == [
        (b"v", "t", MessageField.VALUE, [("h", b"x")]),
        (b"w", "t", MessageField.VALUE, None),
    ]


@SYNC_OR_ASYNC
async def test_without_deserializers_messages_keep_their_bytes(broker: FakeBroker, is_async: bool) -> None:
    [message] = await consumed(broker, is_async, {})
    assert (message.key(), message.value()) == (b"k", b"v")


@SYNC_OR_ASYNC
@pytest.mark.parametrize(
    ("part", "error"), [("key", KeyDeserializationError), ("value", ValueDeserializationError)]
)
async def test_bytes_that_cannot_be_deserialized_keep_their_message(
    broker: FakeBroker, is_async: bool, part: str, error: type[Any]
) -> None:
    cause = ValueError("odd")

    def fail(data: Any, ctx: SerializationContext) -> Any:
        raise cause

    with pytest.raises(error) as raised:
        await consumed(broker, is_async, {f"{part}.deserializer": fail})
    assert raised.value.exception is cause and raised.value.__cause__ is cause
    assert raised.value.name == f"_{part.upper()}_DESERIALIZATION" and "odd" in str(raised.value)
    assert (raised.value.kafka_message.key(), raised.value.kafka_message.value()) == (b"k", b"v")


@SYNC_OR_ASYNC
async def test_an_error_event_is_raised_with_its_message(broker: FakeBroker, is_async: bool) -> None:
    broker.ends["t", 0] = 0
    broker.logs["t", 0].clear()
    with pytest.raises(ConsumeError) as raised:
        await consumed(broker, is_async, {"enable.partition.eof": True})
    assert raised.value.code == KafkaError._PARTITION_EOF and raised.value.name == "_PARTITION_EOF"
    assert raised.value.kafka_message.topic() == "t" and raised.value.exception is None


@SYNC_OR_ASYNC
async def test_a_poll_without_a_message_is_none(broker: FakeBroker, is_async: bool) -> None:
    broker.logs["t", 0].clear()
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "g"}
    if is_async:
        async with await AsyncDeserializingConsumer(config) as later:
            assert await later.poll(0.01) is None
    else:
        with DeserializingConsumer(config) as consumer:
            assert consumer.poll(0.01) is None


async def test_many_messages_are_deserialized_and_errors_are_among_them(broker: FakeBroker) -> None:
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "value.deserializer": StringDeserializer(),
    }
    async with await AsyncDeserializingConsumer(config) as consumer:
        await consumer.assign([TopicPartition("t", 0, 0)])
        messages = await consumer.consume(3, 60)
        assert [message.value() for message in messages[:2]] == ["v", "w"]
        assert messages[2].error() == KafkaError._PARTITION_EOF
        assert await consumer.consume(timeout=0) == []


def test_a_deserializing_consumer_has_no_consume(broker: FakeBroker) -> None:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "g"}
    with DeserializingConsumer(config) as consumer, pytest.raises(NotImplementedError):
        consumer.consume()


# Who builds and closes


class Built(Serializer, Deserializer):
    """Keeps how often it was closed, and the lookup of the cluster's id."""

    def __init__(self) -> None:
        self.closed = 0
        self.resolver: Callable[[], Any] | None = None

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> Any:
        return obj

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        assert not inspect.iscoroutinefunction(resolver)
        self.resolver = resolver

    def set_async_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        assert inspect.iscoroutinefunction(resolver)
        self.resolver = resolver

    def close(self) -> None:
        self.closed += 1


class Builder(SerializerBuilder, DeserializerBuilder):
    """Builds from the property `built.<part>`, which only it reads."""

    def __init__(self) -> None:
        self.built: dict[bool, Built] = {}
        self.read: dict[bool, Any] = {}

    def build(self, conf: Mapping[str, Any], is_key: bool) -> tuple[Any, dict[str, Any]]:
        rest = dict(conf)
        self.read[is_key] = rest.pop("built.key" if is_key else "built.value")
        self.built[is_key] = Built()
        return self.built[is_key], rest


OWN_CLIENTS = (
    "felice.client.confluent.producer",
    "felice.client.confluent.consumer",
    "felice.client.aio.confluent",
)
"""The modules of the clients without serializers."""
CLIENTS = [
    (SerializingProducer, "serializer"),
    (DeserializingConsumer, "deserializer"),
    (AsyncSerializingProducer, "serializer"),
    (AsyncDeserializingConsumer, "deserializer"),
]
CLIENT = pytest.mark.parametrize(("kind", "suffix"), CLIENTS)


def configured(broker: FakeBroker, suffix: str, builder: Any, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        **({"group.id": "g"} if suffix == "deserializer" else {}),
        f"key.{suffix}.builder": builder,
        f"value.{suffix}.builder": builder,
        "built.key": 1,
        "built.value": 2,
        **more,
    }


@CLIENT
async def test_what_builders_created_gets_the_cluster_id_and_is_closed_once(
    broker: FakeBroker, kind: type[Any], suffix: str
) -> None:
    builder = Builder()
    client = await made(kind, configured(broker, suffix, builder))
    assert builder.read == {True: 1, False: 2}
    for built in builder.built.values():
        assert built.resolver is not None
        if hasattr(client, "cluster_id"):
            assert await done(built.resolver()) == "fake"
        assert built.closed == 0
    await done(client.close())
    await done(client.close())
    assert [built.closed for built in builder.built.values()] == [1, 1]


@CLIENT
async def test_what_builders_created_is_closed_if_the_client_cannot_be_made(
    broker: FakeBroker, kind: type[Any], suffix: str
) -> None:
    builder = Builder()
    with pytest.raises(KafkaException):
        await made(kind, configured(broker, suffix, builder, **{"no.such.option": 1}))
    assert [built.closed for built in builder.built.values()] == [1, 1]


class BuiltLater(Built):
    """Closed by awaiting."""

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1

    def close(self) -> None:
        raise AssertionError("aclose exists")


class LaterBuilder:
    """Builds in a coroutine; `fails` for the value."""

    def __init__(self, fails: bool = False) -> None:
        self.built: list[BuiltLater] = []
        self._fails = fails

    async def build(self, conf: Mapping[str, Any], is_key: bool) -> tuple[Any, dict[str, Any]]:
        await asyncio.sleep(0)
        if self._fails and not is_key:
            raise KeyError("no value")
        self.built.append(BuiltLater())
        return self.built[-1], {name: value for name, value in conf.items() if not name.startswith("built")}


@pytest.mark.parametrize(("kind", "suffix"), CLIENTS[2:])
async def test_builders_of_asyncio_may_be_coroutines(
    broker: FakeBroker, kind: type[Any], suffix: str
) -> None:
    builder = LaterBuilder()
    client = await kind(configured(broker, suffix, builder))
    assert [await built.resolver() for built in builder.built if built.resolver] == ["fake", "fake"]
    await client.close()
    await client.close()
    assert [built.closed for built in builder.built] == [1, 1]


@pytest.mark.parametrize(("kind", "suffix"), CLIENTS[2:])
async def test_what_coroutines_built_is_closed_if_another_fails(
    broker: FakeBroker, kind: type[Any], suffix: str
) -> None:
    builder = LaterBuilder(fails=True)
    with pytest.raises(KeyError):
        await kind(configured(broker, suffix, builder))
    assert [built.closed for built in builder.built] == [1]


@CLIENT
async def test_what_builders_created_is_closed_if_the_client_cannot_be_closed(
    broker: FakeBroker, kind: type[Any], suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder()
    client = await made(kind, configured(broker, suffix, builder))
    base = next(each for each in kind.__mro__ if "close" in vars(each) and each.__module__ in OWN_CLIENTS)
    close = base.close

    def failing(self: Any, *arguments: Any) -> Any:
        raise OSError("no")

    monkeypatch.setattr(base, "close", failing)
    with pytest.raises(OSError, match="no"):
        await done(client.close())
    assert [built.closed for built in builder.built.values()] == [1, 1]
    monkeypatch.setattr(base, "close", close)
    await done(client.close())


@CLIENT
async def test_a_second_builder_that_fails_closes_what_the_first_created(
    broker: FakeBroker, kind: type[Any], suffix: str
) -> None:
    builder = Builder()
    config = configured(broker, suffix, builder)
    del config["built.value"]
    with pytest.raises(KeyError):
        await made(kind, config)
    assert builder.built[True].closed == 1


@CLIENT
async def test_a_serializer_and_a_builder_exclude_each_other(
    broker: FakeBroker, kind: type[Any], suffix: str
) -> None:
    for part in ("key", "value"):
        config = configured(broker, suffix, Builder(), **{f"{part}.{suffix}": Built()})
        with pytest.raises(
            ValueError, match=f"{part}.{suffix} and {part}.{suffix}.builder are mutually exclusive"
        ):
            await made(kind, config)


@CLIENT
async def test_the_application_closes_what_it_created(
    broker: FakeBroker, kind: type[Any], suffix: str
) -> None:
    own, plain = Built(), Recording(bytes)
    config = {"bootstrap.servers": broker.bootstrap, f"key.{suffix}": own, f"value.{suffix}": plain}
    if suffix == "deserializer":
        config["group.id"] = "g"
    client = await made(kind, config)
    assert own.resolver is not None
    await done(client.close())
    assert own.closed == 0


# Serializers


@pytest.mark.parametrize(
    ("serializer", "deserializer", "obj", "data"),
    [
        (IntegerSerializer(), IntegerDeserializer(), -2, b"\xff\xff\xff\xfe"),
        (DoubleSerializer(), DoubleDeserializer(), 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        (StringSerializer(), StringDeserializer(), "é", b"\xc3\xa9"),
        (StringSerializer("latin-1"), StringDeserializer("latin-1"), "é", b"\xe9"),
    ],
)
def test_objects_and_bytes(serializer: Any, deserializer: Any, obj: Any, data: bytes) -> None:
    assert (serializer(obj), deserializer(data)) == (data, obj)
    assert (serializer(None), deserializer(None)) == (None, None)


@pytest.mark.parametrize(
    ("serde", "wrong"),
    [
        (IntegerSerializer(), 1 << 31),
        (IntegerSerializer(), "1"),
        (IntegerDeserializer(), b"\0\0\0"),
        (DoubleSerializer(), "1.5"),
        (DoubleDeserializer(), b"\0"),
        (StringSerializer("ascii"), "é"),
        (StringDeserializer(), b"\xff"),
    ],
)
def test_what_cannot_be_converted_is_an_error_with_its_reason(serde: Any, wrong: Any) -> None:
    with pytest.raises(SerializationError) as raised:
        serde(wrong)
    assert raised.value.__cause__ is not None and str(raised.value.__cause__) in str(raised.value)


@pytest.mark.parametrize("call", [Serializer(), Deserializer()])
def test_base_classes_convert_nothing(call: Any) -> None:
    with pytest.raises(NotImplementedError):
        call(b"")
    call.set_cluster_id_resolver(str)
    call.close()


@pytest.mark.parametrize("builder", [SerializerBuilder(), DeserializerBuilder()])
def test_base_classes_build_nothing(builder: Any) -> None:
    with pytest.raises(NotImplementedError):
        builder.build({}, True)


@CLIENT
async def test_if_one_cannot_be_closed_the_other_is_closed(
    broker: FakeBroker, kind: type[Any], suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder()
    client = await made(kind, configured(broker, suffix, builder))

    def fail() -> None:
        raise ValueError("stuck")

    monkeypatch.setattr(builder.built[True], "close", fail)
    with pytest.raises(ValueError, match="stuck"):
        await done(client.close())
    assert builder.built[False].closed == 1
