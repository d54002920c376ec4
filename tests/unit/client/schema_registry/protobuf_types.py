"""Message types for tests, made of descriptors as the Protobuf compiler makes them."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass

from felice.client.schema_registry.protobuf_files import new_pool

FILES = [
    """
    name: "shop/money.proto" package: "shop" syntax: "proto3"
    dependency: "google/type/date.proto"
    message_type { name: "Money"
      field { name: "cents" number: 1 label: LABEL_OPTIONAL type: TYPE_SINT64 }
      field { name: "due" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.type.Date" } }
    """,
    """
    name: "shop/person.proto" package: "shop" syntax: "proto3"
    dependency: "shop/money.proto"
    message_type { name: "Person"
      field { name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
      field { name: "debt" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Money" } }
    """,
    """
    name: "shop/order.proto" package: "shop" syntax: "proto3"
    dependency: "shop/person.proto"
    dependency: "shop/money.proto"
    dependency: "google/protobuf/timestamp.proto"
    dependency: "confluent/meta.proto"
    dependency: "confluent/type/decimal.proto"
    message_type { name: "Order"
      field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64 }
      field { name: "buyer" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Person" }
      field { name: "lines" number: 3 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".shop.Order.Line" }
      field { name: "at" number: 4 label: LABEL_OPTIONAL type: TYPE_MESSAGE
              type_name: ".google.protobuf.Timestamp" }
      field { name: "total" number: 5 label: LABEL_OPTIONAL type: TYPE_MESSAGE
              type_name: ".confluent.type.Decimal" }
      nested_type { name: "Other" field { name: "x" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 } }
      nested_type { name: "Line"
        field { name: "price" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Money" }
        nested_type { name: "Deep" field { name: "y" number: 1 label: LABEL_OPTIONAL type: TYPE_BYTES } } } }
    message_type { name: "Receipt" field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64 } }
    """,
    """
    name: "plain.proto" syntax: "proto3"
    message_type { name: "Plain" field { name: "text" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
    message_type { name: "Second" field { name: "text" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
    """,
    """
    name: "strict.proto" syntax: "proto2"
    message_type { name: "Strict" field { name: "a" number: 1 label: LABEL_REQUIRED type: TYPE_INT32 } }
    """,
]

POOL = new_pool()
for _text in FILES:
    POOL.Add(text_format.Parse(_text, FileDescriptorProto()))


def kind(name: str) -> Any:
    """The class of a message type."""
    return GetMessageClass(POOL.FindMessageTypeByName(name))


def serialized(file: str) -> bytes:
    return POOL.FindFileByName(file).serialized_pb
