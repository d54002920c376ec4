"""Java's replacement texts and date patterns, in Python's terms.

Leaves out:  date patterns with letters other than `_LETTERS`: they are refused by name.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

from felice.pipelines.connect.model.errors import ConfigError, DataError

_GROUP = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d)")


def replaced(match: re.Match[str], replacement: str) -> str:
    """Java's replacement of a match: `$1` and `${name}` stand for groups, a backslash for the character behind it."""

    def part(found: re.Match[str]) -> str:
        escaped, name, number = found.groups()
        if escaped is not None:
            return str(escaped)
        try:
            return match.group(name or int(number)) or ""
        except IndexError:
            raise DataError(
                f"No group {name or number} in the regular expression {match.re.pattern}"
            ) from None

    return _GROUP.sub(part, replacement)


_Write = Callable[[datetime.datetime], str]
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def _digits(number: int, width: int) -> str:
    return str(number).zfill(width)


def _year(moment: datetime.datetime, width: int) -> str:
    return _digits(moment.year % 100, 2) if width == 2 else _digits(moment.year, width)


def _month(moment: datetime.datetime, width: int) -> str:
    if width < 3:
        return _digits(moment.month, width)
    name = _MONTHS[moment.month - 1]
    return name if width > 3 else name[:3]


def _weekday(moment: datetime.datetime, width: int) -> str:
    name = _DAYS[moment.weekday()]
    return name if width > 3 else name[:3]


_LETTERS: dict[str, Callable[[datetime.datetime, int], str]] = {
    "y": _year,
    "M": _month,
    "d": lambda moment, width: _digits(moment.day, width),
    "D": lambda moment, width: _digits(moment.timetuple().tm_yday, width),
    "H": lambda moment, width: _digits(moment.hour, width),
    "k": lambda moment, width: _digits(moment.hour or 24, width),
    "h": lambda moment, width: _digits(moment.hour % 12 or 12, width),
    "K": lambda moment, width: _digits(moment.hour % 12, width),
    "m": lambda moment, width: _digits(moment.minute, width),
    "s": lambda moment, width: _digits(moment.second, width),
    "S": lambda moment, width: _digits(moment.microsecond // 1000, width),
    "a": lambda moment, width: "AM" if moment.hour < 12 else "PM",
    "E": _weekday,
    "u": lambda moment, width: _digits(moment.isoweekday(), width),
    "Z": lambda moment, width: "+0000",
    "X": lambda moment, width: "Z",
    "z": lambda moment, width: "UTC" if width < 4 else "Coordinated Universal Time",
}
"""The letters of `SimpleDateFormat`, in UTC and English."""

_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


class DatePattern:
    """A pattern of Java's `SimpleDateFormat`, in UTC. Raises `ConfigError` for one that cannot be used."""

    def __init__(self, option: str, pattern: str) -> None:
        self._parts: list[tuple[str, int]] = []
        position = 0
        while position < len(pattern):
            found = _PART.match(pattern, position)
            if found is None:
                raise ConfigError(f"Invalid value {pattern} for configuration {option}: Unterminated quote")
            position = found.end()
            letter = found.group(2)
            if letter is None:
                text = found.group(1)
                self._parts.append((found.group() if text is None else text.replace("''", "'") or "'", 0))
            elif letter in _LETTERS:
                self._parts.append((letter, len(found.group())))
            else:
                raise ConfigError(
                    f"Invalid value {pattern} for configuration {option}: the letter {letter} is not supported; "
                    f"supported are {', '.join(_LETTERS)}"
                )

    def format(self, moment: datetime.datetime) -> str:
        """The text of a moment in UTC."""
        return "".join(_LETTERS[part](moment, width) if width else part for part, width in self._parts)
