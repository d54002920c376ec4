"""The kinds of aggregation of a stream: of all its records, or by windows of time.

Each kind has the store that it needs, the keys of its results, and the operator that aggregates one input. Several
inputs may share one store (`cogroup`); each input has a stream time of its own, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from felice.dataclass import dataclass
from felice.pipelines.streams.formats import Format, session_windowed, time_windowed, windowed_by
from felice.pipelines.streams.operators.aggregate import Aggregator, Initializer, Reducer, StreamAggregate
from felice.pipelines.streams.operators.sliding import SlidingAggregate
from felice.pipelines.streams.operators.stateless import function
from felice.pipelines.streams.operators.windowed import SessionAggregate, WindowAggregate
from felice.pipelines.streams.record import AnyOperator
from felice.pipelines.streams.stores import KeyValueStore, Store
from felice.pipelines.streams.topology import CLOCKS, OnLate, Stores, TopologyError
from felice.pipelines.streams.window_stores import SessionStore, SlidingStore, WindowStore
from felice.pipelines.streams.windows import CalendarWindows, SessionWindows, SlidingWindows, TimeWindows

Merger = Callable[[Any, Any, Any], Any]
"""(key, aggregate, other aggregate) -> aggregate of two sessions that became one"""


class Functions(NamedTuple):
    """The functions of an aggregation. Only sessions need a merger."""

    initializer: Initializer
    aggregator: Aggregator
    merger: Merger | None = None


class Input(NamedTuple):
    """One input of an aggregation in a task."""

    clock: str
    store: str
    stores: Stores
    sends_old: bool


def counted(key: Any, value: Any, count: int) -> int:
    """Adds one."""
    return count + 1


def uncounted(key: Any, value: Any, count: int) -> int:
    """Subtracts one."""
    return count - 1


COUNT = Functions(lambda: 0, counted, lambda key, one, other: one + other)


def reducing(reducer: Reducer) -> Functions:
    """The functions of `reduce`: the first value is the first aggregate, and `reducer` adds each later value."""

    function(reducer, "a reducer of two values")

    def merge(key: Any, one: Any, other: Any) -> Any:
        return other if one is None else reducer(one, other)

    return Functions(lambda: None, first_or(reducer), merge)


def first_or(reducer: Reducer) -> Aggregator:
    """An aggregator that begins with the first value."""

    def aggregate(key: Any, value: Any, so_far: Any) -> Any:
        return value if so_far is None else reducer(so_far, value)

    return aggregate


class Kind:
    """One kind of aggregation."""

    label: ClassVar[str]
    on_late: OnLate = None
    """What happens to late records."""

    @property
    def about(self) -> str:
        """Which windows the aggregates are for; empty without windows."""
        return ""

    @property
    def closes_after_ms(self) -> int | None:
        """How long after a window's end its last change may come; None without windows."""
        return None

    def keys(self, key: Format) -> Format:
        """The format of the result's keys."""
        return key

    def store(self, name: str, key: Format, value: Format) -> Store:
        """A new store for the aggregates."""
        raise NotImplementedError

    def operator(self, of: Input, functions: Functions) -> AnyOperator:
        """The operator of one input."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class OfAll(Kind):
    """One aggregate for each key."""

    label: ClassVar[str] = "aggregate"

    def store(self, name: str, key: Format, value: Format) -> Store:
        """A table."""
        return KeyValueStore(name, key, value)

    def operator(self, of: Input, functions: Functions) -> AnyOperator:
        """Without stream time."""
        store = of.stores[of.store]
        return StreamAggregate(store, functions.initializer, functions.aggregator, of.sends_old)


@dataclass(frozen=True, slots=True)
class InWindows(Kind):
    """One aggregate for each key and window."""

    windows: Any
    on_close: bool = False
    on_late: OnLate = None
    retention_ms: int = 0
    """How long the application wants to query windows; 0: as long as the operator needs them."""

    @property
    def closes_after_ms(self) -> int:
        """The grace period, if a record cannot make a window longer."""
        grace_ms: int = self.windows.grace_ms
        return grace_ms

    def retained(self, needed_ms: int) -> int:
        """How long the store keeps windows that the operator needs so long."""
        if self.retention_ms and self.retention_ms < needed_ms:
            raise TopologyError(
                f"retention_ms is {self.retention_ms}, but these windows are needed for {needed_ms} ms"
            )
        return self.retention_ms or needed_ms


@dataclass(frozen=True, slots=True)
class InTimeWindows(InWindows):
    """One aggregate for each key and tumbling or hopping window."""

    label: ClassVar[str] = "window"
    windows: TimeWindows | CalendarWindows

    @property
    def about(self) -> str:
        """Where the windows begin."""
        return self.windows.about

    def keys(self, key: Format) -> Format:
        """Keys with the start of the window."""
        return windowed_by(key, self.windows)

    def store(self, name: str, key: Format, value: Format) -> Store:
        """Keeps windows until they are closed."""
        size_ms = self.windows.size_ms
        retention_ms = self.retained(size_ms + self.windows.grace_ms)
        return WindowStore(name, key, value, size_ms, retention_ms, self.windows)

    def operator(self, of: Input, functions: Functions) -> AnyOperator:
        """Tumbling, hopping or by the calendar."""
        kept = of.clock, of.stores[CLOCKS], of.stores[of.store], self.windows
        initializer, aggregator, _ = functions
        return WindowAggregate(*kept, initializer, aggregator, of.sends_old, self.on_close)


@dataclass(frozen=True, slots=True)
class InSlidingWindows(InWindows):
    """One aggregate for each key and sliding window."""

    label: ClassVar[str] = "sliding"
    windows: SlidingWindows

    def keys(self, key: Format) -> Format:
        """Keys with the start of the window."""
        return time_windowed(key, self.windows.difference_ms)

    def store(self, name: str, key: Format, value: Format) -> Store:
        """Keeps windows as long as a record may look them up."""
        difference_ms = self.windows.difference_ms
        found_ms = 2 * difference_ms + self.windows.grace_ms
        retention_ms = self.retained(found_ms)
        return SlidingStore(name, key, value, difference_ms, retention_ms, found_ms)

    def operator(self, of: Input, functions: Functions) -> AnyOperator:
        """Sliding."""
        kept = of.clock, of.stores[CLOCKS], of.stores[of.store], self.windows
        initializer, aggregator, _ = functions
        return SlidingAggregate(*kept, initializer, aggregator, of.sends_old, self.on_close)


@dataclass(frozen=True, slots=True)
class InSessions(InWindows):
    """One aggregate for each key and session."""

    label: ClassVar[str] = "session"
    windows: SessionWindows

    @property
    def about(self) -> str:
        """The gap of the sessions."""
        return f"gaps of {self.windows.gap_ms} ms"

    @property
    def closes_after_ms(self) -> int:
        """A record within the gap of a session's end may still make it longer."""
        return self.windows.gap_ms + self.windows.grace_ms

    def keys(self, key: Format) -> Format:
        """Keys with the end and the start of the session."""
        return session_windowed(key)

    def store(self, name: str, key: Format, value: Format) -> Store:
        """Keeps sessions until they are closed."""
        retention_ms = self.retained(self.closes_after_ms)
        return SessionStore(name, key, value, retention_ms, self.closes_after_ms)

    def operator(self, of: Input, functions: Functions) -> AnyOperator:
        """Sessions."""
        initializer, aggregator, merger = functions
        assert merger is not None, "sessions are merged"
        kept = of.clock, of.stores[CLOCKS], of.stores[of.store], self.windows
        return SessionAggregate(*kept, initializer, aggregator, merger, of.sends_old, self.on_close)
