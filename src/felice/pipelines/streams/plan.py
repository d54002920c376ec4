"""Plans, while an App is built, whether each table has a store, and whether it sends old values.

Keeps true: a table has a store only if it has a name, is the result of an aggregation, or if an operator looks up its
            rows or needs its old values. Operators are created when all plans are complete, and read them. As in Kafka
            Streams, the plan also determines which deletions of absent rows are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.operators.aggregate import value_of
from felice.pipelines.streams.operators.joins import Joiner
from felice.pipelines.streams.operators.table import Compute, OnlyLatest, computed_getter, computed_getter_at
from felice.pipelines.streams.record import Getter, GetterAt, Timestamped
from felice.pipelines.streams.topology import Node, Stores, Topology, TopologyError


@dataclass(slots=True)
class JoinKind:
    """Which sides a row of the result needs."""

    needs_left: bool
    needs_right: bool


@dataclass(slots=True)
class TablePlan:
    """One table of an App."""

    node: Node
    parents: Sequence[TablePlan] = ()
    store: str | None = None
    make_store: Callable[[], str] | None = None
    compute: Compute | None = None
    join: tuple[JoinKind, Joiner] | None = None
    sends_old: bool = field(default=False)
    closes_after_ms: int | None = None
    """Of a windowed table: how long after a window's end its last change may come."""
    history_ms: int | None = None
    """Of a versioned table: how long it keeps rows that were replaced."""
    _latest: Node | None = None

    @property
    def versions_ms(self) -> int | None:
        """The history that a lookup can use: that of the table itself, or of the table from which it is computed."""
        if self.store is None and self.make_store is None and self.compute is not None:
            return self.parents[0].versions_ms
        return self.history_ms

    def latest(self, topology: Topology) -> Node:
        """The node that joins and aggregations of tables read. For a versioned table it drops the changes that are
        older than the key's row.
        """
        if self.versions_ms is None:
            return self.node
        if self._latest is None:
            self._latest = topology.operator("latest", lambda stores: OnlyLatest(), self.node)
        return self._latest

    def send_old(self, *, force: bool = True) -> bool:
        """Request old values, and return whether the table sends them. Only with `force` it gets a store for that."""
        if not self.sends_old:
            self.sends_old = self._can_send_old(force)
        return self.sends_old

    def _can_send_old(self, force: bool) -> bool:
        if self.make_store is not None:
            if force:
                self._materialize()
            return self.store is not None
        if self.store is not None and self.join is None and force:
            return True  # Aggregates, and computed tables with a name, know their own old rows.
        # A join looks rows up, so its sides have stores.
        answers = [parent.send_old(force=force or self.join is not None) for parent in self.parents]
        return all(answers)

    def lookup_stores(self) -> tuple[str, ...]:
        """Plan lookups of this table's rows, and return the stores that a lookup needs."""
        self._materialize()
        if self.store is not None:
            return (self.store,)
        if self.compute is None and self.join is None:
            raise TopologyError(
                "a suppressed table cannot be looked up; write it to a topic, and read that as a table"
            )
        return tuple(name for parent in self.parents for name in parent.lookup_stores())

    def getter(self, stores: Stores) -> Getter:
        """The lookup, over the stores of a task."""
        if self.store is not None:
            get: Getter = stores[self.store].get
            return get
        getters = [parent.getter(stores) for parent in self.parents]
        if self.join is not None:
            return _joined_getter(getters[0], getters[1], *self.join)
        assert self.compute is not None, "a table without store is computed"
        return computed_getter(getters[0], self.compute)

    def getter_at(self, stores: Stores) -> GetterAt | None:
        """The lookup at a time; None if the table is not versioned."""
        if self.versions_ms is None:
            return None
        if self.store is not None:
            get_at: GetterAt = stores[self.store].get_at
            return get_at
        parent = self.parents[0].getter_at(stores)
        assert self.compute is not None and parent is not None, "versions come from the parent"
        return computed_getter_at(parent, self.compute)

    def own_store(self, stores: Stores) -> Any:
        """The table's store in a task; None if it has none."""
        return None if self.store is None else stores[self.store]

    def _materialize(self) -> None:
        if self.store is None and self.make_store is not None:
            self.store = self.make_store()
            self.node.stores = (*self.node.stores, self.store)


def _joined_getter(left: Getter, right: Getter, kind: JoinKind, joiner: Joiner) -> Getter:
    def get(key: Any) -> Timestamped | None:
        rows = left(key), right(key)
        if (rows[0] is None and (kind.needs_left or rows[1] is None)) or (
            rows[1] is None and kind.needs_right
        ):
            return None
        value = joiner(value_of(rows[0]), value_of(rows[1]))
        return (
            None
            if value is None
            else Timestamped(value, max(row.timestamp for row in rows if row is not None))
        )

    return get
