"""Runs a sub-topology on one partition: takes records, and returns the records that they send to topics.

Keeps true: a record goes through the graph depth first, as in Kafka Streams: everything that an operator's first result
            causes happens before the second result is passed on. It is alone in the graph: the next record of a group
            starts when it and its results have ended. So a function is called in the same order for one record at a
            time and for groups of any size, and what it does to its arguments has the same effects.
            A record has the bytes of the moment at which it was sent.
How:        Records are bytes outside, and values inside. Nodes become functions that take a record's parts (`Push`) and
            call those of their children; `fusing` makes one function of several nodes in a row. Each error of a node is
            given to the node's `Failed`, which knows the node and the record.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from operator import length_hint
from typing import Any, NamedTuple

from felice.pipelines.errors import FormatError, OutsideError
from felice.pipelines.limits import LimitsOf, TopicLimits
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.fusing import Aside, Fused, Marked, PushAll, Sent, fused
from felice.pipelines.streams.record import (
    LATE,
    LATEST_MS,
    STREAM_TIME,
    WALL_CLOCK,
    AskingOperator,
    BatchedOperator,
    Dropped,
    EndingOperator,
    Failed,
    Group,
    Headers,
    Operator,
    Push,
    Record,
    RecordMetadata,
    Step,
    TimedOperator,
    made,
)
from felice.pipelines.streams.side_output import Sending
from felice.pipelines.streams.stores import TASK_TIME, Clocks, OrderedRows, Store
from felice.pipelines.streams.telling import shown, told
from felice.pipelines.streams.topology import (
    CLOCKS,
    FAIL,
    SKIP,
    DeadLetters,
    Node,
    OnBadRecord,
    SubTopology,
    TopicFormats,
    Topology,
    TopologyError,
    policy_behind,
)

PARTITION = "\0partition"
"""The first header of a record whose partition a function has chosen. Its value is the number, in eight bytes, little
endian.
"""


class TopicRecord(NamedTuple):
    """A record of a topic, as bytes."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


class StreamsError(Exception):
    """A record that an application cannot process; the text names the record and the step."""

    def __init__(self, text: str, node: str | None = None, number: int = 0) -> None:
        super().__init__(text if node is None else f"{text} in step {node}")
        self.text, self.node = text, node
        self.number = number
        """The position of the record in its group."""

    def at(self, where: str) -> StreamsError:
        """The same error with the place of the record."""
        return StreamsError(f"{self.text} ({where})", self.node)


class _Stopped(Exception):
    """Wraps an error of a node that stops the application."""

    def __init__(self, node: str | None) -> None:
        self.node = node


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def with_event_time(record: TopicRecord, formats: TopicFormats) -> TopicRecord:
    """The record with the timestamp that its input chooses. Tasks choose among their inputs by timestamps, so a runner
    calls this before it orders records. A record that cannot be read keeps its timestamp.
    """
    if formats.timestamp_of is None:
        return record
    try:
        key, value = formats.key.decode(record.key), formats.value.decode(record.value)
    except FormatError:
        return record  # `process` answers it as `on_bad_record` says.
    except OutsideError as error:
        raise StreamsError(_outside(formats, error)) from error
    try:
        return record._replace(timestamp=_event_time(formats, key, value))
    except StreamsError:
        if formats.on_error == FAIL:
            raise
        return record  # `process` answers it as `on_error` says.


def event_times(
    formats: TopicFormats, keys: list[bytes | None], values: list[bytes | None]
) -> list[int] | None:
    """The timestamps that an input chooses for records; None if it chooses none for one of them."""
    assert formats.timestamp_of is not None
    try:
        times = list(
            map(formats.timestamp_of, formats.key.decode_all(keys), formats.value.decode_all(values))
        )
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None  # `with_event_time` finds the record.
    return times if all(type(one) is int and 0 <= one <= LATEST_MS for one in times) else None


def _event_time(formats: TopicFormats, key: Any, value: Any) -> int:
    assert formats.timestamp_of is not None
    try:
        timestamp = formats.timestamp_of(key, value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _no_event_time(formats, key, value, told(error)) from error
    if type(timestamp) is not int or not 0 <= timestamp <= LATEST_MS:
        found = f"found {shown(timestamp)}, expected milliseconds since 1970"
        raise _no_event_time(formats, key, value, found)
    return timestamp


def _no_event_time_of(formats: TopicFormats, key: Any, value: Any) -> StreamsError | None:
    """Why an input chooses no timestamp for a record; None if it chooses one."""
    try:
        _event_time(formats, key, value)
    except StreamsError as error:
        return error
    return None


def _outside(formats: TopicFormats, error: OutsideError) -> str:
    return f"records of {formats.title} cannot be processed now: {error}"


def _no_event_time(formats: TopicFormats, key: Any, value: Any, why: str) -> StreamsError:
    return StreamsError(
        f"a record of {formats.title} with key {shown(key)} and value {shown(value)} has no event time: {why}"
    )


class Task:
    """One partition of a sub-topology, with its stores: new ones, unless they are given."""

    def __init__(
        self,
        topology: Topology,
        part: SubTopology,
        limits_of: LimitsOf = lambda topic: TopicLimits(),
        stores: dict[str, Store] | None = None,
        wall_clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.stores = topology.made_stores(part) if stores is None else stores
        self._limits_of, self._is_numbered = limits_of, not part.is_placed
        self.wall_clock_ms = wall_clock_ms
        """Milliseconds since 1970, for processors."""
        self.skipped = 0
        self.dropped: Counter[tuple[str, str]] = Counter()
        """How many records each operator has left out, and why (`Dropped`)."""
        self.may_drop: set[tuple[str, str]] = set()
        self.chosen_formats: dict[str, TopicFormats] = {}
        """The formats of the topics that functions chose so far."""
        self._sent = Sent()
        self._given: tuple[TopicFormats, Group] | None = None
        """The records that are processed. None while timers run."""
        self._left: Iterator[int] = iter(())
        """The timestamps of those after the current one."""
        self._set_aside_last: int | None = None
        """The position of the last record of the group that became a dead letter."""
        self._checked = _topics_that_skip([node.sink for node in part.nodes if node.sink is not None])
        """The topics for which the task leaves out records that a broker would refuse."""
        self._taking_aside = Sending(self._send_from_side)
        self._aside: list[Aside] = []
        """Records that functions and error policies send. They are put between the others afterwards, because a row of
        steps fills some columns only when all records have passed.
        """
        self._ahead = [store for store in self.stores.values() if isinstance(store.rows, OrderedRows)]
        """Stores on disk. Most of them have the keys of the records."""
        self._sources: dict[str, _Input] = {}
        self._timed: list[tuple[TimedOperator, Push, str]] = []
        self._batched: list[BatchedOperator] = []
        self._ending: list[tuple[EndingOperator, Push, Node]] = []
        """In the reverse order of the nodes: an operator may get results of those that follow it here."""
        self._ends: Node | None = None
        """The operator whose results of a batch are processed."""
        behind: dict[int, Fused] = {}
        # A node is made after its parents, so the last node has no children.
        for node in reversed(part.nodes):
            # A part may end before the operators behind it: whoever fills the store of a table runs the table alone.
            steps = self._fused(
                node, fused([behind[id(child)] for child in node.children if id(child) in behind])
            )
            behind[id(node)] = steps if len(node.parents) < 2 else Fused((), (steps.push(),))
            if node.source is not None:
                self._sources[node.source.name] = _Input(node.source, steps, self._sent, self._is_numbered)

    @property
    def topics(self) -> frozenset[str]:
        """The names of the inputs that the task reads (`TopicFormats.name`)."""
        return frozenset(self._sources)

    def process(self, record: TopicRecord, metadata: RecordMetadata | None = None) -> list[TopicRecord]:
        """Returns what the record sends to topics, in order. `metadata` says where it was read."""
        topic, key, value, timestamp, headers = record
        group = Group([key], [value], [timestamp], [headers], lambda number: metadata)
        return records_of(self.process_group(topic, group))

    def record_metadata(self) -> RecordMetadata | None:
        """Where the current record was read; None in timers, and behind a repartition."""
        return None if self._given is None else self._given[1].metadata_of(self._number(self._given[1]))

    def process_group(self, topic: str, group: Group) -> Sent:
        """Returns what these records of an input send to topics, each in turn. It changes with the next call.

        A `StreamsError` has the failing record's number; the stores are in an unknown state then.
        """
        source = self._sources[topic]
        formats = source.formats
        self._begin((formats, group))
        for store in self._ahead:
            store.look_ahead(group.keys, group.timestamps)
        try:
            columns, has_marks = self._read(formats, group)
            push_all = source.push_marked if has_marks else source.push_all
            with self._taking_aside:
                if self._timed:
                    self._push_each(source.push, columns, group)
                else:
                    push_all(*columns, self._left, group.timestamps, group.headers)
        except _Stopped as stopped:
            raise self._error(formats, group, stopped) from stopped.__cause__
        except StreamsError as error:
            error.number = self._number(group)
            raise
        except OutsideError as error:
            number = max(0, self._number(group))
            raise StreamsError(_outside(formats, error), number=number) from error
        return self._all_sent()

    def _all_sent(self) -> Sent:
        """What was sent, without what brokers would refuse, and with what was sent aside."""
        for topic in self._checked:
            self._leave_out_refused(topic)
        if self._aside:
            self._sent.insert(self._aside, is_numbered=self._is_numbered)
        return self._sent

    def _leave_out_refused(self, topic: str) -> None:
        """Skip the records that a topic's broker would refuse."""
        topics, *columns = self._sent.columns()
        places: Sequence[int] = range(len(topics))
        if topics.count(topic) < len(topics):
            places = [place for place, one in enumerate(topics) if one == topic]
            columns = [[column[place] for place in places] for column in columns]
        refused = [places[one] for one in self._limits_of(topic).refused(topic, *columns)]
        if not refused:
            return
        self.skipped += len(refused)
        self._sent.remove(refused, is_numbered=self._is_numbered)
        self._aside[:] = [
            (position - bisect_left(refused, position), number, record)
            for position, number, record in self._aside
        ]

    def _send_from_side(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int | None, headers: Headers
    ) -> None:
        if timestamp is None:
            if self._given is None:
                raise ValueError(
                    f"the side output {topic!r} got no timestamp, and timers and the end of a batch have no record "
                    "whose timestamp it could take"
                )
            timestamp = self._given[1].timestamps[self._number(self._given[1])]
        self._send_aside(TopicRecord(topic, key, value, timestamp, headers))

    def _send_aside(self, record: TopicRecord) -> None:
        number = 0 if self._given is None else self._number(self._given[1])
        self._aside.append((len(self._sent.keys), number, record))

    def _push_each(self, push: Push, columns: tuple[list[Any], list[Any]], group: Group) -> None:
        """Push the records one by one. After each one, the timers run that are due."""
        for key, value, timestamp, headers in zip(*columns, self._left, group.headers, strict=True):
            if isinstance(key, Marked):
                key.answer()
                continue
            self._clocks.advance(TASK_TIME, timestamp)
            push(key, value, timestamp, headers)
            given, self._given = self._given, None
            self._on_time(STREAM_TIME, self._clocks.get(TASK_TIME))
            self._given = given

    def _read(self, formats: TopicFormats, group: Group) -> tuple[tuple[list[Any], list[Any]], bool]:
        """Keys and values, and whether some keys are `Marked`."""
        keys, unread = _read_all(formats.key, group.keys)
        values, others = _read_all(formats.value, group.values)
        marks = {
            number: self._bad(
                formats, group.record(number), formats.on_bad_record, f"cannot be read: {error}"
            )
            for number, error in (others | unread).items()
        }
        if formats.timestamp_of is not None and formats.on_error != FAIL:
            for number, (key, value) in enumerate(zip(keys, values, strict=True)):
                if number not in marks and (error := _no_event_time_of(formats, key, value)) is not None:
                    marks[number] = Marked(partial(self._answer, error, None))
        if group.timestamps and not 0 <= min(group.timestamps) <= max(group.timestamps) <= LATEST_MS:
            policy = formats.on_error if formats.on_bad_record == FAIL else formats.on_bad_record
            for number, timestamp in enumerate(group.timestamps):
                if number not in marks and not 0 <= timestamp <= LATEST_MS:
                    why = f"has the timestamp {timestamp}, which is not from 0 to {LATEST_MS}"
                    marks[number] = self._bad(formats, group.record(number), policy, why)
        if marks:
            keys = [marks.get(number, key) for number, key in enumerate(keys)]
        return (keys, values), bool(marks)

    def _begin(self, given: tuple[TopicFormats, Group] | None) -> None:
        self._sent.clear()
        self._aside.clear()
        self._given, self._set_aside_last = given, None
        if given is not None:
            self._left = iter(given[1].timestamps)

    def _number(self, group: Group) -> int:
        """The position of the current record in its group."""
        return len(group.timestamps) - length_hint(self._left) - 1

    def _error(self, formats: TopicFormats, group: Group, stopped: _Stopped) -> StreamsError:
        """The error of the record that is processed, as it was read: functions may have changed its value."""
        number = self._number(group)
        key, value = formats.key.decode(group.keys[number]), formats.value.decode(group.values[number])
        return StreamsError(
            f"a record of {formats.title} with key {shown(key)} and value {shown(value)} "
            f"cannot be processed: {told(stopped.__cause__)}",
            stopped.node,
            number,
        )

    def begin_batch(self) -> None:
        """Begins another batch: all records that the sub-topologies before made of one batch of the App's input."""
        for operator in self._batched:
            operator.begin_batch()

    def end_batch(self) -> Sent:
        """Returns what operators send to topics at the end of a batch. It changes with the next call."""
        self._begin(None)
        with self._taking_aside:
            for operator, push, node in reversed(self._ending):
                self._ends = node
                for record in operator.end_batch():
                    self._push_change(record, push)
        self._ends = None
        return self._all_sent()

    def _push_change(self, record: Record, push: Push) -> None:
        try:
            push(*record)
        except _Stopped as stopped:
            change = f"a change of key {shown(record.key)} to {shown(record.value)}"
            text = f"{change} cannot be processed at the end of a batch: {told(stopped.__cause__)}"
            raise StreamsError(text, stopped.node) from stopped.__cause__

    def take_dropped(self) -> Counter[tuple[str, str]]:
        """How many records each operator has left out since the last call, and why."""
        taken, self.dropped = self.dropped, Counter()
        return taken

    @property
    def follows_wall_clock(self) -> bool:
        """Whether an operator has timers of the wall clock."""
        return any(WALL_CLOCK in operator.clocks() for operator, _, _ in self._timed)

    def advance_wall_clock(self, time: int) -> list[TopicRecord]:
        """Returns what the timers of the wall clock send to topics. The first call starts them."""
        self._begin(None)
        with self._taking_aside:
            self._on_time(WALL_CLOCK, time)
        return records_of(self._all_sent())

    def _on_time(self, clock: str, time: int) -> None:
        for operator, push, name in self._timed:
            try:
                for result in operator.on_time(clock, time):
                    push(*result)
            except KeyboardInterrupt:
                raise
            except _Stopped as stopped:
                raise _timer_error(clock, time, stopped.__cause__, stopped.node) from stopped.__cause__
            except BaseException as error:
                raise _timer_error(clock, time, error, name) from error

    @property
    def _clocks(self) -> Clocks:
        clocks = self.stores[CLOCKS]
        assert isinstance(clocks, Clocks)
        return clocks

    def _bad(self, formats: TopicFormats, record: Record, policy: OnBadRecord, why: str) -> Marked:
        """A record that reaches no operator."""

        def answer() -> None:
            if isinstance(policy, DeadLetters):
                timestamp = min(max(0, record.timestamp), LATEST_MS)
                self._send_aside(
                    TopicRecord(policy.topic, record.key, record.value, timestamp, record.headers)
                )
            elif policy == SKIP:
                self.skipped += 1
            else:
                raise StreamsError(f"a record of {formats.title} {why}")

        return Marked(answer)

    def _fused(self, node: Node, behind: Fused) -> Fused:
        failed = self._failed(node)
        if node.sink is not None:
            return behind.after(self._sending(node.sink), failed)
        if node.make is None:
            return behind
        operator = node.make(self.stores)
        if isinstance(operator, AskingOperator):
            operator.in_task(self)
        if isinstance(operator, BatchedOperator):
            self._batched.append(operator)
        if isinstance(operator, EndingOperator):
            self._ending.append((operator, behind.push(), node))
        if isinstance(operator, TimedOperator):
            self._timed.append((operator, behind.push(), node.name))
        step = _processing(operator) if isinstance(operator, Operator) else operator.step()
        reasons = {*getattr(operator, "drops", ()), *([step.drops.reason] if step.drops else [])}
        self.may_drop |= {(node.label, reason) for reason in reasons}
        return behind.after(step, failed)

    def _failed(self, node: Node) -> Failed:
        """Applies `on_error` to errors of the node's functions, so that only this node drops the record."""
        is_topic = node.sink is not None and not node.sink.is_repartition
        skips = node.sink is not None and node.sink.topic in self._checked

        def failed(error: BaseException, key: Any, value: Any) -> None:
            if isinstance(error, KeyboardInterrupt | _Stopped | OutsideError):
                raise error
            if isinstance(error, Dropped):
                self._drop(node, error, key, value)
                return
            if node.sink is not None and node.sink.topic_of is None:
                error = _unwritable(node.sink, key, value, error)
            if skips and isinstance(error, FormatError):
                self.skipped += 1
                return
            # `on_bad_record` of a topic applies to errors of its formats, and errors of the topology concern no record.
            if (is_topic and isinstance(error, FormatError)) or isinstance(error, TopologyError):
                raise _Stopped(node.where) from error
            self._answer(error, node.where)

        return failed

    def _answer(self, error: BaseException, node: str | None) -> None:
        """Apply `on_error` of the current record's source."""
        if self._ends is not None and policy_behind(self._ends) == SKIP:
            self.skipped += 1  # The records of the change are gone, so there can be no dead letter.
            return
        if self._given is None or self._given[0].on_error == FAIL:
            raise _Stopped(node) from error
        formats, group = self._given
        number = self._number(group)
        if not isinstance(formats.on_error, DeadLetters):
            self.skipped += 1
        elif self._set_aside_last != number:
            self._set_aside_last = number
            self._send_letter(formats.on_error, told(error))

    def _drop(self, node: Node, dropped: Dropped, key: Any, value: Any) -> None:
        """Count a record that an operator leaves out, and do with a late one what the application says."""
        self.dropped[node.label, dropped.reason] += 1
        if dropped.reason != LATE or node.on_late is None:
            return
        if isinstance(node.on_late, DeadLetters):
            if self._given is not None:  # What timers and the end of a batch send was not read.
                self._send_letter(node.on_late, f"too late for {node.label}")
            return
        try:
            node.on_late(key, value, dropped.timestamp)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._answer(error, node.where)

    def _send_letter(self, letters: DeadLetters, why: str) -> None:
        """Send the current record, as the sub-topology read it, to a topic."""
        assert self._given is not None
        formats, group = self._given
        key, value, timestamp, headers = group.record(self._number(group))
        about = _about(formats.topic, why)
        self._send_aside(TopicRecord(letters.topic, key, value, timestamp, (*headers, *about)))

    def _sending(self, formats: TopicFormats) -> Step:
        """Adds records to what is sent, with the bytes that they have now."""
        skips = formats.topic in self._checked
        if formats.topic_of or formats.partition_of or not (skips or formats.on_bad_record == FAIL):
            return Step("{send}(key, value, timestamp, headers)", {"send": self._careful_sender(formats)})
        (key, names), (value, more) = _written("key", formats.key), _written("value", formats.value)
        statement = f"key_bytes = {key}\nvalue_bytes = {value}"
        return Step(statement, names | more, topic=formats.topic, sent=self._sent, may_skip=skips)

    def _careful_sender(self, formats: TopicFormats) -> Push:
        """For topics or partitions that functions choose, and for topics with an `on_bad_record`."""
        of_topics: dict[str, TopicFormats] = {}

        def send(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            topic, chosen = formats.topic, formats
            if formats.topic_of is not None:
                topic = _chosen_topic(formats.topic_of(key, value))
                if topic not in of_topics:
                    of_topics[topic] = formats.of_topic(topic)
                self.chosen_formats[topic] = chosen = of_topics[topic]
            try:
                record = TopicRecord(
                    topic, chosen.key.encode(key), chosen.value.encode(value), timestamp, headers
                )
                if formats.on_bad_record != FAIL:
                    self._limits_of(topic).check(*record)
            except FormatError as error:
                if formats.on_bad_record == FAIL:
                    raise
                self._set_aside(Record(key, value, timestamp, headers), formats, error)
            else:
                if formats.partition_of is not None:
                    record = with_partition(record, formats.partition_of(key, value))
                self._sent.add(record)

        return send

    def _set_aside(self, record: Record, formats: TopicFormats, error: FormatError) -> None:
        if not isinstance(formats.on_bad_record, DeadLetters):
            self.skipped += 1
            return
        key, value = _shown(formats.key, record.key), _shown(formats.value, record.value)
        topic, headers = formats.on_bad_record.topic, (*record.headers, *_about(formats.topic, str(error)))
        value, timestamp = self._limits_of(topic).fitted(key, value, record.timestamp, headers)
        self._sent.add(TopicRecord(topic, key, value, timestamp, headers))


class _Input:
    """What a task does with the records of a topic."""

    def __init__(self, formats: TopicFormats, steps: Fused, sent: Sent, is_numbered: bool) -> None:
        self.formats, self.push = formats, steps.push()
        self._made = partial(
            steps.push_all, sent, stops_at_errors=formats.on_error == FAIL, is_numbered=is_numbered
        )
        self.push_all = self._made()

    @cached_property
    def push_marked(self) -> PushAll:
        """For groups in which some records reach no operator. Most tasks never need it."""
        return self._made(has_marks=True)


def _chosen_topic(topic: object) -> str:
    if not isinstance(topic, str) or not topic:
        raise ValueError(f"the topic of the record is {shown(topic)}; it must be the name of a topic")
    return topic


def with_partition(record: TopicRecord, number: object) -> TopicRecord:
    """With the number that chooses its partition, as a header; the record itself without one. Raises `ValueError`."""
    if number is None:
        return record
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 63:
        raise ValueError(
            f"the partition of the record is {shown(number)}; it must be a number from 0 to 2^63 - 1, or None"
        )
    return record._replace(headers=((PARTITION, number.to_bytes(8, "little")), *record.headers))


def take_partition(headers: Headers) -> tuple[int | None, Headers]:
    """The number that chooses the partition, if there is one, and the headers without it."""
    if not headers or headers[0][0] != PARTITION:
        return None, headers
    written = headers[0][1]
    assert written is not None, "`with_partition` wrote a number"
    return int.from_bytes(written, "little"), headers[1:]


def without_partition(headers: Headers) -> Headers:
    """The headers of a record as its reader sees them."""
    return take_partition(headers)[1]


def records_of(sent: Sent) -> list[TopicRecord]:
    """What was sent, record by record."""
    return list(map(TopicRecord, *sent.columns()))


def _timer_error(clock: str, time: int, cause: BaseException | None, node: str | None) -> StreamsError:
    return StreamsError(f"a timer of the {clock} clock fails at {time}: {told(cause)}", node)


def _read_all(format_: Format, data: list[bytes | None]) -> tuple[list[Any], dict[int, FormatError]]:
    """The value of each, and by position the errors of those that cannot be read."""
    try:
        return format_.decode_all(data), {}
    except OutsideError:
        raise
    except Exception:
        values, errors = list[Any](), dict[int, FormatError]()
    for number, one in enumerate(data):
        try:
            values.append(format_.decode(one))
        except (OutsideError, KeyboardInterrupt):
            raise
        except BaseException as error:  # Perhaps of a format of the application.
            errors[number] = error if isinstance(error, FormatError) else FormatError(told(error))
            values.append(None)
    return values, errors


def _unwritable(formats: TopicFormats, key: Any, value: Any, error: BaseException) -> BaseException:
    """The error with the value that cannot be written, if there is one."""
    try:
        formats.key.encode(key)
        formats.value.encode(value)
    except FormatError as found:
        return found
    except OutsideError:
        raise
    except BaseException:
        return error
    return error


def _about(topic: str, error: str) -> Headers:
    """The headers of a dead letter."""
    # An error's text may contain a part of the record that is not valid Unicode: JSON can have half of a surrogate
    # pair.
    return ("felice.error", error.encode(errors="backslashreplace")), ("felice.topic", topic.encode())


def _shown(format_: Format, value: Any) -> bytes | None:
    try:
        return format_.encode(value)
    except FormatError:
        return shown(value).encode(errors="backslashreplace")


def _topics_that_skip(sinks: Sequence[TopicFormats]) -> set[str]:
    """The topics for which records that a broker would refuse are only counted. One pass can find these records."""
    if any(one.topic_of for one in sinks):
        return set()
    others = {one.topic for one in sinks if one.on_bad_record != SKIP or one.partition_of}
    return {one.topic for one in sinks} - others


def _written(name: str, format_: Format) -> tuple[str, dict[str, Any]]:
    """The expression for the bytes of a key or value, and its names."""
    text, names = format_.written(name)
    own = {one: f"{one}_{name}" for one in names}
    text = text.format(**{one: f"{{{renamed}}}" for one, renamed in own.items()})
    return f"None if {name} is None else {text}", {own[one]: given for one, given in names.items()}


def _processing(operator: Operator) -> Step:
    record = "{made}({Record}, (key, value, timestamp, headers))"
    return Step(
        loop=f"for key, value, timestamp, headers in {{process}}({record})",
        names={"process": operator.process, "made": made, "Record": Record},
    )
