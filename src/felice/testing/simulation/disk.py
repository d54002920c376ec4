"""A file system in memory that distinguishes the page cache from the disk, and fails on demand.

Keeps true: what `felice.env.Disk` promises, and no more. `crash` keeps what was synced and any part of the rest
            (`volume.py` has the rules); `kill` keeps everything that was written. Both invalidate every handle and
            lock, as the end of a process does; callers open files again. The same calls with the same `Random`
            leave the same data.

    disk = SimDisk()
    broker = Broker(config, Environment(clock, disk, network, random))
    ...
    disk.crash(random)              # the power fails
    disk.fail("sync", errno.EIO, path="*/events-0/*", after=2)
    disk.capacity_bytes = 1 << 20   # ENOSPC beyond

Safe to use from several threads.
Leaves:     open files and locks to `open_files`, faults to `disk_faults`, nodes and power failures to `volume`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from threading import RLock
from typing import TypeAlias

from felice.env import DiskLocked
from felice.env import disk as env_disk
from felice.testing.simulation.disk_faults import OPERATIONS, DiskFault, disk_error
from felice.testing.simulation.open_files import SimFile, SimLock
from felice.testing.simulation.volume import (
    ROOT,
    Change,
    DirNode,
    FileNode,
    Make,
    Remove,
    Rename,
    Slot,
    Sync,
    SyncDir,
    Truncate,
    Volume,
    Write,
)

_REMOVALS_A_COLLECTION = 256
# The size that a disk without a capacity reports: a terabyte.
_UNBOUNDED_BYTES = 1 << 40

Hook: TypeAlias = Callable[[str, Path], None]


class SimDisk:
    """See the module. `on_operation(name, path)` is called before each operation; it may wait, count or raise."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], int] = lambda: 0,
        capacity_bytes: int | None = None,
        volume: Volume | None = None,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.on_operation: Hook | None = None
        # If set to a list, receives every change. `replay.py` makes the disk of any moment from it.
        self.journal: list[Change] | None = None
        self.generation = 0
        self._volume = Volume() if volume is None else volume
        self._now_ms = now_ms
        self._modified_ms: dict[int, int] = {}
        self._opened: dict[int, int] = {}
        self._locks: set[int] = set()
        self._faults: list[DiskFault] = []
        self._last_node = max(self._volume.nodes)
        self._removals = 0
        self._mutex = RLock()

    # -- faults, power failures and kills --------------------------------------------------------------

    def fail(
        self,
        operation: str,
        error: int = errno.EIO,
        *,
        path: str = "*",
        after: int = 0,
        times: int | None = None,
    ) -> DiskFault:
        """Make an operation ("*" for any) on matching paths fail, after `after` successes, `times` times (None:
        always).
        """
        if operation not in (*OPERATIONS, "*"):
            raise ValueError(f"unknown operation {operation!r}; there are {', '.join(OPERATIONS)} and *")
        fault = DiskFault(operation, error, path, after, times)
        self._faults.append(fault)
        return fault

    def heal(self, fault: DiskFault | None = None) -> None:
        """End one fault, or all faults."""
        self._faults = [other for other in self._faults if fault is not None and other is not fault]

    def crash(self, random: Random) -> None:
        """Fail the power: `random` chooses what is left of unsynced data."""
        with self._mutex:
            self._volume.cut_power(random)
            self._end_handles()

    def kill(self) -> None:
        """End the process while the machine keeps running: everything that was written is there."""
        with self._mutex:
            self._end_handles()
            self._volume.drop_unreachable()

    def _end_handles(self) -> None:
        self.generation += 1
        self._opened.clear()
        self._locks.clear()

    def copy(self) -> SimDisk:
        """A copy of the disk at this moment, without its handles, locks, faults and journal.

        Cheap: copied on write.
        """
        with self._mutex:
            other = SimDisk(
                now_ms=self._now_ms, capacity_bytes=self.capacity_bytes, volume=self._volume.copy()
            )
            other._modified_ms = dict(self._modified_ms)
        return other

    @property
    def contents(self) -> Volume:
        """The volume, for `replay.py` and for tests that inspect it below the names."""
        return self._volume

    @property
    def used_bytes(self) -> int:
        """The size of all files that have a name or are open, in bytes."""
        with self._mutex:
            nodes = {*self._opened, *self._named(ROOT)}
            return sum(
                len(node.data) for number in nodes if isinstance(node := self._volume.nodes[number], FileNode)
            )

    def _named(self, directory: int) -> Iterable[int]:
        for number in self._volume.directory(directory).entries.values():
            yield number
            if isinstance(self._volume.nodes[number], DirNode):
                yield from self._named(number)

    # -- every operation passes here -------------------------------------------------------------------

    def begin(self, operation: str, path: Path) -> None:
        """Call the hook, then raise the error of a matching fault."""
        if self.on_operation is not None:
            self.on_operation(operation, path)
        for fault in list(self._faults):
            if fault.strikes(operation, path):
                raise disk_error(fault.errno, path)

    def _apply(self, change: Change) -> None:
        if self.journal is not None:
            self.journal.append(change)
        self._volume.apply(change)

    # -- names -----------------------------------------------------------------------------------------

    def _find(self, path: Path) -> int | None:
        number = ROOT
        for name in _names(path):
            node = self._volume.nodes[number]
            if not isinstance(node, DirNode):
                return None
            found = node.entries.get(name)
            if found is None:
                return None
            number = found
        return number

    def _node(self, path: Path) -> int:
        number = self._find(path)
        if number is None:
            raise disk_error(errno.ENOENT, path)
        return number

    def _directory(self, path: Path) -> int:
        number = self._node(path)
        if not isinstance(self._volume.nodes[number], DirNode):
            raise disk_error(errno.ENOTDIR, path)
        return number

    def _slot(self, path: Path) -> Slot:
        return self._directory(path.parent), path.name

    def _make(self, path: Path, *, is_dir: bool) -> int:
        slot = self._slot(path)
        self._last_node += 1
        self._apply(Make(slot, self._last_node, is_dir))
        self._modified_ms[self._last_node] = self._now_ms()
        return self._last_node

    def _remove(self, path: Path) -> None:
        self._apply(Remove(self._slot(path)))
        self._removals += 1
        if self._removals % _REMOVALS_A_COLLECTION == 0:
            self._volume.drop_unreachable(self._opened)
            self._modified_ms = {
                node: ms for node, ms in self._modified_ms.items() if node in self._volume.nodes
            }

    # -- felice.env.Disk -------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> SimFile:
        """Opens a file of the page cache. The operation that faults match is `create` for a new file, else `open`."""
        with self._mutex:
            number = self._find(path)
            if number is None and create:
                self.begin("create", path)
                number = self._make(path, is_dir=False)
            else:
                self.begin("open", path)
                number = self._node(path)
            if isinstance(self._volume.nodes[number], DirNode):
                raise disk_error(errno.EISDIR, path)
            self._opened[number] = self._opened.get(number, 0) + 1
            return SimFile(self, path, number, read_only)

    def exists(self, path: Path) -> bool:
        """Whether readers see the path now. No fault applies."""
        with self._mutex:
            return self._find(path) is not None

    def is_dir(self, path: Path) -> bool:
        """Whether readers see a directory at the path now. No fault applies."""
        with self._mutex:
            number = self._find(path)
            return number is not None and isinstance(self._volume.nodes[number], DirNode)

    def listdir(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""
        with self._mutex:
            self.begin("list", path)
            return sorted(self._volume.directory(self._directory(path)).entries)

    def mkdir(self, path: Path) -> None:
        """Creates the directory and missing parents, each as an operation of its own. An existing one is kept."""
        with self._mutex:
            if not self.is_dir(path.parent):
                self.mkdir(path.parent)
            if self.is_dir(path):
                return
            if self._find(path) is not None:
                raise disk_error(errno.EEXIST, path)
            self.begin("mkdir", path)
            self._make(path, is_dir=True)

    def restrict(self, path: Path) -> None:
        """Does nothing: a simulated machine has one user."""

    def rename(self, source: Path, target: Path) -> None:
        """Replaces `target`, a file or an empty directory, as POSIX does. Durable after a sync of both directories."""
        with self._mutex:
            self.begin("rename", source)
            moved = self._volume.nodes[self._node(source)]
            replaced = self._find(target)
            if replaced is not None and source != target:
                self._check_replaceable(moved, self._volume.nodes[replaced], target)
            if source != target:
                self._apply(Rename(self._slot(source), self._slot(target)))

    def _check_replaceable(
        self, moved: FileNode | DirNode, replaced: FileNode | DirNode, target: Path
    ) -> None:
        if isinstance(moved, DirNode) and not isinstance(replaced, DirNode):
            raise disk_error(errno.ENOTDIR, target)
        if isinstance(replaced, DirNode):
            if not isinstance(moved, DirNode):
                raise disk_error(errno.EISDIR, target)
            if replaced.entries:
                raise disk_error(errno.ENOTEMPTY, target)

    def remove(self, path: Path) -> None:
        """Removes the name of a file. Open handles of the file stay usable."""
        with self._mutex:
            self.begin("remove", path)
            if isinstance(self._volume.nodes[self._node(path)], DirNode):
                raise disk_error(errno.EISDIR, path)
            self._remove(path)

    def remove_tree(self, path: Path) -> None:
        """Remove the names one after the other, so that a crash can happen between them."""
        with self._mutex:
            for name in list(self._volume.directory(self._directory(path)).entries):
                if self.is_dir(path / name):
                    self.remove_tree(path / name)
                else:
                    self.remove(path / name)
            self.begin("remove", path)
            self._remove(path)

    def sync_dir(self, path: Path) -> None:
        """Makes all changes of names in the directory durable."""
        with self._mutex:
            self.begin("sync_dir", path)
            self._apply(SyncDir(self._directory(path)))

    def read_bytes(self, path: Path) -> bytes:
        """The whole content; counts as the operations `open` and `read`."""
        file = self.open(path, read_only=True)
        try:
            return file.pread(file.size_bytes, 0)
        finally:
            file.close()

    def write_atomic(self, path: Path, data: bytes, *, sync_name: bool = True) -> None:
        """Step by step, as the system's disk does it, so that a crash may come between the steps."""
        temporary = path.with_name(path.name + ".tmp")
        file = self.open(temporary, create=True)
        try:
            if file.size_bytes:
                file.truncate(0)
            if data:
                file.pwrite(data, 0)
            file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        if sync_name:
            self.sync_dir(path.parent)

    def lock(self, path: Path) -> SimLock:
        """Locks the file, and creates it if needed. Raises `DiskLocked` while another handle holds the lock."""
        with self._mutex:
            self.begin("lock", path)
            number = self._find(path)
            if number is None:
                number = self._make(path, is_dir=False)
            if number in self._locks:
                raise DiskLocked(f"{path} is locked by another process")
            self._locks.add(number)
            return SimLock(self, number)

    def size(self, path: Path) -> int:
        """The size of a file in bytes, 0 for a directory."""
        with self._mutex:
            node = self._volume.nodes[self._node(path)]
            return len(node.data) if isinstance(node, FileNode) else 0

    def mtime_ms(self, path: Path) -> int:
        """The time of the last change of the file's data, in milliseconds since 1970."""
        with self._mutex:
            return self._modified_ms.get(self._node(path), 0)

    def volume(self, path: Path) -> env_disk.Volume:
        """The capacity and what is left of it, in bytes; a terabyte if no capacity is set."""
        total_bytes = _UNBOUNDED_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return env_disk.Volume(total_bytes, max(total_bytes - self.used_bytes, 0))

    # -- for files and locks ---------------------------------------------------------------------------

    def read_at(self, number: int, path: Path, size_bytes: int, position: int) -> bytes:
        """Reads up to `size_bytes` of an open file."""
        self.begin("read", path)
        with self._mutex:
            return bytes(self._volume.file(number).data[position : position + size_bytes])

    def write_at(self, number: int, path: Path, data: bytes, position: int) -> None:
        """Writes to an open file. A failed write leaves half of the data; a full disk (ENOSPC), the part that fits."""
        try:
            self.begin("write", path)
        except OSError:
            # Half of a failed write may have reached the page cache.
            self._write(number, data[: len(data) // 2], position)
            raise
        with self._mutex:
            excess = self._excess_of(number, position + len(data))
            self._write(number, data[: max(len(data) - excess, 0)], position)
        if excess:
            raise disk_error(errno.ENOSPC, path)

    def _excess_of(self, number: int, end: int) -> int:
        """The number of bytes up to `end` that do not fit."""
        growth = end - len(self._volume.file(number).data)
        if self.capacity_bytes is None or growth <= 0:
            return 0
        return max(self.used_bytes + growth - self.capacity_bytes, 0)

    def _write(self, number: int, data: bytes, position: int) -> None:
        with self._mutex:
            if data:
                self._apply(Write(number, position, data))
                self._modified_ms[number] = self._now_ms()

    def truncate(self, number: int, path: Path, size_bytes: int) -> None:
        """Sets the size of an open file; a larger size adds zeros."""
        self.begin("truncate", path)
        with self._mutex:
            self._apply(Truncate(number, size_bytes))
            self._modified_ms[number] = self._now_ms()

    def sync(self, number: int, path: Path) -> None:
        """Makes an open file's data durable. What a failed sync did not write is lost for later syncs, too."""
        try:
            self.begin("sync", path)
        except OSError:
            with self._mutex:
                self._apply(Sync(number, failed=True))
            raise
        with self._mutex:
            self._apply(Sync(number))

    def size_of(self, number: int) -> int:
        """The size of an open file in bytes."""
        with self._mutex:
            return len(self._volume.file(number).data)

    def close(self, number: int, generation: int) -> None:
        """Closes one handle. A handle of an earlier process (`generation`) is closed already."""
        with self._mutex:
            if generation != self.generation:
                return
            self._opened[number] -= 1
            if not self._opened[number]:
                del self._opened[number]

    def unlock(self, number: int, generation: int) -> None:
        """Releases a lock, unless its process (`generation`) has ended."""
        with self._mutex:
            if generation == self.generation:
                self._locks.discard(number)


def _names(path: Path) -> tuple[str, ...]:
    return tuple(name for name in path.parts if name not in ("/", "."))
