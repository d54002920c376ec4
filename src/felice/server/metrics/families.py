"""Families: metrics of one name, with a row for each combination of labels.

A collector is a generator of families. Where it computes something long between two families, it yields `PAUSE`, so
that the broker can serve clients meanwhile. Rows are computed while they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from felice.dataclass import dataclass
from felice.server.flow.request_times import quantiles
from felice.server.metrics.names import Dialect, MBean

T = TypeVar("T")

Row: TypeAlias = tuple[str, float]
"""Labels as `label_text` makes them, and the value."""

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
QUANTILE_LABELS: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")

PAUSE: Final = None


class Kind(Enum):
    """The types of Prometheus that Felice uses."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its rows. A plain name is the same in all dialects."""

    name: MBean | str
    kind: Kind
    help: str
    rows: Iterable[Row]
    other_names: Mapping[Dialect, str] = field(default_factory=dict)
    """Names in dialects that do not follow from the MBean."""


Families: TypeAlias = Iterator[Family | None]


def single(name: MBean | str, kind: Kind, help: str, value: float) -> Family:
    """A family with one row without labels."""
    return Family(name, kind, help, (("", value),))


def gauge(name: MBean | str, help: str, value: float) -> Family:
    """A value that rises and falls."""
    return single(name, Kind.GAUGE, help, value)


def counter(name: MBean | str, help: str, value: float) -> Family:
    """A count since the start of the broker."""
    return single(name, Kind.COUNTER, help, value)


def histogram_rows(
    seconds: Mapping[str, Iterable[float]], factor: float = 1.0, at: Iterable[str] = QUANTILE_LABELS
) -> Iterator[Row]:
    """The quantiles of measurements, by labels; `factor` converts seconds to the unit of the metric."""
    for labels, measured in seconds.items():
        before = f"{labels}," if labels else ""
        for label, value in zip(at, quantiles(measured, QUANTILES), strict=True):
            yield f'{before}quantile="{label}"', value * factor


def each(items: Iterable[tuple[str, T]], value: Callable[[T], float]) -> Iterator[Row]:
    """A row for each item with its labels."""
    return ((labels, value(item)) for labels, item in items)


def label_text(**labels: object) -> str:
    """Labels as they stand between the braces of a series."""
    return ",".join(f'{name}="{escaped(str(value))}"' for name, value in labels.items())


def escaped(value: str) -> str:
    """A label's value between quotes."""
    if value.isalnum():
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
