"""What the rules call compatible can be read: data of random schemas, read with random changes of these schemas."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.registry.formats.protobuf.rules import differences

TYPES = [number for name, number in FieldDescriptorProto.Type.items() if name != "TYPE_GROUP"]
LABELS = [
    FieldDescriptorProto.LABEL_OPTIONAL,
    FieldDescriptorProto.LABEL_REPEATED,
    FieldDescriptorProto.LABEL_REQUIRED,
]
ONEOFS = ["first", "second"]
TEXTS = [FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES]

Field = tuple[Any, Any, str]
"""Type, label, and the name of a oneof or nothing."""


def random_field(random: Random) -> Field:
    oneof = random.choice(["", "", *ONEOFS])
    return random.choice(TYPES), LABELS[0] if oneof else random.choice([*LABELS, LABELS[0]]), oneof


def changed(fields: dict[int, Field], random: Random) -> dict[int, Field]:
    """Some fields with another type, label or oneof, some fewer and some more."""
    result = {}
    for number, (kind, label, oneof) in fields.items():
        other_kind, other_label, other_oneof = random_field(random)
        action = random.randrange(8)
        if action == 0:
            kind = other_kind
        elif action == 1 and not oneof:
            label = other_label
        elif action == 2:
            label, oneof = (LABELS[0] if other_oneof else label), other_oneof
        if action != 3:
            result[number] = (kind, label, oneof)
    if random.randrange(4) == 0:
        result[99] = random_field(random)
    return result


def file_of(fields: dict[int, Field]) -> FileDescriptorProto:
    """A file with a message A, which has the fields, and with the types that they have."""
    file = FileDescriptorProto(name="a.proto", syntax="proto2", package="p")
    enum = file.enum_type.add(name="E")
    for number, name in enumerate(("ZERO", "ONE")):
        enum.value.add(name=name, number=number)
    file.message_type.add(name="M").field.add(name="f", number=1, type="TYPE_BOOL", label="LABEL_OPTIONAL")
    message = file.message_type.add(name="A")
    used = [name for name in ONEOFS if any(oneof == name for *_, oneof in fields.values())]
    for name in used:
        message.oneof_decl.add(name=name)
    # The fields of a oneof must be neighbours.
    for number, (kind, label, oneof) in sorted(fields.items(), key=lambda item: item[1][2]):
        field = message.field.add(name=f"f{number}", number=number, type=kind, label=label)
        if oneof:
            field.oneof_index = used.index(oneof)
        if kind in (FieldDescriptorProto.TYPE_ENUM, FieldDescriptorProto.TYPE_MESSAGE):
            field.type_name = ".p.E" if kind == FieldDescriptorProto.TYPE_ENUM else ".p.M"
    return file


def message_class(file: FileDescriptorProto) -> Any:
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("p.A"))


def random_value(kind: Any, random: Random) -> Any:
    if kind in TEXTS:
        text = random.choice(["", "a", "bc"])
        return text if kind == FieldDescriptorProto.TYPE_STRING else text.encode()
    return random.randrange(2)


def write(message: Any, fields: dict[int, Field], random: Random) -> None:
    """Sets the required fields, and some of the others: one of each oneof at most."""
    for number, (kind, label, _) in fields.items():
        name = f"f{number}"
        if label == FieldDescriptorProto.LABEL_REPEATED:
            for _ in range(random.randrange(3)):
                if kind == FieldDescriptorProto.TYPE_MESSAGE:
                    getattr(message, name).add(f=random.randrange(2))
                else:
                    getattr(message, name).append(random_value(kind, random))
        elif label == FieldDescriptorProto.LABEL_REQUIRED or random.randrange(2):
            if kind == FieldDescriptorProto.TYPE_MESSAGE:
                getattr(message, name).f = bool(random.randrange(2))
            else:
                setattr(message, name, random_value(kind, random))


def values(message: Any, number: int) -> list[Any]:
    """The values of a field, comparable with those of a field of another type in the same row."""
    field = message.DESCRIPTOR.fields_by_number[number]
    if field.is_repeated:
        found: Iterable[Any] = getattr(message, field.name)
    else:
        found = [getattr(message, field.name)] if message.HasField(field.name) else []
    return [
        value.encode() if isinstance(value, str) else value.f if field.message_type else value
        for value in found
    ]


@settings(max_examples=500)
@given(st.randoms(use_true_random=False))
def test_data_of_the_writer_can_be_read_where_the_rules_find_nothing(random: Random) -> None:
    fields = {number: random_field(random) for number in range(1, random.randrange(2, 6))}
    reader_fields = changed(fields, random)
    writer, reader = file_of(fields), file_of(reader_fields)
    if differences([reader], [writer]):
        return
    written = message_class(writer)()
    write(written, fields, random)
    read = message_class(reader).FromString(written.SerializeToString())
    assert read.IsInitialized()
    for number in fields.keys() & reader_fields.keys():
        before, after = values(written, number), values(read, number)
        single = reader_fields[number][1] != FieldDescriptorProto.LABEL_REPEATED
        assert after == (before[-1:] if single else before)
