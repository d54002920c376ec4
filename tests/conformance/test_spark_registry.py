"""Columns with schemas of a registry in Spark, between confluent_kafka's serializers and a streaming query."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from confluent_kafka import DeserializingConsumer, Producer, SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit, struct

from conformance.registry_process import RegistryProcess
from conformance.targets import Target
from conformance.topics import create_topic
from felice.client.schema_registry import Schema
from felice.spark import from_registry, to_registry
from felice.streams import App, avro
from unit.client.schema_registry.protobuf_types import kind

pytestmark = [pytest.mark.felice_only, pytest.mark.timeout(900)]

LIMIT_S = 300
FIELDS: list[dict[str, Any]] = [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]
PRICED = [*FIELDS, {"name": "price", "type": "double", "default": 0.5}]


def order(fields: list[dict[str, Any]]) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


@pytest.fixture(scope="module")
def registry(broker: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    process = RegistryProcess(broker.bootstrap, tmp_path_factory.mktemp("registry") / "log")
    yield process
    process.stop()


@pytest.fixture
def client(registry: RegistryProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as found:
        yield found


@pytest.fixture
def topic(broker: Target) -> str:
    name = f"orders-{uuid.uuid4()}"
    create_topic(broker, name, partitions=1)
    return name


def rows_of(spark: SparkSession, broker: Target, topic: str) -> Any:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    return spark.read.format("felice").options(**options).load()


def test_each_format_is_read_as_confluents_serializers_write_it(
    spark: SparkSession, broker: Target, registry: RegistryProcess, client: SchemaRegistryClient, topic: str
) -> None:
    name = f"s-{uuid.uuid4()}"
    context = SerializationContext(name, MessageField.VALUE)
    person = kind("shop.Person")
    digit = json.dumps({"title": "D", "type": "object", "properties": {"d": {"type": "integer"}}})
    avro = AvroSerializer(client, order(FIELDS))({"id": 1, "item": "pen"}, context)
    json_data = JSONSerializer(digit, client)({"d": 5}, SerializationContext(f"{name}-j", MessageField.VALUE))
    message = person(name="Ann", debt={"cents": 7})
    proto = ProtobufSerializer(person, client)(message, SerializationContext(f"{name}-p", MessageField.VALUE))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, key=avro, value=json_data, headers={"proto": proto})
    assert producer.flush(60) == 0
    rows = rows_of(spark, broker, topic)
    found = rows.select(
        from_registry("key", registry.url, f"{name}-value").alias("avro"),
        from_registry("value", registry.url, f"{name}-j-value").alias("json"),
    ).first()
    assert found is not None
    assert found.asDict(recursive=True) == {"avro": {"id": 1, "item": "pen"}, "json": {"d": 5}}
    frame = spark.createDataFrame([(bytearray(proto or b""),)], "data binary")
    read = frame.select(from_registry("data", registry.url, f"{name}-p-value", where=()).alias("one")).first()
    assert read is not None and read.one.name == "Ann" and read.one.debt.cents == 7


def test_a_stream_goes_on_when_its_producers_change_their_schema(
    spark: SparkSession,
    broker: Target,
    registry: RegistryProcess,
    client: SchemaRegistryClient,
    topic: str,
    tmp_path: Path,
) -> None:
    subject = f"{topic}-value"
    config = {"bootstrap.servers": broker.bootstrap}
    first = SerializingProducer({**config, "value.serializer": AvroSerializer(client, order(FIELDS))})
    first.produce(topic, value={"id": 1, "item": "pen"})
    assert first.flush(60) == 0
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("felice").options(**options).load()
    orders = rows.select(from_registry("value", registry.url, subject, mode="CAPTURE").alias("one"), "offset")
    collected: list[Any] = []
    query = (
        orders.writeStream.foreachBatch(lambda batch, _: collected.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    def wait_for(count: int) -> None:
        end = time.monotonic() + LIMIT_S
        while len(collected) < count:
            assert query.exception() is None and time.monotonic() < end, query.exception()
            time.sleep(0.1)

    try:
        wait_for(1)
        second = SerializingProducer({**config, "value.serializer": AvroSerializer(client, order(PRICED))})
        second.produce(topic, value={"id": 2, "item": "ink", "price": 2.0})
        assert second.flush(60) == 0
        plain = Producer(config)
        plain.produce(topic, value=b"poison")
        assert plain.flush(60) == 0
        wait_for(3)
    finally:
        query.stop()
    found = {row.offset: row.one.asDict(recursive=True) for row in collected}
    assert found[0] == {"value": {"id": 1, "item": "pen"}, "error": None}
    assert found[1] == {"value": {"id": 2, "item": "ink"}, "error": None}
    assert found[2]["value"] is None
    assert found[2]["error"].startswith(f"the value of {topic}-0 at offset 2 cannot be read: ")
    again = rows_of(spark, broker, topic).where("offset < 2")
    read = again.select(from_registry("value", registry.url, subject).alias("one")).select("one.*").collect()
    assert [tuple(row) for row in read] == [(1, "pen", 0.5), (2, "ink", 2.0)]
    with pytest.raises(
        Exception, match=f"the value of {topic}-0 at offset 2 cannot be read: the data begins"
    ):
        poisoned = rows_of(spark, broker, topic)
        poisoned.select(from_registry("value", registry.url, subject)).collect()


def test_json_and_protobuf_are_written_in_batches_and_read_in_a_stream(
    spark: SparkSession,
    broker: Target,
    registry: RegistryProcess,
    client: SchemaRegistryClient,
    topic: str,
    tmp_path: Path,
) -> None:
    properties = {"id": {"type": "integer"}, "item": {"type": "string"}}
    digit = Schema(json.dumps({"type": "object", "properties": properties}), "JSON")
    person = kind("shop.Person")
    context = SerializationContext(topic, MessageField.VALUE)
    ProtobufSerializer(person, client)(person(), context)
    frame = spark.range(300).select(
        struct(col("id"), col("id").cast("string").alias("item")).alias("row"),
        struct(
            col("id").cast("string").alias("name"),
            struct(
                col("id").alias("cents"), lit(None).cast("struct<year:int,month:int,day:int>").alias("due")
            ).alias("debt"),
        ).alias("person"),
    )
    written = frame.select(
        to_registry("row", registry.url, f"{topic}-key", schema=digit).alias("key"),
        to_registry("person", registry.url, f"{topic}-value", message="shop.Person").alias("value"),
    )
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    written.write.format("felice").mode("append").options(**options, topic=topic).save()
    # The client that registered a schema has kept its text, which this deserializer cannot read.
    reader = SchemaRegistryClient({"url": registry.url})
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "key.deserializer": JSONDeserializer(None, schema_registry_client=client),
            "value.deserializer": ProtobufDeserializer(person, {"use.deprecated.format": False}, reader),
        }
    )
    consumer.subscribe([topic])
    messages = []
    while len(messages) < 300 and (message := consumer.poll(60)) is not None:
        messages.append((message.key(), message.value().name, message.value().debt.cents))
    consumer.close()
    reader.close()
    assert sorted(messages, key=lambda one: one[2]) == [
        ({"id": number, "item": str(number)}, str(number), number) for number in range(300)
    ]
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, key=b"poison", value=b"poison")
    assert plain.flush(60) == 0
    rows = (
        spark.readStream.format("felice")
        .options(**options, subscribe=topic, startingOffsets="earliest")
        .load()
    )
    read = rows.select(
        from_registry("key", registry.url, f"{topic}-key", mode="CAPTURE").alias("one"),
        from_registry("value", registry.url, f"{topic}-value", mode="CAPTURE").alias("other"),
    )
    found: list[Any] = []
    query = (
        read.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(LIMIT_S)
    *good, poison = sorted(found, key=lambda row: row.one.value.id if row.one.value else 300)
    assert [(row.one.value.item, row.other.value.name, row.other.value.debt.cents) for row in good] == [
        (str(number), str(number), number) for number in range(300)
    ]
    assert poison.one.value is None and poison.other.value is None
    assert f"{topic}-0 at offset 300 cannot be read" in poison.other.error


def test_a_value_that_would_change_ends_the_query(
    spark: SparkSession, registry: RegistryProcess, topic: str
) -> None:
    rows = spark.range(1).select(
        struct(col("id"), lit("pen").alias("item"), lit(5).alias("more")).alias("order")
    )
    encoded = to_registry("order", registry.url, f"{topic}-value", schema=order(FIELDS))
    with pytest.raises(Exception, match="the field more: 5 would be lost"):
        rows.select(encoded).collect()


def test_passwords_of_a_registry_stand_in_no_plan(
    spark: SparkSession,
    registry: RegistryProcess,
    topic: str,
    tmp_path: Path,
    broker: Target,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = {"url": registry.url, "basic.auth.user.info": "ann:hidden"}
    app = App("shown", key="string")
    stream = app.stream(topic, value=avro(config, order(FIELDS), subject=f"{topic}-value"))
    to_registry("value", config, f"{topic}-value", schema=order(FIELDS))
    frame = stream.df(spark, tmp_path / "checkpoint", broker.bootstrap, partitions=1)
    frame.select(from_registry("value", config, f"{topic}-value", where=())).explain(True)
    told = capsys.readouterr().out
    assert "plan.secret=*********(redacted)" in told
    assert "hidden" not in told
    assert "gASV" not in told  # how a pickle begins in base64


def test_a_column_is_written_for_other_consumers(
    spark: SparkSession, broker: Target, registry: RegistryProcess, client: SchemaRegistryClient, topic: str
) -> None:
    frame = spark.range(1000).select(struct(col("id"), col("id").cast("string").alias("item")).alias("order"))
    encoded = to_registry("order", registry.url, f"{topic}-value", schema=order(FIELDS)).alias("value")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    frame.select(encoded).write.format("felice").mode("append").options(**options).save()
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "value.deserializer": AvroDeserializer(client),
        }
    )
    consumer.subscribe([topic])
    found = []
    while len(found) < 1000 and (message := consumer.poll(60)) is not None:
        found.append(message.value())
    consumer.close()
    assert sorted(row["id"] for row in found) == list(range(1000))
    assert all(row["item"] == str(row["id"]) for row in found)
