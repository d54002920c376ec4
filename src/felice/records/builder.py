"""Encodes records into batch bytes, with their CRC.

Keeps true:  offset deltas of a new batch are 0, 1, 2 ...; `last_offset_delta` is the count less one;
             a batch rebuilt from an old one (`assemble`, `rebuild_batch`) keeps its offsets,
             producer fields and flags, so that readers and producer state see no difference.
Batches get base offset 0 by default: the leader stamps the real one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from felice.protocol.primitives import Buffer
from felice.records.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Attributes,
    BatchHeader,
    TimestampType,
    write_header,
)
from felice.records.compression import Codec, compress
from felice.records.control import EndTransactionMarker, encode_marker
from felice.records.kernels import RecordBuffer, encode_record
from felice.records.kernels.grammar import wrap64
from felice.records.record import Record

_CODEC_MASK = int(Attributes.CODEC_MASK)
_ROOM = bytes(HEADER_SIZE)


class BatchBuilder(RecordBuffer):
    """Collects records for one batch. The producer fields may be set until `build` is called.

    `append` adds a record. `capacity` is the expected size of the batch in bytes, if known. `memory` is a buffer of
    any content that the builder may take over.
    """

    __slots__ = (
        "_attributes",
        "_level",
        "_taken",
        "base_offset",
        "base_sequence",
        "codec",
        "leader_epoch",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        *,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        capacity: int = 0,
        memory: bytearray | None = None,
    ) -> None:
        super().__init__(capacity, memory)
        self.codec = codec
        self._level = level
        self._taken: bytearray | None = None
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self._attributes = attributes(timestamp_type, transactional=transactional)

    def build(self) -> bytearray:
        """Returns the batch with its CRC. It takes over the builder's buffer: do not use the builder again.

        Only after an exception, which may be the codec's, it may be called again, also with another `codec`.
        """
        if not self.record_count:
            raise ValueError("a batch needs at least one record")
        header = new_header(
            record_count=self.record_count,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            attributes=self._attributes,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            base_offset=self.base_offset,
            leader_epoch=self.leader_epoch,
        )
        if self._taken is None:
            self._taken = self.take()
        return seal_with_room(self._taken, header, self.codec, self._level)


def attributes(
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    *,
    transactional: bool = False,
    control: bool = False,
) -> int:
    """The attribute bits above the codec; `assemble` adds the codec."""
    bits = int(Attributes.LOG_APPEND_TIME) if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    if transactional:
        bits |= int(Attributes.TRANSACTIONAL)
    if control:
        bits |= int(Attributes.CONTROL)
    return bits


def new_header(
    *,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> BatchHeader:
    """A header for a batch to build; `assemble` fills in size, codec and CRC."""
    return BatchHeader(
        base_offset=base_offset,
        size_bytes=HEADER_SIZE,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=record_count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
    )


def assemble(header: BatchHeader, payload: Buffer, codec: Codec, level: int | None = None) -> bytearray:
    """Builds a batch from this header's fields and these encoded records, compressed with `codec`."""
    batch = bytearray(_ROOM)
    batch += compress(codec, payload, level)
    fields = header._replace(
        position=0, size_bytes=len(batch), attributes=header.attributes & ~_CODEC_MASK | codec
    )
    write_header(batch, fields)
    return batch


def seal_with_room(
    encoded: bytearray, header: BatchHeader, codec: Codec, level: int | None = None
) -> bytearray:
    """Like `assemble`, for records that follow room for the header: without compression nothing is copied."""
    if codec is not Codec.NONE:
        return assemble(header, memoryview(encoded)[HEADER_SIZE:], codec, level)
    write_header(encoded, header._replace(size_bytes=len(encoded)))
    return encoded


def build_batch(
    records: Iterable[Record],
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Builds one batch from these records. Their own offsets are ignored: they get 0, 1, 2 ..."""
    builder = BatchBuilder(
        codec,
        level,
        timestamp_type,
        producer_id,
        producer_epoch,
        base_sequence,
        transactional,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return bytes(builder.build())


def rebuild_batch(
    header: BatchHeader,
    records: Sequence[Record],
    *,
    codec: Codec | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Builds the batch of `header` with only these of its records, as compaction leaves it.

    Base and last offset and producer stay, and so does the last sequence of its producer, even in an empty batch.
    A delete horizon, once set, stays too. It replaces the base timestamp, to which all records are then relative
    (KIP-534).
    """
    horizon = header.delete_horizon_ms if header.has_delete_horizon else delete_horizon_ms
    bits = header.attributes
    if horizon is not None:
        base_timestamp = horizon
        bits |= int(Attributes.DELETE_HORIZON)
    else:
        base_timestamp = records[0].timestamp if records else header.base_timestamp
    payload = bytearray()
    for record in records:
        encode_record(
            payload,
            record.offset - header.base_offset,
            wrap64(record.timestamp - base_timestamp),
            record.key,
            record.value,
            record.headers,
        )
    max_timestamp = header.max_timestamp
    if records and not header.is_log_append_time:
        max_timestamp = max(NO_TIMESTAMP, max(record.timestamp for record in records))
    fields = header._replace(
        attributes=bits,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(records),
    )
    kept_codec = header.codec if codec is None else codec
    return assemble(fields, payload, kept_codec if records else Codec.NONE, level)


def build_control(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The control batch that ends a producer's transaction. It takes one offset and no sequence."""
    key, value = encode_marker(marker)
    encoded = bytearray(_ROOM)
    encode_record(encoded, 0, 0, key, value)
    header = new_header(
        record_count=1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        attributes=attributes(transactional=True, control=True),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    return bytes(seal_with_room(encoded, header, Codec.NONE))
