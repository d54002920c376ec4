"""The state of one task on disk: a delta for each batch, and now and then a base.

Keeps true: version n is the state after batch n. It is read from the newest base up to n and every delta after it; if
            one is missing, that is an error and not an older state.
            A version is whole or absent: files are written aside, synced and renamed. Spark's own logs decide which
            version counts: a batch that runs again starts from the version before it and replaces its file.
Where:      `N.delta` and `N.base` in a directory of the task, on a file system that all workers share. A file is a
            header (magic, format version, identity, CRC-32C) and the compressed changes of each store.
"""

from __future__ import annotations

import io
import os
import pickle
import secrets
import struct
from pathlib import Path
from typing import Any, NamedTuple

import lz4.frame
from crc32c import crc32c

from felice.pipelines.streams.stores import Row, Store

MAGIC = b"FLST"
FORMAT_VERSION = 1
BATCHES_PER_BASE = 10
KEPT_BASES = 2
_HEADER = struct.Struct(">4sBQI")
NOTHING = -1

Changes = dict[str, list[Row]]


class StateError(Exception):
    """State that cannot be read; the text names the file and what to do."""


class Version(NamedTuple):
    """A state, and the identity of the file that made it: a batch that ran again made another one."""

    number: int
    identity: int


EMPTY = Version(NOTHING, 0)


class _Plain(pickle.Unpickler):
    """Reads values only: nothing that a file contains is called."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")


class StateFiles:
    """The files of one task."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, number: int, changes: Changes, stores: dict[str, Store]) -> Version:
        """Write the version that a batch made. Every few batches a base follows, and what is older is removed."""
        self._directory.mkdir(parents=True, exist_ok=True)
        version = self._write(f"{number}.delta", number, changes)
        if number % BATCHES_PER_BASE == BATCHES_PER_BASE - 1:
            self._write(
                f"{number}.base", number, {name: list(store.rows.items()) for name, store in stores.items()}
            )
            self._remove_older()
        return version

    def identity(self, number: int) -> int | None:
        """The identity of the delta of a version; None if it was removed."""
        path = self._directory / f"{number}.delta"
        return self._read(path)[0] if path.exists() else None

    def load(self, number: int, stores: dict[str, Store]) -> Version:
        """Fill empty stores with a version."""
        base = max((one for one in self._numbers("base") if one <= number), default=NOTHING)
        if base != NOTHING:
            self._apply(self._directory / f"{base}.base", stores)
        return self.catch_up(Version(base, 0), number, stores)

    def catch_up(self, version: Version, number: int, stores: dict[str, Store]) -> Version:
        """Bring stores from one version to a later one."""
        for one in range(version.number + 1, number + 1):
            version = Version(one, self._apply(self._directory / f"{one}.delta", stores))
        if version.number != NOTHING and version.identity == 0:
            version = Version(version.number, self._read(self._directory / f"{version.number}.delta")[0])
        return version

    def _apply(self, path: Path, stores: dict[str, Store]) -> int:
        identity, changes = self._read(path)
        for name, rows in changes.items():
            stores[name].load(rows)
        return identity

    def _read(self, path: Path) -> tuple[int, Changes]:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StateError(
                f"{path} is missing. If the checkpoint was copied, copy it whole; else reset the application, which "
                "then begins again from the start of its topics"
            ) from None
        magic, version, identity, checksum = (
            _HEADER.unpack_from(data) if len(data) >= _HEADER.size else (b"",) * 4
        )
        body = data[_HEADER.size :]
        if magic != MAGIC or crc32c(body) != checksum:
            raise StateError(f"{path} is damaged")
        if version != FORMAT_VERSION:
            raise StateError(
                f"{path} has format {version}; this release of Felice reads format {FORMAT_VERSION}"
            )
        changes: Changes = _Plain(io.BytesIO(lz4.frame.decompress(body))).load()
        return identity, changes

    def _write(self, name: str, number: int, changes: Changes) -> Version:
        identity = secrets.randbits(63) + 1
        body = lz4.frame.compress(pickle.dumps(changes, protocol=5))
        aside = self._directory / f".{name}.{identity:x}"
        with aside.open("wb") as file:
            file.write(_HEADER.pack(MAGIC, FORMAT_VERSION, identity, crc32c(body)) + body)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self._directory / name)
        self._sync_directory()
        return Version(number, identity)

    def _sync_directory(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _numbers(self, kind: str) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob(f"[0-9]*.{kind}"))

    def _remove_older(self) -> None:
        bases = self._numbers("base")
        if len(bases) <= KEPT_BASES:
            return
        oldest = bases[-KEPT_BASES]
        for kind in ("base", "delta"):
            for number in self._numbers(kind):
                if number < oldest:
                    (self._directory / f"{number}.{kind}").unlink(missing_ok=True)
