"""Protobuf: schemas as the registry's serialized file descriptors, and the data of one message; pure, with protobuf.

Keeps true:  the message indexes of a message are the path of its type in the file of its schema.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from felice.client.schema_registry.caches import SERIALIZED
from felice.client.schema_registry.deserializing import Deserializing, Written
from felice.client.schema_registry.framing import SchemaId
from felice.client.schema_registry.model import PROTOBUF, RegisteredSchema, Schema, SchemaReference
from felice.client.schema_registry.parsing import References
from felice.client.schema_registry.protobuf_files import is_known, new_pool
from felice.client.schema_registry.serializing import Serializing, taken_flag, taken_function
from felice.client.schema_registry.steps import Ask, Steps
from felice.client.schema_registry.subjects import reference_subject_name_strategy
from felice.client.serialization import SerializationContext, SerializationError

_ROOT = "default"


def schema_text(file: FileDescriptor) -> str:
    """A file as the text that is registered."""
    return base64.standard_b64encode(file.serialized_pb).decode()


def text_of_file(file: FileDescriptorProto) -> str:
    """The same of a file that is not in a pool."""
    return base64.standard_b64encode(file.SerializeToString(deterministic=True)).decode()


def index_path(message: Descriptor) -> list[int]:
    """The path of a message type in its file: its number there, then that of each nested type."""
    path: list[int] = []
    while message.containing_type is not None:
        path.insert(0, message.containing_type.nested_types.index(message))
        message = message.containing_type
    return [list(message.file.message_types_by_name).index(message.name), *path]


def _file_of(name: str, text: str) -> FileDescriptorProto:
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError) as error:
        reason = f"the registry returned no serialized file descriptor for the schema {name}"
        raise SerializationError(f"{reason}: {error}") from error
    file.name = name
    return file


class ParsedFile:
    """The file of a schema, with those that it imports."""

    def __init__(self, file: FileDescriptor) -> None:
        self.file = file

    def message(self, path: list[int]) -> Descriptor:
        """The message type at a path. Raises `SerializationError` if there is none."""
        types = list(self.file.message_types_by_name.values())
        found = None
        for index in path:
            if not 0 <= index < len(types):
                place = "the schema" if found is None else f"the message type {found.full_name}"
                raise SerializationError(
                    f"message index {index} does not exist: {place} has {len(types)} types"
                )
            found = types[index]
            types = list(found.nested_types)
        if found is None:
            raise SerializationError("the data has no message indexes")
        return found


class ProtobufFormat:
    """How serialized file descriptors become files."""

    schema_type = PROTOBUF
    fmt: str | None = SERIALIZED

    def is_known(self, name: str) -> bool:
        """Whether a file needs no reference: Google's and Confluent's own."""
        return is_known(name)

    def parse(self, text: str, references: References) -> ParsedFile:
        """Parse a schema. Raises `SerializationError` for one that is damaged or lacks a file that it imports."""
        pool = new_pool()
        try:
            for name, used in dict(references).items():
                pool.Add(_file_of(name, used))
            pool.Add(_file_of(_ROOT, text))
            return ParsedFile(pool.FindFileByName(_ROOT))
        except (TypeError, KeyError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise SerializationError(f"the Protobuf schema is not complete: {reason}") from error


def message_class(message: Descriptor) -> type[Message]:
    """The class of a message type, as the Protobuf compiler generates it."""
    kind: type[Message] = GetMessageClass(message)
    return kind


def decoded(payload: bytes, kind: type[Message]) -> Message:
    """The message of the data. Raises `SerializationError` for data that is no such message."""
    message = kind()
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        raise SerializationError(f"the data is no {kind.DESCRIPTOR.full_name}: {error}") from error
    return message


def refuse_deprecated_format(conf: dict[str, Any]) -> None:
    """Take `use.deprecated.format` from `conf`. Raise ValueError unless it is False."""
    if taken_flag(conf, "use.deprecated.format", False):
        raise ValueError("use.deprecated.format is not supported")


class ProtobufSerializing(Serializing[ParsedFile]):
    """The steps of a Protobuf serializer of one message type."""

    def __init__(self, kind: type[Message], conf: dict[str, Any], *rest: Any, **options: Any) -> None:
        refuse_deprecated_format(conf)
        self._skips_known = taken_flag(conf, "skip.known.types", True)
        self._reference_subject = taken_function(
            conf, "reference.subject.name.strategy", reference_subject_name_strategy
        )
        self._kind, self._indexes = kind, index_path(kind.DESCRIPTOR)
        super().__init__(ProtobufFormat(), None, conf, None, *rest, **options)

    def record_name(self, obj: Any) -> str | None:
        """The full name of the message type."""
        if not isinstance(obj, self._kind):
            raise ValueError(f"the object must be a {self._kind.__name__}, not a {type(obj).__name__}")
        return str(self._kind.DESCRIPTOR.full_name)

    def indexes(self, obj: Any) -> list[int] | None:
        """The path of the message type in its file."""
        return self._indexes

    def whole_schema(self, obj: Any, ctx: SerializationContext | None) -> Steps[Schema | None]:
        """The message type's file, after the files that it imports are registered or looked up."""
        file = self._kind.DESCRIPTOR.file
        references = yield from self._references(ctx, file)
        return Schema(schema_text(file), PROTOBUF, references)

    def _references(
        self, ctx: SerializationContext | None, file: FileDescriptor
    ) -> Steps[list[SchemaReference]]:
        references = []
        for used in file.dependencies:
            if self._skips_known and is_known(used.name):
                continue
            deeper = yield from self._references(ctx, used)
            subject = self._reference_subject(ctx, used)
            schema = Schema(schema_text(used), PROTOBUF, deeper)
            if self._registers:
                yield Ask("register_schema", subject, schema, normalize_schemas=self._normalizes)
            found: RegisteredSchema = yield Ask(
                "lookup_schema", subject, schema, normalize_schemas=self._normalizes
            )
            references.append(SchemaReference(used.name, subject, found.version))
        return references

    def encode(self, value: Any, parsed: ParsedFile | None, schema: Schema | None) -> bytes:
        """Encode a message. Raises protobuf's EncodeError if a required field is missing."""
        data: bytes = value.SerializeToString()
        return data


class ProtobufDeserializing(Deserializing[ParsedFile]):
    """The steps of a Protobuf deserializer of one message type. Without a registry's client schemas are skipped."""

    def __init__(self, kind: type[Message], conf: dict[str, Any], *rest: Any, **options: Any) -> None:
        refuse_deprecated_format(conf)
        self._kind = message_class(kind.DESCRIPTOR)
        super().__init__(ProtobufFormat(), None, conf, None, *rest, **options)

    def record_name(self, parsed: ParsedFile, schema_id: SchemaId) -> str | None:
        """The full name of the type that wrote a message."""
        return str(parsed.message(schema_id.message_indexes or []).full_name)

    def decode(
        self,
        payload: bytes,
        writer: Written[ParsedFile] | None,
        reader: Written[ParsedFile] | None,
        schema_id: SchemaId,
    ) -> Any:
        """Decode a message. Raises `SerializationError` if its indexes do not exist in the writer's schema."""
        if writer is not None:
            writer.parsed.message(schema_id.message_indexes or [])
        return decoded(payload, self._kind)
