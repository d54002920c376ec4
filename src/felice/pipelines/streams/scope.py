"""Values that the parts of an App share while it is built: its name, its topology, its default formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Protocol

from felice.dataclass import dataclass
from felice.pipelines.streams.formats import Format, format_of
from felice.pipelines.streams.topology import (
    ChoosePartition,
    Node,
    TopicFormats,
    Topology,
    TopologyError,
    policy_behind,
)


@dataclass(frozen=True, slots=True)
class PreviewSource:
    """The source of previews: the brokers, and the number of newest records that the first display reads of each
    partition.
    """

    bootstrap_servers: str
    records: int


MakeFrame = Callable[[Any], Any]
"""(SparkSession) -> streaming DataFrame"""


class Frames(dict[str, MakeFrame]):
    """The functions that make the DataFrames of an App, by name. Pickled it is empty: workers have no session."""

    def __reduce__(self) -> tuple[type[Frames], tuple[()]]:
        return Frames, ()


class Shown(Protocol):
    """The records of a node that a notebook shows."""

    def advance(self) -> None:
        """Process the records that came since the last call."""

    def html(self) -> str:
        """The newest records or rows."""


@dataclass(slots=True)
class Previews:
    """The previews of an App, by node and by the size of the topology at that time."""

    source: PreviewSource | None = None
    shown: dict[tuple[int, int], Shown] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scope:
    """The shared values of one App."""

    name: str
    key_format: Format
    value_format: Format
    topology: Topology = field(default_factory=Topology)
    previews: Previews = field(default_factory=Previews)
    frames: Frames = field(default_factory=Frames)
    emits_batches: bool = False
    """Whether tables send one change for each key and batch, unless they say otherwise."""

    def key(self, given: str | Format | None) -> Format:
        """The format of new keys: the App's unless given."""
        return format_of(given or self.key_format)

    def value(self, given: str | Format | None) -> Format:
        """The format of new values: the App's unless given."""
        return format_of(given or self.value_format)

    def repartition(
        self,
        node: Node,
        name: str,
        key: Format,
        value: Format,
        *,
        is_table: bool = False,
        is_copy: bool = False,
        is_early: bool = False,
        partition_of: ChoosePartition | None = None,
    ) -> Node:
        """The node's records after a repartition by key, or by `partition_of`. See `TopicFormats` for the other
        arguments.
        """
        topic = f"{self.name}-{name}-repartition"
        formats = TopicFormats(
            topic,
            key,
            value,
            on_error=policy_behind(node),
            is_repartition=True,
            is_table=is_table,
            is_copy=is_copy,
            is_early=is_early,
            partition_of=partition_of,
        )
        self.topology.sink(formats, node)
        return self.topology.source(formats)


class Scoped(Protocol):
    """An App, for modules that `app` imports."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def scope(self) -> Scope:
        """What it consists of."""


def check_same_keys(what: str, one: Format, other: Format) -> None:
    """Raise an error if two inputs have different formats of keys: equal keys would be in different partitions."""
    if one != other:
        raise TopologyError(
            f"{what}: one side has keys of format {one.name}, the other {other.name}; name the same format for both"
        )
