"""The schema registry of a converter: its options by Confluent's names, and what a converter asks of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from felice.client.schema_registry.avro_format import AvroFormat
from felice.client.schema_registry.error import SchemaRegistryError
from felice.client.schema_registry.model import Schema
from felice.client.schema_registry.parsing import Parser
from felice.client.schema_registry.steps import run
from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    invalid,
    non_empty_list,
)
from felice.pipelines.connect.model.errors import ConfigError, ConnectError, DataError, RetriableError
from felice.pipelines.registry_clients import RegistryAddress, is_of_transport

T = TypeVar("T")

_STRATEGIES = "io.confluent.kafka.serializers.subject."
_TOPIC, _RECORD, _TOPIC_RECORD = (
    f"{_STRATEGIES}{name}NameStrategy" for name in ("Topic", "Record", "TopicRecord")
)


def _strategy(name: str, value: Any) -> None:
    if value not in (_TOPIC, _RECORD, _TOPIC_RECORD):
        raise invalid(name, value, f"expected {_TOPIC}, {_RECORD} or {_TOPIC_RECORD}")


REGISTRY = ConfigDefinitions(
    [
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

    def __init__(self, config: Mapping[str, Any], kind: str) -> None:
        """`kind` is AVRO, PROTOBUF or JSON. Raises `ConfigError`."""
        self._config = config
        self._kind = kind
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
        self._parser = Parser(AvroFormat())

    def registered(self, topic: str, field: str, name: str | None, text: str) -> tuple[int, Any]:
        """The id of a schema, and the schema parsed. Raises `DataError`, `RetriableError`."""
        schema = Schema(text, self._kind)
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
        return self._parsed(
            self._asked(lambda: self._client.get_schema(number), f"the schema {number} cannot be read")
        )

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
