"""The texts of Protobuf schemas: canonical, normalized, without extensions, and as a descriptor."""

from __future__ import annotations

import base64
from textwrap import dedent

import pytest
from google.protobuf.descriptor_pb2 import Edition, FieldDescriptorProto, FileDescriptorProto

from felice.registry.formats.protobuf import parse
from felice.registry.formats.schema import InvalidSchema


def canonical(text: str, **references: str) -> str:
    return parse(dedent(text), {name.replace("_", "."): body for name, body in references.items()}).canonical


ORDER = """\
syntax = "proto3";
package shop.v1;

import "google/protobuf/timestamp.proto";
import public "google/protobuf/any.proto";

option java_package = "com.shop";
option java_multiple_files = true;

message Order {
  reserved 4, 10 to 20, 100 to max;
  reserved "old", "older";

  option deprecated = true;

  string id = 1;
  optional int32 count = 2 [deprecated = true];
  repeated sint64 codes = 3 [
    json_name = "CODES",
    packed = false
  ];
  map<string, Line> lines = 5;
  .google.protobuf.Timestamp at = 6;
  oneof payment {
    string card = 7;
    Cash cash = 8;
  }

  message Line {}
  enum State {
    reserved -3 to -1;

    option allow_alias = true;

    NEW = 0;
    OPEN = 0;
    DONE = 1 [deprecated = true];
  }
  message Cash {
    Order.State state = 1;
  }
}
enum Empty {
  NONE = 0;
}
message Last {}

service Orders {
  option deprecated = true;

  rpc Get (Order) returns (stream Last);
  rpc Put (stream shop.v1.Order) returns (Last) {
    option idempotency_level = IDEMPOTENT;
  }
}
"""


def test_a_text_in_canonical_form_stays_as_it_is() -> None:
    assert canonical(ORDER) == ORDER


def test_comments_and_layout_do_not_matter() -> None:
    text = """
        // A comment.
        syntax='proto3';package a;/* another */message A{string b=0x01;;repeated A c = 2 ;
        extensions_ d=3;enum E{ZERO=0;}message
        extensions_ {  } }
    """
    assert canonical(text) == (
        'syntax = "proto3";\npackage a;\n\nmessage A {\n  string b = 1;\n  repeated A c = 2;\n  extensions_ d = 3;\n\n'
        "  enum E {\n    ZERO = 0;\n  }\n  message extensions_ {}\n}\n"
    )


def test_proto2_has_labels_defaults_groups_and_extensions() -> None:
    text = r"""
        syntax = "proto2";

        import "google/protobuf/descriptor.proto";

        message A {
          required string text = 1 [default = "a \"quote\"\n\t\001\\ é"];
          optional bytes data = 2 [default = "\000\377'"];
          optional double number = 3 [default = -inf];
          optional float ratio = 4 [default = 1e+20];
          optional bool flag = 5 [default = true];
          optional E choice = 6 [default = TWO];
          repeated group Part = 7 [deprecated = true] {
            optional int32 a = 1;
          }

          extensions 100 to 199;
          extensions 200 [verification = UNVERIFIED];
          extensions 300 to max;

          enum E {
            TWO = 2;
          }

          extend .google.protobuf.FieldOptions {
            optional string owner = 50000;
            repeated int32 codes = 50001;
          }
        }

        extend A {
          optional A inner = 100;
          optional int32 count = 101 [
            default = 3,
            (A.owner) = "me",
            (A.codes) = 1,
            (A.codes) = 2
          ];
        }
    """
    assert canonical(text) == dedent(text).removeprefix("\n").replace(r"\377'", r"\377\'")


def test_an_edition_has_features_visibility_and_bare_reserved_names() -> None:
    text = """\
        edition = "2024";
        package a;

        import option "opt.proto";

        option features.field_presence = IMPLICIT;

        export message A {
          reserved gone;

          option (b.owner) = "x";

          string a = 1 [features.field_presence = LEGACY_REQUIRED];
          A b = 2 [features.message_encoding = DELIMITED];

          export enum E {
            reserved 5 to max;
            reserved q;

            X = 0;
          }
        }
        local message B {}
    """
    options = (
        'syntax = "proto3"; package b; import "google/protobuf/descriptor.proto"; '
        "extend google.protobuf.MessageOptions { string owner = 50000; }"
    )
    assert canonical(text, opt_proto=options) == dedent(text)


def test_a_text_without_syntax_is_proto2() -> None:
    assert canonical("message A {}") == 'syntax = "proto2";\n\nmessage A {}\n'


def test_names_of_types_stay_as_they_are_written() -> None:
    text = """\
        syntax = "proto3";
        package a.b;
        message A {
        \tmessage B {}
        \tB c = 1;\tA.B d = 2;\tb.A.B e = 3;   /*é*/ .a.b.A.B f = 4;
          map <\tint32,\t.a.b.A.B > g = 5;
          A . B h = 6;
          repeated
            B i = 7;
        }
        service S { rpc R(A.B) returns(stream  .a.b.A); }
    """
    written = [
        line.split(" = ")[0].strip().removesuffix(";")
        for line in canonical(text).splitlines()
        if " = " in line or "rpc" in line
    ]
    assert written[1:] == [
        "B c",
        "A.B d",
        "b.A.B e",
        ".a.b.A.B f",
        "map<int32, .a.b.A.B> g",
        ".a.b.A.B h",
        "repeated B i",
        "rpc R (A.B) returns (stream .a.b.A)",
    ]


def test_messages_keep_their_indexes_beside_maps_and_groups() -> None:
    """The wire format of the registry's clients names a message by its index; maps and groups count."""
    text = """
        syntax = "proto2";
        message A {
          message First {}
          map<string, string> m = 1;
          message Second {}
          oneof o { group G = 2 {} }
          message Third {}
        }
    """
    schema = parse(dedent(text), {})
    file = FileDescriptorProto.FromString(base64.b64decode(schema.formatted("serialized")))
    names = ["First", "MEntry", "Second", "G", "Third"]
    assert [message.name for message in file.message_type[0].nested_type] == names
    again = FileDescriptorProto.FromString(
        base64.b64decode(parse(schema.canonical, {}).formatted("serialized"))
    )
    assert again == file


CUSTOM = """\
syntax = "proto3";
package {package};

import "confluent/meta.proto";

option ({dot}confluent.file_meta) = {{ doc: "x", params: {{ key: "b", value: "2" }} }};

message {message} {{
  string a = 1 [({dot}confluent.field_meta) = {{ tags: "PII", tags: "NAME" }}];
}}
"""


@pytest.mark.parametrize(
    ("package", "message", "dot"),
    [("shop", "A", ""), ("io.confluent.demo", "A", "."), ("confluent", "A", ""), ("a", "confluent", ".")],
)
def test_the_name_of_a_custom_option_has_a_dot_where_another_name_hides_it(
    package: str, message: str, dot: str
) -> None:
    expected = CUSTOM.format(package=package, message=message, dot=dot)
    assert canonical(CUSTOM.format(package=package, message=message, dot=".")) == expected


def test_settings_of_parts_of_an_option_are_written_together() -> None:
    text = """
        syntax = "proto3";
        import "confluent/meta.proto";
        message A {
          string a = 1 [(confluent.field_meta).tags = "PII", (confluent.field_meta).doc = "d"];
        }
    """
    assert 'string a = 1 [(confluent.field_meta) = { doc: "d", tags: "PII" }];' in canonical(text)


def test_the_normalized_text_has_full_names_and_sorted_imports() -> None:
    text = """
        syntax = "proto3";
        package a;
        import public "google/protobuf/timestamp.proto";
        import "google/protobuf/any.proto";
        message A { A b = 1; map<string, a.A> m = 2; google.protobuf.Any c = 3; }
        message B { google.protobuf.Timestamp t = 1; }
    """
    other = text.replace("A b", ".a.A b").replace(" google.protobuf.Any", " .google.protobuf.Any")
    lines = other.splitlines()
    lines[3:5] = reversed(lines[3:5])
    schemas = [parse(body, {}) for body in (text, "\n".join(lines))]
    assert schemas[0].canonical != schemas[1].canonical
    assert schemas[0].normalized() == schemas[1].normalized()
    assert schemas[0].normalized() == dedent("""\
        syntax = "proto3";
        package a;

        import "google/protobuf/any.proto";
        import public "google/protobuf/timestamp.proto";

        message A {
          .a.A b = 1;
          map<string, .a.A> m = 2;
          .google.protobuf.Any c = 3;
        }
        message B {
          .google.protobuf.Timestamp t = 1;
        }
    """)
    assert parse(schemas[0].normalized(), {}).normalized() == schemas[0].normalized()


def test_extensions_can_be_left_out() -> None:
    text = """
        syntax = "proto2";
        import "confluent/meta.proto";
        message A {
          option (confluent.message_meta).doc = "d";
          optional int32 a = 1 [deprecated = true, (confluent.field_meta).doc = "d"];
          extensions 100 to max;
          extend A { optional group G = 100 {} }
        }
    """
    assert parse(dedent(text), {}).formatted("ignore_extensions") == (
        'syntax = "proto2";\n\nimport "confluent/meta.proto";\n\n'
        "message A {\n  optional int32 a = 1 [deprecated = true];\n}\n"
    )


def test_other_forms_are_the_canonical_text() -> None:
    schema = parse(ORDER, {})
    assert schema.formatted("") == schema.formatted("resolved") == schema.canonical


def test_the_serialized_form_is_the_descriptor_of_the_schema_alone() -> None:
    schema = parse(ORDER, {})
    file = FileDescriptorProto.FromString(base64.b64decode(schema.formatted("serialized")))
    assert (file.name, file.package, len(file.message_type)) == ("default", "shop.v1", 2)
    assert not file.HasField("source_code_info")


def field(**values: object) -> FileDescriptorProto:
    """A file with one message with one field."""
    file = FileDescriptorProto(name="a.proto", syntax="proto3")
    defaults = {"name": "f", "number": 1, "type": FieldDescriptorProto.TYPE_INT32}
    file.message_type.add(name="A").field.add(**{**defaults, **values})
    return file


def unfit_files() -> dict[str, FileDescriptorProto]:
    files = {
        "name of a field": field(name='f"; } message B {'),
        "name of a type": field(type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".A x = 1; .A"),
        "no type": FileDescriptorProto(name="a"),
        "default that is no number": field(default_value="1]; int32 x = [2"),
        "default that is not escaped": field(type=FieldDescriptorProto.TYPE_BYTES, default_value='"; '),
        "group of another message": field(type=FieldDescriptorProto.TYPE_GROUP, type_name=".B"),
        "oneof that does not exist": field(oneof_index=3),
        "package": FileDescriptorProto(name="a", package="a; message B {}"),
        "name that is not UTF-8": FileDescriptorProto.FromString(b"\x12\x02a\xff"),
        "option that is not UTF-8": FileDescriptorProto.FromString(b"B\x03\x0a\x01\xff"),
        "import that is not UTF-8": FileDescriptorProto.FromString(b"\x1a\x01\xff"),
        "entry without a map": field(),
        "entry with one field": field(
            type=FieldDescriptorProto.TYPE_MESSAGE,
            label=FieldDescriptorProto.LABEL_REPEATED,
            type_name=".A.FEntry",
        ),
        "oneof without fields": field(),
        "option that nothing declares": field(),
        "option that is not of its type": FileDescriptorProto(name="a", dependency=["confluent/meta.proto"]),
        "option whose text is not UTF-8": FileDescriptorProto(name="a", dependency=["confluent/meta.proto"]),
        "option that is not interpreted": field(),
        "two messages of one name": field(),
        "import that is not there": FileDescriptorProto(name="a", dependency=["gone.proto"]),
        "edition that does not exist": FileDescriptorProto(
            name="a", syntax="editions", edition=Edition.EDITION_MAX
        ),
        "syntax that does not exist": FileDescriptorProto(name="a", syntax="proto9"),
    }
    files["no type"].message_type.add(name="A").field.add(name="f", number=1)
    for name in ("entry without a map", "entry with one field"):
        files[name].message_type[0].nested_type.add(name="FEntry").options.map_entry = True
    files["oneof without fields"].message_type[0].oneof_decl.add(name="o")
    files["option that nothing declares"].message_type[0].options.MergeFromString(b"\xc2\xb8\x02\x01x")
    files["option that is not of its type"].options.MergeFromString(b"\xc2\x44\x01\x0a")
    files["option whose text is not UTF-8"].options.MergeFromString(b"\xc2\x44\x03\x0a\x01\xff")
    uninterpreted = files["option that is not interpreted"].options.uninterpreted_option.add(
        identifier_value="x"
    )
    uninterpreted.name.add(name_part="java_package", is_extension=False)
    files["two messages of one name"].message_type.add(name="A")
    return files


@pytest.mark.parametrize("file", unfit_files().values(), ids=unfit_files())
def test_a_descriptor_that_is_no_schema_is_refused(file: FileDescriptorProto) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(base64.b64encode(file.SerializeToString()).decode(), {})
    assert "\n" not in str(caught.value)


def test_a_descriptor_may_name_the_entries_of_maps_as_it_likes() -> None:
    file = field(
        type=FieldDescriptorProto.TYPE_MESSAGE,
        label=FieldDescriptorProto.LABEL_REPEATED,
        type_name=".A.pairs",
    )
    entry = file.message_type[0].nested_type.add(name="pairs")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=FieldDescriptorProto.TYPE_STRING)
    assert "  map<string, string> f = 1;\n" in canonical(base64.b64encode(file.SerializeToString()).decode())


UNUSUAL = {
    "message set": (
        'syntax = "proto2";\n\nmessage A {\n  option message_set_wire_format = true;\n\n'
        "  extensions 4 to max;\n}\n"
    ),
    "groups among extensions": (
        'syntax = "proto2";\n\nextend A {\n  optional group First = 100 {}\n}\n'
        "message A {\n  extensions 100 to max;\n}\n"
        "extend A {\n  optional group Second = 101 {}\n}\n"
    ),
    "map in an option": (
        'syntax = "proto3";\n\nimport "confluent/meta.proto";\n\noption (confluent.file_meta) = '
        '{ params: { key: "a", value: "1" }, params: { key: "b", value: "2" }, params: { key: "c", value: "3" } };\n'
    ),
}


@pytest.mark.parametrize("text", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_declarations_stay_as_they_are(text: str) -> None:
    for _ in range(5):  # a map has another order now and then
        assert canonical(text) == text
