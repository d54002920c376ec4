"""Whatever a log holds, and wherever a crash stops the cleaner, readers find the last record of every key."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from felice.env import SystemDisk
from felice.log import Log
from felice.records.aborted import AbortedTransactions
from felice.records.batch import iter_batches
from felice.records.compression import Codec
from felice.records.reader import read_batch
from felice.records.record import Record
from unit.log.cleaning import (
    COMPACT,
    DAY_MS,
    SETTINGS,
    clean,
    compacted,
    end_transaction,
    live,
    put,
    records_in,
)
from unit.log.logs import NOW

KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
VALUES = st.none() | st.text("xyz", max_size=40)
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
WRITES = st.tuples(
    st.just("write"), PAIRS, st.sampled_from([None, 1, 2]), st.booleans(), st.sampled_from(list(Codec))
)
STEPS = st.one_of(
    WRITES,
    WRITES,
    st.tuples(st.just("end"), st.sampled_from([1, 2]), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.sampled_from([0, 1, DAY_MS]), st.sampled_from([2, 5, 1000])),
    st.tuples(st.just("reopen"), st.booleans()),
)


class CleanedLog:
    """A log, its cleaner's checkpoint, and its producers with an open transaction."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = compacted(directory)
        self.clean_offset: int | None = None
        self.sequences = {1: 0, 2: 0}
        self.open: set[int] = set()
        self.now_ms = NOW

    def write(self, pairs: list[Any], producer: int | None, transactional: bool, codec: Codec) -> None:
        options: dict[str, Any] = {}
        if producer is not None:
            transactional = transactional or producer in self.open
            options = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": self.sequences[producer],
                "transactional": transactional,
            }
            self.sequences[producer] += len(pairs)
            if transactional:
                self.open.add(producer)
        put(self.log, *pairs, codec=codec, **options)

    def end(self, producer: int, commit: bool) -> None:
        if producer in self.open:
            end_transaction(self.log, producer, commit=commit)
            self.open.discard(producer)

    def roll(self) -> None:
        self.log.roll()

    def clean(self, later_ms: int, keys: int) -> None:
        self.now_ms += later_ms
        settings = dataclasses.replace(SETTINGS, map_bytes=24 * keys, load_factor=1.0)
        before, stable = seen(self.log), self.log.last_stable_offset(self.log.log_end_offset)
        offsets = {record.offset: record for record in records_in(self.log)}
        self.clean_offset = clean(
            self.log, self.clean_offset, now_ms=self.now_ms, settings=settings
        ).end_offset
        assert self.clean_offset <= stable
        assert seen(self.log) == before
        assert all(offsets[record.offset] == record for record in records_in(self.log))

    def reopen(self, clean_shutdown: bool) -> None:
        end, states = self.log.log_end_offset, sequences(self.log)
        self.log.close(clean=clean_shutdown)
        self.log = compacted(self.directory, clean_shutdown=clean_shutdown)
        assert self.log.log_end_offset == end
        assert sequences(self.log) == states


def seen(log: Log) -> dict[bytes | None, Record]:
    """The last record of each key for a read_committed consumer of the whole log."""
    stable = log.last_stable_offset(log.log_end_offset)
    aborted = AbortedTransactions(
        [(entry.producer_id, entry.first_offset) for entry in log.aborted_transactions(0, stable)]
    )
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < stable and (data := log.read_bytes(offset, 500, end_offset=stable)):
        for header in iter_batches(data):
            if not aborted.hides(data, header) and not header.is_control:
                found += read_batch(data, header)
            offset = header.next_offset
    return live(found)


def sequences(log: Log) -> dict[int, tuple[int, bool]]:
    return {s.producer_id: (s.last_sequence, s.has_open_transaction) for s in log.producers}


# Recovery makes the cleaned segment the active one, so that it holds an open transaction behind its clean part.
CLEANED_SEGMENT_GROWS = [
    ("write", [("a", None)], None, False, Codec.NONE),
    ("roll",),
    ("clean", 0, 2),
    ("reopen", False),
    ("write", [("a", None), ("b", None), ("c", None)], 1, True, Codec.NONE),
]


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=40))
@example(CLEANED_SEGMENT_GROWS)
@example([*CLEANED_SEGMENT_GROWS, ("end", 1, False)])
def test_every_key_keeps_its_last_committed_record(steps: list[Any]) -> None:
    with TemporaryDirectory() as directory:
        cleaned = CleanedLog(Path(directory))
        for name, *arguments in [*steps, ("roll",), ("clean", 0, 1000), ("reopen", False)]:
            getattr(cleaned, name)(*arguments)
        segments = len(cleaned.log.segments)
        clean(cleaned.log, cleaned.clean_offset, now_ms=cleaned.now_ms)
        clean(cleaned.log, cleaned.clean_offset, now_ms=cleaned.now_ms)
        assert len(cleaned.log.segments) <= segments


class Crash(BaseException):
    """Ends the simulated process."""


class CrashingDisk(SystemDisk):
    """Performs `operations` changes of files, the last one by half where possible, and then crashes."""

    def __init__(self, operations: int) -> None:
        self.left = operations

    def step(self) -> None:
        if self.left <= 0:
            raise Crash
        self.left -= 1

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> Any:
        if create and not path.exists():
            self.step()
        return CrashingFile(super().open(path, create=create, read_only=read_only), self)

    def rename(self, source: Path, target: Path) -> None:
        self.step()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self.step()
        super().remove(path)

    def write_atomic(self, path: Path, data: bytes, *, sync_name: bool = True) -> None:
        self.step()
        super().write_atomic(path, data, sync_name=sync_name)


class CrashingFile:
    def __init__(self, file: Any, disk: CrashingDisk) -> None:
        self._file, self._disk, self.path = file, disk, file.path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite(self, data: Any, position: int) -> None:
        if self._disk.left == 1:
            self._file.pwrite(bytes(data)[: len(data) // 2], position)
        self._disk.step()
        self._file.pwrite(data, position)

    def truncate(self, size_bytes: int) -> None:
        self._disk.step()
        self._file.truncate(size_bytes)


def fill(log: Log) -> None:
    """Several groups of several segments, with producers, tombstones and both kinds of transactions."""
    for number in range(6):
        put(log, ("a", str(number)), (f"k{number % 4}", "x" * 40))
        put(log, ("t", None if number % 2 else "v"), producer_id=1, producer_epoch=0, base_sequence=number)
        put(
            log, ("c", f"{number}"), producer_id=2, producer_epoch=0, base_sequence=number, transactional=True
        )
        end_transaction(log, 2, commit=number % 3 > 0)
        log.roll()
    put(log, ("a", "active"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("filled") / "log"
    log = compacted(directory, config=GROUPED)
    fill(log)
    log.close()
    return directory


GROUPED = dataclasses.replace(COMPACT, segment_bytes=1500)


def crashes(filled: Path, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Yields a copy of the log for each operation at which the cleaner's process may crash."""
    for operations in range(400):
        directory = tmp_path / "crashed"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(filled, directory)
        log = compacted(directory, config=GROUPED)
        log.close(clean=False)
        disk = CrashingDisk(10**9)
        log = compacted(directory, config=GROUPED, disk=disk)
        disk.left = operations
        try:
            clean(log)
        except Crash:
            yield operations, directory
            continue
        assert operations > 30
        return
    raise AssertionError("the pass never came to its end")


def test_a_crash_at_any_operation_leaves_an_equivalent_log(filled: Path, tmp_path: Path) -> None:
    whole = compacted(shutil.copytree(filled, tmp_path / "whole"), config=GROUPED)
    expected, end, states = seen(whole), whole.log_end_offset, sequences(whole)
    count = 0
    for operations, directory in crashes(filled, tmp_path):
        for recovery_point in (0, end):
            copy = shutil.copytree(directory, tmp_path / "copy", dirs_exist_ok=False)
            log = compacted(copy, config=GROUPED, clean_shutdown=False, recovery_point=recovery_point)
            assert (seen(log), log.log_end_offset, sequences(log)) == (expected, end, states), operations
            assert not [p.name for p in copy.iterdir() if p.suffix in (".swap", ".cleaned")]
            clean(log)
            assert seen(log) == expected
            shutil.rmtree(copy)
        count += 1
    assert count > 30


def test_a_swap_whose_completion_crashed_is_completed_at_the_next_start(filled: Path, tmp_path: Path) -> None:
    whole = compacted(shutil.copytree(filled, tmp_path / "whole"), config=GROUPED)
    expected, end = seen(whole), whole.log_end_offset
    seen_swaps = 0
    for first, directory in crashes(filled, tmp_path):
        if not list(directory.glob("*.log.swap")):
            continue
        seen_swaps += 1
        if seen_swaps % 3:
            continue
        for operations in range(100):
            copy = shutil.copytree(directory, tmp_path / "copy")
            try:
                compacted(copy, config=GROUPED, clean_shutdown=False, disk=CrashingDisk(operations))
                done = True
            except Crash:
                done = False
            log = compacted(copy, config=GROUPED, clean_shutdown=False)
            assert (seen(log), log.log_end_offset) == (expected, end), (first, operations)
            shutil.rmtree(copy)
            if done:
                break
    assert seen_swaps > 5
