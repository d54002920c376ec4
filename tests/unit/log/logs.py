"""Logs, batches and a failing disk for the tests of `felice.log`."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from felice.config import TopicConfig
from felice.env import Buffer, File, SystemDisk
from felice.log import AppendOrigin
from felice.log.log import Log
from felice.protocol.errors import ApiError, ErrorCode
from felice.records.batch import BatchHeader, stamp
from felice.records.builder import build_batch, build_control
from felice.records.compression import Codec
from felice.records.control import ControlType, EndTransactionMarker
from felice.records.reader import read_records
from felice.records.record import Record

NOW = 1_700_000_000_000
LAST = 2**62


class ManualClock:
    def __init__(self, now_ms: int = NOW) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class FailingFile:
    """A file whose writes, syncs or truncations fail as long as its disk is set to fail them."""

    def __init__(self, file: File, disk: FailingDisk) -> None:
        self._file = file
        self._disk = disk
        self.path = file.path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite(self, data: Buffer, position: int) -> None:
        if self._disk.fails("write", self.path):
            self._file.pwrite(bytes(data)[: len(data) // 2], position)
            raise self._disk.error()
        self._file.pwrite(data, position)

    def truncate(self, size_bytes: int) -> None:
        if self._disk.fails("truncate", self.path):
            raise self._disk.error()
        self._file.truncate(size_bytes)

    def sync(self) -> None:
        if self._disk.fails("sync", self.path):
            raise self._disk.error()
        self._disk.synced.append(self.path)
        self._file.sync()


class FailingDisk(SystemDisk):
    """The machine's disk. `failing` names operations (and perhaps a suffix) that fail."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.suffix = ""
        self.errno = errno.ENOSPC
        self.synced: list[Path] = []

    def fails(self, operation: str, path: Path) -> bool:
        return operation in self.failing and path.name.endswith(self.suffix)

    def error(self) -> OSError:
        return OSError(self.errno, "the disk says no")

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> Any:
        if self.fails("open", path) or (create and not path.exists() and self.fails("create", path)):
            raise self.error()
        return FailingFile(super().open(path, create=create, read_only=read_only), self)


def open_log(directory: Path, config: TopicConfig | None = None, **options: Any) -> Log:
    directory.mkdir(parents=True, exist_ok=True)
    disk = options.pop("disk", None) or SystemDisk()
    clock = options.pop("clock", None) or ManualClock()
    return Log.open(disk, clock, directory, ("events", 0), config or TopicConfig(), **options)


def batch(
    values: Sequence[str | bytes] = ("a",),
    *,
    timestamps: Iterable[int] | None = None,
    key: bytes | None = b"k",
    codec: Codec = Codec.NONE,
    **producer: Any,
) -> bytearray:
    times = list(timestamps) if timestamps is not None else [NOW] * len(values)
    records = [
        Record(0, time, key, value.encode() if isinstance(value, str) else value)
        for time, value in zip(times, values, strict=True)
    ]
    return bytearray(build_batch(records, codec=codec, **producer))


def marker(producer_id: int, epoch: int = 0, *, commit: bool, coordinator_epoch: int = 0) -> bytearray:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return bytearray(
        build_control(
            EndTransactionMarker(kind, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp_ms=NOW,
        )
    )


def append(log: Log, *values: str, now_ms: int = NOW, leader_epoch: int = 0, **options: Any) -> int:
    """Appends one batch and returns its base offset."""
    data = batch(values or ("a",), **options)
    return log.append(data, leader_epoch=leader_epoch, now_ms=now_ms).base_offset


def values_in(log: Log, offset: int | None = None) -> list[str]:
    """All values from `offset` (by default the log start) to the end, read segment by segment."""
    found: list[str] = []
    at = log.log_start_offset if offset is None else offset
    while at < log.log_end_offset:
        data = log.read_bytes(at, 1 << 20, end_offset=log.log_end_offset)
        records = list(read_records(data, check_crcs=True))
        if not records:
            break
        found += [
            record.value.decode() for record in records if record.offset >= at and record.value is not None
        ]
        at = records[-1].offset + 1
    return found


def code_of(call: Any, *args: Any, **options: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        call(*args, **options)
    return caught.value.code


def replicated(*batches: tuple[int, int, list[str]]) -> bytearray:
    """Batches as a leader stored them: (base offset, leader epoch, values)."""
    joined = bytearray()
    for base, epoch, values in batches:
        data = batch(values)
        stamp(data, 0, base, epoch)
        joined += data
    return joined


def replicate(log: Log, data: bytearray) -> int:
    """Appends what the leader of epoch 9 sent. Returns the log's end."""
    log.append(data, leader_epoch=9, now_ms=NOW, origin=AppendOrigin.REPLICATION)
    return log.log_end_offset


def headers_of(log: Log) -> list[BatchHeader]:
    return [header for segment in log.segments for header in segment.headers(0)]
