"""Patterns of Java's `DateTimeFormatter`: they write dates, times and timestamps, and read them.

Differs:     names are English and are read in any case. Texts are read as Java's "smart" style does: the 31st of a
             month of 30 days is its last day, and 24:00 the end of a day.
Leaves out:  the years before 1 and behind 9999, and the letters that depend on a country or that nobody reads again: Y,
             w, W, e, c, F, p, v, B, g, and names of time zones in full (zzzz). They are refused by name.
"""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from felice.dataclass import dataclass
from felice.pipelines.java.date_parts import (
    DATE_FIELDS,
    TIME_FIELDS,
    Fraction,
    LocalizedOffset,
    Moment,
    Names,
    Number,
    Offset,
    Optional,
    Part,
    Reading,
    Text,
    ZoneName,
    read_all,
)
from felice.pipelines.java.patterns import DAYS, MONTHS
from felice.pipelines.java.zones import Zone, fixed

_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_SECOND_NS = 1_000_000_000
_DAY_NS = 86_400 * _SECOND_NS
_DEEPEST = 20
_LONGEST = 1000
_TOKEN = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letter>[A-Za-z])(?P=letter)*|[^A-Za-z']")
_SUPPORTED = "G, u, y, Q, q, M, L, D, d, E, a, h, H, k, K, m, s, S, A, n, N, V, z, O, X, x, Z"
_LIMITS = {
    "year": (1, 9999),
    "quarter": (1, 4),
    "month": (1, 12),
    "day": (1, 31),
    "day_of_year": (1, 366),
    "hour": (0, 24),
    "clock_hour": (1, 24),
    "hour_of_half": (0, 11),
    "clock_hour_of_half": (1, 12),
    "minute": (0, 59),
    "second": (0, 59),
    "nano": (0, _SECOND_NS - 1),
    "milli_of_day": (0, _DAY_NS // 1_000_000 - 1),
    "nano_of_day": (0, _DAY_NS - 1),
}


class DateFormat:
    """A pattern. Raises ValueError for one that cannot be used."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > _LONGEST:
            raise ValueError(f"a pattern has at most {_LONGEST} characters, and this one {len(pattern)}")
        self.pattern = pattern
        self._parts = _Patterns(pattern).parts()

    def write(self, moment: Moment) -> str:
        """The text of a moment. Raises ValueError if it lacks a field of the pattern."""
        return "".join(part.write(moment) for part in self._parts)

    def read(self, text: str) -> Found:
        """What a text says. Raises ValueError for one that the pattern does not read as a whole."""
        reading = Reading(text)
        if read_all(self._parts, reading, 0) != len(text):
            raise ValueError(f"the text {text!r:.60} does not match the pattern {self.pattern!r:.60}")
        for field, value in reading.fields.items():
            least, most = _LIMITS.get(field, (value, value))
            if not least <= value <= most:
                told = field.replace("_", " ")
                raise ValueError(f"the {told} of {text!r:.60} must be from {least} to {most}, and is {value}")
        offset = reading.fields.get("offset")
        zone = reading.zone or (None if offset is None else fixed(offset))
        return Found(text, reading.fields, zone)


@lru_cache(maxsize=1000)
def date_format(pattern: str) -> DateFormat:
    """The pattern of a text. Raises ValueError for one that cannot be used."""
    return DateFormat(pattern)


@dataclass(frozen=True, slots=True)
class Found:
    """What a text says."""

    text: str
    fields: Mapping[str, int]
    zone: Zone | None

    @property
    def has_date(self) -> bool:
        """Whether it says anything of the date."""
        return not DATE_FIELDS.isdisjoint(self.fields)

    @property
    def has_time(self) -> bool:
        """Whether it says anything of the time."""
        return not TIME_FIELDS.isdisjoint(self.fields)

    def days(self) -> int:
        """The day, counted from 1970; what the text does not say is that of 1970-01-01. Raises ValueError."""
        get, base = self.fields.get, self._base()
        year, month, day = get("year", base.year), get("month", base.month), get("day", base.day)
        day_of_year, is_whole = get("day_of_year"), {"year", "month", "day"} <= set(self.fields)
        if day_of_year is not None and not is_whole:
            if day_of_year > 365 + calendar.isleap(year):
                raise ValueError(f"the year {year} has no day {day_of_year}")
            named = datetime.date.fromordinal(datetime.date(year, 1, 1).toordinal() + day_of_year - 1)
            month, day, is_whole = get("month", named.month), named.day, "year" in self.fields
        found = datetime.date(year, month, min(day, calendar.monthrange(year, month)[1]))
        if is_whole and get("weekday", found.isoweekday()) != found.isoweekday():
            raise ValueError(f"{self.text!r:.60}: {found} is a {DAYS[found.weekday()]}")
        return found.toordinal() - _EPOCH_DAY

    def _base(self) -> datetime.date:
        """The first day of 1970. The name of a day moves it within its week, before other fields change it."""
        base = datetime.date.fromordinal(_EPOCH_DAY)
        weekday = self.fields.get("weekday", base.isoweekday())
        return base + datetime.timedelta(days=weekday - base.isoweekday())

    def ns(self) -> int:
        """The nanoseconds since midnight: 0 for what the text does not say, and the length of a day for 24:00.

        Raises ValueError.
        """
        get = self.fields.get
        for field, unit in (("nano_of_day", 1), ("milli_of_day", 1_000_000)):
            if (whole := get(field)) is not None:
                return whole * unit
        seconds = (self._hour() * 60 + get("minute", 0)) * 60 + get("second", 0)
        found = seconds * _SECOND_NS + get("nano", 0)
        if found > _DAY_NS:
            raise ValueError(f"{self.text!r:.60}: a day ends at 24:00")
        return found

    def has_hour(self) -> bool:
        """Whether it says which hour it is."""
        whole = ("hour", "clock_hour", "nano_of_day", "milli_of_day")
        halves = ("hour_of_half", "clock_hour_of_half")
        return any(one in self.fields for one in whole) or (
            "half" in self.fields and any(one in self.fields for one in halves)
        )

    def _hour(self) -> int:
        get = self.fields.get
        if (hour := get("hour")) is not None:
            return hour
        if (hour := get("clock_hour")) is not None:
            return hour % 24
        return get("half", 0) * 12 + get("hour_of_half", get("clock_hour_of_half", 0) % 12)


class _Patterns:
    """Makes parts of a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = self._depth = 0

    def parts(self) -> list[Part]:
        """All parts, or those until the bracket that closes the innermost one."""
        parts: list[Part] = []
        while self._at < len(self._pattern):
            found = _TOKEN.match(self._pattern, self._at)
            if found is None:
                raise self._refused("a quote is not closed")
            self._at = found.end()
            if found.group() == "]" and self._depth:
                break
            parts.append(self._part(found))
        return _divided(parts)

    def _part(self, found: re.Match[str]) -> Part:
        token = found.group()
        if (letter := found["letter"]) is not None:
            return self._field(letter, len(token))
        if (quoted := found["quoted"]) is not None:
            return Text(quoted.replace("''", "'") or "'")
        if token == "[":
            return self._optional()
        if token in "]{}#":
            raise self._refused(f"{token} has no meaning there; a text stands in quotes")
        return Text(token)

    def _optional(self) -> Part:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._refused(f"brackets stand at most {_DEEPEST} deep")
        found = Optional(self.parts())
        self._depth -= 1
        return found

    def _field(self, letter: str, count: int) -> Part:
        make = _FIELDS.get(letter)
        if make is None:
            raise self._refused(f"the letter {letter} is not supported; supported are {_SUPPORTED}")
        found = make(count)
        if found is None:
            raise self._refused(f"{letter * count} is not supported: it has too many or too few letters")
        return found

    def _refused(self, why: str) -> ValueError:
        return ValueError(f"the pattern {self._pattern!r:.60} cannot be used: {why}")


def _divided(parts: list[Part]) -> list[Part]:
    """The parts; a number of any width knows how many digits the numbers of fixed widths behind it take."""
    base: Number | Fraction | None = None
    for part in parts:
        if not isinstance(part, Number | Fraction):
            base = None
        elif base is None or not part.is_fixed:
            base = part
        else:
            base.reserved += part.width if isinstance(part, Fraction) else part.most
    return parts


def _number(field: str) -> Callable[[int], Part | None]:
    """One letter: a number of any width; two: two digits."""
    return lambda count: {1: Number(field), 2: Number(field, 2, 2)}.get(count)


def _long_number(field: str) -> Callable[[int], Part | None]:
    return lambda count: Number(field, count) if count <= 19 else None


def _year(count: int) -> Part | None:
    if count == 2:
        return Number("year", 2, 2, century=2000)
    return Number("year", count, marks_excess=count > 3) if count <= 19 else None


def _day_of_year(count: int) -> Part | None:
    return {1: Number("day_of_year"), 2: Number("day_of_year", 2, 3), 3: Number("day_of_year", 3, 3)}.get(
        count
    )


def _month(count: int) -> Part | None:
    return _number("month")(count) or _named("month", MONTHS)(count)


def _named(field: str, names: tuple[str, ...]) -> Callable[[int], Part | None]:
    """Three letters: short names; four: whole ones; five: the first letter. The first value is 1."""

    def make(count: int) -> Part | None:
        width = {3: 3, 4: 99, 5: 1}.get(count)
        return None if width is None else Names(field, [name[:width] for name in names], 1)

    return make


def _quarter(count: int) -> Part | None:
    names = {3: ["Q1", "Q2", "Q3", "Q4"], 4: [f"{one} quarter" for one in ("1st", "2nd", "3rd", "4th")]}
    return Names("quarter", names[count], 1) if count in names else _number("quarter")(count)


def _era(count: int) -> Part | None:
    # No year before 1 is supported, so the other era is no name here.
    return Names("era", [{4: "Anno Domini", 5: "A"}.get(count, "AD")], 1) if count <= 5 else None


def _offset(zeros: tuple[str, ...]) -> Callable[[int], Part | None]:
    return lambda count: Offset(count, zeros[count - 1]) if count <= 5 else None


def _plain_offset(count: int) -> Part | None:
    if count == 4:
        return LocalizedOffset(is_long=True)
    return Offset(2, "+0000") if count < 4 else Offset(5, "Z") if count == 5 else None


_FIELDS: dict[str, Callable[[int], Part | None]] = {
    "G": _era,
    "u": _year,
    "y": _year,
    "Q": _quarter,
    "q": _quarter,
    "M": _month,
    "L": _month,
    "D": _day_of_year,
    "d": _number("day"),
    "E": lambda count: _named("weekday", DAYS)(max(count, 3)),
    "a": lambda count: Names("half", ("AM", "PM"), 0) if count == 1 else None,
    "h": _number("clock_hour_of_half"),
    "H": _number("hour"),
    "k": _number("clock_hour"),
    "K": _number("hour_of_half"),
    "m": _number("minute"),
    "s": _number("second"),
    "S": lambda count: Fraction(count) if count <= 9 else None,
    "A": _long_number("milli_of_day"),
    "n": _long_number("nano"),
    "N": _long_number("nano_of_day"),
    "V": lambda count: ZoneName(is_short=False) if count == 2 else None,
    "z": lambda count: ZoneName(is_short=True) if count < 4 else None,
    "O": lambda count: LocalizedOffset(is_long=count == 4) if count in (1, 4) else None,
    "X": _offset(("Z",) * 5),
    "x": _offset(("+00", "+0000", "+00:00", "+0000", "+00:00")),
    "Z": _plain_offset,
}


def of_date(days: int) -> Moment:
    """The moment of a DATE. Raises ValueError for years that are left out."""
    try:
        return Moment(datetime.date.fromordinal(days + _EPOCH_DAY))
    except (ValueError, OverflowError):
        raise ValueError("a date outside the years 1 to 9999") from None


def of_time(ms: int) -> Moment:
    """The moment of a TIME."""
    return Moment(ms=ms)


def of_timestamp(ms: int, zone: Zone) -> Moment:
    """The moment of milliseconds since 1970, in a time zone. Raises ValueError for years that are left out."""
    local = zone.moment(ms)
    since = ((local.hour * 60 + local.minute) * 60 + local.second) * 1000 + local.microsecond // 1000
    return Moment(local.date(), since, local, zone)
