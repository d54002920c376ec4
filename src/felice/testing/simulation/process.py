"""One simulated process: everything that runs on its behalf, and its end.

Keeps true: the code of a process runs in a context of its own, so that every task, timer and callback that it creates
            is known to belong to it. After its end none of them runs, not even a `finally`: a killed process does
            not clean up. While it is stopped (SIGSTOP) they wait.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Never, Protocol, TypeVar

T = TypeVar("T")

WORK_DELAY_S = 0.004
"""The longest delay, in seconds, before work for an executor starts, and again before its result arrives."""


class ProcessEnded(Exception):
    """The process was killed before it returned the awaited result."""


class Unanswered(Protocol):
    """A future of any type that an event outside its work may fail."""

    def done(self) -> bool:
        """Whether it has a result."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """Fails the future."""
        ...


class ProcessLoop(Protocol):
    """What a process needs of the event loop that runs it."""

    def processes(self) -> list[Process]:
        """Every process that ever ran on the loop; a new process adds itself."""

    def create_future(self) -> asyncio.Future[Any]:
        """Returns a future of the loop."""

    def create_task(
        self, coro: Coroutine[object, Never, T], *, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        """Starts a task in the given context."""

    def run_soon(self, handles: list[asyncio.Handle], process: Process) -> None:
        """Run the handles of a process that was resumed."""
        ...


class Process:
    """See the module. `on_end` lists what must happen when the process ends, such as closing its sockets."""

    def __init__(self, loop: ProcessLoop, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_stopped = False
        self.work_delay_s = WORK_DELAY_S
        self.context = contextvars.Context()
        self.context.run(CURRENT.set, self)
        self._loop = loop
        loop.processes().append(self)
        self._asked: list[Unanswered] = []
        # Kept until the simulation ends: a coroutine that is garbage collected runs its `finally`.
        self._remains: list[asyncio.Handle] = []
        self._waiting: list[asyncio.Handle] = []
        self.on_end: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<process {self.name}>"

    def spawn(self, work: Coroutine[object, Never, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task of this process."""
        return self._loop.create_task(work, context=self.context.copy())

    async def run(self, work: Coroutine[object, Never, T]) -> T:
        """The result of the coroutine, for a caller outside of this process; raises `ProcessEnded` if it is killed."""
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
        """Ends the process as `kill -9` does: nothing of it runs again.

        The owners of its sockets and files clean up through `on_end`.
        """
        if not self.is_alive:
            return
        self.is_alive = False
        for heard in self.on_end:
            heard()
        for answer in list(self._asked):
            if not answer.done():
                answer.set_exception(ProcessEnded(self.name))

    def stop(self) -> None:
        """Stops the process as SIGSTOP does: callbacks that become due wait for `resume`."""
        self.is_stopped = True

    def resume(self) -> None:
        """Continues the process as SIGCONT does: the callbacks that waited run, in their order."""
        self.is_stopped = False
        waiting, self._waiting = self._waiting, []
        self._loop.run_soon(waiting, self)

    def clean_up(self) -> None:
        """After the simulation, let the remains of the process run, so that they clean up."""
        remains, self._remains = [*self._remains, *self._waiting], []
        self.is_alive, self.is_stopped, self._waiting = True, False, []
        self._loop.run_soon(remains, self)

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep a handle that must not run: until `resume` if the process is stopped, for ever if it has ended."""
        (self._waiting if self.is_alive else self._remains).append(handle)


CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
