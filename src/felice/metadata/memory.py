"""A metadata store in memory, for tests and simulation: nothing outlives the process.

A `MemoryEnsemble` takes the place of a ZooKeeper ensemble; each `connect` is a session, and several brokers of one
process may have one each. Tests can do to a session what can happen to one of ZooKeeper: `suspend`, `resume`,
`expire`, and delay or lose messages.

Keeps true: a suspended session's calls wait, and its events are lost: it gets `MISSED` when it is resumed. A write
            whose answer was under way when the session was cut off did happen, and its caller gets
            `StoreUnavailable`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from felice.metadata.session import TreeSession
from felice.metadata.store import (
    EventKind,
    Operation,
    SessionExpired,
    SessionState,
    StoreUnavailable,
)
from felice.metadata.tree import Change, OperationResult, Tree

# Awaited with the session's id for each message to the ensemble and each answer.
Travel = Callable[[int], Awaitable[None]]


class MemoryEnsemble:
    """The tree, and the sessions on it."""

    def __init__(self, travel: Travel | None = None) -> None:
        self.tree = Tree()
        self.travel = travel
        self._sessions: dict[int, MemoryStore] = {}
        self._last_session = 0

    def connect(self) -> MemoryStore:
        """A new session."""
        store = MemoryStore(self, self._next_session())
        self._sessions[store.session_id] = store
        return store

    def suspend(self, session_id: int) -> None:
        """Cuts a session off: its owner knows that the ensemble cannot be reached, not whether the session lives."""
        session = self._sessions[session_id]
        session.cut_offs += 1
        session.life.become(SessionState.SUSPENDED)

    def resume(self, session_id: int) -> None:
        """Connects a suspended session again."""
        self._sessions[session_id].connect_again()

    def expire(self, session_id: int) -> None:
        """Ends a session as a timeout would; `renew` begins the next one."""
        session = self._sessions.get(session_id)
        if session is not None:
            self.end(session)
            session.lose()

    def end(self, session: MemoryStore) -> None:
        """Removes a session and its ephemeral nodes."""
        if self._sessions.pop(session.session_id, None) is not None:
            self.write([Change(EventKind.DELETED, path) for path in self.tree.ephemerals(session.session_id)])

    def renew(self, session: MemoryStore) -> None:
        """Gives an expired session's owner the next session."""
        session.session_id = self._next_session()
        self._sessions[session.session_id] = session
        session.connect_again()

    def write(self, changes: Sequence[Change]) -> None:
        """Applies changes to the tree, and reports them to the watches of all connected sessions."""
        if changes:
            events = self.tree.apply(changes)
            for session in list(self._sessions.values()):
                if session.session_state is SessionState.CONNECTED:
                    session.watches.tell(events)

    def _next_session(self) -> int:
        self._last_session += 1
        return self._last_session


class MemoryStore(TreeSession):
    """One session of a `MemoryEnsemble`."""

    def __init__(self, ensemble: MemoryEnsemble, session_id: int) -> None:
        super().__init__(ensemble.tree, session_id)
        # Number of lost connections: an answer that was sent before the last loss never arrives.
        self.cut_offs = 0
        self._ensemble = ensemble
        self._is_closed = False
        self._waiting: set[asyncio.Future[None]] = set()

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """All or nothing, see `MetadataStore.multi`. Waits while the session is suspended."""
        await self._reach("/")
        changes, outcomes = self._tree.plan(operations, self.session_id)
        cut_offs = self.cut_offs
        self._ensemble.write(changes)
        if self._ensemble.travel is not None:
            await self._ensemble.travel(self.session_id)
        if cut_offs != self.cut_offs:
            raise StoreUnavailable("/", "the connection was lost before the answer came")
        return outcomes

    async def renew(self) -> None:
        """Begins the next session after the end of this one; raises `SessionExpired` if it was closed."""
        if self._is_closed:
            raise SessionExpired()
        if self.session_state is SessionState.EXPIRED:
            self._ensemble.renew(self)

    async def close(self) -> None:
        """Ends the session and deletes its ephemeral nodes."""
        if self.session_state is not SessionState.EXPIRED:
            self._ensemble.end(self)
        await self.abandon()

    async def abandon(self) -> None:
        """Stops watching and refuses further calls. The ephemeral nodes stay until a test lets the session expire."""
        self._is_closed = True
        self.watches.clear()
        self.life.end()
        self._wake()

    def connect_again(self) -> None:
        """The ensemble can be reached (again); changes in between are unknown."""
        self.life.become(SessionState.CONNECTED)
        self._wake()
        self.watches.tell_missed()

    def lose(self) -> None:
        """The ensemble ended the session."""
        self.cut_offs += 1
        self.life.become(SessionState.EXPIRED)
        self._wake()

    async def _wait_readable(self, path: str = "/") -> None:
        await self._reach(path)
        if self._ensemble.travel is not None:
            await self._ensemble.travel(self.session_id)
            await self._wait_connected(path)

    async def _reach(self, path: str) -> None:
        """Returns when a request of this session has arrived at the ensemble."""
        await self._wait_connected(path)
        if self._ensemble.travel is not None:
            await self._ensemble.travel(self.session_id)
            await self._wait_connected(path)

    async def _wait_connected(self, path: str) -> None:
        while self.session_state is SessionState.SUSPENDED:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)
        self._check_alive(path)

    def _wake(self) -> None:
        for future in list(self._waiting):
            if not future.done():
                future.set_result(None)
