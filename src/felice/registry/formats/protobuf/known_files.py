"""The .proto files that every schema may import without a reference, as with Confluent's registry.

They are `google/protobuf/*.proto` (with protoc), `google/type/*.proto` (a package of their own) and Confluent's own
files below. Clients do not register these files as references.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_META_TARGETS = {
    "file_meta": "FileOptions",
    "message_meta": "MessageOptions",
    "field_meta": "FieldOptions",
    "enum_meta": "EnumOptions",
    "enum_value_meta": "EnumValueOptions",
}
_META = """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option go_package = "../confluent";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule {
  string name = 1;
  string doc = 2;
  string expr = 3;
  string sql = 4;
}
""" + "".join(
    f"extend google.protobuf.{of} {{ Meta {name} = 1088; }}\n" for name, of in _META_TARGETS.items()
)

_DECIMAL = """syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""
_VARIANT = """syntax = "proto3";
package confluent.type;
message Variant {
  bytes metadata = 1;
  bytes value = 2;
}
"""

CONFLUENT_FILES = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    "confluent/type/variant.proto": _VARIANT,
}
"""The texts by their import paths. A reference of the same name takes precedence."""


def google_directories() -> list[tuple[str, Path]]:
    """The folders with Google's files, each with the import path that it has."""
    directories = []
    for name, package, inside in (
        ("google/protobuf", "grpc_tools", "_proto/google/protobuf"),
        ("google/type", "google.type", ""),
    ):
        spec = find_spec(package)
        for location in spec.submodule_search_locations or () if spec else ():
            directories.append((name, Path(location, inside)))
    return directories
