"""Wakes a Fetch that waits, when a partition that it has read changes.

Keeps true: no change is lost: a partition that changed between its reading and `watch` counts as changed.
            After `close` no partition has a listener of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from felice.env import Clock
from felice.replication.partition import Partition
from felice.server.fetching.fetch_sessions import FetchedPartition
from felice.server.flow.pace import for_each

_Watched: TypeAlias = tuple[Partition, Callable[[], None]]


class FetchAlarm:
    """Wakes one waiting coroutine when a partition changes, or at the deadline."""

    __slots__ = ("_changed", "_future", "_loop", "_watched")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None
        self._changed: dict[FetchedPartition, None] = {}
        self._watched: list[_Watched] = []

    def watch(self, asked: FetchedPartition, partition: Partition, change_count: int) -> None:
        """Listens to a partition. `change_count`: that of the partition when it was read."""
        wake = partial(self.wake, asked)
        partition.on_advance.add(wake)
        self._watched.append((partition, wake))
        if partition.change_count != change_count:
            self.wake(asked)

    def wake(self, asked: FetchedPartition) -> None:
        """Counts a partition as changed."""
        self._changed[asked] = None
        self._resume()

    def _resume(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def take_changed(self) -> list[FetchedPartition]:
        """The partitions that changed since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)

    async def wait_until(self, deadline: float) -> list[FetchedPartition]:
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
