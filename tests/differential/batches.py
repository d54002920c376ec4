"""Record batches from a description, good ones and broken ones.

{"values": ["a"], "codec": 0, "pid": ref, "epoch": ref, "seq": ref, "transactional": false, "age_ms": 0, "key": null,
 "break": "crc" | "magic" | "length" | "count" | "attributes" | "two" | "empty" | "short" | "offset"}
"""

from __future__ import annotations

import struct
from typing import Any

from felice.records.builder import build_batch
from felice.records.compression import Codec
from felice.records.crc import crc32c
from felice.records.record import Record

_CRC, _CRC_FROM = 17, 21


def batch_of(description: dict[str, Any], now_ms: int) -> bytes | None:
    time_ms = now_ms - description.get("age_ms", 0)
    key = description.get("key")
    records = [
        Record(index, time_ms + index, None if key is None else key.encode(), value.encode(), ())
        for index, value in enumerate(description["values"])
    ]
    batch = build_batch(
        records,
        Codec(description.get("codec", 0)),
        producer_id=description.get("pid", -1),
        producer_epoch=description.get("epoch", -1),
        base_sequence=description.get("seq", -1),
        transactional=description.get("transactional", False),
    )
    return _BREAKS[description.get("break", "")](batch)


def _with_crc(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, _CRC, crc32c(bytes(batch[_CRC_FROM:])))
    return bytes(batch)


def _wrong_crc(batch: bytes) -> bytes:
    return batch[:_CRC] + bytes([batch[_CRC] ^ 1]) + batch[_CRC + 1 :]


def _wrong_magic(batch: bytes) -> bytes:
    return batch[:16] + b"\x01" + batch[17:]


def _wrong_length(batch: bytes) -> bytes:
    return batch[:8] + struct.pack(">i", len(batch)) + batch[12:]


def _wrong_count(batch: bytes) -> bytes:
    broken = bytearray(batch)
    struct.pack_into(">i", broken, 57, struct.unpack_from(">i", broken, 57)[0] + 1)
    return _with_crc(broken)


def _control_bit(batch: bytes) -> bytes:
    broken = bytearray(batch)
    broken[22] |= 0x20
    return _with_crc(broken)


def _other_offset(batch: bytes) -> bytes:
    return struct.pack(">q", 77) + batch[8:]


_BREAKS = {
    "": lambda batch: batch,
    "crc": _wrong_crc,
    "magic": _wrong_magic,
    "length": _wrong_length,
    "count": _wrong_count,
    "attributes": _control_bit,
    "two": lambda batch: batch + batch,
    "empty": lambda batch: b"",
    "none": lambda batch: None,
    "short": lambda batch: batch[:-3],
    "offset": _other_offset,
}
BREAKS = tuple(_BREAKS)
