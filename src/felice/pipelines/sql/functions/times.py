"""Functions of dates, times and timestamps.

Differs:    where no time zone is given, it is UTC, and not that of the server. Patterns are those of Java's
            `DateTimeFormatter`, with English names; `felice.pipelines.java.date_formats` says what they leave out.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from felice.pipelines.java.date_formats import date_format, of_date, of_time, of_timestamp
from felice.pipelines.java.texts import DAY_MS
from felice.pipelines.java.zones import zone_of
from felice.pipelines.sql.functions.table import scalar

_DAY_NS = DAY_MS * 1_000_000
_LEAST_LONG, _GREATEST_LONG = -(1 << 63), (1 << 63) - 1
_UNITS_NS = {
    "DAY": _DAY_NS,
    "HOUR": 3_600_000_000_000,
    "MINUTE": 60_000_000_000,
    "SECOND": 1_000_000_000,
    "MILLISECOND": 1_000_000,
    "MICROSECOND": 1000,
    "NANOSECOND": 1,
}


# Texts of moments


@scalar(
    "FORMAT_TIMESTAMP(value TIMESTAMP, pattern STRING) -> STRING",
    "The text of a timestamp in UTC, by a pattern of Java's DateTimeFormatter.",
    (
        "FORMAT_TIMESTAMP(FROM_UNIXTIME(1526075913007), 'yyyy-MM-dd HH:mm:ss.SSS')",
        "'2018-05-11 21:58:33.007'",
    ),
)
@scalar(
    "FORMAT_TIMESTAMP(value TIMESTAMP, pattern STRING, zone STRING) -> STRING",
    "The text of a timestamp in a time zone, by a pattern of Java's DateTimeFormatter.",
    (
        "FORMAT_TIMESTAMP(FROM_UNIXTIME(1526075913000), 'yyyy-MM-dd HH:mm:ss zzz', 'America/Los_Angeles')",
        "'2018-05-11 14:58:33 PDT'",
    ),
)
@scalar(
    "TIMESTAMPTOSTRING(value BIGINT, pattern STRING) -> STRING",
    "Deprecated: FORMAT_TIMESTAMP of milliseconds since 1970.",
    ("TIMESTAMPTOSTRING(0, 'yyyy-MM-dd')", "'1970-01-01'"),
)
@scalar(
    "TIMESTAMPTOSTRING(value BIGINT, pattern STRING, zone STRING) -> STRING",
    "Deprecated: FORMAT_TIMESTAMP of milliseconds since 1970.",
    ("TIMESTAMPTOSTRING(1526075913000, 'HH:mm', 'Europe/London')", "'22:58'"),
)
def timestamp_text(value: int, pattern: str, zone: str = "UTC") -> str:
    """Raises ValueError for a pattern or a zone that does not exist."""
    return date_format(pattern).write(of_timestamp(value, zone_of(zone)))


@scalar(
    "FORMAT_DATE(value DATE, pattern STRING) -> STRING",
    "The text of a date, by a pattern of Java's DateTimeFormatter.",
    ("FORMAT_DATE(FROM_DAYS(18765), 'd MMM yyyy')", "'18 May 2021'"),
)
@scalar(
    "DATETOSTRING(value INTEGER, pattern STRING) -> STRING",
    "Deprecated: FORMAT_DATE of days since 1970.",
    ("DATETOSTRING(18765, 'yyyy-MM-dd')", "'2021-05-18'"),
)
def date_text(value: int, pattern: str) -> str:
    """Raises ValueError for a pattern that cannot be used, or has fields of a time."""
    return date_format(pattern).write(of_date(value))


@scalar(
    "FORMAT_TIME(value TIME, pattern STRING) -> STRING",
    "The text of a time, by a pattern of Java's DateTimeFormatter.",
    ("FORMAT_TIME(PARSE_TIME('13:05', 'HH:mm'), 'h:mm a')", "'1:05 PM'"),
)
def time_text(value: int, pattern: str) -> str:
    """Raises ValueError for a pattern that cannot be used, or has fields of a date."""
    return date_format(pattern).write(of_time(value))


# Moments of texts


@scalar(
    "PARSE_TIMESTAMP(text STRING, pattern STRING) -> TIMESTAMP",
    "The timestamp of a text, by a pattern of Java's DateTimeFormatter. A text that names no time zone is in UTC.",
    (
        "PARSE_TIMESTAMP('2018-05-11T21:58:33Z', 'yyyy-MM-dd''T''HH:mm:ssX')",
        "FROM_UNIXTIME(1526075913000)",
    ),
)
@scalar(
    "PARSE_TIMESTAMP(text STRING, pattern STRING, zone STRING) -> TIMESTAMP",
    "The timestamp of a text, by a pattern of Java's DateTimeFormatter. A text that names no time zone is in this one.",
    (
        "PARSE_TIMESTAMP('2018-05-11 14:58', 'yyyy-MM-dd HH:mm', 'America/Los_Angeles')",
        "FROM_UNIXTIME(1526075880000)",
    ),
)
@scalar(
    "STRINGTOTIMESTAMP(text STRING, pattern STRING) -> BIGINT",
    "Deprecated: PARSE_TIMESTAMP in milliseconds since 1970.",
    ("STRINGTOTIMESTAMP('1970-01-02', 'yyyy-MM-dd')", "86400000"),
)
@scalar(
    "STRINGTOTIMESTAMP(text STRING, pattern STRING, zone STRING) -> BIGINT",
    "Deprecated: PARSE_TIMESTAMP in milliseconds since 1970.",
    ("STRINGTOTIMESTAMP('1970-01-02 01:00', 'yyyy-MM-dd HH:mm', '+0100')", "86400000"),
)
def timestamp_of(text: str, pattern: str, zone: str = "UTC") -> int:
    """What the text does not say is that of 1970-01-01T00:00. Raises ValueError."""
    found = date_format(pattern).read(text)
    return (found.zone or zone_of(zone)).ms(found.days(), found.ns())


@scalar(
    "PARSE_DATE(text STRING, pattern STRING) -> DATE",
    "The date of a text, by a pattern of Java's DateTimeFormatter.",
    ("PARSE_DATE('18-May-2021', 'dd-MMM-yyyy')", "FROM_DAYS(18765)"),
    ("PARSE_DATE('JAN-2022', 'MMM-yyyy')", "FROM_DAYS(18993)"),
)
@scalar(
    "STRINGTODATE(text STRING, pattern STRING) -> INTEGER",
    "Deprecated: PARSE_DATE in days since 1970.",
    ("STRINGTODATE('2021-05-18', 'yyyy-MM-dd')", "18765"),
)
def date_of(text: str, pattern: str) -> int:
    """What the text does not say is that of 1970-01-01. Raises ValueError, also for a pattern with a time."""
    found = date_format(pattern).read(text)
    if found.has_time:
        raise ValueError(f"a date has no time, and the pattern {pattern!r:.60} has one")
    return found.days()


@scalar(
    "PARSE_TIME(text STRING, pattern STRING) -> TIME",
    "The time of a text, by a pattern of Java's DateTimeFormatter.",
    ("FORMAT_TIME(PARSE_TIME('01:02:03 pm', 'hh:mm:ss a'), 'HH:mm:ss')", "'13:02:03'"),
)
def time_of(text: str, pattern: str) -> int:
    """Raises ValueError, also for a pattern with a date, or without an hour."""
    found = date_format(pattern).read(text)
    if found.has_date:
        raise ValueError(f"a time has no date, and the pattern {pattern!r:.60} has one")
    if not found.has_hour():
        raise ValueError(
            f"a time needs an hour, and the pattern {pattern!r:.60} has none, or only half of it"
        )
    return found.ns() % _DAY_NS // 1_000_000


# Moments and numbers


def _current_ms() -> int:
    return time.time_ns() // 1_000_000


scalar(
    "UNIX_TIMESTAMP() -> BIGINT",
    "The milliseconds since 1970 now.",
    ("UNIX_TIMESTAMP() > 1700000000000", "TRUE"),
    is_random=True,
)(_current_ms)


@scalar(
    "UNIX_DATE() -> INTEGER",
    "The days since 1970 now, in UTC.",
    ("UNIX_DATE() > 19000", "TRUE"),
    is_random=True,
)
def today() -> int:
    """The current day."""
    return _current_ms() // DAY_MS


@scalar(
    "UNIX_TIMESTAMP(value TIMESTAMP) -> BIGINT",
    "The milliseconds of a timestamp since 1970.",
    ("UNIX_TIMESTAMP(FROM_UNIXTIME(1000))", "1000"),
)
@scalar(
    "FROM_UNIXTIME(milliseconds BIGINT) -> TIMESTAMP",
    "The timestamp of milliseconds since 1970.",
    ("FROM_UNIXTIME(0)", "PARSE_TIMESTAMP('1970', 'yyyy')"),
)
@scalar(
    "UNIX_DATE(value DATE) -> INTEGER",
    "The days of a date since 1970.",
    ("UNIX_DATE(FROM_DAYS(7))", "7"),
)
@scalar(
    "FROM_DAYS(days INTEGER) -> DATE",
    "The date of days since 1970.",
    ("FROM_DAYS(1)", "PARSE_DATE('1970-01-02', 'yyyy-MM-dd')"),
)
def same(value: int) -> int:
    """Timestamps are milliseconds, and dates days."""
    return value


# Arithmetic


def _nanoseconds(unit: str, interval: int) -> int:
    name = unit.upper()
    found = _UNITS_NS.get(name.removesuffix("S"))
    if found is None:
        raise ValueError(f"units are {', '.join(f'{one}S' for one in _UNITS_NS)}, and got {unit!r:.40}")
    return found * interval


def _toward_zero(number: int, divisor: int) -> int:
    """As Java divides, and so its `TimeUnit` converts."""
    return number // divisor if number >= 0 else -(-number // divisor)


def _moved_timestamp(unit: str, interval: int, value: int) -> int:
    found = value + _toward_zero(_nanoseconds(unit, interval), 1_000_000)
    if not _LEAST_LONG <= found <= _GREATEST_LONG:
        raise ValueError(f"{interval} {unit} lead outside the timestamps")
    return found


def _moved_date(unit: str, interval: int, value: int) -> int:
    return _toward_zero(_moved_timestamp(unit, interval, value * DAY_MS), DAY_MS)


def _moved_time(unit: str, interval: int, value: int) -> int:
    return (value * 1_000_000 + _nanoseconds(unit, interval)) % _DAY_NS // 1_000_000


def _register_arithmetic(
    kind: str, prefix: str, move: Callable[[str, int, int], int], moment: Callable[[int], str]
) -> None:
    """A function that adds a duration, and one that takes it away. Both end where the example says."""

    def moved_back(unit: str, interval: int, value: int) -> int:
        return move(unit, -interval, value)

    for suffix, what, function, first, last in (
        ("ADD", "later by a duration", move, 2, 3),
        ("SUB", "earlier by a duration", moved_back, 3, 2),
    ):
        scalar(
            f"{prefix}{suffix}(unit STRING, interval INTEGER, value {kind}) -> {kind}",
            f"The {kind} that is {what}. Units are DAYS, HOURS, MINUTES, SECONDS, MILLISECONDS and smaller ones.",
            (f"{prefix}{suffix}(DAYS, 1, {moment(first)})", moment(last)),
        )(function)


_register_arithmetic("TIMESTAMP", "TIMESTAMP", _moved_timestamp, lambda day: f"FROM_UNIXTIME({day * DAY_MS})")
_register_arithmetic("DATE", "DATE", _moved_date, lambda day: f"FROM_DAYS({day})")
_register_arithmetic("TIME", "TIME", _moved_time, lambda day: "PARSE_TIME('10:15', 'HH:mm')")


def _offset_ms(value: int, zone: str, other: str) -> int:
    return zone_of(other).offset_ms(value) - zone_of(zone).offset_ms(value)


@scalar(
    "CONVERT_TZ(value TIMESTAMP, zone STRING, other STRING) -> TIMESTAMP",
    "Converts a timestamp from a time zone to another one: when the clocks in `zone` show `value`, those in `other` "
    "show the result.",
    ("CONVERT_TZ(FROM_UNIXTIME(100), '+0200', '+0500')", "FROM_UNIXTIME(10800100)"),
)
def moved_timestamp(value: int, zone: str, other: str) -> int:
    """Raises ValueError for a zone that does not exist."""
    return value + _offset_ms(value, zone, other)


@scalar(
    "CONVERT_TZ(value TIME, zone STRING, other STRING) -> TIME",
    "Converts a time from a time zone to another one: when the clocks in `zone` show `value` on 1970-01-01, those in "
    "`other` show the result.",
    (
        "CONVERT_TZ(PARSE_TIME('23:30', 'HH:mm'), 'America/Los_Angeles', 'America/New_York')",
        "PARSE_TIME('02:30', 'HH:mm')",
    ),
)
def moved_time(value: int, zone: str, other: str) -> int:
    """Raises ValueError for a zone that does not exist."""
    return (value + _offset_ms(value, zone, other)) % DAY_MS
