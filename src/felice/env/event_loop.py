"""The event loop of a broker: asyncio's, which looks at a few ready sockets at a time.

Keeps true: a pass of the loop reads from at most `SOCKETS_IN_ONE_PASS` sockets, so a request is handled soon after its
            bytes are read, while the objects of its connection are still in the processor's caches. With a thousand
            active connections a request takes a tenth less processor time (docs/performance.md).
            Every ready socket has its turn: epoll puts those that it has reported behind the others.
How:        asyncio asks its selector for all events at once, and has no option for fewer. Only Linux has epoll;
            elsewhere the loop is asyncio's own.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

SOCKETS_IN_ONE_PASS = 32


def run(main: Coroutine[Any, Any, T]) -> T:
    """Same as `asyncio.run`, on a loop of `new_event_loop`."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop that no thread runs yet."""
    if sys.platform == "linux":
        return asyncio.SelectorEventLoop(_Selector())
    return asyncio.new_event_loop()


if sys.platform == "linux":

    class _FewEvents:
        """An epoll object that reports few events at a time."""

        def __init__(self) -> None:
            epoll = select.epoll()
            self.register, self.modify, self.unregister = epoll.register, epoll.modify, epoll.unregister
            self.fileno, self.close = epoll.fileno, epoll.close
            self._poll = epoll.poll

        def poll(self, timeout_s: float, most: int) -> list[tuple[int, int]]:
            return self._poll(timeout_s, min(most, SOCKETS_IN_ONE_PASS))

    class _Selector(selectors.EpollSelector):
        _selector_cls = _FewEvents  # what `EpollSelector` makes instead of an epoll object
