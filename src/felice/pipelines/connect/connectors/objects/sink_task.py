"""The task of the sink: gathers the records of each partition in files, and writes them whole.

Keeps true:  an object is there whole or not at all, and offsets are committed after it. Names and cuts depend on the
             records alone (unless `rotate.schedule.interval.ms` cuts by the clock): what a crash repeats replaces the
             same objects by the same bytes, so that each record is there once.
             All open files of a partition are written together.
"""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from felice.dataclass import dataclass
from felice.pipelines.connect.connector.base import SinkTask
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.objects.formats import File, new_file
from felice.pipelines.connect.connectors.objects.options import OPTIONS, conflicts
from felice.pipelines.connect.connectors.objects.partitioners import Partitioner
from felice.pipelines.connect.model.errors import ConfigError, ConnectError, DataError, RetriableError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.model.schema import Schema

_log = logging.getLogger("felice.connect.objects")


@dataclass(slots=True)
class _Open:
    """A file of a partition, and the offset of its first record."""

    file: File
    start: int


@dataclass(slots=True)
class _Partition:
    """What a partition has since its files were last written."""

    files: dict[str, _Open] = field(default_factory=dict)
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


class S3SinkTask(SinkTask):
    """Writes files."""

    def start(self, config: Mapping[str, str]) -> None:
        """Prepares; asks the store for nothing yet. Raises `ConnectError`."""
        for _, error in conflicts(config):
            raise ConfigError(error)
        options = self._options = OPTIONS.parse(dict(config))
        self._partitioner = Partitioner(options, lambda: datetime.datetime.now(datetime.UTC))
        self._store = _store(options)
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
            opened = _Open(new_file(self._options, record.value_schema), record.offset)
        try:
            opened.file.write(record)
        except DataError:
            if folder not in partition.files:
                opened.file.close()
            raise
        partition.files[folder] = opened
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
        for folder, opened in partition.files.items():
            self._put_object(self._name(at, folder, opened), opened.file)
        for opened in partition.files.values():
            opened.file.close()
        partition.files, partition.count, partition.first = {}, 0, None
        partition.schema, partition.due_s, partition.is_full = None, float("inf"), False
        self.context.request_commit()

    def _put_object(self, name: str, file: File) -> None:
        try:
            obstore.put(self._store, name, file.finish(), chunk_size=self._options["s3.part.size"])
        except (BaseError, OSError) as error:
            self.context.set_timeout(self._options["retry.backoff.ms"])
            raise RetriableError(f"the object {name} cannot be written: {error}") from error
        _log.debug("the object %s is written", name)

    def _name(self, at: TopicPartition, folder: str, opened: _Open) -> str:
        topic, number = at
        options = self._options
        start = str(opened.start).zfill(options["filename.offset.zero.pad.width"])
        file = options["file.delim"].join((topic, str(number), start)) + opened.file.extension
        return str(options["directory.delim"]).join((options["topics.dir"], topic, folder, file))


def _store(options: Mapping[str, Any]) -> S3Store:
    given: dict[str, Any] = {"region": options["s3.region"]}
    if (url := options["store.url"]) is not None:
        given |= {"endpoint": url, "virtual_hosted_style_request": False}
    if options["aws.access.key.id"] is not None:
        given["access_key_id"] = options["aws.access.key.id"]
    if options["aws.secret.access.key"] is not None:
        given["secret_access_key"] = options["aws.secret.access.key"].value
    retries: Any = {"max_retries": options["s3.part.retries"]}
    client: Any = {"allow_http": bool(url and url.startswith("http://"))}
    try:
        return S3Store(options["s3.bucket.name"], client_options=client, retry_config=retries, **given)
    except (BaseError, ValueError, TypeError) as error:
        raise ConnectError(f"the bucket {options['s3.bucket.name']} cannot be used: {error}") from None
