"""librdkafka's configuration keys that this client accepts although it lacks the parts that they tune.

Keeps true:  One warning per client names all values that differ from what this client does anyway, so that no setting
             is ignored silently. A key that would change which records are consumed, who may read them, or any
             guarantee is not in this table: it is refused as unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from felice.dataclass import dataclass


def _flag(value: object) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "t", "1", "false", "f", "0"):
        raise ValueError("expected true or false")
    return text in ("true", "t", "1")


def whole_number(value: object) -> int | None:
    """The value as a whole number, also if it is a text; None if it is not a whole number."""
    try:
        return None if isinstance(value, bool) else int(str(value).strip())
    except ValueError:
        return None


def _number(value: object) -> int:
    number = whole_number(value)
    if number is None:
        raise ValueError("expected a whole number")
    return number


def _one_of(*names: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        text = str(value).strip().lower()
        if text not in names:
            raise ValueError(f"expected one of {', '.join(names)}")
        return text

    return parse


@dataclass(frozen=True, slots=True)
class Tuning:
    """How to check a value, and the values that match what this client does anyway."""

    parse: Callable[[object], object]
    followed: tuple[object, ...] = ()


TUNING: Mapping[str, Tuning] = {
    # Connections
    "api.version.fallback.ms": Tuning(_number),
    "api.version.request": Tuning(_flag, (True,)),
    "api.version.request.timeout.ms": Tuning(_number),
    "broker.address.family": Tuning(_one_of("any", "v4", "v6"), ("any",)),
    "broker.address.ttl": Tuning(_number),
    "broker.version.fallback": Tuning(str),
    "client.dns.lookup": Tuning(
        _one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"), ("use_all_dns_ips",)
    ),
    "reconnect.backoff.jitter.ms": Tuning(_number),
    "socket.blocking.max.ms": Tuning(_number),
    "socket.max.fails": Tuning(_number, (1,)),
    "socket.nagle.disable": Tuning(_flag, (True,)),
    # Metadata
    "metadata.recovery.rebootstrap.trigger.ms": Tuning(_number),
    "metadata.recovery.strategy": Tuning(_one_of("none", "rebootstrap"), ("rebootstrap",)),
    "topic.metadata.refresh.fast.cnt": Tuning(_number),
    "topic.metadata.refresh.fast.interval.ms": Tuning(_number),
    "topic.metadata.refresh.sparse": Tuning(_flag, (True,)),
    # Logs and events
    "enable.metrics.push": Tuning(_flag, (False,)),
    "enabled_events": Tuning(_number),
    "log.connection.close": Tuning(_flag),
    "log.queue": Tuning(_flag),
    "log.thread.name": Tuning(_flag),
    "log_level": Tuning(_number),
    # Memory and threads
    "enable.random.seed": Tuning(_flag),
    "internal.termination.signal": Tuning(_number),
    "message.copy.max.bytes": Tuning(_number),
    "receive.message.max.bytes": Tuning(_number),
    # Consumer
    "auto.commit.enable": Tuning(_flag),
    "consume.callback.max.messages": Tuning(_number),
    "coordinator.query.interval.ms": Tuning(_number),
    "fetch.queue.backoff.ms": Tuning(_number),
    "group.protocol.type": Tuning(_one_of("consumer"), ("consumer",)),
    "offset.store.method": Tuning(_one_of("broker"), ("broker",)),
    # Producer
    "enable.gapless.guarantee": Tuning(_one_of("false"), ("false",)),
    "produce.offset.report": Tuning(_flag),
    "queue.buffering.backpressure.threshold": Tuning(_number, (1,)),
    "queuing.strategy": Tuning(_one_of("fifo", "lifo"), ("fifo",)),
}

UNSUPPORTED = (
    "enable.sasl.",
    "enable.ssl.",
    "group.remote.assignor",
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
