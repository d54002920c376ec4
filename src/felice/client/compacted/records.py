"""The records of a compacted topic, the conversion of keys and values, and batches for the producer. Pure.

Keeps true:  The records of one write are in as few batches as their sizes allow, in the order of the write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from felice.client.error import KafkaError, failure
from felice.client.model import HeaderList
from felice.dataclass import dataclass
from felice.records.batch import HEADER_SIZE
from felice.records.builder import BatchBuilder
from felice.records.compression import Codec

K = TypeVar("K")
V = TypeVar("V")

# Upper bound of a record's size in a batch beside its key and value.
_RECORD_OVERHEAD_BYTES = 36
# The most records that a broker's producer state and this client's queue are asked to take in one write.
WRITE_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class CompactedRecord:
    """One record as it was read. `value` None deletes the key; `timestamp` is in milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp: int
    headers: HeaderList


@dataclass(frozen=True, slots=True)
class Conversion(Generic[K, V]):
    """Converts keys and values of the mapping to the bytes of records, and back. The functions may raise."""

    key_to_bytes: Callable[[K], bytes]
    key_from_bytes: Callable[[bytes], K]
    value_to_bytes: Callable[[V], bytes]
    value_from_bytes: Callable[[bytes], V]


def _same(data: bytes) -> bytes:
    return data


BYTES: Conversion[bytes, bytes] = Conversion(_same, _same, _same, _same)


@dataclass(frozen=True, slots=True)
class Batch:
    """An encoded batch, and its number of records."""

    data: bytearray
    record_count: int


def encode(
    records: Sequence[tuple[bytes, bytes | None]],
    timestamp_ms: int,
    limit_bytes: int,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    transactional: bool = False,
) -> list[Batch]:
    """Encode the records into batches of at most `limit_bytes` before compression.

    Raises `KafkaException`: _INVALID_ARG for no or too many records, and for a key that is not bytes;
    MSG_SIZE_TOO_LARGE for a record that is larger than a batch.
    """
    if not records:
        raise failure(KafkaError._INVALID_ARG, "a write needs at least one record")
    if len(records) > WRITE_RECORDS:
        raise failure(
            KafkaError._INVALID_ARG, f"a write has at most {WRITE_RECORDS} records, not {len(records)}"
        )
    builders = [BatchBuilder(codec, level, transactional=transactional)]
    for key, value in records:
        size = _checked_size(key, value, limit_bytes - HEADER_SIZE)
        if builders[-1].record_count and builders[-1].size_bytes + size > limit_bytes:
            builders.append(BatchBuilder(codec, level, transactional=transactional))
        builders[-1].append(timestamp_ms, key, value)
    return list(_built(builders))


def _built(builders: Iterable[BatchBuilder]) -> Iterable[Batch]:
    for builder in builders:
        count = builder.record_count
        yield Batch(builder.build(), count)


def _checked_size(key: bytes, value: bytes | None, most: int) -> int:
    if not isinstance(key, bytes):
        raise failure(
            KafkaError._INVALID_ARG, f"a record of a compacted topic needs a key of bytes, not {key!r:.80}"
        )
    if value is not None and not isinstance(value, bytes):
        raise failure(KafkaError._INVALID_ARG, f"expected a value of bytes or None, not {value!r:.80}")
    size = _RECORD_OVERHEAD_BYTES + len(key) + len(value or b"")
    if size > most:
        raise failure(
            KafkaError.MSG_SIZE_TOO_LARGE,
            f"record of about {size} bytes, message.max.bytes is {most + HEADER_SIZE}",
        )
    return size
