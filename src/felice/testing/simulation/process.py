"""The life of one simulated process: everything that runs in its name, and its end.

Keeps true: what a process does runs in its own context, so that every task, timer and callback that comes of it
            is known to be its own. From the moment of its end none of them runs again, not even a `finally`:
            a killed process does not clean up. While it is stopped (SIGSTOP) they wait.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

WORK_DELAY_S = 0.004
"""How late work for an executor begins at most, and its answer comes, where nothing is slow."""


class ProcessEnded(Exception):
    """The process was killed before it could give the answer that was waited for."""


class ProcessLoop(Protocol):
    """What a process uses of the event loop that runs it."""

    def processes(self) -> list[Process]: ...
    def create_future(self) -> asyncio.Future[Any]: ...
    def create_task(
        self, coro: Coroutine[Any, Any, T], *, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]: ...
    def run_soon(self, handles: list[asyncio.Handle], process: Process) -> None:
        """Runs the handles of a process that goes on after it was stopped."""
        ...


class Process:
    def __init__(self, loop: ProcessLoop, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_stopped = False
        self.work_delay_s = WORK_DELAY_S
        self.context = contextvars.Context()
        self.context.run(CURRENT.set, self)
        self._loop = loop
        loop.processes().append(self)
        self._asked: list[asyncio.Future[Any]] = []
        # Held until the world ends: a coroutine that is collected runs its `finally`.
        self._remains: list[asyncio.Handle] = []
        self._waiting: list[asyncio.Handle] = []
        self.on_end: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<process {self.name}>"

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a coroutine in this process's name."""
        return self._loop.create_task(work, context=self.context.copy())

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns, to a caller outside of this process; `ProcessEnded` if it is killed."""
        answer: asyncio.Future[T] = self._loop.create_future()
        if not self.is_alive:
            work.close()
            raise ProcessEnded(self.name)
        self._asked.append(answer)

        def tell(task: asyncio.Task[T]) -> None:
            if answer.done():
                return
            if task.cancelled():
                answer.cancel()
            elif (error := task.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        self.spawn(work).add_done_callback(tell)
        try:
            return await answer
        finally:
            self._asked.remove(answer)

    def end(self) -> None:
        """kill -9: nothing of it runs again. What its sockets and files become, their owners see to."""
        if not self.is_alive:
            return
        self.is_alive = False
        for heard in self.on_end:
            heard()
        for answer in list(self._asked):
            if not answer.done():
                answer.set_exception(ProcessEnded(self.name))

    def stop(self) -> None:
        """SIGSTOP: what is due waits for `resume`."""
        self.is_stopped = True

    def resume(self) -> None:
        """SIGCONT: what waited goes on, in its order."""
        self.is_stopped = False
        waiting, self._waiting = self._waiting, []
        self._loop.run_soon(waiting, self)

    def clean_up(self) -> None:
        """The world is over: what was left of it may clean up after itself."""
        remains, self._remains = [*self._remains, *self._waiting], []
        self.is_alive, self.is_stopped, self._waiting = True, False, []
        self._loop.run_soon(remains, self)

    def hold(self, handle: asyncio.Handle) -> None:
        """Keeps what may not run: for later if the process is stopped, for ever if it has ended."""
        (self._waiting if self.is_alive else self._remains).append(handle)


CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
