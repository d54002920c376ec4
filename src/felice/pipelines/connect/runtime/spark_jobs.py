"""Runs tasks as jobs of Spark: each is one job of one partition, whose Python worker runs the task until it is stopped.

Keeps true:  a task runs at most once: Spark does not try it again (`spark.task.maxFailures=1`).
             A task that finds no free slot is refused: Spark would queue it, and it would look as if it ran.
How:         a waiting task holds a slot of Spark but no core, so the session gets many slots (`SLOTS`).
             A job is first asked to end over its link; `cancel` is for a task that does not follow. Spark kills its
             Python worker some seconds later: the successor waits for the end of the link, or fences the task.
"""

from __future__ import annotations

import itertools
import logging
import pickle
import threading
from collections.abc import Callable, Iterable

from pyspark import SparkContext

from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.runtime.task_process import TaskSpec, run_task

_log = logging.getLogger("felice.connect.runtime")

SLOTS = 64
CONFIG = {
    "spark.task.maxFailures": "1",
    "spark.scheduler.mode": "FAIR",
    "spark.dynamicAllocation.enabled": "false",
    # A worker runs for months; Spark would keep a record of every job.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "100",
}
"""The settings of a session for tasks."""
IMPORTED = "pyspark.daemon", "pyspark.worker", __name__
"""What the Python of a job needs."""


class SparkJobs:
    """The jobs of the tasks of one worker. Safe to use from any thread."""

    def __init__(self, context: SparkContext, slots: int = SLOTS) -> None:
        self._context = context
        self._slots = slots
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._running: dict[str, threading.Thread] = {}

    def start(self, spec: TaskSpec, on_end: Callable[[BaseException | None], None]) -> str:
        """Starts a task, and returns the name of its job.

        `on_end` is called on a thread when the job has ended, with its error. Raises `ConnectError` if no slot is free.
        """
        # Tasks of several workers can have the same name and ticket.
        name = f"connect-{spec.task}-{next(self._numbers)}"
        thread = threading.Thread(target=self._run, args=(name, spec, on_end), name=name, daemon=True)
        with self._lock:
            if len(self._running) >= self._slots:
                raise ConnectError(
                    f"no slot of Spark is free for task {spec.task}: all {self._slots} run tasks; "
                    "start the worker with more slots, or stop connectors"
                )
            self._running[name] = thread
        thread.start()
        return name

    def cancel(self, name: str) -> None:
        """Ends a job by force. Its task may go on for some seconds."""
        self._context.cancelJobGroup(name)

    def _run(self, name: str, spec: TaskSpec, on_end: Callable[[BaseException | None], None]) -> None:
        failure: BaseException | None = None
        try:
            self._context.setJobGroup(name, f"task {spec.task}", interruptOnCancel=True)
            self._context.parallelize([pickle.dumps(spec)], 1).foreachPartition(_run_one)
        except Exception as error:
            failure = error
        finally:
            with self._lock:
                del self._running[name]
        on_end(failure)


def _run_one(specs: Iterable[bytes]) -> None:
    for data in specs:
        run_task(pickle.loads(data))
