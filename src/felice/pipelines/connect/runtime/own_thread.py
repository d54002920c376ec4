"""A thread for calls of a connector's code, which may wait for long, beside the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_Call = tuple[Future[Any], Callable[[], Any]]


class OwnThread:
    """Runs calls one after another. It ends with the process, also in the middle of a call."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def run(self, call: Callable[[], T]) -> T:
        """The result of a call, or what it raises. A caller that is cancelled does not end the call."""
        future: Future[T] = Future()
        self._calls.put((future, call))
        return await asyncio.wrap_future(future)

    def end(self) -> None:
        """Ends the thread after the calls that wait."""
        self._calls.put(None)

    def _run(self) -> None:
        while (found := self._calls.get()) is not None:
            future, call = found
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
