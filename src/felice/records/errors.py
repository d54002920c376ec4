"""Errors in record bytes. Each is an `ApiError` that can be sent to a client.

Their codes differ because clients react differently: a client may send corrupt bytes again
(CORRUPT_MESSAGE is retriable), must not send invalid records or codecs again, and may split a
batch that is too large.
"""

from __future__ import annotations

from collections.abc import Sequence

from felice.protocol.errors import ApiError, ErrorCode

RecordErrors = Sequence[tuple[int, str]]


class CorruptBatch(ApiError):
    """The bytes differ from what the producer wrote: length, CRC or a compressed block is broken."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class InvalidRecord(ApiError):
    """The bytes are intact but break a rule. `record_errors` names records: (batch index, message)."""

    def __init__(self, message: str, record_errors: RecordErrors = ()) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.record_errors = list(record_errors)


class InvalidTimestamp(ApiError):
    """All invalid records have a timestamp out of range, or of a type that producers may not set."""

    def __init__(self, message: str, record_errors: RecordErrors = ()) -> None:
        super().__init__(ErrorCode.INVALID_TIMESTAMP, message)
        self.record_errors = list(record_errors)


class BatchTooLarge(ApiError):
    """The batch exceeds `max.message.bytes`, or a named limit after decompression."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class UnsupportedCodec(ApiError):
    """Compression that this batch may not use: an unknown id, or zstd in an old request."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)
