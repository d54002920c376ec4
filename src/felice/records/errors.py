"""The faults of record bytes, each an `ApiError` that can be sent to a client as it is.

Three faults are told apart because clients answer them differently: corrupt bytes may be sent
again (CORRUPT_MESSAGE is retriable), invalid records must not be, and a batch that is too large
may be split.
"""

from __future__ import annotations

from collections.abc import Sequence

from felice.protocol.errors import ApiError, ErrorCode

RecordErrors = Sequence[tuple[int, str]]


class CorruptBatch(ApiError):
    """The bytes are not what the producer sealed: length, CRC or compressed block is broken."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class InvalidRecord(ApiError):
    """The bytes are intact but break a rule. `record_errors` names records: (batch index, message)."""

    def __init__(self, message: str, record_errors: RecordErrors = ()) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.record_errors = list(record_errors)


class InvalidTimestamp(ApiError):
    """Every record at fault has a timestamp out of range, or of a type producers may not set."""

    def __init__(self, message: str, record_errors: RecordErrors = ()) -> None:
        super().__init__(ErrorCode.INVALID_TIMESTAMP, message)
        self.record_errors = list(record_errors)


class BatchTooLarge(ApiError):
    """The batch exceeds `max.message.bytes`, or its records a named limit once decompressed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class UnsupportedCodec(ApiError):
    """Compression that this batch may not use: an unknown id, or zstd in an old request."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)
