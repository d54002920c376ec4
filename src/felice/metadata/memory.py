"""A metadata store in memory, for tests and simulation: nothing outlives the process.

One `MemoryEnsemble` is what a ZooKeeper ensemble would be; each `connect` is a session.
"""

from __future__ import annotations

from collections.abc import Sequence

from felice.metadata.session import TreeSession
from felice.metadata.store import EventKind, Operation
from felice.metadata.tree import Change, Outcome, Tree


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
            session.is_alive = False
            session.watches.clear()
            self.write([Change(EventKind.DELETED, path) for path in self.tree.ephemerals(session_id)])

    def write(self, changes: Sequence[Change]) -> None:
        if changes:
            events = self.tree.apply(changes)
            for session in list(self._sessions.values()):
                session.watches.tell(events)


class MemoryStore(TreeSession):
    """One session of a `MemoryEnsemble`."""

    def __init__(self, ensemble: MemoryEnsemble, session_id: int) -> None:
        super().__init__(ensemble.tree, session_id)
        self._ensemble = ensemble

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        self._check_alive()
        changes, outcomes = self._tree.plan(operations, self.session_id)
        self._ensemble.write(changes)
        return outcomes

    async def close(self) -> None:
        self._ensemble.expire(self.session_id)
