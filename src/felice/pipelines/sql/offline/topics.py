"""Topics and schemas in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.inference import TYPES, inferred_columns
from felice.pipelines.sql.rows import Columns, FormatDescription
from felice.pipelines.sql.rows.registry import AVRO, MemoryRegistry
from felice.pipelines.streams.task import TopicRecord


@dataclass(slots=True)
class Topic:
    """A topic: its records with the numbers of their order among those of all topics."""

    name: str
    partitions: int = 1
    replicas: int = 1
    records: list[tuple[int, TopicRecord]] = field(default_factory=list)


def _text_of_schema(given: Any, kind: str) -> str:
    """A schema as text. The name of a type of Avro, such as int, may stand without quotes."""
    if not isinstance(given, str):
        return json.dumps(given)
    return json.dumps(given) if kind == AVRO and given.isidentifier() else given


def format_of_topic(given: Mapping[str, Any], part: str) -> str:
    """The format of the "key" or "value" of a topic with a schema."""
    return str(given.get(f"{part}Format") or ("KAFKA" if part == "key" else "AVRO")).upper()


class Topics:
    """All topics of a test, and its schemas."""

    def __init__(self) -> None:
        self._topics: dict[str, Topic] = {}
        self._count = 0
        self.registry = MemoryRegistry()

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def topic(self, name: str) -> Topic:
        """The topic, which is made if it is not there."""
        return self._topics.setdefault(name, Topic(name))

    def create(self, given: Mapping[str, Any]) -> None:
        """Make a topic as a test describes it, with its schemas. Raises ValueError."""
        name = given["name"]
        self._topics[name] = Topic(name, given.get("partitions") or 1, given.get("replicas") or 1)
        for part in ("key", "value"):
            schema = given.get(f"{part}Schema")
            if schema is not None:
                self._register(name, part, schema, given)

    def _register(self, name: str, part: str, schema: Any, given: Mapping[str, Any]) -> None:
        kind = TYPES.get(format_of_topic(given, part))
        if kind is None:
            return
        references = []
        for one in given.get(f"{part}SchemaReferences") or ():
            text = _text_of_schema(one["schema"], kind)
            self.registry.register(one["name"], kind, text)
            references.append((one["name"], text))
        text = _text_of_schema(schema, kind)
        id = given.get(f"{part}SchemaId")
        self.registry.register(f"{name}-{part}", kind, text, tuple(references), id=id)

    def write(self, record: TopicRecord) -> int:
        """Add a record to its topic, and return its number."""
        self._count += 1
        self.topic(record.topic).records.append((self._count, record))
        return self._count

    def all(self) -> list[Topic]:
        """The topics, in the order in which they were made."""
        return list(self._topics.values())

    def delete(self, name: str) -> None:
        """Forget a topic."""
        self._topics.pop(name, None)

    # What the analysis asks

    def partitions(self, topic: str, wanted: int | None) -> int:
        """Those of the topic, which is made if it is not there."""
        if topic not in self._topics:
            self._topics[topic] = Topic(topic, wanted or 1)
        return self._topics[topic].partitions

    def schema(self, topic: str, is_key: bool, given: FormatDescription) -> Columns | None:
        """The columns of a registered schema."""
        return inferred_columns(given, self.registry, topic, is_key=is_key)
