"""What deserializers do for each message, as steps: read the schema's id, fetch the schema, and decode.

Keeps true:  data is decoded with the schema that wrote it. A reader schema (the application's, or the latest version)
             only converts the result, as its format allows. Data that cannot be read raises `SerializationError`.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from felice.client.schema_registry.caches import Cache
from felice.client.schema_registry.framing import SchemaId, dual_schema_id_deserializer
from felice.client.schema_registry.model import RegisteredSchema, RuleMode, Schema
from felice.client.schema_registry.parsing import Format, Parser
from felice.client.schema_registry.rules import (
    refuse_domain_rules,
    refuse_encoding_rules,
    refuse_migration,
    refuse_rule_arguments,
)
from felice.client.schema_registry.serializing import (
    Choice,
    checked_function,
    refuse_rest,
    taken_function,
)
from felice.client.schema_registry.steps import Ask, Steps
from felice.client.schema_registry.subjects import AssociatedSubjects, Subjects
from felice.client.serialization import SerializationContext, SerializationError
from felice.dataclass import dataclass

P = TypeVar("P")

FromDict = Callable[[Any, SerializationContext], Any]


@dataclass(frozen=True, slots=True)
class Written(Generic[P]):
    """A schema and its parsed form."""

    schema: Schema
    parsed: P


def writer_schema(schema_id: SchemaId, subject: str | None, fmt: str | None) -> Steps[Schema]:
    """Fetch the schema that wrote a message. Raises `SerializationError` if the message names none."""
    if schema_id.id is not None:
        schema: Schema = yield Ask("get_schema", schema_id.id, subject, fmt)
    elif schema_id.guid is not None:
        schema = yield Ask("get_schema_by_guid", str(schema_id.guid), fmt)
    else:
        raise SerializationError("schema.id.deserializer found neither an id nor a GUID")
    return schema


class Deserializing(Generic[P]):
    """The steps of one deserializer. Subclasses know a format: how to decode bytes with parsed schemas."""

    def __init__(
        self,
        form: Format[P],
        schema: Schema | None,
        conf: dict[str, Any],
        from_dict: FromDict | None,
        associated: type[AssociatedSubjects],
        *,
        has_registry: bool = True,
        rules: tuple[object, object] = (None, None),
    ) -> None:
        """Read the configuration; subclasses take their own properties before. Raises ValueError."""
        refuse_rule_arguments(*rules)
        checked_function(from_dict, "from_dict")
        self._from_dict = from_dict
        self._choice = Choice(conf, by_id=False)
        self.subjects = Subjects(conf, associated)
        self._take_id = taken_function(conf, "schema.id.deserializer", dual_schema_id_deserializer)
        refuse_rest(conf)
        self.form, self._schema, self._has_registry = form, schema, has_registry
        self.parser = Parser(form)
        self._own: Written[P] | None = None
        self._writers: Cache[tuple[str | None, int | None, uuid.UUID | None], Written[P]] = Cache()

    def prepare(self) -> Steps[None]:
        """Parse the deserializer's own schema. To be called once, before `deserialize`."""
        if self._schema is not None:
            self._own = Written(self._schema, (yield from self.parser.parsed(self._schema)))

    def deserialize(self, data: bytes | None, ctx: SerializationContext | None) -> Steps[Any]:
        """Return the object of a message's bytes; None for None."""
        if data is None:
            return None
        subject = None
        if ctx is not None:
            subject = yield from self.subjects.of(ctx, None, self._has_registry)
        schema_id = SchemaId(self.form.schema_type)
        # confluent_kafka asks for the latest version before it reads the id.
        chosen = yield from self._chosen(subject)
        payload = _bytes(self._take_id(data, ctx, schema_id))
        writer = None
        if self._has_registry:
            writer = yield from self._writer(schema_id, subject)
            if subject is None and ctx is not None:
                name = self.record_name(writer.parsed, schema_id)
                subject = yield from self.subjects.of(ctx, name, True)
                chosen = yield from self._chosen(subject)
        reader = yield from self._reader(subject, writer, chosen)
        if reader is not None:
            refuse_domain_rules(reader.schema, RuleMode.READ)
        value = self.decode(payload, writer, reader, schema_id)
        if self._from_dict is None:
            return value
        if ctx is None:
            raise TypeError("from_dict needs a SerializationContext")
        return self._from_dict(value, ctx)

    def _writer(self, schema_id: SchemaId, subject: str | None) -> Steps[Written[P]]:
        key = (subject, schema_id.id, schema_id.guid)
        known = self._writers.get(key)
        if known is None:
            schema = yield from writer_schema(schema_id, subject, self.form.fmt)
            refuse_encoding_rules(schema, RuleMode.READ)
            known = Written(schema, (yield from self.parser.parsed(schema)))
            self._writers.put(key, known)
        return known

    def _chosen(self, subject: str | None) -> Steps[RegisteredSchema | None]:
        if subject is None or not self._has_registry:
            return None
        return (yield from self._choice.of(subject, self.form.fmt))

    def _reader(
        self, subject: str | None, writer: Written[P] | None, chosen: RegisteredSchema | None
    ) -> Steps[Written[P] | None]:
        if chosen is None or subject is None or writer is None:
            return self._own if self._own is not None else writer
        yield from self._refuse_migrations(subject, writer.schema, chosen)
        return Written(chosen.schema, (yield from self.parser.parsed(chosen.schema)))

    def _refuse_migrations(self, subject: str, source: Schema, target: RegisteredSchema) -> Steps[None]:
        """Raise `SerializationError` if a rule changes data between the writer's version and the reader's."""
        found: RegisteredSchema = yield Ask(
            "lookup_schema", subject, source, normalize_schemas=False, deleted=True
        )
        if found.version is None or target.version is None or found.version == target.version:
            return
        up = found.version < target.version
        mode = RuleMode.UPGRADE if up else RuleMode.DOWNGRADE
        first, last = (found, target) if up else (target, found)
        assert first.version is not None and last.version is not None
        for version in range(first.version + 1, last.version):
            between: RegisteredSchema = yield Ask("get_version", subject, version, True, self.form.fmt)
            refuse_migration(between.schema, mode)
        refuse_migration(last.schema, mode)

    def record_name(self, parsed: P, schema_id: SchemaId) -> str | None:
        """The name that a subject may contain: that of the schema that wrote a message."""
        return None

    def decode(
        self, payload: bytes, writer: Written[P] | None, reader: Written[P] | None, schema_id: SchemaId
    ) -> Any:
        """Decode the data of a message."""
        raise NotImplementedError


def _bytes(payload: bytes | io.BytesIO) -> bytes:
    return payload if isinstance(payload, bytes) else payload.read()
