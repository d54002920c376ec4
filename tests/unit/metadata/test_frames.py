"""Frames of the journal: torn ends, damage, and both versions."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest

from felice.metadata.frames import Damage, Reading, TornTail, encode_frame, read_frames


def _body(zxid: int, size_bytes: int = 40) -> bytes:
    return struct.pack(">qI", zxid, 1) + bytes(range(1, size_bytes + 1))


def _frame_v1(body: bytes) -> bytes:
    return struct.pack(">II", len(body), crc32(body)) + body


FORMATS = {"version 1": _frame_v1, "version 2": encode_frame}


def _zxids(reading: Reading) -> list[int]:
    return [frame.zxid for frame in reading.frames]


def _journal(version: str, frames: int = 4) -> bytes:
    return b"".join(FORMATS[version](_body(zxid)) for zxid in range(1, frames + 1))


def test_frames_of_version_2_may_follow_those_of_version_1() -> None:
    reading = read_frames(_frame_v1(_body(1)) + encode_frame(_body(2)))
    assert [(frame.version, frame.body) for frame in reading.frames] == [(1, _body(1)), (2, _body(2))]
    assert reading.tail is None


@pytest.mark.parametrize("version", FORMATS)
def test_every_flipped_bit_is_damage_and_never_a_torn_tail(version: str) -> None:
    whole = _journal(version)
    size = len(whole) // 4
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        reading = read_frames(bytes(flipped))
        number = bit // 8 // size
        assert _zxids(reading) == list(range(1, number + 1)), bit
        assert isinstance(reading.tail, Damage), bit
        assert reading.tail.position == number * size
        assert [frame.zxid for frame in reading.tail.following] == list(range(number + 2, 5)), bit


@pytest.mark.parametrize("version", FORMATS)
def test_a_flipped_bit_is_no_torn_tail_wherever_the_frame_lies_in_its_sectors(version: str) -> None:
    """Frames begin and end with zeros, and these zeros may fill a sector."""
    body = struct.pack(">qI", 2, 1) + b"a path" + bytes(4)
    for padding in range(512):
        first, last = (FORMATS[version](one) for one in (_body(1) + b"x" * padding, body))
        for place in (-8, -4, -1):
            flipped = bytearray(first + last)
            flipped[place] ^= 1
            tail = read_frames(bytes(flipped)).tail
            assert isinstance(tail, Damage) and tail.position == len(first), (padding, place)


@pytest.mark.parametrize("version", FORMATS)
def test_a_frame_with_a_damaged_length_is_recovered(version: str) -> None:
    whole = _journal(version)
    length_position = 4 if version == "version 2" else 0
    for start in range(0, len(whole), len(whole) // 4):
        flipped = bytearray(whole)
        flipped[start + length_position] ^= 0x40
        tail = read_frames(bytes(flipped)).tail
        assert isinstance(tail, Damage) and tail.recovered is not None
        assert tail.recovered.body == _body(start // (len(whole) // 4) + 1)


@pytest.mark.parametrize("version", FORMATS)
def test_a_file_that_ends_too_early_has_a_torn_tail(version: str) -> None:
    whole = _journal(version, 2)
    middle = len(whole) // 2
    for size in range(middle + 1, len(whole)):
        reading = read_frames(whole[:size])
        assert (_zxids(reading), reading.tail) == ([1], TornTail(middle, size - middle)), size


def test_a_sector_of_zeros_in_the_last_frame_is_a_torn_write() -> None:
    """A power failure may lose any sector of the write in progress, also the first one."""
    first, last = encode_frame(_body(1)), encode_frame(_body(2) + b"x" * 2000)
    for sector in range(5):
        data = bytearray(first + last)
        start, end = max(sector * 512, len(first)), min(sector * 512 + 512, len(data))
        data[start:end] = bytes(end - start)
        reading = read_frames(bytes(data))
        assert (_zxids(reading), reading.tail) == ([1], TornTail(len(first), len(last))), sector


@pytest.mark.parametrize("lost_bytes", [1, 2, 3])
def test_a_write_that_did_not_reach_the_last_bytes_is_torn(lost_bytes: int) -> None:
    """The bytes were alone in their sector, and the bytes before them are not a length of 0."""
    first = encode_frame(_body(1))
    size_bytes = 1024 + lost_bytes - len(first) - len(encode_frame(_body(2, 0)))
    last = encode_frame(_body(2, 0) + b"x" * size_bytes)
    data = bytearray(first + last)
    data[1024:] = bytes(lost_bytes)
    assert read_frames(bytes(data)).tail == TornTail(len(first), len(last))


def test_a_sector_of_zeros_before_the_last_frame_is_damage() -> None:
    middle = encode_frame(_body(2) + b"x" * 2000)
    data = bytearray(encode_frame(_body(1)) + middle + encode_frame(_body(3)))
    data[512:1024] = bytes(512)
    assert isinstance(read_frames(bytes(data)).tail, Damage)


def test_leftovers_of_older_writes_behind_a_torn_write_are_no_loss() -> None:
    leftovers = bytes(512) + _journal("version 2")
    tail = read_frames(leftovers, newer_than_zxid=4).tail
    assert tail == TornTail(0, len(leftovers))
    assert isinstance(read_frames(leftovers, newer_than_zxid=3).tail, Damage)


def test_a_last_frame_of_foreign_bytes_is_damage_after_version_2() -> None:
    """Read as version 1, the first bytes would be a length beyond the end of the file."""
    whole = encode_frame(_body(1))
    assert isinstance(read_frames(whole + b"\xa5" * 60).tail, Damage)
    assert read_frames(_frame_v1(_body(1)) + b"\xa5" * 60).tail == TornTail(len(_frame_v1(_body(1))), 60)


def test_damage_in_header_and_body_of_the_only_frame_is_damage() -> None:
    data = bytearray(encode_frame(_body(1)))
    data[5] ^= 1
    data[-1] ^= 1
    tail = read_frames(bytes(data)).tail
    assert isinstance(tail, Damage) and tail.recovered is None


def test_frames_that_follow_damage_have_rising_zxids() -> None:
    """Bytes that an older write left further on are not such frames."""
    data = bytearray(b"".join(encode_frame(_body(zxid)) for zxid in (1, 2, 3, 2, 3, 4)))
    data[len(data) // 6 - 1] ^= 1
    tail = read_frames(bytes(data)).tail
    assert isinstance(tail, Damage)
    assert [frame.zxid for frame in tail.following] == [2, 3, 4]
