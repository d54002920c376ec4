"""The offsets of a standalone worker in a file.

Keeps true:  after `write` the offsets are on the disk; a crash leaves the old file or the new one.
             A file that is no file of offsets is refused and not overwritten.
Differs:     Kafka writes a map of Java's serialization; this file is JSON, a line for each partition.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.storage.offset_records import (
    OffsetKey,
    key_bytes,
    key_from_bytes,
    key_of,
    partition_of,
    value_bytes,
    value_from_bytes,
)

_HEAD = b"felice connect offsets 1\n"
_SEPARATOR = b"\t"
"""JSON without spaces has no tab: inside texts it is escaped."""


class OffsetFile:
    """The offsets of all connectors of one worker. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        """Reads the file if it exists. Raises `ConnectError`."""
        self._path = path
        self._lock = threading.Lock()
        self._offsets = self._read_all()

    def of(self, connector: str) -> FileOffsets:
        """The offsets of one connector."""
        return FileOffsets(self, connector)

    def get(self, key: OffsetKey) -> dict[str, object] | None:
        """One offset, or None."""
        return self._offsets.get(key)

    def all(self, connector: str) -> list[tuple[Place, Place]]:
        """Every partition of a connector's source with its offset."""
        return [(partition_of(key), found) for key, found in self._offsets.items() if key[0] == connector]

    def update(self, offsets: Sequence[tuple[OffsetKey, Place | None]]) -> None:
        """Replaces offsets, removes those that are None, and writes the file. Raises `ConnectError`."""
        with self._lock:
            changed = dict(self._offsets)
            for key, offset in offsets:
                if offset is None:
                    changed.pop(key, None)
                else:
                    changed[key] = dict(offset)
            self._write_all(changed)
            self._offsets = changed

    def _read_all(self) -> dict[OffsetKey, dict[str, object]]:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConnectError(f"cannot read the offsets file {self._path}: {error.strerror}") from error
        if not data:
            return {}
        if not data.startswith(_HEAD):
            raise ConnectError(
                f"{self._path} is not an offsets file of Felice. Move it away, or name another one in "
                "offset.storage.file.filename; an offsets file of Apache Kafka cannot be read."
            )
        lines = data.removeprefix(_HEAD).splitlines()
        pairs = [line.split(_SEPARATOR) for line in lines]
        if any(len(pair) != 2 for pair in pairs):
            raise ConnectError(f"the offsets file {self._path} is damaged: a line is not a key and a value")
        return {key_from_bytes(key): value_from_bytes(value) for key, value in pairs}

    def _write_all(self, offsets: dict[OffsetKey, dict[str, object]]) -> None:
        lines = [key_bytes(key) + _SEPARATOR + value_bytes(one) + b"\n" for key, one in offsets.items()]
        new = self._path.with_name(self._path.name + ".new")
        try:
            with new.open("wb") as file:
                file.write(_HEAD + b"".join(lines))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise ConnectError(f"cannot write the offsets file {self._path}: {error.strerror}") from error


class FileOffsets:
    """The offsets of one connector in the file (`OffsetStore`)."""

    def __init__(self, file: OffsetFile, connector: str) -> None:
        self._file = file
        self._connector = connector

    def read(self, partitions: Sequence[Place]) -> list[Place | None]:
        """The offsets, or None."""
        return [self._file.get(key_of(self._connector, one)) for one in partitions]

    def all(self) -> list[tuple[Place, Place]]:
        """Every partition with its offset."""
        return self._file.all(self._connector)

    def write(self, offsets: Sequence[tuple[Place, Place | None]]) -> None:
        """Writes them to the disk. Raises `ConnectError`."""
        self._file.update([(key_of(self._connector, partition), offset) for partition, offset in offsets])
