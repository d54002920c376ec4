"""Keeps the sub-topologies of an App in one line, so that Spark runs one after the other.

An operator that uses a store, or records, of two sub-topologies makes them one. If one of them writes a repartition
that the other reads, also through others, then the result would read its own repartition. So the operator gets what
comes from the earlier one through a repartition of its own: the records of a stream, or a copy of a table. Kafka
Streams runs all sub-topologies at any time, and needs none of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.joining import Joined
from felice.pipelines.streams.operators.table import ToStream
from felice.pipelines.streams.plan import TablePlan
from felice.pipelines.streams.scope import Scope
from felice.pipelines.streams.tables import table_from
from felice.pipelines.streams.topology import Node, TopologyError, is_chosen


class TableSide(NamedTuple):
    """A table that an operator looks up."""

    plan: TablePlan
    key: Format
    value: Format


def records_behind(scope: Scope, records: Joined, others: Sequence[Node]) -> Node:
    """The node with these records that may be used together with others."""
    topology = scope.topology
    if not any(topology.feeds(records.node, other) for other in others):
        return records.node
    _check_placed(records.node, others)
    # Without the repartition a record would be used at once, before all that comes of it on other ways.
    return scope.repartition(
        records.node, topology.automatic_name("again"), records.key, records.value, is_early=True
    )


def rows_behind(scope: Scope, rows: TableSide, other: Node) -> TablePlan:
    """The table with these rows that may be used together with another node."""
    topology, plan = scope.topology, rows.plan
    if not topology.feeds(plan.node, other):
        return plan
    if plan.history_ms is not None or plan.closes_after_ms is not None:
        kind = "a versioned" if plan.history_ms is not None else "a windowed"
        raise TopologyError(
            f"{plan.node.name} is {kind} table that comes before {other.name}, and {kind} table cannot be copied "
            "behind it; write the table to a topic with to(...), and read the topic with app.table(...)"
        )
    _check_placed(plan.node, [other])
    name = topology.automatic_name("copy")
    changes = topology.operator("to-stream", lambda stores: ToStream(), plan.node)
    copies = scope.repartition(changes, name, rows.key, rows.value, is_table=True)
    return table_from(scope, copies, rows.key, rows.value, f"{name}-store")


def _check_placed(node: Node, others: Sequence[Node]) -> None:
    """Raises `TopologyError` if a function chooses partitions: the repartition between the nodes uses keys."""
    for one in (node, *others):
        if is_chosen(one):
            raise TopologyError(
                f"{node.name} comes before {others[0].name}, and a function chooses the partitions of {one.name}: they "
                "cannot be used together. Write the records to a topic with to(...), and read the topic with the App"
            )
