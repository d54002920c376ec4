"""Computes the expected results of the demo with pandas, and compares the actual results with them.

Keeps true: expected results never pass through a topic or Spark; every window is
            compared by its key, with its counts and sums.
"""

from __future__ import annotations

import pandas as pd

from felice.dataclass import dataclass
from felice.demo.dataset import Dataset

KEY = ["origin", "carrier", "hour"]
COMPARED = ["flights", "cancelled", "delay_sum_min", "delay_max_min", "airline", "temp"]
EXAMPLES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison: the expected and the actual number, and what they are compared with."""

    title: str
    expected: int
    found: int
    against: str = "the source"
    differences: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the numbers agree and no difference was found."""
        return self.expected == self.found and not self.differences


def check_count(title: str, expected: int, found: int) -> Check:
    """Compares a number of records with the number of rows in the source."""
    return Check(title, expected, found)


def expected_windows(data: Dataset) -> pd.DataFrame:
    """One row for each origin, carrier and hour with scheduled departures, with the weather of that hour."""
    flights = data.flights.assign(hour=data.flights["scheduled"].dt.floor("h"))
    windows = flights.groupby(KEY, as_index=False).agg(
        flights=("carrier", "size"),
        departed=("dep_delay", "count"),
        delay_sum_min=("dep_delay", "sum"),
        delay_max_min=("dep_delay", "max"),
    )
    windows["cancelled"] = windows["flights"] - windows.pop("departed")
    weather = data.weather.assign(hour=pd.to_datetime(data.weather["time_hour"]))[["origin", "hour", "temp"]]
    airlines = data.airlines.rename(columns={"name": "airline"})
    return windows.merge(weather, how="left", on=["origin", "hour"]).merge(airlines, how="left", on="carrier")


def check_windows(expected: pd.DataFrame, found: pd.DataFrame) -> Check:
    """Compares windows by key. Fails if a window is missing, unexpected or duplicate."""
    return Check("windows", len(expected), len(found), differences=tuple(_differences(expected, found)))


def _differences(expected: pd.DataFrame, found: pd.DataFrame) -> list[str]:
    if found.duplicated(KEY).any():
        return ["the results hold a window twice"]
    both = expected.merge(found, how="outer", on=KEY, suffixes=("", "_found"), indicator=True)
    said = [
        f"{count} windows {text}"
        for side, text in (("left_only", "are missing"), ("right_only", "are in no flight"))
        if (count := int((both["_merge"] == side).sum()))
    ]
    matched = both[both["_merge"] == "both"]
    return said + [text for column in COMPARED if (text := _difference(matched, column))]


def _difference(matched: pd.DataFrame, column: str) -> str | None:
    ours, theirs = matched[column], matched[f"{column}_found"]
    wrong = matched[~((ours == theirs) | (ours.isna() & theirs.isna()))]
    if wrong.empty:
        return None
    examples = wrong[[*KEY, column, f"{column}_found"]].head(EXAMPLES_SHOWN).to_dict("records")
    return f"{column} differs in {len(wrong)} windows, such as {examples}"
