"""The join of two streams: records of one key whose timestamps are within a window of each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any, ClassVar

from felice.dataclass import dataclass
from felice.pipelines.streams.copies import copies
from felice.pipelines.streams.join_stores import RecentRecords, UnjoinedRecords
from felice.pipelines.streams.operators.joins import Joiner
from felice.pipelines.streams.record import NULL, Dropped, Step
from felice.pipelines.streams.stores import Clocks
from felice.pipelines.streams.windows import JoinWindows

FOREVER = 1 << 62
SIDES = 2


@dataclass(slots=True)
class StreamStreamJoin:
    """One side of the join. `joiner` takes the left value first, on both sides.

    The timestamp of a result is the later one of its two records. If `sends_alone` is true, a record of this side
    without a partner is joined with None once no partner can come any more: when stream time, which both sides share,
    has passed the end of the record's window and the grace period. `unjoined` holds the records that have no partner
    yet. It is None in an inner join, and if the windows do not wait: then such a record is joined with None at once.
    """

    drops: ClassVar[tuple[str, ...]] = (NULL,)
    name: str
    clocks: Clocks
    own: RecentRecords
    other: RecentRecords
    unjoined: UnjoinedRecords | None
    windows: JoinWindows
    joiner: Joiner
    is_left: bool
    sends_alone: bool

    _own_windows: JoinWindows = field(init=False)
    """The windows, seen from this side."""
    _own_clock: str = field(init=False)
    _other_clock: str = field(init=False)
    _oldest: str = field(init=False)

    def __post_init__(self) -> None:
        self._own_windows = self.windows if self.is_left else self.windows.of_other_side()
        self._own_clock, self._other_clock = f"{self.name} {self.is_left}", f"{self.name} {not self.is_left}"
        self._oldest = f"{self.name} oldest"

    def step(self) -> Step:
        """The records of both sides that can no longer find a partner, then the joined records."""
        loop = "for key, value, timestamp in {results}(key, value, timestamp)"
        return Step(loop=loop, names={"results": self._results})

    def _results(self, key: Any, value: Any, timestamp: int) -> Iterator[tuple[Any, Any, int]]:
        clocks, unjoined = self.clocks, self.unjoined
        time = clocks.advance(self.name, timestamp)
        if self.sends_alone and key is None and value is not None:
            yield key, self._joined(value, None), timestamp
            return
        if key is None or value is None:
            raise Dropped(NULL)
        key_bytes = self.own.key_bytes(key)
        self.own.put(key_bytes, value, timestamp)
        self.own.expire(clocks.advance(self._own_clock, timestamp))
        if unjoined is not None and timestamp == time:
            yield from self._alone(unjoined, time)
        start, end = self._window(timestamp)
        found = self.other.fetch(key_bytes, start, end, clocks.get(self._other_clock))
        # The joiner may change the value that it gets.
        for own, (other_timestamp, other) in zip(copies(value, len(found)), found, strict=True):
            if unjoined is not None:
                unjoined.joined(not self.is_left, key_bytes, other_timestamp)
            yield key, self._joined(own, other), max(timestamp, other_timestamp)
        if not found and self.sends_alone:
            if unjoined is None or end < time:
                yield key, self._joined(value, None), timestamp
            else:
                clocks.set(self._oldest, min(timestamp, self._oldest_unjoined()))
                unjoined.add(self.is_left, key_bytes, value, timestamp)

    def _window(self, timestamp: int) -> tuple[int, int]:
        windows = self._own_windows
        return max(0, timestamp - windows.before_ms), max(0, timestamp + windows.after_ms)

    def _oldest_unjoined(self) -> int:
        oldest: int = self.clocks.rows.get(self._oldest, FOREVER)
        return oldest

    def _alone(self, unjoined: UnjoinedRecords, time: int) -> Iterator[tuple[Any, Any, int]]:
        """The records of both sides whose windows are closed.

        Like Kafka Streams, it searches only when the window of a record may be closed: it compares this side's window
        with the last record that the previous search looked at. So some records are sent later than they could be.
        """
        if self._is_open(self._oldest_unjoined(), self._own_windows.after_ms, time):
            return
        oldest = FOREVER
        open_sides: set[bool] = set()
        for place in unjoined.places():
            oldest, is_left, _ = place
            if len(open_sides) == SIDES:
                break
            if self._is_open(oldest, self.windows.after_ms if is_left else self.windows.before_ms, time):
                open_sides.add(is_left)
                if len(open_sides) == SIDES and unjoined.count(place) > 1:
                    break  # Each record is a step: the search ends at the second one of this place.
                continue
            one = unjoined.take(place)
            for value in one.values:
                joined = self.joiner(value, None) if one.is_left else self.joiner(None, value)
                yield one.key, joined, one.timestamp
        self.clocks.set(self._oldest, oldest)

    def _is_open(self, timestamp: int, after_ms: int, time: int) -> bool:
        return timestamp + after_ms + self.windows.grace_ms >= time

    def _joined(self, own: object, other: object) -> object:
        return self.joiner(own, other) if self.is_left else self.joiner(other, own)
