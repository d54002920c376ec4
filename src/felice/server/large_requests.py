"""Requests with thousands of elements: one at a time over all connections, with room for the others between them.

Keeps true:  at most one large request is decoded or handled at a time, and the next one waits as long as this one
             worked: large requests take at most half of the event loop.
How:         `protocol.connection` hands a request of more than `SMALL_REQUEST_ELEMENTS` out before its body is
             read, and refuses one of more than `felice.request.max.elements`; the session takes a turn here, and reads
             and handles it. What its handler awaits is not part of the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from felice.env import Clock

_LOOK_AGAIN_S = 0.02


class LargeRequests:
    """The queue of a broker's large requests, in the order in which they came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._free_at = 0.0

    @asynccontextmanager
    async def turn(self, is_full: Callable[[], bool] = lambda: False) -> AsyncIterator[None]:
        """Waits for its turn, and while there is no room for further replies; what is done in it counts as work."""
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
