"""The tasks that run for this worker: starts them, tells them what is wished, and hears how they end.

Keeps true:  a task is stopped when it has said goodbye, or its process or its link has ended. A task that does not
             follow in time is cancelled; only a task that does not even end then is left, with a line in the log.
             A task that ends without being asked has failed, with the reason that is known of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from felice.env.clock import set_within
from felice.pipelines.connect.model.errors import ConnectError, short_trace
from felice.pipelines.connect.model.tasks import TaskId, TaskState
from felice.pipelines.connect.runtime.messages import PAUSE, RESUME, STOP
from felice.pipelines.connect.runtime.progress import Progress
from felice.pipelines.connect.runtime.task_process import TaskSpec
from felice.pipelines.connect.runtime.worker_links import WorkerLink, WorkerLinks
from felice.pipelines.connect.task.source_offsets import OffsetStore

_log = logging.getLogger("felice.connect.runtime")

CANCELLED_S = 10.0
"""The longest wait for the end of a task that was cancelled: Spark kills its process after some seconds."""
_REASON_S = 10.0
"""The longest wait for the second sign of a task's end, which may say why it ended."""
BEGIN_S = 20.0
"""The longest wait for the report of a task that shall stop. Spark may just be starting it."""
_PROGRESSES = 1000
_CONNECT_S = 120.0
"""The longest time in which a task may report after its job began."""


class Jobs(Protocol):
    """What runs tasks: `SparkJobs`, started when the first task is."""

    async def start(self, spec: TaskSpec, on_end: Callable[[BaseException | None], None]) -> str:
        """As `SparkJobs.start`. `on_end` comes on any thread."""

    def cancel(self, name: str) -> None:
        """As `SparkJobs.cancel`."""

    async def close(self) -> None:
        """Ends what runs tasks, after the last task."""


class RunningTask:
    """One task, from its start to its end."""

    def __init__(self, link: WorkerLink) -> None:
        self.link = link
        self.job: str | None = None
        self.job_ended = asyncio.Event()
        self.job_failure: BaseException | None = None
        self.ended = asyncio.Event()
        self.is_stopping = False


TellTask = Callable[[TaskId, TaskState, str | None], None]
"""Called on the event loop with a task's new state, and the trace of a failure."""


class Tasks:
    """The running tasks of one worker."""

    def __init__(
        self,
        links: WorkerLinks,
        jobs: Jobs,
        grace_s: float,
        tell: TellTask,
        on_topic: Callable[[TaskId, str], None],
    ) -> None:
        """`grace_s` is the time that a task has to stop before it is cancelled."""
        self._links = links
        self._jobs = jobs
        self._grace_s = grace_s
        self._tell = tell
        self._on_topic = on_topic
        self.on_end: Callable[[TaskId, bool], object] = lambda task, lost: None
        """Called with a task that ended without being asked, and whether its process was lost."""
        self._running: dict[TaskId, RunningTask] = {}
        self._progress: dict[TaskId, Progress] = {}
        """Of the tasks that run, and of those that ended last."""
        self._watching: set[asyncio.Task[None]] = set()

    def __contains__(self, task: object) -> bool:
        return task in self._running

    async def start(self, spec: TaskSpec, offsets: OffsetStore | None) -> None:
        """Starts a task; the ticket of `spec` is replaced. `offsets`: those of its source, if this worker keeps them.

        A task that cannot be started is told as FAILED.
        """
        task = spec.task
        assert task not in self._running, f"task {task} runs already"
        link = self._links.open(task, lambda state: self._tell(task, state, None), offsets)
        link.on_topic = lambda topic: self._on_topic(task, topic)
        running = self._running[task] = RunningTask(link)
        self._progress.pop(task, None)
        while len(self._progress) >= _PROGRESSES:
            del self._progress[next(iter(self._progress))]
        self._progress[task] = link.progress
        loop = asyncio.get_running_loop()

        def on_end(failure: BaseException | None) -> None:
            def note() -> None:
                running.job_failure = failure
                running.job_ended.set()

            loop.call_soon_threadsafe(note)

        try:
            running.job = await self._jobs.start(replace(spec, ticket=link.ticket), on_end)
        except ConnectError as error:
            self._links.forget(link)
            self._end(task, running)
            self._tell(task, TaskState.FAILED, short_trace(error))
            return
        except BaseException:  # the worker stops while Spark starts: there is no job that could end
            self._links.forget(link)
            self._end(task, running)
            raise
        watching = loop.create_task(self._watch(task, running))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)

    def progress(self, task: TaskId) -> Progress:
        """What a task has told since it was started, also after its end."""
        return self._progress.get(task) or Progress()

    def pause(self, task: TaskId) -> None:
        """Asks a task to pause. Its state tells when it does."""
        self._wish(task, PAUSE)

    def resume(self, task: TaskId) -> None:
        """Asks a task to go on."""
        self._wish(task, RESUME)

    async def stop(self, task: TaskId) -> None:
        """Stops a task, and returns when it has ended. A task that does not run is stopped already."""
        running = self._running.get(task)
        if running is None:
            return
        running.is_stopping = True
        running.link.wish(STOP)
        await set_within(running.link.begun, BEGIN_S)
        if await set_within(running.ended, self._grace_s):
            return
        _log.warning("task %s did not stop in %g s; it is cancelled", task, self._grace_s)
        if running.job is not None:
            self._jobs.cancel(running.job)
        if not await set_within(running.ended, CANCELLED_S):
            _log.error("task %s goes on after it was cancelled; its successor starts beside it", task)
            self._links.forget(running.link)
            self._end(task, running)

    async def close(self) -> None:
        """Stops all tasks, and then what ran them."""
        await asyncio.gather(*(self.stop(task) for task in list(self._running)))
        for watching in list(self._watching):
            watching.cancel()
        await self._jobs.close()

    def _wish(self, task: TaskId, wish: str) -> None:
        running = self._running.get(task)
        if running is not None:
            running.link.wish(wish)

    async def _watch(self, task: TaskId, running: RunningTask) -> None:
        await self._first_sign(task, running)
        if running.link.is_connected or running.link.ended.is_set():
            # The job of a task that said goodbye ends at once; that of a lost one ends with a reason.
            await set_within(running.link.ended, _REASON_S)
            await set_within(running.job_ended, _REASON_S)
        else:
            self._links.forget(running.link)
        self._end(task, running)
        if not running.is_stopping:
            self._tell(task, TaskState.FAILED, _trace(running))
            self.on_end(task, running.link.trace is None)

    async def _first_sign(self, task: TaskId, running: RunningTask) -> None:
        """Returns when the job or the link has ended."""
        waits = [
            asyncio.ensure_future(running.link.ended.wait()),
            asyncio.ensure_future(running.job_ended.wait()),
        ]
        try:
            await asyncio.wait(waits, timeout=_CONNECT_S, return_when=asyncio.FIRST_COMPLETED)
            if not any(one.done() for one in waits) and not running.link.is_connected:
                _log.warning("task %s has not reported for %g s since it was started", task, _CONNECT_S)
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def _end(self, task: TaskId, running: RunningTask) -> None:
        running.link.begun.set()  # nobody needs to wait for its report any more
        running.ended.set()
        if self._running.get(task) is running:
            del self._running[task]


def _trace(running: RunningTask) -> str:
    if running.link.trace is not None:
        return running.link.trace
    if running.job_failure is not None:
        text = str(running.job_failure)
        # Spark's text is a trace of Java, whose causes follow; the last of them says what happened.
        reasons = [line for line in text.splitlines() if line.startswith("Caused by: ")] or text.splitlines()
        why = reasons[-1].removeprefix("Caused by: ") if reasons else type(running.job_failure).__name__
        return f"{text}\nConnectError: the process of the task was lost: {why}\n"
    return "ConnectError: the task ended without being asked; its worker's log may say why\n"
