"""The log cleaner's map from key to last offset, in plain Python.

Keeps true:  a slot takes 24 bytes, never more: a 16-byte hash of the key and an offset. A key that is not
             in the map returns -1. Nothing is ever removed.
             Two keys count as equal only if 128 bits of a keyed hash agree. The hash key is secret, so that
             no producer can make its keys collide.
How:         open addressing with linear probing over one block of memory. The compiled version hashes with
             SipHash-2-4, this one with BLAKE2b: no bit of a hash leaves the map, so results are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct

from felice.protocol.primitives import Buffer
from felice.records.kernels.grammar import KeptRecords, wrap64
from felice.records.kernels.plain import read_varint, walk

_HASH_BYTES = 16
_PLACE = Struct("<q")
_SLOT_BYTES = _HASH_BYTES + _PLACE.size


class OffsetMap:
    """Takes the number of slots and 16 secret bytes."""

    __slots__ = ("_secret", "_table", "_used", "slots")

    def __init__(self, slots: int, secret: bytes) -> None:
        if slots < 1 or len(secret) != _HASH_BYTES:
            raise ValueError("an offset map needs slots and a secret of 16 bytes")
        self.slots = slots
        self._secret = secret
        self._table = bytearray(slots * _SLOT_BYTES)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def _find(self, digest: bytes) -> tuple[int, int]:
        """Position of the hash's slot, and the offset plus one in it; 0 for an empty slot, -1 if none is free."""
        table = self._table
        at = int.from_bytes(digest, "little") % self.slots * _SLOT_BYTES
        for _ in range(self.slots):
            place: int = _PLACE.unpack_from(table, at + _HASH_BYTES)[0]
            if place == 0 or table[at : at + _HASH_BYTES] == digest:
                return at, place
            at += _SLOT_BYTES
            if at == len(table):
                at = 0
        return -1, -1

    def _digest(self, key: Buffer) -> bytes:
        return blake2b(key, digest_size=_HASH_BYTES, key=self._secret).digest()

    def get(self, key: Buffer) -> int:
        """The last offset of a key, -1 if the key was never put."""
        at, place = self._find(self._digest(key))
        return place - 1 if at >= 0 else -1

    def _put(self, key: Buffer, offset: int, max_keys: int) -> bool:
        digest = self._digest(key)
        at, place = self._find(digest)
        if at < 0 or (place == 0 and self._used >= max_keys):
            return False
        if place == 0:
            self._used += 1
            self._table[at : at + _HASH_BYTES] = digest
        _PLACE.pack_into(self._table, at + _HASH_BYTES, offset + 1)
        return True

    def put_records(
        self, payload: Buffer, record_count: int, base_offset: int, start_offset: int, max_keys: int
    ) -> int:
        """Puts the keys of a batch's records from `start_offset` on.

        Returns -1, or the offset of the first record whose key would exceed `max_keys`; that
        record and those after it are not put.
        """
        stopped = -1
        with memoryview(payload) as view:
            for _, _, offset_delta, key_start, key_end, *_ in walk(view, record_count):
                offset = wrap64(base_offset + offset_delta)
                if (
                    key_start >= 0
                    and offset >= start_offset
                    and stopped < 0
                    and not self._put(view[key_start:key_end], offset, max_keys)
                ):
                    stopped = offset
        return stopped

    def keep_latest(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        end_offset: int,
        keeps_tombstones: bool,
    ) -> KeptRecords:
        """The records of a batch that no later record below `end_offset` replaces; all from `end_offset` on."""
        out, kept, max_timestamp, has_tombstones, start = bytearray(), 0, -1, False, 0
        with memoryview(payload) as view:
            ends = _record_ends(view, record_count)
            for fields, end in zip(walk(view, record_count), ends, strict=False):
                _, timestamp_delta, offset_delta, key_start, key_end, value_start, *_ = fields
                offset = wrap64(base_offset + offset_delta)
                if offset >= end_offset:
                    keeps = True
                elif key_start < 0 or (value_start < 0 and not keeps_tombstones):
                    keeps = False
                else:
                    keeps = offset >= self.get(view[key_start:key_end])
                if keeps:
                    kept += 1
                    max_timestamp = max(max_timestamp, wrap64(base_timestamp + timestamp_delta))
                    has_tombstones |= value_start < 0
                    out += view[start:end]
                start = end
        records = out if kept < record_count else None
        return KeptRecords(records, kept, max_timestamp, has_tombstones)


def _record_ends(view: Buffer, record_count: int) -> Iterator[int]:
    """End position of each record. `walk` must have checked the records."""
    position = 0
    for _ in range(record_count):
        length, position = read_varint(view, position, len(view), 32)
        position += length
        yield position
