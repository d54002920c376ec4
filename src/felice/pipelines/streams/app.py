"""`App`: an application with a name, its topics, and the operators between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from felice.pipelines.streams.formats import Format, format_of
from felice.pipelines.streams.global_table import GlobalTable, global_table_of
from felice.pipelines.streams.operators.stateless import KeyValueFunction, by
from felice.pipelines.streams.scope import MakeFrame, PreviewSource, Scope
from felice.pipelines.streams.side_output import SideOutput
from felice.pipelines.streams.stream import UPDATE, Stream, Table, is_batch, table_of
from felice.pipelines.streams.telling import shown
from felice.pipelines.streams.topology import (
    EARLIEST,
    FAIL,
    LATEST,
    DeadLetters,
    OnBadRecord,
    Start,
    TopicFormats,
    Topology,
    TopologyError,
    checked_name,
    whole_name,
)
from felice.protocol.patterns import PatternError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from felice.pipelines.streams.on_spark.program import RunningApp


class App:
    """A stream application. Describe it with `stream` and `table`; run it with `felice run` or a `TestDriver`.

    `key` and `value` are the formats of all topics unless a topic says otherwise: bytes, string, json, int, long or
    double. The name is part of the names of state and internal topics: an App with another name does not find the
    state. With `emit="batch"` its tables send one change for each key and batch (`Table.emit`).
    """

    def __init__(
        self, name: str, *, key: str | Format = "string", value: str | Format = "json", emit: str = UPDATE
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TopologyError(f"{shown(name)} is given where the name of an App is needed")
        self.name = name
        self.scope = Scope(name, format_of(key), format_of(value), emits_batches=is_batch(emit))

    @property
    def topology(self) -> Topology:
        """The graph so far."""
        return self.scope.topology

    def stream(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        *,
        key: str | Format | None = None,
        value: str | Format | None = None,
        ts: KeyValueFunction | str | None = None,
        start: Start | datetime = EARLIEST,
        on_bad_record: OnBadRecord = FAIL,
        on_error: OnBadRecord = FAIL,
    ) -> Stream:
        """A stream of the records of a topic, of several topics, or of all topics whose whole names match a pattern
        (`re.compile("orders-.*")`). Each record is an event of its own. Topics that are created later, and match the
        pattern, are read from their beginning, within `metadata.max.age.ms`.

        `ts` is the field of the value, or a function of key and value, with the time of the event in milliseconds since
        1970. Without it, the record's own timestamp is the time.
        `start` is where the topic begins when the App reads it for the first time: "earliest", "latest", a datetime or
        milliseconds since 1970, or a timedelta before that moment. `felice streams reset --to` overrides it.
        `on_bad_record` says what happens to a record whose bytes are not in the format: "fail" stops the application,
        "skip" drops the record, `DeadLetters(topic)` sends it to that topic.
        `on_error` is the same for a record for which a function of the application raises an error. Only the operator
        with that function drops the record. It also holds behind a repartition, unless records of another source with
        another `on_error` go through the same one: then the application stops.
        """
        if isinstance(topic, re.Pattern):
            if topic.flags & ~re.UNICODE:
                raise TopologyError(
                    f"the pattern {topic.pattern} has flags; write them into the pattern, as in (?i:{topic.pattern})"
                )
            try:
                whole_name(topic.pattern)
            except PatternError as error:
                raise TopologyError(f"{topic.pattern} is no pattern of topics: {error}") from None
            if start != EARLIEST:
                raise TopologyError(
                    f"topics that match a pattern begin at 'earliest'; start is {shown(start)}"
                )
            formats = self._formats(f"/{topic.pattern}/", key, value, on_bad_record, on_error)
            return self._stream(replace(formats, pattern=topic.pattern), ts)
        # Anything else is no list of names, and is refused as a name.
        topics: list[Any] = [*topic] if isinstance(topic, list | tuple) else [topic]
        if not topics:
            raise TopologyError("a stream needs the name of a topic, and the list has none")
        if len(set(topics)) < len(topics):
            raise TopologyError(
                f"a stream of {', '.join(topics)} would have the records of one of them twice"
            )
        at = _checked_start(start)
        first, *others = [
            self._stream(replace(self._formats(one, key, value, on_bad_record, on_error), start=at), ts)
            for one in topics
        ]
        for other in others:
            first = first.merge(other)
        return first

    def from_df(
        self,
        name: str,
        make: MakeFrame,
        *,
        key: str | Format | None = None,
        value: str | Format | None = None,
        ts: KeyValueFunction | str | None = None,
        on_bad_record: OnBadRecord = FAIL,
        on_error: OnBadRecord = FAIL,
    ) -> Stream:
        """A stream of the rows of a Spark DataFrame: `make(spark)` returns it when the application starts.

        It is a streaming DataFrame with a column `value`, and perhaps `key`, `timestamp` and `headers`. Key and value
        are bytes or text in these formats. A row without a timestamp has the time of its batch. The name stands for the
        DataFrame in descriptions, in errors, and in the `send` of a `TestDriver`. For `ts`, `on_bad_record` and
        `on_error` see `stream`.
        """
        checked_name("a DataFrame", name)
        if not callable(make):
            raise TopologyError(
                f"DataFrame {name!r}: from_df takes a function of the session, and got {shown(make)}"
            )
        formats = self._formats(name, key, value, on_bad_record, on_error, is_frame=True)
        stream = self._stream(formats, ts)
        self.scope.frames[name] = make
        return stream

    def table(
        self,
        topic: str,
        *,
        key: str | Format | None = None,
        value: str | Format | None = None,
        name: str | None = None,
        history_ms: int | None = None,
        on_bad_record: OnBadRecord = FAIL,
        on_error: OnBadRecord = FAIL,
    ) -> Table:
        """The records of a topic as a table: the last value of each key; null deletes. `name` is the store's name.

        With `history_ms` the table is versioned: a row is the value with the greatest timestamp, and a replaced value
        is kept for `history_ms` of stream time. A stream that joins the table gets the row as it was at its record's
        time.
        """
        if history_ms is not None and history_ms < 1:
            raise TopologyError(f"the history of a table is {history_ms} ms, but must be at least 1")
        formats = replace(self._formats(topic, key, value, on_bad_record, on_error), is_table=True)
        source = self.topology.source(formats)
        return table_of(self.scope, source, formats.key, formats.value, name, history_ms)

    def global_table(
        self,
        topic: str,
        *,
        key: str | Format | None = None,
        value: str | Format | None = None,
        name: str | None = None,
        on_bad_record: OnBadRecord = FAIL,
        on_error: OnBadRecord = FAIL,
    ) -> GlobalTable:
        """A table of the records of a topic. Every task has all its rows.

        A stream can look up rows by any key, without a repartition by that key. `name` is the store's name.
        """
        if isinstance(on_bad_record, DeadLetters) or isinstance(on_error, DeadLetters):
            raise TopologyError(
                "a global table has no dead letters: each of its copies would send them; use 'skip' or 'fail'"
            )
        formats = self._formats(topic, key, value, on_bad_record, on_error)
        formats = replace(formats, is_table=True, is_global=True)
        return global_table_of(self.scope, formats, name)

    def side_output(
        self, topic: str, *, key: str | Format | None = None, value: str | Format | None = None
    ) -> SideOutput:
        """A topic to which functions of the App's operators send records beside their results, such as a log of errors.

        A function calls the `SideOutput` with key and value, and perhaps a timestamp and headers. The record goes out
        with the results of the same batch, exactly once. `driver.read(topic)` returns it in a test.
        """
        formats = self._formats(checked_name("a topic", topic), key, value, FAIL, FAIL)
        self.topology.side_outputs.append(formats)
        return SideOutput(formats)

    def preview(self, bootstrap_servers: str = "127.0.0.1:9092", *, records: int = 1000) -> None:
        """Let this App's Streams and Tables show their records in a notebook.

        The notebook's process computes them from the newest `records` of each partition of the App's topics, and from
        later records when they are shown again. Nothing is written. Functions are called, also those of `peek`.
        """
        self.scope.previews.source = PreviewSource(bootstrap_servers, records)
        self.scope.previews.shown.clear()

    def start(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        checkpoint: str | Path | None = None,
        spark: SparkSession | None = None,
        master: str = "local[*]",
        client: Mapping[str, object] = MappingProxyType({}),
        partitions: int | None = None,
        state: str | None = None,
        trigger_ms: int = 0,
        max_records: int | None = None,
        max_task_idle_ms: int = 0,
        state_memory_mb: int | None = None,
        local_state: str | Path | None = None,
        until_caught_up: bool = False,
        keep: Mapping[str, str] = MappingProxyType({}),
        drop: Sequence[str] = (),
        say: Callable[[str], None] = lambda line: None,
    ) -> RunningApp:
        """Run the App on Spark in this process, as `felice run` does, and return at once.

        The arguments correspond to options of `felice run`. `client` has client properties, such as its login. With
        `spark`, a session of `felice.spark` is used instead of a new one on `master`. `say` gets a line of text for
        each batch. Modules that the program imports must be importable by Spark's workers, too.
        """
        from felice.pipelines.streams.on_spark.changes import Choices
        from felice.pipelines.streams.on_spark.program import started

        return started(
            self,
            bootstrap_servers,
            checkpoint,
            spark=spark,
            master=master,
            client=client,
            choices=Choices(dict(keep), tuple(drop)),
            say=say,
            partitions=partitions,
            state=state,
            trigger_ms=trigger_ms,
            max_records=max_records,
            max_task_idle_ms=max_task_idle_ms,
            state_memory_mb=state_memory_mb,
            local_state=None if local_state is None else Path(local_state),
            until_caught_up=until_caught_up,
        )

    def run(self, bootstrap_servers: str = "127.0.0.1:9092", **options: Any) -> None:
        """`start` with these options, and wait for the end. Ctrl-C stops the App after the running batch.

        Raises `ApplicationFailed` if it fails.
        """
        with self.start(bootstrap_servers, **options) as running:
            try:
                running.wait()
            except KeyboardInterrupt:
                return

    def describe(self) -> str:
        """The sub-topologies, as text."""
        return self.topology.describe()

    def dot(self) -> str:
        """The sub-topologies as a picture, in the language of Graphviz: `dot -Tsvg` draws it."""
        return self.topology.dot()

    def _stream(self, formats: TopicFormats, ts: KeyValueFunction | str | None) -> Stream:
        if ts is not None:
            formats = replace(formats, timestamp_of=by(ts, formats.value))
        return Stream(self.scope, self.topology.source(formats), formats.key, formats.value)

    def _formats(
        self,
        topic: str,
        key: str | Format | None,
        value: str | Format | None,
        on_bad_record: OnBadRecord,
        on_error: OnBadRecord,
        *,
        is_frame: bool = False,
    ) -> TopicFormats:
        key, value = self.scope.key(key), self.scope.value(value)
        return TopicFormats(topic, key, value, on_bad_record, on_error, is_frame=is_frame).of_topic(topic)


def _checked_start(start: Start | datetime) -> Start:
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise TopologyError(f"start is {start}; give it a time zone, for example tzinfo=UTC")
        start = round(start.timestamp() * 1000)
    is_before = type(start) is int and start >= 0
    if is_before or start in (EARLIEST, LATEST) or (isinstance(start, timedelta) and start >= timedelta()):
        return start
    raise TopologyError(
        f"start is {shown(start)}; it must be 'earliest', 'latest', a datetime, milliseconds since 1970, or a timedelta"
    )
