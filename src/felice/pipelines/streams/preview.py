"""Shows the latest records of a Stream, or rows of a Table, in a notebook; the notebook's own process computes them.

Keeps true: showing changes nothing: neither the App's topology, nor topics, nor consumer groups.
How:        The last records of the App's topics go through its operators as in a `TestDriver`, with one more operator
            behind the shown node, which keeps the records that pass. Each display first processes newer records.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING

from felice.dataclass import dataclass
from felice.pipelines.streams.driver import TestDriver
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.html import bars, lines, message, table
from felice.pipelines.streams.record import Change, Record, Windowed
from felice.pipelines.streams.scope import PreviewSource, Scope
from felice.pipelines.streams.task import TopicRecord
from felice.pipelines.streams.topology import Node

if TYPE_CHECKING:
    from felice.client import Consumer, Message

SHOWN = 20
READ_TIMEOUT_S = 10.0
AT_ONCE = 500
POLL_S = 0.05


@dataclass(slots=True)
class Kept:
    """The operator behind the shown node: keeps the last records of a stream, or the rows of a table.

    `table_key` is the format of a table's keys; None for a stream.
    """

    table_key: Format | None
    records: deque[Record] = field(default_factory=lambda: deque(maxlen=SHOWN))
    rows: dict[bytes | None, Record] = field(default_factory=dict)

    def process(self, record: Record) -> Iterable[Record]:
        """Nothing: the graph ends here."""
        if self.table_key is None:
            self.records.append(record)
        else:
            self._put(self.table_key.encode(record.key), record)
        return ()

    def _put(self, key: bytes | None, record: Record) -> None:
        assert isinstance(record.value, Change), "tables carry changes"
        self.rows.pop(key, None)
        if record.value.new is not None:
            self.rows[key] = record._replace(value=record.value.new)

    def newest(self) -> list[Record]:
        """The newest records or rows, the newest first."""
        return (
            list(self.records)[::-1]
            if self.table_key is None
            else list(self.rows.values())[: -SHOWN - 1 : -1]
        )


class Preview:
    """One node, with the records that it has seen."""

    def __init__(self, scope: Scope, source: PreviewSource, node: Node, table_key: Format | None) -> None:
        self._source, self._kept = source, Kept(table_key)
        with scope.topology.with_node(Node("preview", lambda stores: self._kept), node):
            self._driver = TestDriver(scope)
        self._topics, self._reads = scope.topology.topics(), scope.topology.reads
        self._positions: dict[tuple[str, int], int] = {}

    def advance(self) -> None:
        """Process the records that came since the last call."""
        from felice.client import Consumer

        settings = {"bootstrap.servers": self._source.bootstrap_servers, "enable.auto.commit": False}
        with Consumer(settings | {"group.id": "felice-preview"}) as consumer:
            for record in sorted(self._new_records(consumer), key=lambda one: one.timestamp):
                self._driver.send_bytes(*record)
        self._driver.forget_written()

    def html(self) -> str:
        """The newest records or rows, and a chart of a table of numbers."""
        records = self._kept.newest()
        if not records:
            where = (
                ", ".join(self._topics) or "topics: the App reads DataFrames only, which a preview does not"
            )
            return message(f"no records yet in {where}")
        return table(records) + _chart(list(self._kept.rows.values()))

    def _new_records(self, consumer: Consumer) -> list[TopicRecord]:
        from felice.client import TopicPartition

        ends = self._ends(consumer)
        left = {place for place, end in ends.items() if self._positions[place] < end}
        consumer.assign([TopicPartition(*place, self._positions[place]) for place in sorted(left)])
        found: list[TopicRecord] = []
        until = time.monotonic() + READ_TIMEOUT_S
        # The next call reads the records that do not arrive in time.
        while left and time.monotonic() < until:
            found += [_topic_record(one) for one in consumer.consume(AT_ONCE, POLL_S) if one.error() is None]
            positions = consumer.position([TopicPartition(*place) for place in left])
            reached = {(one.topic, one.partition): one.offset for one in positions if one.offset >= 0}
            self._positions |= reached
            left -= {place for place, offset in reached.items() if offset >= ends[place]}
        return found

    def _ends(self, consumer: Consumer) -> dict[tuple[str, int], int]:
        from felice.client import TopicPartition

        known = consumer.list_topics(timeout=READ_TIMEOUT_S).topics
        places = [
            (topic, number)
            for topic in sorted(known)
            if self._reads(topic)
            for number in known[topic].partitions
        ]
        ends = {}
        for place in places:
            offsets = consumer.get_watermark_offsets(TopicPartition(*place), timeout=READ_TIMEOUT_S)
            if offsets is None:
                raise TimeoutError(f"no offsets of {place} within {READ_TIMEOUT_S:.0f} s")
            start, ends[place] = offsets
            self._positions.setdefault(place, max(start, ends[place] - self._source.records))
        return ends


def _topic_record(message: Message) -> TopicRecord:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return TopicRecord(str(message.topic()), message.key(), message.value(), message.timestamp()[1], headers)


def _chart(rows: list[Record]) -> str:
    numbers = [row for row in rows if isinstance(row.value, int | float) and not isinstance(row.value, bool)]
    if not rows or len(numbers) < len(rows):
        return ""
    if all(isinstance(row.key, Windowed) for row in numbers):
        return lines([(str(row.key.key), row.key.window.start, row.value) for row in numbers])
    return bars([(str(row.key), row.value) for row in numbers])


def shown(scope: Scope, node: Node, *, table_key: Format | None = None) -> str:
    """HTML of a node, for notebooks. `table_key` is the format of a table's keys; None for a stream."""
    source = scope.previews.source
    if source is None:
        return message(f"{node.name} of {scope.name}; app.preview(bootstrap_servers) shows its records here")
    key = id(node), len(scope.topology.nodes)
    # A topology that has grown has other tasks.
    if key not in scope.previews.shown:
        scope.previews.shown[key] = Preview(scope, source, node, table_key)
    preview = scope.previews.shown[key]
    try:
        preview.advance()
    except Exception as error:
        # Without this a notebook would show only the object's address. The next display starts again, and shows the
        # error again.
        del scope.previews.shown[key]
        return message(f"{node.name} of {scope.name}: {type(error).__name__}: {error}")
    return preview.html()


def live(view: object, for_s: float, every_s: float) -> None:
    """Show a Stream or Table in a notebook again and again, in one place."""
    # Only notebooks have IPython.
    handle = import_module("IPython.display").display(view, display_id=True)
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        time.sleep(every_s)
        handle.update(view)
