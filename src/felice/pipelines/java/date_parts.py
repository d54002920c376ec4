"""The parts of a pattern of Java's `DateTimeFormatter`: each writes one field of a moment, and reads it from a text.

Keeps true:  reading is as strict as Java's: widths, signs and the division of digits between fields without a text
             between them. Names are English, and read in any case.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from typing import Protocol

from felice.dataclass import dataclass
from felice.pipelines.java.zones import MOST_OFFSET_S, Zone, known_zones, zone_of

FAILED = -1
"""The position behind a part that could not be read."""
_DIGITS = re.compile(r"[0-9]*")


@dataclass(frozen=True, slots=True)
class Moment:
    """What a pattern writes. A date has no time, and a time no date."""

    date: datetime.date | None = None
    ms: int | None = None
    """Milliseconds since midnight."""
    local: datetime.datetime | None = None
    """The date and the time of a timestamp, in its zone."""
    zone: Zone | None = None


class Reading:
    """What was read of a text until now."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.fields: dict[str, int] = {}
        self.zone: Zone | None = None

    def put(self, field: str, value: int, end: int) -> int:
        """Keep the value of a field. Returns `end`, and FAILED if the text said something else before."""
        return end if self.fields.setdefault(field, value) == value else FAILED


class Part(Protocol):
    """One part of a pattern."""

    def write(self, moment: Moment) -> str:
        """Raises ValueError if the moment does not have the field."""

    def read(self, reading: Reading, at: int) -> int:
        """The position behind the part, or FAILED."""


@dataclass(frozen=True, slots=True)
class Text:
    """Characters that stand for themselves."""

    text: str

    def write(self, moment: Moment) -> str:
        """The text."""
        return self.text

    def read(self, reading: Reading, at: int) -> int:
        """In any case of letters."""
        end = at + len(self.text)
        return end if reading.text[at:end].lower() == self.text.lower() else FAILED


@dataclass(slots=True)
class Number:
    """A number of `least` to `most` digits."""

    field: str
    least: int = 1
    most: int = 19
    marks_excess: bool = False
    """Whether a number that is longer than `least` has a sign."""
    century: int = 0
    """What is added to two digits of a year."""
    reserved: int = 0
    """The digits behind it that belong to other fields."""

    @property
    def is_fixed(self) -> bool:
        """Whether it has one width."""
        return self.least == self.most

    def write(self, moment: Moment) -> str:
        """With zeros before it."""
        value = value_of(moment, self.field)
        return str(value % 100 if self.century else value).zfill(self.least)

    def read(self, reading: Reading, at: int) -> int:
        """Digits; a sign only where a number is longer than its pattern."""
        signed = self.marks_excess and reading.text.startswith("+", at)
        start = at + signed
        found = _DIGITS.match(reading.text, start, start + self.most + self.reserved)
        assert found is not None
        length = found.end() - start
        if self.reserved:
            length = max(self.least, length - self.reserved)
        if start + length > found.end() or length < self.least:
            return FAILED
        if self.marks_excess and signed != (length > self.least):
            return FAILED
        return reading.put(
            self.field, int(reading.text[start : start + length]) + self.century, start + length
        )


@dataclass(slots=True)
class Fraction:
    """The first digits behind the point of a second."""

    width: int
    reserved: int = 0
    is_fixed: bool = True

    def write(self, moment: Moment) -> str:
        """Cut, not rounded."""
        return f"{value_of(moment, 'nano'):09}"[: self.width]

    def read(self, reading: Reading, at: int) -> int:
        """All its digits."""
        end = at + self.width
        digits = reading.text[at:end]
        if len(digits) < self.width or not (digits.isascii() and digits.isdigit()):
            return FAILED
        return reading.put("nano", int(digits.ljust(9, "0")), end)


@dataclass(frozen=True, slots=True)
class Names:
    """A field whose values have names."""

    field: str
    names: Sequence[str]
    first: int
    """The value of the first name."""

    def write(self, moment: Moment) -> str:
        """The name."""
        return self.names[value_of(moment, self.field) - self.first]

    def read(self, reading: Reading, at: int) -> int:
        """Of names that are equal, as the first letters of months, it is the last, as in Java."""
        for number, name in reversed(list(enumerate(self.names))):
            if reading.text[at : at + len(name)].lower() == name.lower():
                return reading.put(self.field, number + self.first, at + len(name))
        return FAILED


_PLAIN = "([+-])([0-9][0-9])"
OFFSET_FORMS = (
    _PLAIN + "(?:([0-9][0-9]))?",
    _PLAIN + "([0-9][0-9])",
    _PLAIN + ":([0-9][0-9])",
    _PLAIN + "([0-9][0-9])([0-9][0-9])?",
    _PLAIN + ":([0-9][0-9])(?::([0-9][0-9]))?",
)
"""The forms of offsets from UTC by their number of letters: minutes that may be left out, then must stand, then stand
behind a colon, and the two last with seconds if there are any.
"""


@dataclass(frozen=True, slots=True)
class Offset:
    """How far local time is ahead of UTC."""

    letters: int
    zero: str
    """The text of UTC itself."""

    def write(self, moment: Moment) -> str:
        """The offset."""
        seconds = _offset(moment)
        if seconds == 0:
            return self.zero
        sign, minutes = "-" if seconds < 0 else "+", abs(seconds) // 60
        colon = ":" if self.letters in (3, 5) else ""
        hour, minute, second = f"{minutes // 60:02}", f"{colon}{minutes % 60:02}", abs(seconds) % 60
        if self.letters == 1 and minutes % 60 == 0:
            minute = ""
        return f"{sign}{hour}{minute}" + (f"{colon}{second:02}" if second and self.letters > 3 else "")

    def read(self, reading: Reading, at: int) -> int:
        """The offset."""
        found = re.compile(OFFSET_FORMS[self.letters - 1]).match(reading.text, at)
        if found is not None:
            sign, hours, minutes, *seconds = found.groups(default="0")
            return _put_offset(reading, sign, (hours, minutes, *seconds), found.end())
        end = Text(self.zero).read(reading, at)
        return reading.put("offset", 0, end) if end != FAILED else FAILED


@dataclass(frozen=True, slots=True)
class LocalizedOffset:
    """`GMT+8`, or `GMT+08:00` if it `is_long`."""

    is_long: bool

    def write(self, moment: Moment) -> str:
        """The offset behind GMT."""
        seconds = _offset(moment)
        if seconds == 0:
            return "GMT"
        hours, rest = divmod(abs(seconds), 3600)
        hour = f"{hours:02}" if self.is_long else str(hours)
        minute = f":{rest // 60:02}" if self.is_long or rest else ""
        return f"GMT{'-' if seconds < 0 else '+'}{hour}{minute}" + (f":{rest % 60:02}" if rest % 60 else "")

    def read(self, reading: Reading, at: int) -> int:
        """The offset behind GMT."""
        found = (_LONG if self.is_long else _SHORT).match(reading.text, at)
        if found is None:
            return FAILED
        sign, *parts = found.groups(default="0")
        return _put_offset(reading, sign, parts, found.end())


_LONG = re.compile(r"GMT(?:([+-])([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?)?")
_SHORT = re.compile(r"GMT(?:([+-])([0-9]{1,2})(?::([0-9]{2})(?::([0-9]{2}))?)?)?")


def _put_offset(reading: Reading, sign: str, parts: Sequence[str], end: int) -> int:
    hours, minutes, seconds = (*map(int, parts), 0)[:3]
    total = (hours * 60 + minutes) * 60 + seconds
    if minutes > 59 or seconds > 59 or total > MOST_OFFSET_S:
        return FAILED
    return reading.put("offset", -total if sign == "-" else total, end)


@dataclass(frozen=True, slots=True)
class ZoneName:
    """The identifier of a time zone, or its short name, such as PST."""

    is_short: bool

    def write(self, moment: Moment) -> str:
        """The name."""
        if moment.zone is None or moment.local is None:
            raise _lacks("time zone")
        if self.is_short and not isinstance(moment.zone.rules, datetime.timezone):
            return moment.local.tzname() or moment.zone.name
        return moment.zone.name

    def read(self, reading: Reading, at: int) -> int:
        """A short name of a zone in America or Europe, or an identifier."""
        if (found := _FIXED.match(reading.text, at)) is not None:
            return self._keep(reading, found.group(), found.end())
        longest = _NAME.match(reading.text, at)
        for end in range(longest.end(), at, -1) if longest else ():
            name = reading.text[at:end].upper()
            if known := _SHORT_NAMES.get(name) or known_zones().get(name):
                return self._keep(reading, known, end)
        return FAILED

    def _keep(self, reading: Reading, name: str, end: int) -> int:
        try:
            reading.zone = zone_of(name)
        except ValueError:
            return FAILED
        return end


_FIXED = re.compile(r"(?:UTC|GMT|UT)?[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_/+-]{0,49}")
_SHORT_NAMES = {
    name: zone
    for names, zone in (
        ("HST", "Pacific/Honolulu"),
        ("AKST AKDT", "America/Anchorage"),
        ("PST PDT", "America/Los_Angeles"),
        ("MST MDT", "America/Denver"),
        ("CST CDT", "America/Chicago"),
        ("EST EDT", "America/New_York"),
        ("WET WEST", "Europe/Lisbon"),
        ("BST", "Europe/London"),
        ("CET CEST", "Europe/Paris"),
        ("EET EEST", "Europe/Athens"),
        ("MSK", "Europe/Moscow"),
        ("JST", "Asia/Tokyo"),
        ("AEST AEDT", "Australia/Sydney"),
    )
    for name in names.split()
}


@dataclass(frozen=True, slots=True)
class Optional:
    """Parts that are left out if one of them cannot be written or read."""

    parts: Sequence[Part]

    def write(self, moment: Moment) -> str:
        """All parts, or none."""
        try:
            return "".join(part.write(moment) for part in self.parts)
        except ValueError:
            return ""

    def read(self, reading: Reading, at: int) -> int:
        """All parts, or none."""
        before = dict(reading.fields), reading.zone
        end = read_all(self.parts, reading, at)
        if end != FAILED:
            return end
        reading.fields, reading.zone = before
        return at


def read_all(parts: Sequence[Part], reading: Reading, at: int) -> int:
    """The position behind the last part, or FAILED."""
    for part in parts:
        at = part.read(reading, at)
        if at == FAILED:
            return FAILED
    return at


def value_of(moment: Moment, field: str) -> int:
    """The value of a field. Raises ValueError if the moment does not have it."""
    if (of_date := _OF_DATE.get(field)) is not None:
        if moment.date is None:
            raise _lacks(field)
        return of_date(moment.date)
    if moment.ms is None:
        raise _lacks(field)
    return _OF_TIME[field](moment.ms)


def _offset(moment: Moment) -> int:
    if moment.local is None:
        raise _lacks("offset from UTC")
    return int((moment.local.utcoffset() or datetime.timedelta()).total_seconds())


def _lacks(field: str) -> ValueError:
    return ValueError(f"the value has no {field.replace('_', ' ')}, which the pattern asks for")


_OF_DATE: dict[str, Callable[[datetime.date], int]] = {
    "era": lambda date: 1,
    "year": lambda date: date.year,
    "quarter": lambda date: (date.month + 2) // 3,
    "month": lambda date: date.month,
    "day": lambda date: date.day,
    "day_of_year": lambda date: date.timetuple().tm_yday,
    "weekday": lambda date: date.isoweekday(),
}
_OF_TIME: dict[str, Callable[[int], int]] = {
    "half": lambda ms: ms // 43_200_000,
    "hour": lambda ms: ms // 3_600_000,
    "clock_hour": lambda ms: ms // 3_600_000 or 24,
    "hour_of_half": lambda ms: ms // 3_600_000 % 12,
    "clock_hour_of_half": lambda ms: ms // 3_600_000 % 12 or 12,
    "minute": lambda ms: ms // 60_000 % 60,
    "second": lambda ms: ms // 1000 % 60,
    "nano": lambda ms: ms % 1000 * 1_000_000,
    "milli_of_day": lambda ms: ms,
    "nano_of_day": lambda ms: ms * 1_000_000,
}
DATE_FIELDS, TIME_FIELDS = frozenset(_OF_DATE), frozenset(_OF_TIME)
