"""Requests that wait until a value of one partition has passed an offset: high watermark, flushed offset, log start.

Keeps true: each wait ends once, with success, with the reason why it cannot succeed, or at its deadline.
"""

from __future__ import annotations

import asyncio

from felice.env.begun import time_limit
from felice.protocol.errors import ApiError, ErrorCode


class Waiters:
    """The requests that wait for one value of one partition, each for an offset of its own."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        # Public: checking it before `release` saves a call for every append.
        self.entries: list[tuple[int, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        """Whether any request waits."""
        return bool(self.entries)

    async def wait_beyond(self, offset: int, timeout_s: float) -> None:
        """Returns after a `release` above `offset`; raises `ApiError` if that fails or takes too long."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (offset, future)
        self.entries.append(entry)
        try:
            async with time_limit(timeout_s):
                await future
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT) from None
        finally:
            if entry in self.entries:
                self.entries.remove(entry)

    def release(self, mark: int) -> None:
        """The value is `mark` now: requests that wait for a lower offset succeed."""
        for offset, future in self.entries:
            if offset < mark and not future.done():
                future.set_result(None)

    def fail(self, failure: ApiError) -> None:
        """Every waiting request raises `failure`."""
        for _, future in self.entries:
            if not future.done():
                future.set_exception(failure)
