"""Finds records that a broker would refuse for their size, a missing key or their timestamp, before they are sent.

Each topic has `TopicLimits`, which Spark's workers and the runners of stream applications get from the brokers.
Timestamps are compared with the clock of this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from felice.dataclass import dataclass
from felice.pipelines.errors import FormatError
from felice.records.batch import HEADER_SIZE

Headers = Iterable[tuple[str, bytes | None]]

DEFAULT_MAX_BYTES = 1_048_588
DEFAULT_AFTER_MS = 3_600_000
# The largest size of a record's length, attributes, deltas and counts, which Java's producer assumes, too.
RECORD_OVERHEAD = 21
HEADER_OVERHEAD = 10
_MAX_INT64 = (1 << 63) - 1


class RefusedError(FormatError):
    """A record that the broker would refuse; the text says why."""


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The limits in a topic's configuration.

    The size of a record is its size before compression, with its batch's header.
    """

    max_message_bytes: int = DEFAULT_MAX_BYTES
    needs_key: bool = False
    """The topic is compacted."""
    before_max_ms: int = _MAX_INT64
    """How much older than now a timestamp may be."""
    after_max_ms: int = DEFAULT_AFTER_MS
    """How much later than now a timestamp may be."""

    @staticmethod
    def of(configs: Mapping[str, str | None]) -> TopicLimits:
        """The limits of a topic with these configurations; the defaults if none is known.

        Brokers before Kafka 3.6 know no limits of timestamps, so one that is missing beside others limits nothing.
        """
        if not configs:
            return TopicLimits()

        def number(name: str, otherwise: int) -> int:
            return int(configs.get(name) or otherwise)

        # A topic with LogAppendTime accepts every timestamp.
        checks_time = configs.get("message.timestamp.type") != "LogAppendTime"
        return TopicLimits(
            number("max.message.bytes", DEFAULT_MAX_BYTES),
            "compact" in (configs.get("cleanup.policy") or ""),
            number("message.timestamp.before.max.ms", _MAX_INT64) if checks_time else _MAX_INT64,
            number("message.timestamp.after.max.ms", _MAX_INT64) if checks_time else _MAX_INT64,
        )

    def check(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        """Raise `RefusedError` if a broker refuses the record."""
        size = size_of(key, value, headers)
        if size > self.max_message_bytes:
            raise RefusedError(
                f"{size} bytes are too large for {topic} (max.message.bytes={self.max_message_bytes})"
            )
        if self.needs_key and key is None:
            raise RefusedError(f"a record without key is refused by {topic}, which is compacted")
        if not self._takes_time(timestamp):
            raise RefusedError(
                f"the timestamp {timestamp} is refused by {topic} (message.timestamp.before.max.ms="
                f"{self.before_max_ms}, message.timestamp.after.max.ms={self.after_max_ms})"
            )

    def refused(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers],
    ) -> list[int]:
        """The positions of the records, given by column, that a broker refuses."""
        size = sum(max(map(len, filter(None, column)), default=0) for column in (keys, values))
        if (
            not any(headers)
            and size + HEADER_SIZE + RECORD_OVERHEAD <= self.max_message_bytes
            and not (self.needs_key and None in keys)
            and all(map(self._takes_time, {min(timestamps, default=0), max(timestamps, default=0)}))
        ):
            return []
        found = []
        for number, record in enumerate(zip(keys, values, timestamps, headers, strict=True)):
            try:
                self.check(topic, *record)
            except RefusedError:
                found.append(number)
        return found

    def fitted(
        self, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> tuple[bytes | None, int]:
        """The value and the timestamp of a dead letter, changed so that the topic accepts them.

        A value that is too large becomes None, and a timestamp that is not allowed becomes the current time.
        """
        is_small = size_of(key, value, headers) <= self.max_message_bytes
        return value if is_small else None, timestamp if self._takes_time(timestamp) else _now_ms()

    def _takes_time(self, timestamp: int) -> bool:
        later_ms = timestamp - _now_ms()
        return later_ms <= self.after_max_ms and -later_ms <= self.before_max_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


LimitsOf = Callable[[str], TopicLimits]
"""The limits of a topic by its name."""


def size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The largest size that a batch of this record alone can have, in bytes."""
    size = HEADER_SIZE + RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    return size + sum(HEADER_OVERHEAD + len(name.encode()) + len(text or b"") for name, text in headers)
