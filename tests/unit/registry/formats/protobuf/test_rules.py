"""The rules of compatibility between Protobuf schemas: cases for each row of the table, and changes without a rule."""

from __future__ import annotations

import itertools
import re
import time

import pytest

from felice.registry.formats.protobuf import ProtobufSchema, parse
from felice.registry.formats.protobuf.rules import RULES, SCALAR_KINDS
from felice.registry.formats.schema import DIFFERENT_TYPE, OLD_READS_NEW


def item(package: str, id_type: str = "int32", name_type: str = "string") -> str:
    """A file with a message that has another as the type of a field."""
    part = f"message Part {{ {name_type} name = 1; }}"
    return f'syntax = "proto3"; package {package}; message Item {{ {id_type} id = 1; Part part = 2; }} {part}'


IMPORTS = {
    "v1.proto": item("shop.v1"),
    "v2.proto": item("shop.v2"),
    "other_id.proto": item("shop.v1", id_type="string"),
    "other_name.proto": item("shop.v1", name_type="fixed32"),
    "box.proto": 'syntax = "proto3"; package n; message Box { message Item { int32 id = 1; } }',
    "other_box.proto": 'syntax = "proto3"; package n; message Box { message Item { float id = 1; } }',
}


def schema(text: str, syntax: str = "proto3") -> ProtobufSchema:
    head = f'edition = "{syntax}";' if syntax.isdigit() else f'syntax = "{syntax}";'
    imported = re.findall(r'import "(.+?)"', text)
    return parse(head + text, {name: IMPORTS[name] for name in imported if name in IMPORTS})


def found(writer: str, reader: str, syntax: str = "proto3") -> list[str]:
    """Rule and path of each difference."""
    texts = schema(reader, syntax).incompatibilities(schema(writer, syntax))
    return [
        " ".join(re.match(r"\{errorType:\"(\w+)\", description:\".*'(.+?)'.*", text).groups())
        for text in texts
    ]  # type: ignore[union-attr]


A = "message A {{ {} }}".format

INCOMPATIBLE = {
    "package renamed": ("package a; message M {}", "package b; message M {}", ["PACKAGE_CHANGED #/"]),
    "package removed": ("package a; message M {}", "message M {}", ["PACKAGE_CHANGED #/"]),
    "message removed": ("message M {} message N {}", "message M {}", ["MESSAGE_REMOVED #/N"]),
    "message renamed": ("message M {}", "message N {}", ["MESSAGE_REMOVED #/M"]),
    "nested message removed": (A("message B {}"), A(""), ["MESSAGE_REMOVED #/A/B"]),
    "deep message removed": (A("message B { message C {} }"), A("message B {}"), ["MESSAGE_REMOVED #/A/B/C"]),
    "message moved into an import": (
        "message Item { int32 id = 1; } " + A("Item i = 1;"),
        'import "v1.proto"; ' + A("shop.v1.Item i = 1;"),
        ["MESSAGE_REMOVED #/Item"],
    ),
    "scalar to message": (A("int32 f = 1;"), A("A f = 1;"), ["FIELD_KIND_CHANGED #/A/1"]),
    "message to scalar": (A("A f = 1;"), A("bytes f = 1;"), ["FIELD_KIND_CHANGED #/A/1"]),
    "map to scalar": (A("map<string, string> f = 1;"), A("string f = 1;"), ["FIELD_KIND_CHANGED #/A/1"]),
    "map to message": (A("map<string, string> f = 1;"), A("repeated A f = 1;"), ["FIELD_KIND_CHANGED #/A/1"]),
    "number to string": (A("int32 f = 1;"), A("string f = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/A/1"]),
    "also under another name": (A("int32 f = 1;"), A("string g = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/A/1"]),
    "key of a map": (
        A("map<int32, string> f = 1;"),
        A("map<string, string> f = 1;"),
        ["FIELD_SCALAR_KIND_CHANGED #/A/1"],
    ),
    "value of a map": (
        A("map<string, int32> f = 1;"),
        A("map<string, sint32> f = 1;"),
        ["FIELD_SCALAR_KIND_CHANGED #/A/1"],
    ),
    "kind of a map's value": (
        A("map<string, int32> f = 1;"),
        A("map<string, A> f = 1;"),
        ["FIELD_KIND_CHANGED #/A/1"],
    ),
    "type of a field that moves into a oneof": (
        A("int32 f = 1;"),
        A("oneof o { string f = 1; }"),
        ["FIELD_SCALAR_KIND_CHANGED #/A/o/1"],
    ),
    "type in a renamed oneof": (
        A("oneof o { int32 f = 1; }"),
        A("oneof p { string f = 1; }"),
        ["FIELD_SCALAR_KIND_CHANGED #/A/p/1"],
    ),
    "message of another name": (
        "message B {} message C {} " + A("B f = 1;"),
        "message B {} message C {} " + A("C f = 1;"),
        ["FIELD_NAMED_TYPE_CHANGED #/A/1"],
    ),
    "imported message with another type": (
        'import "v1.proto"; ' + A("shop.v1.Item f = 1;"),
        'import "other_id.proto"; ' + A("shop.v1.Item f = 1;"),
        ["FIELD_NAMED_TYPE_CHANGED #/A/1", "FIELD_SCALAR_KIND_CHANGED #/Item/1"],
    ),
    "message that an imported one uses": (
        'import "v1.proto"; ' + A("repeated shop.v1.Item f = 1;"),
        'import "other_name.proto"; ' + A("repeated shop.v1.Item f = 1;"),
        [
            "FIELD_NAMED_TYPE_CHANGED #/A/1",
            "FIELD_NAMED_TYPE_CHANGED #/Item/2",
            "FIELD_SCALAR_KIND_CHANGED #/Part/1",
        ],
    ),
    "imported nested message": (
        'import "box.proto"; ' + A("map<string, n.Box.Item> f = 1;"),
        'import "other_box.proto"; ' + A("map<string, n.Box.Item> f = 1;"),
        ["FIELD_NAMED_TYPE_CHANGED #/A/1", "FIELD_SCALAR_KIND_CHANGED #/Box/Item/1"],
    ),
    "message moved out of an import and changed": (
        'import "v1.proto"; ' + A("shop.v1.Part f = 1;"),
        "message Part { double name = 1; } " + A("Part f = 1;"),
        ["FIELD_NAMED_TYPE_CHANGED #/A/1", "FIELD_SCALAR_KIND_CHANGED #/Part/1"],
    ),
    "number becomes repeated": (
        A("optional int32 f = 1;"),
        A("repeated int32 f = 1;"),
        ["FIELD_NUMERIC_LABEL_CHANGED #/A/1"],
    ),
    "number without label becomes repeated": (
        A("int32 f = 1;"),
        A("repeated int64 f = 1;"),
        ["FIELD_NUMERIC_LABEL_CHANGED #/A/1"],
    ),
    "numbers become one": (
        A("repeated bool f = 1;"),
        A("bool f = 1;"),
        ["FIELD_NUMERIC_LABEL_CHANGED #/A/1"],
    ),
    "oneof loses a field": (
        A("oneof o { int32 f = 1; int32 g = 2; }"),
        A("oneof o { int32 f = 1; }"),
        ["ONEOF_FIELD_REMOVED #/A/o/2"],
    ),
    "field leaves its oneof": (
        A("oneof o { int32 f = 1; int32 g = 2; }"),
        A("oneof o { int32 f = 1; } int32 g = 2;"),
        ["ONEOF_FIELD_REMOVED #/A/o/2"],
    ),
    "two fields into one oneof": (
        A("int32 f = 1; int32 g = 2;"),
        A("oneof o { int32 f = 1; int32 g = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/A/o"],
    ),
    "two optional fields into one oneof": (
        A("optional int32 f = 1; optional int32 g = 2;"),
        A("oneof o { int32 f = 1; int32 g = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/A/o"],
    ),
    "field into an existing oneof": (
        A("int32 f = 1; oneof o { int32 g = 2; }"),
        A("oneof o { int32 f = 1; int32 g = 2; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/A/o"],
    ),
    "field into a renamed oneof": (
        A("int32 f = 1; oneof o { int32 g = 2; }"),
        A("oneof p { int32 f = 1; int32 g = 2; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/A/p"],
    ),
    "two oneofs into one": (
        A("oneof o { int32 f = 1; } oneof p { int32 g = 2; }"),
        A("oneof o { int32 f = 1; int32 g = 2; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/A/o"],
    ),
    "several at once": (
        "package a; message M {} " + A("int32 f = 1; A g = 2;"),
        A("string f = 1; int32 g = 2;"),
        [
            "PACKAGE_CHANGED #/",
            "MESSAGE_REMOVED #/M",
            "FIELD_SCALAR_KIND_CHANGED #/A/1",
            "FIELD_KIND_CHANGED #/A/2",
        ],
    ),
}

INCOMPATIBLE_PROTO2 = {
    "required field added": (A(""), A("required int32 f = 1;"), ["REQUIRED_FIELD_ADDED #/A/1"]),
    "required field removed": (A("required int32 f = 1;"), A(""), ["REQUIRED_FIELD_REMOVED #/A/1"]),
    "text becomes required": (
        A("optional string f = 1;"),
        A("required string f = 1;"),
        ["REQUIRED_FIELD_ADDED #/A/1"],
    ),
    "message becomes required": (
        A("optional A f = 1;"),
        A("required A f = 1;"),
        ["REQUIRED_FIELD_ADDED #/A/1"],
    ),
    "number becomes required": (
        A("optional int32 f = 1;"),
        A("required int32 f = 1;"),
        ["FIELD_NUMERIC_LABEL_CHANGED #/A/1"],
    ),
    "number is no longer required": (
        A("required int32 f = 1;"),
        A("optional int32 f = 1;"),
        ["FIELD_NUMERIC_LABEL_CHANGED #/A/1"],
    ),
    "group to message": (
        A("optional group F = 1 {}"),
        A("optional F f = 1; message F {}"),
        ["FIELD_KIND_CHANGED #/A/1"],
    ),
    "field of a group": (
        A("optional group F = 1 { optional int32 g = 1; }"),
        A("optional group F = 1 { optional float g = 1; }"),
        ["FIELD_SCALAR_KIND_CHANGED #/A/F/1"],
    ),
}

INCOMPATIBLE_EDITION = {
    "required by a feature": (
        A(""),
        A("int32 f = 1 [features.field_presence = LEGACY_REQUIRED];"),
        ["REQUIRED_FIELD_ADDED #/A/1"],
    ),
    "encoded as a group": (
        A("A f = 1;"),
        A("A f = 1 [features.message_encoding = DELIMITED];"),
        ["FIELD_KIND_CHANGED #/A/1"],
    ),
    "encoded as a group by the file": (
        A("A f = 1;"),
        "option features.message_encoding = DELIMITED; " + A("A f = 1;"),
        ["FIELD_KIND_CHANGED #/A/1"],
    ),
}

COMPATIBLE = {
    "nothing": (A("int32 f = 1;"), A("int32 f = 1;")),
    "field added": (A(""), A("int32 f = 1;")),
    "field removed": (A("int32 f = 1;"), A("")),
    "field renumbered": (A("int32 f = 1;"), A("int32 f = 2;")),
    "field renamed": (A("int32 f = 1;"), A("int32 g = 1;")),
    "field of another type in the same row": (A("int32 f = 1;"), A("uint64 f = 1;")),
    "text becomes repeated": (A("string f = 1;"), A("repeated string f = 1;")),
    "bytes become one": (A("repeated bytes f = 1;"), A("optional bytes f = 1;")),
    "message becomes repeated": (A("A f = 1;"), A("repeated A f = 1;")),
    "repeated number of another type in the same row": (
        A("repeated int32 f = 1;"),
        A("repeated bool f = 1;"),
    ),
    "optional of proto3 added": (A("int32 f = 1;"), A("optional int32 f = 1;")),
    "optional of proto3 removed": (A("optional int32 f = 1;"), A("int32 f = 1;")),
    "message added": ("message M {}", "message M {} message N {}"),
    "messages in another order": ("message M {} message N {}", "message N {} message M {}"),
    "entry of a map removed": (A("map<string, string> f = 1;"), A("")),
    "enum added": (A("int32 f = 1;"), A("E f = 1; enum E { Z = 0; }")),
    "enum removed": (A("E f = 1; enum E { Z = 0; }"), A("int64 f = 1;")),
    "enum's value renamed": ("enum E { Z = 0; B = 1; }", "enum E { Z = 0; C = 1; }"),
    "enum's value removed": ("enum E { Z = 0; B = 1; }", "enum E { Z = 0; }"),
    "enum renamed": (A("E f = 1;") + "enum E { Z = 0; }", A("G f = 1;") + "enum G { Z = 0; }"),
    "one field into a new oneof": (A("int32 f = 1;"), A("oneof o { int32 f = 1; int32 g = 2; }")),
    "oneof gets a new field": (A("oneof o { int32 f = 1; }"), A("oneof o { int32 f = 1; int32 g = 2; }")),
    "oneof removed": (A("oneof o { int32 f = 1; }"), A("")),
    "oneof dissolved": (A("oneof o { int32 f = 1; int32 g = 2; }"), A("int32 f = 1; int32 g = 2;")),
    "oneof renamed": (A("oneof o { int32 f = 1; int32 g = 2; }"), A("oneof p { int32 f = 1; int32 g = 2; }")),
    "name qualified": (A("message B {} B f = 1;"), A("message B {} .A.B f = 1;")),
    "service removed": ("message M {} service S { rpc R(M) returns (M); }", "message M {}"),
    "options and reserved numbers": (A("int32 f = 1;"), A("reserved 9; int32 f = 1 [deprecated = true];")),
    "import of an equal message in another package": (
        'import "v1.proto"; ' + A("shop.v1.Item f = 1;"),
        'import "v2.proto"; ' + A("shop.v2.Item f = 1;"),
    ),
    "imported message moved into the schema": (
        'import "v1.proto"; ' + A("shop.v1.Part f = 1;"),
        "message Part { string name = 1; } " + A("Part f = 1;"),
    ),
    "import that no field uses": ("message M {}", 'import "v1.proto"; message M {}'),
    "file of Google": (
        'import "google/protobuf/timestamp.proto"; ' + A("google.protobuf.Timestamp f = 1;"),
        'import "google/protobuf/timestamp.proto"; ' + A("repeated google.protobuf.Timestamp f = 1;"),
    ),
}

COMPATIBLE_PROTO2 = {
    "text no longer required": (A("required string f = 1;"), A("optional string f = 1;")),
    "default changed": (A("optional int32 f = 1 [default = 3];"), A("optional int32 f = 1;")),
    "extension added": (
        A("extensions 9 to max;"),
        A("extensions 9 to max;") + "extend A { optional int32 x = 9; }",
    ),
}

COMPATIBLE_EDITION = {
    "presence": (A("int32 f = 1;"), A("int32 f = 1 [features.field_presence = IMPLICIT];")),
    "map in a file of groups": (
        A("map<string, A> f = 1;"),
        "option features.message_encoding = DELIMITED; " + A("map<string, A> f = 1;"),
    ),
}


@pytest.mark.parametrize(("writer", "reader", "rules"), INCOMPATIBLE.values(), ids=INCOMPATIBLE)
def test_an_incompatible_change_is_named_with_its_place(writer: str, reader: str, rules: list[str]) -> None:
    assert found(writer, reader) == rules


@pytest.mark.parametrize(("writer", "reader", "rules"), INCOMPATIBLE_PROTO2.values(), ids=INCOMPATIBLE_PROTO2)
def test_an_incompatible_change_in_proto2(writer: str, reader: str, rules: list[str]) -> None:
    assert found(writer, reader, "proto2") == rules


@pytest.mark.parametrize(
    ("writer", "reader", "rules"), INCOMPATIBLE_EDITION.values(), ids=INCOMPATIBLE_EDITION
)
def test_an_incompatible_change_in_an_edition(writer: str, reader: str, rules: list[str]) -> None:
    assert found(writer, reader, "2023") == rules


@pytest.mark.parametrize(("writer", "reader"), COMPATIBLE.values(), ids=COMPATIBLE)
def test_a_compatible_change(writer: str, reader: str) -> None:
    assert found(writer, reader) == []


@pytest.mark.parametrize(("writer", "reader"), COMPATIBLE_PROTO2.values(), ids=COMPATIBLE_PROTO2)
def test_a_compatible_change_in_proto2(writer: str, reader: str) -> None:
    assert found(writer, reader, "proto2") == []


@pytest.mark.parametrize(("writer", "reader"), COMPATIBLE_EDITION.values(), ids=COMPATIBLE_EDITION)
def test_a_compatible_change_in_an_edition(writer: str, reader: str) -> None:
    assert found(writer, reader, "2023") == []


def test_each_row_of_the_table_has_a_case() -> None:
    cases = [*INCOMPATIBLE.values(), *INCOMPATIBLE_PROTO2.values()]
    assert {rule.split()[0] for *_, rules in cases for rule in rules} == RULES.keys()


def test_scalar_types_can_read_those_of_their_row_and_no_others() -> None:
    """All pairs of types at once: the field with the number of the pair changes from the first to the second."""
    types = [name for row in SCALAR_KINDS for name in row]
    pairs = list(itertools.product(types, types))
    enum = "enum e { Z = 0; } "

    def fields(side: int) -> str:
        names = ["e" if pair[side] == "enum" else pair[side] for pair in pairs]
        return enum + A(" ".join(f"{name} f{n} = {n};" for n, name in enumerate(names, 1)))

    assert {*types} >= {"int32", "string", "double", "enum"} and len(types) == 16
    expected = [
        f"FIELD_SCALAR_KIND_CHANGED #/A/{n}"
        for n, (writer, reader) in enumerate(pairs, 1)
        if not any(writer in row and reader in row for row in SCALAR_KINDS)
    ]
    assert found(fields(0), fields(1)) == expected


def test_the_text_names_both_schemas_by_their_roles() -> None:
    writer, reader = schema(A("int32 f = 1;")), schema(A("string f = 1;"))
    description = (
        "The scalar type of the field at path '#/A/1' in the {} schema cannot read its type in the {} schema"
    )
    assert reader.incompatibilities(writer) == [
        f'{{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"{description.format("new", "old")}", '
        'additionalInfo:"string in the new schema, int32 in the old schema"}'
    ]
    assert reader.incompatibilities(writer, OLD_READS_NEW) == [
        f'{{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"{description.format("old", "new")}", '
        'additionalInfo:"string in the old schema, int32 in the new schema"}'
    ]


def test_a_schema_of_another_format_has_one_reason() -> None:
    class Other:
        schema_type = "AVRO"

    assert schema("message M {}").incompatibilities(Other()) == [DIFFERENT_TYPE]  # type: ignore[arg-type]


def test_messages_that_have_each_other_as_fields_are_compared_once() -> None:
    """Ten thousand imported messages in a chain, and back to the first: recursion would be too deep."""
    count = 10_000

    def chain(last: str) -> dict[str, str]:
        messages = (
            f"message M{n} {{ {last if n == count - 1 else 'int32'} a = 1; M{(n + 1) % count} b = 2; M{n} c = 3; }}"
            for n in range(count)
        )
        return {"chain.proto": 'syntax = "proto3"; ' + " ".join(messages)}

    text = 'syntax = "proto3"; import "chain.proto"; message A { M0 f = 1; }'
    writer, reader = parse(text, chain("int32")), parse(text, chain("string"))
    started = time.process_time()
    reasons = reader.incompatibilities(writer)
    assert time.process_time() - started < 5
    assert len(reasons) == 2 * count + 2
