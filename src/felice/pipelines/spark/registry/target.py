"""The schema that a column has in Spark: fetched where the query is made, and used in Spark's Python workers.

Keeps true:  a target travels as values. Its type in Spark is the same in every process, because the schema is in it.
             Values of other versions become values of this schema: by Avro's rules, by the names of JSON's members, by
             the numbers of Protobuf's fields. So a query goes on when its producers change their schema.
How:         each process makes its readers and writers once; they keep the schemas of the ids that they have met.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from felice.client.schema_registry.model import AVRO, JSON, PROTOBUF, Schema
from felice.dataclass import dataclass
from felice.pipelines.exact_values import avro_check, check_json, checked
from felice.pipelines.registry_clients import RegistryAddress, read_with, write_with
from felice.pipelines.spark.mistakes import QueryError
from felice.pipelines.spark.registry.mapping import Mapped

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

_coders: dict[tuple[int, Target], Coder] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Target:
    """A schema of a registry. `message` is the full name of a Protobuf message; empty for the first of its file."""

    address: RegistryAddress
    subject: str
    schema: Schema
    message: str = ""

    @staticmethod
    def of(address: RegistryAddress, subject: str, version: int | None, message: str) -> Target:
        """The target of a version of a subject, the last one for None. Raises `QueryError` if there is none."""
        client = address.client()

        def asked(fmt: str | None) -> Schema:
            # Not `get_latest_version`, whose answer the client keeps.
            schema: Schema = client.get_version(subject, version or "latest", False, fmt).schema
            return schema

        schema = write_with(address, lambda: asked(None))
        if schema.schema_type == PROTOBUF:
            schema = write_with(address, lambda: asked("serialized"))
        elif message:
            raise QueryError(
                f"the subject {subject} has a schema of type {schema.schema_type}, and no message {message}"
            )
        return Target(address, subject, schema, message)

    def coder(self) -> Coder:
        """The reader and writer of this process."""
        key = os.getpid(), self
        found = _coders.get(key)
        if found is None:
            made = write_with(self.address, lambda: _MAKERS[self.schema.schema_type or AVRO](self))
            with _lock:
                found = _coders.setdefault(key, made)
        return found


@dataclass(frozen=True, slots=True)
class Coder:
    """`read` makes values for pyarrow of data with a schema's id, `write` such data of values that pyarrow gave."""

    mapped: Mapped
    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]


def _coder(
    target: Target, mapped: Mapped, read: Callable[[bytes], Any], write: Callable[[Any], Any]
) -> Coder:
    """Of the functions of a format's library, with what the type in Spark needs before and after."""
    to_arrow, from_arrow = mapped.read, mapped.write
    address = target.address

    def reading(data: bytes) -> Any:
        value = read_with(address, lambda: read(data))
        if to_arrow is None or value is None:
            return value
        try:
            return to_arrow(value)
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"it is not of the schema's type: {error}") from error

    def writing(value: Any) -> bytes:
        made: bytes = write_with(address, lambda: write(value if from_arrow is None else from_arrow(value)))
        return made

    return Coder(mapped, reading, writing)


def _conf(target: Target) -> dict[str, Any]:
    subject = target.subject
    return {"auto.register.schemas": False, "subject.name.strategy": lambda context, record_name: subject}


def _avro(target: Target) -> Coder:
    from felice.client.schema_registry.avro import AvroDeserializer, AvroSerializer
    from felice.client.schema_registry.decoding import parsed_of
    from felice.pipelines.spark.registry.avro_types import avro_mapping

    client, schema = target.address.client(), target.schema
    parsed = parsed_of(client, schema).schema
    write = checked(avro_check(parsed), AvroSerializer(client, schema, conf=_conf(target)))
    read = AvroDeserializer(client, schema, return_record_name=True)
    return _coder(target, avro_mapping(parsed), read, write)


def _json(target: Target) -> Coder:
    import json

    from felice.client.schema_registry.decoding import Decoders, parsed_of
    from felice.client.schema_registry.json_schema import JSONSerializer
    from felice.pipelines.spark.registry.json_types import json_mapping

    client, schema = target.address.client(), target.schema
    parsed_of(client, schema)
    references = {
        str(one.name): json.loads(client.get_version(one.subject, one.version, True).schema.schema_str)
        for one in schema.references or ()
    }
    write = checked(check_json, JSONSerializer(schema, client, conf=_conf(target)))
    mapping = json_mapping(json.loads(schema.schema_str or ""), references)
    return _coder(target, mapping, Decoders(client), write)


def _protobuf(target: Target) -> Coder:
    from google.protobuf.message_factory import GetMessageClass

    from felice.client.schema_registry.decoding import Decoders, parsed_of
    from felice.client.schema_registry.framing import SchemaId, prefix_schema_id_serializer
    from felice.client.schema_registry.protobuf_format import index_path
    from felice.pipelines.spark.registry.protobuf_types import protobuf_mapping

    client = target.address.client()
    kind = _message_of(target, parsed_of(client, target.schema).file)
    made, decoders, name = GetMessageClass(kind), Decoders(client), kind.full_name
    registered: list[SchemaId] = []

    def read(data: bytes) -> Any:
        written = decoders(data)
        if written.DESCRIPTOR.full_name != name:
            raise ValueError(f"it is a {written.DESCRIPTOR.full_name}, not a {name}")
        return made.FromString(written.SerializeToString())

    def write(message: Any) -> bytes:
        if not registered:
            found = client.lookup_schema(target.subject, target.schema, normalize_schemas=False, deleted=True)
            registered.append(SchemaId(PROTOBUF, found.schema_id, found.guid, index_path(kind)))
        return prefix_schema_id_serializer(message.SerializeToString(), None, registered[0])

    return _coder(target, protobuf_mapping(kind), read, write)


def _message_of(target: Target, file: Any) -> Descriptor:
    types = list(file.message_types_by_name.values())
    if not target.message:
        if not types:
            raise QueryError(f"the subject {target.subject} has a schema without messages")
        first: Descriptor = types[0]
        return first
    known: dict[str, Descriptor] = {}
    while types:
        one = types.pop()
        known[one.full_name] = one
        types += one.nested_types
    if target.message not in known:
        raise QueryError(
            f"the subject {target.subject} has no message {target.message}; it has {', '.join(sorted(known))}"
        )
    return known[target.message]


_MAKERS: dict[str, Callable[[Target], Coder]] = {AVRO: _avro, JSON: _json, PROTOBUF: _protobuf}
