"""Schema ids in messages: every identity is read as it was written, and nothing else is."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pytest
from confluent_kafka.schema_registry.serde import SchemaId as TheirSchemaId
from hypothesis import given
from hypothesis import strategies as st

from felice.client.schema_registry import (
    dual_schema_id_deserializer,
    header_schema_id_serializer,
    prefix_schema_id_deserializer,
    prefix_schema_id_serializer,
)
from felice.client.schema_registry.framing import MAX_MESSAGE_INDEXES, SchemaId
from felice.client.serialization import MessageField, SerializationContext, SerializationError

INDEXES = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6)
IDS = st.integers(0, 2**32 - 1)
GUIDS = st.uuids().map(str)


@given(schema_id=IDS, indexes=INDEXES, data=st.binary(max_size=20))
def test_an_id_is_read_as_it_was_written_and_as_confluent_kafka_writes_it(
    schema_id: int, indexes: list[int], data: bytes
) -> None:
    written = SchemaId("PROTOBUF", schema_id, None, indexes).id_to_bytes()
    assert written == TheirSchemaId("PROTOBUF", schema_id, None, indexes).id_to_bytes()
    read = SchemaId("PROTOBUF")
    assert read.from_bytes(io.BytesIO(written + data)).read() == data
    assert (read.id, read.guid, read.message_indexes) == (schema_id, None, indexes)


@given(guid=GUIDS, indexes=INDEXES)
def test_a_guid_is_read_as_it_was_written_and_as_confluent_kafka_writes_it(
    guid: str, indexes: list[int]
) -> None:
    written = SchemaId("PROTOBUF", None, guid, indexes).guid_to_bytes()
    assert written == TheirSchemaId("PROTOBUF", None, guid, indexes).guid_to_bytes()
    read = SchemaId("PROTOBUF")
    assert read.from_bytes(io.BytesIO(written)).read() == b""
    assert (read.id, read.guid, read.message_indexes) == (None, uuid.UUID(guid), indexes)


@given(data=st.binary(max_size=60), kind=st.sampled_from(["AVRO", "JSON", "PROTOBUF"]))
def test_any_bytes_have_an_identity_or_are_refused(data: bytes, kind: str) -> None:
    read = SchemaId(kind)
    try:
        rest = read.from_bytes(io.BytesIO(data)).read()
    except SerializationError as error:
        assert "\n" not in str(error)
    else:
        assert data.endswith(rest)
        assert data[0] in (0, 1)


def test_the_number_of_message_indexes_is_bounded() -> None:
    for size in (MAX_MESSAGE_INDEXES, MAX_MESSAGE_INDEXES + 1):
        written = SchemaId("PROTOBUF", 1, None, [0] * size).id_to_bytes()
        if size <= MAX_MESSAGE_INDEXES:
            SchemaId("PROTOBUF").from_bytes(io.BytesIO(written))
        else:
            with pytest.raises(SerializationError, match=f"{size} message indexes"):
                SchemaId("PROTOBUF").from_bytes(io.BytesIO(written))


def test_only_protobuf_has_message_indexes() -> None:
    read = SchemaId("AVRO")
    assert read.from_bytes(io.BytesIO(b"\x00\x00\x00\x00\x05\x02\x04")).read() == b"\x02\x04"
    assert read.message_indexes is None


@pytest.mark.parametrize("write", [SchemaId.id_to_bytes, SchemaId.guid_to_bytes])
def test_an_unknown_identity_cannot_be_written(write: Any) -> None:
    with pytest.raises(SerializationError, match="not known"):
        write(SchemaId("AVRO"))


def context(field: MessageField, headers: Any) -> SerializationContext:
    return SerializationContext("t", field, headers)


@pytest.mark.parametrize("field", [MessageField.KEY, MessageField.VALUE])
@pytest.mark.parametrize("headers", [[("a", b"1")], {"a": b"1"}])
def test_a_guid_in_headers_is_found_there(field: MessageField, headers: Any) -> None:
    guid, headers = str(uuid.UUID(int=7)), headers.copy()
    ctx = context(field, headers)
    assert header_schema_id_serializer(b"data", ctx, SchemaId("AVRO", 5, guid)) == b"data"
    assert dict(headers).keys() == {"a", f"__{field}_schema_id"}
    read = SchemaId("AVRO")
    assert dual_schema_id_deserializer(b"data", ctx, read).read() == b"data"
    assert (read.id, str(read.guid)) == (None, guid)


@pytest.mark.parametrize("ctx", [None, context(MessageField.VALUE, None), context(MessageField.VALUE, ())])
def test_headers_that_cannot_take_a_guid_are_refused(ctx: SerializationContext | None) -> None:
    with pytest.raises(SerializationError, match="headers"):
        header_schema_id_serializer(b"", ctx, SchemaId("AVRO", 5, str(uuid.UUID(int=7))))


@pytest.mark.parametrize("headers", [None, [], {}, [("__key_schema_id", b"\x05")], [("other", b"")]])
def test_without_its_header_the_id_is_read_before_the_data(headers: Any) -> None:
    data = prefix_schema_id_serializer(b"data", None, SchemaId("AVRO", 5))
    assert data == b"\x00\x00\x00\x00\x05data"
    for ctx in (context(MessageField.VALUE, headers), None):
        read = SchemaId("AVRO")
        assert dual_schema_id_deserializer(data, ctx, read).read() == b"data"
        assert read.id == 5
    assert prefix_schema_id_deserializer(data, None, SchemaId("AVRO")).read() == b"data"
