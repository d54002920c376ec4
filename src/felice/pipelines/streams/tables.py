"""Builds tables: from records, computed from another table, and with fewer changes. `plan` has what a table keeps."""

from __future__ import annotations

from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.operators.each_batch import EachBatch
from felice.pipelines.streams.operators.suppress import Suppress
from felice.pipelines.streams.operators.table import Compute, TableMap, TableSource, VersionedTableSource
from felice.pipelines.streams.plan import TablePlan
from felice.pipelines.streams.record import AnyOperator
from felice.pipelines.streams.scope import Scope
from felice.pipelines.streams.stores import ChangeBuffer, KeyValueStore
from felice.pipelines.streams.topology import CLOCKS, Node, Stores, TopologyError
from felice.pipelines.streams.versioned import VersionedStore


def table_from(
    scope: Scope, source: Node, key: Format, value: Format, name: str | None, history_ms: int | None = None
) -> TablePlan:
    """The table of a node's records, versioned if it has a history."""

    def operator(stores: Stores) -> AnyOperator:
        kind = TableSource if history_ms is None else VersionedTableSource
        return kind(plan.own_store(stores), plan.sends_old)

    node = scope.topology.operator("table", operator, source)

    def make_store() -> str:
        store = name or f"{scope.topology.automatic_name('table', node.name)}-store"
        if history_ms is None:
            return scope.topology.store(store, lambda: KeyValueStore(store, key, value))
        return scope.topology.store(store, lambda: VersionedStore(store, key, value, history_ms))

    plan = TablePlan(node, make_store=make_store, history_ms=history_ms)
    if name is not None or history_ms is not None:
        plan.lookup_stores()
    return plan


def computed(scope: Scope, table: TablePlan, kind: str, compute: Compute, *, only_changes: bool) -> TablePlan:
    """The table whose rows are computed from those of another. See `TableMap` for `only_changes`."""
    node = scope.topology.operator(
        kind,
        lambda stores: TableMap(compute, plan.own_store(stores), plan.sends_old, only_changes),
        table.node,
    )
    plan = TablePlan(node, [table], compute=compute, closes_after_ms=table.closes_after_ms)
    if only_changes:
        plan.send_old(force=False)
    return plan


def keep_in_store(scope: Scope, plan: TablePlan, name: str, key: Format, value: Format) -> None:
    """Gives a table a store with this name."""
    plan.store = scope.topology.store(name, lambda: KeyValueStore(name, key, value))
    plan.node.stores = (*plan.node.stores, name)


def each_batch(scope: Scope, table: TablePlan, key: Format) -> TablePlan:
    """The table that sends one change for each key and batch. Its rows are those of the other table."""
    if table.versions_ms is not None:
        raise TopologyError("emit: a versioned table sends each change")
    node = scope.topology.operator("each-batch", lambda stores: EachBatch(key, plan.sends_old), table.node)
    node.is_of_batch = True
    plan = TablePlan(node, [table], compute=lambda _, value: value, closes_after_ms=table.closes_after_ms)
    return plan


def suppressed(
    scope: Scope,
    table: TablePlan,
    formats: tuple[Format, Format],
    wait_ms: int,
    max_keys: int | None,
    name: str | None,
    *,
    until_closed: bool,
) -> TablePlan:
    """The table that sends the last of several changes of a key. See `Suppress` for the arguments."""
    topology = scope.topology
    store = name or topology.automatic_name("suppress")
    topology.store(store, lambda: ChangeBuffer(store, *formats))
    node = topology.operator(
        "suppress",
        lambda stores: Suppress(store, stores[CLOCKS], stores[store], wait_ms, max_keys, until_closed),
        table.node,
        stores=[store],
    )
    return TablePlan(node, [table], closes_after_ms=table.closes_after_ms)
