"""The end of a task: every step runs, whatever the others raise, and the task's own error is not hidden by theirs."""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger("felice.connect.task")


def run_all(steps: list[Callable[[], object]], *, raises: bool) -> None:
    """Runs all steps. With `raises` the first error is raised at the end; all others are logged."""
    first: Exception | None = None
    for step in steps:
        try:
            step()
        except Exception as error:
            if raises and first is None:
                first = error
            else:
                _log.exception("the end of a task: %s", error)
    if first is not None:
        raise first
