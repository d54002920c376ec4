"""Java's replacement texts and date patterns, in Python's terms.

Leaves out:  date patterns with letters other than `_LETTERS`: they are refused by name. `parse` reads UTC and offsets,
             no names of other time zones.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

_GROUP = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d+)", re.ASCII)


def replaced(match: re.Match[str], replacement: str) -> str:
    """Java's replacement of a match: `$1` and `${name}` stand for groups, a backslash for the character behind it.

    Raises ValueError for a group that does not exist.
    """

    def part(found: re.Match[str]) -> str:
        escaped, name, number = found.groups()
        if escaped is not None:
            return str(escaped)
        digits = number or ""
        while len(digits) > 1 and int(digits) > match.re.groups:
            digits = digits[:-1]  # Java takes the longest number of a group that exists
        try:
            return (match.group(name or int(digits)) or "") + (number or "")[len(digits) :]
        except IndexError:
            raise ValueError(
                f"No group {name or number} in the regular expression {match.re.pattern}"
            ) from None

    return _GROUP.sub(part, replacement)


_Write = Callable[[datetime.datetime], str]
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
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
    name = MONTHS[moment.month - 1]
    return name if width > 3 else name[:3]


def _weekday(moment: datetime.datetime, width: int) -> str:
    name = DAYS[moment.weekday()]
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
    """A pattern of Java's `SimpleDateFormat`, in UTC. Raises ValueError for one that cannot be used."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._parts: list[tuple[str, int]] = []
        position = 0
        while position < len(pattern):
            found = _PART.match(pattern, position)
            if found is None:
                raise ValueError("Unterminated quote")
            position = found.end()
            letter = found.group(2)
            if letter is None:
                text = found.group(1)
                self._parts.append((found.group() if text is None else text.replace("''", "'") or "'", 0))
            elif letter in _LETTERS:
                self._parts.append((letter, len(found.group())))
            else:
                raise ValueError(f"the letter {letter} is not supported; supported are {', '.join(_LETTERS)}")

    def format(self, moment: datetime.datetime) -> str:
        """The text of a moment in UTC."""
        return "".join(_LETTERS[part](moment, width) if width else part for part, width in self._parts)

    def parse(self, text: str) -> datetime.datetime:
        """The moment of a text, in UTC. Text behind the pattern does not matter; values above their ranges count on.

        Raises ValueError for another text, `OverflowError` for a moment that Python cannot hold.
        """
        fields: dict[str, int] = {}
        position = 0
        for number, (part, width) in enumerate(self._parts):
            if not width:
                if not text.startswith(part, position):
                    raise self._unparsed(text)
                position += len(part)
                continue
            start = position
            while text[position : position + 1] in (" ", "\t"):
                position += 1
            if part in _NAMES and (part != "M" or width > 2):
                found = _named(_NAMES[part], text, position)
            elif part in "ZXz":
                found = _offset(part, text, position)
            else:
                # Between two fields without a text nothing but their widths divides them. Spaces count.
                abuts = number + 1 < len(self._parts) and self._parts[number + 1][1] > 0
                found = _number(text, position, start + width if abuts else len(text))
            if found is None:
                raise self._unparsed(text)
            value, end = found
            if part == "y" and width <= 2 and end - position == 2 and text[position:end].isdigit():
                value = _near_year(value)
            fields.pop(part, None)  # the last one counts: keep the order
            fields[part] = value
            position = end
        return _moment(fields)

    def _unparsed(self, text: str) -> ValueError:
        return ValueError(
            f"Could not parse timestamp: value ({text:.60}) does not match pattern ({self.pattern})"
        )


_NAMES: dict[str, tuple[tuple[str, ...], int]] = {
    "M": (MONTHS, 1),
    "E": (DAYS, 1),
    "a": (("AM", "PM"), 0),
}
"""The names of a letter's values, and the value of the first."""
_SIGNED = re.compile(r"-?[0-9]+")
_OFFSETS = {
    "Z": re.compile(r"(?:GMT)?([+-])([0-9]{2}):?([0-9]{2})|GMT|UTC"),
    "X": re.compile(r"([+-])([0-9]{2})(?::?([0-9]{2}))?|Z"),
}
_OFFSETS["z"] = _OFFSETS["Z"]


def _number(text: str, position: int, end: int) -> tuple[int, int] | None:
    found = _SIGNED.match(text, position, end) if end <= len(text) else None
    return None if found is None else (int(found.group()), found.end())


def _named(names: tuple[tuple[str, ...], int], text: str, position: int) -> tuple[int, int] | None:
    """The longest name, in any case: a whole one, or its first three letters."""
    words, first = names
    given = text[position : position + 9].lower()
    for cut in (9, 3):
        for number, word in enumerate(words):
            if given.startswith(word[:cut].lower()):
                return number + first, position + len(word[:cut])
    return None


def _offset(letter: str, text: str, position: int) -> tuple[int, int] | None:
    found = _OFFSETS[letter].match(text, position)
    if found is None:
        return None
    sign, hours, minutes = found.groups()
    seconds = 0 if sign is None else int(hours) * 3600 + int(minutes or 0) * 60
    return (-seconds if sign == "-" else seconds), found.end()


def _near_year(two_digits: int) -> int:
    """The year of two digits that is at most 80 years ago, and less than 20 ahead."""
    first = datetime.datetime.now(datetime.UTC).year - 80
    year = first - first % 100 + two_digits
    return year + 100 if year < first else year


def _moment(fields: dict[str, int]) -> datetime.datetime:
    year, month = fields.get("y", 1970), fields.get("M", 1) - 1
    year, month = year + month // 12, month % 12
    if not 1 <= year <= 9999:
        raise OverflowError
    order = list(fields)
    by_year_day = "D" in fields and not any(one in order[order.index("D") :] for one in "Md")
    start = datetime.datetime(year, 1 if by_year_day else month + 1, 1, tzinfo=datetime.UTC)
    days = fields["D"] - 1 if by_year_day else fields.get("d", 1) - 1
    hours, afternoon = 0, 0
    for letter in order:
        if letter in "Hk":
            hours, afternoon = (
                fields[letter] % 24 if letter == "k" and fields[letter] == 24 else fields[letter],
                0,
            )
        elif letter in "hK":
            hours = 0 if letter == "h" and fields[letter] == 12 else fields[letter]
            afternoon = 12 * fields.get("a", 0)
    zone = next((fields[one] for one in "ZXz" if one in fields), 0)
    return start + datetime.timedelta(
        days=days,
        hours=hours + afternoon,
        minutes=fields.get("m", 0),
        seconds=fields.get("s", 0) - zone,
        milliseconds=fields.get("S", 0),
    )
