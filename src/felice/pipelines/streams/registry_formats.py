"""Formats with schemas of a registry: `avro`, `json_schema` and `protobuf`.

Keeps true:  the bytes are those of Confluent's serializers: a zero, the id of the schema in four bytes, and the data.
             So two keys that were written with two versions of a schema are two keys, as in Kafka Streams.
             A format writes one version, in every process: the last version of a subject is asked for once, where the
             format is made.
             A format is sent to worker processes as values. Its serializers are made once in each process.
             A value that would be read as another one is refused (`exact_values`).
How:         The serializers and deserializers of `felice.client` do the work. Bytes are read with the schema that wrote
             them; with a schema of its own, an Avro format converts what it reads to it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from felice.dataclass import dataclass
from felice.pipelines.errors import OutsideError, SchemaError
from felice.pipelines.exact_values import avro_check, check_json, checked
from felice.pipelines.registry_clients import RegistryAddress, read_with, write_with
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.registry_subjects import RECORD, Subject, subject_of

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from felice.client.schema_registry.model import Schema


@dataclass(frozen=True, slots=True)
class _Serdes:
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


_serdes: dict[tuple[int, _OfRegistry, tuple[str, str] | None], _Serdes] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _OfRegistry(Format):
    """A format of one kind of schemas."""

    address: RegistryAddress
    subject: Subject
    registers: bool
    version_id: int | None
    """The id of the schema to write with, for a format without a schema of its own."""

    def write(self, value: Any) -> bytes:
        serdes = self._serdes()
        return write_with(self.address, lambda: serdes.write(value))

    def read(self, data: bytes) -> Any:
        serdes = self._serdes()
        return read_with(self.address, lambda: serdes.read(data))

    def of_topic(self, topic: str, part: str) -> Format:
        return replace(self, subject=self.subject.at(topic, part))

    def placed_by(self, data: bytes) -> bytes | None:
        return None  # Writers with another version of the schema give an equal key other bytes.

    def _serdes(self) -> _Serdes:
        key = os.getpid(), self, self.subject.place
        found = _serdes.get(key)
        if found is None:
            # Outside the lock: it may ask the registry. Two threads may make it; both work.
            try:
                made = write_with(self.address, self._made)
            except (ValueError, ImportError) as error:
                # Of the schema or the installation: no record is at fault.
                raise OutsideError(f"the format {self.name} cannot be used: {error}") from error
            with _lock:
                found = _serdes.setdefault(key, made)
        return found

    def _made(self) -> _Serdes:
        raise NotImplementedError

    def _conf(self) -> dict[str, Any]:
        conf: dict[str, Any] = {"auto.register.schemas": self.registers and self.version_id is None}
        if self.version_id is not None:
            conf["use.schema.id"] = self.version_id
        return conf | self.subject.conf()


@dataclass(frozen=True, slots=True)
class _Avro(_OfRegistry):
    schema: Schema | None
    name = "avro"

    def _made(self) -> _Serdes:
        from felice.client.schema_registry.avro import AvroDeserializer, AvroSerializer
        from felice.client.schema_registry.decoding import parsed_of

        client = self.address.client()
        written = self.schema or client.get_schema(self.version_id, self.subject.name)
        check = avro_check(parsed_of(client, written).schema)
        serialize = AvroSerializer(client, self.schema, conf=self._conf())
        write = checked(check, lambda value: serialize(value, self.subject.context()))
        return _Serdes(write, AvroDeserializer(client, self.schema))


@dataclass(frozen=True, slots=True)
class _JsonSchema(_OfRegistry):
    schema: Schema | None
    name = "json_schema"

    def _made(self) -> _Serdes:
        from felice.client.schema_registry.json_schema import JSONDeserializer, JSONSerializer

        client = self.address.client()
        serialize = JSONSerializer(self.schema, client, conf=self._conf())
        write = checked(check_json, lambda value: serialize(value, self.subject.context()))
        return _Serdes(write, JSONDeserializer(self.schema, schema_registry_client=client))


@dataclass(frozen=True, slots=True)
class _Protobuf(_OfRegistry):
    message: type[Message]
    name = "protobuf"

    def _made(self) -> _Serdes:
        from felice.client.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

        client, kind = self.address.client(), self.message
        serialize = ProtobufSerializer(kind, client, self._conf())

        def write(value: Any) -> bytes:
            if not isinstance(value, kind) and _is_also(value, kind):
                # Of another class: the program made the type in this process, too.
                value = kind.FromString(value.SerializeToString())
            data: bytes = serialize(value, self.subject.context())  # type: ignore[assignment]
            return data

        return _Serdes(write, ProtobufDeserializer(kind, schema_registry_client=client))

    def field(self, name: str) -> Callable[[Any], Any]:
        fields = self.message.DESCRIPTOR.fields_by_name
        if name not in fields:
            raise SchemaError(
                f"{self.message.DESCRIPTOR.full_name} has no field {name!r}; it has {', '.join(fields)}"
            )
        if fields[name].has_presence:
            return lambda value: getattr(value, name) if value.HasField(name) else None
        return lambda value: getattr(value, name)


def _is_also(value: Any, kind: type[Message]) -> bool:
    """Whether a value is a message of the same type, though of another class."""
    descriptor = getattr(value, "DESCRIPTOR", None)
    return descriptor is not None and descriptor.full_name == kind.DESCRIPTOR.full_name


def avro(
    registry: str | Mapping[str, Any],
    schema: str | Schema | None = None,
    *,
    subject: str | None = None,
    strategy: str = RECORD,
    register: bool = True,
) -> Format:
    """Avro with a schema registry; records are dicts. Needs the extra `felice[schemas]`.

        orders = avro("http://localhost:8081", schema=text, subject="orders-value")

    `registry` is an address, or a client's configuration with confluent_kafka's names (`url`, `basic.auth.user.info`,
    `ssl.ca.location`, …). With `schema`, a text or a `Schema`, values are written with it, and values of other versions
    are converted to it when they are read. Without it they are read as they were written, and written with the version
    of `subject` that is the last one now: the registry is asked.
    `subject` is where the schema is registered. Without it, `strategy` says so, with Confluent's names: RECORD for the
    full name of the record, TOPIC for TOPIC-key and TOPIC-value, TOPIC_RECORD for the topic and that name.
    `register=False` requires a schema that is registered already.

    Raises ValueError for a schema that is not right, and `OutsideError` if a registry that must be asked gives no
    answer: for the version of a subject, and for the schemas that `schema` refers to.
    """
    return _Avro(*_parts(registry, schema, "AVRO", (subject, strategy), register))


def json_schema(
    registry: str | Mapping[str, Any],
    schema: str | Schema | None = None,
    *,
    subject: str | None = None,
    strategy: str = RECORD,
    register: bool = True,
) -> Format:
    """JSON with a schema registry, whose schemas check values that are read and written. Arguments: as `avro`'s.

    `subject` must be given unless the schema has a `title`.
    """
    return _JsonSchema(*_parts(registry, schema, "JSON", (subject, strategy), register))


def protobuf(
    registry: str | Mapping[str, Any],
    message: type[Message],
    *,
    subject: str | None = None,
    strategy: str = RECORD,
    register: bool = True,
) -> Format:
    """Protobuf with a schema registry; values are messages of this generated class. Other arguments: as `avro`'s."""
    if not hasattr(message, "DESCRIPTOR") or not isinstance(message, type):
        raise TypeError(f"message must be a class that the Protobuf compiler generated, not {message!r}")
    return _Protobuf(
        RegistryAddress.of(registry), subject_of(subject, strategy), _flag(register), None, message
    )


def _parts(
    registry: str | Mapping[str, Any],
    schema: str | Schema | None,
    kind: str,
    subject: tuple[str | None, str],
    register: bool,
) -> tuple[RegistryAddress, Subject, bool, int | None, Schema | None]:
    """What formats with a text as schema are made of. Parses the schema, or asks for the version to write with."""
    own = _schema(schema, kind)
    placed, registers = subject_of(*subject), _flag(register)
    if placed.name is None and own is None:
        raise ValueError("expected a schema to write values with, or a subject whose last version is used")
    address = RegistryAddress.of(registry)
    if own is not None:
        _check_schema(address, own)
        return address, placed, registers, None, own
    # Not `get_latest_version`, whose answer the client keeps.
    found = write_with(address, lambda: address.client().get_version(placed.name, "latest"))
    if (found.schema.schema_type or "AVRO") != kind:
        raise SchemaError(
            f"the subject {placed.name} has a schema of type {found.schema.schema_type}; expected {kind}"
        )
    return address, placed, registers, found.schema_id, None


def _check_schema(address: RegistryAddress, schema: Schema) -> None:
    """Raise ValueError for a schema that cannot be parsed."""
    from felice.client.schema_registry.decoding import parsed_of

    # Only references need the registry. Without them, the format can be made while the registry is down.
    client = address.client() if schema.references else None

    def parse() -> None:
        parsed = parsed_of(client, schema)
        if schema.schema_type == "JSON":
            parsed.check_schema()

    try:
        write_with(address, parse)
    except ValueError as error:
        raise SchemaError(f"the schema cannot be used: {error}") from error


def _schema(given: str | Schema | None, kind: str) -> Schema | None:
    if given is None:
        return None
    from felice.client.schema_registry.model import Schema

    if isinstance(given, str):
        return Schema(given, kind)
    if not isinstance(given, Schema):
        raise TypeError(f"the schema must be a text or a Schema, not {type(given).__name__}")
    if given.schema_type != kind:
        raise ValueError(f"the schema is of type {given.schema_type}; expected {kind}")
    return given


def _flag(given: bool) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"register must be True or False, not {given!r}")
    return given
