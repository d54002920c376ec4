"""Builders: they create a serializer or deserializer when a producer or consumer is created.

Keeps true:  a registry's client that a builder created is closed with the serializer that it was created for, also if
             the serializer cannot be created.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from felice.client.schema_registry.client import AsyncSchemaRegistryClient, SchemaRegistryClient
from felice.client.schema_registry.deserializing import FromDict
from felice.client.schema_registry.model import Schema
from felice.client.schema_registry.serializing import ToDict

S = TypeVar("S", bound=Any)

_BOTH = "give either a client of the schema registry or its configuration, not both"


def build_serde(
    schema_registry_client: Any,
    schema_registry_conf: dict[str, Any] | None,
    construct: Callable[[Any], S],
    init: Callable[[S], Any] | None = None,
) -> S:
    """Create a serializer with a client of the application, or with one of its own made from a configuration.

    `construct` receives the client, and `init` the serializer. Raises ValueError if both a client and a configuration
    are given.
    """
    if schema_registry_client is not None and schema_registry_conf is not None:
        raise ValueError(_BOTH)
    owned = None
    if schema_registry_conf is not None:
        owned = schema_registry_client = SchemaRegistryClient.new_client(schema_registry_conf)
    try:
        serde = construct(schema_registry_client)
    except BaseException:
        if owned is not None:
            owned.close()
        raise
    if owned is not None:
        serde.own_schema_registry_client()
    try:
        if init is not None:
            init(serde)
    except BaseException:
        serde.close()
        raise
    return serde


async def async_build_serde(
    schema_registry_client: Any,
    schema_registry_conf: dict[str, Any] | None,
    construct: Callable[[Any], Any],
    init: Callable[[Any], Any] | None = None,
) -> Any:
    """As `build_serde`; `construct` returns an awaitable, and `init` may."""
    if schema_registry_client is not None and schema_registry_conf is not None:
        raise ValueError(_BOTH)
    owned = None
    if schema_registry_conf is not None:
        owned = schema_registry_client = AsyncSchemaRegistryClient.new_client(schema_registry_conf)
    try:
        serde = await construct(schema_registry_client)
    except BaseException:
        if owned is not None:
            await owned.aclose()
        raise
    if owned is not None:
        serde.own_schema_registry_client()
    try:
        prepared = None if init is None else init(serde)
        if inspect.isawaitable(prepared):
            await prepared
    except BaseException:
        await serde.aclose()
        raise
    return serde


class Builder:
    """What builders have in common: the registry's client or its configuration, and rules, which are refused."""

    _serde: Callable[..., Any]
    """The class of what is built."""

    def __init__(
        self,
        config: dict[str, Any] | None,
        client: Any,
        serde_config: dict[str, Any] | None,
        rules: tuple[Any, Any],
        init: Callable[[Any], Any] | None,
    ) -> None:
        self._config, self._client, self._serde_config = config, client, serde_config
        self._rule_config, self._rule_registry = rules
        self._init = init

    def set_schema_registry_config(self, schema_registry_conf: dict[str, Any]) -> Self:
        """Let the serializer own a client of this configuration."""
        self._config = schema_registry_conf
        return self

    def set_schema_registry_client(self, schema_registry_client: Any) -> Self:
        """Use a client of the application."""
        self._client = schema_registry_client
        return self

    def set_rule_config(self, rule_conf: dict[str, Any]) -> Self:
        """Accept a configuration of rules, for which `build` raises ValueError."""
        self._rule_config = rule_conf
        return self

    def set_rule_registry(self, rule_registry: Any) -> Self:
        """Accept a registry of rules, for which `build` raises ValueError."""
        self._rule_registry = rule_registry
        return self

    def construct(self, client: Any) -> Any:
        """Create the serializer or deserializer."""
        raise NotImplementedError


class SerializerSettings(Builder):
    """The settings of a serializer's builder."""

    def set_serializer_config(self, serializer_conf: dict[str, Any]) -> Self:
        """Set the serializer's configuration."""
        self._serde_config = serializer_conf
        return self

    def set_serializer_init(self, serializer_init: Callable[[Any], Any]) -> Self:
        """Set a function that receives the serializer when it is created."""
        self._init = serializer_init
        return self


class DeserializerSettings(Builder):
    """The settings of a deserializer's builder."""

    def set_deserializer_config(self, deserializer_conf: dict[str, Any]) -> Self:
        """Set the deserializer's configuration."""
        self._serde_config = deserializer_conf
        return self

    def set_deserializer_init(self, deserializer_init: Callable[[Any], Any]) -> Self:
        """Set a function that receives the deserializer when it is created."""
        self._init = deserializer_init
        return self


class OfSchema(Builder):
    """The setting of builders for formats with a schema in a text."""

    _schema: str | Schema | None

    def set_schema(self, schema_str: str | Schema) -> Self:
        """Set the schema: the serializer's, or the one that reads or checks the data."""
        self._schema = schema_str
        return self


class OfObjects(OfSchema, SerializerSettings):
    """The settings of a serializer for an application's objects."""

    _to_dict: ToDict | None

    def set_to_dict(self, to_dict: ToDict) -> Self:
        """Set the function that makes dicts of objects."""
        self._to_dict = to_dict
        return self


class ToObjects(OfSchema, DeserializerSettings):
    """The settings of a deserializer to an application's objects."""

    _from_dict: FromDict | None

    def set_from_dict(self, from_dict: FromDict) -> Self:
        """Set the function that makes objects of dicts."""
        self._from_dict = from_dict
        return self


class Building(Builder):
    """A builder for blocking clients."""

    def build(self, conf: Mapping[str, object], is_key: bool) -> tuple[Any, dict[str, object]]:
        """Return what was built, and the configuration of the producer or consumer, unchanged."""
        return build_serde(self._client, self._config, self.construct, self._init), dict(conf)


class AsyncBuilding(Builder):
    """A builder for asyncio's clients."""

    async def build(self, conf: Mapping[str, object], is_key: bool) -> tuple[Any, dict[str, object]]:
        """Return what was built, and the configuration of the producer or consumer, unchanged."""
        return await async_build_serde(self._client, self._config, self.construct, self._init), dict(conf)
