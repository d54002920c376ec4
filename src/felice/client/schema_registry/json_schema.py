"""JSON Schema's serializers and deserializers, at confluent_kafka's names. They need the extra `felice[schemas]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from felice.client.schema_registry.builders import (
    AsyncBuilding,
    Building,
    OfObjects,
    ToObjects,
)
from felice.client.schema_registry.deserializing import FromDict
from felice.client.schema_registry.json_format import (
    DEFAULT_SPEC,
    JsonDeserializing,
    JsonSchema,
    JsonSerializing,
)
from felice.client.schema_registry.model import Schema
from felice.client.schema_registry.serdes import (
    AsyncBaseDeserializer,
    AsyncBaseSerializer,
    BaseDeserializer,
    BaseSerializer,
    Serde,
)
from felice.client.schema_registry.serializing import ToDict
from felice.client.serialization import DeserializerBuilder, SerializerBuilder

__all__ = [
    "DEFAULT_SPEC",
    "AsyncJSONDeserializer",
    "AsyncJSONDeserializerBuilder",
    "AsyncJSONSerializer",
    "AsyncJSONSerializerBuilder",
    "JSONDeserializer",
    "JSONDeserializerBuilder",
    "JSONSerializer",
    "JSONSerializerBuilder",
    "JsonSchema",
]


class _JSONSerializer(Serde):
    def __init__(
        self,
        schema_str: str | Schema | None,
        schema_registry_client: Any,
        to_dict: ToDict | None = None,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
        json_encode: Callable[[Any], Any] | None = None,
    ) -> None:
        rules, own = (rule_conf, rule_registry), dict(conf or {})
        core = JsonSerializing(schema_str, own, json_encode, to_dict, self._associated, rules=rules)
        self._start(schema_registry_client, core)


class JSONSerializer(_JSONSerializer, BaseSerializer):
    """Converts objects to JSON with the id of their schema, which checks them unless `validate` is False.

    `to_dict(object, context)` makes dicts of an application's objects, and `json_encode` makes text or bytes of them.
    """


class AsyncJSONSerializer(_JSONSerializer, AsyncBaseSerializer):
    """As `JSONSerializer`, for asyncio: `serializer = await AsyncJSONSerializer(...)`, `await serializer(obj, ctx)`."""


class _JSONDeserializer(Serde):
    def __init__(
        self,
        schema_str: str | Schema | None,
        from_dict: FromDict | None = None,
        schema_registry_client: Any = None,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
        json_decode: Callable[[bytes], Any] | None = None,
    ) -> None:
        core = JsonDeserializing(
            schema_str,
            dict(conf or {}),
            json_decode,
            from_dict,
            self._associated,
            has_registry=schema_registry_client is not None,
            rules=(rule_conf, rule_registry),
        )
        self._start(schema_registry_client, core)


class JSONDeserializer(_JSONDeserializer, BaseDeserializer):
    """Converts JSON to Python's values, or with `from_dict(dict, context)` to an application's objects.

    The schema that checks the data is `schema_str` if given, otherwise the writer's. Without a registry's client the
    schema's id in the data is skipped.
    """


class AsyncJSONDeserializer(_JSONDeserializer, AsyncBaseDeserializer):
    """As `JSONDeserializer`, for asyncio."""


class _SerializerBuilder(OfObjects):
    def __init__(
        self,
        schema_registry_config: dict[str, Any] | None = None,
        schema_registry_client: Any = None,
        schema: str | Schema | None = None,
        to_dict: ToDict | None = None,
        serializer_config: dict[str, Any] | None = None,
        rule_config: dict[str, Any] | None = None,
        rule_registry: Any = None,
        json_encode: Callable[[Any], Any] | None = None,
        serializer_init: Callable[[Any], Any] | None = None,
    ) -> None:
        rules = (rule_config, rule_registry)
        super().__init__(
            schema_registry_config, schema_registry_client, serializer_config, rules, serializer_init
        )
        self._schema, self._to_dict, self._encode = schema, to_dict, json_encode

    def set_json_encode(self, json_encode: Callable[[Any], Any]) -> Self:
        """Set the function that makes text or bytes of values."""
        self._encode = json_encode
        return self

    def construct(self, client: Any) -> Any:
        """Create the serializer."""
        rules = (self._rule_config, self._rule_registry)
        given = (self._to_dict, self._serde_config, *rules, self._encode)
        return type(self)._serde(self._schema, client, *given)


class JSONSerializerBuilder(_SerializerBuilder, Building, SerializerBuilder):
    """Builds a `JSONSerializer`: the value of `key.serializer.builder` or `value.serializer.builder`."""

    _serde = JSONSerializer


class AsyncJSONSerializerBuilder(_SerializerBuilder, AsyncBuilding, SerializerBuilder):  # type: ignore[misc]
    """Builds an `AsyncJSONSerializer`."""

    _serde = AsyncJSONSerializer


class _DeserializerBuilder(ToObjects):
    def __init__(
        self,
        schema_registry_config: dict[str, Any] | None = None,
        schema_registry_client: Any = None,
        schema: str | Schema | None = None,
        from_dict: FromDict | None = None,
        deserializer_config: dict[str, Any] | None = None,
        rule_config: dict[str, Any] | None = None,
        rule_registry: Any = None,
        json_decode: Callable[[bytes], Any] | None = None,
        deserializer_init: Callable[[Any], Any] | None = None,
    ) -> None:
        rules = (rule_config, rule_registry)
        super().__init__(
            schema_registry_config, schema_registry_client, deserializer_config, rules, deserializer_init
        )
        self._schema, self._from_dict, self._decode = schema, from_dict, json_decode

    def set_json_decode(self, json_decode: Callable[[bytes], Any]) -> Self:
        """Set the function that reads JSON."""
        self._decode = json_decode
        return self

    def construct(self, client: Any) -> Any:
        """Create the deserializer."""
        rules = (self._rule_config, self._rule_registry)
        given = (self._serde_config, *rules, self._decode)
        return type(self)._serde(self._schema, self._from_dict, client, *given)


class JSONDeserializerBuilder(_DeserializerBuilder, Building, DeserializerBuilder):
    """Builds a `JSONDeserializer`: the value of `key.deserializer.builder` or `value.deserializer.builder`."""

    _serde = JSONDeserializer


class AsyncJSONDeserializerBuilder(_DeserializerBuilder, AsyncBuilding, DeserializerBuilder):  # type: ignore[misc]
    """Builds an `AsyncJSONDeserializer`."""

    _serde = AsyncJSONDeserializer
