"""Streams and tables that are grouped by key: what can be aggregated.

Generic in the type of the result, `Table`: its module imports this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from felice.pipelines.streams.formats import Format, change_of, session_windowed, time_windowed
from felice.pipelines.streams.operators.aggregate import (
    Aggregator,
    Initializer,
    Reducer,
    StreamAggregate,
    StreamReduce,
    TableAggregate,
    TableReduce,
)
from felice.pipelines.streams.operators.sliding import SlidingAggregate
from felice.pipelines.streams.operators.stateless import DropNullKeys, Pass
from felice.pipelines.streams.operators.windowed import SessionAggregate, WindowAggregate
from felice.pipelines.streams.plan import TablePlan
from felice.pipelines.streams.record import Operator
from felice.pipelines.streams.scope import Scope, check_same_keys
from felice.pipelines.streams.stores import KeyValueStore, SessionStore, SlidingStore, Store, WindowStore
from felice.pipelines.streams.topology import CLOCKS, Node, Stores
from felice.pipelines.streams.windows import SessionWindows, SlidingWindows, TimeWindows

TableT = TypeVar("TableT")
MakeTable = Callable[[TablePlan, Format, Format], TableT]
"""(plan, format of keys, format of values) -> table"""
MakeOperator = Callable[[Stores, str, TablePlan], Operator]
"""(stores, the table's store, plan) -> operator"""

UPDATE, FINAL = "update", "final"


def counted(key: Any, value: Any, count: int) -> int:
    """Adds one."""
    return count + 1


def uncounted(key: Any, value: Any, count: int) -> int:
    """Subtracts one."""
    return count - 1


class Grouping(Generic[TableT]):
    """Records by key. They are placed by their keys when the first aggregation needs it, and once for all of them."""

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

    def table(
        self,
        kind: str,
        name: str | None,
        value: Format,
        make_store: Callable[[str], Store],
        make_operator: MakeOperator,
        *,
        key: Format | None = None,
        closes_after_ms: int | None = None,
    ) -> TableT:
        """The table of an aggregation, with its store."""
        topology = self.scope.topology
        store = name or topology.next_name(kind)
        placed = self.placed(store)
        topology.store(store, lambda: make_store(store))
        node = topology.operator(
            kind, lambda stores: make_operator(stores, store, plan), placed, stores=[store]
        )
        plan = TablePlan(node, store=store, closes_after_ms=closes_after_ms)
        return self._make_table(plan, key or self.key_format, value)

    def made(self, plan: TablePlan, key: Format, value: Format) -> TableT:
        """A table of a plan."""
        return self._make_table(plan, key, value)

    def by_key(self, kind: str, name: str | None, value: Format, make_operator: MakeOperator) -> TableT:
        """The table of an aggregation without windows."""
        key = self.key_format
        return self.table(kind, name, value, lambda store: KeyValueStore(store, key, value), make_operator)

    def placed(self, name: str) -> Node:
        """The node after which all records of a key are in one task."""
        if self._is_rekeyed:
            self._node, self._is_rekeyed = self._placed(name), False
        return self._node

    def _placed(self, name: str) -> Node:
        node = self.scope.topology.operator("keyed", lambda stores: DropNullKeys(), self._node)
        return self.scope.repartition(node, name, self.key_format, self.value_format)


class GroupedStream(Grouping[TableT]):
    """A stream by its keys. Records without key or value are not aggregated."""

    def count(self, *, name: str | None = None) -> TableT:
        """How many records each key has."""
        return self.aggregate(lambda: 0, counted, name=name, value="json")

    def reduce(self, reducer: Reducer, *, name: str | None = None) -> TableT:
        """The values of each key, combined two by two; the first is the first result."""

        def operator(stores: Stores, store: str, plan: TablePlan) -> Operator:
            return StreamReduce(stores[store], reducer, plan.sends_old)

        return self.by_key("reduce", name, self.value_format, operator)

    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        name: str | None = None,
        value: str | Format | None = None,
    ) -> TableT:
        """An aggregate of each key: `aggregator(key, value, aggregate)` returns the next one."""

        def operator(stores: Stores, store: str, plan: TablePlan) -> Operator:
            return StreamAggregate(stores[store], initializer, aggregator, plan.sends_old)

        return self.by_key("aggregate", name, self.scope.value(value), operator)

    def tumbling(self, size_ms: int, *, grace_ms: int = 0) -> WindowedStream[TableT]:
        """Windows of one size that follow each other."""
        return self.hopping(size_ms, every_ms=size_ms, grace_ms=grace_ms)

    def hopping(self, size_ms: int, *, every_ms: int, grace_ms: int = 0) -> WindowedStream[TableT]:
        """Windows of one size, a new one every `every_ms`, so that they overlap."""
        return WindowedStream(self, TimeWindows(size_ms, every_ms, grace_ms))

    def sliding(self, difference_ms: int, *, grace_ms: int = 0) -> SlidingStream[TableT]:
        """A window for each record: the records of its key that are at most `difference_ms` older."""
        return SlidingStream(self, SlidingWindows(difference_ms, grace_ms))

    def session(self, gap_ms: int, *, grace_ms: int = 0) -> SessionedStream[TableT]:
        """Sessions: records that are at most `gap_ms` apart."""
        return SessionedStream(self, SessionWindows(gap_ms, grace_ms))


class WindowedStream(Generic[TableT]):
    """A grouped stream in windows of time."""

    def __init__(self, grouped: Grouping[TableT], windows: TimeWindows, emit: str = UPDATE) -> None:
        self._grouped, self._windows, self._emit = grouped, windows, emit

    def emit(self, when: str) -> WindowedStream[TableT]:
        """With "update", each record gives a result at once; with "final", each window one, when it is closed."""
        return WindowedStream(self._grouped, self._windows, _checked_emit(when))

    def count(self, *, name: str | None = None) -> TableT:
        """How many records each key has in each window."""
        return self.aggregate(lambda: 0, counted, name=name, value="json")

    def reduce(self, reducer: Reducer, *, name: str | None = None) -> TableT:
        """The values of each key and window, combined two by two."""
        value = self._grouped.value_format
        return self.aggregate(lambda: None, _first_or(reducer), name=name, value=value)

    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        name: str | None = None,
        value: str | Format | None = None,
    ) -> TableT:
        """An aggregate of each key and window."""
        windows, key, format_ = self._windows, self._grouped.key_format, self._grouped.scope.value(value)

        def store(name: str) -> Store:
            return WindowStore(name, key, format_, windows.size_ms, windows.size_ms + windows.grace_ms)

        def operator(stores: Stores, store: str, plan: TablePlan) -> Operator:
            kept = store, stores[CLOCKS], stores[store]
            return WindowAggregate(
                *kept, windows, initializer, aggregator, plan.sends_old, on_close=self._emit == FINAL
            )

        keys = time_windowed(key, windows.size_ms)
        return self._grouped.table(
            "window", name, format_, store, operator, key=keys, closes_after_ms=windows.grace_ms
        )


class SlidingStream(Generic[TableT]):
    """A grouped stream in sliding windows."""

    def __init__(self, grouped: Grouping[TableT], windows: SlidingWindows) -> None:
        self._grouped, self._windows = grouped, windows

    def count(self, *, name: str | None = None) -> TableT:
        """How many records each key has in each window."""
        return self.aggregate(lambda: 0, counted, name=name, value="json")

    def reduce(self, reducer: Reducer, *, name: str | None = None) -> TableT:
        """The values of each key and window, combined two by two."""
        value = self._grouped.value_format
        return self.aggregate(lambda: None, _first_or(reducer), name=name, value=value)

    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        name: str | None = None,
        value: str | Format | None = None,
    ) -> TableT:
        """An aggregate of each key and window."""
        windows, key, format_ = self._windows, self._grouped.key_format, self._grouped.scope.value(value)
        retention_ms = 2 * windows.difference_ms + windows.grace_ms

        def store(name: str) -> Store:
            return SlidingStore(name, key, format_, windows.difference_ms, retention_ms)

        def operator(stores: Stores, store: str, plan: TablePlan) -> Operator:
            kept = store, stores[CLOCKS], stores[store]
            return SlidingAggregate(*kept, windows, initializer, aggregator, plan.sends_old)

        keys = time_windowed(key, windows.difference_ms)
        return self._grouped.table(
            "sliding", name, format_, store, operator, key=keys, closes_after_ms=windows.grace_ms
        )


class SessionedStream(Generic[TableT]):
    """A grouped stream in sessions."""

    def __init__(self, grouped: Grouping[TableT], windows: SessionWindows, emit: str = UPDATE) -> None:
        self._grouped, self._windows, self._emit = grouped, windows, emit

    def emit(self, when: str) -> SessionedStream[TableT]:
        """With "update", each record gives results at once; with "final", each session one, when it is closed."""
        return SessionedStream(self._grouped, self._windows, _checked_emit(when))

    def count(self, *, name: str | None = None) -> TableT:
        """How many records each session has."""
        return self.aggregate(
            lambda: 0, counted, lambda key, one, other: one + other, name=name, value="json"
        )

    def reduce(self, reducer: Reducer, *, name: str | None = None) -> TableT:
        """The values of each session, combined two by two."""

        def merge(key: Any, one: Any, other: Any) -> Any:
            return other if one is None else reducer(one, other)

        value = self._grouped.value_format
        return self.aggregate(lambda: None, _first_or(reducer), merge, name=name, value=value)

    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: Callable[[Any, Any, Any], Any],
        *,
        name: str | None = None,
        value: str | Format | None = None,
    ) -> TableT:
        """An aggregate of each session. `merger(key, one, other)` joins two sessions that a record connects."""
        windows, key, format_ = self._windows, self._grouped.key_format, self._grouped.scope.value(value)

        def store(name: str) -> Store:
            return SessionStore(name, key, format_, windows.gap_ms + windows.grace_ms)

        def operator(stores: Stores, store: str, plan: TablePlan) -> Operator:
            kept = store, stores[CLOCKS], stores[store]
            functions = initializer, aggregator, merger
            return SessionAggregate(*kept, windows, *functions, plan.sends_old, on_close=self._emit == FINAL)

        keys = session_windowed(key)
        closes_after_ms = windows.gap_ms + windows.grace_ms
        return self._grouped.table(
            "session", name, format_, store, operator, key=keys, closes_after_ms=closes_after_ms
        )


class GroupedTable(Grouping[TableT]):
    """A table's rows by another key. A row that changes is subtracted as it was and added as it is."""

    def count(self, *, name: str | None = None) -> TableT:
        """How many rows each group has."""
        return self.aggregate(lambda: 0, counted, uncounted, name=name, value="json")

    def reduce(self, adder: Reducer, subtractor: Reducer, *, name: str | None = None) -> TableT:
        """The values of each group, combined two by two."""

        def operator(stores: Stores, store: str, plan: TablePlan) -> Operator:
            return TableReduce(stores[store], adder, subtractor, plan.sends_old)

        return self.by_key("table-reduce", name, self.value_format, operator)

    def aggregate(
        self,
        initializer: Initializer,
        adder: Aggregator,
        subtractor: Aggregator,
        *,
        name: str | None = None,
        value: str | Format | None = None,
    ) -> TableT:
        """An aggregate of each group; `subtractor` undoes what `adder` did with the same value."""

        def operator(stores: Stores, store: str, plan: TablePlan) -> Operator:
            return TableAggregate(stores[store], initializer, adder, subtractor, plan.sends_old)

        return self.by_key("table-aggregate", name, self.scope.value(value), operator)

    def _placed(self, name: str) -> Node:
        # The groups are not null: `RegroupTable` left those out.
        return self.scope.repartition(self._node, name, self.key_format, change_of(self.value_format))


def cogroup(
    grouped: Sequence[tuple[GroupedStream[TableT], Aggregator]],
    initializer: Initializer,
    *,
    name: str | None = None,
    value: str | Format | None = None,
) -> TableT:
    """One aggregate of each key over several grouped streams, each with an aggregator of its own."""
    first, _ = grouped[0]
    topology, key, format_ = first.scope.topology, first.key_format, first.scope.value(value)
    store = name or topology.next_name("cogroup")
    for stream, _ in grouped[1:]:
        check_same_keys("cogroup", key, stream.key_format)
    placed = [stream.placed(f"{store}-{number}") for number, (stream, _) in enumerate(grouped)]
    topology.store(store, lambda: KeyValueStore(store, key, format_))

    def aggregating(aggregator: Aggregator) -> Callable[[Stores], Operator]:
        return lambda stores: StreamAggregate(stores[store], initializer, aggregator, plan.sends_old)

    nodes = [
        topology.operator("cogroup", aggregating(aggregator), node, stores=[store])
        for node, (_, aggregator) in zip(placed, grouped, strict=True)
    ]
    plan = TablePlan(topology.operator("cogrouped", lambda stores: Pass(), *nodes), store=store)
    return first.made(plan, key, format_)


def _first_or(reducer: Reducer) -> Aggregator:
    """An aggregator that begins with the first value."""

    def aggregate(key: Any, value: Any, so_far: Any) -> Any:
        return value if so_far is None else reducer(so_far, value)

    return aggregate


def _checked_emit(when: str) -> str:
    if when not in (UPDATE, FINAL):
        raise ValueError(f"emit is {when!r}; it is {UPDATE!r} or {FINAL!r}")
    return when
