"""Who waits until an offset of one partition has passed a mark: the high watermark, the disk, a log start.

Keeps true: each waiter hears once, of the mark or of why it will never be passed; a deadline bounds the wait.
"""

from __future__ import annotations

import asyncio

from felice.protocol.errors import ApiError, ErrorCode


class Waiters:
    __slots__ = ("entries",)

    def __init__(self) -> None:
        # Who asks before `release` whether there are any saves every append a call.
        self.entries: list[tuple[int, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self.entries)

    async def wait_beyond(self, offset: int, timeout_s: float) -> None:
        """Until `release(mark)` with a mark above `offset`; raises `ApiError` if that fails or takes too long."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (offset, future)
        self.entries.append(entry)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT) from None
        finally:
            if entry in self.entries:
                self.entries.remove(entry)

    def release(self, mark: int) -> None:
        for offset, future in self.entries:
            if offset < mark and not future.done():
                future.set_result(None)

    def fail(self, failure: ApiError) -> None:
        for _, future in self.entries:
            if not future.done():
                future.set_exception(failure)
