"""What a new version of a program does with the state of the version before.

Keeps true: a store keeps its rows if the new version has it with the same formats and windows (`matching`). If the
            rows of a table are dropped, the rows that other stores computed from them are dropped, too: they would
            count twice.
            The new state is complete and durable before the description names it; what it no longer names is removed
            after that. So after a crash there is one complete state, and it belongs to the described version.
How:        A sub-topology with the same stores keeps its files as they are. The files of other sub-topologies are
            written to new directories, with the number of the last finished batch. A table's new store is filled from
            its topic, up to where the application has read it (`filling`). Other new stores are empty.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Protocol

from felice.dataclass import dataclass
from felice.pipelines.streams.lineage import Lineages, kind_of, owners_of
from felice.pipelines.streams.on_spark.checkpoint_copy import describe
from felice.pipelines.streams.on_spark.directory import (
    FORMAT,
    Checkpoint,
    CheckpointError,
    Description,
    PartDescription,
    StoreDescription,
)
from felice.pipelines.streams.on_spark.matching import Matched, match
from felice.pipelines.streams.on_spark.places import place_at
from felice.pipelines.streams.on_spark.state import NOTHING, files_of_task
from felice.pipelines.streams.stores import TASK_TIME, Clocks, Store
from felice.pipelines.streams.topology import (
    CLOCKS,
    EARLIEST,
    Described,
    Node,
    SubTopology,
    TopicFormats,
    Topology,
    reached,
)

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
KEPT, NEW, DROPPED = "kept", "new", "dropped"
FillTable = Callable[[Topology, str, TopicFormats, int], list[Store]]
"""(topology, store, topic, number of partitions) -> the table's store in each partition, with the rows of its topic"""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user says about stores that are not certain: `keep` has names of earlier stores with those of this
    version, `drop` earlier stores whose rows are not wanted.
    """

    keep: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()


NO_CHOICES = Choices()


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a store."""

    store: str
    what: str
    """KEPT, NEW or DROPPED."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the state, not yet made."""

    before: Description
    after: Description
    fates: tuple[Fate, ...]
    matched: Matched = field(default_factory=dict)
    rewritten: frozenset[int] = frozenset()
    """The sub-topologies whose files are written to new directories."""
    filled: Mapping[str, TopicFormats] = field(default_factory=dict)
    """New stores of tables, with their topics."""
    added: Mapping[str, str] = field(default_factory=dict)
    """New topics, and where they begin."""
    removed: tuple[str, ...] = ()
    """Topics."""

    @property
    def is_needed(self) -> bool:
        """Whether the state has other stores, or its files lie elsewhere."""
        return _places_of(self.before) != _places_of(self.after)

    @property
    def is_seen(self) -> bool:
        """Whether a user would want to know of it."""
        return any(one.what != KEPT or one.why for one in self.fates) or bool(self.added or self.removed)

    def lines(self) -> list[str]:
        """The change, for people: a line for each store and each topic that comes or goes."""
        rows = [(one.what, f"store {one.store}", one.why) for one in self.fates]
        rows += [(NEW, f"topic {topic}", start) for topic, start in self.added.items()]
        rows += [(DROPPED, f"topic {topic}", "no longer read") for topic in self.removed]
        width = max(len(name) for _, name, _ in rows)
        return [f"  {what:7}  {name:{width}}  {why}".rstrip() for what, name, why in rows]


def _places_of(description: Description) -> list[tuple[int, str, list[tuple[str, str]]]]:
    return [
        (part.number, part.directory, [(one.name, one.shape) for one in part.stores])
        for part in description.parts or ()
    ]


class Known(Protocol):
    """What is known of the state of an application: its `Checkpoint`."""

    @property
    def path(self) -> Path:
        """Where it is, for messages."""

    def description(self) -> Description | None:
        """The application; None if there is no state yet."""

    def last_batches(self) -> tuple[int, int]:
        """The last batch that is planned, and the last that is done; -1 if there is none."""


def other_stores(known: Known) -> CheckpointError:
    """The refusal of a version with other stores, where the state cannot be changed."""
    return CheckpointError(
        f"the state in {known.path} belongs to another version of this application, with other stores; run "
        "that version, or use another checkpoint"
    )


MakeChange = Callable[[Described, Checkpoint, Change], Description]
"""`make`, with the function that fills tables."""


def layout_of(topology: Topology) -> tuple[PartDescription, ...]:
    """The sub-topologies with state, each with a directory that has its number."""
    lineages = Lineages(topology)

    def described(store: str) -> StoreDescription:
        lineage = lineages.of(store)
        base = topology.automatic_part(store)
        role = "" if base is None else store.removeprefix(base)
        return StoreDescription(
            store,
            topology.shape_of(store),
            base is None,
            f"{lineage.exact}{role}",
            f"{lineage.loose}{role}",
            topology.layout_of(store),
        )

    return tuple(
        PartDescription(part.number, str(part.number), tuple(map(described, part.stores)))
        for part in topology.parts()
        if part.is_placed
    )


def of_program(topology: Topology) -> dict[str, Any]:
    """What a description says of a version of the program."""
    return {
        "topology": topology.describe(),
        "parts": layout_of(topology),
        "topics": tuple(topology.topics()),
        "frames": tuple(topology.frames()),
        "python": PYTHON,
    }


def planned(app: Described, checkpoint: Known, choices: Choices = NO_CHOICES) -> Change | None:
    """The change that this version of the program needs; None for a new checkpoint.

    Raises `CheckpointError` if the checkpoint belongs to another application, or if the change would be wrong.
    """
    before = checkpoint.description()
    if before is None:
        return None
    if before.application != app.name:
        raise CheckpointError(
            f"the state in {checkpoint.path} belongs to the application {before.application!r}; use another "
            "checkpoint, or remove this one"
        )
    topology = app.topology
    after = replace(before, **of_program(topology), format=FORMAT)
    if before.parts is None:
        before = _of_earlier_release(topology, checkpoint, before, after)
        choices = Choices(dict(zip(_names(before), _names(after), strict=True)))
    elif before.python != PYTHON and _without_functions(before) == _without_functions(after):
        choices = Choices({name: name for name in _names(after)})
    _check_inputs(checkpoint, before, after)
    matched = match(_stores(before), _stores(after), choices.keep, choices.drop)
    added = _starts_of(topology, sorted(set(after.topics) - set(before.topics)))
    whys = _reasons_for_new(topology, before, after, matched, added)
    for name in list(matched):
        if name in whys:
            del matched[name]
    if checkpoint.last_batches()[1] != NOTHING:
        _check_copies(topology, whys)
    after = replace(after, parts=tuple(_placed(before, after, matched)))
    directories = {one.directory for one in before.parts or ()}
    return Change(
        before,
        after,
        tuple(_fates(before, after, matched, whys)),
        matched,
        frozenset(one.number for one in after.parts or () if one.directory not in directories),
        {name: topic for name in whys if (topic := _topic_of(topology, name, added)) is not None},
        added,
        tuple(sorted(set(before.topics) - set(after.topics))),
    )


def check_partitions(found: Description, checkpoint: Checkpoint, partitions: int | None) -> None:
    """Raise `CheckpointError` if `partitions` is given and differs from that of the checkpoint."""
    if partitions is None or partitions == found.partitions:
        return
    if found.is_frame:
        raise CheckpointError(f"{checkpoint.path} has {found.partitions} partitions, and keeps them")
    raise CheckpointError(
        f"{found.application} has {found.partitions} partitions; to change that, stop it and use: "
        f"felice streams rescale FILE --partitions {partitions}"
    )


def make(app: Described, checkpoint: Checkpoint, change: Change, fill: FillTable) -> Description:
    """Make the change. The caller holds the lock."""
    done = checkpoint.last_batches()[1]
    if change.rewritten and done != NOTHING:
        filled = {
            name: fill(app.topology, name, topic, change.before.partitions)
            for name, topic in change.filled.items()
        }
        for part in app.topology.parts():
            if part.number in change.rewritten:
                _write_part(app.topology, part, checkpoint, change, done, filled)
    describe(checkpoint, change.after)
    _remove_unnamed(checkpoint, change.after)
    return change.after


def _of_earlier_release(
    topology: Topology, checkpoint: Known, before: Description, after: Description
) -> Description:
    """A description of an earlier release, with the stores that it does not name."""
    if before.topology not in (topology.describe(), topology.former_description()):
        raise CheckpointError(
            f"the state in {checkpoint.path} was written by an earlier release of Felice, and belongs to another "
            "version of the program: run that version once with this release, or use another checkpoint"
        )
    named = topology.former_name if before.topology == topology.former_description() else str
    parts = tuple(
        replace(part, stores=tuple(replace(one, name=named(one.name)) for one in part.stores))
        for part in after.parts or ()
    )
    return replace(before, parts=parts, topics=after.topics, frames=after.frames)


def _stores(description: Description) -> list[StoreDescription]:
    """The stores, each once."""
    return list({one.name: one for part in description.parts or () for one in part.stores}.values())


def _names(description: Description) -> list[str]:
    return [one.name for one in _stores(description)]


def _without_functions(description: Description) -> list[tuple[str, ...]]:
    return [(one.name, one.shape, one.loose, one.layout) for one in _stores(description)]


def _check_inputs(checkpoint: Known, before: Description, after: Description) -> None:
    if before.frames != after.frames or bool(before.topics) != bool(after.topics):
        raise CheckpointError(
            f"the state in {checkpoint.path} belongs to a version of the program that reads "
            f"{_inputs(before)}, and this one reads {_inputs(after)}: Spark cannot continue with other DataFrames; use "
            "another checkpoint"
        )


def _inputs(description: Description) -> str:
    frames = f"the DataFrames {', '.join(description.frames)}" if description.frames else "no DataFrame"
    return f"{'topics' if description.topics else 'no topic'} and {frames}"


def _reasons_for_new(
    topology: Topology, before: Description, after: Description, matched: Matched, added: Mapping[str, str]
) -> dict[str, str]:
    """Why stores of the new version do not keep rows, and how they begin."""
    old = {one.name: one for one in _stores(before)}
    whys: dict[str, str] = {}
    for one in _stores(after):
        if one.name in matched:
            continue
        earlier = old.get(one.name) if one.name not in matched.values() else None
        why = "" if earlier is None else _changed(earlier, one)
        whys[one.name] = why + _beginning(topology, one.name, added)
    for name in list(whys):
        # The rows of a table of a topic are the same in its new store, unless they are read in another way now.
        if _topic_of(topology, name, added) is None or name in old:
            for behind in _computed_from(topology, name):
                whys.setdefault(
                    behind, f"begins empty, because it is computed from {name}, whose rows are dropped"
                )
    return whys


def _changed(earlier: StoreDescription, later: StoreDescription) -> str:
    if earlier.fits(later):
        return ""
    if earlier.shape != later.shape:
        return f"changed from {earlier.shape} to {later.shape}; "
    return f"changed from {earlier.layout} to {later.layout}; "


def _beginning(topology: Topology, store: str, added: Mapping[str, str]) -> str:
    if (topic := _topic_of(topology, store, added)) is not None:
        return f"filled from topic {topic.topic}"
    topics = _topics_before(owners_of(topology, store), topology)
    if topics and topics <= added.keys():
        return "begins with its topics"
    if any(kind_of(node) in _OF_TABLES for node in owners_of(topology, store)):
        return "begins empty: rows that are there already are counted only when they change"
    return "begins empty, with the records from now on"


_OF_TABLES = ("table-aggregate", "joined-table", "table-map", "table-filter")


def _starts_of(topology: Topology, topics: Iterable[str]) -> dict[str, str]:
    sources = {node.source.topic: node.source for node in topology.nodes if node.source is not None}
    return {
        topic: "read from its beginning"
        if sources[topic].start == EARLIEST
        else f"read from {sources[topic].start} on"
        for topic in topics
    }


def _topic_of(topology: Topology, store: str, added: Mapping[str, str]) -> TopicFormats | None:
    """The topic whose rows a table's store has, if the application has read it before."""
    for node in owners_of(topology, store):
        if kind_of(node) in ("table", "global-table") and len(node.parents) == 1:
            source = node.parents[0].source
            if source is not None and not (source.is_repartition or source.is_frame or source.topic in added):
                return source
    return None


def _topics_before(nodes: Iterable[Node], topology: Topology) -> set[str]:
    sources = [node.source for node in reached(nodes, topology.before) if node.source is not None]
    return {source.topic for source in sources if not source.is_repartition}


def _computed_from(topology: Topology, store: str) -> list[str]:
    """The stores that are computed from the changes of a table. Those behind `to_stream()` are left out."""

    def of_table(nodes: Iterable[Node]) -> list[Node]:
        return [node for node in nodes if not _ends_table(node)]

    first = [child for node in owners_of(topology, store) for child in node.children]
    nodes = reached(of_table(first), lambda node: of_table(topology.behind(node)))
    return [name for node in nodes for name in node.stores if node in owners_of(topology, name)]


def _ends_table(node: Node) -> bool:
    """Whether a node makes events of the changes of a table. A copy of the table is a table again."""
    copies = [one.sink for one in node.children if one.sink is not None and one.sink.is_repartition]
    return kind_of(node) in ("to-stream", "edges") and not any(one.is_table or one.is_copy for one in copies)


def _check_copies(topology: Topology, whys: Mapping[str, str]) -> None:
    for name in whys:
        base = topology.automatic_part(name) or ""
        if base.startswith("copy-"):
            raise CheckpointError(
                f"this version needs a copy of a table ({name}) that the state does not have, and without its rows "
                "results would be wrong: reset the application, or use another checkpoint"
            )


def _placed(before: Description, after: Description, matched: Matched) -> Iterator[PartDescription]:
    """The sub-topologies, each with the directory that it has already, or with a new one."""
    free = list(before.parts or ())
    taken = {one.directory for one in free}
    for part in after.parts or ():
        wanted = sorted((one.name, matched.get(one.name)) for one in part.stores)
        same = [
            one
            for one in free
            if [(name, name) for name in sorted(store.name for store in one.stores)] == wanted
        ]
        if same:
            free.remove(same[0])
            yield replace(part, directory=same[0].directory)
        else:
            yield replace(part, directory=_unused(part.number, taken))


def _unused(number: int, taken: set[str]) -> str:
    generation, name = 0, str(number)
    while name in taken:
        generation += 1
        name = f"{number}-{generation}"
    taken.add(name)
    return name


def _fates(
    before: Description, after: Description, matched: Matched, whys: Mapping[str, str]
) -> Iterator[Fate]:
    for one in _stores(after):
        if one.name in whys:
            yield Fate(one.name, NEW, whys[one.name])
        else:
            earlier = matched[one.name]
            yield Fate(one.name, KEPT, "" if earlier == one.name else f"was {earlier}")
    kept, now = set(matched.values()), {one.name for one in _stores(after)}
    for one in _stores(before):
        if one.name not in kept:
            why = (
                "its formats, windows or input have changed"
                if one.name in now
                else "this version has no such store"
            )
            yield Fate(one.name, DROPPED, why)


def _write_part(
    topology: Topology,
    part: SubTopology,
    checkpoint: Checkpoint,
    change: Change,
    done: int,
    filled: Mapping[str, list[Store]],
) -> None:
    moves = {change.matched[name]: name for name in part.stores if name in change.matched}
    for place in range(change.after.partitions):
        stores = topology.made_stores(part)
        for name in part.stores:
            if name in filled:
                stores[name].load(filled[name][place].rows.items())
        taken: set[str] = set()
        for earlier in change.before.parts or ():
            here = {old: stores[new] for old, new in moves.items() if old not in taken and _has(earlier, old)}
            if here:
                _take(checkpoint, change, (earlier, place), done, here, stores[CLOCKS], moves)
                taken |= here.keys()
        assert taken == moves.keys(), "each kept store is in a sub-topology of the version before"
        files = files_of_task(checkpoint, change.after, part.number, place)
        files.remove_all()  # What an attempt before this one left.
        files.write_first(done, stores)


def _has(part: PartDescription, store: str) -> bool:
    return any(one.name == store for one in part.stores)


def _take(
    checkpoint: Checkpoint,
    change: Change,
    source: tuple[PartDescription, int],
    done: int,
    here: Mapping[str, Store],
    clocks: Store,
    moves: Mapping[str, str],
) -> None:
    """Load the rows of a task of the version before into stores of this one."""
    part, place = source
    found: dict[str, Store] = {one.name: Store(one.name) for one in part.stores} | {CLOCKS: Clocks(CLOCKS)}
    found |= here
    files_of_task(checkpoint, change.before, part.number, place).load(done, found)
    for name, time in found[CLOCKS].rows.items():
        if name == TASK_TIME:
            clocks.load([(name, min(time, clocks.rows.get(name, time)))])
        elif (moved := _moved_clock(name, moves)) is not None:
            clocks.load([(moved, time)])


_CLOCK = re.compile(r"(?P<head>.*?)(?P<what> newest| closed| oldest| True| False)?")


def _moved_clock(name: str, moves: Mapping[str, str]) -> str | None:
    """The name of a clock in this version; None if its operator is gone. Clocks have the names of stores, of inputs of
    a cogroup (a store and a number), or of joins (a part of their stores' names).
    """
    found = _CLOCK.fullmatch(name)
    assert found is not None
    head, what = found["head"], found["what"] or ""
    if head in moves:
        return moves[head] + what
    for old, new in moves.items():
        number = head.removeprefix(f"{old}-")
        if number != head and number.isdigit():
            return f"{new}-{number}{what}"
        role = old.removeprefix(f"{head}-")
        if role != old and new.endswith(f"-{role}"):
            return new.removesuffix(f"-{role}") + what
    return None


def _remove_unnamed(checkpoint: Checkpoint, description: Description) -> None:
    """Remove the files that the description no longer names."""
    state = place_at(checkpoint.state_location(description))
    named = {part.directory for part in description.parts or ()}
    for name in state.children():
        if name not in named:
            state.child(name).remove_all()
