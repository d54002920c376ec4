"""Idle partitions of a follower's fetch session: the broker does not read them again until they change.

A follower that is caught up fetches a partition repeatedly only to report its position. With thousands of partitions
this would be most of a broker's work.

Keeps true: a partition is active or idle, never both. It becomes idle only if `Partition.begin_idle` found that the
            follower is caught up. Any change of the partition, any request that names it, and a new registration of
            the follower make it active again, so the follower misses no record.
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

    def add(self, listener: Callable[[], None]) -> None:
        """Calls `listener` at each change from now on."""

    def discard(self, listener: Callable[[], None]) -> None:
        """Stops calling `listener`; has no effect if it was not added."""


class IdlePartitions(Generic[K]):
    """The partitions of one session, active or idle."""

    __slots__ = ("_is_closed", "_listening", "active", "idle", "liveness", "on_wake")

    def __init__(self, partitions: Iterable[K]) -> None:
        # Active partitions in service order.
        self.active: dict[K, None] = dict.fromkeys(partitions)
        self.idle: dict[K, FollowerProgress] = {}
        self.liveness = SessionLiveness()
        # Called with each partition that becomes active while a request waits.
        self.on_wake: Callable[[K], None] | None = None
        # The listener stays when its partition becomes active, because it reports the next change to a waiting request.
        self._listening: dict[K, tuple[Changes, Callable[[], None]]] = {}
        self._is_closed = False

    def may_begin_idle(self, partition: K) -> bool:
        """Whether the partition is active and the session has not ended. Call it before `Partition.begin_idle`."""
        return partition in self.active and not self._is_closed

    def begin_idle(self, partition: K, progress: FollowerProgress, changes: Changes) -> None:
        """Makes a partition idle if it is active. `Partition.begin_idle` gave the caller its `progress`."""
        if not self.may_begin_idle(partition):
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
        """Makes a partition active."""
        progress = self.idle.pop(partition, None)
        if progress is not None:
            progress.end_idle(self.liveness)
            self.active[partition] = None
        if self.on_wake is not None:
            self.on_wake(partition)

    def wake_all(self) -> None:
        """Makes all partitions active."""
        for partition in list(self.idle):
            self.wake(partition)

    def add(self, partition: K) -> None:
        """Adds an active partition."""
        self.active[partition] = None

    def remove(self, partition: K) -> None:
        """Removes a partition."""
        self.wake(partition)
        self._stop_listening(partition)
        del self.active[partition]

    def move_to_end(self, partition: K) -> None:
        """Moves an active partition to the end of the service order of the next request."""
        if partition in self.active:
            del self.active[partition]
            self.active[partition] = None

    def close(self) -> None:
        """Stops listening to all partitions. A request that still waits makes none of them idle again."""
        self._is_closed = True
        self.wake_all()
        for partition in list(self._listening):
            self._stop_listening(partition)

    def _stop_listening(self, partition: K) -> None:
        known = self._listening.pop(partition, None)
        if known is not None:
            changes, listener = known
            changes.discard(listener)
