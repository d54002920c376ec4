"""Records on their way between a connector and a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from felice.dataclass import dataclass
from felice.pipelines.connect.model.schema import Schema

if TYPE_CHECKING:
    from felice.client.model import Message


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record. A record may have several of one name."""

    name: str
    schema: Schema | None
    value: Any


@dataclass(frozen=True, slots=True)
class ConnectRecord:
    """What source and sink records have in common. `timestamp` is milliseconds since 1970. `replace` makes another one.

    Without a schema a value is plain: a dict, list, text, number, bytes or None.
    """

    topic: str
    partition: int | None
    key_schema: Schema | None
    key: Any
    value_schema: Schema | None
    value: Any
    timestamp: int | None = None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceRecord(ConnectRecord):
    """A record that a source read, with the place after it: a partition of the source, and the offset there."""

    source_partition: Mapping[str, Any] = field(default_factory=dict)
    source_offset: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SinkRecord(ConnectRecord):
    """A record that was read of a topic. The originals stay when a transformation changes topic or partition."""

    offset: int = 0
    timestamp_type: str = "CreateTime"
    original_topic: str = ""
    original_partition: int = 0
    original: Message | None = field(default=None, compare=False, repr=False)
    """The message that was read, which a dead letter has."""

    @property
    def place(self) -> tuple[str, int]:
        """The topic and the partition from which it was read."""
        return self.original_topic or self.topic, self.original_partition
