"""Counts, errors and times of requests by API. The sessions add to them on every request, so adding is cheap.

Keeps true: the memory is bounded: the newest `RECENT` times of each API are kept, as many as Kafka's histograms keep.
How:        the times of a request are one tuple in a deque. Quantiles are computed when somebody reads them.
Leaves:     the clock to the session, which reads it after each request and after sending.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from felice.protocol.api import API, Api
from felice.protocol.connection import Request
from felice.protocol.error_codes import CountErrors, compile_error_counter

RECENT = 1024

Times: TypeAlias = tuple[float, float, float, float]
"""Seconds in the queue, in the handler on the event loop, awaited by the handler, and throttled."""


class RequestTimes:
    """The times of the newest requests of one API, in seconds."""

    __slots__ = ("parts", "queueing", "sending", "timed")

    def __init__(self) -> None:
        self.timed = 0
        self.parts: deque[Times] = deque(maxlen=RECENT)
        # From the moment when a reply was made until it could be sent: at the end of a turn of the session, and after
        # the replies to earlier requests.
        self.queueing: deque[float] = deque(maxlen=RECENT)
        # From the moment when the last reply of a flush was made until the kernel had taken all of the flush.
        self.sending: deque[float] = deque(maxlen=RECENT)

    def add(self, times: Times) -> None:
        """Adds one request."""
        self.timed += 1
        self.parts.append(times)


class RequestMetrics:
    """What the sessions of one broker count."""

    def __init__(self, apis: Mapping[int, Api]) -> None:
        self.apis = apis
        # By API key, then by version; -1 is ApiVersions in an unknown version.
        self.counts: dict[int, dict[int, int]] = {key: {} for key in apis}
        self.times: dict[int, RequestTimes] = {key: RequestTimes() for key in apis}
        self.follower_fetches = RequestTimes()
        # Error codes in responses, by API key.
        self.errors: dict[int, dict[int, int]] = {key: defaultdict(int) for key in apis}
        self._error_counters: dict[int, CountErrors] = {}

    def count_errors(self, api_key: int, response: object) -> None:
        """Counts the error codes in a response, NONE included."""
        count = self._error_counters.get(api_key) or self._error_counter(api_key)
        count(response, self.errors[api_key])

    def errors_of(self, api_key: int, response: object) -> Mapping[int, int]:
        """The error codes in a response, to be counted with `add_errors`. May run on a thread."""
        found: dict[int, int] = defaultdict(int)
        self._error_counter(api_key)(response, found)
        return found

    def add_errors(self, api_key: int, found: Mapping[int, int]) -> None:
        """Adds what `errors_of` found."""
        counts = self.errors[api_key]
        for code, count in found.items():
            counts[code] += count

    def _error_counter(self, api_key: int) -> CountErrors:
        counter = self._error_counters.get(api_key)
        if counter is None:
            counter = self._error_counters[api_key] = compile_error_counter(self.apis[api_key].response)
        return counter

    def times_of(self, api_key: int, message: object) -> RequestTimes:
        """Where the times of a request belong. Fetches of followers wait for new records most of the time."""
        if api_key == API.FETCH.key and is_from_follower(message):
            return self.follower_fetches
        return self.times[api_key]

    def total(self, api_key: int) -> int:
        """The number of requests of an API since the start."""
        return sum(self.counts[api_key].values())


class ReplyTimes:
    """Measures how long the replies of one connection wait to be sent, and how long sending takes.

    The session sets `newest`, the times of the newest reply's API, and `made_s`, when that reply was made.
    `sending_since_s` is when the replies that are still being sent began to leave; None if all replies have left.
    `made_s` and `sending_since_s` are times of the monotonic clock.
    """

    __slots__ = ("_requests", "made_s", "newest", "sending_since_s")

    def __init__(self, requests: RequestMetrics) -> None:
        self._requests = requests
        self.sending_since_s: float | None = None
        self.newest: RequestTimes | None = None
        self.made_s = 0.0

    def on_sendable(self, unanswered: Iterable[Request], now_s: float) -> None:
        """Records how long each reply waited that can be sent now: those before the first request without a reply."""
        for request in unanswered:
            if request.reply is None:
                return
            if request.reply:
                replied_s = request.timing[2]
                # Most replies are the newest one, whose times are known.
                newest = self.newest if replied_s == self.made_s else None
                times = newest or self._requests.times_of(request.api.key, request.message)
                times.queueing.append(now_s - replied_s)

    def on_sent(self, has_left: bool, now_s: float) -> None:
        """Records how long the newest replies took to leave; if they have not left, notes when they began to leave."""
        begun_s = self.made_s if self.sending_since_s is None else self.sending_since_s
        if not has_left:
            self.sending_since_s = begun_s
        elif self.newest is not None:
            self.newest.sending.append(now_s - begun_s)
            self.sending_since_s = None


def is_from_follower(message: object) -> bool:
    """Whether a Fetch request comes from another broker."""
    state = getattr(message, "replica_state", None)
    found = getattr(message, "replica_id", -1) if state is None else state.replica_id
    return bool(found >= 0)


def quantiles(seconds: Iterable[float], at: Iterable[float]) -> list[float]:
    """The values below which the given shares of the measurements are; zeros without a measurement."""
    ordered = sorted(seconds)
    if not ordered:
        return [0.0 for _ in at]
    last = len(ordered) - 1
    return [ordered[min(last, int(share * len(ordered)))] for share in at]
