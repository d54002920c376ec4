"""What formats can hold, and which format a description makes."""

from __future__ import annotations

from typing import Any

import pytest

from felice.pipelines.errors import FormatError, OutsideError
from felice.pipelines.registry_clients import RegistryAddress
from felice.pipelines.sql.rows import FORMATS, FormatDescription, check, is_bare, row_format
from felice.pipelines.sql.rows.columns import Columns
from felice.pipelines.sql.rows.registry import MemoryRegistry, RegisteredText, RemoteRegistry
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    Array,
    Decimal,
    Map,
    Struct,
)

ONE: Columns = (("A", INTEGER),)
TWO: Columns = (("A", INTEGER), ("B", STRING))
TEXTS = Map(STRING, STRING)


@pytest.mark.parametrize(
    ("name", "options", "columns", "is_key", "reason"),
    [
        ("XML", {}, ONE, False, "Unknown format: XML; expected one of KAFKA"),
        (
            "KAFKA",
            {},
            TWO,
            True,
            "format only supports a single field. Got: [`A` INTEGER KEY, `B` STRING KEY]",
        ),
        (
            "KAFKA",
            {},
            (("A", Array(INTEGER)),),
            False,
            "The 'KAFKA' format does not support type 'ARRAY', column: `A`",
        ),
        ("KAFKA", {}, (("A", BOOLEAN),), False, "does not support type 'BOOLEAN'"),
        ("KAFKA", {}, (("A", Decimal(4, 2)),), True, "does not support type 'DECIMAL'"),
        ("KAFKA", {"is_wrapped": True}, ONE, False, "does not support 'WRAP_SINGLE_VALUE' set to 'true'"),
        ("KAFKA", {"is_wrapped": False}, ONE, False, None),
        (
            "DELIMITED",
            {},
            (("A", Struct(ONE)),),
            False,
            "The 'DELIMITED' format does not support type 'STRUCT'",
        ),
        ("DELIMITED", {}, (*TWO, ("D", Decimal(4, 2)), ("E", DATE)), True, None),
        (
            "DELIMITED",
            {"delimiter": "ab"},
            ONE,
            False,
            "Invalid delimiter value: 'ab'. Delimiter must be a single",
        ),
        ("JSON", {"delimiter": ","}, ONE, False, "JSON does not support the following configs: [delimiter]"),
        ("JSON", {}, (("A", Map(INTEGER, STRING)),), False, "Only MAPs with STRING keys are supported"),
        (
            "JSON",
            {},
            (("A", Array(Struct((("M", TEXTS),)))),),
            True,
            "Map keys, including types that contain maps",
        ),
        ("JSON", {}, (("A", Array(Struct((("M", TEXTS),)))),), False, None),
        ("JSON", {"is_wrapped": False}, TWO, False, "'WRAP_SINGLE_VALUE' is only valid for single-field"),
        (
            "NONE",
            {},
            ONE,
            True,
            "The 'NONE' format can only be used when no columns are defined. Got: [`A` INTEGER KEY]",
        ),
        ("NONE", {}, (), False, None),
        ("NONE", {}, (), True, None),
        ("AVRO", {}, (("A", Struct((("a b", INTEGER),))),), False, "Illegal character in: a b"),
        ("AVRO", {}, (("A", Map(INTEGER, STRING)), ("a.b", DATE)), False, None),
        ("AVRO", {"full_name": " "}, ONE, False, "fullSchemaName cannot be empty"),
        (
            "AVRO",
            {"nullable": "OPTIONAL"},
            ONE,
            False,
            "AVRO does not support the following configs: [nullableRepresentation]",
        ),
        (
            "PROTOBUF",
            {"is_wrapped": False},
            ONE,
            False,
            "does not support 'WRAP_SINGLE_VALUE' set to 'false'",
        ),
        ("PROTOBUF", {"nullable": "SOME"}, ONE, False, "SOME is not a representation of null"),
        ("PROTOBUF", {}, (("A", Array(Array(INTEGER))),), False, "does not support ARRAYs in an ARRAY"),
        (
            "PROTOBUF_NOSR",
            {},
            (("A", Map(DOUBLE, STRING)),),
            False,
            "PROTOBUF format only supports MAP types with STRING keys",
        ),
        ("PROTOBUF_NOSR", {}, (("A", Array(TEXTS)),), False, "does not support MAPs in an ARRAY"),
        ("PROTOBUF", {}, (("a b", INTEGER),), False, "Illegal character in: a b"),
        ("PROTOBUF", {}, (("A", Struct(())),), False, "does not support a STRUCT without fields"),
        ("PROTOBUF_NOSR", {"schema_id": 1}, ONE, False, "does not support the following configs: [schemaId]"),
    ],
)
def test_what_formats_hold(
    name: str, options: dict[str, Any], columns: Columns, is_key: bool, reason: str | None
) -> None:
    description = FormatDescription(name, **options)
    if reason is None:
        check(description, columns, is_key)
        return
    with pytest.raises(ValueError) as refused:
        check(description, columns, is_key)
    assert reason in str(refused.value)


def test_how_single_columns_are_written() -> None:
    bare = {
        name: [
            is_bare(FormatDescription(name, is_wrapped=wrapped), ONE, is_key) for wrapped, is_key in CHOICES
        ]
        for name in FORMATS
    }
    both, never = [True, False, False, True], [False] * 4
    assert bare == {name: both if name in ("JSON", "JSON_SR", "AVRO") else never for name in FORMATS}
    assert not is_bare(FormatDescription("JSON"), TWO, True)
    assert {name for name, features in FORMATS.items() if features.infers} == {"AVRO", "JSON_SR", "PROTOBUF"}


CHOICES = ((None, True), (None, False), (True, True), (False, False))


@pytest.mark.parametrize(
    ("name", "columns", "is_key", "row", "data"),
    [
        ("KAFKA", (("A", STRING),), True, ("ä",), b"\xc3\xa4"),
        ("KAFKA", (("A", BIGINT),), False, (1,), b"\0\0\0\0\0\0\0\1"),
        ("KAFKA", (("A", STRING),), False, (None,), None),
        ("JSON", ONE, True, (1,), b"1"),
        ("JSON", ONE, True, (None,), None),
        ("JSON", ONE, False, (None,), b'{"A":null}'),
        ("JSON", TWO, True, (1, None), b'{"A":1,"B":null}'),
        ("DELIMITED", TWO, True, (1, None), b"1,"),
        ("PROTOBUF_NOSR", ONE, True, (0,), b""),
        ("AVRO", ONE, True, (1,), b"\0\0\0\0\1\x02"),
        ("JSON_SR", ONE, True, (1,), b"\0\0\0\0\x011"),
        ("PROTOBUF", ONE, True, (1,), b"\0\0\0\0\1\0\x08\1"),
        ("JSON", (), True, None, None),
        ("NONE", (), True, None, None),
    ],
)
def test_rows_as_bytes(name: str, columns: Columns, is_key: bool, row: Any, data: bytes | None) -> None:
    format_ = row_format(
        FormatDescription(name), columns, registry=MemoryRegistry(), subject="s", is_key=is_key
    )
    assert format_.encode(row) == data and format_.encode_all([row, None]) == [data, None]
    assert format_.decode(data) == (None if data is None else row)
    assert format_.name == name or not columns


def test_a_record_without_key_columns_has_no_key() -> None:
    format_ = row_format(FormatDescription("JSON"), (), is_key=True)
    assert format_.decode(b'{"A":1}') is None and format_.decode(b"no json") is None


def test_the_subject_is_that_of_the_topic() -> None:
    registry = MemoryRegistry()
    format_ = row_format(FormatDescription("AVRO"), ONE, registry=registry, is_key=False)
    with pytest.raises(OutsideError, match="its subject is not known"):
        format_.write((1,))
    placed = format_.of_topic("t", "value")
    placed.write((1,))
    assert placed == format_ and registry.latest("t-value") is not None and registry.latest("t-key") is None
    named = row_format(FormatDescription("AVRO"), ONE, registry=registry, subject="s", is_key=False)
    assert named.of_topic("t", "value") is named and named.placed_by(b"1") is None
    with pytest.raises(ValueError, match="AVRO needs a schema registry"):
        row_format(FormatDescription("AVRO"), ONE, is_key=False)


def test_a_registry_in_memory() -> None:
    registry = MemoryRegistry()
    assert registry.latest("a") is None
    assert registry.register("a", "AVRO", '"int"', id=7) == 7 == registry.register("b", "AVRO", '"int"')
    assert registry.register("a", "AVRO", '"long"', (("r", "x"),)) == 8
    assert registry.register("a", "AVRO", '"int"') == 7
    assert registry.latest("a") == registry.by_id(8) == RegisteredText(8, "AVRO", '"long"', (("r", "x"),))
    with pytest.raises(ValueError, match="another schema has the id 7"):
        registry.register("a", "AVRO", '"string"', id=7)
    with pytest.raises(ValueError, match="has no schema with the id 9"):
        registry.by_id(9)


def test_a_registry_with_an_address() -> None:
    from felice.client.schema_registry.model import Schema, SchemaReference

    registry = RemoteRegistry(RegistryAddress.of("mock://addressed"))
    assert registry.latest("a") is None
    number = registry.register("a", "AVRO", '"int"')
    assert registry.latest("a") == registry.by_id(number) == RegisteredText(number, "AVRO", '"int"')
    with pytest.raises(ValueError, match="does not know its schema"):
        registry.by_id(99)
    client = registry.address.client()
    client.register_schema("deep", Schema('{"type": "enum", "name": "E", "symbols": []}', "AVRO"))
    middle = '{"type": "record", "name": "M", "fields": [{"name": "e", "type": "E"}]}'
    client.register_schema("middle", Schema(middle, "AVRO", [SchemaReference("E", "deep", 1)]))
    references = [SchemaReference("M", "middle", 1), SchemaReference("E", "deep", 1)]
    client.register_schema("top", Schema('{"type": "array", "items": "M"}', "AVRO", references))
    found = registry.latest("top")
    assert found is not None and [name for name, _ in found.references] == ["E", "M"]
    number = registry.register("a", "AVRO", '"E"', found.references)
    assert registry.by_id(number) == RegisteredText(number, "AVRO", '"E"', found.references)


def test_an_outage_of_the_registry_is_no_fault_of_a_record() -> None:
    registry = RemoteRegistry(
        RegistryAddress.of({"url": "http://127.0.0.1:9", "max.retries": 0, "timeout": 1})
    )
    format_ = row_format(FormatDescription("AVRO"), ONE, registry=registry, subject="s", is_key=False)
    for work in (
        lambda: format_.decode(b"\0\0\0\0\1\2"),
        lambda: format_.encode((1,)),
        lambda: registry.latest("s"),
    ):
        with pytest.raises(OutsideError, match="is it running"):
            work()
    with pytest.raises(FormatError, match="does not begin with 0"):
        format_.decode(b"\2")


def test_formats_are_equal_if_their_bytes_are() -> None:
    def made(name: str, *columns: Any, **options: Any) -> Any:
        description = FormatDescription(name, **options)
        return row_format(description, columns, registry=registry, subject=columns[0][0], is_key=True)

    registry = MemoryRegistry()
    one, other, wide = ("A", INTEGER), ("B", INTEGER), ("A", BIGINT)
    for name in ("KAFKA", "JSON", "DELIMITED", "AVRO", "JSON_SR"):
        assert made(name, one) == made(name, other) and hash(made(name, one)) == hash(made(name, other))
        assert made(name, one) != made(name, wide)
    assert made("DELIMITED", one, delimiter="TAB") != made("DELIMITED", one)
    assert made("PROTOBUF", one) != made("PROTOBUF", other) and made("PROTOBUF", one) == made("PROTOBUF", one)
    assert made("PROTOBUF", one, nullable="OPTIONAL") != made("PROTOBUF", one)
    assert made("JSON", one, wide) != made("JSON", other, wide)
    assert made("JSON", one) != made("KAFKA", one) and made("JSON", one) != one
