"""What the loops of source and sink tasks share: their beginning, their turns, and an end that leaves no step out.

Keeps true:  at the end every step runs, also after one that raised. The error that ended the task is the one that is
             raised; errors of the last steps are then only logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from felice.pipelines.connect.model.errors import ConnectError, RetriableError
from felice.pipelines.connect.model.tasks import TaskState
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.conversion import Conversion
from felice.pipelines.connect.task.dead_letters import DeadLetters
from felice.pipelines.connect.task.tolerance import Tolerance

log = logging.getLogger("felice.connect.task")

LastStep = Callable[[], object]

PROGRESS_S = 1.0


class TaskLoop:
    """Runs one task. `run` returns when the task was stopped, and raises what makes it fail."""

    def __init__(
        self,
        conversion: Conversion,
        tolerance: Tolerance,
        control: Control,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self._conversion = conversion
        self._dead_letters = dead_letters
        self._tolerance = tolerance
        self._control = control
        self._failure: BaseException | None = None
        """What a callback of the client found: it is raised in the loop."""
        self._commit_at_s = 0.0
        self._state: TaskState | None = None
        self.on_state: Callable[[TaskState], None] = lambda state: None
        """Called in the loop when the task begins, pauses and goes on."""
        self.on_topic: Callable[[str], None] = lambda topic: None
        """Called in the loop with each topic that the task uses for the first time (KIP-558)."""
        self._topics_used: set[str] = set()
        self.on_progress: Callable[[dict[str, Any]], None] = lambda progress: None
        """Called in the loop about once in a second with what the task has done."""
        self._tell_at_s = 0.0
        self._records = 0
        """The records that were handed on."""

    def run(self) -> None:
        """Runs the task until it is stopped."""
        try:
            self._begin()
            while not self._control.is_stopping:
                self._tell_state()
                self._turn()
                if self._control.now_s() >= self._tell_at_s:
                    self._tell_progress()
        except BaseException:
            _run_all([self._tell_progress, *self._last_steps(failed=True)], raises=False)
            raise
        _run_all(self._last_steps(failed=False), raises=True)

    def _tell_state(self) -> None:
        state = TaskState.PAUSED if self._control.is_paused else TaskState.RUNNING
        if state is not self._state:
            self._state = state
            self.on_state(state)

    def _tell_topic(self, topic: str) -> None:
        if topic not in self._topics_used:
            self._topics_used.add(topic)
            self.on_topic(topic)

    def _tell_progress(self) -> None:
        self._tell_at_s = self._control.now_s() + PROGRESS_S
        failure = self._tolerance.last_failure
        error = None if failure is None else {"text": f"{failure}: {failure.error}", "record": failure.place}
        self.on_progress(
            {"records": self._records, "failed": self._tolerance.failures, "lag": self._lag(), "error": error}
        )

    def _lag(self) -> int | None:
        """How many records are still to be read, if that is known."""
        return None

    def _begin(self) -> None:
        raise NotImplementedError

    def _turn(self) -> None:
        raise NotImplementedError

    def _last_steps(self, *, failed: bool) -> list[LastStep]:
        raise NotImplementedError

    def _commit_after(self, interval_s: float) -> None:
        self._commit_at_s = self._control.now_s() + interval_s

    @property
    def _is_commit_due(self) -> bool:
        return self._control.now_s() >= self._commit_at_s

    def _flush_dead_letters(self, timeout_s: float) -> None:
        """Waits until dead letters are in their topic: no offset is committed before.

        Raises `RetriableError` after the time, and `ConnectError`, which fails the task: another try would not help.
        """
        if self._dead_letters is None:
            return
        try:
            self._dead_letters.flush(timeout_s)
        except ConnectError as error:
            if not isinstance(error, RetriableError):
                self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """Keeps the first failure for the loop."""
        if self._failure is None:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _run_all(steps: list[LastStep], *, raises: bool) -> None:
    """Runs all steps. With `raises` the first error is raised at the end; all others are logged."""
    first: Exception | None = None
    for step in steps:
        try:
            step()
        except Exception as error:
            if raises and first is None:
                first = error
            else:
                log.exception("the end of a task: %s", error)
    if first is not None:
        raise first
