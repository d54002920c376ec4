"""What the demo shows: a table of airlines, a chart of delays, and whether all counts agree.

Computes nothing that is checked; `check` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from felice.demo.check import Check

NEW_YORK = "America/New_York"
NAME_WIDTH = 20
BAR_WIDTH = 12
# Delays from here on look alike; few of them would make all others look alike.
HOT_MIN = 90


def print_delays(console: Console, windows: pd.DataFrame) -> None:
    """One line an airline, the most delayed first."""
    table = Table(
        title="Departure delays from New York in 2013, minutes", title_justify="left", box=SIMPLE_HEAD
    )
    table.add_column("airline", no_wrap=True)
    for column in ("flights", "cancelled", "mean", "in rain", "worst"):
        table.add_column(column, justify="right", no_wrap=True, min_width=len(column))
    table.add_column("", no_wrap=True)
    means = delays_by(windows, "airline").sort_values("mean_delay_min", ascending=False)
    in_rain = delays_by(windows[windows["precip"] > 0], "airline")["mean_delay_min"]
    for airline, row in means.iterrows():
        bar = "█" * round(BAR_WIDTH * row["mean_delay_min"] / means["mean_delay_min"].max())
        table.add_row(
            str(airline)[:NAME_WIDTH],
            f"{row['flights']:,.0f}",
            f"{row['cancelled']:,.0f}",
            _minutes(row["mean_delay_min"]),
            _minutes(in_rain.get(airline, float("nan"))),
            _minutes(row["delay_max_min"]),
            f"[cyan]{bar}[/]",
        )
    console.print(table)


def print_checks(console: Console, checks: Iterable[Check]) -> None:
    for check in checks:
        sign = "[green]✓[/]" if check.passed else "[red]✗[/]"
        verdict = f"as in {check.against}" if check.passed else f"but {check.against} has {check.expected:,}"
        console.print(f"{sign} {check.title}: {check.found:,}, {verdict}", highlight=False)
        for difference in check.differences:
            console.print(f"    [red]{difference}[/]", highlight=False)


def delays_by(windows: pd.DataFrame, *by: str) -> pd.DataFrame:
    """Means over flights, not over windows."""
    summed = windows.groupby(list(by)).agg(
        flights=("flights", "sum"),
        cancelled=("cancelled", "sum"),
        delay_sum_min=("delay_sum_min", "sum"),
        delay_max_min=("delay_max_min", "max"),
    )
    flown = summed["flights"] - summed["cancelled"]
    return summed.assign(mean_delay_min=summed["delay_sum_min"] / flown.where(flown > 0))


def save_chart(windows: pd.DataFrame, path: Path) -> None:
    """Delay by airline and hour of the day, and by how far one could see. PNG, SVG or HTML by the name."""
    import altair as alt

    local = windows.assign(
        hour_of_day=windows["hour"].dt.tz_convert(NEW_YORK).dt.hour,
        sight=pd.cut(windows["visib"], [-1, 1, 3, 6, 9, 10], labels=["< 1", "1-3", "3-6", "6-9", "10"]),
    )
    by_hour = delays_by(local, "airline", "hour_of_day").reset_index()
    by_sight = delays_by(
        local.dropna(subset=["sight"]).astype({"sight": str}), "origin", "sight"
    ).reset_index()
    heat_scale = alt.Scale(scheme="orangered", domain=[0, HOT_MIN], clamp=True)
    heat = (
        alt.Chart(by_hour[by_hour["flights"] >= 30], title="Mean departure delay, minutes")
        .mark_rect()
        .encode(
            x=alt.X("hour_of_day:O", title="hour of departure (New York)"),
            y=alt.Y("airline:N", title=None),
            color=alt.Color("mean_delay_min:Q", title="minutes", scale=heat_scale),
        )
    )
    bars = (
        alt.Chart(by_sight, title="Mean delay by visibility")
        .mark_bar()
        .encode(
            x=alt.X("sight:N", title="visibility, miles", sort=["< 1", "1-3", "3-6", "6-9", "10"]),
            xOffset="origin:N",
            y=alt.Y("mean_delay_min:Q", title="minutes"),
            color="origin:N",
        )
    )
    (heat | bars).resolve_scale(color="independent").save(str(path), **_resolution(path))


def _resolution(path: Path) -> dict[str, float]:
    return {"scale_factor": 2.0} if path.suffix == ".png" else {}


def _minutes(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:,.1f}"
