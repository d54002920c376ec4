"""Custom processors: classes of an application, with stores and timers.

Keeps true: a processor's state is in its stores, including the times at which its timers are due. A runner may create
            the processor again at any time and load the stores; attributes of the processor are lost then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from felice.dataclass import dataclass
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.operators.records import checked_record
from felice.pipelines.streams.operators.stateless import function
from felice.pipelines.streams.record import (
    LATEST_MS,
    STREAM_TIME,
    WALL_CLOCK,
    Record,
    RecordMetadata,
    RunningTask,
)
from felice.pipelines.streams.scope import Scope
from felice.pipelines.streams.stores import NEVER, TASK_TIME, Clocks, KeyValueStore, Rows
from felice.pipelines.streams.telling import shown
from felice.pipelines.streams.topology import CLOCKS, Node, Stores, TopologyError
from felice.pipelines.streams.window_stores import WindowStore

OnTimer = Callable[[int], Iterable[Record] | None]
"""Called with the time of its clock; the records that it returns are sent on."""


@dataclass(frozen=True, slots=True)
class KeyValues:
    """A store for a processor: one value for each key. Formats are the App's, unless given."""

    name: str
    key: str | Format | None = None
    value: str | Format | None = None
    placed: Rows = Rows.ANYWHERE
    """BY_KEY: a row's key is always the key of the record that changes it. Only then can `felice streams rescale` deal
    the rows out again."""

    def declare(self, scope: Scope) -> str:
        """Add the store to the application."""
        formats = scope.key(self.key), scope.value(self.value)
        make = partial(KeyValueStore, self.name, *formats, placed=self.placed)
        return scope.topology.store(self.name, make)


@dataclass(frozen=True, slots=True)
class WindowValues:
    """A store for a processor: values by key and start of a window.

    A value is removed when a window starts `retention_ms` after its own; an older one is not stored. `retention_ms` is
    at least `size_ms`.
    """

    name: str
    size_ms: int
    retention_ms: int
    key: str | Format | None = None
    value: str | Format | None = None

    def declare(self, scope: Scope) -> str:
        """Add the store to the application."""
        for name, given, least in (("size_ms", self.size_ms, 1), ("retention_ms", self.retention_ms, 0)):
            if given < least:
                raise TopologyError(
                    f"WindowValues({self.name!r}): {name} is {given}, but must be at least {least}"
                )
        if self.retention_ms < self.size_ms:
            raise TopologyError(
                f"WindowValues({self.name!r}): retention_ms is {self.retention_ms}, less than size_ms, {self.size_ms}"
            )
        formats = scope.key(self.key), scope.value(self.value)
        make = partial(ProcessorWindows, self.name, *formats, self.size_ms, self.retention_ms)
        return scope.topology.store(self.name, make)


class ProcessorWindows(WindowStore):
    """A `WindowStore` that keeps its own time, the newest start of a window, as Kafka's store does."""

    clocks: Clocks
    """Those of its task."""

    def __init__(self, name: str, key: Format, value: Format, size_ms: int, retention_ms: int) -> None:
        super().__init__(name, key, value, size_ms, retention_ms)
        self.placed = Rows.ANYWHERE

    def put(self, key: Any, start: int, value: Any, timestamp: int) -> None:
        """Set the value of a key in a window; None deletes it. A window whose retention has passed is left out."""
        newest = self.clocks.advance(self.newest, start)
        if start > newest - self._retention_ms:
            super().put(key, start, value, timestamp)
            self.expire(newest)


StoreOf = KeyValues | WindowValues | str
"""A store of the processor's own, or the name of one that the application has already."""


class Schedule(NamedTuple):
    """A timer."""

    interval_ms: int
    on_timer: OnTimer
    clock: str


class Context:
    """The stores and timers of a processor, passed to `init`."""

    def __init__(self, stores: Stores, names: Sequence[str]) -> None:
        self._stores = {name: stores[name] for name in names}
        self._clocks: Clocks = stores[CLOCKS]
        for store in self._stores.values():
            if isinstance(store, ProcessorWindows):
                store.clocks = self._clocks
        self.schedules: list[Schedule] = []
        self.task: RunningTask | None = None
        """None in `init`."""
        self.is_running = False
        """Whether `init` has ended."""

    def store(self, name: str) -> Any:
        """A store that the processor was given by name."""
        if name not in self._stores:
            raise TopologyError(
                f"the processor has no store {name!r}; it has {', '.join(self._stores) or 'none'}"
            )
        return self._stores[name]

    @property
    def stream_time(self) -> int:
        """The greatest timestamp that the task has seen, with the current record's."""
        return self._clocks.get(TASK_TIME)

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the current record. None in `init` and in timers, and for records that come
        from a repartition.
        """
        return None if self.task is None else self.task.record_metadata()

    @property
    def wall_clock_ms(self) -> int:
        """The time now, in milliseconds since 1970. A batch that runs again sees another one. In a `TestDriver` it
        begins at 0, and `advance_wall_clock` lets it pass.
        """
        if self.task is None:
            raise TopologyError("wall_clock_ms has no value in the processor's init")
        return self.task.wall_clock_ms()

    def schedule(self, interval_ms: int, on_timer: OnTimer, *, clock: str = STREAM_TIME) -> None:
        """Call a function again and again; only possible in `init`.

        By "stream" time: when stream time first reaches a multiple of the interval, 0 included. By the "wall" clock:
        first after one interval. A function that is late by several intervals is called once.
        """
        if self.is_running:
            raise TopologyError("schedule is possible only in the processor's init")
        if clock not in (STREAM_TIME, WALL_CLOCK):
            raise TopologyError(f"clock is {clock!r}; it must be {STREAM_TIME!r} or {WALL_CLOCK!r}")
        if interval_ms < 1:
            raise TopologyError(f"a timer's interval is {interval_ms} ms, but must be at least 1")
        self.schedules.append(Schedule(interval_ms, on_timer, clock))


class Processor:
    """The base of custom processors."""

    def init(self, context: Context) -> None:
        """Called before the first record: the place to look stores up and to schedule timers."""

    def process(self, record: Record) -> Iterable[Record] | None:
        """Returns the results of a record, in order."""
        raise NotImplementedError


class RunProcessor:
    """The operator that runs a processor and its timers."""

    def __init__(
        self, processor: Processor, context: Context, due: Clocks, kept_key: Format | None = None
    ) -> None:
        self._processor, self._due, self._kept_key, self._context = processor, due, kept_key, context
        processor.init(context)
        context.is_running = True
        self._schedules = tuple(context.schedules)

    def in_task(self, task: RunningTask) -> None:
        """For the processor's context."""
        self._context.task = task

    def process(self, record: Record) -> Iterable[Record]:
        """The results of the processor."""
        for given in self._processor.process(record) or ():
            result = _checked(given)
            if self._kept_key is not None and not self._kept_key.is_same(result.key, record.key):
                raise TopologyError(
                    f"process_values changed the key {shown(record.key)} to {shown(result.key)}; use process"
                )
            yield result

    def clocks(self) -> frozenset[str]:
        """The clocks that timers follow."""
        return frozenset(schedule.clock for schedule in self._schedules)

    def on_time(self, clock: str, time: int) -> Iterable[Record]:
        """The results of the timers that are due, the earliest first."""
        mine = [number for number, schedule in enumerate(self._schedules) if schedule.clock == clock]
        for number in sorted(mine, key=lambda number: self._due.get(str(number))):
            schedule, due = self._schedules[number], self._due.get(str(number))
            if due == NEVER and clock == WALL_CLOCK:
                self._due.set(str(number), time + schedule.interval_ms)
            elif due <= time:
                passed = (time - max(0, due)) // schedule.interval_ms + 1
                self._due.set(str(number), max(0, due) + passed * schedule.interval_ms)
                yield from (_checked(one) for one in schedule.on_timer(time) or ())


def _checked(result: object) -> Record:
    """The result of a processor, with headers that do not change; an error if it is no record."""
    record = checked_record(result, "a processor")
    if type(record.timestamp) is not int or not 0 <= record.timestamp <= LATEST_MS:
        raise ValueError(
            f"a processor returned a record with the timestamp {shown(record.timestamp)}; "
            f"it must be an integer from 0 to {LATEST_MS}"
        )
    return record


def processed(
    scope: Scope,
    node: Node,
    make: Callable[[], Processor],
    stores: Sequence[StoreOf],
    name: str | None,
    *,
    kept_key: Format | None = None,
) -> Node:
    """The node of a processor. With `kept_key`, the format of the keys, the processor must not change keys."""
    function(make, "a function or class that makes a processor")
    topology = scope.topology
    label = name or topology.automatic_name("process")
    names = [topology.known_store(one) if isinstance(one, str) else one.declare(scope) for one in stores]
    due = topology.store(f"{label}-timers", partial(Clocks, f"{label}-timers"))
    return topology.operator(
        "process",
        lambda made: RunProcessor(make(), Context(made, names), made[due], kept_key),
        node,
        stores=[*names, due],
    )
