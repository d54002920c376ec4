"""Logs to clean, and a cleaner without threads, for the tests of compaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from felice.config import TopicConfig
from felice.log import AppendOrigin, Log
from felice.log.cleaner_pass import CleanerSettings, CleaningPass, log_facts
from felice.log.cleaner_plan import Cleanable, cleanable
from felice.log.throttle import Throttle
from felice.records.batch import BatchHeader, iter_batches
from felice.records.builder import build_batch
from felice.records.compression import Codec
from felice.records.reader import read_batch
from felice.records.record import Record
from unit.log.logs import NOW, ManualClock, marker, open_log

DAY_MS = 86_400_000
COMPACT = TopicConfig(cleanup_policy=("compact",), segment_bytes=1 << 20, index_interval_bytes=100)
SETTINGS = CleanerSettings(map_bytes=1 << 20, load_factor=0.9, buffer_bytes=4096, secret=b"0123456789abcdef")

Pair = tuple[str, str | None]


def compacted(directory: Path, **options: Any) -> Log:
    return open_log(directory, options.pop("config", COMPACT), **options)


def put(log: Log, *pairs: Pair, codec: Codec = Codec.NONE, at: int = NOW, **producer: Any) -> int:
    """Appends one batch of keys and values; a value of None is a tombstone. Returns its base offset."""
    records = [Record(0, at, key.encode(), None if value is None else value.encode()) for key, value in pairs]
    data = bytearray(build_batch(records, codec=codec, **producer))
    return log.append(
        data, leader_epoch=log.epochs.latest if log.epochs.latest > 0 else 0, now_ms=at
    ).base_offset


def end_transaction(log: Log, producer_id: int, *, commit: bool) -> int:
    data = marker(producer_id, commit=commit)
    return log.append(data, leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR).base_offset


def found_in(log: Log, clean_offset: int | None = None, now_ms: int = NOW) -> Cleanable:
    stable = log.last_stable_offset(log.log_end_offset)
    return cleanable(log_facts(log, stable, clean_offset), now_ms)


def make_pass(
    log: Log, clean_offset: int | None = None, *, now_ms: int = NOW, settings: CleanerSettings = SETTINGS
) -> CleaningPass:
    throttle = Throttle(ManualClock(), lambda: 1e300)
    return CleaningPass(log, found_in(log, clean_offset, now_ms), settings, throttle, now_ms=now_ms)


def clean(log: Log, clean_offset: int | None = None, **options: Any) -> CleaningPass:
    """Runs one whole pass as the broker does, on this thread."""
    work = make_pass(log, clean_offset, **options)
    work.index()
    for group in work.groups():
        segment = work.clean(group)
        if segment is not None:
            assert work.swap_in(group, segment)
            log.files.disk.sync_dir(log.directory)
    return work


def roll_and_clean(log: Log, clean_offset: int | None = None, **options: Any) -> CleaningPass:
    log.roll()
    return clean(log, clean_offset, **options)


def batches_in(log: Log) -> list[tuple[BatchHeader, list[Record]]]:
    """All batches from the log start, fetched as a consumer does: each fetch starts where the last one ended."""
    found: list[tuple[BatchHeader, list[Record]]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_bytes(offset, 300, end_offset=log.log_end_offset)
        if not data:
            break
        for header in iter_batches(data):
            found.append((header, read_batch(data, header)))
            offset = header.next_offset
    return found


def records_in(log: Log) -> list[Record]:
    return [record for header, records in batches_in(log) if not header.is_control for record in records]


def pairs_in(log: Log) -> list[tuple[int, str, str | None]]:
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for record in records_in(log)
    ]


def latest(records: Iterable[Record]) -> dict[bytes | None, Record]:
    """The last record of each key, tombstones included."""
    return {record.key: record for record in records}


def live(records: Iterable[Record]) -> dict[bytes | None, Record]:
    """The last value of each key for a reader of the whole log."""
    return {key: record for key, record in latest(records).items() if record.value is not None}


def segment_bases(log: Log) -> Sequence[int]:
    return [segment.base_offset for segment in log.segments]
