"""Builds joins of streams and tables: an operator for each side that sends results, with the stores of the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.global_table import GlobalTable
from felice.pipelines.streams.join_stores import HeldRecords, RecentRecords, UnjoinedRecords
from felice.pipelines.streams.operators.joins import (
    HoldBack,
    JoinedTable,
    Joiner,
    StreamTableJoin,
    TableTableJoin,
)
from felice.pipelines.streams.operators.stateless import KeyValueFunction, Pass
from felice.pipelines.streams.operators.stream_join import StreamStreamJoin
from felice.pipelines.streams.plan import JoinKind, TablePlan
from felice.pipelines.streams.topology import CLOCKS, Node, Topology, TopologyError
from felice.pipelines.streams.windows import JoinWindows


class Joined(NamedTuple):
    """A side of a join: the records of a stream, partitioned by their keys."""

    node: Node
    key: Format
    value: Format


def stream_join(
    topology: Topology,
    streams: Sequence[Joined],
    joiner: Joiner,
    windows: JoinWindows,
    kind: JoinKind,
) -> Node:
    """The node that sends the joined records; the first of the streams is the left one."""
    name, key = topology.automatic_name("join-streams"), streams[0].key
    retention_ms = windows.size_ms + windows.grace_ms
    kept = [
        topology.store(store, partial(RecentRecords, store, key, stream.value, retention_ms), windows.about)
        for store, stream in zip((f"{name}-left", f"{name}-right"), streams, strict=True)
    ]
    alone = None
    if windows.waits and not (kind.needs_left and kind.needs_right):
        formats = [stream.value for stream in streams]
        make = partial(UnjoinedRecords, f"{name}-alone", key, *formats)
        alone = topology.store(f"{name}-alone", make, windows.about)

    def side(is_left: bool) -> Node:
        own, partner = kept if is_left else reversed(kept)
        sends_alone = not (kind.needs_right if is_left else kind.needs_left)
        return topology.operator(
            "join-stream",
            lambda stores: StreamStreamJoin(
                name,
                stores[CLOCKS],
                stores[own],
                stores[partner],
                stores[alone] if alone else None,
                windows,
                joiner,
                is_left,
                sends_alone,
            ),
            streams[0 if is_left else 1].node,
            stores=[*kept, alone] if alone else kept,
        )

    return topology.operator("joined", lambda stores: Pass(), side(True), side(False))


def global_join(
    topology: Topology,
    node: Node,
    table: GlobalTable,
    joiner: Joiner,
    key_of: KeyValueFunction | None,
    *,
    is_left: bool,
) -> Node:
    """The node that looks the records of a node up in a global table."""
    topology.check_own(table.node)
    return topology.operator(
        "join-global-table",
        lambda stores: StreamTableJoin(stores[table.store].get, joiner, is_left, key_of),
        node,
        stores=[table.store],
    )


def table_join(
    topology: Topology,
    stream: Joined,
    table: TablePlan,
    joiner: Joiner,
    grace_ms: int,
    *,
    is_left: bool,
) -> Node:
    """The node that looks the records of a stream up in a table."""
    needed = table.lookup_stores()
    return topology.operator(
        "join-table",
        lambda stores: StreamTableJoin(
            table.getter(stores), joiner, is_left, table_at=table.getter_at(stores)
        ),
        _held_back(topology, stream, table, grace_ms, is_left=is_left) if grace_ms else stream.node,
        stores=needed,
    )


def _held_back(topology: Topology, stream: Joined, table: TablePlan, grace_ms: int, *, is_left: bool) -> Node:
    history_ms = table.versions_ms
    if history_ms is None or history_ms < grace_ms:
        raise TopologyError(
            f"join: a grace of {grace_ms} ms needs a versioned table with a history as long; the table has "
            + ("none" if history_ms is None else f"{history_ms} ms")
        )
    store = topology.automatic_name("hold-back")
    topology.store(store, partial(HeldRecords, store, stream.key, stream.value))
    return topology.operator(
        "hold-back",
        lambda stores: HoldBack(store, stores[CLOCKS], stores[store], grace_ms, is_left),
        stream.node,
        stores=[store],
    )


def tables_join(
    topology: Topology, left: TablePlan, right: TablePlan, joiner: Joiner, kind: JoinKind
) -> TablePlan:
    """The table of two tables that are joined by their common key."""
    if not kind.needs_right:
        left.send_old()
    if not kind.needs_left:
        right.send_old()

    def swapped(own: Any, found: Any) -> Any:
        return joiner(found, own)

    def side(own: TablePlan, partner: TablePlan, join: Joiner, needs_own: bool, needs_other: bool) -> Node:
        return topology.operator(
            "join-tables",
            lambda stores: TableTableJoin(
                partner.getter(stores), join, needs_own, needs_other, plan.sends_old
            ),
            own.latest(topology),
            stores=(*own.lookup_stores(), *partner.lookup_stores()),
        )

    sides = (
        side(left, right, joiner, kind.needs_left, kind.needs_right),
        side(right, left, swapped, kind.needs_right, kind.needs_left),
    )
    node = topology.operator(
        "joined", lambda stores: JoinedTable(plan.own_store(stores), plan.sends_old), *sides
    )
    plan = TablePlan(node, [left, right], join=(kind, joiner))
    return plan
