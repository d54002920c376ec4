"""Which texts are schemas of Protobuf, and what they may import."""

from __future__ import annotations

import base64
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from felice.registry.formats import FORMATS
from felice.registry.formats.protobuf import parse, schema
from felice.registry.formats.protobuf.compiling import MAX_ERROR_CHARACTERS, compile_text
from felice.registry.formats.schema import MAX_TEXT_BYTES, InvalidSchema

HEAD = 'syntax = "proto3"; '

INVALID = {
    "": "the schema is empty",
    " \n": "the schema is empty",
    "foo": "the schema is neither .proto text nor a FileDescriptorProto in base64",
    "AAAA": "the schema is neither .proto text nor a FileDescriptorProto in base64",
    '{"type": "string"}': 'line 1, column 1: Expected top-level statement (e.g. "message")',
    HEAD + "message A { B b = 1; }": 'line 1, column 32: "B" is not defined',
    HEAD + "message A {": "line 1, column 31: Reached end of input in message definition (missing '}')",
    HEAD + "enum A { ONE = 1; }": "line 1, column 35: The first enum value must be zero for open enums",
    HEAD
    + "message A { int32 a = 1; int32 b = 1; }": 'Field number 1 has already been used in "A" by field "a"',
    HEAD
    + 'import "gone.proto";': 'gone.proto: File not found; line 1, column 20: Import "gone.proto" was not found',
    HEAD + 'import "/etc/passwd";': "/etc/passwd: File not found",
    HEAD + 'import "../schema.py";': '"." or ".." are not allowed'.replace('"." or', '".", or'),
    HEAD + 'import "google/protobuf/../../command.py";': "are not allowed in the virtual path",
    HEAD + 'import "proc/self/environ";': "proc/self/environ: File not found",
    HEAD + "option (unknown) = 1;": 'Option "(unknown)" unknown',
    'syntax = "proto4";': 'Unrecognized syntax identifier "proto4"',
    'edition = "1999";': 'Unknown edition "1999"',
    HEAD + "message A {}\0": "Invalid control characters encountered in text",
    HEAD + "message A\ud800 {}": "the text has characters that UTF-8 cannot encode",
    HEAD + "message A {" * 40 + "}" * 40: "Reached maximum recursion limit for nested messages",
}


@pytest.mark.parametrize("text", INVALID, ids=lambda text: ascii(text[-30:]))
def test_a_text_that_is_no_schema_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(text, {})
    assert INVALID[text] in str(caught.value)
    assert "\n" not in str(caught.value) and "/proc/self" not in str(caught.value)


def test_the_format_is_in_the_table() -> None:
    parsed = FORMATS["PROTOBUF"](HEAD + "message A {}", {})
    assert parsed.schema_type == "PROTOBUF"
    assert parsed.canonical == 'syntax = "proto3";\n\nmessage A {}\n'


def test_a_byte_order_mark_does_not_matter() -> None:
    text = HEAD + "message A { A a = 1; }"
    assert parse("\N{ZERO WIDTH NO-BREAK SPACE}" + text, {}).canonical == parse(text, {}).canonical


def test_thousands_of_errors_make_one_short_line() -> None:
    fields = " ".join(f"{'X' * 500}{n} f{n} = {n};" for n in range(1, 5000))
    with pytest.raises(InvalidSchema, match='"X+1" is not defined') as caught:
        parse(f"{HEAD}message A {{ {fields} }}", {})
    assert len(str(caught.value)) <= MAX_ERROR_CHARACTERS + 2


def test_too_large_texts_are_refused_unread() -> None:
    with pytest.raises(
        InvalidSchema, match=f"the text has {MAX_TEXT_BYTES + 1} bytes; {MAX_TEXT_BYTES} are allowed"
    ):
        parse("é" * (MAX_TEXT_BYTES // 2) + "/", {})
    part = "/" * MAX_TEXT_BYTES
    with pytest.raises(InvalidSchema, match="the text of all references has"):
        parse(HEAD, {f"{n}.proto": part for n in range(5)})
    with pytest.raises(InvalidSchema, match=f"{schema.MAX_REFERENCES + 1} references"):
        parse(HEAD, {f"{n}.proto": HEAD for n in range(schema.MAX_REFERENCES + 1)})


# Imports


def test_references_are_imported_by_their_names() -> None:
    references = {
        "deep/c.proto": HEAD + "package c; message C {}",
        "b.proto": HEAD + 'package b; import public "deep/c.proto"; message B { c.C c = 1; }',
        "unused.proto": HEAD + "message Unused {}",
    }
    text = 'syntax = "proto3";\n\nimport "b.proto";\n\nmessage A {\n  b.B b = 1;\n  c.C c = 2;\n}\n'
    assert parse(text, references).canonical == text


def test_as_many_references_as_allowed_can_be_imported() -> None:
    names = [f"{n}.proto" for n in range(schema.MAX_REFERENCES)]
    text = HEAD + "".join(f'import "{name}";' for name in names)
    parsed = parse(text, {name: HEAD + f"message M{n} {{}}" for n, name in enumerate(names)})
    assert parsed.canonical.count("import") == len(names)


def test_an_error_in_a_reference_names_it() -> None:
    with pytest.raises(InvalidSchema, match='b.proto: line 2, column 13: "C" is not defined'):
        parse(HEAD + 'import "b.proto";', {"b.proto": HEAD + "\nmessage B { C c = 1; }"})


def test_circular_references_are_refused() -> None:
    circle = {"a.proto": HEAD + 'import "b.proto";', "b.proto": HEAD + 'import "a.proto";'}
    with pytest.raises(InvalidSchema, match="File recursively imports itself: a.proto -> b.proto -> a.proto"):
        parse(HEAD + 'import "a.proto";', circle)


@pytest.mark.parametrize(
    "name", ["", "/a", "a//b", "../a", "a/..", "./a", "a=b", "a:b", "a\\b", "a\0", "a\n", "a" * 1001]
)
def test_a_name_that_no_import_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidSchema, match="of a reference cannot be imported"):
        parse(HEAD, {name: HEAD})


def test_a_reference_may_have_any_other_name() -> None:
    text = 'syntax = "proto3";\n\nimport "my schemas/é.proto";\nimport "felice/schema.proto";\n'
    references = {"my schemas/é.proto": HEAD, "felice/schema.proto": HEAD, "a": HEAD, "a/b": HEAD}
    assert parse(text, references).canonical == text


@pytest.mark.parametrize(
    "name", ["timestamp", "duration", "any", "struct", "wrappers", "descriptor", "compiler/plugin"]
)
def test_the_well_known_files_need_no_reference(name: str) -> None:
    assert parse(f'{HEAD}import "google/protobuf/{name}.proto";', {})


@pytest.mark.parametrize("name", ["date", "money", "timeofday", "decimal"])
def test_googles_common_types_need_no_reference(name: str) -> None:
    assert parse(f'{HEAD}import "google/type/{name}.proto";', {})


def test_a_reference_replaces_a_common_type_but_no_well_known_file() -> None:
    text = HEAD + 'import "{}"; message A {{ {} a = 1; }}'
    own = HEAD + "package own; message Own {}"
    assert parse(text.format("google/type/date.proto", "own.Own"), {"google/type/date.proto": own})
    assert parse(text.format("confluent/meta.proto", "own.Own"), {"confluent/meta.proto": own})
    name = "google/protobuf/any.proto"
    assert parse(text.format(name, "google.protobuf.Any"), {name: own})


@pytest.mark.parametrize("module", ["meta", "type/decimal", "type/variant"])
def test_confluents_files_are_those_of_its_client(module: str) -> None:
    """The client's generated module has the descriptor. It is loaded alone: its package needs more libraries."""
    confluent_kafka = importlib.util.find_spec("confluent_kafka")
    assert confluent_kafka is not None and confluent_kafka.origin is not None
    path = Path(confluent_kafka.origin).with_name("schema_registry") / "confluent" / f"{module}_pb2.py"
    spec = importlib.util.spec_from_file_location("generated", path)
    assert spec is not None and spec.loader is not None
    generated: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generated)
    theirs = FileDescriptorProto.FromString(generated.DESCRIPTOR.serialized_pb)
    text = f'{HEAD}import "confluent/{module}.proto";'.encode()
    ours = compile_text(text, "main", {}).file[-2]
    ours.ClearField("source_code_info")
    for message in ours.message_type:
        for field in (*message.field, *(f for nested in message.nested_type for f in nested.field)):
            field.ClearField("json_name")
    for field in ours.extension:
        field.ClearField("json_name")
    assert ours == theirs


# Descriptors in base64


def test_a_descriptor_in_base64_is_the_same_schema() -> None:
    text = 'syntax = "proto3";\npackage a;\n\nmessage A {\n  .a.A a = 1;\n}\n'
    encoded = parse(text, {}).formatted("serialized")
    assert parse(encoded, {}) == parse(text, {})
    assert parse(encoded + "\n", {}).canonical == text


def test_a_reference_may_be_a_descriptor() -> None:
    b = parse(HEAD + "package b; message B { int32 b = 1; }", {}).formatted("serialized")
    c = parse(HEAD + 'package c; import "b.proto"; message C { b.B b = 1; }', {"b.proto": b}).formatted(
        "serialized"
    )
    text = HEAD + 'import "c.proto"; message A { c.C c = 1; }'
    assert parse(text, {"b.proto": b, "c.proto": c}).canonical.endswith("message A {\n  c.C c = 1;\n}\n")


def test_a_descriptor_of_older_protoc_has_no_names_for_json() -> None:
    file = FileDescriptorProto(name="a", syntax="proto3")
    file.message_type.add(name="A").field.add(
        name="some_name", number=1, type="TYPE_BOOL", label="LABEL_OPTIONAL"
    )
    parsed = parse(base64.b64encode(file.SerializeToString()).decode(), {})
    assert "  bool some_name = 1;\n" in parsed.canonical


def test_no_file_stays_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for body in (b'syntax = "proto3";', b"no schema"):
        for _ in range(3):
            try:
                compile_text(body, "main", {})
            except Exception:
                assert body == b"no schema"
    assert len(os.listdir("/proc/self/fd")) == before
