"""A source that reads the lines of many files, as log collectors do: patterns of paths, rotation, new files.

Keeps true:  a line is a record when its end is in the file. A task goes on after the last line that was committed.
             A file is known by its inode and its first bytes, and not by its path: one that was renamed, within the
             patterns or out of them, is read on and not again. An inode that another file got is noticed by the bytes.
             A file that became shorter is reported and read from its beginning: what came between was lost with it.
             A file that was deleted is read to its end, if this task had opened it.
How:         each task looks for files by itself, and takes those whose inode is its own by remainder. An offset has the
             position in bytes, the path, and a hash of the first bytes before the position.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import IO, ClassVar

from felice.dataclass import dataclass
from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    at_least,
    non_empty,
    non_empty_list,
)
from felice.pipelines.connect.connector.base import SourceConnector, SourceTask
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.connectors.lines import CHUNK_BYTES, Lines, ends_of, texts_of
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import Header, SourceRecord
from felice.pipelines.connect.model.runs import SourceRun
from felice.pipelines.connect.model.schema import STRING, Schema

_log = logging.getLogger("felice.connect.file")

INODE, POSITION, PATH, HEAD = "inode", "position", "path", "head"
"""The names in the source's partition and offset."""
TASK, TASKS = "task.number", "task.count"
"""The options of a task: which files are its own."""
_HEAD_BYTES = 256
_SLICE_S = 0.5
"""The longest wait, so that a stop is seen."""
_MOST_OPEN = 256
"""So many files are open at most; those that were not read for the longest time are closed."""
_TEXT = Schema(STRING)


class FilesSource(SourceConnector):
    """Reads the files of patterns line by line."""

    version: ClassVar = "1"
    definitions: ClassVar = ConfigDefinitions(
        [
            Definition(
                "files",
                Type.LIST,
                documentation="Patterns of paths, as /var/log/*.log or /srv/**/*.log (** is any folders).",
                importance=Importance.HIGH,
                validator=non_empty_list,
            ),
            Definition(
                "files.exclude",
                Type.LIST,
                [],
                "Patterns of paths or names to leave out, as *.gz.",
                Importance.MEDIUM,
            ),
            Definition(
                "topic",
                Type.STRING,
                documentation="The topic of the lines.",
                importance=Importance.HIGH,
                validator=non_empty,
            ),
            Definition(
                "file.header",
                Type.STRING,
                "",
                "The header of records with the file's path; without a name there is none, which is faster.",
                Importance.LOW,
            ),
            Definition(
                "batch.size", Type.INT, 2000, "The most records of one batch.", Importance.LOW, at_least(1)
            ),
            Definition(
                "scan.interval.ms",
                Type.LONG,
                5000,
                "How often new files are looked for.",
                Importance.LOW,
                at_least(1),
            ),
        ]
    )

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        """The task."""
        return FilesSourceTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """As many tasks as are allowed: they share the files."""
        return [{**self.config, TASK: str(number), TASKS: str(max_tasks)} for number in range(max_tasks)]

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> bool | None:
        """Yes: a position stands for the same lines again."""
        return True


@dataclass(slots=True)
class _File:
    """A file that is known."""

    place: Place
    path: str
    position: int = 0
    head: bytes = b""
    """The first bytes before the position, at most `_HEAD_BYTES`."""
    lines: Lines = field(default_factory=Lines)
    """What was read after the position."""
    opened: IO[bytes] | None = None
    read_s: float = 0.0

    def close(self) -> None:
        """Closes the file. It is opened again when it has grown."""
        if self.opened is not None:
            self.opened.close()
            self.opened = None
            self.lines.clear()


class FilesSourceTask(SourceTask):
    """Reads the lines of its files in turn."""

    def start(self, config: Mapping[str, str]) -> None:
        """Prepares; looks for files with the first `poll`."""
        options = FilesSource.definitions.parse(dict(config))
        self._number, self._count = int(config.get(TASK, "0")), max(1, int(config.get(TASKS, "1")))
        self._patterns: list[str] = options["files"]
        self._excluded: list[str] = options["files.exclude"]
        self._topic: str = options["topic"]
        self._header: str = options["file.header"]
        self._batch: int = options["batch.size"]
        self._interval_s: float = options["scan.interval.ms"] / 1000
        self._files: dict[int, _File] = {}
        """By their inodes."""
        self._turns: Iterator[_File] = iter(())
        self._scan_s = 0.0

    def poll(self) -> Sequence[SourceRecord] | None:
        """The next lines of one file; None if no file has any."""
        if time.monotonic() >= self._scan_s:
            self._scan()
            self._scan_s = time.monotonic() + self._interval_s
        for _ in range(2):
            for one in self._turns:
                records = self._lines(one)
                if records or self.stopping.is_set():
                    return records or None
            self._turns = iter(list(self._files.values()))
        wait_s = min(_SLICE_S, max(0.0, self._scan_s - time.monotonic()))
        self.stopping.wait(wait_s)
        return None

    def close(self) -> None:
        """Closes the files."""
        for one in getattr(self, "_files", {}).values():
            one.close()

    # Which files there are

    def _scan(self) -> None:
        """Learns of new files and new names, and forgets files that are gone and were read to their end."""
        found: dict[int, str] = {}
        for path in self._paths():
            try:
                status = os.stat(path)
            except OSError:
                continue  # it was renamed or deleted just now
            if stat.S_ISREG(status.st_mode) and status.st_ino % self._count == self._number:
                found.setdefault(status.st_ino, path)
        new = [inode for inode in found if inode not in self._files]
        places: list[Place] = [{INODE: inode} for inode in new]
        offsets = self.context.offsets(places) if places else []
        for inode, place, offset in zip(new, places, offsets, strict=True):
            self._files[inode] = self._known(found[inode], place, offset)
        for inode, one in list(self._files.items()):
            if inode in found:
                one.path = found[inode]
            elif one.opened is None or not self._has_more(one):
                one.close()
                del self._files[inode]

    def _paths(self) -> Iterator[str]:
        for pattern in self._patterns:
            for path in sorted(glob.iglob(pattern, recursive=True)):
                name = os.path.basename(path)
                if not any(fnmatchcase(path, one) or fnmatchcase(name, one) for one in self._excluded):
                    yield path

    def _known(self, path: str, place: Place, offset: Place | None) -> _File:
        """A new file, at its offset if it is the same file. Raises `ConnectError` for an offset of another kind."""
        made = _File(place, path)
        if offset is None:
            return made
        position = offset.get(POSITION)
        if type(position) is not int or position < 0:
            raise ConnectError(f"The offset {dict(offset)} of a file has no '{POSITION}' of 0 or more")
        head = _first_bytes(path, min(position, _HEAD_BYTES))
        if HEAD in offset and _hash(head) != offset[HEAD]:
            _log.info("%s is a new file with the inode of an older one: it is read from its beginning", path)
            return made
        made.position, made.head = position, head
        return made

    # Lines

    def _lines(self, one: _File) -> Sequence[SourceRecord]:
        """The next lines of a file. Raises `ConnectError` for one that cannot be read."""
        try:
            if not self._open(one):
                return []
            lines = one.lines.take(self._batch)
            while len(lines) < self._batch and self._read(one):
                lines += one.lines.take(self._batch - len(lines))
            return self._records(one, lines) if lines else []
        except OSError as error:
            raise ConnectError(f"cannot read the file {one.path}: {error.strerror}") from error

    def _open(self, one: _File) -> bool:
        """Opens a file if it has more than was read, and it is the one that is known."""
        if one.opened is not None:
            size = os.fstat(one.opened.fileno()).st_size
            if size < one.position:
                self._begin_again(one, size)
            return True
        try:
            status = os.stat(one.path)
        except FileNotFoundError:
            return False
        if status.st_ino != one.place[INODE] or status.st_size == one.position:
            return False
        if status.st_size < one.position:
            self._begin_again(one, status.st_size)
        try:
            one.opened = open(one.path, "rb")  # noqa: SIM115 - it stays open
        except FileNotFoundError:
            return False
        if os.fstat(one.opened.fileno()).st_ino != one.place[INODE]:  # renamed just now
            one.close()
            return False
        one.opened.seek(one.position)
        one.read_s = time.monotonic()
        self._close_oldest()
        return True

    def _begin_again(self, one: _File, size: int) -> None:
        _log.warning(
            "%s has %d bytes, fewer than the %d that were read: it is read from its beginning",
            one.path,
            size,
            one.position,
        )
        one.position, one.head = 0, b""
        one.lines.clear()
        if one.opened is not None:
            one.opened.seek(0)

    def _close_oldest(self) -> None:
        opened = [one for one in self._files.values() if one.opened is not None]
        if len(opened) > _MOST_OPEN:
            min(opened, key=lambda one: one.read_s).close()

    def _read(self, one: _File) -> bool:
        assert one.opened is not None
        data = one.opened.read(CHUNK_BYTES)
        one.lines.add(data, one.path)
        if data:
            one.read_s = time.monotonic()
        return bool(data)

    def _has_more(self, one: _File) -> bool:
        """Whether a file that is gone from the patterns has lines that were not read."""
        return self._read(one) or one.lines.count > 0

    def _records(self, one: _File, lines: list[bytes]) -> Sequence[SourceRecord]:
        if len(one.head) < _HEAD_BYTES:
            one.head = (one.head + b"".join(lines[:_HEAD_BYTES]))[:_HEAD_BYTES]
        ends = ends_of(lines, one.position)
        one.position = ends[-1]
        path, whole = one.path, one.head

        def offset_after(index: int) -> Place:
            return {POSITION: ends[index], PATH: path, HEAD: _hash(whole[: ends[index]])}

        run = SourceRun(self._topic, _TEXT, texts_of(lines), one.place, offset_after)
        if not self._header:
            return run
        headers = (Header(self._header, _TEXT, path),)
        return [replace(record, headers=headers) for record in run]


def _hash(head: bytes) -> str:
    return hashlib.blake2b(head, digest_size=8).hexdigest()


def _first_bytes(path: str, count: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(count)
    except OSError:
        return b""
