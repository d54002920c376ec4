"""Java's time zones: names of regions, and offsets from UTC.

Leaves out:  times outside the years 1 to 9999.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from felice.dataclass import dataclass

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_OFFSET = re.compile(r"([+-])(?:(\d)|(\d\d)(?:(:?)(\d\d)(?:\4(\d\d))?)?)", re.ASCII)
_PREFIXES = ("UTC", "GMT", "UT")
MOST_OFFSET_S = 18 * 3600
_OUTSIDE = "a time outside the years 1 to 9999"


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone; `name` is as Java prints it."""

    name: str
    rules: datetime.tzinfo

    def moment(self, ms: int) -> datetime.datetime:
        """The local time of milliseconds since 1970. Raises ValueError."""
        try:
            return (EPOCH + ms * _MILLISECOND).astimezone(self.rules)
        except OverflowError:
            raise ValueError(_OUTSIDE) from None

    def offset_ms(self, ms: int) -> int:
        """How far local time is ahead of UTC then. Raises ValueError."""
        return (self.moment(ms).utcoffset() or datetime.timedelta()) // _MILLISECOND

    def ms(self, days: int, ns: int) -> int:
        """The milliseconds since 1970 of a local day, counted from 1970, and nanoseconds of it.

        A time that the clocks skipped is as much later; of a time that came twice it is the first. Raises ValueError.
        """
        try:
            local = EPOCH.replace(tzinfo=None) + datetime.timedelta(days=days, microseconds=ns // 1000)
            offset = local.replace(tzinfo=self.rules).utcoffset() or datetime.timedelta()
        except OverflowError:
            raise ValueError(_OUTSIDE) from None
        return days * 86_400_000 + (ns - offset // datetime.timedelta(microseconds=1) * 1000) // 1_000_000


def fixed(seconds: int) -> Zone:
    """The zone that is always so far ahead of UTC. Raises ValueError for more than 18 hours."""
    if abs(seconds) > MOST_OFFSET_S:
        raise ValueError(f"an offset from UTC has at most 18 hours, and got {seconds} s")
    if seconds == 0:
        return UTC
    hours, rest = divmod(abs(seconds), 3600)
    second = f":{rest % 60:02}" if rest % 60 else ""
    name = f"{'-' if seconds < 0 else '+'}{hours:02}:{rest // 60:02}{second}"
    return Zone(name, datetime.timezone(datetime.timedelta(seconds=seconds)))


UTC = Zone("Z", datetime.UTC)


@lru_cache(maxsize=256)
def zone_of(text: str) -> Zone:
    """The zone of a name such as `Europe/London`, `UTC`, `+0200` and `GMT+2`. Raises ValueError."""
    if text == "Z":
        return UTC
    prefix = next((one for one in _PREFIXES if text.startswith(one)), "")
    offset = _seconds(text[len(prefix) :])
    if offset is not None:
        found = fixed(offset)
        return Zone(prefix + (found.name if offset else ""), found.rules) if prefix else found
    if text in _PREFIXES:
        return Zone(text, datetime.UTC)
    try:
        return Zone(text, ZoneInfo(text))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {text!r:.80}") from None


@lru_cache(maxsize=1)
def known_zones() -> Mapping[str, str]:
    """The names of all zones that do not depend on an offset, by these in capitals."""
    return {name.upper(): name for name in (*available_timezones(), *_PREFIXES, "Z")}


def _seconds(text: str) -> int | None:
    found = _OFFSET.fullmatch(text)
    if found is None:
        return None
    sign, hour, hours, _, minute, second = found.groups()
    minutes, seconds = int(minute or 0), int(second or 0)
    if minutes > 59 or seconds > 59:
        return None
    whole = (int(hour or hours) * 60 + minutes) * 60 + seconds
    return -whole if sign == "-" else whole
