"""Progress bars while the demo works, and the time of each step.

Keeps true: progress is written only to the given console, so that standard output
            can be reserved for the result.
            Ctrl-C ends the demo where a step begins or advances, and nowhere else: in the middle of a library's call
            it could be lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from felice.dataclass import dataclass


@dataclass(slots=True)
class Step:
    """A running step. `advance` counts the rows that are done."""

    name: str
    rows: int = 0
    seconds: float = 0.0
    check: Callable[[], None] = field(default=lambda: None, repr=False)
    _bar: tuple[Progress, TaskID] | None = field(default=None, repr=False)

    def describe(self, state: str) -> None:
        """Shows a text beside the bar while the step runs."""
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, state=state)

    def advance(self, rows: int) -> None:
        """Counts rows as done. Raises KeyboardInterrupt if Ctrl-C came."""
        self.check()
        self.rows += rows
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, completed=self.rows)

    @property
    def rows_per_s(self) -> float:
        """Rows for each second of the step."""
        return self.rows / self.seconds if self.seconds else 0.0


class Steps:
    """All steps so far, by name and in order. `check` raises KeyboardInterrupt if Ctrl-C came."""

    def __init__(self, console: Console, check: Callable[[], None]) -> None:
        self._console = console
        self._check = check
        self.done: dict[str, Step] = {}

    @contextmanager
    def step(self, name: str, title: str, total_rows: int | None = None) -> Iterator[Step]:
        """Times a block and shows its progress; with `total_rows` as a bar."""
        self._check()
        step = Step(name, check=self._check)
        began = time.monotonic()
        with self._progress(total_rows is not None) as progress:
            step._bar = progress, progress.add_task(title, total=total_rows, state="")
            yield step
        step.seconds = time.monotonic() - began
        self.done[name] = step
        self._console.print(_line(title, step), highlight=False)

    def _progress(self, counted: bool) -> Progress:
        counts = [BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}")] if counted else []
        columns = [SpinnerColumn(), TextColumn("{task.description}"), *counts, TimeElapsedColumn()]
        # Without a terminal, bars would only be noise between the lines.
        return Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        )


def _line(title: str, step: Step) -> str:
    line = f"[green]✓[/] {title:<42} {step.seconds:>5.1f} s"
    return line + (f" {step.rows:>8,} rows {step.rows_per_s:>8,.0f}/s" if step.rows else "")
