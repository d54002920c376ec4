"""The metadata store's interface: ZooKeeper's semantics, whoever keeps the data.

Keeps true (asserted by one contract suite over every store):
  C1  a write that names a version happens only if the node still has it;
      `multi` happens whole or not at all.
  A write is durable and visible to this session's reads when its call returns.
  Watch events come in the order of the writes, after the write they tell of is
  readable; they name a path and carry no data: the watcher reads what is there now.
  Ephemeral nodes go when their session ends.

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
    def __init__(self, path: str, expected: int, actual: int) -> None:
        super().__init__(path, f"expected version {expected}, found {actual}")


class NoChildrenForEphemerals(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "an ephemeral node cannot have children")


class SessionExpired(StoreError):
    def __init__(self, path: str = "/") -> None:
        super().__init__(path, "the session has ended")


class StoreUnavailable(StoreError):
    """The store could not make a write durable; whether it happened is unknown."""


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


@dataclass(frozen=True, slots=True)
class Event:
    kind: EventKind
    path: str


Listener: TypeAlias = Callable[[Event], None]


class MetadataStore(Protocol):
    """One session with the store."""

    @property
    def session_id(self) -> int: ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Makes a node under an existing parent; returns its path (with ten digits if sequential)."""
        ...

    async def get(self, path: str) -> Node: ...
    async def exists(self, path: str) -> Node | None: ...
    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replaces the data; returns the new version."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...
    async def children(self, path: str) -> list[str]:
        """Names of the children, sorted."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        """All or nothing. Per operation: the path created, the new version, or None."""
        ...

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        """Tells of every change at `path` and below until the returned function is called."""
        ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes go, its watches fall silent."""
        ...


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def is_within(path: str, root: str) -> bool:
    return root == "/" or path == root or path.startswith(root + "/")


def check_path(path: str) -> None:
    """Refuses what ZooKeeper refuses."""
    if not path.startswith("/") or (path != "/" and path.endswith("/")) or "//" in path or "\0" in path:
        raise StoreError(path, "not an absolute path of a node")
