"""Frames: how the embedded store cuts its files into writes, and tells a torn write from damage. Pure.

Keeps true: no single flipped bit makes an acknowledged write disappear: `read_frames` reports it as damage.
How:        version 2, written today: magic FF 46 4A 32, uint32 length of the body, uint32 CRC-32 of the body,
            uint32 CRC-32 of the 12 bytes before, body.
            Version 1, read only: uint32 length, uint32 CRC-32 of the body, body. A file may begin with frames of
            version 1 and go on with version 2; the magic is no length that version 1 ever had.
            Every body begins with the int64 zxid of its write.
            Writes are synced one at a time, so a power failure tears the last frame only. It leaves a file that
            ends too early, or a disk sector of zeros where data should be. Anything else is damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from zlib import crc32

from felice.dataclass import dataclass

_MAGIC = b"\xffFJ2"
_HEADER = struct.Struct(">4sIII")
_HEADER_V1 = struct.Struct(">II")
_ZXID = struct.Struct(">q")
_CHECKED_HEADER_BYTES = _HEADER.size - 4
_SECTOR_BYTES = 512
_LENGTH_BYTES = 4
# A body has at least a zxid and a count.
_MIN_BODY_BYTES = 12


@dataclass(frozen=True, slots=True)
class Frame:
    """One whole frame. `start` and `end` are positions in the file."""

    version: int
    start: int
    end: int
    body: bytes

    @property
    def zxid(self) -> int:
        """The number of the write that the body holds; journal and snapshot bodies both begin with it."""
        zxid: int = _ZXID.unpack_from(self.body)[0]
        return zxid


@dataclass(frozen=True, slots=True)
class TornTail:
    """An incomplete last write: the machine stopped before all of it was on disk. It was not acknowledged."""

    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes at `position` that were once a whole frame."""

    position: int
    reason: str
    following: tuple[Frame, ...]
    """Whole frames behind the damage."""
    recovered: Frame | None
    """The damaged frame itself, where only its header is damaged and its body still has the right checksum."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file holds: whole frames from its beginning, and what ends them, if anything does."""

    frames: tuple[Frame, ...]
    tail: TornTail | Damage | None


def encode_frame(body: bytes) -> bytes:
    """The bytes of one frame of version 2 around `body`."""
    header = struct.pack(">4sII", _MAGIC, len(body), crc32(body))
    return header + crc32(header).to_bytes(4, "big") + body


def read_frames(data: bytes, newer_than_zxid: int = 0) -> Reading:
    """Reads a whole file. `newer_than_zxid`: behind damage, frames up to that zxid are leftovers, no loss."""
    found: list[Frame] = []
    position = 0
    while position < len(data):
        frame = _frame_at(data, position)
        if frame is None:
            newest = max([newer_than_zxid, *(frame.zxid for frame in found[-1:])])
            has_version_2 = bool(found) and found[-1].version == 2
            return Reading(tuple(found), _classify(data, position, newest, has_version_2))
        found.append(frame)
        position = frame.end
    return Reading(tuple(found), None)


def _frame_at(data: bytes, position: int) -> Frame | None:
    """The whole frame that begins at `position`, if one does."""
    if data.startswith(_MAGIC, position):
        return _frame_v2_at(data, position)
    return _frame_v1_at(data, position)


def _frame_v2_at(data: bytes, position: int) -> Frame | None:
    if not _has_header(data, position):
        return None
    _, length, checksum, _ = _HEADER.unpack_from(data, position)
    return _checked(2, data, position, position + _HEADER.size, length, checksum)


def _frame_v1_at(data: bytes, position: int) -> Frame | None:
    if position + _HEADER_V1.size > len(data):
        return None
    length, checksum = _HEADER_V1.unpack_from(data, position)
    return _checked(1, data, position, position + _HEADER_V1.size, length, checksum)


def _checked(version: int, data: bytes, start: int, body_start: int, length: int, crc: int) -> Frame | None:
    end = body_start + length
    if length < _MIN_BODY_BYTES or end > len(data):
        return None
    body = data[body_start:end]
    return Frame(version, start, end, body) if crc32(body) == crc else None


def _has_header(data: bytes, position: int) -> bool:
    """Whether a header of version 2 begins at `position`, with the right checksum."""
    if not data.startswith(_MAGIC, position) or position + _HEADER.size > len(data):
        return False
    stored: int = _HEADER.unpack_from(data, position)[3]
    return crc32(data[position : position + _CHECKED_HEADER_BYTES]) == stored


def _classify(data: bytes, position: int, newest_zxid: int, has_version_2: bool) -> TornTail | Damage:
    """What it means that no whole frame begins at `position`."""
    following = tuple(_whole_frames(data, position + 1, newest_zxid))
    body_end = following[0].start if following else len(data)
    recovered = _recover(data, position, body_end)
    if following:
        reason = f"a damaged frame, with whole frames from byte {following[0].start} on"
    elif recovered:
        reason = "a frame with a damaged header"
    elif _may_be_torn(data, position, has_version_2):
        return TornTail(position, len(data) - position)
    else:
        reason = "a last frame that is complete and damaged"
    return Damage(position, reason, following, recovered)


def _whole_frames(data: bytes, position: int, newest_zxid: int) -> Iterator[Frame]:
    """Frames with rising zxids, wherever they begin from `position` on."""
    while position < len(data):
        frame = _frame_at(data, position) if _is_near(data, position, newest_zxid) else None
        if frame is not None:
            yield frame
            newest_zxid = frame.zxid
        position = frame.end if frame else position + 1


def _is_near(data: bytes, position: int, newest_zxid: int) -> bool:
    """Whether the zxid of a frame at `position` would be believable; spares most positions a checksum."""
    is_v2 = data.startswith(_MAGIC, position)
    zxid_position = position + (_HEADER.size if is_v2 else _HEADER_V1.size)
    if zxid_position + _ZXID.size > len(data):
        return False
    (zxid,) = _ZXID.unpack_from(data, zxid_position)
    most_frames = len(data) // (_HEADER_V1.size + _MIN_BODY_BYTES) + 1
    return bool(newest_zxid < zxid <= newest_zxid + most_frames)


def _recover(data: bytes, position: int, end: int) -> Frame | None:
    """The damaged frame, if everything up to `end` is its body: then the body's own checksum proves it."""
    for version, header, crc_position in ((2, _HEADER, 8), (1, _HEADER_V1, 4)):
        body = data[position + header.size : end]
        crc = int.from_bytes(data[position + crc_position : position + crc_position + 4], "big")
        if len(body) >= _MIN_BODY_BYTES and crc32(body) == crc:
            return Frame(version, position, end, body)
    return None


def _may_be_torn(data: bytes, position: int, has_version_2: bool) -> bool:
    """Whether a write that was cut short explains the last bytes of a file."""
    left = len(data) - position
    if left < _HEADER.size or _has_zero_sector(data, position):
        return True
    if _has_header(data, position):
        _, length, _, _ = _HEADER.unpack_from(data, position)
        return left < _HEADER.size + int(length)
    if has_version_2 or data.startswith(_MAGIC, position):
        return False
    (length_v1, _) = _HEADER_V1.unpack_from(data, position)
    return left < _HEADER_V1.size + int(length_v1)


def _has_zero_sector(data: bytes, position: int) -> bool:
    """Whether zeros fill a disk sector, or its part from `position` on, where a write has put something else."""
    start = position
    while start < len(data):
        end = min(start // _SECTOR_BYTES * _SECTOR_BYTES + _SECTOR_BYTES, len(data))
        if not any(data[start:end]) and not _may_be_written(data, start, end):
            return True
        start = end
    return False


def _may_be_written(data: bytes, start: int, end: int) -> bool:
    """Whether zeros from `start` to `end` may be the frame's own, also if one bit near them has flipped.

    Complete frames have few zeros where they meet the border of a sector: the first bytes of a length (version 1), or
    the length of a last change without data.
    """
    if end - start > _LENGTH_BYTES:
        return False
    is_first_part = end < len(data)
    return is_first_part or int.from_bytes(data[-_LENGTH_BYTES:], "big").bit_count() <= 1
