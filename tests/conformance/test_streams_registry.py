"""`felice run` with formats of a registry, between confluent_kafka's serializers on both sides."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

from conformance.registry_process import RegistryProcess
from felice.testing import Broker

FELICE = str(Path(sys.executable).with_name("felice"))
FIELDS = [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]
ORDER = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS})
PRICED = [*FIELDS, {"name": "price", "type": "double", "default": 0.0}]
PRICED_ORDER = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": PRICED})
PROGRAM = """
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from felice.streams import App, avro, protobuf

orders = avro({"url": URL, "max.retries": 0}, SCHEMA)
app = App("pricing", key="string")
priced = app.stream("orders", value=orders).map_values(lambda key, order: order | {"price": 2.5}, value=orders)
priced.to("priced")
priced.group_by("item").count(name="sold").to_stream().to("sold", value="json")

# A class that no other process can import.
pool = DescriptorPool()
file = FileDescriptorProto(name="note.proto", syntax="proto3")
message = file.message_type.add(name="Note")
for number, name in enumerate(("item", "text"), 1):
    message.field.add(name=name, number=number, type="TYPE_STRING", label="LABEL_OPTIONAL")
pool.Add(file)
Note = GetMessageClass(pool.FindMessageTypeByName("Note"))
notes = protobuf(URL, Note, subject="notes")
written = app.stream("notes", value="string").map_values(lambda key, text: Note(item=text[:3], text=text), value=notes)
longest = lambda one, other: Note(item=one.item, text=max(one.text, other.text, key=len))
written.group_by("item").reduce(longest, name="longest").to("longest", value=notes)
"""


@pytest.mark.timeout(1200)
def test_records_keep_their_schemas_through_spark(tmp_path: Path) -> None:
    with (
        Broker(topics={"orders": 2, "priced": 1, "sold": 1, "notes": 2, "longest": 1}) as broker,
        ExitStack() as stack,
    ):
        registry = RegistryProcess(broker.bootstrap, tmp_path / "registry.log")
        try:
            client = stack.enter_context(SchemaRegistryClient({"url": registry.url}))
            writing = {
                "bootstrap.servers": broker.bootstrap,
                "value.serializer": AvroSerializer(client, ORDER),
            }
            producer = SerializingProducer(writing)
            for number in range(100):
                producer.produce("orders", value={"id": number, "item": "pen" if number % 4 else "ink"})
            assert producer.flush(60) == 0
            for text in ("pen 1", "ink 1", "pen 22", "ink"):
                broker.produce("notes", text)
            (tmp_path / "program.py").write_text(
                PROGRAM.replace("URL", repr(registry.url)).replace("SCHEMA", repr(PRICED_ORDER))
            )
            command = [FELICE, "run", "program.py", "--master", "local[2]", "--until-caught-up", "-b"]
            done = subprocess.run(
                [*command, broker.bootstrap], cwd=tmp_path, capture_output=True, text=True, timeout=500
            )
            assert done.returncode == 0, done.stderr
            reading = {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "value.deserializer": AvroDeserializer(client),
            }
            consumer = DeserializingConsumer(reading)
            consumer.subscribe(["priced"])
            found = []
            while len(found) < 100 and (message := consumer.poll(60)) is not None:
                found.append(message.value())
            consumer.close()
            assert sorted(row["id"] for row in found) == list(range(100))
            assert {row["price"] for row in found} == {2.5}
            last = {row.key: json.loads(row.value or b"") for row in broker.records("sold")}
            assert last == {b"pen": 75, b"ink": 25}
            longest = {row.key: row.value for row in broker.records("longest")}
            assert {key: (value or b"").rpartition(b"\x12")[2][1:] for key, value in longest.items()} == {
                b"pen": b"pen 22",
                b"ink": b"ink 1",
            }
            # The application's schema has a subject of its own: the name of the record.
            assert client.get_latest_version("shop.Order").version == 1
        finally:
            registry.stop()
        producer.produce("orders", value={"id": 100, "item": "pen"})
        assert producer.flush(60) == 0
        stopped = subprocess.run(
            [*command, broker.bootstrap], cwd=tmp_path, capture_output=True, text=True, timeout=500
        )
        assert stopped.returncode == 1
        assert "does not answer" in stopped.stderr.splitlines()[-1], stopped.stderr
        assert "orders" in stopped.stderr.splitlines()[-1]
