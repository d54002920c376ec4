"""Dates, times and timestamps in texts, as ksqlDB reads and prints them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone

from felice.pipelines.java.texts import DAY_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.date().toordinal()
_MOMENT = re.compile(
    r"(?P<year>[+-]?\d{1,9})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?)?"
    r"(?:[T ](?:(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,9}))?)?)?)?)?"
    r"(?P<zone>Z|[+-]\d{2}:?\d{2}|[+-]\d{2})?"
)
_TIME = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?")
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})?")


def timestamp_of(text: str) -> int:
    """The milliseconds since 1970 of a text such as `2021`, `2021-03`, `2021-03-04T05:06:07.89+0100`.

    Without a zone it is in UTC. Raises ValueError.
    """
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected a timestamp such as 2021-03-04T05:06:07.890, and got {text!r}")
    parts = {name: int(found[name] or least) for name, least in _PARTS}
    try:
        moment = datetime(**parts, tzinfo=_zone(found["zone"]))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a timestamp: {error}") from None
    return (moment - _EPOCH) // timedelta(milliseconds=1) + _fraction_ms(found["fraction"])


_PARTS = (("year", 1970), ("month", 1), ("day", 1), ("hour", 0), ("minute", 0), ("second", 0))


def date_of(text: str) -> int:
    """The days since 1970 of a text such as `2021-03-04`. Raises ValueError."""
    try:
        return date.fromisoformat(text.strip()).toordinal() - _EPOCH_DAY
    except ValueError:
        raise ValueError(f"expected a date such as 2021-03-04, and got {text!r}") from None


def time_of(text: str) -> int:
    """The milliseconds since midnight of a text such as `05:06` or `05:06:07.890`. Raises ValueError."""
    found = _TIME.fullmatch(text.strip())
    if found is not None:
        hour, minute, second = (int(found[number] or 0) for number in (1, 2, 3))
        if hour < 24 and minute < 60 and second < 60:
            return ((hour * 60 + minute) * 60 + second) * 1000 + _fraction_ms(found[4])
    raise ValueError(f"expected a time such as 05:06:07.890, and got {text!r}")


def _zone(text: str | None) -> timezone:
    found = _OFFSET.fullmatch(text or "")
    if found is None:
        return UTC
    offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
    return timezone(-offset if found[1] == "-" else offset)


def _fraction_ms(digits: str | None) -> int:
    return int((digits or "0").ljust(3, "0")[:3])


def timestamp_text(ms: int) -> str:
    """`2021-03-04T05:06:07.890`."""
    return moment_of(ms).isoformat(timespec="milliseconds")[:_LENGTH]


_LENGTH = len("2021-03-04T05:06:07.890")


def date_text(days: int) -> str:
    """`2021-03-04`."""
    return timestamp_text(days * DAY_MS)[:-13]


def time_text(ms: int) -> str:
    """`05:06`, `05:06:07` or `05:06:07.890`: what follows the last number that is not 0 is left out, as in Java."""
    seconds, fraction = divmod(ms % DAY_MS, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02}:{minute:02}"
    if second or fraction:
        text += f":{second:02}"
    return f"{text}.{fraction:03}" if fraction else text


def moment_of(ms: int) -> datetime:
    """The moment in UTC. Raises ValueError outside the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        raise ValueError(f"{ms} ms since 1970 is not in the years 1 to 9999") from None
