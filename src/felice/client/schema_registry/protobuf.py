"""Protobuf's serializers and deserializers, at confluent_kafka's names. They need the extra `felice[schemas]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from google.protobuf.message import Message

from felice.client.schema_registry.builders import (
    AsyncBuilding,
    Builder,
    Building,
    DeserializerSettings,
    SerializerSettings,
)
from felice.client.schema_registry.protobuf_format import ProtobufDeserializing, ProtobufSerializing
from felice.client.schema_registry.serdes import (
    AsyncBaseDeserializer,
    AsyncBaseSerializer,
    BaseDeserializer,
    BaseSerializer,
    Serde,
)
from felice.client.serialization import DeserializerBuilder, SerializerBuilder

__all__ = [
    "AsyncProtobufDeserializer",
    "AsyncProtobufDeserializerBuilder",
    "AsyncProtobufSerializer",
    "AsyncProtobufSerializerBuilder",
    "ProtobufDeserializer",
    "ProtobufDeserializerBuilder",
    "ProtobufSerializer",
    "ProtobufSerializerBuilder",
]


class _ProtobufSerializer(Serde):
    def __init__(
        self,
        msg_type: type[Message],
        schema_registry_client: Any,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        rules, own = (rule_conf, rule_registry), dict(conf or {})
        core = ProtobufSerializing(msg_type, own, self._associated, rules=rules)
        self._start(schema_registry_client, core)


class ProtobufSerializer(_ProtobufSerializer, BaseSerializer):
    """Converts messages of one generated class to bytes with the id of their schema.

    The schema is the file of the class. The files that it imports are registered, too, as references.
    """


class AsyncProtobufSerializer(_ProtobufSerializer, AsyncBaseSerializer):
    """As `ProtobufSerializer`, for asyncio: create it with `await`, and `await serializer(message, ctx)`."""


class _ProtobufDeserializer(Serde):
    def __init__(
        self,
        message_type: type[Message],
        conf: dict[str, Any] | None = None,
        schema_registry_client: Any = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        core = ProtobufDeserializing(
            message_type,
            dict(conf or {}),
            self._associated,
            has_registry=schema_registry_client is not None,
            rules=(rule_conf, rule_registry),
        )
        self._start(schema_registry_client, core)


class ProtobufDeserializer(_ProtobufDeserializer, BaseDeserializer):
    """Converts bytes to messages of one generated class. Without a registry's client it skips the schema's id."""


class AsyncProtobufDeserializer(_ProtobufDeserializer, AsyncBaseDeserializer):
    """As `ProtobufDeserializer`, for asyncio."""


class _OfMessage(Builder):
    _kind: type[Message] | None

    def set_message_type(self, msg_type: type[Message]) -> Self:
        """Set the generated class of the messages."""
        self._kind = msg_type
        return self

    def _message_type(self) -> type[Message]:
        if self._kind is None:
            raise ValueError("the builder has no message type; call set_message_type")
        return self._kind


class _SerializerBuilder(_OfMessage, SerializerSettings):
    def __init__(
        self,
        schema_registry_config: dict[str, Any] | None = None,
        schema_registry_client: Any = None,
        message_type: type[Message] | None = None,
        serializer_config: dict[str, Any] | None = None,
        rule_config: dict[str, Any] | None = None,
        rule_registry: Any = None,
        serializer_init: Callable[[Any], Any] | None = None,
    ) -> None:
        rules = (rule_config, rule_registry)
        super().__init__(
            schema_registry_config, schema_registry_client, serializer_config, rules, serializer_init
        )
        self._kind = message_type

    def construct(self, client: Any) -> Any:
        """Create the serializer. Raises ValueError without a message type."""
        rules = (self._rule_config, self._rule_registry)
        return type(self)._serde(self._message_type(), client, self._serde_config, *rules)


class ProtobufSerializerBuilder(_SerializerBuilder, Building, SerializerBuilder):
    """Builds a `ProtobufSerializer`: the value of `key.serializer.builder` or `value.serializer.builder`."""

    _serde = ProtobufSerializer


class AsyncProtobufSerializerBuilder(_SerializerBuilder, AsyncBuilding, SerializerBuilder):  # type: ignore[misc]
    """Builds an `AsyncProtobufSerializer`."""

    _serde = AsyncProtobufSerializer


class _DeserializerBuilder(_OfMessage, DeserializerSettings):
    def __init__(
        self,
        schema_registry_config: dict[str, Any] | None = None,
        schema_registry_client: Any = None,
        message_type: type[Message] | None = None,
        deserializer_config: dict[str, Any] | None = None,
        rule_config: dict[str, Any] | None = None,
        rule_registry: Any = None,
        deserializer_init: Callable[[Any], Any] | None = None,
    ) -> None:
        rules = (rule_config, rule_registry)
        super().__init__(
            schema_registry_config, schema_registry_client, deserializer_config, rules, deserializer_init
        )
        self._kind = message_type

    def construct(self, client: Any) -> Any:
        """Create the deserializer. Raises ValueError without a message type."""
        rules = (self._rule_config, self._rule_registry)
        return type(self)._serde(self._message_type(), self._serde_config, client, *rules)


class ProtobufDeserializerBuilder(_DeserializerBuilder, Building, DeserializerBuilder):
    """Builds a `ProtobufDeserializer`: the value of `key.deserializer.builder` or `value.deserializer.builder`."""

    _serde = ProtobufDeserializer


class AsyncProtobufDeserializerBuilder(  # type: ignore[misc]
    _DeserializerBuilder, AsyncBuilding, DeserializerBuilder
):
    """Builds an `AsyncProtobufDeserializer`."""

    _serde = AsyncProtobufDeserializer
