"""Runs the application's callbacks on the event loop: plain functions, or coroutine functions, which run as tasks.

Keeps true:  An exception in a callback stops nothing else; `on_raised` receives it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable


class Callbacks:
    """Calls callbacks, and keeps the tasks of coroutine callbacks until they are done."""

    def __init__(self, on_raised: Callable[[Exception], None]) -> None:
        self._on_raised = on_raised
        self._tasks: set[asyncio.Task[None]] = set()

    def call(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call the callback; a coroutine that it returns continues as a task."""
        try:
            result = callback(*arguments)
        except Exception as error:
            self._on_raised(error)
            return
        if inspect.isawaitable(result):
            task = asyncio.get_running_loop().create_task(self._finish(result))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def call_and_wait(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call the callback and wait for the coroutine that it returns."""
        try:
            result = callback(*arguments)
        except Exception as error:
            self._on_raised(error)
            return
        if inspect.isawaitable(result):
            await self._finish(result)

    async def _finish(self, result: Awaitable[object]) -> None:
        try:
            await result
        except Exception as error:
            self._on_raised(error)

    async def finish(self, timeout_s: float) -> None:
        """Wait for the coroutine callbacks that run, except the one that calls this."""
        if tasks := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(tasks, timeout=timeout_s)
