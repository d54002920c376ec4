"""The contents of a file system: what readers see now, and what is left after a power failure.

Keeps true: every change is in the page cache at once, and on disk after a sync: a file's data and size after a sync of
            that file, a name (created, renamed, removed) after a sync of its directory.
            `cut_power` leaves what was synced and, of the rest, any part that a journaling file system may have
            written by then; never anything else.

What may be left of unsynced changes:
- of a file: each page or sector in any state that it had since the last sync, independently of the others, so later
  writes may be there without earlier ones; any size that the file had, or a page boundary on the way to it. Holes read
  as zeros. A page that a truncation dropped shows new content only if the truncation is there too, because its blocks
  are new.
- of names: each change is there as a whole or not at all, and only with all earlier changes of its directory, as in
  the journal of a file system. One directory may be ahead of another, and files may be behind their names.
- a failed sync may have written any part, and no later sync writes the rest: Linux marks the pages as clean. Once such
  a page is written again, the whole page waits for the next sync.

Leaves to `disk.py`: paths, handles, faults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import field, replace
from random import Random
from typing import TypeAlias

from felice.dataclass import dataclass

SECTOR_BYTES = 512
PAGE_BYTES = 4096
ROOT = 0

Slot: TypeAlias = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written into a file."""

    node: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """A new size of a file; a larger size adds zeros."""

    node: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A sync of a file. What a failed sync did not write becomes durable only after another write."""

    node: int
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Make:
    """The creation of a file or directory under a name."""

    slot: Slot
    node: int
    is_dir: bool = False


@dataclass(frozen=True, slots=True)
class Rename:
    """A new name for a node, which replaces the node that had the name."""

    source: Slot
    target: Slot


@dataclass(frozen=True, slots=True)
class Remove:
    """The removal of a name."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class SyncDir:
    """A sync of a directory: all changes of its names become durable."""

    node: int


Change: TypeAlias = Write | Truncate | Sync | Make | Rename | Remove | SyncDir


@dataclass(slots=True)
class FileNode:
    """A file's data in the page cache and on disk. The first `lost` unsynced changes were dropped by a failed sync."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Write | Truncate] = field(default_factory=list)
    lost: int = 0
    shared: bool = False

    def copy(self) -> FileNode:
        """A copy that shares its buffers until one side writes."""
        self.shared = True
        return FileNode(self.data, self.durable, list(self.unsynced), self.lost, True)

    def own(self) -> None:
        """Copies the buffers that are shared with a copy of the volume, before a write."""
        if self.shared:
            self.data, self.durable, self.shared = bytearray(self.data), bytearray(self.durable), False

    def sync(self, failed: bool) -> None:
        """Makes the data durable; a failed sync drops the unsynced changes from later syncs."""
        if failed:
            self.lost = len(self.unsynced)
        elif self.unsynced:
            self.own()
            lost, since = self.unsynced[: self.lost], self.unsynced[self.lost :]
            written_again = _pages_of(since, len(self.data))
            left = _still_lost(lost, written_again, len(self.data))
            for number, change in enumerate(self.unsynced):
                _change(self.durable, change if number >= self.lost else _only_size(change, self.durable))
            for page in written_again:
                start, end = page * PAGE_BYTES, (page + 1) * PAGE_BYTES
                self.durable[start:end] = self.data[start:end]
            self.unsynced, self.lost = left, len(left)

    def settle(self, content: bytearray) -> None:
        """Set the contents of disk and page cache; nothing is unsynced."""
        self.data, self.durable, self.shared = bytearray(content), content, False
        self.unsynced, self.lost = [], 0


@dataclass(slots=True)
class DirNode:
    """The names of a directory in the page cache and on disk."""

    entries: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)

    def copy(self) -> DirNode:
        """A copy that shares nothing with this directory."""
        return DirNode(dict(self.entries), dict(self.durable))


@dataclass(frozen=True, slots=True)
class _NameChange:
    """An unsynced change of names: the node of each slot, None for a removed name."""

    slots: tuple[tuple[Slot, int | None], ...]

    def is_of(self, directory: int) -> bool:
        return any(slot[0] == directory for slot, _ in self.slots)


class Volume:
    """See the module. All changes go through `apply` and `cut_power`."""

    def __init__(self) -> None:
        self.nodes: dict[int, FileNode | DirNode] = {ROOT: DirNode()}
        self._names: list[_NameChange] = []

    def copy(self) -> Volume:
        """A copy of the volume at this moment. Files are copied when one side writes."""
        other = Volume()
        other.nodes = {number: node.copy() for number, node in self.nodes.items()}
        other._names = list(self._names)
        return other

    def file(self, number: int) -> FileNode:
        """The file with this number."""
        node = self.nodes[number]
        assert isinstance(node, FileNode)
        return node

    def directory(self, number: int) -> DirNode:
        """The directory with this number."""
        node = self.nodes[number]
        assert isinstance(node, DirNode)
        return node

    # -- changes ---------------------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """Applies a change to the page cache; a sync also to the disk."""
        match change:
            case Write() | Truncate():
                self._change_file(self.file(change.node), change)
            case Sync(node, failed):
                self.file(node).sync(failed)
            case Make(slot, node, is_dir):
                self.nodes[node] = DirNode() if is_dir else FileNode()
                self._change_names(_NameChange(((slot, node),)))
            case Rename(source, target):
                moved = self.directory(source[0]).entries[source[1]]
                self._change_names(_NameChange(((source, None), (target, moved))))
            case Remove(slot):
                self._change_names(_NameChange(((slot, None),)))
            case SyncDir(directory):
                self._sync_names(directory)

    def _change_file(self, node: FileNode, change: Write | Truncate) -> None:
        node.own()
        _change(node.data, change)
        node.unsynced.append(change)

    def _change_names(self, change: _NameChange) -> None:
        for (directory, name), node in change.slots:
            _set(self.directory(directory).entries, name, node)
        self._names.append(change)

    def _sync_names(self, directory: int) -> None:
        waiting = []
        for change in self._names:
            if change.is_of(directory):
                self._keep(change)
            else:
                waiting.append(change)
        self._names = waiting

    def _keep(self, change: _NameChange) -> None:
        for (directory, name), node in change.slots:
            _set(self.directory(directory).durable, name, node)

    def drop_unreachable(self, kept: Iterable[int] = ()) -> None:
        """Forget the nodes without a name on disk or in the page cache, except `kept`: an open file may have no
        name.
        """
        reached = {ROOT, *kept}
        reached |= {node for change in self._names for _, node in change.slots if node is not None}
        waiting = list(reached)
        while waiting:
            node = self.nodes[waiting.pop()]
            if isinstance(node, DirNode):
                found = {*node.entries.values(), *node.durable.values()} - reached
                reached |= found
                waiting += found
        self.nodes = {number: node for number, node in self.nodes.items() if number in reached}

    # -- power failures ---------------------------------------------------------------------------------

    def cut_power(self, random: Random) -> None:
        """Keep what is on disk, and of unsynced changes what `random` chooses."""
        self._keep_some_names(random)
        for node in self.nodes.values():
            if isinstance(node, DirNode):
                node.entries = dict(node.durable)
        self.drop_unreachable()
        for number in sorted(self.nodes):
            node = self.nodes[number]
            if isinstance(node, FileNode) and node.unsynced:
                node.settle(_left_of(node, random))

    def _keep_some_names(self, random: Random) -> None:
        each_for_itself = random.randrange(2)
        count = random.randrange(len(self._names) + 1)
        ended: set[int] = set()
        for number, change in enumerate(self._names):
            directories = {slot[0] for slot, _ in change.slots}
            kept = random.randrange(4) if each_for_itself else number < count
            if kept and ended.isdisjoint(directories):
                self._keep(change)
            else:
                ended |= directories
        self._names = []


def _set(entries: dict[str, int], name: str, node: int | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _change(data: bytearray, change: Write | Truncate) -> None:
    size = change.size_bytes if isinstance(change, Truncate) else change.position
    if len(data) < size:
        data.extend(bytes(size - len(data)))
    if isinstance(change, Write):
        data[size : size + len(change.data)] = change.data
    else:
        del data[size:]


def _left_of(node: FileNode, random: Random) -> bytearray:
    """What may be left of a file: nothing new, everything, everything up to a moment, or each sector independently."""
    mode = random.randrange(4)
    if mode == 0:
        return bytearray(node.durable)
    if mode == 1:
        return bytearray(node.data)
    if mode == 2:
        return _up_to_a_moment(node, random)
    return _scattered(node, random)


def _up_to_a_moment(node: FileNode, random: Random) -> bytearray:
    content = bytearray(node.durable)
    number = random.randrange(len(node.unsynced))
    for change in node.unsynced[:number]:
        _change(content, change)
    torn = node.unsynced[number]
    if isinstance(torn, Write):
        _change(content, torn_write(torn, random))
    return content


def _only_size(change: Write | Truncate, content: bytearray) -> Write | Truncate:
    """The effect of a change on the file's size alone: the journal writes the size, not the pages."""
    if isinstance(change, Truncate):
        return change
    end = change.position + len(change.data)
    return Write(change.node, max(end, len(content)), b"")


def _pages_of(changes: Iterable[Write | Truncate], size_bytes: int) -> set[int]:
    """The pages of a file of this size that the changes wrote, in whole or in part."""
    pages: set[int] = set()
    for change in changes:
        if isinstance(change, Truncate):
            start, end = change.size_bytes, size_bytes
        else:
            start, end = change.position, change.position + len(change.data)
        pages.update(range(start // PAGE_BYTES, -(-end // PAGE_BYTES)))
    return {page for page in pages if page * PAGE_BYTES < size_bytes}


def _still_lost(
    lost: Iterable[Write | Truncate], written_again: Collection[int], size_bytes: int
) -> list[Write | Truncate]:
    """What a failed sync should have written, except what was truncated and the pages that were written again."""
    left: list[Write] = []
    for change in lost:
        if isinstance(change, Truncate):
            left = [
                replace(write, data=write.data[: max(change.size_bytes - write.position, 0)])
                for write in left
            ]
            continue
        for page in sorted(_pages_of([change], size_bytes).difference(written_again)):
            start, end = max(page * PAGE_BYTES, change.position), (page + 1) * PAGE_BYTES
            data = change.data[start - change.position : end - change.position]
            left.append(Write(change.node, start, data))
    return [write for write in left if write.data]


def torn_write(write: Write, random: Random) -> Write:
    """The part of a write up to a random sector boundary of the file, possibly nothing."""
    end = write.position + len(write.data)
    first = write.position // SECTOR_BYTES + 1
    last = (end - 1) // SECTOR_BYTES
    cut = random.randrange(first - 1, last + 1) * SECTOR_BYTES
    return Write(write.node, write.position, write.data[: max(cut - write.position, 0)])


def _scattered(node: FileNode, random: Random) -> bytearray:
    """Each sector (or page) in a state of its own, and a size that the file had at some time."""
    changes = node.unsynced
    sizes = _sizes(node)
    moment = random.randrange(len(changes) + 1)
    size = sizes[moment]
    if moment < len(changes) and sizes[moment + 1] > size and random.randrange(2):
        size = random.randrange(size, sizes[moment + 1] + 1) // SECTOR_BYTES * SECTOR_BYTES
        size = max(size, sizes[moment])
    atom_bytes = PAGE_BYTES if random.randrange(2) else SECTOR_BYTES
    histories = _histories(node, sizes, atom_bytes)
    content = bytearray(node.durable)
    content.extend(bytes(max(size - len(content), 0)))
    for atom in sorted(histories):
        start = atom * atom_bytes
        if start < size:
            content[start : start + atom_bytes] = _version(
                node, atom, histories[atom], moment, atom_bytes, random
            )
    del content[size:]
    return content


def _sizes(node: FileNode) -> list[int]:
    """The file's size at the last sync, and after each change since."""
    sizes = [len(node.durable)]
    for change in node.unsynced:
        if isinstance(change, Truncate):
            sizes.append(change.size_bytes)
        else:
            sizes.append(max(sizes[-1], change.position + len(change.data)))
    return sizes


def _histories(node: FileNode, sizes: list[int], atom_bytes: int) -> dict[int, list[int]]:
    """The numbers of the changes that touched each sector or page."""
    histories: dict[int, list[int]] = {}
    for number, change in enumerate(node.unsynced):
        if isinstance(change, Truncate):
            start, end = sorted((change.size_bytes, sizes[number]))
        else:
            start, end = change.position, change.position + len(change.data)
        for atom in range(start // atom_bytes, -(-end // atom_bytes)):
            histories.setdefault(atom, []).append(number)
    return histories


def _version(
    node: FileNode, atom: int, history: list[int], moment: int, atom_bytes: int, random: Random
) -> bytes:
    """One of the states that a sector or page had. `moment` is the number of size changes that are on disk."""
    start = atom * atom_bytes
    page = start // PAGE_BYTES * PAGE_BYTES
    first, last = 0, len(history)
    for place, number in enumerate(history):
        change = node.unsynced[number]
        if isinstance(change, Truncate) and change.size_bytes <= page:
            # The truncation dropped the page: its old blocks are gone with it, and new blocks come after it.
            if number < moment:
                first = place + 1
            else:
                last = place
                break
    content = bytearray(node.durable[start : start + atom_bytes]) if first == 0 else bytearray()
    content.extend(bytes(atom_bytes - len(content)))
    for number in history[first : random.randrange(first, last + 1)]:
        _patch(content, start, node.unsynced[number])
    return bytes(content)


def _patch(content: bytearray, start: int, change: Write | Truncate) -> None:
    """Apply the part of `change` that falls on the bytes of a file from `start` on."""
    end = start + len(content)
    if isinstance(change, Truncate):
        cut = max(change.size_bytes, start)
        content[cut - start :] = bytes(max(end - cut, 0))
        return
    low, high = max(change.position, start), min(change.position + len(change.data), end)
    if low < high:
        content[low - start : high - start] = change.data[low - change.position : high - change.position]
