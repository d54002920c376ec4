"""The join of two streams: records of one key whose timestamps are within a window of each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from felice.dataclass import dataclass
from felice.pipelines.streams.join_stores import RecentRecords, UnjoinedRecords
from felice.pipelines.streams.operators.joins import Joiner
from felice.pipelines.streams.record import Record
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
    yet; it is None in an inner join.
    """

    name: str
    clocks: Clocks
    own: RecentRecords
    other: RecentRecords
    unjoined: UnjoinedRecords | None
    windows: JoinWindows
    joiner: Joiner
    is_left: bool
    sends_alone: bool

    def process(self, record: Record) -> Iterable[Record]:
        """The records of both sides that can no longer find a partner, then the joined records."""
        key, value, timestamp, headers = record
        time = self.clocks.advance(self.name, timestamp)
        if self.sends_alone and key is None and value is not None:
            yield record._replace(value=self._joined(value, None))
            return
        if key is None or value is None:
            return
        self._keep(record)
        if timestamp == time:
            yield from self._alone(record, time)
        start, end = self._window(timestamp)
        other_time = self.clocks.get(f"{self.name} {not self.is_left}")
        found = list(self.other.fetch(key, start, end, other_time))
        for other_timestamp, other in found:
            if self.unjoined is not None:
                self.unjoined.joined(not self.is_left, key, other_timestamp)
            yield Record(key, self._joined(value, other), max(timestamp, other_timestamp), headers)
        if not found and self.sends_alone:
            yield from self._without_partner(record, end, time)

    def _keep(self, record: Record) -> None:
        self.own.put(record.key, record.value, record.timestamp)
        self.own.expire(self.clocks.advance(f"{self.name} {self.is_left}", record.timestamp))

    def _window(self, timestamp: int) -> tuple[int, int]:
        windows = self.windows if self.is_left else self.windows.of_other_side()
        return max(0, timestamp - windows.before_ms), max(0, timestamp + windows.after_ms)

    def _without_partner(self, record: Record, end: int, time: int) -> Iterator[Record]:
        assert self.unjoined is not None, "an outer join keeps records without partner"
        if end < time:
            yield record._replace(value=self._joined(record.value, None))
        else:
            self.clocks.set(self._oldest, min(record.timestamp, self._oldest_unjoined()))
            self.unjoined.add(self.is_left, record.key, record.value, record.timestamp)

    @property
    def _oldest(self) -> str:
        return f"{self.name} oldest"

    def _oldest_unjoined(self) -> int:
        oldest: int = self.clocks.rows.get(self._oldest, FOREVER)
        return oldest

    def _alone(self, record: Record, time: int) -> Iterator[Record]:
        """The records of both sides whose windows are closed.

        Like Kafka Streams, it searches only when the window of a record may be closed: it compares this side's window
        with the last record that the previous search looked at. So some records are sent later than they could be.
        """
        own = self.windows if self.is_left else self.windows.of_other_side()
        if self.unjoined is None or self._is_open(self._oldest_unjoined(), own.after_ms, time):
            return
        oldest = FOREVER
        open_sides: set[bool] = set()
        for place in self.unjoined.places():
            oldest, is_right, _ = place
            if len(open_sides) == SIDES:
                break
            if self._is_open(oldest, self.windows.before_ms if is_right else self.windows.after_ms, time):
                open_sides.add(is_right)
                continue
            one = self.unjoined.take(place)
            for value in one.values:
                joined = self.joiner(value, None) if one.is_left else self.joiner(None, value)
                yield Record(one.key, joined, one.timestamp, record.headers)
        self.clocks.set(self._oldest, oldest)

    def _is_open(self, timestamp: int, after_ms: int, time: int) -> bool:
        return timestamp + after_ms + self.windows.grace_ms >= time

    def _joined(self, own: object, other: object) -> object:
        return self.joiner(own, other) if self.is_left else self.joiner(other, own)
