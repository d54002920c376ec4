"""Streams and tables that are grouped by key, and their aggregations.

The classes are generic in the type of the result, `Table`, because the module of `Table` imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from felice.pipelines.streams.aggregations import (
    COUNT,
    Functions,
    Input,
    InSessions,
    InSlidingWindows,
    InTimeWindows,
    Kind,
    Merger,
    OfAll,
    counted,
    first_or,
    reducing,
    uncounted,
)
from felice.pipelines.streams.apart import records_behind
from felice.pipelines.streams.formats import JSON, Format, change_of
from felice.pipelines.streams.joining import Joined
from felice.pipelines.streams.operators.aggregate import Aggregator, Initializer, Reducer, TableAggregate
from felice.pipelines.streams.operators.stateless import DropNullKeys, Pass, function
from felice.pipelines.streams.plan import TablePlan
from felice.pipelines.streams.record import AnyOperator
from felice.pipelines.streams.scope import Scope, check_same_keys
from felice.pipelines.streams.stores import KeyValueStore
from felice.pipelines.streams.telling import shown
from felice.pipelines.streams.topology import DeadLetters, Node, OnLate, Stores, TopologyError
from felice.pipelines.streams.windows import CalendarWindows, SessionWindows, SlidingWindows, TimeWindows

TableT = TypeVar("TableT")
MakeTable = Callable[[TablePlan, Format, Format], TableT]
"""(plan, format of keys, format of values) -> table"""

UPDATE, FINAL = "update", "final"


class Grouping(Generic[TableT]):
    """Records by key.

    The first aggregation repartitions them if necessary; later aggregations share that repartition.
    """

    def __init__(
        self,
        scope: Scope,
        node: Node,
        key: Format,
        value: Format,
        make_table: MakeTable[TableT],
        *,
        is_rekeyed: bool,
    ) -> None:
        self.scope, self.key_format, self.value_format = scope, key, value
        self._node, self._make_table, self._is_rekeyed = node, make_table, is_rekeyed

    def made(self, plan: TablePlan, key: Format, value: Format) -> TableT:
        """A table of a plan."""
        return self._make_table(plan, key, value)

    def placed(self, name: str) -> Node:
        """The node after which all records of a key are in one task."""
        if self._is_rekeyed:
            self._node, self._is_rekeyed = self._placed(name), False
        return self._node

    def _placed(self, name: str) -> Node:
        node = self.scope.topology.operator("keyed", lambda stores: DropNullKeys(), self._node)
        return self.scope.repartition(node, name, self.key_format, self.value_format)


class Aggregable(Generic[TableT]):
    """Grouped records with a kind of aggregation, such as tumbling windows."""

    def __init__(self, grouped: Grouping[TableT], kind: Kind) -> None:
        self._grouped, self._kind = grouped, kind

    def count(self, *, name: str | None = None) -> TableT:
        """How many records there are of each key, in each window if there are windows."""
        return self._aggregated(COUNT, name, JSON)

    def reduce(self, reducer: Reducer, *, name: str | None = None) -> TableT:
        """The values combined two by two; the first is the first result."""
        return self._aggregated(reducing(reducer), name, self._grouped.value_format)

    def _aggregated(self, functions: Functions, name: str | None, value: str | Format | None) -> TableT:
        return aggregated([(self._grouped, functions)], self._kind, name, value)


class OneAggregate(Aggregable[TableT]):
    """Records whose aggregates are never merged."""

    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        name: str | None = None,
        value: str | Format | None = None,
    ) -> TableT:
        """An aggregate of each key and window: `aggregator(key, value, aggregate)` returns the next one."""
        function(initializer, "an initializer without arguments")
        function(aggregator, "an aggregator of key, value and aggregate")
        return self._aggregated(Functions(initializer, aggregator), name, value)


class GroupedStream(Grouping[TableT], OneAggregate[TableT]):
    """A stream by its keys. Records without key are not aggregated.

    Records without value are aggregated in tumbling, hopping and session windows only, as in Kafka Streams.
    """

    def __init__(
        self,
        scope: Scope,
        node: Node,
        key: Format,
        value: Format,
        make_table: MakeTable[TableT],
        *,
        is_rekeyed: bool,
    ) -> None:
        Grouping.__init__(self, scope, node, key, value, make_table, is_rekeyed=is_rekeyed)
        OneAggregate.__init__(self, self, OfAll())

    def tumbling(
        self,
        size_ms: int,
        *,
        grace_ms: int = 0,
        offset_ms: int = 0,
        on_late: OnLate = None,
        retention_ms: int = 0,
    ) -> WindowedStream[TableT]:
        """Windows of one size that follow each other. One of them begins `offset_ms` after 1970 began in UTC.

        A record whose windows are all closed is late. It is counted, and `on_late(key, value, timestamp)` is called, or
        it is sent to the topic of `on_late=DeadLetters(topic)`.
        The store keeps a window for queries until `retention_ms` after its start (of a session: after its end). By
        default it keeps a window only as long as the operator needs it.
        """
        return self.hopping(
            size_ms,
            every_ms=size_ms,
            grace_ms=grace_ms,
            offset_ms=offset_ms,
            on_late=on_late,
            retention_ms=retention_ms,
        )

    def hopping(
        self,
        size_ms: int,
        *,
        every_ms: int,
        grace_ms: int = 0,
        offset_ms: int = 0,
        on_late: OnLate = None,
        retention_ms: int = 0,
    ) -> WindowedStream[TableT]:
        """Windows of one size, a new one every `every_ms`, so that they overlap. The other arguments are those of
        `tumbling`.
        """
        windows = TimeWindows(size_ms, every_ms, grace_ms, offset_ms)
        return WindowedStream(self, InTimeWindows(windows, on_late=on_late, retention_ms=retention_ms))

    def calendar(
        self,
        unit: str,
        zone: str,
        *,
        grace_ms: int = 0,
        on_late: OnLate = None,
        retention_ms: int = 0,
    ) -> WindowedStream[TableT]:
        """Windows of a calendar: each "day", "week" (from Monday on) or "month" of a time zone, such as
        "Europe/Berlin". The other arguments are those of `tumbling`.
        """
        windows = CalendarWindows(unit, zone, grace_ms)
        return WindowedStream(self, InTimeWindows(windows, on_late=on_late, retention_ms=retention_ms))

    def sliding(
        self, difference_ms: int, *, grace_ms: int = 0, on_late: OnLate = None, retention_ms: int = 0
    ) -> WindowedStream[TableT]:
        """A window for each record: the records of its key that are at most `difference_ms` older. The other arguments
        are those of `tumbling`.
        """
        windows = SlidingWindows(difference_ms, grace_ms)
        return WindowedStream(self, InSlidingWindows(windows, on_late=on_late, retention_ms=retention_ms))

    def session(
        self, gap_ms: int, *, grace_ms: int = 0, on_late: OnLate = None, retention_ms: int = 0
    ) -> SessionedStream[TableT]:
        """Sessions: records that are at most `gap_ms` apart. The other arguments are those of `tumbling`."""
        windows = SessionWindows(gap_ms, grace_ms)
        return SessionedStream(self, InSessions(windows, on_late=on_late, retention_ms=retention_ms))


class WindowedStream(OneAggregate[TableT]):
    """A grouped stream in tumbling, hopping or sliding windows."""

    def __init__(self, grouped: Grouping[TableT], kind: InTimeWindows | InSlidingWindows) -> None:
        super().__init__(grouped, kind)
        self._windows = kind

    def emit(self, when: str) -> WindowedStream[TableT]:
        """With "update", each record gives a result at once; with "final", each window one, when it is closed."""
        return WindowedStream(self._grouped, replace(self._windows, on_close=_is_final(when)))


class SessionedStream(Aggregable[TableT]):
    """A grouped stream in sessions."""

    def __init__(self, grouped: Grouping[TableT], kind: InSessions) -> None:
        super().__init__(grouped, kind)
        self._sessions = kind

    def emit(self, when: str) -> SessionedStream[TableT]:
        """With "update", each record gives results at once; with "final", each session one, when it is closed."""
        return SessionedStream(self._grouped, replace(self._sessions, on_close=_is_final(when)))

    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: Merger,
        *,
        name: str | None = None,
        value: str | Format | None = None,
    ) -> TableT:
        """An aggregate of each session. `merger(key, one, other)` joins two sessions that a record connects."""
        return self._aggregated(Functions(initializer, aggregator, merger), name, value)


class GroupedTable(Grouping[TableT]):
    """A table's rows by another key. When a row changes, its old value is subtracted and its new value is added."""

    def count(self, *, name: str | None = None) -> TableT:
        """How many rows each group has."""
        return self.aggregate(lambda: 0, counted, uncounted, name=name, value="json")

    def reduce(self, adder: Reducer, subtractor: Reducer, *, name: str | None = None) -> TableT:
        """The values of each group, combined two by two; the first is the first result."""
        return self.aggregate(
            lambda: None,
            first_or(adder),
            lambda key, value, so_far: subtractor(so_far, value),
            name=name,
            value=self.value_format,
        )

    def aggregate(
        self,
        initializer: Initializer,
        adder: Aggregator,
        subtractor: Aggregator,
        *,
        name: str | None = None,
        value: str | Format | None = None,
    ) -> TableT:
        """An aggregate of each group. For each value, `subtractor` reverses the effect of `adder`."""
        topology, key, format_ = self.scope.topology, self.key_format, self.scope.value(value)
        store = name or topology.automatic_name("table-aggregate")

        def operator(stores: Stores) -> AnyOperator:
            return TableAggregate(stores[store], initializer, adder, subtractor, plan.sends_old)

        placed = self.placed(store)
        topology.store(store, lambda: KeyValueStore(store, key, format_))
        plan = TablePlan(topology.operator("table-aggregate", operator, placed, stores=[store]), store=store)
        return self.made(plan, key, format_)

    def _placed(self, name: str) -> Node:
        # The groups are not null: `RegroupTable` left those out.
        return self.scope.repartition(self._node, name, self.key_format, change_of(self.value_format))


def _checked_on_late(given: OnLate) -> OnLate:
    if given is not None and not callable(given) and not isinstance(given, DeadLetters):
        raise TopologyError(
            f"on_late is {shown(given)}; it must be a function of key, value and timestamp, or DeadLetters(topic)"
        )
    return given


def cogroup(
    grouped: Sequence[tuple[GroupedStream[TableT], Aggregator]],
    initializer: Initializer,
    *,
    windows: TimeWindows | CalendarWindows | SlidingWindows | SessionWindows | None = None,
    merger: Merger | None = None,
    on_late: OnLate = None,
    name: str | None = None,
    value: str | Format | None = None,
) -> TableT:
    """One aggregate of each key over several grouped streams, each with an aggregator of its own.

    With `windows` there is one aggregate for each key and window. Sessions need `merger(key, one, other)`, which joins
    the aggregates of two sessions. `on_late` is as for `GroupedStream.tumbling`.
    """
    if not grouped:
        raise TopologyError("cogroup: there is no grouped stream in the list")
    if isinstance(windows, SessionWindows) != (merger is not None):
        raise TopologyError("cogroup: session windows need a merger, and no other windows have one")
    inputs = [(stream, Functions(initializer, aggregator, merger)) for stream, aggregator in grouped]
    return aggregated(inputs, _kind_of(windows, on_late), name, value)


def aggregated(
    inputs: Sequence[tuple[Grouping[TableT], Functions]],
    kind: Kind,
    name: str | None,
    value: str | Format | None,
) -> TableT:
    """The table of an aggregation of one or several inputs."""
    first, _ = inputs[0]
    topology, key, format_ = first.scope.topology, first.key_format, first.scope.value(value)
    several = len(inputs) > 1
    for other, _ in inputs[1:]:
        check_same_keys("cogroup", key, other.key_format)
    store = name or topology.automatic_name("cogroup" if several else kind.label)
    labels = [f"{store}-{number}" for number in range(len(inputs))] if several else [store]
    placed = [one.placed(label) for (one, _), label in zip(inputs, labels, strict=True)]
    if several:
        # One input after the other: an input that is moved behind a repartition no longer feeds the other inputs.
        for number, (one, _) in enumerate(inputs):
            others = placed[:number] + placed[number + 1 :]
            records = Joined(placed[number], key, one.value_format)
            placed[number] = records_behind(first.scope, records, others)
    kind.store(store, key, format_)  # Raises an error here for a retention that is too short.
    topology.store(store, lambda: kind.store(store, key, format_), kind.about)

    def making(clock: str, functions: Functions) -> Callable[[Stores], AnyOperator]:
        return lambda stores: kind.operator(Input(clock, store, stores, plan.sends_old), functions)

    nodes = [
        topology.operator("cogroup" if several else kind.label, making(label, functions), at, stores=[store])
        for at, label, (_, functions) in zip(placed, labels, inputs, strict=True)
    ]
    for made in nodes:
        made.on_late = _checked_on_late(kind.on_late)
    node = topology.operator("cogrouped", lambda stores: Pass(), *nodes) if several else nodes[0]
    plan = TablePlan(node, store=store, closes_after_ms=kind.closes_after_ms)
    return first.made(plan, kind.keys(key), format_)


def _kind_of(
    windows: TimeWindows | CalendarWindows | SlidingWindows | SessionWindows | None, on_late: OnLate
) -> Kind:
    match windows:
        case None:
            return OfAll()
        case TimeWindows() | CalendarWindows():
            return InTimeWindows(windows, on_late=on_late)
        case SlidingWindows():
            return InSlidingWindows(windows, on_late=on_late)
    return InSessions(windows, on_late=on_late)


def _is_final(when: str) -> bool:
    if when not in (UPDATE, FINAL):
        raise ValueError(f"emit is {when!r}; it is {UPDATE!r} or {FINAL!r}")
    return when == FINAL
