"""Checks a producer's batch before the leader appends it, and adapts it to the topic.

Keeps true:  an accepted batch holds exactly the records that its header announces, each readable,
             with offset deltas 0, 1, 2 ..., a true maximum timestamp and the right CRC;
             one bad record rejects the whole batch, and the error names all bad records.
The batch keeps the producer's bytes if the topic allows: only another codec, or deltas with gaps
(old clients), require a rebuilt batch. Authorisation, leadership and producer sequences are checked
elsewhere.
On the event loop (`on_loop`) a batch with more than `INLINE_MAX_BYTES` of records is not checked. `NeedsThread` asks
the caller to check it on a thread, where decompression, scan and compression release the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from felice.config import TopicConfig
from felice.dataclass import dataclass
from felice.protocol.errors import ApiError
from felice.protocol.primitives import Buffer
from felice.records import kernels
from felice.records.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    fills,
    iter_batches,
    restamp,
    verify_crc,
)
from felice.records.builder import assemble
from felice.records.compression import (
    DECOMPRESSED_SIZE_MAX_BYTES,
    Codec,
    codec_of_id,
    decompress,
    has_linked_blocks,
)
from felice.records.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    UnsupportedCodec,
)
from felice.records.kernels import Scan, encode_record, iterate, scan
from felice.records.kernels.grammar import wrap64

_ERRORS_SHOWN = 3
RECORD_ERRORS_MAX = 1000
"""Number of bad records that an error names; the others are only counted."""
_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_CONTROL = 0x20
# What a batch keeps that the broker compresses anew; the delete horizon is not for a producer to set.
_KEPT_ATTRIBUTES = 0x3F
INLINE_MAX_BYTES = 2 * 1024 * 1024
"""Bytes of records that may be decompressed and checked on the event loop: that takes some milliseconds."""


class NeedsThread(Exception):
    """The batch has more records than may be checked on the event loop. It may be valid or not."""


@dataclass(frozen=True, slots=True)
class ProduceRules:
    """What a topic's configuration requires of batches. No codec means: keep the producer's."""

    max_message_bytes: int
    codec: Codec | None
    level: int | None
    timestamp_type: TimestampType
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    is_compacted: bool

    @classmethod
    def of(cls, config: TopicConfig) -> ProduceRules:
        """The rules of a topic with this configuration."""
        is_append_time = config.message_timestamp_type == "LogAppendTime"
        codec = None if config.compression_type == "producer" else Codec.of_name(config.compression_type)
        levels = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        return cls(
            max_message_bytes=config.max_message_bytes,
            codec=codec,
            level=None if codec is None else levels.get(codec),
            timestamp_type=TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            is_compacted="compact" in config.cleanup_policy,
        )


class Validated(NamedTuple):
    """One batch ready to be stamped and appended. `records` is writable and holds nothing else."""

    records: bytearray | memoryview
    header: BatchHeader
    offset_delta_of_max_timestamp: int
    log_append_time_ms: int


def only_batch(records: Buffer, *, zstd_allowed: bool = True) -> BatchHeader:
    """The header of the one batch that a produce request may carry for a partition. Raises `ApiError`.

    `zstd_allowed` is false for requests of clients too old to know zstd (Produce before v7).
    A partial batch does not count. Bytes after the first batch that do not make a whole batch are ignored.
    """
    header = BatchHeader.parse(records) if fills(records) else _first_of_one(records)
    if not zstd_allowed and header.codec is Codec.ZSTD:
        raise UnsupportedCodec("produce requests before version 7 may not use zstd")
    return header


def _first_of_one(records: Buffer) -> BatchHeader:
    batches = iter_batches(records)
    header = next(batches, None)
    if header is None:
        raise InvalidRecord("produce request has no whole record batch for this partition")
    if next(batches, None) is not None:
        raise InvalidRecord("produce request must have exactly one record batch per partition")
    return header


Verdict: TypeAlias = Validated | ApiError
"""The result of validation."""


def ordinary_batch(records: Buffer, rules: ProduceRules, now_ms: int) -> Validated | None:
    """The batch of a client if it is right and its topic stores it as it is; None: `validate_produce` must judge it.

    Costs a quarter of `validate_produce`. With the plain kernels it returns None for every batch.
    """
    if rules.codec is not None or rules.timestamp_type is not TimestampType.CREATE_TIME:
        return None
    before_max, after_max = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
    found = kernels.ordinary_batch(
        records, rules.max_message_bytes, now_ms, before_max, after_max, rules.is_compacted
    )
    if found is None:
        return None
    # Without the constructor of the named tuple, which is a Python function.
    return tuple.__new__(Validated, (records, *found, NO_TIMESTAMP))


def validate_produce(
    records: Buffer,
    rules: ProduceRules,
    *,
    now_ms: int,
    zstd_allowed: bool = True,
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_BYTES,
    on_loop: bool = False,
) -> Validated:
    """All checks of the record bytes that a client sent for one partition. Raises `ApiError`."""
    most_bytes = min(rules.max_message_bytes, INLINE_MAX_BYTES) if on_loop else rules.max_message_bytes
    right = kernels.right_header(records, most_bytes) if zstd_allowed else None
    if right is not None:
        payload = _payload(records, right, max_decompressed_bytes, on_loop)
        if rules.codec is None and rules.timestamp_type is TimestampType.CREATE_TIME:
            before_max, after_max = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
            delta = kernels.ordinary_records(
                records, payload, now_ms, before_max, after_max, rules.is_compacted
            )
            if delta is not None:
                return tuple.__new__(Validated, (records, right, delta, NO_TIMESTAMP))
        return _validate_records(records, payload, right, rules, now_ms)
    header = only_batch(records, zstd_allowed=zstd_allowed)
    return validate_batch(
        records, header, rules, now_ms=now_ms, max_decompressed_bytes=max_decompressed_bytes, on_loop=on_loop
    )


def validation_result(
    records: Buffer,
    rules: ProduceRules,
    now_ms: int,
    zstd_allowed: bool,
    max_decompressed_bytes: int,
    *,
    on_loop: bool,
) -> Verdict:
    """Same as `validate_produce`, but returns an error instead of raising it. Stateless; may run on a thread."""
    try:
        return validate_produce(
            records,
            rules,
            now_ms=now_ms,
            zstd_allowed=zstd_allowed,
            max_decompressed_bytes=max_decompressed_bytes,
            on_loop=on_loop,
        )
    except ApiError as error:
        # Drop the traceback: its frames reference the data that was decompressed so far.
        error.__traceback__ = error.__context__ = None
        return error


def validate_batch(
    buffer: Buffer,
    header: BatchHeader,
    rules: ProduceRules,
    *,
    now_ms: int,
    from_client: bool = True,
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_BYTES,
    on_loop: bool = False,
) -> Validated:
    """Checks one batch and adapts it to the topic. Only coordinators, not clients, may write control batches."""
    if on_loop and header.size_bytes > INLINE_MAX_BYTES:
        raise NeedsThread
    if from_client and header.base_offset != 0:
        raise InvalidRecord(f"base offset of a produced batch must be 0, it is {header.base_offset}")
    if header.size_bytes > rules.max_message_bytes:
        raise BatchTooLarge(f"batch has {header.size_bytes} bytes, the topic takes {rules.max_message_bytes}")
    if not verify_crc(buffer, header):
        raise CorruptBatch(f"batch does not match its CRC {header.crc:#x}")
    _check_header(header, from_client)
    payload = _payload(buffer, header, max_decompressed_bytes, on_loop)
    return _validate_records(buffer, payload, header, rules, now_ms)


def _validate_records(
    buffer: Buffer, payload: Buffer, header: BatchHeader, rules: ProduceRules, now_ms: int
) -> Validated:
    """Checks the records of a batch whose header and CRC are right, and adapts the batch to the topic."""
    found = scan(payload, header.record_count, header.base_timestamp)
    _check_records(payload, header, found, rules, now_ms)
    return _fit(buffer, payload, header, found, rules, now_ms)


def _payload(buffer: Buffer, header: BatchHeader, max_bytes: int, on_loop: bool) -> Buffer:
    """The encoded records of a batch, decompressed."""
    stored = memoryview(buffer)[header.position + HEADER_SIZE : header.position + header.size_bytes]
    codec_id = header.attributes & _CODEC_MASK
    if not codec_id:
        return stored
    codec = codec_of_id(codec_id)
    if codec is Codec.LZ4 and has_linked_blocks(stored):
        raise InvalidRecord("the blocks of the LZ4 frame are linked, which Java clients cannot read")
    if not on_loop or max_bytes <= INLINE_MAX_BYTES:
        return decompress(codec, stored, max_bytes)
    try:
        return decompress(codec, stored, INLINE_MAX_BYTES)
    except BatchTooLarge:
        raise NeedsThread from None


def _check_header(header: BatchHeader, from_client: bool) -> None:
    if header.record_count <= 0:
        raise InvalidRecord(f"batch has a record count of {header.record_count}")
    if header.last_offset_delta + 1 != header.record_count:
        raise InvalidRecord(
            f"batch has {header.record_count} records but a last offset delta of {header.last_offset_delta}"
        )
    if not from_client:
        return
    if header.attributes & _CONTROL:
        raise InvalidRecord("clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(
            f"batch of producer {header.producer_id} has base sequence {header.base_sequence}, below 0"
        )


def _check_records(
    payload: Buffer, header: BatchHeader, found: Scan, rules: ProduceRules, now_ms: int
) -> None:
    """Costs a few comparisons for a good batch. A bad one is scanned again to name its bad records."""
    if (
        (rules.is_compacted and found.first_keyless >= 0)
        or (header.attributes & _LOG_APPEND_TIME and _claims_append_time(header, rules))
        or (rules.timestamp_type is TimestampType.CREATE_TIME and _has_bad_time(found, rules, now_ms))
    ):
        _raise_record_faults(payload, header, rules, now_ms)


def _claims_append_time(header: BatchHeader, rules: ProduceRules) -> bool:
    """Whether the producer sets LogAppendTime where it may not.

    As in Kafka it may where the topic has CreateTime: the broker overwrites the timestamp type in the header.
    """
    return header.is_log_append_time and rules.timestamp_type is TimestampType.LOG_APPEND_TIME


def _has_bad_time(found: Scan, rules: ProduceRules, now_ms: int) -> bool:
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    if earliest <= found.min_timestamp and found.max_timestamp <= latest:
        return False
    # One of them may be NO_TIMESTAMP.
    return _is_out_of_range(found.min_timestamp, rules, now_ms) or _is_out_of_range(
        found.max_timestamp, rules, now_ms
    )


def _is_out_of_range(timestamp: int, rules: ProduceRules, now_ms: int) -> bool:
    if timestamp == NO_TIMESTAMP:
        return False
    age_ms = now_ms - timestamp
    return age_ms > rules.timestamp_before_max_ms or -age_ms > rules.timestamp_after_max_ms


def _raise_record_faults(payload: Buffer, header: BatchHeader, rules: ProduceRules, now_ms: int) -> None:
    errors: list[tuple[int, str]] = []
    count, all_are_of_time = 0, True
    for index, message, is_time in _record_faults(payload, header, rules, now_ms):
        count += 1
        all_are_of_time = all_are_of_time and is_time
        if len(errors) < RECORD_ERRORS_MAX:
            errors.append((index, message))
    if all_are_of_time:
        raise InvalidTimestamp("One or more records have been rejected due to invalid timestamp", errors)
    shown = "; ".join(f"record {index}: {message}" for index, message in errors[:_ERRORS_SHOWN])
    raise InvalidRecord(
        f"One or more records have been rejected due to {count} record errors in total, "
        f"the first {_ERRORS_SHOWN} at most are: {shown}",
        errors,
    )


def _record_faults(
    payload: Buffer, header: BatchHeader, rules: ProduceRules, now_ms: int
) -> Iterator[tuple[int, str, bool]]:
    """Index, message, and whether the timestamp is at fault. Only the first fault of a record is reported."""
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    records = iterate(payload, header.record_count, 0, header.base_timestamp, None)
    for index, record in enumerate(records):
        if rules.is_compacted and record.key is None:
            yield index, "Compacted topic cannot accept message without key", False
        elif _claims_append_time(header, rules):
            yield index, "Producer should not set timestamp type to LogAppendTime", True
        elif rules.timestamp_type is TimestampType.CREATE_TIME and _is_out_of_range(
            record.timestamp, rules, now_ms
        ):
            message = (
                f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
                f"The timestamp should be within [{earliest}, {latest}]"
            )
            yield index, message, True


def _fit(
    buffer: Buffer, payload: Buffer, header: BatchHeader, found: Scan, rules: ProduceRules, now_ms: int
) -> Validated:
    """The batch with the topic's timestamp type and codec; its own bytes if nothing has to change."""
    is_sequential = found.is_sequential
    if not is_sequential:
        payload = _renumbered(payload, header)
        found = scan(payload, header.record_count, header.base_timestamp)
    is_append_time = rules.timestamp_type is TimestampType.LOG_APPEND_TIME
    if is_append_time:
        max_timestamp, delta_of_max, append_time_ms = now_ms, 0, now_ms
    else:
        max_timestamp, delta_of_max = found.max_timestamp, found.offset_delta_of_max_timestamp
        append_time_ms = NO_TIMESTAMP
    records = _own_bytes(buffer, header)
    if header.position:
        header = header._replace(position=0)
    changes_codec = rules.codec is not None and rules.codec is not header.codec and not header.is_control
    if changes_codec or not is_sequential:
        codec = rules.codec if changes_codec and rules.codec is not None else header.codec
        kept = header._replace(attributes=header.attributes & _KEPT_ATTRIBUTES)
        records = assemble(kept, payload, codec, rules.level)
        header = BatchHeader.parse(records)
        if header.size_bytes > rules.max_message_bytes:
            raise BatchTooLarge(
                f"batch has {header.size_bytes} bytes stored as {codec.name.lower()}, "
                f"the topic takes {rules.max_message_bytes}"
            )
    claims_append_time = header.attributes & _LOG_APPEND_TIME != 0
    if max_timestamp != header.max_timestamp or is_append_time != claims_append_time:
        header = restamp(records, header, max_timestamp=max_timestamp, timestamp_type=rules.timestamp_type)
    # Without the constructor of the named tuple, which is a Python function.
    return tuple.__new__(Validated, (records, header, delta_of_max, append_time_ms))


def _own_bytes(buffer: Buffer, header: BatchHeader) -> bytearray | memoryview:
    """The batch alone, writable: a view if the buffer is writable, else a copy."""
    view = memoryview(buffer)[header.position : header.position + header.size_bytes]
    return bytearray(view) if view.readonly else view


def _renumbered(payload: Buffer, header: BatchHeader) -> bytearray:
    encoded = bytearray()
    records = iterate(payload, header.record_count, 0, header.base_timestamp, None)
    for index, record in enumerate(records):
        encode_record(
            encoded,
            index,
            wrap64(record.timestamp - header.base_timestamp),
            record.key,
            record.value,
            record.headers,
        )
    return encoded
