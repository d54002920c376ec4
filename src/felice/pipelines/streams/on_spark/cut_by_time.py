"""Where a batch of limited size ends, so that batches take a backlog in the order of time.

Keeps true: a batch ends at one timestamp in all partitions: each partition gives its records up to the first that is
            not older than it. So a month of backlog of one topic does not pass the records of another topic, or
            partition, that belong to the same days. As in Kafka Streams, a record that comes after a younger one in its
            partition waits behind it.
How:        The brokers say which is the first record since a timestamp. The timestamp at which the batch has nearly as
            many records as it may is searched for, from the one at which the last batch ended.
"""

from __future__ import annotations

from collections.abc import Callable

from felice.pipelines.spark.offsets import Offsets
from felice.pipelines.spark.planning import count_new, share_limit

FirstSince = Callable[[int], Offsets]
"""The first offset since a timestamp, of the partitions that have one."""
FULL_ENOUGH = 0.8
"""A batch with this part of the limit is not made larger: each step of the search asks the brokers."""
LAST_MS = (1 << 63) - 1
"""The greatest timestamp that a request can have."""
FIRST_SPAN_MS = 1 << 40
"""The end of the first batch is searched for from 1970 on, and this is 35 years."""


class TimeCut:
    """Finds the ends of the batches of one query."""

    def __init__(self) -> None:
        self._reached_ms = 0
        """The timestamp at which the last batch ended."""
        self._span_ms = FIRST_SPAN_MS

    def end(self, limit: int, begin: Offsets, latest: Offsets, first_since: FirstSince) -> Offsets:
        """Where a batch of at most `limit` records ends. `latest` if these are all; otherwise the batch has 80
        to 100 % of the limit, unless many records have one timestamp.
        """
        if count_new(begin, latest) <= limit:
            return latest
        if sum(latest[key] > begin.get(key, latest[key]) for key in latest) == 1:
            return share_limit(limit, begin, latest)

        def cut(timestamp_ms: int) -> Offsets:
            found = first_since(timestamp_ms)
            return {
                key: min(max(found.get(key, end), begin.get(key, end)), end) for key, end in latest.items()
            }

        started_at = self._reached_ms
        low, high = self._bounds(limit, begin, cut)
        taken = cut(low)
        while high - low > 1 and count_new(begin, taken) < FULL_ENOUGH * limit:
            middle = (low + high) // 2
            found = cut(middle)
            if count_new(begin, found) <= limit:
                low, taken = middle, found
            else:
                high = middle
        self._reached_ms, self._span_ms = low, max(1, low - started_at)
        # More records than the limit may have one timestamp.
        return taken if count_new(begin, taken) else share_limit(limit, begin, cut(high))

    def _bounds(self, limit: int, begin: Offsets, cut: Callable[[int], Offsets]) -> tuple[int, int]:
        """Two timestamps: up to the first there are at most `limit` records, up to the second there are more."""
        low, span = self._reached_ms, self._span_ms
        if count_new(begin, cut(low)) > limit:
            low = 0  # Older records have come since.
        while low + span < LAST_MS and count_new(begin, cut(low + span)) <= limit:
            low += span
            span *= 2
        return low, min(low + span, LAST_MS)
