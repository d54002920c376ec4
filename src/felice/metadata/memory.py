"""A metadata store in memory, for tests and simulation: nothing outlives the process.

One `MemoryEnsemble` is what a ZooKeeper ensemble would be; each `connect` is a session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from felice.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    Event,
    EventKind,
    Listener,
    Node,
    Operation,
    SessionExpired,
    SetData,
    is_within,
)
from felice.metadata.tree import Change, Outcome, Tree


class Watches:
    """Who wants to hear of what. A listener hears each event once, in order."""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, Listener]] = []

    def add(self, path: str, listener: Listener) -> Callable[[], None]:
        entry = (path, listener)
        self._listeners.append(entry)

        def cancel() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return cancel

    def tell(self, events: Sequence[Event]) -> None:
        for event in events:
            for path, listener in list(self._listeners):
                if is_within(event.path, path):
                    listener(event)

    def clear(self) -> None:
        self._listeners.clear()


class MemoryEnsemble:
    """The tree and the sessions on it."""

    def __init__(self) -> None:
        self.tree = Tree()
        self._sessions: dict[int, MemoryStore] = {}
        self._last_session = 0

    def connect(self) -> MemoryStore:
        self._last_session += 1
        store = MemoryStore(self, self._last_session)
        self._sessions[store.session_id] = store
        return store

    def expire(self, session_id: int) -> None:
        """Ends a session as a lost connection would, whether its owner likes it or not."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.alive = False
            session.watches.clear()
            self.write([Change(EventKind.DELETED, path) for path in self.tree.ephemerals(session_id)])

    def write(self, changes: Sequence[Change]) -> None:
        if changes:
            events = self.tree.apply(changes)
            for session in list(self._sessions.values()):
                session.watches.tell(events)


class MemoryStore:
    """One session of a `MemoryEnsemble`."""

    def __init__(self, ensemble: MemoryEnsemble, session_id: int) -> None:
        self.session_id = session_id
        self.alive = True
        self.watches = Watches()
        self._ensemble = ensemble

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        [created] = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, str)
        return created

    async def get(self, path: str) -> Node:
        self._check_alive(path)
        return self._ensemble.tree.get(path)

    async def exists(self, path: str) -> Node | None:
        self._check_alive(path)
        return self._ensemble.tree.find(path)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        [new_version] = await self.multi([SetData(path, data, version)])
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def children(self, path: str) -> list[str]:
        self._check_alive(path)
        return self._ensemble.tree.children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        self._check_alive()
        changes, outcomes = self._ensemble.tree.plan(operations, self.session_id)
        self._ensemble.write(changes)
        return outcomes

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        return self.watches.add(path, listener)

    async def close(self) -> None:
        self._ensemble.expire(self.session_id)

    def _check_alive(self, path: str = "/") -> None:
        if not self.alive:
            raise SessionExpired(path)
