"""Rates over a sliding window, and a bucket of tokens, as Kafka's quotas measure them. Pure: times are arguments.

Keeps true: a rate is computed over at least `samples - 1` whole windows of time, so that a first burst is not
            a high rate. Example: with limit L and 11 windows of 1 s, 20 x L bytes at once are the rate 2 x L, and
            the client waits 10 s.
"""

from __future__ import annotations

from collections import deque

from felice.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """quota.window.num samples of quota.window.size.seconds each."""

    samples: int = 11
    sample_s: float = 1.0

    @property
    def burst_s(self) -> float:
        """A burst may use the allowance of this time."""
        return (self.samples - 1) * self.sample_s


class Rate:
    """The rate of what was recorded in the window before now."""

    __slots__ = ("_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: deque[list[float]] = deque()  # start time and sum, the oldest first

    def record(self, amount: float, now_s: float) -> None:
        """Adds an amount; a negative one takes back an earlier one."""
        self._forget(now_s)
        if not self._samples or now_s - self._samples[-1][0] >= self._window.sample_s:
            self._samples.append([now_s, 0.0])
        self._samples[-1][1] += amount

    def per_second(self, now_s: float) -> float:
        """The rate now."""
        self._forget(now_s)
        return sum(amount for _, amount in self._samples) / self.elapsed_s(now_s)

    def elapsed_s(self, now_s: float) -> float:
        """The time that the recorded amounts are spread over."""
        window = self._window
        elapsed_s = now_s - self._samples[0][0] if self._samples else 0.0
        missing = window.samples - 1 - int(elapsed_s / window.sample_s)
        return elapsed_s + max(0, missing) * window.sample_s

    def throttle_s(self, limit: float, now_s: float) -> float:
        """How long to wait until the rate has fallen to the limit; 0 below it. With a limit of 0, a whole window."""
        rate = self.per_second(now_s)
        if rate <= limit:
            return 0.0
        if limit <= 0:
            return self._window.samples * self._window.sample_s
        return (rate - limit) / limit * self.elapsed_s(now_s)

    def _forget(self, now_s: float) -> None:
        oldest_s = now_s - self._window.samples * self._window.sample_s
        while self._samples and self._samples[0][0] <= oldest_s:
            self._samples.popleft()


class TokenBucket:
    """A bucket that fills at a rate, up to the size of a burst. Taking more tokens than it holds leaves a debt."""

    __slots__ = ("_tokens", "_updated_s", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._tokens: float | None = None
        self._updated_s = 0.0

    def tokens(self, rate: float, now_s: float) -> float:
        """The tokens there are now; a new bucket is full."""
        burst = rate * self._window.samples * self._window.sample_s
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + (now_s - self._updated_s) * rate)
        self._updated_s = now_s
        return self._tokens

    def take(self, count: float, rate: float, now_s: float) -> None:
        """Takes tokens, also more than there are."""
        self._tokens = self.tokens(rate, now_s) - count

    def throttle_s(self, rate: float, now_s: float) -> float:
        """How long to wait until the debt is paid; with a rate of 0 it never is, so a whole window."""
        tokens = self.tokens(rate, now_s)
        if tokens >= 0:
            return 0.0
        return -tokens / rate if rate > 0 else self._window.samples * self._window.sample_s
