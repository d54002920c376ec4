"""The interface of metadata stores: ZooKeeper's semantics, for any place where the data is kept.

Keeps true (asserted by one contract suite over every store):
  C1  a write that names a version happens only if the node still has it;
      `multi` happens as a whole or not at all.
  A write is durable and visible to this session's reads when its call returns.
  Watch events arrive in the order of the writes. When an event arrives, its write can already be
  read. No read of this session shows a part of a transaction before all events of the transaction
  have arrived. Events name a path and carry no data: the watcher reads the current node.
  Where events were lost with a connection, one `MISSED` stands for all of them.
  Ephemeral nodes are deleted when their session ends, and `EXPIRED` is reported at the
  latest when the session must have ended by this process's own clock.
  A write whose answer was lost is `StoreUnavailable`, never silently repeated.

Paths look like `/brokers/topics/orders`; the root `/` always exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

from felice.dataclass import dataclass
from felice.metadata.latencies import RequestLatencies

ANY_VERSION = -1


class StoreError(Exception):
    """A write or read was refused; `path` is the node that it was about."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class NoNode(StoreError):
    """The node, or the parent of a node to create, does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "no such node")


class NodeExists(StoreError):
    """A node to create exists already."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "the node exists")


class NotEmpty(StoreError):
    """A node to delete has children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "the node has children")


class BadVersion(StoreError):
    """The node has another version than the operation names: another writer was first."""

    def __init__(self, path: str, expected: int, actual: int | None = None) -> None:
        super().__init__(
            path, f"expected version {expected}, found {'another' if actual is None else actual}"
        )


class NoChildrenForEphemerals(StoreError):
    """The parent of a node to create is ephemeral."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "an ephemeral node cannot have children")


class NotAllowed(StoreError):
    """The store denies this session access to the node."""


class SessionExpired(StoreError):
    """The session has ended; `renew` begins the next one."""

    def __init__(self, path: str = "/") -> None:
        super().__init__(path, "the session has ended")


class StoreUnavailable(StoreError):
    """The answer to a write was lost; whether the write happened is unknown.

    After a compare-and-set, read again: version or value of the node show what happened. Reads do not fail like this:
    they are repeated while the session lives.
    """


@dataclass(frozen=True, slots=True)
class Node:
    """One node as it was read. `created_zxid` never changes: for a broker it is the broker epoch."""

    data: bytes
    version: int
    created_zxid: int
    modified_zxid: int
    ephemeral_owner: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node. `ephemeral`: it lives as long as the session. `sequential`: ten digits are added to its name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a node's data, if it has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children, if it has this version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing; refuse the transaction unless the node exists and has this version."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | SetData | Delete | Check


class EventKind(Enum):
    """What happened to a node."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    MISSED = "missed"  # anything at this path and below may have changed: read all of it again


@dataclass(frozen=True, slots=True)
class Event:
    """A change of the node at `path`. An event carries no data."""

    kind: EventKind
    path: str


Listener: TypeAlias = Callable[[Event], None]


class SessionState(Enum):
    """Whether the store can be reached, and the session lives."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the store cannot be reached; the session may be alive, and calls wait
    EXPIRED = "expired"  # ended, with its ephemeral nodes; every call is refused until `renew`


SessionListener: TypeAlias = Callable[[SessionState], None]


class MetadataStore(Protocol):
    """One session with the store, and after `renew` the next one."""

    @property
    def session_id(self) -> int:
        """The id of the current session; it is the `ephemeral_owner` of the session's ephemeral nodes."""
        ...

    @property
    def session_state(self) -> SessionState:
        """The state now; it becomes `EXPIRED` by the clock, even if no message can arrive."""
        ...

    @property
    def request_latencies(self) -> RequestLatencies:
        """How long the requests of this session took; without any where the store is in this process."""
        ...

    def watch_session(self, listener: SessionListener) -> Callable[[], None]:
        """Reports every change of `session_state` until the returned function is called.

        The state changes before listeners are called. The end by `close` is not reported.
        """
        ...

    async def renew(self) -> None:
        """Begins a new session after `EXPIRED`; watches stay, and get `MISSED`.

        Waits until the store can be reached. A session that is alive, or a store that was closed
        (`SessionExpired`), is not renewed.
        """
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Creates a node below an existing parent; returns its path (with ten digits added if sequential)."""
        ...

    async def get(self, path: str) -> Node:
        """The node; raises `NoNode`."""
        ...

    async def exists(self, path: str) -> Node | None:
        """The node, or None."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Each path's node or None, in the order given; thousands cost few round trips. Not one snapshot."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replaces the data; returns the new version. Raises `BadVersion` if the node has another version."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes a node without children. Raises `BadVersion` if the node has another version."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names of the children, sorted; raises `NoNode`."""
        ...

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Each path's children, or None where there is no node; as `get_many`."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        """All or nothing. Returns per operation: the path created (`Create`), the new version (`SetData`), or None.

        Raises the `StoreError` of the operation that was refused, or `StoreUnavailable` if the answer was lost.
        """
        ...

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        """Reports every change at `path` and below until the returned function is called."""
        ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes are deleted, its watches end, and it cannot be renewed."""
        ...

    async def abandon(self) -> None:
        """Drops the session as a killed process would: if another process keeps the store, it ends by timeout."""
        ...


def parent_of(path: str) -> str:
    """The parent's path; that of a top-level node is `/`."""
    return path.rpartition("/")[0] or "/"


def is_within(path: str, root: str) -> bool:
    """Whether `path` is `root` or lies below it."""
    return root == "/" or path == root or path.startswith(root + "/")


def check_path(path: str) -> None:
    """Refuses the paths that ZooKeeper refuses."""
    if not path.startswith("/") or (path != "/" and path.endswith("/")) or "//" in path or "\0" in path:
        raise StoreError(path, "not an absolute path of a node")
