"""What is alike in every session on a `Tree` of this process, be it in memory or on disk.

Keeps true: a single write is a `multi` of one; reads answer from the tree as it is.
Leaves:     `multi`, and when a session is over, to the stores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from felice.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    Event,
    Listener,
    Node,
    Operation,
    SessionExpired,
    SetData,
    is_within,
)
from felice.metadata.tree import Outcome, Tree


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


class TreeSession(ABC):
    def __init__(self, tree: Tree, session_id: int) -> None:
        self.session_id = session_id
        self.watches = Watches()
        self.is_alive = True
        self._tree = tree

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]: ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        [created] = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, str)
        return created

    async def get(self, path: str) -> Node:
        self._check_alive(path)
        return self._tree.get(path)

    async def exists(self, path: str) -> Node | None:
        self._check_alive(path)
        return self._tree.find(path)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        [new_version] = await self.multi([SetData(path, data, version)])
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def children(self, path: str) -> list[str]:
        self._check_alive(path)
        return self._tree.children(path)

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        return self.watches.add(path, listener)

    def _check_alive(self, path: str = "/") -> None:
        if not self.is_alive:
            raise SessionExpired(path)
