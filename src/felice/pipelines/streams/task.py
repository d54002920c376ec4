"""Runs a sub-topology on one partition: takes a record, and returns the records that it sends to topics.

Keeps true: a record goes through the graph depth first, as in Kafka Streams: everything that an operator's first result
            causes happens before the second result is passed on. Records are bytes outside, and values inside.
            A group of records goes through it node by node, where that gives the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from felice.pipelines.streams.formats import UNREADABLE, UNWRITABLE, Format, FormatError
from felice.pipelines.streams.limits import LimitsOf, RefusedError, TopicLimits
from felice.pipelines.streams.record import (
    STREAM_TIME,
    WALL_CLOCK,
    Group,
    GroupOperator,
    Headers,
    Operator,
    Record,
    TimedOperator,
)
from felice.pipelines.streams.stores import TASK_TIME, Clocks, Store
from felice.pipelines.streams.telling import shown, told
from felice.pipelines.streams.topology import (
    CLOCKS,
    FAIL,
    SKIP,
    DeadLetters,
    Node,
    SubTopology,
    TopicFormats,
    Topology,
    TopologyError,
)


class TopicRecord(NamedTuple):
    """A record of a topic, as bytes."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


class TopicGroup(NamedTuple):
    """Records of a topic, as bytes, in order."""

    topic: str
    group: Group


class GroupError(Exception):
    """A record of a group cannot be processed. The stores are in an unknown state."""


class StreamsError(Exception):
    """A record that an application cannot process; the text names the record and the step."""


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
    try:
        return record._replace(timestamp=_event_time(formats, key, value))
    except StreamsError:
        if formats.on_error == FAIL:
            raise
        return record  # `process` answers it as `on_error` says.


def _event_time(formats: TopicFormats, key: Any, value: Any) -> int:
    assert formats.timestamp_of is not None
    try:
        timestamp = formats.timestamp_of(key, value)
    except Exception as error:
        raise _no_event_time(formats, key, value, told(error)) from error
    if type(timestamp) is not int or timestamp < 0:
        found = f"found {shown(timestamp)}, expected milliseconds since 1970"
        raise _no_event_time(formats, key, value, found)
    return timestamp


def _no_event_time(formats: TopicFormats, key: Any, value: Any, why: str) -> StreamsError:
    return StreamsError(
        f"a record of {formats.title} with key {shown(key)} and value {shown(value)} has no event time: {why}"
    )


def _by_topic(sent: Iterable[tuple[int, TopicRecord]]) -> list[TopicGroup]:
    """Numbered records in groups, each of one topic."""
    groups = []
    for topic, run in groupby(sent, lambda one: one[1].topic):
        numbers, records = zip(*run, strict=True)
        group = Group.of(Record(*one[1:]) for one in records)
        groups.append(TopicGroup(topic, replace(group, numbers=list(numbers))))
    return groups


Push = Callable[[Record], None]
PushGroup = Callable[[Group], None]


class _Unanswered(Exception):
    """Wraps an error to which `on_error` does not apply, and which therefore stops the application."""


class Task:
    """One partition of a sub-topology, with its stores."""

    def __init__(
        self, topology: Topology, part: SubTopology, limits_of: LimitsOf = lambda topic: TopicLimits()
    ) -> None:
        self.stores: dict[str, Store] = topology.made_stores(part)
        self._limits_of = limits_of
        self.skipped = 0
        self.chosen_formats: dict[str, TopicFormats] = {}
        """The formats of the topics that functions chose so far."""
        self._sent: list[TopicRecord] = []
        self._current: tuple[TopicRecord, TopicFormats] | None = None
        """The record that is processed; None while timers run."""
        self._is_set_aside = False
        self._sent_groups: list[TopicGroup] = []
        self._sources: dict[str, tuple[TopicFormats, Push, PushGroup]] = {}
        self._timed: list[tuple[TimedOperator, Push]] = []
        pushes: dict[int, tuple[Push, PushGroup]] = {}
        # A node is made after its parents, so the last node has no children.
        for node in reversed(part.nodes):
            push, push_group = self._pushes(node, [pushes[id(child)] for child in node.children])
            pushes[id(node)] = self._guarded(node, push) if part.answers_errors else push, push_group
            if node.source is not None:
                self._sources[node.source.topic] = node.source, *pushes[id(node)]
        self.takes_groups = part.takes_groups and not (self._timed or part.answers_errors)
        """Whether `process_group` may be called."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the task reads."""
        return frozenset(self._sources)

    def process(self, record: TopicRecord) -> list[TopicRecord]:
        """Returns what the record sends to topics, in order."""
        formats, push, _ = self._sources[record.topic]
        try:
            key, value = formats.key.decode(record.key), formats.value.decode(record.value)
        except FormatError as error:
            return self._bad(record, formats, error)
        self._sent, self._current, self._is_set_aside = [], (record, formats), False
        if formats.timestamp_of is not None and formats.on_error != FAIL:
            try:
                _event_time(formats, key, value)
            except StreamsError as error:
                self._answer(error)
                return self._sent
        if self._timed:
            self._clocks.advance(TASK_TIME, record.timestamp)
        try:
            push(Record(key, value, record.timestamp, record.headers))
        except Exception as error:
            cause = error.__cause__ if isinstance(error, _Unanswered) else error
            raise StreamsError(
                f"a record of {formats.title} with key {shown(key)} and value {shown(value)} "
                f"cannot be processed: {told(cause)}"
            ) from cause
        if self._timed:
            self._on_time(STREAM_TIME, self._clocks.get(TASK_TIME))
        return self._sent

    def process_group(self, topic: str, group: Group) -> list[TopicGroup]:
        """What `process` returns for all these records, in the same order in each topic.

        Raises `GroupError`.
        """
        formats, _, push = self._sources[topic]
        try:
            keys, values = formats.key.decode_all(group.keys), formats.value.decode_all(group.values)
        except UNREADABLE:
            return self._process_each(topic, group)
        self._sent_groups = []
        try:
            push(replace(group, keys=keys, values=values))
        except Exception as error:
            raise GroupError(told(error)) from error
        return self._sent_groups

    def _process_each(self, topic: str, group: Group) -> list[TopicGroup]:
        try:
            return _by_topic(
                (number, sent)
                for number, one in zip(group.numbers, group.records(), strict=True)
                for sent in self.process(TopicRecord(topic, *one))
            )
        except StreamsError as error:
            raise GroupError(str(error)) from error

    @property
    def follows_wall_clock(self) -> bool:
        """Whether an operator has timers of the wall clock."""
        return any(WALL_CLOCK in operator.clocks() for operator, _ in self._timed)

    def advance_wall_clock(self, time: int) -> list[TopicRecord]:
        """Returns what the timers of the wall clock send to topics. The first call starts them."""
        self._sent = []
        self._on_time(WALL_CLOCK, time)
        return self._sent

    def _on_time(self, clock: str, time: int) -> None:
        self._current = None
        for operator, push in self._timed:
            try:
                for result in operator.on_time(clock, time):
                    push(result)
            except Exception as error:
                cause = error.__cause__ if isinstance(error, _Unanswered) else error
                raise StreamsError(f"a timer of the {clock} clock fails at {time}: {told(cause)}") from cause

    @property
    def _clocks(self) -> Clocks:
        clocks = self.stores[CLOCKS]
        assert isinstance(clocks, Clocks)
        return clocks

    def _bad(self, record: TopicRecord, formats: TopicFormats, error: FormatError) -> list[TopicRecord]:
        if isinstance(formats.on_bad_record, DeadLetters):
            return [record._replace(topic=formats.on_bad_record.topic)]
        if formats.on_bad_record == SKIP:
            self.skipped += 1
            return []
        raise StreamsError(f"a record of {formats.title} cannot be read: {error}") from None

    def _pushes(self, node: Node, children: list[tuple[Push, PushGroup]]) -> tuple[Push, PushGroup]:
        forward = _forwarder([one for one, _ in children])
        forward_group = _forwarder([one for _, one in children])
        if node.sink is not None:
            send = self._sender(node.sink)
            return send, self._group_sender(node.sink, send)
        if node.make is None:
            return forward, forward_group
        operator = node.make(self.stores)
        if isinstance(operator, TimedOperator):
            self._timed.append((operator, forward))
        process, process_all = operator.process, _process_all(operator)

        def push(record: Record) -> None:
            for result in process(record):
                forward(result)

        def push_group(group: Group) -> None:
            if results := process_all(group):
                forward_group(results)

        return push, push_group

    def _group_sender(self, formats: TopicFormats, send: Push) -> PushGroup:
        encode_keys, encode_values, topic = formats.key.encode_all, formats.value.encode_all, formats.topic

        def send_each(group: Group) -> None:
            sent = []
            for number, record in zip(group.numbers, group.records(), strict=True):
                self._sent = []
                send(record)
                sent += [(number, one) for one in self._sent]
            self._sent_groups += _by_topic(sent)

        def send_group(group: Group) -> None:
            try:
                keys, values = encode_keys(group.keys), encode_values(group.values)
            except UNWRITABLE:
                send_each(group)
                return
            if formats.on_bad_record != FAIL and self._is_refused(
                topic, replace(group, keys=keys, values=values)
            ):
                send_each(group)
                return
            self._sent_groups.append(TopicGroup(topic, replace(group, keys=keys, values=values)))

        return send_group if formats.topic_of is None else send_each

    def _guarded(self, node: Node, push: Push) -> Push:
        """Calls `push`, and applies `on_error` to errors of the node's functions, so that only this node drops the
        record.
        """

        def guarded(record: Record) -> None:
            try:
                push(record)
            except _Unanswered:
                raise
            except Exception as error:
                # `on_bad_record` of a topic applies to errors of its formats, and errors of the topology concern no
                # record.
                is_of_sink = _is_topic(node.sink) and isinstance(error, FormatError)
                if is_of_sink or isinstance(error, TopologyError):
                    raise _Unanswered from error
                self._answer(error)

        return guarded

    def _answer(self, error: Exception) -> None:
        """Apply `on_error` of the current record's source."""
        if self._current is None or self._current[1].on_error == FAIL:
            raise _Unanswered from error
        record, formats = self._current
        if not isinstance(formats.on_error, DeadLetters):
            self.skipped += 1
        elif not self._is_set_aside:
            self._is_set_aside = True
            about = _about(formats.topic, told(error))
            dead = record._replace(topic=formats.on_error.topic, headers=(*record.headers, *about))
            self._sent.append(dead)

    def _sender(self, formats: TopicFormats) -> Push:
        send = self._strict_sender(formats)
        if formats.on_bad_record == FAIL:
            return send

        def send_or_set_aside(record: Record) -> None:
            try:
                send(record)
                self._check_last()
            except FormatError as error:
                self._set_aside(record, formats, error)

        return send_or_set_aside

    def _check_last(self) -> None:
        """Removes the last record from the results, and raises its error, if the broker would refuse it."""
        last = self._sent[-1]
        try:
            self._limits_of(last.topic).check(*last)
        except RefusedError:
            self._sent.pop()
            raise

    def _is_refused(self, topic: str, group: Group) -> bool:
        limits = self._limits_of(topic)
        try:
            for record in group.records():
                limits.check(topic, *record)
        except RefusedError:
            return True
        return False

    def _set_aside(self, record: Record, formats: TopicFormats, error: FormatError) -> None:
        if not isinstance(formats.on_bad_record, DeadLetters):
            self.skipped += 1
            return
        key, value = _shown(formats.key, record.key), _shown(formats.value, record.value)
        topic, headers = formats.on_bad_record.topic, (*record.headers, *_about(formats.topic, str(error)))
        value, timestamp = self._limits_of(topic).fitted(key, value, record.timestamp, headers)
        self._sent.append(TopicRecord(topic, key, value, timestamp, headers))

    def _strict_sender(self, formats: TopicFormats) -> Push:
        encode_key, encode_value, topic = formats.key.encode, formats.value.encode, formats.topic

        def send(record: Record) -> None:
            key, value, timestamp, headers = record
            self._sent.append(TopicRecord(topic, encode_key(key), encode_value(value), timestamp, headers))

        if formats.topic_of is None:
            return send
        topic_of = formats.topic_of

        def send_to_chosen(record: Record) -> None:
            key, value, timestamp, headers = record
            chosen = _chosen_topic(topic_of, key, value)
            self.chosen_formats[chosen] = formats
            self._sent.append(TopicRecord(chosen, encode_key(key), encode_value(value), timestamp, headers))

        return send_to_chosen


def _is_topic(sink: TopicFormats | None) -> bool:
    return sink is not None and not sink.is_repartition


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


def _chosen_topic(topic_of: Callable[[Any, Any], str], key: Any, value: Any) -> str:
    topic = topic_of(key, value)
    if not isinstance(topic, str) or not topic:
        raise ValueError(f"the topic of the record is {shown(topic)}; it must be the name of a topic")
    return topic


def _process_all(operator: Operator) -> Callable[[Group], Group]:
    if isinstance(operator, GroupOperator):
        return operator.process_all
    return lambda group: group.each(operator.process)


One = TypeVar("One", Record, Group)


def _forwarder(children: list[Callable[[One], None]]) -> Callable[[One], None]:
    if len(children) == 1:
        return children[0]

    def forward(one: One) -> None:
        for child in children:
            child(one)

    return forward
