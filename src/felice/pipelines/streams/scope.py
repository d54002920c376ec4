"""What the parts of an App share while it is built: its name, its topology, its default formats."""

from __future__ import annotations

from dataclasses import dataclass, field

from felice.pipelines.streams.formats import Format, format_of
from felice.pipelines.streams.topology import Node, TopicFormats, Topology, TopologyError


@dataclass(frozen=True, slots=True)
class Scope:
    """One App's."""

    name: str
    key_format: Format
    value_format: Format
    topology: Topology = field(default_factory=Topology)

    def key(self, given: str | Format | None) -> Format:
        """The format of new keys: the App's unless given."""
        return format_of(given or self.key_format)

    def value(self, given: str | Format | None) -> Format:
        """The format of new values: the App's unless given."""
        return format_of(given or self.value_format)

    def repartition(
        self, node: Node, name: str, key: Format, value: Format, *, is_table: bool = False
    ) -> Node:
        """The node's records, placed by their keys."""
        topic = f"{self.name}-{name}-repartition"
        formats = TopicFormats(topic, key, value, is_repartition=True, is_table=is_table)
        self.topology.sink(formats, node)
        return self.topology.source(formats)


def check_same_keys(what: str, one: Format, other: Format) -> None:
    """Refuse to bring keys together that are written differently."""
    if one is not other:
        raise TopologyError(
            f"{what}: one side has keys of format {one.name}, the other {other.name}; name the same format for both"
        )
