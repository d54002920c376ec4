"""Formats with schemas of a registry: bytes as confluent_kafka's, values in stores, and what happens in an outage."""

from __future__ import annotations

import datetime
import json
import pickle
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.client.schema_registry import Schema
from felice.client.schema_registry.mock import MockSchemaRegistryClient
from felice.pipelines.errors import FormatError, OutsideError, PlainError
from felice.pipelines.registry_clients import RegistryAddress
from felice.pipelines.streams.formats import Format, format_of, time_windowed
from felice.pipelines.streams.record import Window, Windowed
from felice.streams import (
    App,
    DeadLetters,
    StreamsError,
    TestDriver,
    TopologyError,
    avro,
    json_schema,
    protobuf,
)
from unit.client.schema_registry.protobuf_types import kind

FIELDS: list[dict[str, Any]] = [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]
ORDER = json.dumps({"type": "record", "name": "shop.Order", "fields": FIELDS})
PAID = json.dumps(
    {
        "type": "record",
        "name": "shop.Order",
        "fields": [*FIELDS, {"name": "paid", "type": "boolean", "default": False}],
    }
)
DIGIT = '{"title": "Digit", "type": "object", "properties": {"d": {"type": "integer", "maximum": 9}}}'
MOMENT = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)
# Nothing listens there.
NOWHERE = {"url": "http://127.0.0.1:1", "max.retries": 0}


@pytest.fixture
def registry() -> str:
    """The address of an empty registry in memory."""
    return f"mock://{uuid.uuid4()}"


def test_bytes_are_an_id_and_data(registry: str) -> None:
    assert avro(registry, ORDER).write({"id": 1, "item": "x"}) == b"\0\0\0\0\1\2\2x"
    assert json_schema(registry, DIGIT).write({"d": 7}) == b'\0\0\0\0\2{"d":7}'


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.text())
def test_values_come_back(number: int, text: str) -> None:
    format_, value = avro("mock://values", ORDER), {"id": number, "item": text}
    assert format_.read(format_.write(value)) == value
    assert format_.unpack(format_.pack(value)) == value
    windowed = time_windowed(format_, 5)
    key = Windowed(value, Window(10, 15))
    assert windowed.read(windowed.write(key)) == key


@given(*[st.integers(0, 3), st.text(max_size=1)] * 2)
def test_equal_bytes_are_one_key(one: int, text: str, other: int, other_text: str) -> None:
    format_ = avro("mock://keys", ORDER)
    keys = {"id": one, "item": text}, {"item": other_text, "id": other}
    assert (format_.key_bytes(keys[0]) == format_.key_bytes(keys[1])) == (keys[0] == keys[1])


def test_messages_of_protobuf(registry: str) -> None:
    line = kind("shop.Order.Line")
    format_ = protobuf(registry, line)
    data = format_.write(line())
    assert data.startswith(b"\0\0\0\0\1") or data[:1] == b"\0"
    assert format_.read(data) == line()
    with pytest.raises(
        FormatError, match="cannot be written as protobuf: the object must be a Line, not a dict"
    ):
        format_.encode({})


def test_a_format_with_a_schema_converts_to_it(registry: str) -> None:
    written = avro(registry, ORDER, subject="orders-value").write({"id": 1, "item": "x"})
    assert avro(registry, PAID, subject="orders-value").read(written) == {"id": 1, "item": "x", "paid": False}
    latest = avro(registry, subject="orders-value")
    assert latest.read(written) == {"id": 1, "item": "x"}
    assert latest.write({"id": 1, "item": "x"}) == written  # with the last version, which is registered
    avro(registry, PAID, subject="orders-value").write({"id": 1, "item": "x"})
    assert avro(registry, subject="orders-value").write({"id": 1, "item": "x"}) != written


def test_the_subject_is_the_name_of_the_record_unless_given(registry: str) -> None:
    client = RegistryAddress.of(registry).client()
    avro(registry, ORDER).write({"id": 1, "item": "x"})
    assert client.get_latest_version("shop.Order").version == 1
    with pytest.raises(OutsideError, match="refuses: Schema not found"):
        avro(registry, PAID, register=False).write({"id": 1, "item": "x"})


def test_a_format_travels_as_values() -> None:
    for format_ in (avro(NOWHERE, Schema(ORDER, "AVRO"), subject="s"), json_schema(NOWHERE, DIGIT)):
        sent = pickle.loads(pickle.dumps(format_))
        assert sent == format_ and hash(sent) == hash(format_)


def test_a_class_that_the_program_made_travels_as_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    sent_topology = pytest.importorskip(
        "felice.pipelines.streams.on_spark.runner", reason="needs Spark"
    ).sent_topology
    order, line = kind("shop.Order"), kind("shop.Order.Line")
    there = pickle.loads(
        sent_topology([protobuf(NOWHERE, order, subject="s"), order, line, lambda: order(id=7)])
    )
    format_, made, made_line, function = there
    assert format_.message is made is not order and made.DESCRIPTOR.full_name == "shop.Order"
    assert type(function()) is made and type(made(lines=[{}]).lines[0]) is made_line
    monkeypatch.setattr(RegistryAddress, "client", lambda _: client)
    client = MockSchemaRegistryClient()
    for message in (
        made(id=7, lines=[{"price": {"cents": 5}}]),
        order(id=7, lines=[{"price": {"cents": 5}}]),
    ):
        assert format_.read(format_.write(message)) == made(id=7, lines=[{"price": {"cents": 5}}])


def test_an_importable_class_travels_by_name() -> None:
    sent_topology = pytest.importorskip(
        "felice.pipelines.streams.on_spark.runner", reason="needs Spark"
    ).sent_topology
    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

    format_ = protobuf(NOWHERE, Timestamp)
    assert pickle.loads(sent_topology([format_, Timestamp, Message])) == [format_, Timestamp, Message]


def test_a_registry_in_memory_stays_in_its_process(registry: str) -> None:
    with pytest.raises(PlainError, match=f"the registry {registry} is in the memory of one process"):
        pickle.dumps(avro(registry, ORDER))
    app = counting(avro(registry, ORDER, subject="orders-value"))
    sent_topology = pytest.importorskip(
        "felice.pipelines.streams.on_spark.runner", reason="needs Spark"
    ).sent_topology
    with pytest.raises(TopologyError, match="Spark's workers need one with an address"):
        sent_topology(app.topology)


def test_one_run_writes_one_version(registry: str) -> None:
    client = RegistryAddress.of(registry).client()
    first = client.register_schema("keys", Schema(ORDER, "AVRO"))
    format_ = avro(registry, subject="keys")
    client.register_schema("keys", Schema(PAID, "AVRO"))
    key = {"id": 1, "item": "x"}
    assert format_.write(key) == b"\0" + first.to_bytes(4) + b"\2\2x"
    again = avro(registry, subject="keys")
    assert again != format_ and again.write(key) != format_.write(key)


def test_passwords_are_not_shown() -> None:
    config = {"url": "http://ann:hidden@127.0.0.1:1", "max.retries": 0}
    for format_ in (avro(config, ORDER), avro({**NOWHERE, "basic.auth.user.info": "ann:hidden"}, ORDER)):
        assert "hidden" not in repr(format_)
        with pytest.raises(OutsideError) as found:
            format_.write({"id": 1, "item": "x"})
        assert "hidden" not in str(found.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the data is empty"),
        (b"\1plain text with a length", "the"),
        (b"\0\0\0\0\x63abc", "does not know its schema"),
        (b"\0\0\0\0\1\2\x7fx", "cannot be read with its schema"),
    ],
)
def test_other_bytes_are_refused(registry: str, data: bytes, why: str) -> None:
    format_ = avro(registry, ORDER)
    format_.write({"id": 1, "item": "x"})
    with pytest.raises(FormatError, match=f"is not avro: .*{why}"):
        format_.decode(data)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"id": 1.5, "item": ""}, "the field id: 1.5 is no whole number"),
        ({"id": True, "item": ""}, "the field id: True is no whole number"),
        ({"id": Decimal("1.5"), "item": ""}, r"the field id: Decimal\('1.5'\) is no whole number"),
        ({"id": 1 << 63, "item": ""}, "the field id: 9223372036854775808 has no place in 64 bits"),
        (
            {"id": 1, "item": "", "far": [{"x": 1 << 40}]},
            r"the field far\[0\].x: 1099511627776 has no place in 32 bits",
        ),
        ({"id": 1, "item": "", "near": {"a": "0.5"}}, "the field near.a: '0.5' is no number"),
        (
            {"id": 1, "item": "", "near": {"a": Decimal("0.1")}},
            r"the field near.a: Decimal\('0.1'\) is no double",
        ),
        ({"id": 1, "item": "", "either": 2**53 + 1}, "the field either: 9007199254740993 is no double"),
        ({"id": 1, "item": "", "at": 1.5}, "the field at: 1.5 is no whole number"),
        (
            {"id": 1, "item": "", "more": 5},
            "the field more: 5 would be lost: the record shop.Order has no such",
        ),
        ({"id": 1, "item": "", "far": [{"x": 1, "y": 2}]}, r"the field far\[0\].y: 2 would be lost"),
        ({"id": 1, "item": "", "near": {"a": 2**53 + 1}}, "the field near.a: 9007199254740993 is no double"),
        ({"id": 1, "item": "", "small": 1e300}, r"the field small: 1e\+300 is too large for a float"),
        ({"id": 1, "item": "", "yes": 5}, "the field yes: 5 is not true or false"),
        ({"id": 1, "item": "", "names": "abc"}, "the field names: 'abc' is no list"),
    ],
    ids=str,
)
def test_values_that_avro_would_change_are_refused(registry: str, value: Any, why: str) -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    more: list[dict[str, Any]] = [
        {"name": "far", "type": ["null", {"type": "array", "items": inner}], "default": None},
        {"name": "near", "type": {"type": "map", "values": "double"}, "default": {}},
        {"name": "small", "type": "float", "default": 0.0},
        {"name": "either", "type": ["double", "long"], "default": 0.0},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        {"name": "yes", "type": "boolean", "default": True},
        {"name": "names", "type": {"type": "array", "items": "string"}, "default": []},
    ]
    schema = json.dumps({"type": "record", "name": "shop.Order", "fields": [*FIELDS, *more]})
    with pytest.raises(FormatError, match=f"cannot be written as avro: {why}"):
        avro(registry, schema).encode(value)
    good = {
        "id": 1,
        "item": "x",
        "far": [{"x": 1}],
        "near": {"a": 2**53},
        "small": 0.5,
        "either": 7,
        "at": MOMENT,
        "yes": False,
        "names": ["a"],
    }
    assert avro(registry, schema).read(avro(registry, schema).write(good)) == good


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"more": {7: 1}}, "the field more: 7 is no text"),
        ({"more": [0.5, float("nan")]}, r"the field more\[1\]: nan is no number of JSON"),
    ],
)
def test_values_that_json_would_change_are_refused(registry: str, value: Any, why: str) -> None:
    with pytest.raises(FormatError, match=f"cannot be written as json_schema: {why}"):
        json_schema(registry, DIGIT).encode(value)


def test_a_value_that_would_change_goes_the_way_of_bad_records(registry: str) -> None:
    app = App("writes", key="string", value="string")
    lines = app.stream("lines", value="json").map_values(
        lambda key, number: {"id": number, "item": "x"}, value="json"
    )
    lines.to("orders", value=avro(registry, ORDER), on_bad_record=DeadLetters("bad"))
    driver = TestDriver(app)
    driver.send("lines", None, 1.5)
    driver.send("lines", None, 2)
    assert [record.value for record in driver.read("orders")] == [{"id": 2, "item": "x"}]
    [bad] = driver.read("bad")
    assert b"the field id: 1.5 is no whole number" in dict(bad.headers)["felice.error"]


def test_fields_of_messages_choose_keys(registry: str) -> None:
    orders = protobuf(registry, kind("shop.Order"), subject="orders-value")
    app = App("counts", key="string")
    stream = app.stream("orders", value=orders)
    stream.group_by("id", key="long").count(name="sold")
    with pytest.raises(
        ValueError, match="shop.Order has no field 'colour'; it has id, buyer, lines, at, total"
    ):
        stream.group_by("colour")
    driver = TestDriver(app)
    for number in (1, 2, 1):
        driver.send("orders", None, kind("shop.Order")(id=number))
    assert driver.table("sold") == {1: 2, 2: 1}
    assert orders.field("buyer")(kind("shop.Order")()) is None


def test_values_that_do_not_match_are_refused(registry: str) -> None:
    with pytest.raises(FormatError, match="'q'.*cannot be written as avro"):
        avro(registry, ORDER).encode({"id": "q", "item": ""})
    with pytest.raises(
        FormatError, match="cannot be written as json_schema: 50 is greater than the maximum of 9"
    ):
        json_schema(registry, DIGIT).encode({"d": 50})


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: avro("http://x"), "expected a schema to write values with, or a subject"),
        (lambda: avro("ftp://x", ORDER), "url must begin with http://"),
        (lambda: avro({"url": "http://x", "colour": "red"}, ORDER), "unknown properties: colour"),
        (lambda: avro("http://x", '{"type": "no such type"}'), "the schema cannot be used: .*no such type"),
        (lambda: avro("http://x", "{"), "the schema cannot be used: "),
        (lambda: json_schema("http://x", '{"type": 7}'), "the schema cannot be used: .*7 is not valid"),
        (lambda: avro("http://x", 7), "must be a text or a Schema, not int"),  # type: ignore[arg-type]
        (lambda: avro("http://x", Schema(DIGIT, "JSON")), "is of type JSON; expected AVRO"),
        (lambda: avro("http://x", ORDER, register="no"), "register must be"),  # type: ignore[arg-type]
        (
            lambda: avro("http://x", ORDER, strategy="topic"),
            "strategy must be one of RECORD, TOPIC, TOPIC_RECORD",
        ),
        (
            lambda: avro("http://x", ORDER, subject="s", strategy="TOPIC"),
            "give a subject or the strategy TOPIC",
        ),
        (lambda: avro("http://x", ORDER, subject=""), "subject must be the name"),
        (lambda: protobuf("http://x", dict), "a class that the Protobuf compiler"),  # type: ignore[arg-type]
        (lambda: format_of("avro"), r"the format avro needs a registry: give avro\(REGISTRY"),
    ],
)
def test_mistakes_are_refused_at_once(make: Callable[[], object], why: str) -> None:
    with pytest.raises((ValueError, TypeError), match=why):
        make()


def counting(orders: Format, **options: Any) -> App:
    app = App("counts", key="string")
    stream = app.stream("orders", value=orders, **options)
    stream.group_by("item").count(name="sold")
    stream.filter(lambda key, order: order["id"] > 1).to("later", value=orders)
    return app


def test_an_application_reads_and_writes_them(registry: str) -> None:
    orders = avro(registry, ORDER, subject="orders-value")
    driver = TestDriver(counting(orders))
    for number, item in enumerate(["pen", "ink", "pen"]):
        driver.send("orders", None, {"id": number, "item": item})
    assert driver.table("sold") == {"pen": 2, "ink": 1}
    assert [record.value for record in driver.read("later")] == [{"id": 2, "item": "pen"}]


def test_records_of_avro_are_keys_of_joins(registry: str) -> None:
    key = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "k", "type": "int"}]})
    app = App("joined")
    left = app.stream("left", key=avro(registry, key, subject="keys"), value="string")
    right = app.table("right", key=avro(registry, key, subject="keys"), value="string")
    left.join(right, lambda one, other: one + other).to("both", value="string")
    driver = TestDriver(app)
    driver.send("right", {"k": 1}, "b")
    driver.send("left", {"k": 1}, "a")
    driver.send("left", {"k": 2}, "a")
    assert [(record.key, record.value) for record in driver.read("both")] == [({"k": 1}, "ab")]
    other = app.table("other", key=avro(registry, key, subject="others"), value="string")
    with pytest.raises(TopologyError, match="name the same format"):
        left.join(other, lambda one, other: one + other)


def test_strategies_name_subjects_by_topics(registry: str) -> None:
    key = json.dumps({"type": "record", "name": "shop.Key", "fields": [{"name": "k", "type": "int"}]})
    keys = avro(registry, key, strategy="TOPIC")
    app = App("named", key=keys)
    left = app.stream("left", value=avro(registry, ORDER, strategy="TOPIC_RECORD"))
    right = app.table("right", value=protobuf(registry, kind("shop.Person"), strategy="TOPIC"))
    left.join(right, lambda one, other: one | {"item": other.name}).to("both", value=left.value_format)
    left.to(lambda key, value: value["item"])
    left.group_by_key().tumbling(10).count().to_stream().to("counts", value="long")
    driver = TestDriver(app)
    driver.send("right", {"k": 1}, kind("shop.Person")(name="Ann"))
    driver.send("left", {"k": 1}, {"id": 5, "item": "pens"})
    assert [record.value for record in driver.read("both")] == [{"id": 5, "item": "Ann"}]
    assert [(record.key, record.value["id"]) for record in driver.read("pens")] == [({"k": 1}, 5)]
    assert [record.key.key for record in driver.read("counts")] == [{"k": 1}]
    found = {name for name in RegistryAddress.of(registry).client()._versions if not name.endswith(".proto")}
    assert found == {
        "left-key",
        "left-shop.Order",
        "right-key",
        "right-value",
        "both-key",
        "both-shop.Order",
        "pens-key",
        "pens-shop.Order",
        "counts-key",
    }


def test_a_strategy_needs_a_topic(registry: str) -> None:
    app = App("stored", key="string")
    orders = avro(registry, ORDER, strategy="TOPIC")
    stream = app.stream("lines", value="string", on_error="skip").map_values(
        lambda key, line: {"id": 1, "item": line}, value=orders
    )
    stream.group_by("item").reduce(lambda one, other: other, name="last").to_stream().to("last")
    with pytest.raises(StreamsError, match="the strategy TOPIC needs a topic.* give their format a subject"):
        TestDriver(app).send("lines", None, "x")


def test_a_bad_record_is_answered_as_its_source_says(registry: str) -> None:
    orders = avro(registry, ORDER, subject="orders-value")
    driver = TestDriver(counting(orders, on_bad_record=DeadLetters("bad")))
    driver.send_bytes("orders", None, b"\0\0\0\0\x63abc")
    driver.send("orders", None, {"id": 0, "item": "pen"})
    assert driver.table("sold") == {"pen": 1}
    assert [record.value for record in driver.read("bad")] == [b"\0\0\0\0\x63abc"]
    with pytest.raises(
        StreamsError, match="a record of .*orders.* cannot be read: .*does not know its schema"
    ):
        TestDriver(counting(orders)).send_bytes("orders", None, b"\0\0\0\0\x63abc")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    format_ = avro({"url": "https://127.0.0.1:1", "ssl.ca.location": str(missing)}, ORDER)
    with pytest.raises(OutsideError, match=f"cannot be made: .*ssl.ca.location {missing}: No such file"):
        format_.write({"id": 1, "item": "x"})


def test_a_subject_without_versions_is_told_at_once(registry: str) -> None:
    with pytest.raises(OutsideError, match="refuses: Subject 'nothing' not found"):
        avro(registry, subject="nothing")
    json_schema(registry, DIGIT, subject="digits").write({"d": 1})
    with pytest.raises(ValueError, match="the subject digits has a schema of type JSON; expected AVRO"):
        avro(registry, subject="digits")
    with pytest.raises(OutsideError, match="does not answer"):
        avro(NOWHERE, subject="s")


def test_an_outage_sets_no_record_aside(registry: str) -> None:
    down = avro(NOWHERE, ORDER, subject="orders-value")
    aside = {"on_bad_record": DeadLetters("bad"), "on_error": DeadLetters("bad")}
    driver = TestDriver(counting(down, **aside))
    with pytest.raises(StreamsError, match="orders.* cannot be processed now: .*127.0.0.1:1 does not answer"):
        driver.send_bytes("orders", None, b"\0\0\0\0\1\2\2x")
    app = App("writes", key="string", value="string")
    app.stream("lines", **aside).map_values(lambda key, line: {"id": 1, "item": line}, value="json").to(
        "orders", value=down, on_bad_record=DeadLetters("bad")
    )
    driver = TestDriver(app)
    with pytest.raises(StreamsError, match="lines.* cannot be processed now: .*127.0.0.1:1 does not answer"):
        driver.send("lines", None, "x")
    assert driver.read("bad") == []
