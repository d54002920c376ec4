"""Files: a source that reads the lines of a file as they come, and a sink that appends a line for each record.

Keeps true:  a line is a record when its end is in the file; the offset is the number of bytes before the next line, so
             any text is read right after a restart.
             A file that was replaced (rotated) is read to its end before its successor, also when that happened while
             the task did not run: the offset has the file's inode. A file that became shorter is reported and read from
             its beginning.
             The sink's `flush` returns when the lines are on the disk. A line that a crash left unfinished is ended,
             and its record is written again.
Differs:     Kafka counts characters and then seeks bytes, and does not notice rotation.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    non_empty,
)
from felice.pipelines.connect.connector.base import OffsetlessSink, SinkTask, SourceConnector, SourceTask
from felice.pipelines.connect.connector.contexts import Place, TopicPartition
from felice.pipelines.connect.connectors.lines import CHUNK_BYTES, Lines, ends_of, texts_of
from felice.pipelines.connect.converters.plain import printed
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import SinkRecord, SourceRecord
from felice.pipelines.connect.model.runs import SourceRun, values_of
from felice.pipelines.connect.model.schema import STRING, Schema

_log = logging.getLogger("felice.connect.file")

FILENAME, POSITION, INODE = "filename", "position", "inode"
"""The names in the source's partition and offset. Kafka's connector has the first two, and does not mind the third."""
_WAIT_S = 1.0
"""The wait for a file that does not exist, or has nothing new."""
_TEXT = Schema(STRING)


class FileStreamSource(SourceConnector):
    """Reads a file line by line."""

    version: ClassVar = "1"
    java_class: ClassVar = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    definitions: ClassVar = ConfigDefinitions(
        [
            Definition(
                "file",
                Type.STRING,
                None,
                "Source filename. If not specified, the standard input will be used",
                Importance.HIGH,
            ),
            Definition(
                "topic",
                Type.STRING,
                documentation="The topic to publish data to",
                importance=Importance.HIGH,
                validator=non_empty,
            ),
            Definition(
                "batch.size",
                Type.INT,
                2000,
                "The maximum number of records the source task can read from the file each time it is polled",
                Importance.LOW,
            ),
        ]
    )

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        """The task."""
        return FileStreamSourceTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task: a file has one order."""
        return [self.config]

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> bool | None:
        """Yes for a file; the standard input cannot be read again."""
        return bool(config.get("file"))

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[Any, Place | None]) -> bool:
        """Accepts positions of 0 and more; a reset of anything."""
        if not config.get("file"):
            raise ConnectError("Offsets cannot be modified if the 'file' configuration is unspecified.")
        for partition, offset in offsets.items():
            if offset is not None:
                if FILENAME not in json.loads(partition):
                    raise ConnectError(f"Partition objects should contain the key '{FILENAME}'")
                _checked_position(offset)
        return True


class FileStreamSourceTask(SourceTask):
    """Reads the lines."""

    _file: IO[bytes] | None = None

    def start(self, config: Mapping[str, str]) -> None:
        """Opens nothing yet: the file may come later."""
        values = FileStreamSource.definitions.parse(dict(config))
        self._path: str | None = values["file"] or None
        self._topic: str = values["topic"]
        self._batch: int = max(1, values["batch.size"])
        self._lines = Lines()
        self._position = 0
        self._inode: int | None = None
        self._place: Place = {} if self._path is None else {FILENAME: self._path}
        if self._path is not None:
            offset = self.context.offset(self._place)
            if offset is not None:
                self._position, self._inode = _checked_position(offset), offset.get(INODE)

    def poll(self) -> Sequence[SourceRecord] | None:
        """The lines that are there, or None after a second without one."""
        if self._file is None and not self._open():
            self.stopping.wait(_WAIT_S)
            return None
        lines: list[bytes] = []
        while not self.stopping.is_set():
            lines += self._lines.take(self._batch - len(lines))
            if len(lines) >= self._batch or not self._read():
                break
        if not lines:
            self._follow_rotation()
            self.stopping.wait(_WAIT_S)
            return None
        return self._run(lines)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None and self._path is not None:
            self._file.close()

    def _open(self) -> bool:
        if self._path is None:
            self._file = sys.stdin.buffer
            return True
        try:
            self._file = open(self._begun() or self._path, "rb")  # noqa: SIM115
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConnectError(f"cannot read the file {self._path}: {error.strerror}") from error
        status = os.fstat(self._file.fileno())
        if self._inode is not None and status.st_ino != self._inode:
            _log.warning("%s is another file than the last one, which is gone: it is read whole", self._path)
            self._position = 0
        elif status.st_size < self._position:
            self._begin_again(status.st_size)
        self._inode = status.st_ino
        self._file.seek(self._position)
        return True

    def _begun(self) -> Path | None:
        """The file that was read last, if it has another name now. Only its own folder is searched."""
        assert self._path is not None
        path = Path(self._path)
        try:
            if self._inode is None or path.stat().st_ino == self._inode:
                return None
            with os.scandir(path.parent) as entries:
                return next((Path(one.path) for one in entries if one.inode() == self._inode), None)
        except OSError:
            return None

    def _begin_again(self, size: int) -> None:
        _log.warning(
            "%s has %d bytes, fewer than the %d that were read: it is read from its beginning",
            self._path,
            size,
            self._position,
        )
        self._position = 0
        self._lines.clear()

    def _read(self) -> bool:
        assert self._file is not None
        data = self._file.readline(CHUNK_BYTES) if self._path is None else self._file.read(CHUNK_BYTES)
        self._lines.add(data, self._path or "the standard input")
        return bool(data)

    def _run(self, lines: list[bytes]) -> SourceRun:
        ends = ends_of(lines, self._position)
        self._position = ends[-1]
        inode = self._inode

        def offset_after(index: int) -> Place:
            return {} if inode is None else {POSITION: ends[index], INODE: inode}

        return SourceRun(self._topic, _TEXT, texts_of(lines), self._place, offset_after)

    def _follow_rotation(self) -> None:
        """Looks whether the path names another file now, or the same one with less in it."""
        if self._path is None or self._file is None:
            return
        mine = os.fstat(self._file.fileno())
        try:
            there = os.stat(self._path)
        except OSError:
            return  # moved away, and its successor is not there yet
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            if self._read():
                return  # written since the last look
            self._file.close()
            self._file, self._inode, self._position = None, None, 0
            self._lines.clear()
        elif there.st_size < self._position:
            self._begin_again(there.st_size)
            self._file.seek(0)


def _checked_position(offset: Place) -> int:
    position = offset.get(POSITION)
    if POSITION not in offset:
        raise ConnectError(f"Offset objects should either be null or contain the key '{POSITION}'")
    if type(position) is not int:
        raise ConnectError(f"The value for the '{POSITION}' key in the offset is expected to be a Long value")
    if position < 0:
        raise ConnectError(f"The value for the '{POSITION}' key in the offset should be a non-negative value")
    return position


class FileStreamSink(OffsetlessSink):
    """Appends a line for each record to a file."""

    version: ClassVar = "1"
    java_class: ClassVar = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    definitions: ClassVar = ConfigDefinitions(
        [
            Definition(
                "file",
                Type.STRING,
                None,
                "Destination filename. If not specified, the standard output will be used",
                Importance.HIGH,
            )
        ]
    )

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        """The task."""
        return FileStreamSinkTask


class FileStreamSinkTask(SinkTask):
    """Writes the lines."""

    _output: int | None = None

    def start(self, config: Mapping[str, str]) -> None:
        """Opens the file, and ends a line that a crash left unfinished. Raises `ConnectError`."""
        self._path: str | None = FileStreamSink.definitions.parse(dict(config))["file"] or None
        if self._path is None:
            self._output = sys.stdout.fileno()
            return
        try:
            self._output = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            text = f"Couldn't find or create file '{self._path}' for FileStreamSinkTask: {error.strerror}"
            raise ConnectError(text) from error
        status = os.fstat(self._output)
        has_lines = stat.S_ISREG(status.st_mode) and status.st_size
        if has_lines and os.pread(self._output, 1, status.st_size - 1) != b"\n":
            self._write(b"\n")

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Writes a line for each record, without a buffer: lines of several tasks do not mix."""
        lines = "".join([f"{printed(value)}\n" for value in values_of(records)])
        self._write(lines.encode(errors="surrogatepass"))

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Waits until the lines are on the disk."""
        assert self._output is not None
        try:
            if stat.S_ISREG(os.fstat(self._output).st_mode):
                os.fsync(self._output)
        except OSError as error:
            raise self._failed(error) from error

    def stop(self) -> None:
        """Closes the file."""
        output, self._output = self._output, None
        if output is not None and self._path is not None:
            os.close(output)

    def _write(self, data: bytes) -> None:
        assert self._output is not None
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._output, left) :]
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> ConnectError:
        return ConnectError(f"cannot write {self._path or 'the standard output'}: {error.strerror}")
