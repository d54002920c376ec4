"""Repeats what a connector does beside its tasks, on a thread of its own.

Keeps true:  a job that fails is logged and tried again, so that a cluster that is away for a time stops no mirror.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from felice.client.error import KafkaException
from felice.pipelines.connect.model.errors import ConnectError

RETRY_S = 10.0
"""The longest wait before a failed job is tried again."""

_log = logging.getLogger("felice.connect.mirror")


class Watch:
    """Jobs that repeat until `stop`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stopped = threading.Event()
        self._jobs: list[_Job] = []

    def every(self, interval_s: float, job: Callable[[], object], *, now: bool) -> None:
        """Adds a job, before `start`. `now`: the first time is at the start, not after the interval."""
        self._jobs.append(_Job(interval_s, job, time.monotonic() + (0.0 if now else interval_s)))

    def once(self, job: Callable[[], object]) -> None:
        """Adds a job that is tried until it could be done, before `start`."""
        self._jobs.append(_Job(None, job, time.monotonic() + RETRY_S))

    def start(self) -> None:
        """Begins to repeat the jobs."""
        if self._jobs:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """Ends after the job that runs."""
        self._stopped.set()

    def _run(self) -> None:
        while self._jobs:
            first = min(self._jobs, key=lambda one: one.due_s)
            if self._stopped.wait(max(0.0, first.due_s - time.monotonic())):
                return
            if not self._is_done(first.job):
                first.due_s = time.monotonic() + min(RETRY_S, first.interval_s or RETRY_S)
            elif first.interval_s is None:
                self._jobs.remove(first)
            else:
                first.due_s = time.monotonic() + first.interval_s

    def _is_done(self, job: Callable[[], object]) -> bool:
        try:
            job()
        except Exception as error:
            if not self._stopped.is_set():  # its clients may be closed then
                _tell(error)
            return False
        return True


class _Job:
    def __init__(self, interval_s: float | None, job: Callable[[], object], due_s: float) -> None:
        self.interval_s, self.job, self.due_s = interval_s, job, due_s


def is_done(job: Callable[[], object]) -> bool:
    """Whether a job could be done. A failure is logged."""
    try:
        job()
    except Exception as error:
        _tell(error)
        return False
    return True


def _tell(error: Exception) -> None:
    if isinstance(error, ConnectError):
        _log.warning("%s", error)
    elif isinstance(error, KafkaException):
        _log.warning("%s", error.error.str())
    else:
        _log.error("the mirror failed; it tries again", exc_info=error)
