"""Whether a run was flat: compares two windows of samples, one after the warm-up and the last one.

Keeps true: pure arithmetic on samples. A run that is too short to be compared is an anomaly.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from soak.samples import Sample

PARTS = 6
"""The run is divided into this many parts: the first is warm-up, the second is compared with the last."""
MEMORY_BOUND = 0.05
# Topics come and go within a window. A leak grows in every round, and an hour has hundreds of rounds.
FILES_BOUND = 0.05
SAMPLES_NEEDED = 5 * PARTS

FIGURES = (
    "rss_mib",
    "heap_mib",
    "open_files",
    "log_files",
    "sockets",
    "other_files",
    "threads",
    "log_mib",
    "cpu_percent",
    "ping_ms",
    "worst_ping_ms",
    "tasks",
    "objects",
)
# A pool creates its few threads one by one.
THREADS_BOUND = 2
BOUNDS = {"rss_mib": MEMORY_BOUND, "open_files": FILES_BOUND}


@dataclass(frozen=True, slots=True)
class Change:
    figure: str
    first: float
    last: float

    @property
    def ratio(self) -> float:
        return self.last / self.first - 1 if self.first else 0.0

    @property
    def bound(self) -> str:
        """The bound as text; empty if the figure is only reported."""
        if self.figure == "threads":
            return f"{THREADS_BOUND} more"
        return f"{BOUNDS[self.figure]:.0%}" if self.figure in BOUNDS else ""

    @property
    def is_kept(self) -> bool:
        """Whether the figure is within its bound: memory must be flat, files and threads must not grow."""
        if self.figure == "threads":
            return self.last - self.first <= THREADS_BOUND
        change = abs(self.ratio) if self.figure == "rss_mib" else self.ratio
        return self.figure not in BOUNDS or change <= BOUNDS[self.figure]


def windows(samples: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    part = len(samples) // PARTS
    return samples[part : 2 * part], samples[-part:]


def changes(samples: Sequence[Sample]) -> list[Change]:
    first, last = windows(samples)
    return [Change(figure, _median(first, figure), _median(last, figure)) for figure in FIGURES]


def _median(samples: Sequence[Sample], figure: str) -> float:
    return statistics.median(getattr(sample, figure) for sample in samples)


def growth(samples: Sequence[Sample]) -> list[str]:
    """Every figure beyond its bound, as text."""
    if len(samples) < SAMPLES_NEEDED:
        return [f"{len(samples)} samples are too few to measure growth: at least {SAMPLES_NEEDED} are needed"]
    return [
        f"{change.figure} went from {change.first:.1f} to {change.last:.1f} ({change.ratio:+.1%}), "
        f"where {change.bound} is allowed"
        for change in changes(samples)
        if not change.is_kept
    ]


def errors_in(broker_log: str) -> list[str]:
    """The lines of the broker's log that report an error of its own."""
    return [
        line for line in broker_log.splitlines() if re.search(r" (ERROR|CRITICAL) |Traceback|Error: ", line)
    ]
