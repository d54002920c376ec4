"""A table that every task has all rows of."""

from __future__ import annotations

from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.operators.table import TableSource
from felice.pipelines.streams.scope import Scope
from felice.pipelines.streams.stores import KeyValueStore, Rows
from felice.pipelines.streams.topology import Node, TopicFormats


class GlobalTable:
    """A table of which every task has all rows: for `join` and `left_join` of streams, with `on`."""

    def __init__(self, node: Node, store: str, key: Format, value: Format) -> None:
        self.node, self.store = node, store
        self.key_format, self.value_format = key, value


def global_table_of(scope: Scope, formats: TopicFormats, name: str | None) -> GlobalTable:
    """The table of a topic that every task reads."""
    topology = scope.topology
    store = name or topology.automatic_name("global-table")
    topology.store(store, lambda: KeyValueStore(store, formats.key, formats.value, Rows.EVERYWHERE))
    node = topology.operator(
        "global-table",
        lambda stores: TableSource(stores[store], sends_old=False),
        topology.source(formats),
        stores=[store],
    )
    return GlobalTable(node, store, formats.key, formats.value)
