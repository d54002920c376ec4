"""What the tasks of sinks of files share: they gather the records of each partition in files, and write them whole.

Keeps true:  offsets are committed after the files that hold their records. Cuts depend on the records alone, unless
             `rotate.schedule.interval.ms` cuts by the clock. All open files of a partition are written together.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import ClassVar

from felice.dataclass import dataclass
from felice.pipelines.connect.configuration.definitions import ConfigDefinitions
from felice.pipelines.connect.connector.base import SinkTask
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.objects.formats import File, new_file
from felice.pipelines.connect.connectors.objects.partitioners import Partitioner
from felice.pipelines.connect.model.errors import DataError, RetriableError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.model.schema import Schema


@dataclass(slots=True)
class OpenFile:
    """A file of a partition: its folder below the topic's, and the offsets of its first and its last record."""

    file: File
    folder: str
    start: int
    end: int


@dataclass(slots=True)
class _Partition:
    """What a partition has since its files were last written."""

    files: dict[str, OpenFile] = field(default_factory=dict)
    """By their folders."""
    schema: Schema | None = None
    first: int | None = None
    """The offset after which nothing is written."""
    next: int | None = None
    count: int = 0
    base_time: datetime.datetime | None = None
    folder: str | None = None
    due_s: float = float("inf")
    is_full: bool = False
    """Whether its files are to be written: no record is added before that."""


class FilesSinkTask(SinkTask):
    """Gathers records in files."""

    definitions: ClassVar[ConfigDefinitions]
    """The options."""

    def start(self, config: Mapping[str, str]) -> None:
        """Prepares; asks the target for nothing yet. Raises `ConnectError`."""
        options = self._options = self.definitions.parse(dict(config))
        self._partitioner = Partitioner(options, lambda: datetime.datetime.now(datetime.UTC))
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._schedule_s: float = options["rotate.schedule.interval.ms"] / 1000

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Begins with empty files."""
        for one in partitions:
            self._partitions[one] = _Partition()

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Adds records to files, and writes those that are full. Raises `RetriableError`."""
        self._write_due()
        for record in records:
            at = record.place
            partition = self._partitions.setdefault(at, _Partition())
            if partition.next is not None and record.offset < partition.next:
                continue  # a `put` that is tried again
            try:
                self._add(at, partition, record)
            except DataError as error:
                self.context.report(record, error)
            partition.next = record.offset + 1
            if partition.first is None:
                partition.first = record.offset
            if partition.count >= self._options["flush.size"]:
                self._write(at, partition)

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The offsets before which everything is written: those of open files wait."""
        self._write_due()
        safe = {}
        for at, offset in offsets.items():
            partition = self._partitions.get(at, _Partition())
            if not partition.count:
                safe[at] = offset
            elif partition.first is not None:
                safe[at] = partition.first
        return safe

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Gives the open files up: another task makes them again."""
        for one in partitions:
            found = self._partitions.pop(one, None)
            for opened in (found.files if found is not None else {}).values():
                opened.file.close()

    # Files

    def _add(self, at: TopicPartition, partition: _Partition, record: SinkRecord) -> None:
        if record.value is None:
            if self._options["behavior.on.null.values"] == "ignore":
                return
            raise DataError("a record has no value, and behavior.on.null.values is fail")
        folder = self._partitioner.folder(record)
        moment = self._partitioner.time_of(record) if self._rotates_by_time else None
        if partition.count and self._must_rotate(partition, record, folder, moment):
            self._write(at, partition)
        opened = partition.files.get(folder)
        if opened is None:
            opened = OpenFile(
                new_file(self._options, record.value_schema), folder, record.offset, record.offset
            )
        try:
            opened.file.write(record)
        except DataError:
            if folder not in partition.files:
                opened.file.close()
            raise
        partition.files[folder] = opened
        opened.end = record.offset
        if not partition.count:
            partition.schema, partition.first = record.value_schema, record.offset
            partition.base_time, partition.folder = moment, folder
            if self._schedule_s > 0:
                partition.due_s = time.monotonic() + self._schedule_s
        partition.count += 1

    @property
    def _rotates_by_time(self) -> bool:
        return self._partitioner.is_by_time and self._options["rotate.interval.ms"] > 0

    def _must_rotate(
        self, partition: _Partition, record: SinkRecord, folder: str, moment: datetime.datetime | None
    ) -> bool:
        if record.value_schema != partition.schema:
            return True
        if moment is None or partition.base_time is None:
            return False
        span = datetime.timedelta(milliseconds=self._options["rotate.interval.ms"])
        return moment - partition.base_time >= span or folder != partition.folder

    def _write_due(self) -> None:
        for at, partition in self._partitions.items():
            if partition.is_full or (partition.count and time.monotonic() >= partition.due_s):
                self._write(at, partition)

    def _write(self, at: TopicPartition, partition: _Partition) -> None:
        """Writes all files of a partition. Raises `RetriableError`: then they are written at the next call."""
        partition.is_full = True
        try:
            self._publish(at, list(partition.files.values()))
        except RetriableError:
            self.context.set_timeout(self._options["retry.backoff.ms"])
            raise
        for opened in partition.files.values():
            opened.file.close()
        partition.files, partition.count, partition.first = {}, 0, None
        partition.schema, partition.due_s, partition.is_full = None, float("inf"), False
        self.context.request_commit()

    def _publish(self, at: TopicPartition, files: Sequence[OpenFile]) -> None:
        """Writes files where they belong. Raises `RetriableError`: then it is called with the same files again."""
        raise NotImplementedError

    def _directory(self, at: TopicPartition, folder: str) -> str:
        """The directory of a file."""
        return str(self._delimiter).join((self._options["topics.dir"], at[0], folder))

    def _file_name(self, at: TopicPartition, opened: OpenFile, *offsets: int) -> str:
        """The name of a file in its directory, with these offsets."""
        width = self._options["filename.offset.zero.pad.width"]
        parts = (at[0], str(at[1]), *(str(one).zfill(width) for one in offsets))
        return str(self._options["file.delim"]).join(parts) + opened.file.extension

    @property
    def _delimiter(self) -> str:
        return "/"
