"""The buffer in which a batch is filled record by record, and the bounds of a producer's queue, in plain Python.

The twin of `_record_buffer.pxi`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from felice.protocol.primitives import Buffer
from felice.records.kernels.plain import encode_record

_ROOM = bytes(61)  # for a batch's header
_NO_TIMESTAMP = -1


class QueueBounds:
    """Counts the records and bytes of a producer's queue against its bounds; `max_records` 0 means no bound."""

    __slots__ = ("_max_bytes", "_max_records", "record_count", "size_bytes")

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self.record_count = 0
        self.size_bytes = 0
        self._max_records = max_records if max_records > 0 else (1 << 63) - 1
        self._max_bytes = max_bytes

    def has_room(self, size_bytes: int, record_count: int = 1) -> bool:
        """Whether `record_count` more records, of `size_bytes` together, are within the bounds."""
        return (
            self.record_count <= self._max_records - record_count
            and self.size_bytes + size_bytes <= self._max_bytes
        )

    def add(self, record_count: int, size_bytes: int) -> None:
        """Counts records without a check; negative numbers take them away."""
        self.record_count += record_count
        self.size_bytes += size_bytes


class RecordBuffer:
    """The encoded records of one batch, behind room for its header. Offsets are 0, 1, 2 ..."""

    __slots__ = ("_data", "base_timestamp", "max_timestamp", "record_count")

    def __init__(self, capacity: int = 0, memory: bytearray | None = None) -> None:
        """`capacity` is the expected size of the batch in bytes, `memory` a buffer that the batch may take over.

        The plain buffer has no use for them.
        """
        self._data: bytearray | None = bytearray(_ROOM)
        self.record_count = 0
        self.base_timestamp = _NO_TIMESTAMP
        self.max_timestamp = _NO_TIMESTAMP

    @property
    def size_bytes(self) -> int:
        """Size of the batch without compression, with its header."""
        return len(self._data) if self._data is not None else 0

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str | Buffer, Buffer | None]] = (),
    ) -> int:
        """Adds one record and returns its size in bytes before compression."""
        if self._data is None:
            raise ValueError("the batch was taken")
        delta = timestamp_ms - self.base_timestamp if self.record_count else 0
        taken = encode_record(self._data, self.record_count, delta, key, value, headers)
        if not self.record_count:
            self.base_timestamp = timestamp_ms
        self.max_timestamp = max(self.max_timestamp, timestamp_ms)
        self.record_count += 1
        return taken

    def open_for_offers(
        self,
        bounds: QueueBounds,
        most_records: int,
        most_bytes: int,
        reports: list[Callable[..., Any] | None],
    ) -> None:
        """Does nothing: plain Python can be interrupted by another thread, so every offer is refused."""

    def close_for_offers(self) -> None:
        """Does nothing: every offer is refused."""

    def take(self) -> bytearray:
        """Returns the batch with room for its header. The buffer is of no use afterwards."""
        if self._data is None:
            raise ValueError("the batch was taken")
        data, self._data = self._data, None
        return data


class OpenBatches:
    """The open batches of one topic, by partition. `sticky` is the partition of records without a key, or -1."""

    __slots__ = ("sticky",)

    def __init__(self) -> None:
        self.sticky = -1

    def add(self, partition: int, buffer: RecordBuffer) -> None:
        """Does nothing: every offer is refused."""

    def remove(self, partition: int) -> None:
        """Does nothing: every offer is refused."""


class Offers:
    """Adds plain records to the open batches of `topics`, by their names."""

    __slots__ = ("topics",)

    def __init__(self, sticks_without_key: bool) -> None:
        self.topics: dict[str, OpenBatches] = {}

    def offer(
        self,
        topic: str,
        partition: int,
        timestamp_ms: int,
        key: object,
        value: object,
        report: Callable[..., Any] | None,
    ) -> int:
        """Returns 0: the record was not added. The caller adds it under its lock."""
        return 0
