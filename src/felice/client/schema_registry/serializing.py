"""What serializers do for each object, as steps: find the subject and the schema, encode, and add the schema's id.

Keeps true:  a schema is registered, or looked up, once for each subject of a serializer. The id in a message is that of
             the schema that its data was encoded with.
How:         `use.schema.id`, `use.latest.with.metadata` and `use.latest.version`, in this order, choose a schema of the
             registry. Otherwise the serializer's own schema is registered (`auto.register.schemas`) or looked up.
Leaves out:  rules of data contracts; data to which a rule applies is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from felice.client.schema_registry.caches import Cache
from felice.client.schema_registry.framing import SchemaId, prefix_schema_id_serializer
from felice.client.schema_registry.model import RegisteredSchema, RuleMode, Schema
from felice.client.schema_registry.parsing import Format, Parser
from felice.client.schema_registry.rules import (
    refuse_domain_rules,
    refuse_encoding_rules,
    refuse_rule_arguments,
    refuse_validation_rules,
)
from felice.client.schema_registry.steps import Alone, Ask, Steps
from felice.client.schema_registry.subjects import AssociatedSubjects, Subjects
from felice.client.serialization import SerializationContext, SerializationError

P = TypeVar("P")

ToDict = Callable[[Any, SerializationContext], Any]


def taken_flag(conf: dict[str, Any], name: str, default: bool) -> bool:
    """Take a boolean property. Raises ValueError for another value."""
    value = conf.pop(name, default)
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {value!r}")
    return value


def taken_function(conf: dict[str, Any], name: str, default: Callable[..., Any]) -> Callable[..., Any]:
    """Take a property that is a function. Raises ValueError for another value."""
    value = conf.pop(name, default)
    if not callable(value):
        raise ValueError(f"{name} must be callable")
    return value  # type: ignore[no-any-return]


def refuse_rest(conf: Mapping[str, Any]) -> None:
    """Raise ValueError for the properties that nothing has taken."""
    if conf:
        raise ValueError(f"unknown properties: {', '.join(map(str, conf))}")


def checked_function(function: object, name: str) -> None:
    """Raise ValueError unless `function` is None or callable."""
    if function is not None and not callable(function):
        raise ValueError(f"{name} must be callable with (object, SerializationContext)")


class Choice:
    """Which schema of the registry to use: `use.schema.id`, `use.latest.with.metadata`, `use.latest.version`."""

    def __init__(self, conf: dict[str, Any], *, by_id: bool) -> None:
        """Take these properties from `conf`; `use.schema.id` only if `by_id` is true."""
        self._id: int | None = conf.pop("use.schema.id", None) if by_id else None
        if self._id is not None and (not isinstance(self._id, int) or isinstance(self._id, bool)):
            raise ValueError(f"use.schema.id must be an int, not {self._id!r}")
        self.latest = taken_flag(conf, "use.latest.version", False)
        self._metadata: dict[str, str] | None = conf.pop("use.latest.with.metadata", None)
        if self._metadata is not None and not isinstance(self._metadata, dict):
            raise ValueError("use.latest.with.metadata must be a dict")

    def of(self, subject: str, fmt: str | None) -> Steps[RegisteredSchema | None]:
        """Return the chosen schema, or None if the configuration chooses none."""
        if self._id is not None:
            schema = yield Ask("get_schema", self._id, subject, fmt)
            chosen: RegisteredSchema = yield Ask(
                "lookup_schema", subject, schema, normalize_schemas=False, deleted=True
            )
        elif self._metadata is not None:
            chosen = yield Ask("get_latest_with_metadata", subject, self._metadata, deleted=True, fmt=fmt)
        elif self.latest:
            chosen = yield Ask("get_latest_version", subject, fmt)
        else:
            return None
        return chosen


class Serializing(Generic[P]):
    """The steps of one serializer. Subclasses know a format: how to encode an object with a parsed schema."""

    def __init__(
        self,
        form: Format[P],
        schema: Schema | None,
        conf: dict[str, Any],
        to_dict: ToDict | None,
        associated: type[AssociatedSubjects],
        *,
        has_registry: bool = True,
        rules: tuple[object, object] = (None, None),
    ) -> None:
        """Read the configuration; subclasses take their own properties before. Raises ValueError."""
        refuse_rule_arguments(*rules)
        checked_function(to_dict, "to_dict")
        self._to_dict = to_dict
        self._registers = taken_flag(conf, "auto.register.schemas", True)
        self._normalizes = taken_flag(conf, "normalize.schemas", False)
        self._choice = Choice(conf, by_id=True)
        if self._choice.latest and self._registers:
            raise ValueError("use.latest.version and auto.register.schemas must not both be True")
        self.subjects = Subjects(conf, associated)
        self._put_id = taken_function(conf, "schema.id.serializer", prefix_schema_id_serializer)
        refuse_validation_rules(conf)
        refuse_rest(conf)
        self.form, self._schema, self._has_registry = form, schema, has_registry
        self.parser = Parser(form)
        self._own: P | None = None
        self._ids: Cache[str, SchemaId] = Cache()

    def prepare(self) -> Steps[None]:
        """Parse the serializer's own schema. To be called once, before `serialize`."""
        if self._schema is not None:
            self._own = yield from self.parser.parsed(self._schema)

    def serialize(self, obj: Any, ctx: SerializationContext | None) -> Steps[bytes | None]:
        """Return the bytes of an object; None for None."""
        if obj is None:
            return None
        subject = yield from self.subjects.of(ctx, self.record_name(obj), self._has_registry)
        chosen = None
        if subject is not None:
            chosen = yield from self._choice.of(subject, self.form.fmt)
        schema, parsed = self._schema, self._own
        if chosen is not None:
            schema_id = SchemaId(self.form.schema_type, chosen.schema_id, chosen.guid, self.indexes(obj))
            refuse_domain_rules(chosen.schema, RuleMode.WRITE)
            refuse_encoding_rules(chosen.schema, RuleMode.WRITE)
            schema, parsed = chosen.schema, (yield from self.parser.parsed(chosen.schema))
        else:
            schema_id = yield from self._own_id(subject, obj, ctx)
        if self._to_dict is not None:
            if ctx is None:
                raise TypeError("to_dict needs a SerializationContext")
            obj = self._to_dict(obj, ctx)
        framed: bytes = self._put_id(self.encode(obj, parsed, schema), ctx, schema_id)
        return framed

    def _own_id(self, subject: str | None, obj: Any, ctx: SerializationContext | None) -> Steps[SchemaId]:
        if subject is None:
            raise SerializationError("the strategy returned no subject: the schema has no record name")
        known = self._ids.get(subject)
        if known is None:
            known = yield Alone(self._first(subject, obj, ctx))
            assert known is not None
        return known

    def _first(self, subject: str, obj: Any, ctx: SerializationContext | None) -> Steps[SchemaId]:
        known = self._ids.get(subject)
        if known is not None:
            return known
        schema = yield from self.whole_schema(obj, ctx)
        if schema is None:
            raise SerializationError(
                "the serializer has no schema of its own, and use.latest.version is not set"
            )
        method = "register_schema_full_response" if self._registers else "lookup_schema"
        found: RegisteredSchema = yield Ask(method, subject, schema, normalize_schemas=self._normalizes)
        known = SchemaId(self.form.schema_type, found.schema_id, found.guid, self.indexes(obj))
        self._ids.put(subject, known)
        return known

    def whole_schema(self, obj: Any, ctx: SerializationContext | None) -> Steps[Schema | None]:
        """Return the serializer's own schema with its references."""
        return self._schema
        yield

    def record_name(self, obj: Any) -> str | None:
        """The name that a subject may contain: that of the serializer's own schema."""
        return None

    def indexes(self, obj: Any) -> list[int] | None:
        """Protobuf's message indexes of an object; None for the other formats."""
        return None

    def encode(self, value: Any, parsed: P | None, schema: Schema | None) -> bytes:
        """Encode an object. Raises what the format's library raises if it does not match the schema."""
        raise NotImplementedError
