"""Which data a schema reads, and the reasons in the words of Confluent's registry."""

from __future__ import annotations

import itertools
import json

import pytest

from felice.registry.formats.avro import parse
from felice.registry.formats.avro.model import PRIMITIVES
from felice.registry.formats.pairs import MAX_REASONS
from felice.registry.formats.schema import DIFFERENT_TYPE, OLD_READS_NEW, ParsedSchema
from unit.registry.formats.avro.schemas import Json, array, enum, field, fixed, parsed, record

PROMOTED = {
    ("long", "int"),
    ("float", "int"),
    ("float", "long"),
    ("double", "int"),
    ("double", "long"),
    ("double", "float"),
    ("string", "bytes"),
    ("bytes", "string"),
}


@pytest.mark.parametrize(("reader", "writer"), list(itertools.product(PRIMITIVES, PRIMITIVES)))
def test_primitive_types_read_themselves_and_those_that_are_promoted(reader: str, writer: str) -> None:
    compatible = reader == writer or (reader, writer) in PROMOTED
    assert (parsed(reader).incompatibilities(parsed(writer)) == []) == compatible


A, B = record("x.A"), record("B")
COMPATIBLE: list[tuple[str, Json, Json]] = [
    ("a field with a default is added", record("R", field("f", "int", default=1)), record("R")),
    ("a field is removed", record("R"), record("R", field("f", "int"))),
    (
        "a field is renamed with an alias",
        record("R", field("g", "int", aliases=["f"])),
        record("R", field("f", "int")),
    ),
    ("a record is moved to another namespace", record("y.A"), A),
    ("a record is renamed with an alias", record("x.C", aliases=["A"]), A),
    ("a record is renamed with a full alias", record("C", aliases=["x.A"]), A),
    ("a symbol is added", enum("E", "ABC"), enum("E", "AB")),
    ("a symbol is removed and there is a default", enum("E", "A", default="A"), enum("E", "AB")),
    ("a type becomes one of a union", ["null", "int"], "int"),
    ("a type becomes one of a union that promotes it", ["null", "double"], "int"),
    ("a union grows", ["null", "int", "string"], ["int", "null"]),
    ("a union of one type becomes that type", "long", ["int"]),
    ("logical types are not compared", {"type": "int", "logicalType": "date"}, "int"),
    (
        "decimals are not compared",
        {"type": "bytes", "logicalType": "decimal", "precision": 4},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1},
    ),
    ("items are promoted", array("long"), array("int")),
    ("fixed of one size", fixed("F", 2), fixed("z.F", 2)),
    (
        "recursive records",
        record("R", field("next", ["null", "R"]), field("v", "long")),
        record("R", field("next", ["null", "R"]), field("v", "int")),
    ),
    ("branches of one simple name", [record("x.A"), record("y.A")], [record("z.A")]),
]


@pytest.mark.parametrize(
    ("reader", "writer"), [case[1:] for case in COMPATIBLE], ids=[case[0] for case in COMPATIBLE]
)
def test_data_can_be_read(reader: Json, writer: Json) -> None:
    assert parsed(reader).incompatibilities(parsed(writer)) == []


INCOMPATIBLE: list[tuple[Json, Json, list[str]]] = [
    (
        record("R", field("f", "int")),
        record("R"),
        [
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'f' at path '/fields/0' in the "
            "new schema has no default value and is missing in the old schema', additionalInfo:'f'}"
        ],
    ),
    (
        record("R", field("f", "int")),
        record("R", field("f", "string")),
        [
            "{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type') of a field in the new schema "
            "does not match with the old schema', additionalInfo:'reader type: INT not compatible with writer "
            "type: STRING'}"
        ],
    ),
    (
        record("S"),
        record("x.R"),
        [
            "{errorType:'NAME_MISMATCH', description:'The name of the schema has changed (path '/name')', "
            "additionalInfo:'expected: x.R'}"
        ],
    ),
    (
        enum("E", "B"),
        enum("E", "CBA"),
        [
            "{errorType:'MISSING_ENUM_SYMBOLS', description:'The new schema is missing enum symbols '[A, C]' at path "
            "'/symbols' in the old schema', additionalInfo:'[A, C]'}"
        ],
    ),
    (
        fixed("F", 1),
        fixed("F", 2),
        [
            "{errorType:'FIXED_SIZE_MISMATCH', description:'The size of FIXED type field at path '/size' in the new "
            "schema does not match with the old schema', additionalInfo:'expected: 2, found: 1'}"
        ],
    ),
    (
        ["null", "int"],
        ["null", "int", "string"],
        [
            "{errorType:'MISSING_UNION_BRANCH', description:'The new schema is missing a type inside a union field at "
            "path '/2' in the old schema', additionalInfo:'reader union lacking writer type: STRING'}"
        ],
    ),
]


@pytest.mark.parametrize(("reader", "writer", "reasons"), INCOMPATIBLE)
def test_the_reasons_have_the_words_of_confluents_registry(
    reader: Json, writer: Json, reasons: list[str]
) -> None:
    assert parsed(reader).incompatibilities(parsed(writer)) == reasons


def test_the_reasons_call_the_schemas_by_their_roles() -> None:
    (reason,) = parsed(["int"]).incompatibilities(parsed(["string"]), OLD_READS_NEW)
    assert "The old schema is missing a type inside a union field at path '/0' in the new schema" in reason


def test_every_fault_of_a_nested_schema_is_reported_with_its_place() -> None:
    reader = record(
        "R", field("a", array(fixed("F", 1))), field("m", {"type": "map", "values": enum("E", "A")})
    )
    writer = record(
        "Q", field("m", {"type": "map", "values": enum("D", "B")}), field("a", array(fixed("F", 2)))
    )
    reasons = parsed(reader).incompatibilities(parsed(writer))
    places = [reason.split("path '")[1].split("'")[0] for reason in reasons]
    assert places == [
        "/name",
        "/fields/0/type/items/size",
        "/fields/1/type/values/name",
        "/fields/1/type/values/symbols",
    ]


def test_a_field_that_matches_two_fields_is_reported_as_confluents_registry_does() -> None:
    reader = record("R", field("a", "int", aliases=["b"]))
    writer = record("R", field("a", "int"), field("b", "int"))
    assert parsed(reader).incompatibilities(parsed(writer)) == [
        "Unexpected exception during compatibility check: Reader record field a type:INT matches multiple fields in "
        "writer record schema R"
    ]


def test_a_schema_of_another_format_is_incompatible() -> None:
    class Other:
        schema_type = "JSON"
        canonical = "{}"

        def normalized(self) -> str:
            return "{}"

        formatted = incompatibilities = None

    other: ParsedSchema = Other()  # type: ignore[assignment]
    assert parsed("int").incompatibilities(other) == [DIFFERENT_TYPE]


def cycle(length: int) -> Json:
    """Records that refer to each other in a ring, not nested."""
    return [
        record(
            f"n{number}.C",
            field("f", ["null", f"n{(number + 1) % length}.C"], default=None),
            field("v", "int"),
        )
        for number in range(length)
    ]


def test_recursive_schemas_whose_rings_differ_are_compared_to_the_end() -> None:
    one, other = parsed(cycle(20)), parsed(cycle(21))
    assert one.incompatibilities(other) == []


def test_many_mentions_of_a_type_with_many_faults_are_reported_within_the_limit() -> None:
    def schema(kind: str) -> Json:
        inner = record("S", *(field(f"f{number}", kind) for number in range(1_000)))
        return record("R", field("s", inner), *(field(f"s{number}", "S") for number in range(10_000)))

    reasons = parsed(schema("int")).incompatibilities(parsed(schema("string")))
    assert len(reasons) == MAX_REASONS


def test_unions_of_ten_thousand_types_are_compared_at_once() -> None:
    def union(kind: str) -> Json:
        return [record(f"R{number}", field("f", kind)) for number in range(10_000)]

    assert parsed(union("long")).incompatibilities(parsed(union("int"))) == []


def test_unions_that_would_take_too_long_are_not_compared() -> None:
    reader = [record(f"x{number}.R", field("f", "int")) for number in range(500)]
    writer = [record(f"y{number}.R", field("f", "string")) for number in range(500)]
    assert parsed(reader).incompatibilities(parsed(writer)) == [
        "Unexpected exception during compatibility check: there are more than 200000 pairs of types to compare"
    ]


def test_a_default_that_would_take_exponential_time_is_refused_or_decided() -> None:
    names = [f"A{number}" for number in range(10)]
    default: Json = {"f": 1}
    for _ in range(30):
        default = {"f": default}
    types = [record(name, field("f", names)) for name in names]
    text = json.dumps(record("R", field("t", types), field("d", names, default=default)))
    assert "Invalid default for field d" in _error(text)


def _error(text: str) -> str:
    try:
        parse(text, {})
    except Exception as error:
        return str(error)
    return ""
