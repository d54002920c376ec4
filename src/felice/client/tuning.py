"""librdkafka's configuration keys that this client accepts although it lacks the parts that they tune.

Keeps true:  One warning per client names all values that differ from what this client does anyway, so that no setting
             is ignored silently. A key that would change which records are consumed, who may read them, or any
             guarantee is not in this table: it is refused as unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from felice.client.keys import boolean, one_of, whole_number
from felice.dataclass import dataclass


def _number(value: object) -> int:
    number = whole_number(value)
    if number is None:
        raise ValueError("expected a whole number")
    return number


@dataclass(frozen=True, slots=True)
class Tuning:
    """How to check a value, and the values that match what this client does anyway."""

    parse: Callable[[object], object]
    followed: tuple[object, ...] = ()


TUNING: Mapping[str, Tuning] = {
    # Connections
    "api.version.fallback.ms": Tuning(_number),
    "api.version.request": Tuning(boolean, (True,)),
    "api.version.request.timeout.ms": Tuning(_number),
    "broker.address.family": Tuning(one_of("any", "v4", "v6"), ("any",)),
    "broker.address.ttl": Tuning(_number),
    "broker.version.fallback": Tuning(str),
    "client.dns.lookup": Tuning(
        one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"), ("use_all_dns_ips",)
    ),
    "reconnect.backoff.jitter.ms": Tuning(_number),
    "socket.blocking.max.ms": Tuning(_number),
    "socket.max.fails": Tuning(_number, (1,)),
    "socket.nagle.disable": Tuning(boolean, (True,)),
    # Metadata
    "metadata.recovery.rebootstrap.trigger.ms": Tuning(_number),
    "metadata.recovery.strategy": Tuning(one_of("none", "rebootstrap"), ("rebootstrap",)),
    "topic.metadata.refresh.fast.cnt": Tuning(_number),
    "topic.metadata.refresh.fast.interval.ms": Tuning(_number),
    "topic.metadata.refresh.sparse": Tuning(boolean, (True,)),
    # Logs and events
    "enable.metrics.push": Tuning(boolean, (False,)),
    "enabled_events": Tuning(_number),
    "log.connection.close": Tuning(boolean),
    "log.queue": Tuning(boolean),
    "log.thread.name": Tuning(boolean),
    "log_level": Tuning(_number),
    # Memory and threads
    "enable.random.seed": Tuning(boolean),
    "internal.termination.signal": Tuning(_number),
    "message.copy.max.bytes": Tuning(_number),
    "receive.message.max.bytes": Tuning(_number),
    # Consumer
    "auto.commit.enable": Tuning(boolean),
    "consume.callback.max.messages": Tuning(_number),
    "coordinator.query.interval.ms": Tuning(_number),
    "fetch.queue.backoff.ms": Tuning(_number),
    "group.protocol.type": Tuning(one_of("consumer"), ("consumer",)),
    "offset.store.method": Tuning(one_of("broker"), ("broker",)),
    # Producer
    "enable.gapless.guarantee": Tuning(one_of("false"), ("false",)),
    "produce.offset.report": Tuning(boolean),
    "queue.buffering.backpressure.threshold": Tuning(_number, (1,)),
    "queuing.strategy": Tuning(one_of("fifo", "lifo"), ("fifo",)),
}

UNSUPPORTED = (
    "enable.sasl.",
    "enable.ssl.",
    "https.ca.",
    "interceptors",
    "oauthbearer",
    "plugin.library.paths",
    "sasl.",
    "ssl.",
    "ssl_",
    "topic.blacklist",
)
"""Keys (or their prefixes) of features that this client lacks: refused as unsupported, not as misspelt."""
