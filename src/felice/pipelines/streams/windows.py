"""Windows of time, and the windows that contain a timestamp. Durations are in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, time, timedelta
from functools import lru_cache
from math import gcd
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from felice.dataclass import dataclass
from felice.pipelines.streams.record import Window
from felice.pipelines.streams.telling import shown


def secs(number: float) -> int:
    """Seconds, in milliseconds."""
    return round(number * 1000)


def mins(number: float) -> int:
    """Minutes, in milliseconds."""
    return secs(number * 60)


def hours(number: float) -> int:
    """Hours, in milliseconds."""
    return mins(number * 60)


def at_least(least: int, **given: int) -> None:
    """Raise `ValueError` for a time, in milliseconds, that is no whole number or too small."""
    for name, value in given.items():
        if type(value) is not int:
            raise ValueError(f"{name} is {shown(value)}; it must be a whole number of milliseconds")
        if value < least:
            raise ValueError(f"{name} is {value} ms, but must be at least {least}")


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of one size that begin every `advance_ms`: tumbling if both are equal, else hopping.

    One of them begins `offset_ms` after 1970 began in UTC, so that days may begin at another hour.
    """

    size_ms: int
    advance_ms: int
    grace_ms: int = 0
    offset_ms: int = 0

    def __post_init__(self) -> None:
        at_least(1, size=self.size_ms, advance=self.advance_ms)
        at_least(0, grace=self.grace_ms)
        if self.advance_ms > self.size_ms:
            raise ValueError(f"windows of {self.size_ms} ms that begin every {self.advance_ms} ms leave gaps")
        if not 0 <= self.offset_ms < self.advance_ms:
            raise ValueError(f"offset is {self.offset_ms} ms, but must be from 0 to {self.advance_ms - 1}")

    @property
    def about(self) -> str:
        """The windows without their grace, for descriptions."""
        return f"a window every {self.advance_ms} ms from {self.offset_ms} ms on"

    def end_of(self, start: int) -> int:
        """The end of the window that begins then."""
        return start + self.size_ms

    def finder(self) -> Callable[[int], tuple[Window, ...]]:
        """A function that returns the windows of a timestamp, the earliest first.

        No window begins before 0, but the one that ends at the offset.
        """
        size_ms, advance_ms, offset_ms = self.size_ms, self.advance_ms, self.offset_ms
        # Windows begin and end at multiples of this.
        step_ms = gcd(size_ms, advance_ms)

        @lru_cache(maxsize=1024)
        def windows_of(step: int) -> tuple[Window, ...]:
            last = step * step_ms // advance_ms * advance_ms + offset_ms
            first = (step * step_ms - size_ms + advance_ms) // advance_ms * advance_ms + offset_ms
            starts = [start for start in range(first, last + 1, advance_ms) if start >= 0] or [last]
            return tuple(Window(start, start + size_ms) for start in starts)

        return lambda timestamp: windows_of((timestamp - offset_ms) // step_ms)


@dataclass(frozen=True, slots=True)
class CalendarWindows:
    """Days, weeks or months of a time zone: a day from one local midnight to the next, so that it has 23 or 25 hours
    where summer time begins or ends. A week begins on Monday.
    """

    unit: str
    zone: str
    grace_ms: int = 0

    def __post_init__(self) -> None:
        at_least(0, grace=self.grace_ms)
        if self.unit not in _LONGEST_DAYS:
            raise ValueError(f"the unit is {self.unit!r}; it must be {', '.join(_LONGEST_DAYS)}")
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"there is no time zone {self.zone!r}; it must be a name such as Europe/Berlin (if none is found, "
                "install tzdata)"
            ) from None

    @property
    def about(self) -> str:
        """The windows without their grace, for descriptions."""
        return f"each {self.unit} of {self.zone}"

    @property
    def size_ms(self) -> int:
        """The longest window: clocks are put back by at most a day."""
        return hours(24 * (_LONGEST_DAYS[self.unit] + 1))

    def end_of(self, start: int) -> int:
        """The end of the window that begins then."""
        # Noon of the first day is in the window in each time zone.
        return self._window_at(start + hours(12)).end

    def finder(self) -> Callable[[int], tuple[Window, ...]]:
        """A function that returns the window of a timestamp."""
        recent: dict[int, Window] = {}

        def windows_of(timestamp: int) -> tuple[Window, ...]:
            place = timestamp // _CACHED_MS
            window = recent.get(place)
            if window is None or not window.start <= timestamp < window.end:
                if len(recent) >= _MOST_CACHED:
                    recent.clear()
                window = recent[place] = self._window_at(timestamp)
            return (window,)

        return windows_of

    def _window_at(self, timestamp: int) -> Window:
        zone = ZoneInfo(self.zone)
        day = datetime.fromtimestamp(timestamp / 1000, zone).date()
        if self.unit == "day":
            first, last = day, day + timedelta(days=1)
        elif self.unit == "week":
            first = day - timedelta(days=day.weekday())
            last = first + timedelta(days=7)
        else:
            first = day.replace(day=1)
            last = (first + timedelta(days=31)).replace(day=1)
        start, end = (round(datetime.combine(at, time(), zone).timestamp() * 1000) for at in (first, last))
        return Window(start, end)


_LONGEST_DAYS = {"day": 1, "week": 7, "month": 31}
_CACHED_MS = 3_600_000
_MOST_CACHED = 1024


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Sessions: records of a key that are at most `gap_ms` apart."""

    gap_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        at_least(1, gap=self.gap_ms)
        at_least(0, grace=self.grace_ms)


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows around records: two records share one if they are at most `difference_ms` apart."""

    difference_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        at_least(0, difference=self.difference_ms, grace=self.grace_ms)


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """How far the other side's record may be before and after this side's; both bounds belong to the window.

    In left and outer joins a record without partner waits until no partner can come any more. With `waits=False` it is
    joined with None at once, and with partners that come later, too.
    """

    before_ms: int
    after_ms: int
    grace_ms: int = 0
    waits: bool = True

    def __post_init__(self) -> None:
        at_least(0, grace=self.grace_ms)
        if self.before_ms + self.after_ms < 0:
            raise ValueError("the window of the join ends before it begins")

    @property
    def about(self) -> str:
        """The windows without their grace, for descriptions."""
        return f"within {self.before_ms} ms before and {self.after_ms} ms after"

    @property
    def size_ms(self) -> int:
        """From the earliest to the latest record that joins one record."""
        return self.before_ms + self.after_ms

    def of_other_side(self) -> JoinWindows:
        """The same windows, seen from the other stream."""
        return JoinWindows(self.after_ms, self.before_ms, self.grace_ms, self.waits)
