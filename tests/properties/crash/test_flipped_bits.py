"""One flipped bit anywhere in a log directory is detected, or does no harm: readers get only written records.

A reader here does what clients do: it checks the CRC of every batch and skips aborted transactions.
It must get all records that were written, unless an error was reported: by the directory,
the partition, a read, or the reader's own check. Some bytes have no checksum in Kafka's formats; `UNCHECKED` lists
them, and what still holds for them.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from felice.config import TopicConfig
from felice.log import AppendOrigin, Log
from felice.log.directory import LogDirectory
from felice.log.errors import LogDirectoryError
from felice.protocol.errors import ApiError
from felice.records.aborted import AbortedTransactions
from felice.records.batch import iter_batches, verify_crc
from felice.records.reader import read_batch
from felice.testing.simulation.disk import SimDisk
from properties.crash.seeds import SEEDS
from unit.log.logs import NOW, ManualClock, append, batch, marker

DIRECTORY, KEY = Path("/data"), ("events", 0)
CONFIG = TopicConfig(segment_bytes=1200, index_interval_bytes=150, retention_bytes=-1)
SMALL_FILE_BYTES = 160
FLIPS_A_LARGE_FILE = 40 * SEEDS

# In a batch: base offset and leader epoch. The broker detects a wrong base offset where it scans batches. Elsewhere
# a reader may get a batch under another offset, as with Apache Kafka. Its records are still unchanged.
UNCHECKED = {*range(8), *range(12, 16)}

Record = tuple[int, int, bytes | None, bytes | None]


class Detected(Exception):
    """The reader or the broker detected the damage."""


def opened(disk: SimDisk) -> LogDirectory:
    directory = LogDirectory(disk, ManualClock(), DIRECTORY, recovery_threads=1)
    directory.acquire(node_id=1, cluster_id="cluster", new_directory_id=UUID(int=3))
    directory.load(lambda topic: CONFIG)
    return directory


def written(*, clean: bool) -> SimDisk:
    """Several segments with committed, aborted and plain records, epochs, a log start, indexes and snapshots."""
    disk = SimDisk()
    disk.mkdir(DIRECTORY)
    directory = opened(disk)
    log = directory.create(*KEY, CONFIG, UUID(int=0xF00D))
    for number in range(16):
        append(log, *(f"{number}-{part}" + "." * 40 for part in range(3)), leader_epoch=number // 6)
        for producer, commit in ((1, number % 3 > 0), (2, True)):
            values = [f"{number} of {producer}" + "," * 30] * 2
            data = batch(
                values, producer_id=producer, producer_epoch=0, base_sequence=2 * number, transactional=True
            )
            log.append(data, leader_epoch=number // 6, now_ms=NOW)
            end = marker(producer, commit=commit)
            log.append(end, leader_epoch=number // 6, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    log.delete_records_before(7)
    assert len(log.segments) > 3
    if clean:
        directory.close({KEY: log.log_end_offset})
    else:
        log.flush()
        for write in (
            directory.checkpoints.capture_recovery_points(),
            directory.checkpoints.capture_log_starts(),
        ):
            write()
        directory.checkpoints.capture_high_watermarks({KEY: log.log_end_offset})()
        disk.kill()
    return disk


def read(disk: SimDisk) -> list[Record]:
    """The records that a reader gets. Raises `Detected` if the damage is detected."""
    try:
        directory = opened(disk)
    except (LogDirectoryError, ApiError) as error:
        raise Detected(str(error)) from error
    log = directory.logs.get(KEY)
    if log is None or log.topic_id != UUID(int=0xF00D) or log.cuts:
        raise Detected(str(directory.failed or log))
    try:
        return records_of(log)
    except ApiError as error:
        raise Detected(str(error)) from error


def records_of(log: Log) -> list[Record]:
    found: list[Record] = []
    offset, stable = log.log_start_offset, log.last_stable_offset(log.log_end_offset)
    while offset < stable:
        data = log.read_bytes(offset, 900, end_offset=stable)
        aborted = AbortedTransactions(
            [(e.producer_id, e.first_offset) for e in log.aborted_transactions(offset, stable)]
        )
        start = offset
        for header in iter_batches(data):
            if not verify_crc(data, header):
                raise Detected(f"CRC at {header.base_offset}")
            if not aborted.hides(data, header) and not header.is_control:
                found += [
                    (record.offset, record.timestamp, record.key, record.value)
                    for record in read_batch(data, header)
                    if record.offset >= start
                ]
            offset = max(offset, header.next_offset)
        if offset == start:
            raise Detected(f"no way on from {offset}")
    return found


def flipped(disk: SimDisk, path: Path, at: int, bit: int) -> SimDisk:
    damaged = disk.copy()
    file = damaged.open(path)
    file.pwrite(bytes([file.pread(1, at)[0] ^ (1 << bit)]), at)
    file.close()
    return damaged


def files_of(disk: SimDisk, directory: Path) -> list[Path]:
    found = []
    for name in disk.listdir(directory):
        path = directory / name
        found += files_of(disk, path) if disk.is_dir(path) else [path]
    return found


def unchecked_bytes(disk: SimDisk, path: Path) -> set[int]:
    if path.suffix != ".log":
        return set()
    return {header.position + at for header in iter_batches(disk.read_bytes(path)) for at in UNCHECKED}


def check(disk: SimDisk, expected: list[Record], path: Path, at: int, bit: int, unchecked: set[int]) -> bool:
    """Whether the flip was detected; fails if it was not detected and did harm."""
    try:
        found = read(flipped(disk, path, at, bit))
    except Detected:
        return True
    if at in unchecked:
        assert {record[1:] for record in found} <= {record[1:] for record in expected}
    elif path.name == "log-start-offset-checkpoint":
        # Text without a checksum: a changed number is another log start. The records that are read are still unchanged.
        assert found == expected[-len(found) :] or found[-len(expected) :] == expected
    else:
        assert found == expected
    return False


@pytest.mark.parametrize("clean", [True, False])
def test_no_flipped_bit_is_served(clean: bool) -> None:
    disk = written(clean=clean)
    expected = read(disk.copy())
    random = Random(1)
    kinds = set()
    for path in files_of(disk, DIRECTORY):
        size, unchecked = disk.size(path), unchecked_bytes(disk, path)
        count = size if size <= SMALL_FILE_BYTES else min(FLIPS_A_LARGE_FILE, size)
        places = sorted(random.sample(range(size), count))
        kinds.add(path.suffix or path.name)
        for at in places:
            bit = random.randrange(8)
            try:
                check(disk, expected, path, at, bit, unchecked)
            except Exception as error:
                error.add_note(f"{path}, byte {at}, bit {bit}")
                raise
    assert kinds >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".metadata", ".properties"}
