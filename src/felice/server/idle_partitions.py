"""Idle partitions of a follower's fetch session: they are not read again until something about them changes.

A follower that has everything of a partition fetches it again and again only to say so. With thousands of partitions
that would be most of a broker's work.

Keeps true: a partition is active or idle, never both. It becomes idle only where `Partition.begin_idle` found that the
            follower has everything. Any change of the partition, any request that names it, and a new registration of
            the follower make it active again, so nothing new is ever missed.
            An idle follower counts as caught up while its session is alive (`SessionLiveness`).
Leaves:     which partitions a session has, and what its replies must name, to `fetch_sessions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, Protocol, TypeVar

from felice.replication.leader import FollowerProgress, SessionLiveness

K = TypeVar("K")


class Changes(Protocol):
    """Calls its listeners when a partition changes; `Partition.on_advance` is one."""

    def add(self, listener: Callable[[], None]) -> None: ...
    def discard(self, listener: Callable[[], None]) -> None: ...


class IdlePartitions(Generic[K]):
    """The partitions of one session, active or idle."""

    __slots__ = ("_listening", "active", "idle", "liveness", "on_wake")

    def __init__(self, partitions: Iterable[K]) -> None:
        # To be read, in service order.
        self.active: dict[K, None] = dict.fromkeys(partitions)
        self.idle: dict[K, FollowerProgress] = {}
        self.liveness = SessionLiveness()
        # Called with each partition that is woken while a request waits.
        self.on_wake: Callable[[K], None] | None = None
        # A listener stays when its partition becomes active: a waiting request hears of the next change by it.
        self._listening: dict[K, tuple[Changes, Callable[[], None]]] = {}

    def begin_idle(self, partition: K, progress: FollowerProgress, changes: Changes) -> None:
        if partition not in self.active:
            return
        del self.active[partition]
        self.idle[partition] = progress
        known = self._listening.get(partition)
        if known is None or known[0] is not changes:
            self._stop_listening(partition)
            listener = partial(self.wake, partition)
            self._listening[partition] = changes, listener
            changes.add(listener)

    def wake(self, partition: K) -> None:
        progress = self.idle.pop(partition, None)
        if progress is not None:
            progress.end_idle(self.liveness)
            self.active[partition] = None
        if self.on_wake is not None:
            self.on_wake(partition)

    def wake_all(self) -> None:
        for partition in list(self.idle):
            self.wake(partition)

    def add(self, partition: K) -> None:
        self.active[partition] = None

    def remove(self, partition: K) -> None:
        self.wake(partition)
        self._stop_listening(partition)
        del self.active[partition]

    def move_to_end(self, partition: K) -> None:
        """Serves an active partition after all others, from the next request on."""
        if partition in self.active:
            del self.active[partition]
            self.active[partition] = None

    def close(self) -> None:
        self.wake_all()
        for partition in list(self._listening):
            self._stop_listening(partition)

    def _stop_listening(self, partition: K) -> None:
        known = self._listening.pop(partition, None)
        if known is not None:
            changes, listener = known
            changes.discard(listener)
