"""Calls of confluent_kafka beyond its sample programs: the same code has the same results with both packages."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import time
import uuid
from typing import Any

import confluent_kafka
import pytest

import felice.client
from conformance.targets import Target
from waiting import LIMIT_S, wait_until

BOTH = pytest.mark.parametrize("kafka", [felice.client, confluent_kafka], ids=["felice", "confluent"])


def sub(kafka: Any, name: str) -> Any:
    return importlib.import_module(f"{kafka.__name__}.{name}")


@pytest.fixture
def topic(broker: Target) -> str:
    name = f"calls-{uuid.uuid4().hex[:8]}"
    with felice.client.AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topics([felice.client.NewTopic(name, 2)])[name].result(LIMIT_S)
    return name


def consumed(consumer: Any, count: int) -> list[Any]:
    messages: list[Any] = []
    deadline = time.monotonic() + LIMIT_S
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.consume(count - len(messages), 0.3)
    return messages


def fill(kafka: Any, broker: Target, topic: str, values: list[bytes]) -> None:
    producer = kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(LIMIT_S) == 0


@BOTH
def test_produce_batch_marks_the_rows_that_failed(kafka: Any, broker: Target, topic: str) -> None:
    reports: list[tuple[Any, bytes]] = []
    config = {"bootstrap.servers": broker.bootstrap, "message.max.bytes": 1000}
    producer = kafka.Producer(config)
    rows: list[dict[str, Any]] = [
        {"value": b"a", "key": b"k"},
        {"value": b"x" * 2000},
        {"value": "c", "partition": 1},
    ]
    taken = producer.produce_batch(
        topic, rows, partition=0, on_delivery=lambda error, message: reports.append((error, message.value()))
    )
    assert taken == 2
    assert [row["_error"].name() if "_error" in row else None for row in rows] == [
        None,
        "MSG_SIZE_TOO_LARGE",
        None,
    ]
    rows[1]["value"] = b"b"
    assert producer.produce_batch(topic, rows[1:2], partition=0) == 1
    # confluent_kafka leaves the error of the first attempt where it is.
    assert ("_error" in rows[1]) is (kafka is confluent_kafka)
    assert producer.flush(LIMIT_S) == 0
    assert sorted(reports, key=lambda report: report[1]) == [(None, b"a"), (None, b"c")]


@BOTH
def test_assignment_may_start_n_records_before_the_end(kafka: Any, broker: Target, topic: str) -> None:
    fill(kafka, broker, topic, [b"%d" % number for number in range(10)])
    consumer = kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"tail-{kafka.__name__}"})
    consumer.assign([kafka.TopicPartition(topic, 0, -2000 - 3)])
    assert [message.value() for message in consumed(consumer, 3)] == [b"7", b"8", b"9"]
    consumer.close()


def test_more_records_before_the_end_than_there_are_is_the_beginning(broker: Target, topic: str) -> None:
    fill(felice.client, broker, topic, [b"0", b"1"])
    with felice.client.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "tail"}) as consumer:
        consumer.assign([felice.client.TopicPartition(topic, 0, -2000 - 50)])
        assert [message.value() for message in consumed(consumer, 2)] == [b"0", b"1"]


@BOTH
def test_objects_become_bytes_and_objects_again(kafka: Any, broker: Target, topic: str) -> None:
    serialization, error = sub(kafka, "serialization"), sub(kafka, "error")
    base = {"bootstrap.servers": broker.bootstrap}
    contexts: list[tuple[str, str]] = []

    def doubled(value: int, context: Any) -> bytes:
        contexts.append((context.topic, str(context.field)))
        return b"%d" % (2 * value)

    producer = kafka.SerializingProducer(
        {**base, "key.serializer": serialization.StringSerializer("utf_8"), "value.serializer": doubled}
    )
    producer.produce(topic, key="kéy", value=21, partition=0)
    with pytest.raises(error.ValueSerializationError) as failed:
        producer.produce(topic, key="k", value=None)
    assert isinstance(failed.value.exception, TypeError)
    assert failed.value.name == "_VALUE_SERIALIZATION"
    assert producer.flush(LIMIT_S) == 0
    assert contexts[0] == (topic, "value")

    consumer = kafka.DeserializingConsumer(
        {
            **base,
            "group.id": f"objects-{kafka.__name__}",
            "key.deserializer": serialization.StringDeserializer("utf_8"),
            "value.deserializer": lambda value, context: int(value),
        }
    )
    consumer.assign([kafka.TopicPartition(topic, 0, kafka.OFFSET_BEGINNING)])
    message = consumer.poll(LIMIT_S)
    assert message is not None
    assert (message.key(), message.value(), message.deserialized_value()) == ("kéy", 42, 42)
    consumer.close()


@BOTH
def test_a_failed_deserialization_keeps_the_message(kafka: Any, broker: Target, topic: str) -> None:
    serialization, error = sub(kafka, "serialization"), sub(kafka, "error")
    fill(kafka, broker, topic, [b"abc"])
    consumer = kafka.DeserializingConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"unreadable-{kafka.__name__}",
            "value.deserializer": serialization.IntegerDeserializer(),
        }
    )
    consumer.assign([kafka.TopicPartition(topic, 0, kafka.OFFSET_BEGINNING)])
    with pytest.raises(error.ValueDeserializationError) as failed:
        consumer.poll(LIMIT_S)
    assert failed.value.code == kafka.KafkaError._VALUE_DESERIALIZATION
    assert failed.value.kafka_message.value() == b"abc"
    consumer.close()


@BOTH
def test_administrator_sees_what_may_be_done(kafka: Any, broker: Target, topic: str) -> None:
    admin_module = sub(kafka, "admin")
    admin = admin_module.AdminClient({"bootstrap.servers": broker.bootstrap})
    names = kafka.TopicCollection([topic])
    plain = admin.describe_topics(names)[topic].result(LIMIT_S)
    assert plain.authorized_operations is None
    asked = admin.describe_topics(names, include_authorized_operations=True)[topic].result(LIMIT_S)
    assert {operation.name for operation in asked.authorized_operations} >= {"READ", "WRITE", "DELETE"}
    assert str(plain.topic_id) == str(asked.topic_id) and len(str(plain.topic_id)) == 22
    cluster = admin.describe_cluster(include_authorized_operations=True).result(LIMIT_S)
    assert {operation.name for operation in cluster.authorized_operations} >= {"CREATE", "ALTER"}
    assert cluster.controller.id_string == str(cluster.controller.id)


@BOTH
def test_groups_are_listed_with_their_members(kafka: Any, broker: Target, topic: str) -> None:
    group = f"listed-{kafka.__name__}-{topic}"
    consumer = kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "me"})
    consumer.subscribe([topic])

    def has_joined() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    wait_until(has_joined)
    admin = sub(kafka, "admin").AdminClient({"bootstrap.servers": broker.bootstrap})
    found = next(row for row in admin.list_groups(timeout=LIMIT_S) if row.id == group)
    assert (found.state, found.protocol_type, found.protocol, found.error) == (
        "Stable",
        "consumer",
        "range",
        None,
    )
    assert [member.client_id for member in found.members] == ["me"]
    assert topic.encode() in found.members[0].assignment
    assert found.broker.id >= 0 and str(found) == group
    described = admin.describe_consumer_groups([group], include_authorized_operations=True)[group].result(
        LIMIT_S
    )
    assert {operation.name for operation in described.authorized_operations} >= {"READ", "DELETE"}
    assert described.state is kafka.ConsumerGroupState.STABLE
    assert described.type is kafka.ConsumerGroupType.CLASSIC
    listed = admin.list_consumer_groups(
        states={kafka.ConsumerGroupState.STABLE}, types={kafka.ConsumerGroupType.CLASSIC}
    ).result(LIMIT_S)
    assert group in [row.group_id for row in listed.valid] and listed.errors == []
    consumer.close()


@BOTH
def test_election_answers_with_errors_by_partition(kafka: Any, broker: Target, topic: str) -> None:
    admin = sub(kafka, "admin").AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = [kafka.TopicPartition(topic, 0), kafka.TopicPartition(f"no-{topic}", 0)]
    found = admin.elect_leaders(kafka.ElectionType.PREFERRED, asked).result(LIMIT_S)
    assert {tp.topic: error.name() for tp, error in found.items()} == {
        topic: "ELECTION_NOT_NEEDED",
        f"no-{topic}": "UNKNOWN_TOPIC_OR_PART",
    }


@BOTH
def test_metadata_names_the_broker_that_answered(kafka: Any, broker: Target, topic: str) -> None:
    producer = kafka.Producer({"bootstrap.servers": broker.bootstrap})
    found = producer.list_topics(topic, LIMIT_S)
    broker_id = next(iter(found.brokers))
    assert found.orig_broker_name in (f"{broker.bootstrap}/{broker_id}", f"{broker.bootstrap}/bootstrap")


@BOTH
def test_asyncio_clients_produce_and_consume(kafka: Any, broker: Target, topic: str) -> None:
    aio = sub(kafka, "aio")

    async def main() -> None:
        producer = aio.AIOProducer({"bootstrap.servers": broker.bootstrap})
        sent = [await producer.produce(topic, value=b"%d" % number, partition=0) for number in range(5)]
        assert await producer.flush() == 0
        assert [message.offset() for message in await asyncio.gather(*sent)] == [0, 1, 2, 3, 4]
        await producer.close()

        assigned: list[Any] = []

        async def on_assign(consumer: Any, partitions: list[Any]) -> None:
            assigned.extend(partitions)
            await consumer.assign(
                [kafka.TopicPartition(tp.topic, tp.partition, kafka.OFFSET_BEGINNING) for tp in partitions]
            )

        group = f"aio-{kafka.__name__}-{topic}"
        consumer = aio.AIOConsumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
        )
        await consumer.subscribe([topic], on_assign=on_assign)
        values: list[bytes] = []
        async with asyncio.timeout(LIMIT_S):
            while len(values) < 5:
                for message in await consumer.consume(num_messages=5, timeout=0.5):
                    values.append(message.value())
        assert values == [b"0", b"1", b"2", b"3", b"4"]
        assert len(assigned) == 2
        positions = await consumer.position([kafka.TopicPartition(topic, 0)])
        assert positions[0].offset == 5
        await consumer.seek(kafka.TopicPartition(topic, 0, 0))
        # As many as asked for, not only what is there at once.
        assert len(await consumer.consume(num_messages=5, timeout=LIMIT_S)) == 5
        rows = await consumer.commit(asynchronous=False)
        assert (topic, 0, 5) in [(row.topic, row.partition, row.offset) for row in rows]
        found = await consumer.committed([kafka.TopicPartition(topic, 0)], timeout=LIMIT_S)
        assert found[0].offset == 5
        assert await consumer.get_watermark_offsets(kafka.TopicPartition(topic, 0), timeout=LIMIT_S) == (0, 5)
        assert len(await consumer.assignment()) == 2
        await consumer.close()
        with pytest.raises(RuntimeError, match="closed"):
            await consumer.poll(0)

    asyncio.run(main())


@BOTH
def test_asyncio_clients_serialize_and_deserialize_objects(kafka: Any, broker: Target, topic: str) -> None:
    aio, serialization = sub(kafka, "aio"), sub(kafka, "serialization")

    async def slowly(value: int, context: Any) -> bytes:
        await asyncio.sleep(0)
        return b"%d" % value

    async def main() -> None:
        producer = await aio.AsyncSerializingProducer(
            {
                "bootstrap.servers": broker.bootstrap,
                "key.serializer": serialization.StringSerializer(),
                "value.serializer": slowly,
            }
        )
        future = await producer.produce(topic, key="k", value=7, partition=0)
        await producer.flush()
        assert (await future).offset() == 0
        await producer.close()
        consumer = await aio.AsyncDeserializingConsumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": f"aio-objects-{kafka.__name__}",
                "value.deserializer": lambda value, context: int(value),
            }
        )
        await consumer.assign([kafka.TopicPartition(topic, 0, kafka.OFFSET_BEGINNING)])
        async with asyncio.timeout(LIMIT_S):
            while (message := await consumer.poll(1.0)) is None:
                pass
        assert (message.key(), message.value()) == (b"k", 7)
        await consumer.close()

    asyncio.run(main())


@BOTH
def test_every_call_of_a_fenced_producer_raises(kafka: Any, broker: Target, topic: str) -> None:
    config = {
        "bootstrap.servers": broker.bootstrap,
        "transactional.id": f"fenced-{kafka.__name__}-{topic}",
        "error_cb": lambda error: None,
    }
    old = kafka.Producer(config)
    old.init_transactions(LIMIT_S)
    old.begin_transaction()
    old.produce(topic, b"old", partition=0)
    old.flush(LIMIT_S)
    new = kafka.Producer(config)
    new.init_transactions(LIMIT_S)
    old.produce(topic, b"zombie", partition=0)
    with contextlib.suppress(kafka.KafkaException):
        old.flush(30)
    with pytest.raises(kafka.KafkaException) as failed:
        old.commit_transaction(LIMIT_S)
    error = failed.value.args[0]
    assert (error.name(), error.fatal(), error.txn_requires_abort()) == ("_FENCED", True, False)
    new.begin_transaction()
    new.produce(topic, b"new", partition=0)
    new.commit_transaction(LIMIT_S)


@BOTH
def test_statistics_have_the_fields_that_dashboards_read(kafka: Any, broker: Target, topic: str) -> None:
    documents: dict[str, list[Any]] = {"p": [], "c": []}
    base = {"bootstrap.servers": broker.bootstrap, "statistics.interval.ms": 200, "client.id": "watched"}
    producer = kafka.Producer({**base, "stats_cb": lambda text: documents["p"].append(json.loads(text))})
    group = f"watched-{kafka.__name__}-{topic}"
    consumer = kafka.Consumer(
        {
            **base,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "stats_cb": lambda text: documents["c"].append(json.loads(text)),
        }
    )
    consumer.subscribe([topic])
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(LIMIT_S) == 0
    assert len(consumed(consumer, 20)) == 20

    def of_partition(kind: str) -> Any:
        return documents[kind][-1]["topics"].get(topic, {}).get("partitions", {}).get("0", {})

    def is_told() -> bool:
        producer.poll(0.05)
        assert consumer.poll(0.05) is None
        if not documents["p"] or not documents["c"]:
            return False
        # A document may be written between a request and its answer, or between a fetch and the reading of its records.
        sent, read = of_partition("p"), of_partition("c")
        is_sent = sent.get("txmsgs") == 20 and documents["p"][-1]["msg_cnt"] == 0
        is_read = (read.get("lo_offset"), read.get("hi_offset"), read.get("app_offset")) == (0, 20, 20)
        return is_sent and is_read and bool(documents["c"][-1].get("cgrp", {}).get("rebalance_cnt"))

    wait_until(is_told)
    assert of_partition("p")["txmsgs"] == 20 and of_partition("p")["leader"] == of_partition("p")["broker"]
    assert of_partition("c")["app_offset"] == of_partition("c")["next_offset"] == 20
    assert (of_partition("c")["lo_offset"], of_partition("c")["hi_offset"]) == (0, 20)
    assert of_partition("c")["fetch_state"] == "active"
    sent, read = documents["p"][-1], documents["c"][-1]
    assert (sent["type"], read["type"], sent["client_id"]) == ("producer", "consumer", "watched")
    assert sent["name"].startswith("watched#producer-") and sent["ts"] > 0 and sent["age"] > 0
    assert (sent["txmsgs"], sent["msg_cnt"], read["rxmsgs"]) == (20, 0, 20)
    assert read["cgrp"]["assignment_size"] == 2 and read["cgrp"]["state"] == "up"
    assert sent["topics"][topic]["batchsize"].keys() >= {"min", "max", "avg", "p50", "p99", "cnt"}
    up = [row for row in sent["brokers"].values() if row["nodeid"] >= 0 and row["state"] == "UP"]
    assert up and all(name == row["name"] for name, row in sent["brokers"].items())
    assert sum(row["req"]["Produce"] for row in up) >= 1 and sum(row["tx"] for row in up) >= 1
    assert f"{topic}-0" in {name for row in up for name in row["toppars"]}
    answered = [row["rtt"] for document in documents["p"] for row in document["brokers"].values()]
    assert any(window["cnt"] and 0 < window["min"] <= window["p50"] <= window["max"] for window in answered)
    consumer.close()


def test_each_debug_context_logs(broker: Target, topic: str) -> None:
    heard: set[str] = set()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.add(record.name.removeprefix(base.name).lstrip("."))

    base = logging.getLogger(f"debugged-{topic}")
    base.addHandler(Handler())
    base.propagate = False
    common = {
        "bootstrap.servers": broker.bootstrap,
        "logger": base,
        "debug": "broker,protocol,msg,eos,cgrp,fetch",
    }
    with felice.client.Producer({**common, "transactional.id": topic}) as producer:
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        producer.produce(topic, b"v", partition=0)
        producer.commit_transaction(LIMIT_S)
    config = {**common, "group.id": topic, "auto.offset.reset": "earliest"}
    with felice.client.Consumer(config) as consumer:
        consumer.subscribe([topic])
        assert len(consumed(consumer, 1)) == 1
    assert heard >= {"broker", "protocol", "sender", "transactions", "group", "fetch"}
