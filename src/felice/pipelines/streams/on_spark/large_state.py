"""The state of a task that does not fit in memory: its stores in RocksDB, on a disk of the machine.

Keeps true: the files of the checkpoint decide what the state is (`state`). RocksDB has all stores as they were after
            one batch, its version; a version and its rows become visible together. Only versions that Spark has
            finished are written: the one before the batch that begins. So RocksDB may be lost, or be old: what is
            missing is read from the checkpoint again.
            A worker that gets the task takes the directory over from the worker that had it (`handover`). If that one
            cannot spare it, there is another directory.
Where:      DIRECTORY/N, with the lock DIRECTORY/N.lock. A key of RocksDB begins with two bytes, the store's
            number. The key `_ABOUT` has the version.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from felice.dataclass import dataclass
from felice.pipelines.streams.on_spark.disk_rows import Database, DiskRows, Kept, disk_rows
from felice.pipelines.streams.on_spark.handover import private_directory
from felice.pipelines.streams.on_spark.state import EMPTY, Changes, StateError, Version
from felice.pipelines.streams.stores import Clocks, Row, Store

if TYPE_CHECKING:
    from rocksdict import Cache, Options, Rdict, WriteBatch

FORMAT = 1
MIB = 1 << 20
STATE_MEMORY_MB = 256
"""The default of `--state-memory`, in MiB. The tasks share it equally."""
MOST_CHANGED = 50_000
"""Rows that may have changed since RocksDB's version."""
MOST_HELD = 100_000
"""Rows of a task in memory when a batch begins. What the batch looks up and changes is added."""
MOST_BEHIND = 10
"""RocksDB is written after at most so many batches, and flushed when so many have passed since the last flush. After a
kill, a restart may have to read almost twice as many.
"""
BATCHES_PER_BASE = 500
"""A base is complete after about so many batches, unless `MOST_IN_PIECE` limits its pieces."""
MOST_IN_PIECE = 200_000
"""The most rows of a piece, unless more than twice as many have changed."""
_ABOUT = b"\0\0about"
_WRITE_BUFFER = 8 * MIB
_CACHE = 64 * MIB
_BLOOM_BITS = 10


@dataclass(frozen=True, slots=True)
class LargeStates:
    """When the tasks of an application keep their stores on disk, and where."""

    directory: str | None
    """On each machine; None: where Spark keeps temporary files."""
    task_bytes: int
    """A task whose rows take more memory keeps them on disk. 0: all rows stay in memory."""

    def of_task(self, location: str) -> Path:
        """The directory of the task whose state is there."""
        return self._root() / _digest(location)

    def remove_others(self, locations: Iterable[str]) -> None:
        """Remove what is there of other tasks than these. Only one application may use the directory."""
        if self.directory is None or not Path(self.directory).exists():
            return
        used = {_digest(location) for location in locations}
        for path in self._root().iterdir():
            if path.name not in used:
                shutil.rmtree(path)

    def _root(self) -> Path:
        root = self.directory or os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
        try:
            return private_directory(Path(root))
        except PermissionError as error:
            raise StateError(str(error)) from None


def _digest(location: str) -> str:
    return hashlib.sha256(location.encode()).hexdigest()[:32]


ALL_IN_MEMORY = LargeStates(None, 0)
_FIRST = "", b""
NO_PIECE = None, "", "", 0, EMPTY.number


class Piece(NamedTuple):
    """Rows of a version, a part of a base."""

    base: str
    rows: Changes
    is_last: bool


class Directory(Protocol):
    """A directory that this process holds."""

    path: Path

    def release(self) -> None:
        """Let other processes use the directory."""


class LargeState:
    """The stores of a task on disk, in a directory that this process holds."""

    _rows: dict[str, DiskRows]
    _about: dict[str, Any]

    def __init__(self, held: Directory) -> None:
        self._held = held
        self._rocks: Rdict | None = None
        self._damaged_path = held.path.with_suffix(".damaged")
        try:
            if self._damaged_path.exists():
                raise StateError("an earlier process could not read it")
            self._rocks = _opened(held.path)
            written = self._rocks.get(_ABOUT)
            about: dict[str, Any] = {} if written is None else json.loads(written)
        except Exception:  # RocksDB's errors have no class of their own.
            about = {}
        if about.get("format") == FORMAT and about["python"] == list(sys.version_info[:2]):
            self._use(about)
        else:
            self.clear()

    def clear(self) -> None:
        """Remove all rows. The files are a copy: they are made again."""
        if self._rocks is not None:
            self._rocks.close()
        if self._held.path.exists():
            shutil.rmtree(self._held.path)
        self._rocks = _opened(self._held.path)
        self._damaged_path.unlink(missing_ok=True)
        self._use({})

    def close(self) -> None:
        """Leave the directory to others."""
        if self._rocks is not None:
            self._rocks.close()  # Writes what is in RocksDB's memory.
        self._held.release()

    def _use(self, about: dict[str, Any]) -> None:
        """Begin with what is there."""
        assert self._rocks is not None, "it was opened"
        self._about, self._rows = about, {}
        self._database = Database(self._rocks, self._damaged_path.touch)
        self.version = Version(*about.get("version", EMPTY))
        self._durable = self.version.number
        """A version that is on disk, and not only in RocksDB's memory."""
        base, store, disk_key, self._due, self._piece_version = about.get("piece", NO_PIECE)
        self._base: str | None = base
        """The base that is being written in pieces."""
        self._piece_at = store, bytes.fromhex(disk_key)

    def has(self, stores: Mapping[str, Store]) -> bool:
        """Whether it has these stores, in their shapes."""
        return self.version != EMPTY and bool(_shapes(stores) == self._about["shapes"])

    def keep(self, stores: Mapping[str, Store]) -> None:
        """Keep empty stores here, with the rows of this version."""
        kept = self._about.get("stores", {})
        self._rows = {}
        for number, (name, store) in enumerate(_large(stores)):
            prefix = (number + 1).to_bytes(2, "big")
            about = Kept(prefix, *kept.get(name, ()))
            self._rows[name] = disk_rows(self._database, store, about)
            store.keep_in(self._rows[name])
        for name, times in self._about.get("clocks", {}).items():
            stores[name].load(times.items())

    def reach(self, version: Version, stores: Mapping[str, Store]) -> None:
        """Called when the stores have reached a version. Writes it to RocksDB if it is `MOST_BEHIND` versions ahead, or
        if too many rows are in memory. While a version is read, `version` is EMPTY.
        """
        if self._is_full or version.number - self.version.number >= MOST_BEHIND:
            self.write(version, stores)

    def write(self, version: Version, stores: Mapping[str, Store]) -> None:
        """Make RocksDB's version that of the stores."""
        from rocksdict import WriteBatch

        if self.version == EMPTY:  # All rows were read: they need not be written soon.
            self._piece_version = version.number
        batch: WriteBatch = WriteBatch(raw_mode=True)
        for rows in self._rows.values():
            rows.write(batch)
        store_at, key_at = self._piece_at
        about: dict[str, Any] = {
            "format": FORMAT,
            "python": sys.version_info[:2],
            "version": version,
            "shapes": _shapes(stores),
            "stores": {name: rows.kept[1:] for name, rows in self._rows.items()},
            "clocks": {name: dict(store.rows) for name, store in _clocks(stores)},
            "piece": (self._base, store_at, key_at.hex(), self._due, self._piece_version),
        }
        batch.put(_ABOUT, json.dumps(about).encode())
        assert self._rocks is not None, "it was opened"
        self._rocks.write(batch)
        if version.number - self._durable >= MOST_BEHIND:
            self._rocks.flush()
            self._durable = version.number
        self._about, self.version = about, version
        for rows in self._rows.values():
            rows.is_written()
        if sum(rows.sizes[1] for rows in self._rows.values()) > MOST_HELD:
            for rows in self._rows.values():
                rows.forget()

    def note(self, changes: Changes) -> None:
        """These changes were written to the checkpoint."""
        self._due += sum(map(len, changes.values()))

    def take_base(self) -> Piece:
        """All rows of RocksDB's version, as one piece."""
        assert self._piece_at == _FIRST, "no other base has begun"
        size = sum(map(len, self._rows.values()))
        piece = self._taken(size)
        found = sum(len(rows) for name, rows in piece.rows.items() if name in self._rows)
        assert piece.is_last and found == size, "a base has all rows"
        return piece

    def take_piece(self) -> Piece | None:
        """Rows of RocksDB's version to be written to the checkpoint, if that is due. After the last ones come the first
        ones again, as a new base.

        It has half as many rows as have changed, so that bases cost less than the deltas; if that is fewer, so many
        that each row is written once in `BATCHES_PER_BASE` batches. The first piece also has the clocks.
        """
        behind = self.version.number - self._piece_version
        # A version has one piece: the file has its number.
        if behind < (1 if self._due >= MOST_CHANGED else MOST_BEHIND):
            return None
        share = sum(map(len, self._rows.values())) * behind // BATCHES_PER_BASE
        return self._taken(max(self._due // 2, min(share, MOST_IN_PIECE), 1))

    def _taken(self, left: int) -> Piece:
        self._due, self._piece_version = 0, self.version.number
        base = self._base = self._base or f"{self.version.number}-{secrets.token_hex(4)}"
        changes: Changes = {}
        if self._piece_at == _FIRST:
            changes |= {name: list(times.items()) for name, times in self._about["clocks"].items()}
        for name, disk_key, row in self._from_piece_on():
            if not left:
                self._piece_at = name, disk_key
                return Piece(base, changes, is_last=False)
            changes.setdefault(name, []).append(row)
            left -= 1
        self._piece_at, self._base = _FIRST, None
        return Piece(base, changes, is_last=True)

    def _from_piece_on(self) -> Iterator[tuple[str, bytes, Row]]:
        name_at, key_at = self._piece_at
        for name, rows in self._rows.items():
            if name >= name_at:  # They are in this order.
                for disk_key, row in rows.written(key_at if name == name_at else b""):
                    yield name, disk_key, row

    @property
    def _is_full(self) -> bool:
        sizes = [rows.sizes for rows in self._rows.values()]
        return (
            sum(changed for changed, _ in sizes) > MOST_CHANGED or sum(held for _, held in sizes) > MOST_HELD
        )


def _large(stores: Mapping[str, Store]) -> list[tuple[str, Store]]:
    return sorted((name, store) for name, store in stores.items() if not isinstance(store, Clocks))


def _clocks(stores: Mapping[str, Store]) -> list[tuple[str, Store]]:
    return [(name, store) for name, store in stores.items() if isinstance(store, Clocks)]


def _shapes(stores: Mapping[str, Store]) -> dict[str, str]:
    return {name: store.shape() for name, store in _large(stores)}


def _opened(path: Path) -> Rdict:
    try:
        from rocksdict import Rdict, WriteOptions
    except ImportError:
        raise StateError(
            "the state takes more memory than --state-memory, and RocksDB's library is missing: "
            'pip install "felice[spark]"'
        ) from None
    database = Rdict(str(path), _options())
    written = WriteOptions()
    # After a crash RocksDB has an earlier version, whole, and the checkpoint has what follows.
    setattr(written, "disable_wal", True)  # noqa: B010 - its type is declared as that of the setter.
    database.set_write_options(written)
    return database


@lru_cache(maxsize=1)
def _cache() -> Cache:
    """Blocks in memory, of all tasks of this process."""
    from rocksdict import Cache

    return Cache(_CACHE)


def _options() -> Options:
    from rocksdict import BlockBasedOptions, Options

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_WRITE_BUFFER)
    options.set_max_background_jobs(1)
    options.set_keep_log_file_num(1)
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_block_cache(_cache())
    options.set_block_based_table_factory(blocks)
    return options
