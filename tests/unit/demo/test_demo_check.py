from __future__ import annotations

import pytest

pytest.importorskip("pandas")

import pandas as pd

from felice.demo.check import Check, check_count, check_windows, expected_windows
from felice.demo.dataset import Dataset


def at(text: str) -> pd.Timestamp:
    return pd.Timestamp(text, tz="UTC")


FLIGHTS = pd.DataFrame(
    [
        ("UA", "EWR", 5.0, at("2013-01-01 10:10")),
        ("UA", "EWR", None, at("2013-01-01 10:20")),
        ("UA", "EWR", 55.0, at("2013-01-01 10:15")),
        ("UA", "EWR", -2.0, at("2013-01-01 11:00")),
        ("AA", "JFK", None, at("2013-01-01 10:30")),
    ],
    columns=["carrier", "origin", "dep_delay", "scheduled"],
)
DATA = Dataset(
    flights=FLIGHTS,
    weather=pd.DataFrame({"origin": ["EWR"], "time_hour": ["2013-01-01T10:00:00Z"], "temp": [39.0]}),
    airlines=pd.DataFrame({"carrier": ["UA", "AA"], "name": ["United", "American"]}),
    airports=pd.DataFrame(),
    planes=pd.DataFrame(),
)


def window(carrier: str, hour: int) -> dict[str, object]:
    rows = expected_windows(DATA)
    (row,) = rows[(rows["carrier"] == carrier) & (rows["hour"].dt.hour == hour)].to_dict("records")
    return row


def test_a_window_holds_the_flights_scheduled_for_its_hour_despite_delays() -> None:
    row = window("UA", 10)
    assert (row["flights"], row["cancelled"], row["delay_sum_min"], row["delay_max_min"]) == (
        3,
        1,
        60.0,
        55.0,
    )
    assert (row["temp"], row["airline"]) == (39.0, "United")


def test_windows_without_weather_or_departures_are_kept() -> None:
    assert pd.isna(window("UA", 11)["temp"])
    row = window("AA", 10)
    assert (row["flights"], row["cancelled"], row["delay_sum_min"]) == (1, 1, 0.0)
    assert pd.isna(row["delay_max_min"])


def test_equal_windows_pass_in_any_order() -> None:
    expected = expected_windows(DATA)
    assert check_windows(expected, expected.iloc[::-1].reset_index(drop=True)).passed


@pytest.mark.parametrize(
    "column", ["flights", "cancelled", "delay_sum_min", "delay_max_min", "airline", "temp"]
)
def test_a_window_that_differs_does_not_pass(column: str) -> None:
    expected = expected_windows(DATA)
    found = expected.copy()
    row = found.index[(found["carrier"] == "UA") & (found["hour"].dt.hour == 10)][0]
    found.loc[row, column] = "United?" if column == "airline" else found.loc[row, column] + 1
    check = check_windows(expected, found)
    assert not check.passed
    assert f"{column} differs in 1 windows" in check.differences[0]


def test_a_missing_an_unexpected_and_a_duplicate_window_do_not_pass() -> None:
    expected = expected_windows(DATA)
    assert "1 windows are missing" in check_windows(expected, expected.iloc[1:]).differences[0]
    invented = pd.concat([expected, expected.iloc[:1].assign(origin="XXX")])
    assert "1 windows are in no flight" in check_windows(expected, invented).differences[0]
    twice = check_windows(expected, pd.concat([expected, expected.iloc[:1]]))
    assert twice.differences == ("the results hold a window twice",)
    doubled = check_windows(expected, pd.concat([expected.iloc[1:], expected.iloc[1:2]]))
    assert doubled.expected == doubled.found
    assert not doubled.passed


def test_a_count_must_equal_the_rows_of_the_source() -> None:
    assert check_count("flights", 5, 5).passed
    assert not check_count("flights", 5, 4).passed
    assert not Check("windows", 5, 5, differences=("something",)).passed
