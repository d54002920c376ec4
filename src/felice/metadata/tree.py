"""The tree of nodes that the memory store and the embedded store share. Pure.

A write has two steps. `plan` checks the operations against the tree and resolves them into `Change`s that cannot
fail; `apply` carries the changes out. In between a store may write the changes to disk: replaying them rebuilds the
same tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from felice.dataclass import dataclass
from felice.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
    StoreError,
    check_path,
    parent_of,
)

OperationResult = str | int | None


@dataclass(frozen=True, slots=True)
class Change:
    """One resolved write. `owner` is the session of an ephemeral node, else 0."""

    kind: EventKind
    path: str
    data: bytes = b""
    owner: int = 0


@dataclass(slots=True)
class _Entry:
    node: Node
    children: set[str] = field(default_factory=set)
    # ZooKeeper numbers sequential nodes by changes of the parent's children; counting only creations keeps the promise
    # that matters: no number is given twice below one parent.
    births: int = 0


class Tree:
    """The nodes by path. `zxid` is the number of the last write."""

    def __init__(self) -> None:
        self.zxid = 0
        self._entries: dict[str, _Entry] = {"/": _Entry(Node(b"", 0, 0, 0))}

    def get(self, path: str) -> Node:
        """The node; raises `NoNode`."""
        entry = self._entries.get(path)
        if entry is None:
            raise NoNode(path)
        return entry.node

    def find(self, path: str) -> Node | None:
        """The node, or None."""
        entry = self._entries.get(path)
        return entry.node if entry else None

    def children(self, path: str) -> list[str]:
        """Names of the children, sorted; raises `NoNode`."""
        entry = self._entries.get(path)
        if entry is None:
            raise NoNode(path)
        return sorted(entry.children)

    def births(self, path: str) -> int:
        """Number of children ever created below `path`: the next sequential node gets this number."""
        return self._entries[path].births

    def walk(self) -> Iterator[tuple[str, Node, int]]:
        """Every node with its count of created children, parents before children."""
        for path in sorted(self._entries):
            entry = self._entries[path]
            yield path, entry.node, entry.births

    def ephemerals(self, owner: int | None = None) -> list[str]:
        """Paths of ephemeral nodes, of one session or of all, deepest first."""
        owned = (
            path
            for path, entry in self._entries.items()
            if entry.node.ephemeral_owner and owner in (None, entry.node.ephemeral_owner)
        )
        return sorted(owned, reverse=True)

    def plan(
        self, operations: Sequence[Operation], session_id: int
    ) -> tuple[list[Change], list[OperationResult]]:
        """The changes that the operations make; raises the refusal of the first impossible one."""
        view = _Plan(self)
        outcomes = [view.add(operation, session_id) for operation in operations]
        return view.changes, outcomes

    def apply(self, changes: Sequence[Change]) -> list[Event]:
        """Carries out planned changes as one transaction."""
        self.zxid += 1
        for change in changes:
            self._apply_one(change)
        return [Event(change.kind, change.path) for change in changes]

    def _apply_one(self, change: Change) -> None:
        if change.kind is EventKind.CHANGED:
            entry = self._entries[change.path]
            entry.node = replace(
                entry.node, data=change.data, version=entry.node.version + 1, modified_zxid=self.zxid
            )
            return
        parent = self._entries[parent_of(change.path)]
        name = change.path.rpartition("/")[2]
        if change.kind is EventKind.CREATED:
            parent.births += 1
            parent.children.add(name)
            self._entries[change.path] = _Entry(Node(change.data, 0, self.zxid, self.zxid, change.owner))
        else:
            parent.children.discard(name)
            del self._entries[change.path]

    def restore(self, zxid: int, nodes: Sequence[tuple[str, Node, int]]) -> None:
        """Replaces the tree by the output of `walk`."""
        self.zxid = zxid
        self._entries = {path: _Entry(node, births=births) for path, node, births in nodes}
        for path in self._entries:
            if path != "/":
                self._entries[parent_of(path)].children.add(path.rpartition("/")[2])


class _Plan:
    """The tree as it would be after the operations so far."""

    def __init__(self, tree: Tree) -> None:
        self.changes: list[Change] = []
        self._tree = tree
        self._touched: dict[str, tuple[int, int] | None] = {}  # path -> (version, owner), None if deleted
        self._births: dict[str, int] = {}
        self._children: dict[str, int] = {}

    def add(self, operation: Operation, session_id: int) -> OperationResult:
        check_path(operation.path)
        match operation:
            case Create():
                return self._create(operation, session_id)
            case SetData(path, data, version):
                actual = self._checked(path, version)
                self._touched[path] = (actual + 1, self._owner(path))
                self.changes.append(Change(EventKind.CHANGED, path, data))
                return actual + 1
            case Delete(path, version):
                self._delete(path, version)
            case Check(path, version):
                self._checked(path, version)
        return None

    def _create(self, operation: Create, session_id: int) -> str:
        parent = parent_of(operation.path)
        if self._state(parent) is None:
            raise NoNode(parent)
        if self._owner(parent):
            raise NoChildrenForEphemerals(parent)
        births = self._births.get(parent)
        if births is None:
            births = self._tree.births(parent) if self._tree.find(parent) else 0
        path = f"{operation.path}{births:010d}" if operation.sequential else operation.path
        if self._state(path) is not None:
            raise NodeExists(path)
        owner = session_id if operation.ephemeral else 0
        self._births[parent] = births + 1
        self._children[parent] = self._child_count(parent) + 1
        self._children[path] = 0
        self._births[path] = 0
        self._touched[path] = (0, owner)
        self.changes.append(Change(EventKind.CREATED, path, operation.data, owner))
        return path

    def _delete(self, path: str, version: int) -> None:
        if path == "/":
            raise StoreError(path, "the root cannot be deleted")
        self._checked(path, version)
        if self._child_count(path):
            raise NotEmpty(path)
        parent = parent_of(path)
        self._children[parent] = self._child_count(parent) - 1
        self._touched[path] = None
        self.changes.append(Change(EventKind.DELETED, path))

    def _state(self, path: str) -> tuple[int, int] | None:
        if path in self._touched:
            return self._touched[path]
        node = self._tree.find(path)
        return (node.version, node.ephemeral_owner) if node else None

    def _owner(self, path: str) -> int:
        state = self._state(path)
        return state[1] if state else 0

    def _checked(self, path: str, version: int) -> int:
        state = self._state(path)
        if state is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, state[0]):
            raise BadVersion(path, version, state[0])
        return state[0]

    def _child_count(self, path: str) -> int:
        count = self._children.get(path)
        if count is None:
            count = len(self._tree.children(path)) if self._tree.find(path) else 0
        return count
