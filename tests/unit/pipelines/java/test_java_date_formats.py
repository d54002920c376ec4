"""Patterns of Java's `DateTimeFormatter`."""

from __future__ import annotations

import pytest

from felice.pipelines.java.date_formats import date_format, of_date, of_time, of_timestamp
from felice.pipelines.java.zones import UTC, zone_of

MS = 1526075913007  # 2018-05-11T21:58:33.007Z
PACIFIC = zone_of("America/Los_Angeles")
KOLKATA = zone_of("Asia/Kolkata")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2018-05-11T14:58:33.007-07:00"),
        ("yyyyMMddHHmmssSSS", "20180511145833007"),
        ("EEEE EEE EEEEE, d MMMM MMM MMMMM yy", "Friday Fri F, 11 May May M 18"),
        ("h:m:s a K kk", "2:58:33 PM 2 14"),
        ("u uuuuu D DDD Q QQ QQQ QQQQ G GGGG", "2018 02018 131 131 2 02 Q2 2nd quarter AD Anno Domini"),
        ("S SS SSSSSSSSS n A N", "0 00 007000000 7000000 53913007 53913007000000"),
        (
            "z VV X XX XXX x Z ZZZZ ZZZZZ O",
            "PDT America/Los_Angeles -07 -0700 -07:00 -07 -0700 GMT-07:00 -07:00 GMT-7",
        ),
        ("'it''s' '' [HH]", "it's ' 14"),
    ],
)
def test_timestamps(pattern: str, text: str) -> None:
    assert date_format(pattern).write(of_timestamp(MS, PACIFIC)) == text


@pytest.mark.parametrize(
    ("pattern", "zone", "text"),
    [
        ("X XXX x Z ZZZZZ O z VV", UTC, "Z Z +00 +0000 Z GMT Z Z"),
        ("X XXX O OOOO z", KOLKATA, "+0530 +05:30 GMT+5:30 GMT+05:30 IST"),
        ("XXXXX XXXX z VV", zone_of("+01:02:03"), "+01:02:03 +010203 +01:02:03 +01:02:03"),
        ("VV z", zone_of("UTC+2"), "UTC+02:00 UTC+02:00"),
    ],
)
def test_zones_are_written(pattern: str, zone: object, text: str) -> None:
    assert date_format(pattern).write(of_timestamp(MS, zone)) == text  # type: ignore[arg-type]


def test_dates_have_no_time_and_times_no_date() -> None:
    assert date_format("yyyy-MM-dd[ HH:mm]").write(of_date(-1)) == "1969-12-31"
    assert date_format("[yyyy ]k:mm").write(of_time(59_999)) == "24:00"
    for pattern, moment in (("HH", of_date(0)), ("d", of_time(0)), ("X", of_date(0)), ("z", of_time(0))):
        with pytest.raises(ValueError, match="the value has no "):
            date_format(pattern).write(moment)
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        of_date(10**9)


@pytest.mark.parametrize(
    ("pattern", "text", "ms"),
    [
        ("yyyy-MM-dd'T'HH:mm:ssX", "2018-05-11T21:58:33Z", 1526075913000),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2018-05-11T14:58:33.007-07:00", MS),
        ("yyyy-MM-dd HH:mm z", "2018-05-11 14:58 pdt", 1526075880000),
        ("yyyy-MM-dd HH:mm VV", "2018-05-11 14:58 America/Los_Angeles", 1526075880000),
        ("yyyy-MM-dd HH:mm VV XXX", "2018-05-11 14:58 America/Los_Angeles -07:00", 1526075880000),
        ("yyyyMMddHHmmssSSS", "20180511215833007", MS),
        ("yMMdd", "20180511", 1525996800000),
        ("dd-MMM-yyyy", "11-MAY-2018", 1525996800000),
        ("MMM yyyy", "May 2018", 1525132800000),
        ("yyyy-DDD", "2018-131", 1525996800000),
        ("yy.M.d", "18.5.11", 1525996800000),
        ("yyyy-MM-dd", "2021-06-31", 1625011200000),
        ("yyyy-MM-dd HH:mm", "2018-05-10 24:00", 1525996800000),
        ("hh:mm a", "12:05 am", 300_000),
        ("kk:m", "24:5", 300_000),
        ("K a", "3 PM", 54_000_000),
        ("KK:mm:ss.S a", "00:00:00.0 AM", 0),
        ("HHmmss", "010203", 3_723_000),
        ("A N", "0 0", 0),
        ("G", "AD", 0),
        ("GGGG yyyy", "Anno Domini 1971", 31_536_000_000),
        ("yyyy-MM-dd[ HH:mm][ a]", "1970-01-02", 86_400_000),
        ("yyyy[-MM[-dd]]", "1970-02", 2_678_400_000),
        ("ss.SSS", "01.234", 1234),
        ("HH:mm OOOO", "01:00 GMT+01:00", 0),
        ("HH:mm:ssXXXXX", "01:59:01-00:59:59", 10_740_000),
        ("HH:mm:ss XXXX O", "01:02:03 +010203 GMT+1:02:03", 0),
        ("EEE yyyy-MM-dd", "Fri 2018-05-11", 1525996800000),
        ("n A", "5 1000", 1000),
        ("EEE yyyy", "Mon 1971", 62_812_800_000),
        ("MMMMM", "J", 15_638_400_000),
        ("d DDD", "1 077", 6_566_400_000),
        ("MMM DDD", "Sep 048", 22_377_600_000),
        ("VV/H", "Europe/Berlin/3", 7_200_000),
        ("zM", "GMT+01:002", 2_674_800_000),
        ("VVm", "europe/berlin5", -3_300_000),
    ],
)
def test_texts_are_read(pattern: str, text: str, ms: int) -> None:
    found = date_format(pattern).read(text)
    assert (found.zone or UTC).ms(found.days(), found.ns()) == ms


@pytest.mark.parametrize(
    ("pattern", "text", "why"),
    [
        ("yyyy-MM-dd", "2018-5-11", "does not match the pattern 'yyyy-MM-dd'"),
        ("yyyy-MM-dd", "2018-05-11 ", "does not match"),
        ("yyyy", "12018", "does not match"),
        ("yyyy", "+2018", "does not match"),
        ("d d", "1 2", "does not match"),
        ("SSS", "12", "does not match"),
        ("XXX", "+19:00", "does not match"),
        ("VV", "Nowhere/City", "does not match"),
        ("VV", "+25:00", "does not match"),
        ("VV", "-", "does not match"),
        ("MMM", "Mai", "does not match"),
        ("OOOO", "GMT+1:00", "does not match"),
        ("O", "UTC", "does not match"),
        ("X", "+0160", "does not match"),
        ("X x", "+01 +02", "does not match"),
        ("MM", "13", "the month of '13' must be from 1 to 12, and is 13"),
        ("HH:mm", "24:01", "a day ends at 24:00"),
        ("DDD", "366", "the year 1970 has no day 366"),
        ("EEE yyyy-MM-dd", "Sat 2018-05-11", "2018-05-11 is a Friday"),
    ],
)
def test_texts_that_are_refused(pattern: str, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        found = date_format(pattern).read(text)
        (found.days(), found.ns())


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("YYYY", "the letter Y is not supported; supported are G, u, y"),
        ("zzzz", "zzzz is not supported"),
        ("HHH", "HHH is not supported"),
        ("OO", "OO is not supported"),
        ("GGGGGG", "GGGGGG is not supported"),
        ("EEEEEE", "EEEEEE is not supported"),
        ("SSSSSSSSSS", "SSSSSSSSSS is not supported"),
        ("'a", "a quote is not closed"),
        ("{", "{ has no meaning there"),
        ("]", "] has no meaning there"),
        ("[" * 21, "at most 20 deep"),
        ("y" * 1001, "at most 1000 characters, and this one 1001"),
    ],
)
def test_patterns_that_are_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("[", "\\[").replace("{", "\\{")):
        date_format(pattern)


@pytest.mark.parametrize(
    ("zone", "ms", "offset_ms"),
    [
        ("Z", MS, 0),
        ("UTC", MS, 0),
        ("GMT+2", MS, 7_200_000),
        ("-0330", MS, -12_600_000),
        ("+5", MS, 18_000_000),
        ("Europe/London", MS, 3_600_000),
        ("Europe/London", 0, 3_600_000),
        ("America/New_York", 0, -18_000_000),
    ],
)
def test_offsets(zone: str, ms: int, offset_ms: int) -> None:
    assert zone_of(zone).offset_ms(ms) == offset_ms


@pytest.mark.parametrize("zone", ["", "PDT", "+19", "+1:30", "+0160", "../etc/passwd", "America", "\ud800"])
def test_zones_that_do_not_exist(zone: str) -> None:
    with pytest.raises(ValueError, match="time zone|18 hours"):
        zone_of(zone)


def test_a_moment_behind_the_last_year_is_refused() -> None:
    found = date_format("yyyy-MM-dd HH:mm").read("9999-12-31 24:00")
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        UTC.ms(found.days(), found.ns())


def test_the_zone_of_a_text_is_utc_if_it_says_so() -> None:
    assert date_format("HH:mmX").read("01:00Z").zone == UTC
    assert date_format("HH:mm").read("01:00").zone is None


def test_clocks_that_are_put_forward_and_back() -> None:
    berlin = zone_of("Europe/Berlin")
    half_past_two = (2 * 60 + 30) * 60 * 10**9
    assert berlin.ms(20_175, half_past_two) == 1_743_125_400_000  # 2025-03-28: plain
    assert berlin.ms(20_177, half_past_two) == 1_743_298_200_000  # 2025-03-30: 3:30 summer time
    assert berlin.ms(20_387, half_past_two) == 1_761_438_600_000  # 2025-10-26: the first 2:30
