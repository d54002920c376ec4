"""Whether a reader with one Protobuf schema can read the data that a writer wrote with another.

Keeps true:  the answer depends on the two sets of descriptors alone, and takes time in proportion to their size.
How:         `RULES` lists what is incompatible; all other changes are compatible. Messages are matched by name, fields
             by number. The messages of imported files are compared where a field has them as its type.
Source:      the rules that Confluent publishes for its registry, and the section on updating a message type in
             Google's language guide, which they cite. Some of them Confluent's server does not apply to all fields,
             although data can be lost or unreadable; here they hold for all:
             a number becomes repeated in a proto3 schema (Confluent's compares only labels that are written);
             the type of a field changes that moves into a oneof;
             an optional string, bytes or message field becomes required;
             two oneofs become one, so that a record may have several of its fields.
             Services, enum values, extensions, reserved numbers, defaults and names of fields have no rule: they do
             not change how the bytes of a record are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

from google.protobuf.descriptor_pb2 import FeatureSet, FieldDescriptorProto

from felice.dataclass import dataclass
from felice.registry.formats.schema import Roles

RULES = {
    "PACKAGE_CHANGED": "The {reader} schema has another package than the {writer} schema, at path '{path}'",
    "MESSAGE_REMOVED": "The {reader} schema has no message at path '{path}', as the {writer} schema has",
    "FIELD_KIND_CHANGED": (
        "The field at path '{path}' in the {reader} schema is not a scalar, message, group or map as in the {writer} "
        "schema"
    ),
    "FIELD_SCALAR_KIND_CHANGED": (
        "The scalar type of the field at path '{path}' in the {reader} schema cannot read its type in the {writer} "
        "schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The message type of the field at path '{path}' in the {reader} schema cannot read its type in the {writer} "
        "schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label of the numeric field at path '{path}' in the {reader} schema is not its label in the {writer} schema"
    ),
    "REQUIRED_FIELD_ADDED": "The field at path '{path}' is required in the {reader} schema, not in the {writer} schema",
    "REQUIRED_FIELD_REMOVED": "The {reader} schema has no field at path '{path}', which the {writer} schema requires",
    "ONEOF_FIELD_REMOVED": "The {reader} schema lacks the field at path '{path}', in a oneof of the {writer} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "The oneof at path '{path}' in the {reader} schema has several fields that are in no oneof in the {writer} "
        "schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "The oneof at path '{path}' in the {reader} schema has fields that are not in one oneof in the {writer} schema"
    ),
}
"""The incompatible changes, as `errorType` and `description` of the REST API name them."""


class Kind(Enum):
    """How a field is encoded: fields of two kinds cannot read each other."""

    SCALAR = "scalar"
    MESSAGE = "message"
    GROUP = "group"
    MAP = "map"


SCALAR_KINDS = (
    ("int32", "int64", "uint32", "uint64", "bool", "enum"),
    ("sint32", "sint64"),
    ("string", "bytes"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
    ("float",),
    ("double",),
)
"""Scalar types that can read each other stand in one row."""

_ROW_OF = {name: row for row in SCALAR_KINDS for name in row}
_NUMERIC = set(_ROW_OF) - {"string", "bytes"}
_LABELS = {number: name.removeprefix("LABEL_").lower() for name, number in FieldDescriptorProto.Label.items()}
_TYPE_NAMES = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}


@dataclass(frozen=True, slots=True)
class Difference:
    """An incompatible change: a key of `RULES`, its place, and what both schemas have there."""

    rule: str
    path: str
    reader: str = ""
    writer: str = ""

    def text(self, roles: Roles) -> str:
        """The difference in the form that clients know from Confluent's registry."""
        description = RULES[self.rule].format(path=self.path, reader=roles.reader, writer=roles.writer)
        text = f'errorType:"{self.rule}", description:"{description}"'
        if self.reader:
            both = f"{self.reader} in the {roles.reader} schema, {self.writer} in the {roles.writer} schema"
            text += f', additionalInfo:"{both}"'
        return f"{{{text}}}"


def differences(reader: Sequence[Any], writer: Sequence[Any]) -> list[Difference]:
    """The incompatible changes from `writer` to `reader`, in the order of the writer's messages and fields.

    Both are FileDescriptorProtos with full names of types: all imports, and the schema as the last.
    """
    comparison = _Comparison(_Types(reader), _Types(writer))
    comparison.compare_files(reader[-1], writer[-1])
    return comparison.result()


def _package(file: Any) -> str:
    """The package of a file with a dot before it; empty if there is none."""
    return f".{file.package}" if file.package else ""


@dataclass(frozen=True, slots=True)
class _Message:
    """A message with what its file says of it."""

    declaration: Any
    file: Any
    in_schema: bool
    """Whether the schema itself has the message, and not one of its imports."""

    full_name: str
    """With a dot before it."""

    @property
    def local_name(self) -> str:
        """The name without the package."""
        return self.full_name.removeprefix(f".{self.file.package}" if self.file.package else "").removeprefix(
            "."
        )


class _Types:
    """All messages of some files by their full names."""

    def __init__(self, files: Sequence[Any]) -> None:
        self._messages: dict[str, _Message] = {}
        for file in files:
            self._add(file.message_type, _package(file), file, file is files[-1])

    def message(self, full_name: str) -> _Message:
        return self._messages[full_name]

    def _add(self, messages: Iterable[Any], outer: str, file: Any, in_schema: bool) -> None:
        for message in messages:
            name = f"{outer}.{message.name}"
            self._messages[name] = _Message(message, file, in_schema, name)
            self._add(message.nested_type, name, file, in_schema)

    def field(self, field: Any, owner: _Message) -> _Field:
        """What the rules say about: kind, type, label and oneof of a field of `owner`."""
        label = _LABELS[field.label]
        if field.options.features.field_presence == FeatureSet.LEGACY_REQUIRED:
            label = "required"
        oneof = ""
        if field.HasField("oneof_index") and not field.proto3_optional:
            oneof = owner.declaration.oneof_decl[field.oneof_index].name
        kind, entry = self._kind(field, owner)
        type_name = field.type_name or _TYPE_NAMES[field.type]
        if field.type == FieldDescriptorProto.TYPE_ENUM:
            type_name = "enum"
        return _Field(field.number, kind, type_name, label, oneof, entry)

    def _kind(self, field: Any, owner: _Message) -> tuple[Kind, tuple[_Field, ...]]:
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            return Kind.GROUP, ()
        if field.type != FieldDescriptorProto.TYPE_MESSAGE:
            return Kind.SCALAR, ()
        message = self.message(field.type_name)
        if message.declaration.options.map_entry:
            return Kind.MAP, tuple(self.field(inner, message) for inner in message.declaration.field)
        of_field, of_file = field.options.features, owner.file.options.features
        chosen = of_field if of_field.HasField("message_encoding") else of_file
        # The entries of maps keep the encoding of proto3 (language guide of the editions).
        delimited = (
            chosen.message_encoding == FeatureSet.DELIMITED and not owner.declaration.options.map_entry
        )
        return Kind.GROUP if delimited else Kind.MESSAGE, ()


@dataclass(frozen=True, slots=True)
class _Field:
    number: int
    kind: Kind
    type: str
    """A scalar type as in a row of `SCALAR_KINDS`, or the full name of a message."""

    label: str
    oneof: str
    """Empty for a field outside of oneofs, also for proto3's `optional`."""

    entry: tuple[_Field, ...]
    """The fields key and value of a map."""

    def path(self, message_path: str) -> str:
        return f"{message_path}/{self.oneof}/{self.number}" if self.oneof else f"{message_path}/{self.number}"


_Pair = tuple[str, str]
"""The full names of a reader's and a writer's message."""


@dataclass(frozen=True, slots=True)
class _TypeOf:
    """A field whose types have the same name; whether they are compatible, their own comparison decides."""

    change: Difference
    types: _Pair


class _Comparison:
    """Compares the two schemas, then the pairs of imported messages that their fields have as types, each once."""

    def __init__(self, reader: _Types, writer: _Types) -> None:
        self._reader = reader
        self._writer = writer
        self._found: dict[_Pair, list[Difference | _TypeOf]] = {}
        self._current: list[Difference | _TypeOf] = []
        self._waiting: deque[_Pair] = deque()

    def compare_files(self, reader: Any, writer: Any) -> None:
        self._current = self._found.setdefault(("", ""), [])
        if reader.package != writer.package:
            self._add("PACKAGE_CHANGED", "#/", reader.package or "none", writer.package or "none")
        self._messages(reader.message_type, _package(reader), writer.message_type, _package(writer), "#")
        while self._waiting:
            pair = self._waiting.popleft()
            self._current = self._found[pair]
            mine, other = self._reader.message(pair[0]), self._writer.message(pair[1])
            self._message(mine, other, "#/" + mine.local_name.replace(".", "/"))

    def result(self) -> list[Difference]:
        """All differences. A type is incompatible if its message is, or that of a field in it, and so on."""
        users: dict[_Pair, list[_Pair]] = {}
        for pair, items in self._found.items():
            for item in items:
                if isinstance(item, _TypeOf):
                    users.setdefault(item.types, []).append(pair)
        incompatible: set[_Pair] = set()
        waiting = [
            pair for pair, items in self._found.items() if any(isinstance(i, Difference) for i in items)
        ]
        while waiting:
            pair = waiting.pop()
            if pair not in incompatible:
                incompatible.add(pair)
                waiting += users.get(pair, [])
        unique: dict[Difference, None] = {}
        for items in self._found.values():
            for item in items:
                if isinstance(item, Difference):
                    unique[item] = None
                elif item.types in incompatible:
                    unique[item.change] = None
        return list(unique)

    def _add(self, rule: str, path: str, reader: str = "", writer: str = "") -> None:
        self._current.append(Difference(rule, path, reader, writer))

    def _messages(self, reader: Any, reader_outer: str, writer: Any, writer_outer: str, path: str) -> None:
        names = {message.name for message in reader if not message.options.map_entry}
        for message in writer:
            if message.options.map_entry:
                continue
            at = f"{path}/{message.name}"
            if message.name in names:
                mine = self._reader.message(f"{reader_outer}.{message.name}")
                self._message(mine, self._writer.message(f"{writer_outer}.{message.name}"), at)
            else:
                self._add("MESSAGE_REMOVED", at)

    def _message(self, reader: _Message, writer: _Message, path: str) -> None:
        mine = {f.number: f for f in (self._reader.field(f, reader) for f in reader.declaration.field)}
        others = {f.number: f for f in (self._writer.field(f, writer) for f in writer.declaration.field)}
        self._moves(mine, others, path)
        oneofs = {field.oneof for field in mine.values()}
        for number, other in others.items():
            field = mine.get(number)
            if other.oneof in oneofs - {""} and (field is None or field.oneof != other.oneof):
                self._add("ONEOF_FIELD_REMOVED", other.path(path))
            elif field is None and other.label == "required":
                self._add("REQUIRED_FIELD_REMOVED", other.path(path))
            if field is not None:
                self._field(field, other, field.path(path))
        for number, field in mine.items():
            if number not in others and field.label == "required":
                self._add("REQUIRED_FIELD_ADDED", field.path(path))
        mine_nested, other_nested = reader.declaration.nested_type, writer.declaration.nested_type
        self._messages(mine_nested, reader.full_name, other_nested, writer.full_name, path)

    def _moves(self, mine: dict[int, _Field], others: dict[int, _Field], path: str) -> None:
        """A field may come into a oneof alone, and only into one whose other fields are new."""
        origins: dict[str, list[str]] = {}
        for number, field in mine.items():
            if field.oneof and number in others:
                origins.setdefault(field.oneof, []).append(others[number].oneof)
        for oneof, earlier in origins.items():
            if earlier.count("") > 1:
                self._add("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{oneof}")
            elif len(set(earlier)) > 1:
                self._add("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{oneof}")

    def _field(self, mine: _Field, other: _Field, path: str) -> None:
        if mine.kind is not other.kind:
            self._add("FIELD_KIND_CHANGED", path, mine.kind.value, other.kind.value)
            return
        if mine.kind is Kind.MAP:
            for my_part, other_part in zip(mine.entry, other.entry, strict=True):
                self._field(my_part, other_part, path)
            return
        if mine.kind is Kind.SCALAR:
            if _ROW_OF[mine.type] is not _ROW_OF[other.type]:
                self._add("FIELD_SCALAR_KIND_CHANGED", path, mine.type, other.type)
        else:
            self._named_types(mine.type, other.type, path)
        if mine.label != other.label:
            if mine.type in _NUMERIC and other.type in _NUMERIC:
                self._add("FIELD_NUMERIC_LABEL_CHANGED", path, mine.label, other.label)
            elif mine.label == "required":
                self._add("REQUIRED_FIELD_ADDED", path)

    def _named_types(self, mine: str, other: str, path: str) -> None:
        reader, writer = self._reader.message(mine), self._writer.message(other)
        change = Difference("FIELD_NAMED_TYPE_CHANGED", path, mine.removeprefix("."), other.removeprefix("."))
        if reader.local_name != writer.local_name:
            self._current.append(change)
        elif not (reader.in_schema and writer.in_schema):  # The schemas' own messages are compared anyway.
            pair = (mine, other)
            if pair not in self._found:
                self._found[pair] = []
                self._waiting.append(pair)
            self._current.append(_TypeOf(change, pair))
