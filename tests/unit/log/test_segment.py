"""One segment: lookups of batches, with whole and with damaged indexes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from felice.env import SystemDisk
from felice.log.errors import CorruptLog
from felice.log.files import OpenFiles
from felice.log.segment import Segment
from felice.records.batch import BatchHeader, iter_batches, stamp
from unit.log.logs import NOW, batch

INTERVAL = 200


def segment_of(directory: Path, sizes: list[int], *, base: int = 1000, interval: int = INTERVAL) -> Segment:
    """A segment whose batches have these numbers of records, with dense offsets from `base` on."""
    segment = Segment.create(OpenFiles(SystemDisk()), directory, base, index_bytes=1 << 20, created_ms=NOW)
    for number, size in enumerate(sizes):
        add(segment, size, timestamp=NOW + number, interval=interval)
    return segment


def add(segment: Segment, size: int, *, timestamp: int = NOW, interval: int = INTERVAL) -> None:
    data = batch(["v" * 10] * size, timestamps=[timestamp] * size)
    stamp(data, 0, segment.next_offset, 0)
    segment.append(data, [BatchHeader.parse(data)], interval)


def reopened(segment: Segment, *, sealed: bool = True) -> Segment:
    again = Segment.open(
        OpenFiles(SystemDisk()), segment.directory, segment.base_offset, index_bytes=1 << 20, sealed=sealed
    )
    again.locate_end()
    return again


def offsets_read(
    segment: Segment, offset: int, max_bytes: int, end: int = 10**9, min_one: bool = True
) -> list[int]:
    found = segment.read(offset, max_bytes, end_offset=end, min_one=min_one)
    if found is None:
        return []
    return [
        offset
        for header in iter_batches(found.read())
        for offset in range(header.base_offset, header.next_offset)
    ]


def test_files_are_named_by_the_base_offset(tmp_path: Path) -> None:
    segment_of(tmp_path, [1], base=42)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{42:020d}.index",
        f"{42:020d}.log",
        f"{42:020d}.timeindex",
    ]


def test_index_entries_point_at_batches_every_interval(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [3] * 30)
    boundaries = {header.last_offset: header.position for header in segment.headers(0)}
    index = segment.offset_index
    entries = [index.entry(i) for i in range(index.count)]
    assert len(entries) > 5
    assert all(boundaries[1000 + relative] == position for relative, position in entries)
    gaps = [b - a for (_, a), (_, b) in pairwise(entries)]
    assert all(gap > INTERVAL for gap in gaps)


@pytest.mark.parametrize("interval", [0, 200, 10**6])
@pytest.mark.parametrize("closed", [False, True])
def test_every_offset_is_found_in_its_batch(tmp_path: Path, closed: bool, interval: int) -> None:
    segment = segment_of(tmp_path, [1, 5, 2, 9, 1, 1, 30, 4], interval=interval)
    positions = {
        offset: header.position
        for header in segment.headers(0)
        for offset in range(header.base_offset, header.next_offset)
    }
    if closed:
        segment.seal()
        segment = reopened(segment)
    for offset, position in positions.items():
        assert segment.position_of(offset) == position
    assert segment.position_of(segment.next_offset) == segment.size_bytes


def test_a_read_begins_with_the_whole_batch_that_holds_the_offset(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [5, 5])
    assert offsets_read(segment, 1003, 10**6)[0] == 1000


def test_a_read_ends_with_a_whole_batch_within_max_bytes(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [2] * 10)
    size = segment.size_bytes // 10
    assert offsets_read(segment, 1000, 3 * size) == list(range(1000, 1006))
    assert offsets_read(segment, 1000, 3 * size - 1) == list(range(1000, 1004))
    assert offsets_read(segment, 1004, 3 * size + 1) == list(range(1004, 1010))


def test_the_first_batch_is_returned_even_if_larger_than_max_bytes(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [5, 5])
    assert offsets_read(segment, 1000, 1) == list(range(1000, 1005))
    assert offsets_read(segment, 1000, 1, min_one=False) == []


@pytest.mark.parametrize(("end", "expected"), [(1004, []), (1005, 5), (1006, 5), (1010, 10)])
def test_only_batches_wholly_below_the_end_offset_are_read(
    tmp_path: Path, end: int, expected: int | list[int]
) -> None:
    segment = segment_of(tmp_path, [5, 5])
    wanted = list(range(1000, 1000 + expected)) if isinstance(expected, int) else expected
    assert offsets_read(segment, 1000, 10**6, end=end) == wanted


def test_readers_one_after_another_find_their_positions_again(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [2] * 50)
    seen, offset = [], 1000
    while offset < segment.next_offset:
        seen += offsets_read(segment, offset, 500)
        offset = seen[-1] + 1
    assert seen == list(range(1000, 1100))


def test_the_largest_timestamp_survives_closing(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [2, 2], interval=10**6)
    add(segment, 2, timestamp=NOW - 50)
    segment.seal()
    again = reopened(segment)
    assert again.largest == again.time_index.last_entry() == (NOW + 1, 1003)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_damaged_entry_of_a_closed_index_never_hides_records(tmp_path: Path, suffix: str) -> None:
    """Damages each byte of each index in turn. Every offset and timestamp is still found at its position."""
    segment = segment_of(tmp_path, [2] * 24)
    segment.seal()
    path = tmp_path / f"{1000:020d}.{suffix}"
    sound = path.read_bytes()
    for at in range(len(sound)):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x41]) + sound[at + 1 :])
        damaged = reopened(segment)
        for number in range(24):
            assert damaged.position_of(1000 + 2 * number) == segment.position_of(1000 + 2 * number)
        for number in (0, 11, 23):
            assert next(damaged.headers_since(NOW + number)).base_offset == 1000 + 2 * number


def test_a_log_file_without_batches_is_reported_with_file_and_position(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [2] * 5, interval=10**6)
    third = list(segment.headers(0))[2].position
    path = tmp_path / f"{1000:020d}.log"
    data = bytearray(path.read_bytes())
    data[third + 16] = 9
    path.write_bytes(data)
    with pytest.raises(CorruptLog) as caught:
        segment.position_of(1006)
    assert (caught.value.path, caught.value.position) == (path, third)


def test_truncation_leaves_indexes_that_agree_with_the_log(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [3] * 20)
    segment.truncate(1031)
    assert (segment.next_offset, segment.largest) == (1030, (NOW + 9, 1029))
    assert segment.index_fault() is None
    add(segment, 3, timestamp=NOW + 100)
    assert [header.base_offset for header in segment.headers(0)][-2:] == [1027, 1030]
    segment.seal()
    again = reopened(segment)
    assert (again.next_offset, again.largest) == (1033, (NOW + 100, 1032))


def test_positions_found_before_a_truncation_are_not_used_after_it(tmp_path: Path) -> None:
    """After the truncation other batches are stored at the positions that readers remembered."""
    segment = segment_of(tmp_path, [3] * 8)
    for offset in range(1000, segment.next_offset):
        segment.position_of(offset)
    segment.truncate(1006)
    for _ in range(9):
        add(segment, 2)
    starts = {
        offset: header
        for header in segment.headers(0)
        for offset in range(header.base_offset, header.next_offset)
    }
    found = {offset: segment.position_of(offset) for offset in starts}
    assert found == {offset: header.position for offset, header in starts.items()}


def test_many_readers_at_many_places_are_remembered_up_to_a_limit(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [1] * 100, interval=10**6)
    positions = {header.base_offset: header.position for header in segment.headers(0)}
    for _ in range(2):
        assert {offset: segment.position_of(offset) for offset in positions} == positions
    assert len(segment._boundaries) == 64


def test_a_truncation_to_the_beginning_leaves_an_empty_segment(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [3] * 20)
    segment.truncate(1000)
    assert (segment.next_offset, segment.size_bytes, segment.largest) == (1000, 0, (-1, 1000))
    add(segment, 3)
    assert offsets_read(segment, 1000, 10**6) == [1000, 1001, 1002]


def test_a_closed_segment_that_is_active_again_indexes_new_batches(tmp_path: Path) -> None:
    """A truncation makes an earlier segment the active one."""
    segment = segment_of(tmp_path, [3] * 20)
    segment.seal()
    segment.truncate(1031)
    segment.unseal(1 << 20)
    before = segment.offset_index.count, segment.time_index.count
    for number in range(20):
        add(segment, 3, timestamp=NOW + 100 + number)
    assert segment.has_room_for(segment.next_offset)
    assert segment.offset_index.count > before[0] + 5 and segment.time_index.count > before[1] + 5
    segment.seal()
    again = reopened(segment)
    assert (again.index_fault(), again.next_offset, again.largest) == (None, 1090, (NOW + 119, 1089))
