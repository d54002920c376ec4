"""The three index files: their bytes, their lookups, and their behaviour on a bad disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.env import SystemDisk
from felice.log.files import OpenFiles
from felice.log.index_file import WRITE_BEHIND_ENTRIES
from felice.log.indexes import OffsetIndex, TimeIndex
from felice.log.transaction_index import AbortedTransaction, TransactionIndex
from unit.log.logs import FailingDisk


def offset_index(
    path: Path, *, base: int = 100, max_bytes: int = 10_000, sealed: bool = False
) -> OffsetIndex:
    return OffsetIndex(OpenFiles(SystemDisk()), path, base, max_bytes=max_bytes, sealed=sealed)


def time_index(path: Path, *, base: int = 100, max_bytes: int = 10_000, sealed: bool = False) -> TimeIndex:
    return TimeIndex(OpenFiles(SystemDisk()), path, base, max_bytes=max_bytes, sealed=sealed)


def test_an_offset_index_entry_is_relative_offset_and_position(tmp_path: Path) -> None:
    index = offset_index(tmp_path / "x.index")
    index.append(105, 0)
    index.append(1124, 70_000)
    index.write_pending()
    assert (tmp_path / "x.index").read_bytes().hex() == "0000000500000000" + "0000040000011170"


def test_a_time_index_entry_is_timestamp_and_relative_offset(tmp_path: Path) -> None:
    index = time_index(tmp_path / "x.timeindex")
    index.append_if_later(1_700_000_000_000, 105)
    index.write_pending()
    assert (tmp_path / "x.timeindex").read_bytes().hex() == "0000018bcfe56800" + "00000005"


def test_a_transaction_index_entry_is_version_producer_and_three_offsets(tmp_path: Path) -> None:
    index = TransactionIndex(OpenFiles(SystemDisk()), tmp_path / "x.txnindex")
    index.append(AbortedTransaction(producer_id=7, first_offset=1, last_offset=9, last_stable_offset=4))
    assert (tmp_path / "x.txnindex").read_bytes().hex() == (
        "0000" + "0000000000000007" + "0000000000000001" + "0000000000000009" + "0000000000000004"
    )


@pytest.mark.parametrize("state", ["active", "closed", "reopened"])
def test_a_lookup_finds_the_last_entry_not_above_the_key(tmp_path: Path, state: str) -> None:
    index = offset_index(tmp_path / "x.index")
    for number in range(300):
        index.append(110 + 10 * number, 1000 * number)
    if state != "active":
        index.seal()
    if state == "reopened":
        index = offset_index(tmp_path / "x.index", sealed=True)
    assert index.count == 300
    assert index.floor(9) is None
    assert index.floor(10) == (10, 0)
    assert index.floor(39) == (30, 2000)
    assert index.floor(10**6) == (3000, 299_000)
    assert index.floor_by_value(1999) == (20, 1000)
    assert index.floor_by_value(2000) == (30, 2000)
    assert index.last() == (3000, 299_000)


def test_an_active_index_takes_entries_after_it_was_reopened(tmp_path: Path) -> None:
    index = offset_index(tmp_path / "x.index")
    index.append(101, 0)
    index.write_pending()
    index = offset_index(tmp_path / "x.index")
    index.append(102, 50)
    index.write_pending()
    assert offset_index(tmp_path / "x.index").floor(2) == (2, 50)
    assert (tmp_path / "x.index").stat().st_size == 16


def test_entries_wait_in_memory_and_are_written_many_at_once(tmp_path: Path) -> None:
    index = offset_index(tmp_path / "x.index")
    for number in range(WRITE_BEHIND_ENTRIES - 1):
        index.append(101 + number, number)
    assert not (tmp_path / "x.index").exists()
    index.append(1000, 1000)
    assert (tmp_path / "x.index").stat().st_size == WRITE_BEHIND_ENTRIES * 8


def test_a_full_disk_does_not_lose_index_entries(tmp_path: Path) -> None:
    disk = FailingDisk()
    index = OffsetIndex(OpenFiles(disk), tmp_path / "x.index", 0, max_bytes=10_000, sealed=False)
    disk.failing = {"write"}
    for number in range(WRITE_BEHIND_ENTRIES + 5):
        index.append(number, number * 10)
    disk.failing = set()
    index.write_pending()
    reopened = offset_index(tmp_path / "x.index", base=0, sealed=True)
    assert [reopened.entry(i) for i in range(reopened.count)] == [
        (i, i * 10) for i in range(WRITE_BEHIND_ENTRIES + 5)
    ]


def test_an_index_is_full_at_its_configured_size(tmp_path: Path) -> None:
    index = offset_index(tmp_path / "x.index", max_bytes=17)
    index.append(101, 0)
    assert not index.is_full
    index.append(102, 10)
    assert index.is_full


def test_a_time_index_keeps_room_for_the_entry_that_closes_it(tmp_path: Path) -> None:
    index = time_index(tmp_path / "x.timeindex", max_bytes=24)
    assert not index.is_full
    index.append_if_later(5, 101)
    assert index.is_full


def test_timestamps_of_a_time_index_strictly_increase(tmp_path: Path) -> None:
    index = time_index(tmp_path / "x.timeindex")
    for timestamp, offset in [(5, 101), (5, 102), (4, 103), (6, 104)]:
        index.append_if_later(timestamp, offset)
    assert [index.entry(i) for i in range(index.count)] == [(5, 1), (6, 4)]
    assert index.entry_before(5) is None
    assert index.entry_before(6) == (5, 101)
    assert index.last_entry() == (6, 104)


@pytest.mark.parametrize(("offset", "left"), [(101, 0), (102, 1), (104, 1), (105, 2)])
def test_truncation_removes_time_index_entries_from_its_offset_on(
    tmp_path: Path, offset: int, left: int
) -> None:
    index = time_index(tmp_path / "x.timeindex")
    index.append_if_later(5, 101)
    index.append_if_later(6, 104)
    index.truncate(offset)
    assert index.count == left


def test_batches_without_timestamps_add_no_time_index_entry(tmp_path: Path) -> None:
    index = time_index(tmp_path / "x.timeindex")
    index.append_if_later(-1, 101)
    assert index.count == 0


@pytest.mark.parametrize("sealed", [False, True])
def test_truncation_removes_entries_at_or_after_the_offset(tmp_path: Path, sealed: bool) -> None:
    index = offset_index(tmp_path / "x.index")
    for number in range(10):
        index.append(100 + number, number * 10)
    if sealed:
        index.seal()
    index.truncate(105)
    assert index.last() == (4, 40)
    assert (tmp_path / "x.index").stat().st_size == 5 * 8


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", None),
        (b"\0\0\0\5\0\0\0\0", None),
        (b"\0\0\0\5\0\0\0", "no multiple of 8"),
        (b"\0\0\0\5\0\0\0\1" + b"\0" * 8, "does not lie above"),
    ],
    ids=["empty", "sound", "torn", "preallocated"],
)
def test_an_index_that_cannot_be_right_is_detected(tmp_path: Path, content: bytes, fault: str | None) -> None:
    (tmp_path / "x.index").write_bytes(content)
    found = offset_index(tmp_path / "x.index", sealed=True).fault()
    assert found is None if fault is None else fault in (found or "")


def test_truncation_removes_transaction_index_entries_with_markers_at_or_after_the_offset(
    tmp_path: Path,
) -> None:
    index = TransactionIndex(OpenFiles(SystemDisk()), tmp_path / "x.txnindex")
    first, second = AbortedTransaction(1, 0, 5, 6), AbortedTransaction(2, 1, 9, 10)
    index.append(first)
    index.append(second)
    index.truncate(9)
    assert list(index.entries()) == [first]
    assert list(TransactionIndex(OpenFiles(SystemDisk()), index.path).entries()) == [first]


def test_few_files_stay_open_and_an_evicted_one_can_still_be_read(tmp_path: Path) -> None:
    files = OpenFiles(SystemDisk(), limit=2)
    first = files.get(tmp_path / "0", create=True)
    first.pwrite(b"still here", 0)
    for name in ("1", "2", "3"):
        files.get(tmp_path / name, create=True)
    assert len(files) == 2
    assert first.pread(10, 0) == b"still here"
    assert files.get(tmp_path / "0") is not first


def test_the_file_that_was_not_used_for_longest_is_evicted(tmp_path: Path) -> None:
    files = OpenFiles(SystemDisk(), limit=2)
    first = files.get(tmp_path / "0", create=True)
    second = files.get(tmp_path / "1", create=True)
    assert files.get(tmp_path / "0") is first
    files.get(tmp_path / "2", create=True)
    assert files.get(tmp_path / "0") is first
    assert files.get(tmp_path / "1") is not second


def test_forgotten_files_make_room(tmp_path: Path) -> None:
    files = OpenFiles(SystemDisk(), limit=2)
    kept = files.get(tmp_path / "0", create=True)
    (tmp_path / "sub").mkdir()
    files.get(tmp_path / "sub" / "1", create=True)
    files.forget_under(tmp_path / "sub")
    files.get(tmp_path / "2", create=True)
    files.forget(tmp_path / "2")
    files.get(tmp_path / "3", create=True)
    assert files.get(tmp_path / "0") is kept
    assert len(files) == 2
