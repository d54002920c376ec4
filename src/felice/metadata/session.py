"""The parts that sessions of all stores share: watches and listeners, and reads of a `Tree` of this process.

Keeps true: a single write is a `multi` of one; reads answer from the current tree.
Leaves:     `multi`, and the end of a session, to the stores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from felice.metadata.latencies import RequestLatencies
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
    SessionListener,
    SessionState,
    SetData,
    is_within,
)
from felice.metadata.tree import OperationResult, Tree


class Watches:
    """Listeners by the path that they watch. A listener gets each event once, in order."""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, Listener]] = []

    def add(self, path: str, listener: Listener) -> Callable[[], None]:
        """Calls `listener` for each event at `path` and below, until the returned function is called."""
        entry = (path, listener)
        self._listeners.append(entry)

        def cancel() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return cancel

    def tell(self, events: Sequence[Event]) -> None:
        """Calls the listeners of each event's path, in the order of the events."""
        for event in events:
            for path, listener in list(self._listeners):
                if is_within(event.path, path):
                    listener(event)

    def tell_missed(self) -> None:
        """Tells each listener to read everything again that it watches."""
        for path, listener in list(self._listeners):
            listener(Event(EventKind.MISSED, path))

    def clear(self) -> None:
        """Removes all listeners."""
        self._listeners.clear()


class SessionLife:
    """A session's state, and the listeners for its changes."""

    def __init__(self) -> None:
        self.state = SessionState.CONNECTED
        self._listeners: list[SessionListener] = []

    def listen(self, listener: SessionListener) -> Callable[[], None]:
        """Calls `listener` with each new state until the returned function is called."""
        self._listeners.append(listener)

        def cancel() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return cancel

    def become(self, state: SessionState) -> None:
        """Takes a new state, then calls the listeners. The same state again is no change."""
        if state is not self.state:
            self.state = state
            for listener in list(self._listeners):
                listener(state)

    def end(self) -> None:
        """The owner ended the session: no listener is called."""
        self._listeners.clear()
        self.state = SessionState.EXPIRED


class SingleWrites(ABC):
    """Writes of one node: each is a `multi` of one."""

    @property
    def request_latencies(self) -> RequestLatencies:
        """None were measured, unless the store measures them."""
        return RequestLatencies()

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """See `MetadataStore.multi`."""
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Creates a node below an existing parent; returns its path (with ten digits added if sequential)."""
        [created] = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, str)
        return created

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replaces the data; returns the new version. Raises `BadVersion` if the node has another version."""
        [new_version] = await self.multi([SetData(path, data, version)])
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes a node without children. Raises `BadVersion` if the node has another version."""
        await self.multi([Delete(path, version)])


class TreeSession(SingleWrites):
    """A session whose reads answer from a tree of this process."""

    def __init__(self, tree: Tree, session_id: int) -> None:
        self.session_id = session_id
        self.watches = Watches()
        self.life = SessionLife()
        self._tree = tree

    @property
    def session_state(self) -> SessionState:
        """The session's state."""
        return self.life.state

    def watch_session(self, listener: SessionListener) -> Callable[[], None]:
        """Calls `listener` with each new state until the returned function is called."""
        return self.life.listen(listener)

    async def get(self, path: str) -> Node:
        """The node; raises `NoNode`."""
        await self._wait_readable(path)
        return self._tree.get(path)

    async def exists(self, path: str) -> Node | None:
        """The node, or None."""
        await self._wait_readable(path)
        return self._tree.find(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Each path's node or None, in the order given."""
        await self._wait_readable()
        return [self._tree.find(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        """Names of the children, sorted; raises `NoNode`."""
        await self._wait_readable(path)
        return self._tree.children(path)

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Each path's children, or None where there is no node."""
        await self._wait_readable()
        return [self._tree.children(path) if self._tree.find(path) else None for path in paths]

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        """Calls `listener` for each change at `path` and below, until the returned function is called."""
        return self.watches.add(path, listener)

    async def _wait_readable(self, path: str = "/") -> None:
        """Returns when a read of this session would be answered."""
        self._check_alive(path)

    def _check_alive(self, path: str = "/") -> None:
        if self.life.state is SessionState.EXPIRED:
            raise SessionExpired(path)
