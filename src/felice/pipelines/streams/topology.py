"""The graph of an App's operators, and its division into sub-topologies.

Keeps true: a sub-topology is what one task runs on one partition: nodes that pass records to each other directly or
            share a store. Between sub-topologies records go through a repartition, which places them by their key.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from felice.dataclass import dataclass
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import AnyOperator
from felice.pipelines.streams.stores import Clocks, Store
from felice.pipelines.streams.telling import shown
from felice.protocol.patterns import Pattern, own_pattern

CLOCKS = "clocks"
FAIL, SKIP = "fail", "skip"
CHOSEN_TOPIC = "chosen for each record"


class TopologyError(ValueError):
    """An App that cannot run; the text says which part and why."""


_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def checked_name(what: str, name: object) -> str:
    """The name of a store or a topic. Raises `TopologyError` for a name that topics of Kafka cannot have. The names of
    internal topics contain the names of stores, so stores have the same limits.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise TopologyError(
            f"{shown(name)} cannot be the name of {what}: it has 1 to 249 letters, digits, '.', '_' and '-'"
        )
    return name


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Sends records that cannot be read, processed or written to a topic.

    A record that cannot be read is sent unchanged. If a function fails for a record, the record is sent once, as the
    sub-topology read it, with headers that name its topic and the error. A record that cannot be written is sent with
    these headers, too; a key or value that the format cannot encode is sent as text.
    """

    topic: str

    def __post_init__(self) -> None:
        checked_name("a topic of dead letters", self.topic)


OnBadRecord = str | DeadLetters
ChoosePartition = Callable[[Any, Any], int | None]
"""(key, value) -> a number that chooses the partition"""
EARLIEST, LATEST = "earliest", "latest"
Start = str | int | timedelta
"""EARLIEST, LATEST, milliseconds since 1970, or how long before the first start (KIP-1106)."""
OnLate = Callable[[Any, Any, int], Any] | DeadLetters | None
"""What happens to a record that came too late for its windows, besides being counted: a function of key, value and
timestamp is called, or the record is sent to a topic."""


@dataclass(frozen=True, slots=True)
class TopicFormats:
    """How the records of a topic are read or written."""

    topic: str
    key: Format
    value: Format
    on_bad_record: OnBadRecord = FAIL
    on_error: OnBadRecord = FAIL
    """Of an input: what happens to a record for which a function of the application fails."""
    is_repartition: bool = False
    is_frame: bool = False
    """A DataFrame of Spark is read or made in place of a topic, and `topic` is its name."""
    is_table: bool = False
    is_global: bool = False
    """Every task that uses the table has all of its rows."""
    is_copy: bool = False
    """Of a repartition: its rows are only looked up. A batch applies its rows before its other records."""
    is_early: bool = False
    """Of a repartition: among records with equal timestamps, those of this topic go first, also before a table's."""
    timestamp_of: Callable[[Any, Any], int] | None = None
    """Of an input: chooses a record's timestamp from its key and value. Without it, the record's own is taken."""
    start: Start = EARLIEST
    """Of an input: where it begins when the application reads it for the first time."""
    topic_of: Callable[[Any, Any], str] | None = None
    """Of an output: chooses the topic of each record. `topic` is only its name in descriptions then."""
    pattern: str | None = None
    """Of an input: a regular expression. All topics that match it are read, and `topic` stands for them."""
    number: int = 0
    """Of an input: how many inputs with this topic were made before it."""
    partition_of: ChoosePartition | None = None
    """For an output or a repartition: returns a number n. The record goes to partition n modulo the number of
    partitions. If the function returns None, the key chooses the partition.
    """

    def __post_init__(self) -> None:
        for name, given in (("on_bad_record", self.on_bad_record), ("on_error", self.on_error)):
            if given not in (FAIL, SKIP) and not isinstance(given, DeadLetters):
                raise TopologyError(f"{name} is {given!r}; it must be 'fail', 'skip' or DeadLetters(topic)")
        if self.partition_of is not None and not callable(self.partition_of):
            raise TopologyError(
                f"partition is {shown(self.partition_of)}; it must be a function of key and value"
            )

    def of_topic(self, topic: str) -> TopicFormats:
        """With formats that know which topic they write. DataFrames have none."""
        if self.is_frame:
            return self
        return replace(self, key=self.key.of_topic(topic, "key"), value=self.value.of_topic(topic, "value"))

    def reads(self, topic: str) -> bool:
        """Whether an input is this topic, or has a pattern that matches it."""
        if self.pattern is not None:
            return whole_name(self.pattern).search(topic) is not None
        return topic == self.topic and not (self.is_repartition or self.is_frame)

    @property
    def name(self) -> str:
        """The name of an input within the application: its topic, with a number if others read this topic, too."""
        return f"{self.topic} ({self.number + 1})" if self.number else self.topic

    @property
    def kind(self) -> str:
        """What it is, for descriptions."""
        return "DataFrame" if self.is_frame else "topic"

    @property
    def title(self) -> str:
        """What it is, with its name, for errors."""
        return f"{self.kind} {self.topic!r}"

    @property
    def dead_letters(self) -> set[str]:
        """The topics of its dead letters."""
        return {one.topic for one in (self.on_bad_record, self.on_error) if isinstance(one, DeadLetters)}


Stores = Mapping[str, Any]
"""A task's stores by name."""


@lru_cache
def whole_name(pattern: str) -> Pattern:
    """The pattern for whole names of topics. Raises `PatternError`."""
    return own_pattern(f"^(?:{pattern})$")


@dataclass(eq=False, slots=True)
class Node:
    """A step of the graph: a source (reads a topic), a sink (writes one), or an operator."""

    name: str
    make: Callable[[Stores], AnyOperator] | None = None
    source: TopicFormats | None = None
    sink: TopicFormats | None = None
    stores: tuple[str, ...] = ()
    is_global: bool = False
    """Belongs to a global table: a part of every sub-topology that uses its store."""
    is_hidden: bool = False
    """A part of the nodes behind it: not counted in names, and not described. The description of a topology is part of
    its state.
    """
    is_end: bool = False
    """An operator that an App may have for its effect alone."""
    on_late: OnLate = None
    line: str = ""
    """The line of the application's program that made it: `shop.py:12`."""
    is_of_batch: bool = False
    """An operator that sees all records of its keys in a batch, although it has no store."""
    children: list[Node] = field(default_factory=list)
    parents: list[Node] = field(default_factory=list)

    @property
    def label(self) -> str:
        """What reports call it: its store, or else its own name."""
        return self.stores[0] if self.stores else self.name

    @property
    def where(self) -> str:
        """Its name, and the line of the program that made it, for errors."""
        return f"{self.name} ({self.line})" if self.line else self.name


def _described_nodes(nodes: Iterable[Node]) -> list[Node]:
    """The nodes, with those behind them in place of hidden ones."""
    return [one for node in nodes for one in (_described_nodes(node.children) if node.is_hidden else [node])]


def policy_behind(node: Node) -> OnBadRecord:
    """The `on_error` of the sources whose records reach a node; "fail" if they have different ones."""
    sources = [one.source for one in reached([node], lambda one: one.parents) if one.source is not None]
    policies = {source.on_error for source in sources}
    return policies.pop() if len(policies) == 1 else FAIL


def is_chosen(node: Node) -> bool:
    """Whether a function chooses the partitions, and so the tasks, in which a node gets its records."""
    sources = (one.source for one in reached([node], lambda one: one.parents))
    return any(one is not None and one.is_repartition and one.partition_of is not None for one in sources)


def reached(nodes: Iterable[Node], following: Callable[[Node], Iterable[Node]]) -> Iterator[Node]:
    """These nodes and all to which `following` leads from them, each once."""
    waiting, seen = list(nodes), set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += following(node)


@dataclass(slots=True)
class SubTopology:
    """Nodes that one task runs together."""

    number: int
    nodes: list[Node]

    @property
    def sources(self) -> list[TopicFormats]:
        """The topics that it reads, tables first: of records with equal timestamps, those of the first topic are
        processed first.
        """
        found = [node.source for node in self.nodes if node.source is not None]
        return sorted(
            found,
            key=lambda one: (not one.is_global, not one.is_copy, not one.is_early, not one.is_table),
        )

    @property
    def sinks(self) -> list[TopicFormats]:
        """The topics that it writes."""
        return [node.sink for node in self.nodes if node.sink is not None]

    @property
    def stores(self) -> list[str]:
        """The names of its stores."""
        return sorted({name for node in self.nodes for name in node.stores})

    @property
    def is_placed(self) -> bool:
        """Whether its records must be placed by their keys: it has state, acts at the end of a batch, or reads a
        repartition.
        """
        return (
            bool(self.stores)
            or any(node.is_of_batch for node in self.nodes)
            or any(formats.is_repartition for formats in self.sources)
        )


class Topology:
    """The graph, built node by node."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._stores: dict[str, Callable[[], Store]] = {}
        self._hidden = 0
        self._windows: dict[str, str] = {}
        self.side_outputs: list[TopicFormats] = []
        """Topics to which functions send records; no node leads to them."""
        self.automatic: dict[str, str] = {}
        """The names that `automatic_name` gave, and what earlier releases called the same."""

    def source(self, formats: TopicFormats) -> Node:
        """The node that reads a topic. Each record goes to all nodes that read its topic, the first one first."""
        _check_topic(formats)
        earlier = [node.source for node in self.nodes if node.source and node.source.topic == formats.topic]
        if earlier:
            _check_again(formats, earlier[0])
        formats = replace(formats, number=len(earlier))
        return self._add(Node(self._name("source"), source=formats, is_global=formats.is_global))

    def sink(self, formats: TopicFormats, parent: Node) -> Node:
        """A node that writes a topic."""
        _check_topic(formats)
        return self._add(Node(self._name("sink"), sink=formats), parent)

    def operator(
        self,
        kind: str,
        make: Callable[[Stores], AnyOperator],
        *parents: Node,
        stores: Sequence[str] = (),
        is_hidden: bool = False,
    ) -> Node:
        """A node that runs an operator, with access to these stores.
        See `Node.is_hidden`.
        """
        self._hidden += is_hidden
        node = Node(self._name(kind), make, stores=tuple(stores), is_hidden=is_hidden)
        node.is_global = any(parent.is_global for parent in parents)
        return self._add(node, *parents)

    def store(self, name: str, make: Callable[[], Store], windows: str = "") -> str:
        """Declare a store; its name is part of the application's state. `windows` says which windows its rows are for:
        with others, the rows are of no use.
        """
        if checked_name("a store", name) in self._stores or name == CLOCKS:
            raise TopologyError(f"the store name {name!r} is used twice")
        self._stores[name] = make
        self._windows[name] = windows
        return name

    def before(self, node: Node) -> list[Node]:
        """The nodes from which a node gets its records: before a repartition, those that write it."""
        if node.source is None or not node.source.is_repartition:
            return node.parents
        return [one for one in self.nodes if one.sink is not None and one.sink.topic == node.source.topic]

    def behind(self, node: Node) -> list[Node]:
        """The nodes that get a node's records: behind a repartition, those that read it."""
        if node.sink is None or not node.sink.is_repartition:
            return node.children
        return [one for one in self.nodes if one.source is not None and one.source.topic == node.sink.topic]

    def has_store(self, name: str) -> bool:
        """Whether the application has a store with this name."""
        return name in self._stores

    def shape_of(self, store: str) -> str:
        """What the rows of a store are: its kind, formats and windows. State of another shape cannot be read."""
        shape, windows = self._stores[store]().shape(), self._windows[store]
        return f"{shape}, {windows}" if windows else shape

    def layout_of(self, store: str) -> str:
        """The structure of the values of a store's rows, if the store's shape does not contain it."""
        return self._stores[store]().layout()

    def known_store(self, name: str) -> str:
        """Returns the name if the store exists, and raises an error otherwise."""
        if name not in self._stores:
            raise TopologyError(f"there is no store {name!r}; there are {', '.join(self._stores) or 'none'}")
        return name

    def made_stores(self, part: SubTopology) -> dict[str, Store]:
        """New, empty stores of a sub-topology."""
        made: dict[str, Store] = {name: self._stores[name]() for name in part.stores}
        return made | {CLOCKS: Clocks(CLOCKS)}

    def automatic_name(self, kind: str, former: str | None = None) -> str:
        """A name for a store or a repartition that the application did not name: it counts those of the same kind.

        `former` is what earlier releases called it: by the number of nodes before it, unless given.
        """
        number = 1 + sum(name.rpartition("-")[0] == kind for name in self.automatic)
        name = f"{kind}-{number}"
        self.automatic[name] = former or self._name(kind)
        return name

    def automatic_part(self, store: str) -> str | None:
        """The automatic name from which the name of a store is made; None for a store that the application named."""
        bases = [base for base in self.automatic if store == base or store.startswith(f"{base}-")]
        return max(bases, key=len, default=None)

    @contextmanager
    def with_node(self, node: Node, parent: Node) -> Iterator[None]:
        """Another node behind a node, in this block."""
        self._add(node, parent)
        try:
            yield
        finally:
            parent.children.remove(node)
            self.nodes.remove(node)

    def _name(self, kind: str) -> str:
        """A name that depends only on the position in the graph."""
        return f"{kind}-{len(self.nodes) - self._hidden}"

    def _add(self, node: Node, *parents: Node) -> Node:
        node.line = _line_of_caller()
        self.nodes.append(node)
        for parent in parents:
            parent.children.append(node)
            node.parents.append(parent)
        return node

    def check_own(self, *nodes: Node) -> None:
        """Raise `TopologyError` if a node belongs to another App."""
        for one in nodes:
            if one not in self.nodes:
                raise TopologyError(
                    f"{one.where} belongs to another App; Streams and Tables of one App go together"
                )

    def feeds(self, node: Node, other: Node) -> bool:
        """Whether the sub-topology of another node reads, also through others, a repartition that a node's writes."""
        self.check_own(node, other)
        groups = _groups(self.nodes)
        start, end = (next(group for group in groups if one in group) for one in (node, other))
        if start is end:
            return False
        written, waiting, seen = _written_by(groups), [end], list[int]()
        while waiting:
            group = waiting.pop()
            if group is start:
                return True
            if id(group) not in seen:
                seen.append(id(group))
                waiting += [written[topic] for topic in _repartitions_of(group)]
        return False

    def parts(self) -> list[SubTopology]:
        """The sub-topologies, each after those that it reads a repartition of."""
        groups = _groups(self.nodes)
        written = _written_by(groups)
        ordered: list[list[Node]] = []

        def place(group: list[Node], below: tuple[list[Node], ...]) -> None:
            if group in ordered:
                return
            if any(one is group for one in below):
                raise TopologyError(_own_repartition(below))
            for topic in _repartitions_of(group):
                place(written[topic], (*below, group))
            ordered.append(group)

        for group in groups:
            place(group, ())
        return [SubTopology(number, nodes) for number, nodes in enumerate(ordered)]

    def topics(self) -> list[str]:
        """The topics that the application reads, without those of repartitions, in order of their names. A pattern is
        between slashes, which no topic's name has.
        """
        return sorted({one.topic for one in self._inputs()})

    def subscription(self) -> tuple[str, str]:
        """The option of a source that names all topics, and its value; empty without topics."""
        inputs = self._inputs()
        if any(one.pattern is not None for one in inputs):
            given = dict.fromkeys(one.pattern or re.escape(one.topic) for one in inputs)
            return "subscribePattern", f"^(?:{'|'.join(f'(?:{one})' for one in given)})$"
        return "subscribe", ",".join(self.topics())

    def reads(self, topic: str) -> bool:
        """Whether the application reads this topic."""
        return any(one.reads(topic) for one in self._inputs())

    def _inputs(self) -> list[TopicFormats]:
        sources = [node.source for node in self.nodes if node.source is not None]
        return [one for one in sources if not (one.is_repartition or one.is_frame)]

    def frames(self) -> list[str]:
        """The names of the DataFrames that the application reads."""
        return [node.source.topic for node in self.nodes if node.source is not None and node.source.is_frame]

    def has_frame_of_results(self) -> bool:
        """Whether a query of the caller reads a stream of the application as a DataFrame."""
        return any(node.sink is not None and node.sink.is_frame for node in self.nodes)

    def describe(self) -> str:
        """The sub-topologies with their topics, operators and stores, as text."""
        return self._described(lambda name: name)

    def former_description(self) -> str:
        """`describe`, with the names that earlier releases gave to what the application does not name."""
        return self._described(self.former_name)

    def former_name(self, name: str) -> str:
        """What earlier releases called a store or a topic."""
        for base in sorted(self.automatic, key=len, reverse=True):
            before, found, behind = name.rpartition(base)
            if found and before[-1:] in ("", "-") and behind[:1] in ("", "-"):
                return before + self.automatic[base] + behind
        return name

    def _described(self, named: Callable[[str], str]) -> str:
        return "\n".join(line for part in self.parts() for line in _described(part, named))

    def late_letters(self) -> set[str]:
        """The topics of late records."""
        return {node.on_late.topic for node in self.nodes if isinstance(node.on_late, DeadLetters)}

    def dot(self) -> str:
        """The sub-topologies in the language of Graphviz."""
        lines = ["digraph {", "  rankdir=LR; node [shape=box];"]
        names: set[tuple[str, str]] = set()
        for part in self.parts():
            lines += [f"  subgraph cluster_{part.number} {{", f'    label="sub-topology {part.number}";']
            lines += [f"    {line}" for line in _drawn(part)]
            lines.append("  }")
            names |= {
                (_drawn_as(where), where.topic) for node in part.nodes if (where := node.source or node.sink)
            }
        lines += [f"  {drawn} [label={_quoted(name)}, shape=ellipse];" for drawn, name in sorted(names)]
        return "\n".join([*lines, "}"])


def _check_topic(formats: TopicFormats) -> None:
    if not (formats.pattern or formats.topic_of or formats.is_frame or formats.is_repartition):
        checked_name("a topic", formats.topic)


def _check_again(formats: TopicFormats, earlier: TopicFormats) -> None:
    """Raise an error if a topic that is read already cannot be read again in this way."""
    if formats.pattern is not None or not all(one.reads(one.topic) for one in (formats, earlier)):
        raise TopologyError(f"{formats.title} is read twice; use one Stream or Table for all of it")
    if formats.start != earlier.start:
        raise TopologyError(
            f"{formats.title} is read from {formats.start!r} and from {earlier.start!r}; all Streams and Tables of a "
            "topic have the same start"
        )


_OWN_FILES = str(Path(__file__).parent)


def _line_of_caller() -> str:
    """The line of the program that is not ours."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_FILES):
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _drawn(part: SubTopology) -> Iterator[str]:
    # A global table is drawn in each part that has it.
    ids = {id(node): f"{part.number} {node.name}" for node in part.nodes}
    stores = {name: f"{part.number} store {name}" for name in part.stores}
    for node in part.nodes:
        if node.is_hidden:
            continue
        own = _quoted(ids[id(node)])
        yield f"{own} [label={_quoted(node.name)}];"
        if node.source is not None:
            yield f"{_drawn_as(node.source)} -> {own};"
        if node.sink is not None:
            yield f"{own} -> {_drawn_as(node.sink)};"
        yield from (f"{own} -> {_quoted(ids[id(child)])};" for child in _described_nodes(node.children))
        yield from (f"{own} -> {_quoted(stores[name])} [dir=none, style=dotted];" for name in node.stores)
    for name, store in stores.items():
        yield f"{_quoted(store)} [label={_quoted(name)}, shape=cylinder];"


def _drawn_as(where: TopicFormats) -> str:
    return _quoted(f"DataFrame {where.topic}" if where.is_frame else where.topic)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _groups(nodes: Sequence[Node]) -> list[list[Node]]:
    """The nodes of each sub-topology. A global table does not connect those that use it: each has its nodes."""
    tables = _connected([node for node in nodes if node.is_global], frozenset())
    stores = [frozenset(name for node in table for name in node.stores) for table in tables]
    groups = _connected([node for node in nodes if not node.is_global], frozenset().union(*stores))
    used = set()
    for group in groups:
        names = {name for node in group for name in node.stores}
        for number, table in enumerate(tables):
            if not names.isdisjoint(stores[number]):
                used.add(number)
                group += table
    groups += [table for number, table in enumerate(tables) if number not in used]
    return [sorted(group, key=nodes.index) for group in groups]


def _written_by(groups: Sequence[list[Node]]) -> dict[str, list[Node]]:
    """The group that writes each repartition."""
    return {
        node.sink.topic: group
        for group in groups
        for node in group
        if node.sink is not None and node.sink.is_repartition
    }


def _repartitions_of(group: Sequence[Node]) -> list[str]:
    """The repartitions that a group reads."""
    return [node.source.topic for node in group if node.source is not None and node.source.is_repartition]


def _own_repartition(groups: Sequence[Sequence[Node]]) -> str:
    """Why the groups cannot be run one after the other: each reads a repartition of the next one, or of itself."""
    stores = sorted({name for group in groups for node in group for name in node.stores})
    users = {
        name: [node.name for group in groups for node in group if name in node.stores] for name in stores
    }
    shared = [f"{name!r} ({', '.join(nodes)})" for name, nodes in users.items() if len(nodes) > 1]
    used = f" These stores are used by several of its operators: {'; '.join(shared)}." if shared else ""
    return (
        "a sub-topology reads its own repartition, because an operator uses a store, or records, from before the "
        f"repartition and from behind it.{used} Write the table of one of them to a topic with to(...), and read the "
        "topic with app.table(...)"
    )


class Described(Protocol):
    """An object with a name and a topology: an App."""

    @property
    def name(self) -> str:
        """The application's name."""

    @property
    def topology(self) -> Topology:
        """Its graph."""


def _connected(nodes: Iterable[Node], apart: frozenset[str]) -> list[list[Node]]:
    groups: list[list[Node]] = []
    for node in nodes:
        touched = [group for group in groups if any(_together(node, other, apart) for other in group)]
        merged = [one for group in touched for one in group]
        groups = [group for group in groups if group not in touched]
        groups.append([*merged, node])
    return groups


def _together(node: Node, other: Node, apart: frozenset[str]) -> bool:
    shared = set(node.stores) & set(other.stores) - apart
    return other in node.parents or other in node.children or bool(shared)


def _described(part: SubTopology, named: Callable[[str], str]) -> Iterator[str]:
    yield f"Sub-topology {part.number}"
    for node in part.nodes:
        if node.is_hidden:
            continue
        where = node.source or node.sink
        topic = f" ({where.kind} {_named_topic(where, named)})" if where else ""
        stores = f" [stores {', '.join(map(named, node.stores))}]" if node.stores else ""
        children = _described_nodes(node.children)
        then = f" -> {', '.join(child.name for child in children)}" if children else ""
        yield f"  {node.name}{topic}{stores}{then}"


def _named_topic(where: TopicFormats, named: Callable[[str], str]) -> str:
    return named(where.topic) if where.is_repartition else where.topic
