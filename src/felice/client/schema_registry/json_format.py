"""JSON Schema: schemas, and the data that they describe; pure, with jsonschema.

Keeps true:  nothing is fetched from other servers. A `$ref` names a part of the schema, a reference of it that the
             registry has, or a meta-schema of JSON Schema itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jsonschema import SchemaError, ValidationError
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from felice.client.schema_registry.deserializing import Deserializing, Written
from felice.client.schema_registry.framing import SchemaId
from felice.client.schema_registry.model import JSON, Schema
from felice.client.schema_registry.parsing import References
from felice.client.schema_registry.serializing import Serializing, taken_flag
from felice.client.serialization import SerializationError

JsonSchema = bool | dict[str, Any]
DEFAULT_SPEC = DRAFT7
"""The draft of referenced schemas that do not name theirs."""

_TOO_DEEP = "the JSON data is nested too deep"


def json_dumps(value: Any) -> str:
    """JSON without spaces, and with characters as they are."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class ParsedJson:
    """A parsed schema, with the schemas that it refers to. Its validator is made when data is checked first."""

    def __init__(self, schema: JsonSchema, registry: Registry[Any]) -> None:
        self.schema, self._registry = schema, registry
        self._validator: Any = None

    @property
    def title(self) -> str | None:
        """The title, which is the record name of subjects."""
        return self.schema.get("title") if isinstance(self.schema, dict) else None

    def check_schema(self) -> None:
        """Raise `SerializationError` if the schema is not valid by its draft."""
        try:
            validator_for(self.schema).check_schema(self.schema)
        except SchemaError as error:
            raise SerializationError(f"the JSON schema is not valid: {error.message}") from error
        except RecursionError:
            raise SerializationError(_TOO_DEEP) from None

    def check(self, value: Any) -> None:
        """Raise `SerializationError` if the value does not match, or the schema itself is not valid."""
        try:
            if self._validator is None:
                self.check_schema()
                self._validator = validator_for(self.schema)(self.schema, registry=self._registry)
            self._validator.validate(value)
        except ValidationError as error:
            raise SerializationError(error.message) from error
        except Unresolvable as error:
            missing = (
                f"the JSON schema refers to {error.ref}, which is neither in it nor one of its references"
            )
            raise SerializationError(missing) from error
        except RecursionError:
            raise SerializationError(_TOO_DEEP) from None


class JsonFormat:
    """How texts of JSON Schema become parsed schemas."""

    schema_type = JSON
    fmt: str | None = None

    def is_known(self, name: str) -> bool:
        """No schema is known without the registry."""
        return False

    def parse(self, text: str, references: References) -> ParsedJson:
        """Parse a schema. Raises ValueError for a text that is no JSON."""
        registry: Registry[Any] = REGISTRY
        for name, used in references:
            resource = Resource.from_contents(_loaded(used), default_specification=DEFAULT_SPEC)
            registry = registry.with_resource(name, resource)
        return ParsedJson(_loaded(text), registry)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise SerializationError("the JSON schema is nested too deep") from None


class JsonSerializing(Serializing[ParsedJson]):
    """The steps of a JSON serializer."""

    def __init__(
        self,
        schema: str | Schema | None,
        conf: dict[str, Any],
        encode: Callable[[Any], Any] | None,
        *rest: Any,
        **options: Any,
    ) -> None:
        self._validate = taken_flag(conf, "validate", True)
        self._dumps = encode or json_dumps
        own = Schema(schema, JSON) if isinstance(schema, str) else schema
        super().__init__(JsonFormat(), own, conf, *rest, **options)

    def record_name(self, obj: Any) -> str | None:
        """The title of the serializer's own schema."""
        return None if self._own is None else self._own.title

    def encode(self, value: Any, parsed: ParsedJson | None, schema: Schema | None) -> bytes:
        """Check and encode an object. Raises `SerializationError` if it does not match the schema."""
        if self._validate and parsed is not None:
            parsed.check(value)
        data = self._dumps(value)
        return data.encode() if isinstance(data, str) else bytes(data)


class JsonDeserializing(Deserializing[ParsedJson]):
    """The steps of a JSON deserializer. Without a registry's client it uses its own schema alone."""

    def __init__(
        self,
        schema: str | Schema | None,
        conf: dict[str, Any],
        decode: Callable[[bytes], Any] | None,
        *rest: Any,
        has_registry: bool,
        **options: Any,
    ) -> None:
        if schema is not None and not isinstance(schema, str | Schema):
            raise TypeError(f"the schema must be a str or a Schema, not {type(schema).__name__}")
        own = Schema(schema, JSON) if isinstance(schema, str) else schema
        if not has_registry and (own is None or own.references):
            raise ValueError("without a schema or with references it needs a schema_registry_client")
        self._validate = taken_flag(conf, "validate", True)
        self._loads = decode or json.loads
        super().__init__(JsonFormat(), own, conf, *rest, has_registry=has_registry, **options)

    def record_name(self, parsed: ParsedJson, schema_id: SchemaId) -> str | None:
        """The title of the schema that wrote a message."""
        return parsed.title

    def decode(
        self,
        payload: bytes,
        writer: Written[ParsedJson] | None,
        reader: Written[ParsedJson] | None,
        schema_id: SchemaId,
    ) -> Any:
        """Decode the JSON, and check it against the reader's schema."""
        value = decoded(payload, self._loads)
        if self._validate and reader is not None:
            reader.parsed.check(value)
        return value


def decoded(payload: bytes, loads: Callable[[bytes], Any] = json.loads) -> Any:
    """The value of JSON data. Raises `SerializationError` for data that is no JSON."""
    try:
        return loads(payload)
    except RecursionError:
        raise SerializationError(_TOO_DEEP) from None
    except ValueError as error:
        raise SerializationError(f"the data is not JSON: {error}") from error
