"""An asyncio event loop on virtual time, whose every choice comes from one seed.

Keeps true: no real time passes and no thread runs. When nothing is ready, the time becomes that of the next timer.
            The callbacks of one process run in the order in which they became ready, as asyncio promises; between
            processes the seed decides. Work for an executor runs as a whole at a time that the seed chooses; the
            process sets the longest delay (`work_delay_s`), which is large where the disk is slow.
            If nothing is ready and no timer is left, the loop raises `Deadlock`; if time stands still or passes the
            limit, `RunsForEver`.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Never, TypeVar

from felice.testing.simulation.process import CURRENT, WORK_DELAY_S, Process

T = TypeVar("T")

_MAX_TURNS_AT_ONE_TIME = 100_000


class Deadlock(Exception):
    """Every task waits, and no timer is left that could wake one."""


class RunsForEver(Exception):
    """Virtual time stands still, or has passed its limit."""


class SimLoop(asyncio.AbstractEventLoop):
    """See the module.

    With `shuffle=False` processes run in the order in which they became ready. `limit_s` bounds virtual time.
    """

    def __init__(self, random: Random, *, shuffle: bool = True, limit_s: float = float("inf")) -> None:
        self._random = random
        self._shuffle = shuffle
        self._time = 0.0
        self.limit_s = limit_s
        self._ready: deque[tuple[asyncio.Handle, Process | None]] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Process | None]] = []
        self._numbers = itertools.count()
        self._is_running = False
        self._is_stopping = False
        self._is_closed = False
        self._tasks: list[asyncio.Task[object]] = []
        self._tasks_looked_at = 1000
        self._processes: list[Process] = []
        self.turns = 0
        # What asyncio would have logged: exceptions that no code caught.
        self.uncaught: list[dict[str, object]] = []

    # Time and order

    def time(self) -> float:
        """Virtual time in seconds since the simulation began."""
        return self._time

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Runs the callback in the next turn, on behalf of the process in `context`."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append((handle, CURRENT.get() if context is None else context.get(CURRENT)))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """The same as `call_soon`: there are no threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Runs the callback after `delay` virtual seconds."""
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Runs the callback at a virtual time. Callbacks of the same time run in the order of their calls."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        process = CURRENT.get() if context is None else context.get(CURRENT)
        heapq.heappush(self._timers, (when, next(self._numbers), handle, process))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio. A cancelled timer is skipped when its time comes."""

    def run_soon(self, handles: list[asyncio.Handle], process: Process) -> None:
        """Run the handles of a process that was resumed."""
        self._ready.extend((handle, process) for handle in handles)

    def _turn(self) -> None:
        timers, ready = self._timers, self._ready
        if not ready:
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise Deadlock(f"at {self._time:.3f} s every task waits and no timer is left")
            if timers[0][0] > self._time:
                self._time = timers[0][0]
                self.turns = 0
                if self._time > self.limit_s:
                    raise RunsForEver(
                        f"the simulation has not ended at {self.limit_s:.0f} s of simulated time"
                    )
        self.turns += 1
        if self.turns > _MAX_TURNS_AT_ONE_TIME:
            raise RunsForEver(f"{self.turns} turns of the loop while time stands at {self._time:.3f} s")
        while timers and timers[0][0] <= self._time:
            _, _, timer, owner = heapq.heappop(timers)
            if not timer.cancelled():
                ready.append((timer, owner))
        batch = list(ready)
        ready.clear()
        for handle, process in self._interleaved(batch) if self._shuffle and len(batch) > 1 else batch:
            self._run(handle, process)

    def _run(self, handle: asyncio.Handle, process: Process | None) -> None:
        if handle.cancelled():
            return
        if process is None or (process.is_alive and not process.is_stopped):
            handle._run()
        else:
            process.hold(handle)

    def _interleaved(
        self, batch: list[tuple[asyncio.Handle, Process | None]]
    ) -> list[tuple[asyncio.Handle, Process | None]]:
        """An order that keeps each process's handles in their order and mixes the processes at random."""
        queues: dict[int, deque[tuple[asyncio.Handle, Process | None]]] = {}
        for entry in batch:
            queues.setdefault(id(entry[1]), deque()).append(entry)
        if len(queues) == 1:
            return batch
        waiting, order = list(queues.values()), []
        while waiting:
            queue = waiting[self._random.randrange(len(waiting))]
            order.append(queue.popleft())
            if not queue:
                waiting.remove(queue)
        return order

    # Running

    def run_until_complete(self, future: Awaitable[T]) -> T:  # type: ignore[override]
        """Runs the loop until the future is done, and returns its result."""
        main = asyncio.ensure_future(future, loop=self)

        def stop(_: object) -> None:
            self.stop()

        main.add_done_callback(stop)
        try:
            self.run_forever()
        finally:
            # After an error this future may end in a later run of the loop, which must not stop then.
            main.remove_done_callback(stop)
        if not main.done():
            raise RuntimeError("the loop was stopped before its work was done")
        return main.result()

    def run_forever(self) -> None:
        """Runs turns until `stop`; raises `Deadlock` or `RunsForEver`."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._is_running, self._is_stopping = True, False
        try:
            while not self._is_stopping:
                self._turn()
        finally:
            self._is_running = False
            asyncio._set_running_loop(before)

    def stop(self) -> None:
        """Ends `run_forever` after the present turn."""
        self._is_stopping = True

    def is_running(self) -> bool:
        """Whether `run_forever` is on the stack."""
        return self._is_running

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def close(self) -> None:
        """Forgets every callback and timer that has not run."""
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: generators end with their tasks."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there are no threads."""

    # Futures, tasks, work

    def create_future(self) -> asyncio.Future[Any]:
        """Returns a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[object, Never, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Starts a task, and remembers it for `unfinished`."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_looked_at:
            self._tasks = [kept for kept in self._tasks if not kept.done()]
            self._tasks_looked_at = 2 * len(self._tasks) + 1000
        return task

    def processes(self) -> list[Process]:
        """Every process that ever ran on this loop."""
        return self._processes

    def unfinished(self) -> list[asyncio.Task[object]]:
        """The tasks that are not done."""
        return [task for task in self._tasks if not task.done()]

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run the work as a whole after a random delay; its result arrives after another one."""
        future: asyncio.Future[T] = self.create_future()
        process = CURRENT.get()
        delay_s = WORK_DELAY_S if process is None else process.work_delay_s
        begin_s, answer_s = (self._random.random() ** 3 * delay_s for _ in range(2))

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:
                self.call_later(answer_s, fail, error)
            else:
                self.call_later(answer_s, succeed, result)

        def fail(error: Exception) -> None:
            if not future.done():
                future.set_exception(error)

        def succeed(result: T) -> None:
            if not future.done():
                future.set_result(result)

        self.call_later(begin_s, work)
        return future

    # Errors of the code that runs here

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Adds the report of an uncaught exception to `uncaught`."""
        self.uncaught.append(context)

    def default_exception_handler(self, context: dict[str, object]) -> None:
        """The same as `call_exception_handler`: nothing is logged."""
        self.call_exception_handler(context)

    def get_debug(self) -> bool:
        """False: asyncio's debug mode measures real time."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Do nothing: asyncio's debug mode measures real time, which has no meaning here."""

    def remove_reader(self, fd: object) -> bool:
        """False: no descriptors are watched."""
        return False

    def remove_writer(self, fd: object) -> bool:
        """False: no descriptors are watched."""
        return False
