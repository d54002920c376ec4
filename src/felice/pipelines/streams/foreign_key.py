"""Builds the join of two tables by a foreign key: repartitions to the right table's tasks and back.

A third repartition, of the left table itself, gives the last step a copy of the left rows. Kafka Streams uses the left
table's store there; then the join would end in the sub-topology in which it begins, and Spark could not run one after
the other. A batch applies the copies before its answers: an answer by the order of time could come before the copy of
the row for which it was asked, and would be dropped as one for another row.
"""

from __future__ import annotations

from collections.abc import Callable

from felice.pipelines.streams.apart import TableSide, rows_behind
from felice.pipelines.streams.formats import BYTES, pair_of
from felice.pipelines.streams.join_stores import SubscriptionStore
from felice.pipelines.streams.operators.foreign_key import (
    AnswerSubscription,
    JoinAnswer,
    RightRowChanged,
    Subscribe,
)
from felice.pipelines.streams.operators.joins import Joiner
from felice.pipelines.streams.operators.stateless import KeyValueFunction, Pass
from felice.pipelines.streams.operators.table import ToStream
from felice.pipelines.streams.plan import TablePlan
from felice.pipelines.streams.scope import Scope
from felice.pipelines.streams.topology import Node


def foreign_key_join(
    scope: Scope,
    name: str,
    left: TableSide,
    right: TableSide,
    key_of: KeyValueFunction,
    joiner: Joiner,
    copied: Callable[[Node], TablePlan],
    *,
    is_left: bool,
) -> Node:
    """The node that sends the rows of the result. `copied` makes a table of the left rows."""
    topology = scope.topology
    left.plan.send_old()
    asking = topology.operator(
        "subscribe",
        lambda stores: Subscribe(key_of, left.value, right.key, is_left),
        left.plan.latest(topology),
    )
    asked = scope.repartition(asking, f"{name}-subscription", right.key, pair_of(BYTES, left.key))
    right = right._replace(plan=rows_behind(scope, right, asked))
    # A filter may send a change from no row to no row. Such a change of the right table must not be sent.
    right.plan.send_old()
    answers = scope.repartition(
        _answers(scope, name, asked, left, right), f"{name}-answer", left.key, pair_of(BYTES, right.value)
    )
    rows = topology.operator("to-stream", lambda stores: ToStream(), left.plan.latest(topology))
    rows = scope.repartition(rows, f"{name}-left", left.key, left.value, is_table=True, is_copy=True)
    copy = copied(rows)
    return topology.operator(
        "join-answer",
        lambda stores: JoinAnswer(copy.getter(stores), joiner, left.key, left.value, is_left),
        answers,
        stores=copy.lookup_stores(),
    )


def _answers(scope: Scope, name: str, asked: Node, left: TableSide, right: TableSide) -> Node:
    topology = scope.topology
    store = topology.store(
        f"{name}-subscriptions", lambda: SubscriptionStore(f"{name}-subscriptions", right.key, left.key)
    )
    needed = right.plan.lookup_stores()
    at_once = topology.operator(
        "answer",
        lambda stores: AnswerSubscription(stores[store], right.plan.getter(stores)),
        asked,
        stores=[store, *needed],
    )
    later = topology.operator(
        "right-row",
        lambda stores: RightRowChanged(stores[store]),
        right.plan.latest(topology),
        stores=[store],
    )
    return topology.operator("answers", lambda stores: Pass(), at_once, later)
