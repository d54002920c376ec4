"""Numbers and times as Java and Kafka print them."""

from __future__ import annotations

import datetime
import decimal
import math
import struct

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DAY_MS = 86_400_000
_FLOAT = struct.Struct(">f")


def milliseconds_of(value: datetime.date | datetime.time) -> int:
    """The milliseconds of a date or a timestamp since 1970, or of a time since midnight."""
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    return (value - _EPOCH.date()).days * DAY_MS


def moment_text(ms: int) -> str:
    """A date, a time or a timestamp as Kafka prints it, which depends on the value alone."""
    moment = _EPOCH + datetime.timedelta(milliseconds=ms)
    time = f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03}Z"
    if ms < DAY_MS:
        return time
    day = f"{moment.year:04}-{moment:%m-%d}"
    return day if ms % DAY_MS == 0 else f"{day}T{time}"


def number_text(value: float, *, is_single: bool = False) -> str:
    """A floating-point number as Java prints it."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    digits = shortest_single(value) if is_single else repr(value)
    sign, numerals, exponent = decimal.Decimal(digits).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, numerals))
    point = len(text) + exponent
    minus = "-" if math.copysign(1, value) < 0 or sign else ""
    if value == 0:
        return f"{minus}0.0"
    if -3 < point <= 7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def single(value: float) -> float:
    """The number of 32 bits that is nearest, or an infinite one."""
    try:
        found: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return found


def shortest_single(value: float) -> str:
    """The shortest text that is this number of 32 bits."""
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if single(float(text)) == value:
            return text
    return repr(value)
