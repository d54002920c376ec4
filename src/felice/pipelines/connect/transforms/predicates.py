"""Kafka's predicates: which records a transformation is applied to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    java_regex,
    non_empty,
)
from felice.pipelines.connect.model.record import ConnectRecord
from felice.pipelines.java.regex import compiled


class Predicate:
    """Is true of some records. A class with `definitions`, made with their values."""

    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions()

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def test(self, record: ConnectRecord) -> bool:
        """Whether it is true of the record."""
        raise NotImplementedError


class TopicNameMatches(Predicate):
    """The topic matches a regular expression as a whole."""

    definitions: ClassVar = ConfigDefinitions(
        [Definition("pattern", Type.STRING, importance=Importance.MEDIUM, validator=java_regex)]
    )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._pattern = compiled(config["pattern"])

    def test(self, record: ConnectRecord) -> bool:
        """Whether the topic matches."""
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey(Predicate):
    """There is a header with this name."""

    definitions: ClassVar = ConfigDefinitions(
        [Definition("name", Type.STRING, importance=Importance.MEDIUM, validator=non_empty)]
    )

    def test(self, record: ConnectRecord) -> bool:
        """Whether there is one."""
        return any(one.name == self.config["name"] for one in record.headers)


class RecordIsTombstone(Predicate):
    """The value is null."""

    def test(self, record: ConnectRecord) -> bool:
        """Whether it is."""
        return record.value is None
