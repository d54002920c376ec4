"""Formats with schemas of a registry: `avro`, `json_schema` and `protobuf`.

Keeps true:  the bytes are those of Confluent's serializers: a zero, the id of the schema in four bytes, and the data.
             So two keys that were written with two versions of a schema are two keys, as in Kafka Streams.
             A format is sent to worker processes as values. Its serializers are made once in each process.
How:         The serializers and deserializers of `felice.client` do the work. Bytes are read with the schema that wrote
             them; with a schema of its own, an Avro format converts what it reads to it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from felice.dataclass import dataclass
from felice.pipelines.errors import OutsideError
from felice.pipelines.registry_clients import RegistryAddress, read_with, write_with
from felice.pipelines.streams.formats import Format

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from felice.client.schema_registry.model import Schema


@dataclass(frozen=True, slots=True)
class _Serdes:
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


_serdes: dict[tuple[int, _OfRegistry], _Serdes] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _OfRegistry(Format):
    """A format of one kind of schemas."""

    address: RegistryAddress
    subject: str | None
    registers: bool

    def write(self, value: Any) -> bytes:
        serdes = self._serdes()
        return write_with(self.address, lambda: serdes.write(value))

    def read(self, data: bytes) -> Any:
        serdes = self._serdes()
        return read_with(self.address, lambda: serdes.read(data))

    def placed_by(self, data: bytes) -> bytes | None:
        return None  # Writers with another version of the schema give an equal key other bytes.

    def _serdes(self) -> _Serdes:
        key = os.getpid(), self
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

    def _conf(self, *, has_schema: bool) -> dict[str, Any]:
        conf: dict[str, Any] = {"auto.register.schemas": self.registers and has_schema}
        if not has_schema:
            conf["use.latest.version"] = True
        if self.subject is not None:
            subject = self.subject
            conf["subject.name.strategy"] = lambda context, record_name: subject
        else:
            conf["subject.name.strategy.type"] = "RECORD"
        return conf


@dataclass(frozen=True, slots=True)
class _Avro(_OfRegistry):
    schema: Schema | None
    name = "avro"

    def _made(self) -> _Serdes:
        from felice.client.schema_registry.avro import AvroDeserializer, AvroSerializer

        client = self.address.client()
        conf = self._conf(has_schema=self.schema is not None)
        return _Serdes(
            AvroSerializer(client, self.schema, conf=conf),  # type: ignore[arg-type]
            AvroDeserializer(client, self.schema),
        )


@dataclass(frozen=True, slots=True)
class _JsonSchema(_OfRegistry):
    schema: Schema | None
    name = "json_schema"

    def _made(self) -> _Serdes:
        from felice.client.schema_registry.json_schema import JSONDeserializer, JSONSerializer

        client = self.address.client()
        conf = self._conf(has_schema=self.schema is not None)
        return _Serdes(
            JSONSerializer(self.schema, client, conf=conf),  # type: ignore[arg-type]
            JSONDeserializer(self.schema, schema_registry_client=client),
        )


@dataclass(frozen=True, slots=True)
class _Protobuf(_OfRegistry):
    message: type[Message]
    name = "protobuf"

    def _made(self) -> _Serdes:
        from felice.client.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

        client = self.address.client()
        return _Serdes(
            ProtobufSerializer(self.message, client, self._conf(has_schema=True)),  # type: ignore[arg-type]
            ProtobufDeserializer(self.message, schema_registry_client=client),
        )


def avro(
    registry: str | Mapping[str, Any],
    schema: str | Schema | None = None,
    *,
    subject: str | None = None,
    register: bool = True,
) -> Format:
    """Avro with a schema registry; records are dicts. Needs the extra `felice[schemas]`.

        orders = avro("http://localhost:8081", schema=text, subject="orders-value")

    `registry` is an address, or a client's configuration with confluent_kafka's names (`url`, `basic.auth.user.info`,
    `ssl.ca.location`, …). With `schema`, a text or a `Schema`, values are written with it, and values of other versions
    are converted to it when they are read. Without it they are read as they were written, and written with the last
    version of `subject`.
    `subject` is where the schema is registered; without it, that is the full name of the record. `register=False`
    requires a schema that is registered already.
    """
    own = _schema(schema, "AVRO")
    return _Avro(RegistryAddress.of(registry), _subject(subject, own), _flag(register), own)


def json_schema(
    registry: str | Mapping[str, Any],
    schema: str | Schema | None = None,
    *,
    subject: str | None = None,
    register: bool = True,
) -> Format:
    """JSON with a schema registry, whose schemas check values that are read and written. Arguments: as `avro`'s.

    `subject` must be given unless the schema has a `title`.
    """
    own = _schema(schema, "JSON")
    return _JsonSchema(RegistryAddress.of(registry), _subject(subject, own), _flag(register), own)


def protobuf(
    registry: str | Mapping[str, Any],
    message: type[Message],
    *,
    subject: str | None = None,
    register: bool = True,
) -> Format:
    """Protobuf with a schema registry; values are messages of this generated class. Other arguments: as `avro`'s."""
    if not hasattr(message, "DESCRIPTOR") or not isinstance(message, type):
        raise TypeError(f"message must be a class that the Protobuf compiler generated, not {message!r}")
    return _Protobuf(RegistryAddress.of(registry), _text(subject), _flag(register), message)


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


def _subject(given: str | None, schema: Schema | None) -> str | None:
    if given is None and schema is None:
        raise ValueError("expected a schema to write values with, or a subject whose last version is used")
    return _text(given)


def _text(given: str | None) -> str | None:
    if given is not None and (not isinstance(given, str) or not given):
        raise TypeError(f"subject must be the name of a subject, not {given!r}")
    return given


def _flag(given: bool) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"register must be True or False, not {given!r}")
    return given
