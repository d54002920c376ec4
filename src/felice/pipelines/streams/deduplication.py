"""Builds the nodes that drop duplicates: records of an id that was seen before, and records that change nothing."""

from __future__ import annotations

from collections.abc import Iterable

from felice.pipelines.streams.formats import JSON, Format, pair_of
from felice.pipelines.streams.operators.changes import OnlyChanges
from felice.pipelines.streams.operators.stateless import FlatMap, KeyValueFunction
from felice.pipelines.streams.processing import Context, KeyValues, Processor, processed
from felice.pipelines.streams.record import Record
from felice.pipelines.streams.scope import Scope
from felice.pipelines.streams.stores import KeyValueStore, Rows
from felice.pipelines.streams.topology import Node


class Deduplicate(Processor):
    """Drops a record whose key was passed at most `within_ms` of stream time ago.

    The time of a key is the stream time at which it arrived, so copies of a late record are dropped like other copies.
    """

    def __init__(self, store: str, within_ms: int) -> None:
        self._name, self._within_ms = store, within_ms

    def init(self, context: Context) -> None:
        """Schedules the removal of old keys."""
        self._context, self._seen = context, context.store(self._name)
        context.schedule(max(1, self._within_ms), self._forget)

    def process(self, record: Record) -> Iterable[Record]:
        """The record itself, or nothing. Records without key are passed."""
        if record.key is None:
            return (record,)
        time = self._context.stream_time
        row = self._seen.get(record.key)
        if row is not None and row.timestamp >= time - self._within_ms:
            return ()
        self._seen.put(record.key, 1, time)
        return (record,)

    def _forget(self, time: int) -> None:
        for key in [key for key, row in self._seen.items() if row.timestamp < time - self._within_ms]:
            self._seen.put(key, None, time)


def first_of_each_key(scope: Scope, node: Node, key: Format, store: str, within_ms: int) -> Node:
    """The node that passes the first record of each key. Records are partitioned by key."""
    seen = KeyValues(store, key, "json", Rows.BY_KEY)
    return processed(
        scope, node, lambda: Deduplicate(store, within_ms), [seen], f"{store}-process", kept_key=key
    )


def first_of_each_id(
    scope: Scope,
    node: Node,
    formats: tuple[Format, Format],
    id_of: KeyValueFunction,
    id_format: Format,
    store: str,
    within_ms: int,
) -> Node:
    """The node that passes the first record of each id, after a repartition by id. Records keep their keys.

    The repartition replaces the key, so the key travels beside the value and is restored afterwards.
    """
    topology = scope.topology
    wrap = FlatMap(lambda key, value: [(id_of(key, value), (key, value))])
    identified = topology.operator("identify", lambda stores: wrap, node)
    placed = scope.repartition(identified, store, id_format, pair_of(*formats))
    first = first_of_each_key(scope, placed, id_format, store, within_ms)
    return topology.operator("unwrap", lambda stores: FlatMap(lambda _, pair: [pair]), first)


def whole_value(format_: Format) -> KeyValueFunction:
    """The function that `changes_of_each_key` compares values of this format by: it compares them as JSON."""
    if format_.name in (JSON.name, "string"):
        return lambda key, value: value
    # Not every format's values can be in JSON. A character for each byte.
    return lambda key, value: None if value is None else format_.write(value).decode("latin-1")


def changes_of_each_key(
    scope: Scope, node: Node, key: Format, compared: KeyValueFunction, store: str
) -> Node:
    """The node that passes a record if its compared value differs from that of the last record of its key."""
    topology = scope.topology
    topology.store(store, lambda: KeyValueStore(store, key, JSON))
    return topology.operator(
        "dedupe-changes", lambda stores: OnlyChanges(stores[store], compared), node, stores=[store]
    )
