"""Avro serializers and deserializers, at confluent_kafka's names. They need the extra `felice[schemas]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from felice.client.schema_registry.avro_format import AvroDeserializing, AvroSchema, AvroSerializing
from felice.client.schema_registry.builders import (
    AsyncBuilding,
    Building,
    OfObjects,
    ToObjects,
)
from felice.client.schema_registry.deserializing import FromDict
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
    "AsyncAvroDeserializer",
    "AsyncAvroDeserializerBuilder",
    "AsyncAvroSerializer",
    "AsyncAvroSerializerBuilder",
    "AvroDeserializer",
    "AvroDeserializerBuilder",
    "AvroSchema",
    "AvroSerializer",
    "AvroSerializerBuilder",
]


class _AvroSerializer(Serde):
    def __init__(
        self,
        schema_registry_client: Any,
        schema_str: str | Schema | None = None,
        to_dict: ToDict | None = None,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        rules = (rule_conf, rule_registry)
        core = AvroSerializing(schema_str, dict(conf or {}), to_dict, self._associated, rules=rules)
        self._start(schema_registry_client, core)


class AvroSerializer(_AvroSerializer, BaseSerializer):
    """Converts objects to Avro data with the id of their schema. Its configuration is described in docs/client.md.

    `schema_str` is a text or a `Schema`, which may refer to other schemas; `to_dict(object, context)` makes dicts of an
    application's objects.
    """


class AsyncAvroSerializer(_AvroSerializer, AsyncBaseSerializer):
    """As `AvroSerializer`, for asyncio: `serializer = await AsyncAvroSerializer(...)`, `await serializer(obj, ctx)`."""


class _AvroDeserializer(Serde):
    def __init__(
        self,
        schema_registry_client: Any,
        schema_str: str | Schema | None = None,
        from_dict: FromDict | None = None,
        return_record_name: bool = False,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        rules, strategy = (rule_conf, rule_registry), self._associated
        own = dict(conf or {})
        core = AvroDeserializing(schema_str, own, return_record_name, from_dict, strategy, rules=rules)
        self._start(schema_registry_client, core)


class AvroDeserializer(_AvroDeserializer, BaseDeserializer):
    """Converts Avro data to dicts, or with `from_dict(dict, context)` to an application's objects.

    `schema_str` is a reader schema, to which data of other versions is converted. With `return_record_name`, records
    in unions are pairs of their name and their dict.
    """


class AsyncAvroDeserializer(_AvroDeserializer, AsyncBaseDeserializer):
    """As `AvroDeserializer`, for asyncio."""


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
        serializer_init: Callable[[Any], Any] | None = None,
    ) -> None:
        rules = (rule_config, rule_registry)
        super().__init__(
            schema_registry_config, schema_registry_client, serializer_config, rules, serializer_init
        )
        self._schema, self._to_dict = schema, to_dict

    def construct(self, client: Any) -> Any:
        """Create the serializer."""
        rules = (self._rule_config, self._rule_registry)
        return type(self)._serde(client, self._schema, self._to_dict, self._serde_config, *rules)


class AvroSerializerBuilder(_SerializerBuilder, Building, SerializerBuilder):
    """Builds an `AvroSerializer`: the value of `key.serializer.builder` or `value.serializer.builder`."""

    _serde = AvroSerializer


class AsyncAvroSerializerBuilder(_SerializerBuilder, AsyncBuilding, SerializerBuilder):  # type: ignore[misc]
    """Builds an `AsyncAvroSerializer`."""

    _serde = AsyncAvroSerializer


class _DeserializerBuilder(ToObjects):
    def __init__(
        self,
        schema_registry_config: dict[str, Any] | None = None,
        schema_registry_client: Any = None,
        schema: str | Schema | None = None,
        from_dict: FromDict | None = None,
        return_record_name: bool = False,
        deserializer_config: dict[str, Any] | None = None,
        rule_config: dict[str, Any] | None = None,
        rule_registry: Any = None,
        deserializer_init: Callable[[Any], Any] | None = None,
    ) -> None:
        rules = (rule_config, rule_registry)
        super().__init__(
            schema_registry_config, schema_registry_client, deserializer_config, rules, deserializer_init
        )
        self._schema, self._from_dict, self._names = schema, from_dict, return_record_name

    def set_return_record_name(self, return_record_name: bool) -> Self:
        """Set whether records in unions are pairs of their name and their dict."""
        self._names = return_record_name
        return self

    def construct(self, client: Any) -> Any:
        """Create the deserializer."""
        rules = (self._rule_config, self._rule_registry)
        given = (self._schema, self._from_dict, self._names, self._serde_config)
        return type(self)._serde(client, *given, *rules)


class AvroDeserializerBuilder(_DeserializerBuilder, Building, DeserializerBuilder):
    """Builds an `AvroDeserializer`: the value of `key.deserializer.builder` or `value.deserializer.builder`."""

    _serde = AvroDeserializer


class AsyncAvroDeserializerBuilder(_DeserializerBuilder, AsyncBuilding, DeserializerBuilder):  # type: ignore[misc]
    """Builds an `AsyncAvroDeserializer`."""

    _serde = AsyncAvroDeserializer
