"""Lets a fetch wait until some of its partitions change, and read the changed partitions again.

Keeps true: no change is lost: a partition that changed between its reading and `watch` counts as changed.
            After `close` no partition has a listener of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from felice.env import Clock
from felice.replication.partition import Partition
from felice.server.flow.pace import for_each

T = TypeVar("T", bound=Hashable)
"""The part of a request about one partition."""
_Watched: TypeAlias = tuple[Partition, Callable[[], None]]


class FetchAlarm(Generic[T]):
    """Wakes one waiting coroutine when a partition changes, or at the deadline."""

    __slots__ = ("_changed", "_future", "_loop", "_watched")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None
        self._changed: dict[T, None] = {}
        self._watched: list[_Watched] = []

    def watch(self, asked: T, partition: Partition, change_count: int) -> None:
        """Listens to a partition. `change_count`: that of the partition when it was read."""
        wake = partial(self.wake, asked)
        partition.on_advance.add(wake)
        self._watched.append((partition, wake))
        if partition.change_count != change_count:
            self.wake(asked)

    def wake(self, asked: T) -> None:
        """Counts a partition as changed."""
        self._changed[asked] = None
        self._resume()

    def _resume(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def take_changed(self) -> list[T]:
        """The partitions that changed since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)

    async def wait_until(self, deadline: float) -> list[T]:
        """Waits for changed partitions, and returns them; none at the deadline."""
        if not self._changed:
            self._future = self._loop.create_future()
            timer = self._loop.call_at(deadline, self._resume)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        return self.take_changed()

    async def follow(
        self,
        read: Callable[[T], None],
        is_enough: Callable[[], bool],
        deadline: float,
        turn: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """Reads again each partition that changes, until there is enough or the deadline has come.

        `turn` is awaited after each change, because one append may wake hundreds of requests.
        """
        changed = self.take_changed()
        while True:
            await for_each(changed, read, clock)
            if is_enough() or self._loop.time() >= deadline:
                break
            changed = await self.wait_until(deadline)
            await turn()
        await self.stop(clock)

    async def stop(self, clock: Clock) -> None:
        """Stops listening, and serves other connections while it leaves thousands of partitions."""
        await for_each(self._watched, _leave, clock)
        self._watched = []

    def close(self) -> None:
        """Stops listening at once."""
        for watched in self._watched:
            _leave(watched)
        self._watched = []


def _leave(watched: _Watched) -> None:
    partition, wake = watched
    partition.on_advance.discard(wake)
