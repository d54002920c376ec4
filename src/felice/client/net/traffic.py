"""Counts requests and responses of each broker for statistics, and detects throttling. Pure.

Keeps true:  Memory is bounded: a window keeps at most `Window.LIMIT` samples of an interval, chosen at random among all
             of them. Counters only grow; `Window.take` starts a new interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random

# Its own generator, used only to choose samples: a client's other random choices must not depend on how much was
# measured.
_random = Random(0)


class Window:
    """Samples of one interval, summarised with the field names of librdkafka's statistics."""

    LIMIT = 1000

    __slots__ = ("_count", "_samples", "_sum")

    def __init__(self) -> None:
        self._samples: list[float] = []
        self._count = 0
        self._sum = 0.0

    def add(self, sample: float) -> None:
        """Add a sample. Beyond the limit it replaces a random sample, or is dropped (reservoir sampling)."""
        self._count += 1
        self._sum += sample
        if len(self._samples) < self.LIMIT:
            self._samples.append(sample)
            return
        place = _random.randrange(self._count)
        if place < self.LIMIT:
            self._samples[place] = sample

    def take(self) -> dict[str, int]:
        """Return the distribution of the interval and start a new one; all zero without samples."""
        samples, count, total = sorted(self._samples), self._count, self._sum
        self._samples, self._count, self._sum = [], 0, 0.0
        mean = total / count if count else 0.0
        kept = len(samples)
        variance = sum((sample - mean) ** 2 for sample in samples) / kept if kept else 0.0
        percentiles = {
            name: int(samples[min(kept - 1, int(kept * share))]) if kept else 0
            for name, share in (
                ("p50", 0.5),
                ("p75", 0.75),
                ("p90", 0.9),
                ("p95", 0.95),
                ("p99", 0.99),
                ("p99_99", 0.9999),
            )
        }
        return {
            "min": int(samples[0]) if kept else 0,
            "max": int(samples[-1]) if kept else 0,
            "avg": int(mean),
            "sum": int(total),
            "stddev": int(math.sqrt(variance)),
            **percentiles,
            "cnt": count,
        }


class BrokerTraffic:
    """Counters of the requests and responses of one address."""

    def __init__(self, address: str, on_throttled: Callable[[str, int], None]) -> None:
        self.address = address
        self.requests: Counter[str] = Counter()
        self.sent_bytes = self.received_bytes = self.replies = 0
        self.retries = self.timeouts = self.bad_replies = 0
        self.connects = self.disconnects = 0
        self.connected_at = 0.0
        # Microseconds from request to response, and from `produce` to request; milliseconds of throttling.
        self.round_trips_us = Window()
        self.internal_latency_us = Window()
        self.throttle_ms = Window()
        self._throttled = False
        self._on_throttled = on_throttled

    def on_sent(self, api_name: str, size_bytes: int) -> None:
        """Count a request passed to the transport."""
        self.requests[api_name] += 1
        self.sent_bytes += size_bytes

    def on_reply(self, message: object, seconds: float) -> None:
        """Count a response. A broker that delayed it because of a quota reports the delay in the response."""
        self.replies += 1
        self.round_trips_us.add(seconds * 1e6)
        delay_ms = getattr(message, "throttle_time_ms", 0)
        self.throttle_ms.add(delay_ms)
        if delay_ms > 0 or self._throttled:
            # Reported once more, with 0, when throttling ends, as librdkafka does.
            self._throttled = delay_ms > 0
            self._on_throttled(self.address, delay_ms)
