"""The states of connectors and tasks, and the topics that connectors use: tells them to all workers.

Keeps true:  states of one connector or task are written in the order in which they were told. While a write is on its
             way, later states of the same key replace earlier ones.
             A failed write is tried again: the worker goes on, and its states are late.
             A trace holds no secret of the connector's configuration (`hide`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.tasks import TaskId, TaskState
from felice.pipelines.connect.storage.journals import Journal
from felice.pipelines.connect.storage.statuses import (
    Status,
    StatusState,
    TopicUse,
    allows,
    connector_record,
    task_record,
    topic_record,
)

_log = logging.getLogger("felice.connect.herder")

_RETRY_S = 1.0


class States:
    """Tells states. `state` has all that is known, also of other workers."""

    def __init__(
        self,
        state: StatusState,
        journal: Journal,
        worker_id: str,
        generation: Callable[[], int],
        *,
        tracks_topics: bool = True,
    ) -> None:
        self.state = state
        self.worker_id = worker_id
        self.hide: Callable[[str, str], str] = lambda connector, text: text
        """Takes the secrets of a connector out of a text."""
        self.version: Callable[[str], str | None] = lambda connector: None
        """The version of a connector's plugin."""
        self._journal = journal
        self._generation = generation
        self._tracks_topics = tracks_topics
        self._waiting: dict[bytes, bytes | None] = {}
        self._arrived = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self._writer: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to write."""
        self._writer = asyncio.get_running_loop().create_task(self._write_all())

    async def stop(self) -> None:
        """Writes what is left, for a short time."""
        try:
            async with asyncio.timeout(5 * _RETRY_S):
                await self.flush()
        except TimeoutError:
            _log.warning("%d states were not written before the end", len(self._waiting))
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)

    async def flush(self) -> None:
        """Returns when all that was told is written."""
        await self._written.wait()

    # Telling

    def connector(self, name: str, state: TaskState, trace: str | None = None) -> None:
        """Tells the state of a connector. `DESTROYED` forgets it."""
        if state is TaskState.FAILED:
            _log.error("connector %s has failed: %s", name, self._last_line(name, trace))
        if state is TaskState.DESTROYED:
            self._put(*connector_record(name, None))
        elif state is TaskState.RUNNING or self._may_replace(self.state.connectors.get(name)):
            self._put(*connector_record(name, self._status(name, state, trace)))

    def task(self, task: TaskId, state: TaskState, trace: str | None = None) -> None:
        """Tells the state of a task. `DESTROYED` forgets it."""
        if state is TaskState.FAILED:
            _log.error("task %s has failed: %s", task, self._last_line(task.connector, trace))
        if state is TaskState.DESTROYED:
            self._put(*task_record(task, None))
        elif state is TaskState.RUNNING or self._may_replace(self.state.task(task)):
            self._put(*task_record(task, self._status(task.connector, state, trace)))

    def topic(self, task: TaskId, topic: str) -> None:
        """Tells that a task uses a topic, if topics are tracked."""
        if self._tracks_topics and topic not in self.state.topics.get(task.connector, {}):
            use = TopicUse(topic, task.connector, task.number, int(time.time() * 1000))
            self._put(*topic_record(use))

    def forget_topics(self, connector: str) -> None:
        """Forgets which topics a connector has used."""
        for use in self.state.topics.get(connector, {}).values():
            self._put(*topic_record(use, forgotten=True))

    def forget(self, connector: str) -> None:
        """Forgets all about a connector that was deleted."""
        self.connector(connector, TaskState.DESTROYED)
        for number in self.state.tasks(connector):
            self.task(TaskId(connector, number), TaskState.DESTROYED)
        self.forget_topics(connector)

    def _status(self, connector: str, state: TaskState, trace: str | None) -> Status:
        hidden = None if trace is None else self.hide(connector, trace)
        return Status(state, self.worker_id, self._generation(), hidden, self.version(connector))

    def _may_replace(self, last: Status | None) -> bool:
        return allows(last, self.worker_id, self._generation())

    def _last_line(self, connector: str, trace: str | None) -> str:
        lines = (trace or "").strip().splitlines()
        return self.hide(connector, lines[-1]) if lines else "no reason is known"

    # Writing

    def _put(self, key: bytes, value: bytes | None) -> None:
        self._waiting.pop(key, None)
        self._waiting[key] = value
        self._written.clear()
        self._arrived.set()

    async def _write_all(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            records = list(self._waiting.items())
            self._waiting.clear()
            try:
                await self._journal.write(records)
            except ConnectError as error:
                _log.warning("states are not written yet: %s", error)
                self._waiting = {**dict(records), **self._waiting}
                self._arrived.set()
                await asyncio.sleep(_RETRY_S)
            if not self._waiting:
                self._written.set()
