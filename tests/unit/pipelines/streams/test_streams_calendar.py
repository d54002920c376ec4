"""Windows by the calendar of a time zone."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest

from felice.pipelines.streams.windows import CalendarWindows
from felice.streams import App, TestDriver, Window, hours

ZONES = ["Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia", "UTC"]


def at(text: str, zone: str = "Europe/Berlin") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def test_days_have_23_or_25_hours_where_summer_time_begins_or_ends() -> None:
    find = CalendarWindows("day", "Europe/Berlin").finder()
    for day, length in (("2025-03-29", 24), ("2025-03-30", 23), ("2025-10-26", 25)):
        [window] = find(at(f"{day}T05:00"))
        assert window.start == at(f"{day}T00:00") and window.end - window.start == hours(length)


def test_weeks_begin_on_monday_and_months_with_their_first_day() -> None:
    [week] = CalendarWindows("week", "Europe/Berlin").finder()(at("2025-10-30T12:00"))
    assert week == Window(at("2025-10-27T00:00"), at("2025-11-03T00:00"))
    [month] = CalendarWindows("month", "Europe/Berlin").finder()(at("2024-02-29T23:59"))
    assert month == Window(at("2024-02-01T00:00"), at("2024-03-01T00:00"))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", ["day", "week", "month"])
def test_each_moment_is_in_one_window_and_windows_follow_each_other(zone: str, unit: str) -> None:
    windows, dice = CalendarWindows(unit, zone), Random(7)
    find = pickle.loads(pickle.dumps(windows)).finder()
    for _ in range(300):
        moment = dice.randrange(at("1975-01-01", "UTC"), at("2037-01-01", "UTC"))
        [window] = find(moment)
        assert window.start <= moment < window.end <= window.start + windows.size_ms
        assert windows.end_of(window.start) == window.end
        assert find(window.start) == find(window.end - 1) == (window,)
        [following] = find(window.end)
        assert following.start == window.end
        local = datetime.fromtimestamp(moment / 1000, ZoneInfo(zone))
        first = datetime.fromtimestamp(window.start / 1000, ZoneInfo(zone))
        assert first.date() <= local.date() and (local.date() - first.date()) < timedelta(days=31)


@pytest.mark.parametrize("emit", ["update", "final"])
def test_records_are_counted_by_local_days(emit: str) -> None:
    app = App("shop", value="string")
    days = app.stream("in").group_by_key().calendar("day", "Europe/Berlin", grace_ms=hours(1))
    days.emit(emit).count(name="days").to("out")
    driver = TestDriver(app)
    moments = [
        "2025-10-25T23:59",
        "2025-10-26T00:00",
        "2025-10-26T23:59",
        "2025-10-27T00:30",
        "2025-10-27T02:00",
    ]
    for moment in moments:
        driver.send("in", "k", "x", at(moment))
    found = {record.key.window: record.value for record in driver.read("out")}
    first = Window(at("2025-10-25T00:00"), at("2025-10-26T00:00"))
    second = Window(at("2025-10-26T00:00"), at("2025-10-27T00:00"))
    assert found[first] == 1 and found[second] == 2
    assert (len(found) == 3) == (emit == "update"), "the last day is not closed"
    assert "each day of Europe/Berlin" in app.topology.shape_of("days")


def test_what_is_no_calendar_is_refused() -> None:
    with pytest.raises(ValueError, match="the unit is 'year'; it must be day, week, month"):
        CalendarWindows("year", "UTC")
    with pytest.raises(ValueError, match="there is no time zone 'Europe/Nowhere'"):
        CalendarWindows("day", "Europe/Nowhere")
    with pytest.raises(ValueError, match="there is no time zone"):
        CalendarWindows("day", "../etc/passwd")
