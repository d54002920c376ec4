"""Counts and times of requests by API, and the connections on which they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.server.flow.request_times import RequestMetrics, RequestTimes, Times
from felice.server.metrics.families import (
    PAUSE,
    Families,
    Family,
    Kind,
    Row,
    counter,
    gauge,
    histogram_rows,
    label_text,
)
from felice.server.metrics.names import Dialect, MBean
from felice.server.monitoring.sources import Sources

_MS = 1000.0
# Each may have hundreds of replies to look at.
_SESSIONS_IN_ONE_STEP = 20
_metric = partial(MBean, "kafka.network", "RequestMetrics")
_queue = partial(MBean, "kafka.network", "RequestChannel")
_sockets = partial(MBean, "kafka.server", "socket-server-metrics")

_PARTS: tuple[tuple[str, str, Callable[[Times], float]], ...] = (
    ("TotalTimeMs", "From the arrival of a request until its reply was made, in milliseconds.", sum),
    ("RequestQueueTimeMs", "Milliseconds that requests waited for their turn.", lambda one: one[0]),
    ("LocalTimeMs", "Milliseconds that requests held the event loop.", lambda one: one[1]),
    ("RemoteTimeMs", "Milliseconds that requests waited for records, replicas or disks.", lambda one: one[2]),
    ("ThrottleTimeMs", "Milliseconds for which quotas silenced the connection.", lambda one: one[3]),
)


def requests(sources: Sources) -> Families:
    """Counts by API and version; quantiles of the newest times by API."""
    counted = sources.metrics.requests
    yield Family(_metric("RequestsPerSec"), Kind.COUNTER, "Requests.", _counts(counted))
    found = list(_timed(counted))
    for name, text, part in _PARTS:
        yield Family(_metric(name), Kind.GAUGE, text, _quantiles(found, part))
        rows = [(labels, sum(one.timed for one in times)) for labels, times in found]
        yield Family(_metric(name, "_count"), Kind.COUNTER, "Requests that were timed.", rows)
    queued = {labels: (s for one in times for s in one.queueing) for labels, times in found}
    text = "Milliseconds from a reply until it could be sent, behind the replies to earlier requests."
    yield Family(_metric("ResponseQueueTimeMs"), Kind.GAUGE, text, histogram_rows(queued, _MS))
    sent = {labels: (s for one in times for s in one.sending) for labels, times in found}
    text = "Milliseconds from a reply until the kernel had taken it."
    yield Family(_metric("ResponseSendTimeMs"), Kind.GAUGE, text, histogram_rows(sent, _MS))
    text = "Error codes in responses, NONE included."
    yield Family(_metric("ErrorsPerSec"), Kind.COUNTER, text, _errors(counted))
    yield from _queues(sources)


def _queues(sources: Sources) -> Families:
    waiting = sources.services.flow.turns.waiting
    yield gauge(_queue("RequestQueueSize"), "Connections whose requests wait for their turn.", waiting)
    replies = 0
    for listener in sources.listeners:
        for number, session in enumerate(list(listener.sessions), start=1):
            replies += session.waiting_replies
            if number % _SESSIONS_IN_ONE_STEP == 0:
                yield PAUSE
    yield gauge(
        _queue("ResponseQueueSize"), "Replies that wait for the replies to earlier requests.", replies
    )


def _errors(counted: RequestMetrics) -> Iterator[Row]:
    for key, codes in counted.errors.items():
        for code, count in list(codes.items()):
            yield label_text(request=counted.apis[key].name, error=ErrorCode.of(code).name), count


def _counts(counted: RequestMetrics) -> Iterator[Row]:
    for key, versions in counted.counts.items():
        for version, count in list(versions.items()):
            yield label_text(request=counted.apis[key].name, version=version), count


def _timed(counted: RequestMetrics) -> Iterator[tuple[str, list[RequestTimes]]]:
    """The times by label. Fetches of consumers and followers are shown apart and, as `Fetch`, together."""
    for key, times in counted.times.items():
        if key == API.FETCH.key:
            both = [times, counted.follower_fetches]
            named = {"Fetch": both, "FetchConsumer": [times], "FetchFollower": [counted.follower_fetches]}
        else:
            named = {counted.apis[key].name: [times]}
        for name, parts in named.items():
            if any(one.timed for one in parts):
                yield label_text(request=name), parts


def _quantiles(
    found: Iterable[tuple[str, list[RequestTimes]]], part: Callable[[Times], float]
) -> Iterator[Row]:
    for labels, times in found:
        measured = [part(one) for times_of in times for one in times_of.parts]
        yield from histogram_rows({labels: measured}, _MS)


def connections(sources: Sources) -> Families:
    """Open connections by listener and software, and how many came and went."""
    listeners = [
        (label_text(listener=listener.name, networkProcessor="0"), listener) for listener in sources.listeners
    ]
    counts = [(labels, len(listener.sessions)) for labels, listener in listeners]
    yield Family(_sockets("connection-count"), Kind.GAUGE, "Open connections.", counts)
    created = [(labels, listener.accepted) for labels, listener in listeners]
    yield Family(_sockets("connection-creation-total"), Kind.COUNTER, "Accepted connections.", created)
    closed = [(labels, listener.accepted - len(listener.sessions)) for labels, listener in listeners]
    yield Family(_sockets("connection-close-total"), Kind.COUNTER, "Connections that have ended.", closed)
    yield from _waits(sources)
    logins = sources.services.security.logins
    yield counter(_sockets("failed-authentication-total"), "Logins that failed.", logins.failures)
    yield counter(_sockets("successful-authentication-total"), "Logins that succeeded.", logins.successes)
    rates = sources.loop_watch.connection_rates
    for name, text, rate in zip(
        ("connection-creation-rate", "connection-close-rate"), ("Accepted", "Ended"), rates, strict=True
    ):
        yield gauge(_sockets(name), f"{text} connections per second in the last 30 s, all listeners.", rate)
    yield Family(
        _sockets("connections"),
        Kind.GAUGE,
        "Open connections by the client's software, as ApiVersions names it.",
        _software(sources),
        dict.fromkeys(Dialect, "kafka_server_socket_server_metrics_connections_software"),
    )


def _waits(sources: Sources) -> Families:
    listeners = [(label_text(listener=listener.name), listener) for listener in sources.listeners]
    text = "Average milliseconds for which connections over max.connection.creation.rate waited in the last minute."
    waits = [(labels, listener.accept_waits.average_s() * _MS) for labels, listener in listeners]
    yield Family(_sockets("connection-accept-throttle-time"), Kind.GAUGE, text, waits)
    text = "Average milliseconds until connections over their address's rate were closed in the last minute."
    waits = [(labels, listener.refusal_waits.average_s() * _MS) for labels, listener in listeners]
    yield Family(_sockets("ip-connection-accept-throttle-time"), Kind.GAUGE, text, waits)


_MOST_SOFTWARE = 100


def _software(sources: Sources) -> list[Row]:
    """At most `_MOST_SOFTWARE` rows: clients choose these names."""
    found: Counter[tuple[str, str]] = Counter()
    for listener in sources.listeners:
        for session in listener.sessions:
            found[listener.name, session.client_software or "unknown unknown"] += 1
    return [
        (
            label_text(
                clientSoftwareName=software.rpartition(" ")[0],
                clientSoftwareVersion=software.rpartition(" ")[2],
                listener=listener,
                networkProcessor="0",
            ),
            count,
        )
        for (listener, software), count in found.most_common(_MOST_SOFTWARE)
    ]
