"""`Stream` and `Table`: the records of a topic or of an operator, with the operators of the API as methods.

Functions take the key and the value, `lambda key, value: …`; joiners and reducers take two values. A function that
chooses a key may be replaced by the name of a field of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from felice.pipelines.streams.apart import TableSide, records_behind, rows_behind
from felice.pipelines.streams.deduplication import (
    changes_of_each_key,
    first_of_each_id,
    first_of_each_key,
    whole_value,
)
from felice.pipelines.streams.foreign_key import foreign_key_join
from felice.pipelines.streams.formats import Format, format_of
from felice.pipelines.streams.global_table import GlobalTable
from felice.pipelines.streams.grouped import GroupedStream, GroupedTable
from felice.pipelines.streams.joining import Joined, global_join, stream_join, table_join, tables_join
from felice.pipelines.streams.operators.aggregate import RegroupTable
from felice.pipelines.streams.operators.changes import Edges
from felice.pipelines.streams.operators.joins import (
    Joiner,
)
from felice.pipelines.streams.operators.numbered import Numbered, NumberedFunction
from felice.pipelines.streams.operators.records import (
    FlatMapRecords,
    MapRecords,
    RecordFunction,
    RecordsFunction,
)
from felice.pipelines.streams.operators.stateless import (
    Branch,
    DropNullKeys,
    Filter,
    FlatMap,
    FlatMapValues,
    KeyValueFunction,
    Map,
    MapValues,
    OfBranch,
    Pass,
    Peek,
    Printing,
    SelectKey,
    by,
    function,
)
from felice.pipelines.streams.operators.table import (
    Compute,
    ToStream,
)
from felice.pipelines.streams.plan import JoinKind, TablePlan
from felice.pipelines.streams.preview import live, shown
from felice.pipelines.streams.processing import Processor, StoreOf, processed
from felice.pipelines.streams.record import AnyOperator
from felice.pipelines.streams.scope import Scope, check_same_keys
from felice.pipelines.streams.stores import Numbers
from felice.pipelines.streams.tables import computed, each_batch, keep_in_store, suppressed, table_from
from felice.pipelines.streams.telling import shown as shown_value
from felice.pipelines.streams.topology import (
    CHOSEN_TOPIC,
    FAIL,
    ChoosePartition,
    Node,
    OnBadRecord,
    TopicFormats,
    TopologyError,
)
from felice.pipelines.streams.windows import JoinWindows, at_least

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


UPDATE, BATCH = "update", "batch"


class Stream:
    """Records in order. `is_rekeyed`: keys may have changed since the last repartition."""

    def __init__(
        self, scope: Scope, node: Node, key: Format, value: Format, *, is_rekeyed: bool = False
    ) -> None:
        self.scope, self.node = scope, node
        self.key_format, self.value_format = key, value
        self.is_rekeyed = is_rekeyed

    def filter(self, predicate: KeyValueFunction) -> Stream:
        """Records for which the predicate is true."""
        return self._then("filter", Filter(predicate))

    def filter_not(self, predicate: KeyValueFunction) -> Stream:
        """Records for which the predicate is false."""
        return self._then("filter", Filter(lambda key, value: not predicate(key, value)))

    def map_values(self, function: KeyValueFunction, *, value: str | Format | None = None) -> Stream:
        """Each record with another value. `value` is the format of the new values: the App's, unless given."""
        return self._then("map-values", MapValues(function), value=self.scope.value(value))

    def flat_map_values(self, function: KeyValueFunction, *, value: str | Format | None = None) -> Stream:
        """A record for each value that the function returns."""
        return self._then("flat-map-values", FlatMapValues(function), value=self.scope.value(value))

    def map(
        self,
        function: KeyValueFunction,
        *,
        key: str | Format | None = None,
        value: str | Format | None = None,
    ) -> Stream:
        """Each record with another key and value: the function returns both."""
        new_key, new_value = self.scope.key(key), self.scope.value(value)
        return self._then("flat-map", Map(function), key=new_key, value=new_value, is_rekeyed=True)

    def flat_map(
        self,
        function: KeyValueFunction,
        *,
        key: str | Format | None = None,
        value: str | Format | None = None,
    ) -> Stream:
        """A record for each pair of key and value that the function returns."""
        new_key, new_value = self.scope.key(key), self.scope.value(value)
        return self._then("flat-map", FlatMap(function), key=new_key, value=new_value, is_rekeyed=True)

    def map_records(
        self,
        function: RecordFunction,
        *,
        keeps_key: bool = False,
        key: str | Format | None = None,
        value: str | Format | None = None,
    ) -> Stream:
        """Each record as another one: the function takes a `Record` and returns a `Record`, or None to drop it.

        So it sees and sets timestamps and headers. A result whose timestamp is not from 0 to the year 294,000, or None,
        is dropped and counted. With `keeps_key` the function must not change the key, so that no repartition follows.
        """
        kept, formats = self._formats_behind(key, value, keeps_key=keeps_key)
        return self._then("map-records", MapRecords(function, kept), **formats)

    def flat_map_records(
        self,
        function: RecordsFunction,
        *,
        keeps_key: bool = False,
        key: str | Format | None = None,
        value: str | Format | None = None,
    ) -> Stream:
        """Like `map_records`, for a function that returns an iterable of records, or None."""
        kept, formats = self._formats_behind(key, value, keeps_key=keeps_key)
        return self._then("flat-map-records", FlatMapRecords(function, kept), **formats)

    def key_by(self, key_of: KeyValueFunction | str, *, key: str | Format | None = None) -> Stream:
        """Each record with another key."""
        return self._then(
            "key-by", SelectKey(by(key_of, self.value_format)), key=self.scope.key(key), is_rekeyed=True
        )

    def peek(self, function: KeyValueFunction) -> Stream:
        """The same records; the function is called with each, and again if the record is processed again."""
        return self._then("peek", Peek(function))

    def foreach(self, function: KeyValueFunction) -> None:
        """Call the function with each record, and again if the record is processed again. Nothing follows."""
        operator = Peek(function)
        node = self.scope.topology.operator("foreach", lambda stores: operator, self.node)
        node.is_end = True

    def print(self, label: str) -> None:
        """Print each record as `[label]: key, value`, and again if it is processed again. Nothing follows.

        On Spark the lines are in the standard output of its workers.
        """
        self.foreach(Printing(label))

    def branch(
        self, predicates: Mapping[str, KeyValueFunction], *, default: str | None = None
    ) -> dict[str, Stream]:
        """A stream for each predicate, of the records that match it and no earlier one.

        `default` names the stream of the rest.
        """
        if not isinstance(predicates, Mapping):
            raise TopologyError(
                f"branch: {shown_value(predicates)} is given where a dict of predicates is needed"
            )
        for predicate in predicates.values():
            function(predicate)
        if default in predicates:
            raise TopologyError(f"branch: {default!r} is the name of a predicate's branch and of the default")
        operator = Branch(tuple(predicates.values()), default is not None)
        node = self.scope.topology.operator("branches", lambda stores: operator, self.node, is_hidden=True)
        names = [*predicates, *([] if default is None else [default])]
        return {name: self._then("branch", OfBranch(number), node=node) for number, name in enumerate(names)}

    def merge(self, other: Stream) -> Stream:
        """The records of both streams, in the order in which they are processed."""
        if not isinstance(other, Stream):
            raise TopologyError(f"merge: a stream is merged with a Stream, not with {shown_value(other)}")
        check_same_keys("merge", self.key_format, other.key_format)
        nodes = self._beside(self.node, other, other.node)
        node = self.scope.topology.operator("merge", lambda stores: Pass(), *nodes)
        return Stream(
            self.scope,
            node,
            self.key_format,
            self.value_format,
            is_rekeyed=self.is_rekeyed or other.is_rekeyed,
        )

    def group_by_key(self) -> GroupedStream[Table]:
        """The records by their key, for an aggregation."""
        formats = self.key_format, self.value_format
        return GroupedStream(self.scope, self.node, *formats, self._table, is_rekeyed=self.is_rekeyed)

    def group_by(
        self, key_of: KeyValueFunction | str, *, key: str | Format | None = None
    ) -> GroupedStream[Table]:
        """The records by another key, for an aggregation. Records without key are left out."""
        return self.key_by(key_of, key=key).group_by_key()

    def join(
        self,
        other: Table | Stream | GlobalTable,
        joiner: Joiner,
        *,
        within: JoinWindows | None = None,
        on: KeyValueFunction | str | None = None,
        grace_ms: int = 0,
        value: str | Format | None = None,
    ) -> Stream:
        """Each record with its key's row in a table, or with the records of another stream `within` a window.

        In a global table, `on` chooses the key of the row: a field of the value, or a function of key and value. In a
        versioned table, the row is that of the record's time; with `grace_ms`, the record waits so long for late rows.
        Records without partner are left out.
        """
        return self._join(other, joiner, within, on, grace_ms, value, JoinKind(True, True))

    def left_join(
        self,
        other: Table | Stream | GlobalTable,
        joiner: Joiner,
        *,
        within: JoinWindows | None = None,
        on: KeyValueFunction | str | None = None,
        grace_ms: int = 0,
        value: str | Format | None = None,
    ) -> Stream:
        """Like `join`, but a record without partner is joined with None; in a join of streams when its window is
        closed.
        """
        return self._join(other, joiner, within, on, grace_ms, value, JoinKind(True, False))

    def outer_join(
        self, other: Stream, joiner: Joiner, *, within: JoinWindows, value: str | Format | None = None
    ) -> Stream:
        """Like `left_join`, for the records of both streams."""
        return self._join(other, joiner, within, None, 0, value, JoinKind(False, False))

    def to_table(self, *, name: str | None = None) -> Table:
        """The last value of each key; null deletes. Records without key are left out. `name` is the store's name."""
        node = self.node
        if self.is_rekeyed:
            keyed = self.scope.topology.operator("keyed", lambda stores: DropNullKeys(), node)
            place = name or self.scope.topology.automatic_name("to-table")
            node = self.scope.repartition(keyed, place, self.key_format, self.value_format)
        return table_of(self.scope, node, self.key_format, self.value_format, name)

    def repartition(self, *, name: str | None = None, partition: ChoosePartition | None = None) -> Stream:
        """The records after a repartition by key. Operators that need a repartition add it themselves.

        `partition` is a function of key and value that returns a number. The record goes to this number modulo the
        number of partitions. If the function returns None, or there is no function, the key chooses the partition. All
        records of a key must go to one partition, and records that are joined to partitions with the same number:
        later operators see only the rows of their partition.
        """
        place = name or self.scope.topology.automatic_name("repartition")
        formats = self.key_format, self.value_format
        node = self.scope.repartition(self.node, place, *formats, partition_of=partition)
        return Stream(self.scope, node, self.key_format, self.value_format)

    def process(
        self,
        processor: Callable[[], Processor],
        *,
        stores: Sequence[StoreOf] = (),
        key: str | Format | None = None,
        value: str | Format | None = None,
        name: str | None = None,
    ) -> Stream:
        """The results of a processor of your own. `processor()` creates one for each task.

        `stores` are its stores: new ones, or the names of stores that the application has. `name` names its timers.
        """
        node = processed(self.scope, self._placed(), processor, stores, name)
        return Stream(self.scope, node, self.scope.key(key), self.scope.value(value), is_rekeyed=True)

    def process_values(
        self,
        processor: Callable[[], Processor],
        *,
        stores: Sequence[StoreOf] = (),
        value: str | Format | None = None,
        name: str | None = None,
    ) -> Stream:
        """Like `process`, for a processor that does not change keys, so that no repartition follows."""
        node = processed(self.scope, self._placed(), processor, stores, name, kept_key=self.key_format)
        return Stream(self.scope, node, self.key_format, self.scope.value(value))

    def dedupe(
        self,
        by_id: KeyValueFunction | str | None = None,
        *,
        within_ms: int,
        id_format: str | Format | None = None,
        name: str | None = None,
    ) -> Stream:
        """The first record of each id.

        Further records of the id are dropped until stream time is more than `within_ms` later. The id is the key, or a
        field of the value, or a function of key and value. Records without id are passed.
        """
        at_least(1, within=within_ms)
        scope, formats = self.scope, (self.key_format, self.value_format)
        store = name or scope.topology.automatic_name("dedupe")
        if by_id is None:
            node = first_of_each_key(scope, self._placed(), self.key_format, store, within_ms)
        else:
            node = first_of_each_id(
                scope,
                self.node,
                formats,
                by(by_id, self.value_format),
                scope.key(id_format),
                store,
                within_ms,
            )
        return Stream(scope, node, *formats, is_rekeyed=by_id is not None)

    def dedupe_changes(self, of: KeyValueFunction | str | None = None, *, name: str | None = None) -> Stream:
        """Records whose value differs from the value of the last record of their key.

        `of` is the field of the value, or a function of key and value, that is compared: the whole value, unless given.
        Records without key are left out. `name` is the name of the store, which has the last value of each key.
        """
        compared = whole_value(self.value_format) if of is None else by(of, self.value_format)
        store = name or self.scope.topology.automatic_name("dedupe-changes")
        node = changes_of_each_key(self.scope, self._placed(), self.key_format, compared, store)
        return Stream(self.scope, node, self.key_format, self.value_format)

    def numbered(
        self, function: NumberedFunction, *, value: str | Format | None = None, name: str | None = None
    ) -> Stream:
        """Each record with the value that `function(key, value, number)` returns.

        A number is greater than those of all earlier records of the key, also after a restart. So an aggregate can keep
        it to see which of two values came last. `name` is the name of the store, which has the last number.
        """
        topology = self.scope.topology
        store = name or topology.automatic_name("numbered")
        topology.store(store, partial(Numbers, store))
        node = topology.operator(
            "numbered", lambda stores: Numbered(function, stores[store]), self._placed(), stores=[store]
        )
        return Stream(self.scope, node, self.key_format, self.scope.value(value))

    def to(
        self,
        topic: str | Callable[[Any, Any], str],
        *,
        key: str | Format | None = None,
        value: str | Format | None = None,
        partition: ChoosePartition | None = None,
        on_bad_record: OnBadRecord = FAIL,
    ) -> None:
        """Write the records to a topic, in the stream's formats unless others are given.

        `topic` may be a function of key and value that returns the topic of each record. `partition` is a function of
        key and value that returns a number: its remainder by the number of the topic's partitions is the record's
        partition. With None, and without the function, the key chooses the partition, as with Kafka's producers.
        `on_bad_record` is what happens to a key or value that the format cannot hold, and to a record that the broker
        would refuse because of its size, its missing key or its timestamp.
        """
        formats = TopicFormats(
            CHOSEN_TOPIC if callable(topic) else topic,
            format_of(key or self.key_format),
            format_of(value or self.value_format),
            on_bad_record,
            topic_of=topic if callable(topic) else None,
            partition_of=partition,
        )
        if not callable(topic):
            formats = formats.of_topic(topic)
        self.scope.topology.sink(formats, self.node)

    def live(self, for_s: float = 60, every_s: float = 1) -> None:
        """Show the newest records in a notebook, and later ones as they come. `App.preview` says where they are."""
        live(self, for_s, every_s)

    def df(
        self,
        spark: SparkSession,
        checkpoint: str | Path,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        client: Mapping[str, object] = MappingProxyType({}),
        partitions: int | None = None,
        max_records: int | None = None,
    ) -> DataFrame:
        """The records as a streaming DataFrame of Spark with the columns key, value, timestamp and headers.

        Key and value are bytes in this stream's formats. The query that you make of it must have this checkpoint as its
        `checkpointLocation`, and read each of its batches to the end. It runs the whole App as described so far, and
        writes none of its topics. `client` has properties of a client, such as its login; for `partitions` and
        `max_records` see `felice run`.
        """
        from felice.pipelines.streams.on_spark.runner import dataframe

        return dataframe(
            self.scope,
            self.node,
            (self.key_format, self.value_format),
            spark,
            bootstrap_servers,
            Path(checkpoint),
            client=client,
            partitions=partitions,
            max_records=max_records,
        )

    def _repr_html_(self) -> str:
        return shown(self.scope, self.node)

    def _table(self, plan: TablePlan, key: Format, value: Format) -> Table:
        return _emitting(self.scope, plan, key, value)

    def _formats_behind(
        self, key: str | Format | None, value: str | Format | None, *, keeps_key: bool
    ) -> tuple[Format | None, dict[str, Any]]:
        """The format of keys that a function must keep, and what `_then` needs to know of its results."""
        if keeps_key and key is not None:
            raise TopologyError("a function that keeps keys keeps their format, too; leave key out")
        kept = self.key_format if keeps_key else None
        return kept, {
            "key": kept or self.scope.key(key),
            "value": self.scope.value(value),
            "is_rekeyed": not keeps_key,
        }

    def _placed(self) -> Node:
        if not self.is_rekeyed:
            return self.node
        name = self.scope.topology.automatic_name("join")
        return self.scope.repartition(self.node, name, self.key_format, self.value_format)

    def _join(
        self,
        other: Table | Stream | GlobalTable,
        joiner: Joiner,
        within: JoinWindows | None,
        on: KeyValueFunction | str | None,
        grace_ms: int,
        value: str | Format | None,
        kind: JoinKind,
    ) -> Stream:
        function(joiner, "a joiner of two values")
        if not isinstance(other, Stream | Table | GlobalTable):
            raise TopologyError(
                f"join: a stream is joined with a Stream or a table, not with {shown_value(other)}"
            )
        if (within is not None) != isinstance(other, Stream):
            raise TopologyError("join: a stream is joined `within` a window, a table without one")
        if grace_ms and not isinstance(other, Table):
            raise TopologyError("join: `grace_ms` is for versioned tables")
        is_left = not kind.needs_right
        if isinstance(other, GlobalTable):
            key_of = None if on is None else by(on, self.value_format)
            node = global_join(self.scope.topology, self.node, other, joiner, key_of, is_left=is_left)
            return Stream(
                self.scope, node, self.key_format, self.scope.value(value), is_rekeyed=self.is_rekeyed
            )
        if on is not None:
            raise TopologyError("join: `on` is for global tables; choose another key with key_by before")
        check_same_keys("join", self.key_format, other.key_format)
        if isinstance(other, Table):
            placed = self._placed()
            table = TableSide(other.plan, other.key_format, other.value_format)
            plan = rows_behind(self.scope, table, placed)
            records = Joined(placed, self.key_format, self.value_format)
            joined = Joined(
                records_behind(self.scope, records, [plan.node]), self.key_format, self.value_format
            )
            node = table_join(self.scope.topology, joined, plan, joiner, grace_ms, is_left=is_left)
        else:
            assert within is not None, "checked above"
            node = self._stream_join(other, joiner, within, kind)
        return Stream(self.scope, node, self.key_format, self.scope.value(value))

    def _stream_join(self, other: Stream, joiner: Joiner, windows: JoinWindows, kind: JoinKind) -> Node:
        nodes = self._beside(self._placed(), other, other._placed())
        sides = [
            Joined(node, one.key_format, one.value_format)
            for node, one in zip(nodes, (self, other), strict=True)
        ]
        return stream_join(self.scope.topology, sides, joiner, windows, kind)

    def _beside(self, node: Node, other: Stream, other_node: Node) -> tuple[Node, Node]:
        """Nodes with the records of two nodes, of this stream and another, that may be used together."""
        mine = Joined(node, self.key_format, self.value_format)
        theirs = Joined(other_node, other.key_format, other.value_format)
        own = records_behind(self.scope, mine, [other_node])
        return own, records_behind(self.scope, theirs, [own])

    def _then(
        self,
        kind: str,
        operator: AnyOperator,
        *,
        node: Node | None = None,
        key: Format | None = None,
        value: Format | None = None,
        is_rekeyed: bool = False,
    ) -> Stream:
        node = self.scope.topology.operator(kind, lambda stores: operator, node or self.node)
        return Stream(
            self.scope,
            node,
            key or self.key_format,
            value or self.value_format,
            is_rekeyed=is_rekeyed or self.is_rekeyed,
        )


class Table:
    """A table: the last value of each key. Streams and tables derived from it follow its changes."""

    def __init__(self, scope: Scope, plan: TablePlan, key: Format, value: Format) -> None:
        self.scope, self.plan = scope, plan
        self.key_format, self.value_format = key, value

    def filter(self, predicate: KeyValueFunction, *, name: str | None = None) -> Table:
        """The rows for which the predicate is true. A row that no longer matches is deleted."""

        def compute(key: Any, value: Any) -> Any:
            return value if predicate(key, value) else None

        return self._computed("table-filter", compute, self.value_format, name, only_changes=True)

    def map_values(
        self, function: KeyValueFunction, *, value: str | Format | None = None, name: str | None = None
    ) -> Table:
        """Each row with another value."""
        format_ = self.scope.value(value)
        return self._computed("table-map", function, format_, name, only_changes=False)

    def to_stream(self) -> Stream:
        """Each change as a record, null for a deletion."""
        node = self.scope.topology.operator("to-stream", lambda stores: ToStream(), self.plan.node)
        return Stream(self.scope, node, self.key_format, self.value_format)

    def edges(self, predicate: KeyValueFunction) -> Stream:
        """A record for each change that makes the predicate true for a row: not again while it stays true."""
        self.plan.send_old()
        latest = self.plan.latest(self.scope.topology)
        node = self.scope.topology.operator("edges", lambda stores: Edges(predicate), latest)
        return Stream(self.scope, node, self.key_format, self.value_format)

    def to(
        self,
        topic: str | Callable[[Any, Any], str],
        *,
        key: str | Format | None = None,
        value: str | Format | None = None,
        partition: ChoosePartition | None = None,
        on_bad_record: OnBadRecord = FAIL,
    ) -> None:
        """Write each change to a topic, null for a deletion. The arguments are those of `Stream.to`."""
        self.to_stream().to(topic, key=key, value=value, partition=partition, on_bad_record=on_bad_record)

    def group_by(
        self,
        select: Callable[[Any, Any], tuple[Any, Any]],
        *,
        key: str | Format | None = None,
        value: str | Format | None = None,
    ) -> GroupedTable[Table]:
        """The rows by another key: `select(key, value)` returns a row's group and its value there."""
        self.plan.send_old()
        formats = self.scope.key(key), self.scope.value(value)
        latest = self.plan.latest(self.scope.topology)
        node = self.scope.topology.operator(
            "regroup", lambda stores: RegroupTable(select, formats[0]), latest
        )
        return GroupedTable(self.scope, node, *formats, self._table, is_rekeyed=True)

    def join(
        self,
        other: Table,
        joiner: Joiner,
        *,
        on: KeyValueFunction | str | None = None,
        value: str | Format | None = None,
        name: str | None = None,
    ) -> Table:
        """The rows that have a partner of the same key in the other table.

        With `on`, a field or a function of key and value, the key of the partner is found in the row: a foreign key.
        """
        if on is not None:
            return self._foreign_key_join(
                other, joiner, by(on, self.value_format), value, name, is_left=False
            )
        return self._join(other, joiner, value, name, JoinKind(True, True))

    def left_join(
        self,
        other: Table,
        joiner: Joiner,
        *,
        on: KeyValueFunction | str | None = None,
        value: str | Format | None = None,
        name: str | None = None,
    ) -> Table:
        """All rows of this table, each with its partner in the other table or None. `on` is as for `join`."""
        if on is not None:
            return self._foreign_key_join(other, joiner, by(on, self.value_format), value, name, is_left=True)
        return self._join(other, joiner, value, name, JoinKind(True, False))

    def outer_join(
        self, other: Table, joiner: Joiner, *, value: str | Format | None = None, name: str | None = None
    ) -> Table:
        """All rows of both tables, with None for a partner that is missing."""
        return self._join(other, joiner, value, name, JoinKind(False, False))

    def emit(self, when: str) -> Table:
        """The same table with fewer changes: with "batch", one for each key and batch, from the row as it was before
        the batch to the row as it is after it. With "update" each record gives a change.

        On Spark a batch is what `felice run` processes at once; in a `TestDriver`, a `send`, or the block of a `batch`.
        """
        plan = each_batch(self.scope, self.plan, self.key_format) if is_batch(when) else self.plan
        return Table(self.scope, plan, self.key_format, self.value_format)

    def suppress(self, max_age_ms: int, *, max_keys: int | None = None, name: str | None = None) -> Table:
        """Fewer changes: the last change of each key, once stream time is `max_age_ms` later than its first held
        change.

        With `max_keys`, the oldest changes are sent earlier if changes of more keys are held.
        """
        return self._suppressed(max_age_ms, max_keys, name, until_closed=False)

    def suppress_until_closed(self, *, name: str | None = None) -> Table:
        """For a windowed table: one change for each window, when the window is closed."""
        if self.plan.closes_after_ms is None:
            raise TopologyError("suppress_until_closed: the table has no windows; use suppress(max_age_ms)")
        return self._suppressed(self.plan.closes_after_ms, None, name, until_closed=True)

    def _suppressed(
        self, wait_ms: int, max_keys: int | None, name: str | None, *, until_closed: bool
    ) -> Table:
        at_least(0, max_age=wait_ms)
        if max_keys is not None and max_keys < 1:
            raise TopologyError(f"suppress: max_keys is {max_keys}, but must be at least 1")
        if self.plan.versions_ms is not None:
            raise TopologyError("suppress: a versioned table cannot be suppressed")
        formats = self.key_format, self.value_format
        plan = suppressed(self.scope, self.plan, formats, wait_ms, max_keys, name, until_closed=until_closed)
        return Table(self.scope, plan, *formats)

    def live(self, for_s: float = 60, every_s: float = 1) -> None:
        """Show the newest rows in a notebook, and changes as they come. `App.preview` says where the records are."""
        live(self, for_s, every_s)

    def _repr_html_(self) -> str:
        return shown(self.scope, self.plan.node, table_key=self.key_format)

    def _table(self, plan: TablePlan, key: Format, value: Format) -> Table:
        return _emitting(self.scope, plan, key, value)

    def _computed(
        self, kind: str, compute: Compute, value: Format, name: str | None, *, only_changes: bool
    ) -> Table:
        plan = computed(self.scope, self.plan, kind, compute, only_changes=only_changes)
        return self._named(plan, name, value)

    def _named(self, plan: TablePlan, name: str | None, value: Format) -> Table:
        if name is not None:
            keep_in_store(self.scope, plan, name, self.key_format, value)
        return Table(self.scope, plan, self.key_format, value)

    def _foreign_key_join(
        self,
        other: Table,
        joiner: Joiner,
        key_of: KeyValueFunction,
        value: str | Format | None,
        name: str | None,
        *,
        is_left: bool,
    ) -> Table:
        _check_joins(other, joiner)
        scope = self.scope
        base = name or scope.topology.automatic_name("foreign-key-join")
        left, right = (TableSide(one.plan, one.key_format, one.value_format) for one in (self, other))

        def copied(source: Node) -> TablePlan:
            return table_from(scope, source, self.key_format, self.value_format, f"{base}-left")

        node = foreign_key_join(scope, base, left, right, key_of, joiner, copied, is_left=is_left)
        return table_of(scope, node, self.key_format, scope.value(value), name)

    def _join(
        self, other: Table, joiner: Joiner, value: str | Format | None, name: str | None, kind: JoinKind
    ) -> Table:
        _check_joins(other, joiner)
        check_same_keys("join", self.key_format, other.key_format)
        left, right = (TableSide(one.plan, one.key_format, one.value_format) for one in (self, other))
        mine = rows_behind(self.scope, left, other.plan.node)
        theirs = rows_behind(self.scope, right, mine.node)
        plan = tables_join(self.scope.topology, mine, theirs, joiner, kind)
        return self._named(plan, name, self.scope.value(value))


def is_batch(emit: str) -> bool:
    """Whether a table sends one change for each key and batch."""
    if emit not in (UPDATE, BATCH):
        raise TopologyError(f"emit is {emit!r}; it must be {UPDATE!r} or {BATCH!r}")
    return emit == BATCH


def _emitting(scope: Scope, plan: TablePlan, key: Format, value: Format) -> Table:
    """A table that sends its changes as the App's tables do by default."""
    if scope.emits_batches and plan.versions_ms is None:
        plan = each_batch(scope, plan, key)
    return Table(scope, plan, key, value)


def _check_joins(other: object, joiner: object) -> None:
    function(joiner, "a joiner of two values")
    if isinstance(other, GlobalTable):
        raise TopologyError(
            "join: a table is joined with tables of App.table; join its changes with a global table instead: "
            "table.to_stream().join(...)"
        )
    if not isinstance(other, Table):
        raise TopologyError(f"join: a table is joined with a Table, not with {shown_value(other)}")


def table_of(
    scope: Scope, source: Node, key: Format, value: Format, name: str | None, history_ms: int | None = None
) -> Table:
    """The records of a node as a table, versioned if it has a history."""
    return _emitting(scope, table_from(scope, source, key, value, name, history_ms), key, value)
