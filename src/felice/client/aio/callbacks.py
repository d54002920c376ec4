"""Callbacks of the application on the event loop: plain functions, or coroutine functions that run as tasks.

Keeps true:  what a callback raises stops nothing else; it is handed to `on_raised`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any


class Callbacks:
    """Calls callbacks and keeps the tasks of those that are coroutines until they are done."""

    def __init__(self, on_raised: Callable[[Exception], None]) -> None:
        self._on_raised = on_raised
        self._tasks: set[asyncio.Task[None]] = set()

    def call(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call it; a coroutine that it returns goes on as a task."""
        try:
            result = callback(*arguments)
        except Exception as error:
            self._on_raised(error)
            return
        if inspect.isawaitable(result):
            task = asyncio.get_running_loop().create_task(self._finish(result))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def call_and_wait(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call it, and wait for the coroutine that it returns."""
        try:
            result = callback(*arguments)
        except Exception as error:
            self._on_raised(error)
            return
        if inspect.isawaitable(result):
            await self._finish(result)

    async def _finish(self, result: Awaitable[Any]) -> None:
        try:
            await result
        except Exception as error:
            self._on_raised(error)
