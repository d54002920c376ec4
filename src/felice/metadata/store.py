"""The metadata store's interface: ZooKeeper's semantics, whoever keeps the data.

Keeps true (asserted by one contract suite over every store):
  C1  a write that names a version happens only if the node still has it;
      `multi` happens whole or not at all.
  A write is durable and visible to this session's reads when its call returns.
  Watch events come in the order of the writes, after the write they tell of is
  readable; they name a path and carry no data: the watcher reads what is there now.
  Where events were lost with a connection, one `MISSED` stands for all of them.
  Ephemeral nodes go when their session ends, and `EXPIRED` is told of at the latest
  when the session must have ended by this process's own clock.
  A write whose answer was lost is `StoreUnavailable`, never silently tried again.

Paths look like `/brokers/topics/orders`; the root `/` always exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

ANY_VERSION = -1


class StoreError(Exception):
    """A write or read was refused; `path` is the node it was about."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class NoNode(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "no such node")


class NodeExists(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "the node exists")


class NotEmpty(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "the node has children")


class BadVersion(StoreError):
    def __init__(self, path: str, expected: int, actual: int | None = None) -> None:
        super().__init__(
            path, f"expected version {expected}, found {'another' if actual is None else actual}"
        )


class NoChildrenForEphemerals(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "an ephemeral node cannot have children")


class NotAllowed(StoreError):
    """The store keeps this node from us."""


class SessionExpired(StoreError):
    def __init__(self, path: str = "/") -> None:
        super().__init__(path, "the session has ended")


class StoreUnavailable(StoreError):
    """The store's answer to a write never came; whether it happened is unknown.

    Whoever compares and sets reads again: its own version or value tells. Reads are not refused
    like this: they are repeated for as long as the session lives.
    """


@dataclass(frozen=True, slots=True)
class Node:
    """One node as read. `created_zxid` never changes: for a broker it is the broker epoch."""

    data: bytes
    version: int
    created_zxid: int
    modified_zxid: int
    ephemeral_owner: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | SetData | Delete | Check


class EventKind(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    MISSED = "missed"  # anything at this path and below may have changed meanwhile: read it all again


@dataclass(frozen=True, slots=True)
class Event:
    kind: EventKind
    path: str


Listener: TypeAlias = Callable[[Event], None]


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the store cannot be reached; the session may live, and calls wait
    EXPIRED = "expired"  # over, with its ephemeral nodes; every call is refused until `renew`


SessionListener: TypeAlias = Callable[[SessionState], None]


class MetadataStore(Protocol):
    """One session with the store, and after `renew` the next."""

    @property
    def session_id(self) -> int: ...

    @property
    def session_state(self) -> SessionState: ...

    def watch_session(self, listener: SessionListener) -> Callable[[], None]:
        """Tells of every change of `session_state` until the returned function is called.

        The state is in force before anybody is told; of the end by `close` nobody is.
        """
        ...

    async def renew(self) -> None:
        """Begins a new session after `EXPIRED`; watches stay, and hear `MISSED`.

        Waits until the store can be reached. A session that lives, or a store that was closed
        (`SessionExpired`), is not renewed.
        """
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Makes a node under an existing parent; returns its path (with ten digits if sequential)."""
        ...

    async def get(self, path: str) -> Node: ...
    async def exists(self, path: str) -> Node | None: ...
    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Each path's node or None, in the order asked; thousands cost few round trips. Not one snapshot."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replaces the data; returns the new version."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...
    async def children(self, path: str) -> list[str]:
        """Names of the children, sorted."""
        ...

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Each path's children, or None where there is no node; as `get_many`."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        """All or nothing. Per operation: the path created, the new version, or None."""
        ...

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        """Tells of every change at `path` and below until the returned function is called."""
        ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes go, its watches fall silent, nothing renews it."""
        ...

    async def abandon(self) -> None:
        """Lets go as a killed process would: where others keep the store, the session ends by itself later."""
        ...


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def is_within(path: str, root: str) -> bool:
    return root == "/" or path == root or path.startswith(root + "/")


def check_path(path: str) -> None:
    """Refuses what ZooKeeper refuses."""
    if not path.startswith("/") or (path != "/" and path.endswith("/")) or "//" in path or "\0" in path:
        raise StoreError(path, "not an absolute path of a node")
