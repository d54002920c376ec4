"""Limits requests with thousands of elements to one at a time over all connections, with pauses between them.

Keeps true:  at most one large request is decoded or handled at a time. The next one waits as long as the previous one
             took, so large requests take at most half of the event loop's time.
How:         `protocol.connection` returns a request of more than `SMALL_REQUEST_ELEMENTS` before its body is decoded,
             and refuses one of more than `felice.request.max.elements`. The session takes a turn here, decodes the
             request and handles it. The time that the handler awaits is not part of the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from felice.env import Clock

_LOOK_AGAIN_S = 0.02


class LargeRequests:
    """The queue of a broker's large requests, in order of arrival."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._free_at = 0.0

    @asynccontextmanager
    async def turn(self, is_full: Callable[[], bool] = lambda: False) -> AsyncIterator[None]:
        """Waits for the caller's turn, and until `is_full` is false. The time spent in the context counts as work."""
        async with self._one_at_a_time:
            await asyncio.sleep(max(0.0, self._free_at - self._clock.monotonic()))
            while is_full():
                await asyncio.sleep(_LOOK_AGAIN_S)
            began = self._clock.monotonic()
            try:
                yield
            finally:
                now = self._clock.monotonic()
                self._free_at = now + (now - began)
