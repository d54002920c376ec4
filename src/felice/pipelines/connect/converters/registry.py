"""Converters with a schema registry: their options by Confluent's names, what they ask of it, and what they share.

Keeps true:  each schema is registered once, and each id is asked for once, while it is among the last ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from felice.client.schema_registry.caches import Cache
from felice.client.schema_registry.error import SchemaRegistryError
from felice.client.schema_registry.model import Schema as RegisteredSchema
from felice.client.schema_registry.parsing import Format, Parser
from felice.client.schema_registry.steps import run
from felice.client.serialization import SerializationError
from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    invalid,
    non_empty_list,
)
from felice.pipelines.connect.converters.converter import Converter
from felice.pipelines.connect.model.errors import ConfigError, ConnectError, DataError, RetriableError
from felice.pipelines.connect.model.record import Header
from felice.pipelines.connect.model.schema import STRING, Schema
from felice.pipelines.registry_clients import RegistryAddress, is_of_transport

T = TypeVar("T")

_STRATEGIES = "io.confluent.kafka.serializers.subject."
_TOPIC, _RECORD, _TOPIC_RECORD = (
    f"{_STRATEGIES}{name}NameStrategy" for name in ("Topic", "Record", "TopicRecord")
)


def _strategy(name: str, value: Any) -> None:
    if value not in (_TOPIC, _RECORD, _TOPIC_RECORD):
        raise invalid(name, value, f"expected {_TOPIC}, {_RECORD} or {_TOPIC_RECORD}")


def _lacking(name: str, value: Any) -> None:
    if value is not None:
        raise invalid(name, value, "the option is not supported by this converter")


def not_supported(*names: str) -> list[Definition]:
    """Options of Confluent's converter that ours does not have: each is refused by its name."""
    return [Definition(name, Type.STRING, None, "Not supported.", Importance.LOW, _lacking) for name in names]


REGISTRY = ConfigDefinitions(
    [
        Definition(
            "schemas.cache.config", Type.INT, 1000, "The number of schemas that are kept.", Importance.LOW
        ),
        Definition(
            "schema.registry.url",
            Type.LIST,
            documentation="The addresses of the registry.",
            importance=Importance.HIGH,
            validator=non_empty_list,
        ),
        Definition(
            "auto.register.schemas",
            Type.BOOLEAN,
            True,
            "Whether new schemas are registered.",
            Importance.MEDIUM,
        ),
        Definition(
            "use.latest.version",
            Type.BOOLEAN,
            False,
            "With auto.register.schemas=false: whether the subject's latest schema is used.",
            Importance.LOW,
        ),
        Definition(
            "basic.auth.credentials.source",
            Type.STRING,
            "URL",
            "URL: user and password stand in the address; USER_INFO: in basic.auth.user.info.",
            Importance.MEDIUM,
        ),
        Definition(
            "basic.auth.user.info", Type.PASSWORD, None, "user:password of the registry.", Importance.MEDIUM
        ),
        Definition(
            "key.subject.name.strategy",
            Type.STRING,
            _TOPIC,
            "How a key's subject is named.",
            Importance.MEDIUM,
            _strategy,
        ),
        Definition(
            "value.subject.name.strategy",
            Type.STRING,
            _TOPIC,
            "How a value's subject is named.",
            Importance.MEDIUM,
            _strategy,
        ),
        Definition(
            "schema.registry.ssl.truststore.location",
            Type.STRING,
            None,
            "A PEM file of the authorities that verify the registry.",
            Importance.LOW,
        ),
    ]
)
"""The options of every converter with a registry."""


class Registry:
    """Asks the registry. A registry that does not answer raises `RetriableError`: no record is at fault."""

    def __init__(self, config: Mapping[str, Any], form: Format[Any]) -> None:
        """`form` is that of Avro, Protobuf or JSON Schema. Raises `ConfigError`."""
        self._config = config
        self._form = form
        conf: dict[str, Any] = {"url": ",".join(config["schema.registry.url"])}
        source = config["basic.auth.credentials.source"].upper()
        if source == "USER_INFO" and config["basic.auth.user.info"] is not None:
            conf["basic.auth.user.info"] = config["basic.auth.user.info"].value
        elif source not in ("URL", "USER_INFO"):
            raise ConfigError(f"basic.auth.credentials.source must be URL or USER_INFO, not {source}")
        if location := config["schema.registry.ssl.truststore.location"]:
            conf["ssl.ca.location"] = location
        try:
            self._client = RegistryAddress.of(conf).client()
        except (ValueError, TypeError) as error:
            raise ConfigError(f"schema.registry.url: {error}") from None
        self._parser: Parser[Any] = Parser(form)

    def registered(self, topic: str, field: str, name: str | None, text: str) -> tuple[int, Any]:
        """The id of a schema, and the schema parsed. Raises `DataError`, `RetriableError`."""
        schema = RegisteredSchema(text, self._form.schema_type)
        subject = self._subject(topic, field, name)

        def ask() -> int:
            if self._config["auto.register.schemas"]:
                return int(self._client.register_schema(subject, schema))
            if self._config["use.latest.version"]:
                return int(self._client.get_latest_version(subject).schema_id or 0)
            return int(self._client.lookup_schema(subject, schema).schema_id or 0)

        number: int = self._asked(ask, f"the schema of subject {subject} cannot be registered")
        return number, self._parsed(schema)

    def parsed(self, number: int) -> Any:
        """The parsed schema of an id. Raises `DataError`, `RetriableError`."""

        def ask() -> RegisteredSchema:
            found: RegisteredSchema = self._client.get_schema(number, fmt=self._form.fmt)
            if found.schema_type != self._form.schema_type:
                raise DataError(
                    f"the schema {number} is of the type {found.schema_type}, not {self._form.schema_type}"
                )
            return found

        return self._parsed(self._asked(ask, f"the schema {number} cannot be read"))

    def _parsed(self, schema: Any) -> Any:
        def perform(step: Any) -> object:
            return getattr(self._client, step.method)(*step.arguments, **step.keywords)

        return self._asked(lambda: run(self._parser.parsed(schema), perform), "the schema cannot be used")

    def _subject(self, topic: str, field: str, name: str | None) -> str:
        strategy = self._config[f"{field}.subject.name.strategy"]
        if strategy == _TOPIC:
            return f"{topic}-{field}"
        if name is None:
            raise DataError(f"{field}.subject.name.strategy needs schemas with names")
        return name if strategy == _RECORD else f"{topic}-{name}"

    def _asked(self, ask: Callable[[], T], what: str) -> T:
        try:
            return ask()
        except ConnectError:
            raise
        except SchemaRegistryError as error:
            raise DataError(f"{what}: {error}") from error
        except Exception as error:
            if is_of_transport(error):
                raise RetriableError(f"the schema registry cannot be asked: {error}") from error
            # What libraries raise for a schema that they cannot use has no common class.
            raise DataError(f"{what}: {error}") from error


_HEAD = struct.Struct(">bI")

Write = Callable[[Any], bytes]
"""Writes values of one schema. Raises `DataError`, ValueError, TypeError, KeyError or AttributeError."""
Read = Callable[[bytes], tuple[Schema, Any]]
"""Reads the data of one schema of the registry. Raises `DataError` and `SerializationError`."""


class RegistryConverter(Converter):
    """Data with the id of its schema before it: zero, the id in four bytes, and what the format has."""

    label: ClassVar[str]
    """The format's name in errors."""

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._registry = Registry(config, self._format())
        capacity = max(1, config["schemas.cache.config"])
        self._written: Cache[tuple[str, Schema], tuple[int, Write]] = Cache(capacity)
        self._read: Cache[int, Read] = Cache(capacity)

    def _format(self) -> Format[Any]:
        """How the registry's schemas are parsed."""
        raise NotImplementedError

    def _text(self, schema: Schema) -> str:
        """The text to register for a schema of Connect. Raises `DataError`."""
        raise NotImplementedError

    def _writer(self, schema: Schema, parsed: Any) -> Write:
        """What writes values of a schema that is registered."""
        raise NotImplementedError

    def _reader(self, parsed: Any) -> Read:
        """What reads data of a registered schema. Raises `DataError` for one that Connect cannot hold."""
        raise NotImplementedError

    def to_bytes(
        self, topic: str, schema: Schema | None, value: Any, headers: Sequence[Header] = ()
    ) -> bytes | None:
        """The data of a value, with its schema's id. None is a tombstone."""
        if value is None:
            return None
        if schema is None:
            if not isinstance(value, str):
                raise DataError(
                    f"a {type(value).__name__} without a schema cannot be written as {self.label}"
                )
            schema = Schema(STRING)
        known = self._written.get((topic, schema))
        if known is None:
            field = "key" if self.is_key else "value"
            number, parsed = self._registry.registered(topic, field, schema.name, self._text(schema))
            known = number, self._writer(schema, parsed)
            self._written.put((topic, schema), known)
        number, write = known
        try:
            return _HEAD.pack(0, number) + write(value)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"the value cannot be written as {self.label}: {error}") from error

    def from_bytes(
        self, topic: str, data: bytes | None, headers: Sequence[Header] = ()
    ) -> tuple[Schema | None, Any]:
        """The schema and the value."""
        if data is None:
            return None, None
        if len(data) < _HEAD.size or data[0] != 0:
            raise DataError(
                f"the data of topic {topic} has no schema's id: it was not written with a schema registry"
            )
        (_, number) = _HEAD.unpack_from(data)
        read = self._read.get(number)
        if read is None:
            read = self._reader(self._registry.parsed(number))
            self._read.put(number, read)
        try:
            return read(data[_HEAD.size :])
        except SerializationError as error:
            raise DataError(f"the data of topic {topic} with the schema {number}: {error}") from error
