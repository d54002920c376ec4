"""Protobuf schemas as columns, and columns as the text that ksqlDB makes of them; pure, with protobuf.

message ConnectDefault1 { int32 ID = 1; repeated string TAGS = 2; ... }
STRUCT                       a message ConnectDefaultN beside the field
MAP                          repeated messages ConnectDefaultNEntry with the fields key and value
DECIMAL                      confluent.type.Decimal; its option has precision and scale
DATE, TIME, TIMESTAMP        google.type.Date, google.type.TimeOfDay, google.protobuf.Timestamp
with OPTIONAL, WRAPPER       numbers, texts, booleans and bytes are optional, or google.protobuf.Int32Value, ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message_factory import GetMessageClass

from felice.client.schema_registry.caches import form_of
from felice.client.schema_registry.model import Schema
from felice.client.schema_registry.protobuf_files import new_pool
from felice.client.schema_registry.protobuf_format import ParsedFile, index_path, text_of_file
from felice.pipelines.sql.rows.columns import Columns
from felice.pipelines.sql.rows.description import OPTIONAL, WRAPPER
from felice.pipelines.sql.rows.proto_text import file_of_text
from felice.pipelines.sql.rows.registry import PROTOBUF, References
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)

_SCALARS: dict[SqlType, tuple[str, str]] = {
    BOOLEAN: ("bool", "Bool"),
    INTEGER: ("int32", "Int32"),
    BIGINT: ("int64", "Int64"),
    DOUBLE: ("double", "Double"),
    STRING: ("string", "String"),
    BYTES: ("bytes", "Bytes"),
}
"""The type, and the begin of the wrapper's name."""
DECIMAL_MESSAGE = "confluent.type.Decimal"
_MESSAGES: dict[SqlType, tuple[str, str]] = {
    DATE: ("google.type.Date", "google/type/date.proto"),
    TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
LOGICAL = {message: type_ for type_, (message, _) in _MESSAGES.items()}
"""The types of messages that are one value."""
_DEFAULT_PRECISION = 64


def schema_of(columns: Columns, full_name: str | None, nullable: str | None) -> str:
    """The .proto text of columns."""
    return _Writer(nullable).text(columns, full_name)


class _Writer:
    def __init__(self, nullable: str | None) -> None:
        self._nullable, self._number, self._imports = nullable, 0, set[str]()

    def text(self, columns: Columns, full_name: str | None) -> str:
        package, _, name = (full_name or self._new_name()).rpartition(".")
        body = "\n".join(self._message(name, columns, ""))
        imports = "".join(f'import "{one}";\n' for one in sorted(self._imports))
        head = 'syntax = "proto3";\n' + (f"package {package};\n" if package else "")
        return f"{head}\n{imports + chr(10) if imports else ''}{body}\n"

    def _new_name(self) -> str:
        self._number += 1
        return f"ConnectDefault{self._number}"

    def _message(self, name: str, fields: Columns, indent: str) -> Iterator[str]:
        yield f"{indent}message {name} {{"
        nested: list[str] = []
        for number, (field, type_) in enumerate(fields, 1):
            label, kind, options = self._field(field, type_, nested, indent + "  ")
            yield f"{indent}  {label}{kind} {field} = {number}{options};"
        if nested:
            yield ""
            yield from nested
        yield f"{indent}}}"

    def _field(self, name: str, type_: SqlType, nested: list[str], indent: str) -> tuple[str, str, str]:
        """Label, type and options of a field. Its messages are added to `nested`."""
        match type_:
            case Array(element):
                return ("repeated ", *self._field(name, element, nested, indent)[1:])
            case Map(key, member):
                entry = f"{self._new_name()}Entry"
                nested.extend(self._message(entry, (("key", key), ("value", member)), indent))
                return "repeated ", entry, ""
            case Struct(fields):
                message = self._new_name()
                nested.extend(self._message(message, fields, indent))
                return "", message, ""
            case Decimal(precision, scale):
                self._imports |= {"confluent/meta.proto", "confluent/type/decimal.proto"}
                params = f'{{ key: "precision", value: "{precision}" }}, {{ key: "scale", value: "{scale}" }}'
                return "", DECIMAL_MESSAGE, f" [(confluent.field_meta) = {{ params: [{params}] }}]"
            case _:
                return self._scalar(type_)

    def _scalar(self, type_: SqlType) -> tuple[str, str, str]:
        if (found := _MESSAGES.get(type_)) is not None:
            message, file = found
            self._imports.add(file)
            return "", message, ""
        name, wrapper = _SCALARS[type_]
        if self._nullable == WRAPPER:
            self._imports.add("google/protobuf/wrappers.proto")
            return "", f"google.protobuf.{wrapper}Value", ""
        return "optional " if self._nullable == OPTIONAL else "", name, ""


def parsed(text: str, references: References) -> ParsedFile:
    """The file of a schema: of a .proto text, or a descriptor in base64. Raises ValueError for one that is damaged."""
    from felice.client.schema_registry.protobuf_format import ProtobufFormat

    try:
        files = [(name, _in_base64(used)) for name, used in references]
        return ProtobufFormat().parse(_in_base64(text), files)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(str(error)) from error


def _in_base64(text: str) -> str:
    return (
        text if form_of(Schema(text, PROTOBUF)) is not None else text_of_file(file_of_text(text, "default"))
    )


def message_of(file: ParsedFile, full_name: str | None) -> Descriptor:
    """The message type of a name; the first one without a name. Raises ValueError if there is none."""
    found: list[Descriptor] = list(_messages(file.file.message_types_by_name.values()))
    for message in found:
        if full_name is None or message.full_name == full_name:
            return message
    raise ValueError(f"the schema has no message {full_name or 'at all'}")


def _messages(messages: Any) -> Iterator[Descriptor]:
    for message in messages:
        yield message
        yield from _messages(message.nested_types)


def path_of(message: Descriptor) -> list[int]:
    """Where a message type is in its file."""
    return index_path(message)


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether a field has any number of values."""
    told = getattr(field, "is_repeated", None)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED) if told is None else bool(told)


def entry_of(field: FieldDescriptor) -> Descriptor | None:
    """The message type of the entries of a map; None if a field is none."""
    message = field.message_type
    if message is None or not is_repeated(field):
        return None
    is_pair = message.name.endswith("Entry") and list(message.fields_by_name) == ["key", "value"]
    return message if message.GetOptions().map_entry or is_pair else None


def oneofs_of(message: Descriptor) -> dict[str, OneofDescriptor]:
    """The oneofs of a message type, by the names of their columns; not those of optional fields."""
    real = (one for one in message.oneofs if len(one.fields) > 1 or one.name != f"_{one.fields[0].name}")
    return {f"{one.name}_{one.index}": one for one in real}


def type_of_schema(
    text: str,
    references: References,
    fold: Callable[[str], str],
    full_name: str | None,
    nullable: str | None,
) -> SqlType | None:
    """The SQL type of a message; None if no field of the message has a SQL type. `fold` makes the names of fields.

    With `WRAPPER`, a wrapper such as google.protobuf.Int32Value has the type of its value. Otherwise it is a STRUCT
    with the field value.
    """
    return _Types(fold, nullable == WRAPPER).struct(message_of(parsed(text, references), full_name), ())


class _Types:
    """The types of fields. `within` has the message types that contain a field."""

    def __init__(self, fold: Callable[[str], str], unwraps: bool) -> None:
        self._fold, self._unwraps = fold, unwraps

    def struct(self, message: Descriptor, within: tuple[str, ...]) -> SqlType | None:
        if message.full_name in within:
            raise ValueError(f"the message {message.full_name} contains itself")
        within = (*within, message.full_name)
        oneofs = oneofs_of(message)
        in_oneofs = {field.name for one in oneofs.values() for field in one.fields}
        found: list[tuple[str, SqlType | None]] = [
            (name, Struct(self._named((field.name, self._type(field, within)) for field in one.fields)))
            for name, one in oneofs.items()
        ]
        found += [
            (field.name, self._type(field, within)) for field in message.fields if field.name not in in_oneofs
        ]
        fields = self._named(found)
        return Struct(fields) if fields else None

    def _named(self, types: Iterable[tuple[str, SqlType | None]]) -> Columns:
        return tuple((self._fold(name), type_) for name, type_ in types if type_ is not None)

    def _type(self, field: FieldDescriptor, within: tuple[str, ...]) -> SqlType | None:
        if (entry := entry_of(field)) is not None:
            member = self._type(entry.fields_by_name["value"], within)
            return None if member is None else Map(STRING, member)
        one = self._single(field, within)
        return Array(one) if one is not None and is_repeated(field) else one

    def _single(self, field: FieldDescriptor, within: tuple[str, ...]) -> SqlType | None:
        message = field.message_type
        if message is None:
            return KINDS.get(field.type)
        if message.full_name == DECIMAL_MESSAGE:
            return _decimal(field)
        if message.full_name in LOGICAL:
            return LOGICAL[message.full_name]
        if self._unwraps and (wrapped := wrapped_in(message)) is not None:
            return KINDS.get(wrapped.type)
        return self.struct(message, within)


_FIELD = FieldDescriptor
KINDS: dict[int, SqlType] = {
    _FIELD.TYPE_BOOL: BOOLEAN,
    _FIELD.TYPE_STRING: STRING,
    _FIELD.TYPE_ENUM: STRING,
    _FIELD.TYPE_BYTES: BYTES,
    **dict.fromkeys((_FIELD.TYPE_FLOAT, _FIELD.TYPE_DOUBLE), DOUBLE),
    **dict.fromkeys((_FIELD.TYPE_INT32, _FIELD.TYPE_SINT32, _FIELD.TYPE_SFIXED32), INTEGER),
    **dict.fromkeys(
        (
            _FIELD.TYPE_UINT32,
            _FIELD.TYPE_FIXED32,
            _FIELD.TYPE_INT64,
            _FIELD.TYPE_UINT64,
            _FIELD.TYPE_SINT64,
            _FIELD.TYPE_FIXED64,
            _FIELD.TYPE_SFIXED64,
        ),
        BIGINT,
    ),
}
"""The type of SQL for each type of a field that is no message."""


def wrapped_in(message: Descriptor) -> FieldDescriptor | None:
    """The field of a wrapper, such as google.protobuf.Int32Value; None if a message type is none."""
    is_one = message.file.name == "google/protobuf/wrappers.proto"
    return message.fields_by_name["value"] if is_one else None


def _decimal(field: FieldDescriptor) -> Decimal:
    pool = new_pool()
    options = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FieldOptions"))
    GetMessageClass(pool.FindMessageTypeByName("confluent.Meta"))
    found = options.FromString(field.GetOptions().SerializeToString())
    meta = found.Extensions[pool.FindExtensionByName("confluent.field_meta")]
    return Decimal(
        int(meta.params.get("precision") or _DEFAULT_PRECISION), int(meta.params.get("scale") or 0)
    )
