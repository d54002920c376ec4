"""Windows of time, and the windows that contain a timestamp. Durations are in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import gcd

from felice.dataclass import dataclass
from felice.pipelines.streams.record import Window


def secs(number: float) -> int:
    """Seconds, in milliseconds."""
    return round(number * 1000)


def mins(number: float) -> int:
    """Minutes, in milliseconds."""
    return secs(number * 60)


def hours(number: float) -> int:
    """Hours, in milliseconds."""
    return mins(number * 60)


def _at_least(least: int, **given: int) -> None:
    for name, value in given.items():
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
        _at_least(1, size=self.size_ms, advance=self.advance_ms)
        _at_least(0, grace=self.grace_ms)
        if self.advance_ms > self.size_ms:
            raise ValueError(f"windows of {self.size_ms} ms that begin every {self.advance_ms} ms leave gaps")
        if not 0 <= self.offset_ms < self.advance_ms:
            raise ValueError(f"offset is {self.offset_ms} ms, but must be from 0 to {self.advance_ms - 1}")

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
class SessionWindows:
    """Sessions: records of a key that are at most `gap_ms` apart."""

    gap_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        _at_least(1, gap=self.gap_ms)
        _at_least(0, grace=self.grace_ms)


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows around records: two records share one if they are at most `difference_ms` apart."""

    difference_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        _at_least(0, difference=self.difference_ms, grace=self.grace_ms)


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """How far the other side's record may be before and after this side's; both bounds belong to the window."""

    before_ms: int
    after_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        _at_least(0, grace=self.grace_ms)
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
        return JoinWindows(self.after_ms, self.before_ms, self.grace_ms)
