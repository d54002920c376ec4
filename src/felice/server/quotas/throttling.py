"""Counts a request against the quotas of its client, and keeps the connection of a throttled client silent.

Keeps true: the reply is sent at once and says how long the client should wait (KIP-219); the broker then does not read
            from the connection during that time. If several quotas are exceeded, the longest wait counts.
            A consumer that has to wait gets no records, and they are not counted.
            Requests of other brokers are exempt.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from felice.protocol.api import API
from felice.protocol.connection import Request
from felice.protocol.messages.fetch import FetchRequest, FetchResponse
from felice.protocol.messages.produce import ProduceRequest
from felice.server.flow.request_times import is_from_follower
from felice.server.quotas.client_quotas import ClientQuotas
from felice.server.quotas.limits import QuotaKind

# Only brokers send them.
_EXEMPT = frozenset((API.WRITE_TXN_MARKERS.key,))
_PERCENT = 100.0


def throttled(
    quotas: ClientQuotas, request: Request, answer: Any, user: str, local_s: float
) -> tuple[Any, float]:
    """Returns the answer to send, and the seconds of silence.

    Call it only while `quotas.are_set`. `local_s` is the time that the request held the event loop. It does not count
    for a request without a reply, as in Kafka.
    """
    client_id, message = request.client_id or "", request.message
    if isinstance(message, FetchRequest):
        if is_from_follower(message):
            return answer, 0.0
        return _throttled_fetch(quotas, message, answer, (user, client_id), local_s)
    wait_s = getattr(answer, "throttle_time_ms", 0) / 1000
    if isinstance(message, ProduceRequest):
        wait_s = max(wait_s, quotas.record(QuotaKind.PRODUCE, user, client_id, request.size_bytes))
    has_reply = hasattr(answer, "throttle_time_ms")
    if has_reply and request.api.key not in _EXEMPT:
        wait_s = max(wait_s, quotas.record(QuotaKind.REQUEST, user, client_id, local_s * _PERCENT))
    if wait_s > 0 and has_reply:
        answer.throttle_time_ms = _milliseconds(wait_s)
    return answer, wait_s


def _throttled_fetch(
    quotas: ClientQuotas,
    message: FetchRequest,
    answer: FetchResponse,
    client: tuple[str, str],
    local_s: float,
) -> tuple[FetchResponse, float]:
    size_bytes = size_of(answer)
    wait_s = max(
        quotas.record(QuotaKind.FETCH, *client, size_bytes),
        quotas.record(QuotaKind.REQUEST, *client, local_s * _PERCENT),
    )
    if wait_s <= 0:
        return answer, 0.0
    quotas.take_back(QuotaKind.FETCH, *client, size_bytes)
    # A session that this request began is unknown to the client: its next request begins another one.
    session_id = answer.session_id if message.session_epoch > 0 else 0
    return FetchResponse(throttle_time_ms=_milliseconds(wait_s), session_id=session_id), wait_s


def size_of(answer: FetchResponse) -> int:
    """The bytes of records in a response."""
    return sum(
        row.records.size_bytes if hasattr(row.records, "size_bytes") else len(row.records)
        for topic in answer.responses
        for row in topic.partitions
        if row.records
    )


def _milliseconds(seconds: float) -> int:
    """At least 1: with 0 the client would not wait."""
    return max(1, round(seconds * 1000))


class Silence:
    """The time for which a connection handles no requests. `hold` begins it for the connection, `release` ends it."""

    __slots__ = ("_hold", "_loop", "_release", "_timer", "_until_s")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, hold: Callable[[], None], release: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._hold = hold
        self._release = release
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0

    def extend(self, seconds: float) -> None:
        """Makes the connection silent for this time from now on, unless it is silent for longer already."""
        until_s = self._loop.time() + seconds
        if until_s <= self._until_s:
            return
        if self._timer is None:
            self._hold()
        else:
            self._timer.cancel()
        self._until_s = until_s
        self._timer = self._loop.call_at(until_s, self._end)

    def end_with(self, seconds: float, end: Callable[[], None]) -> None:
        """Makes the connection silent for good, and calls `end` after this time."""
        self._hold()
        self._until_s = math.inf
        self._timer = self._loop.call_later(seconds, end)

    def cancel(self) -> None:
        """Stops the timer: the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        self._timer = None
        self._release()
