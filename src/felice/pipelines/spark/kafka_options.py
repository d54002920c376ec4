"""The options `kafka.*`: converts them to settings of the client.

Keeps true: a key has an effect, or it only tunes Java's clients and is accepted with one warning, or it is refused with
            the reason. A key that decides which records are read, or where they go, is never accepted without effect.
            Messages name the option as the user wrote it.
Pure.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from felice.client.error import KafkaException
from felice.client.keys import keys_of
from felice.client.options import ClientSettings, ConsumerSettings, ProducerSettings
from felice.client.security import SecuritySettings
from felice.dataclass import dataclass
from felice.pipelines.spark.mistakes import OptionError

log = logging.getLogger(__name__)

S = TypeVar("S", bound=ClientSettings)

PREFIX = "kafka."


@dataclass(frozen=True, slots=True)
class KafkaKeys(Generic[S]):
    """How the source or the sink treats each key of Kafka's configuration."""

    client: type[S]
    """The client parses the keys as those of a consumer or a producer."""
    honoured: frozenset[str]
    without_effect: frozenset[str]
    refused: Mapping[str, str]


_BYTES_ONLY = "keys and values are always bytes; cast the columns in the query"
_JAVA_CLASS = "names a Java class; do the work in the query"
_NO_SUCH_SECURITY = "is not supported by this client; docs/client.md lists the keys of TLS and SASL"

# An option of Spark is a text, so it cannot be a callback.
_SECURITY = {name for key in keys_of(SecuritySettings) for name in (key.name, *key.aliases)} - {
    "oauth_cb",
    "sasl.oauthbearer.config",
}
_CONNECTION = {
    "bootstrap.servers",
    "client.id",
    *_SECURITY,
    "request.timeout.ms",
    "socket.timeout.ms",
    "socket.connection.setup.timeout.ms",
}
# These keys tune the threads, buffers, back-offs and metrics of Java's or librdkafka's clients.
_TUNING = {
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "log.connection.close",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "socket.keepalive.enable",
    "socket.nagle.disable",
}

SOURCE_KEYS = KafkaKeys(
    client=ConsumerSettings,
    honoured=frozenset(
        {
            *_CONNECTION,
            "client.rack",
            "fetch.max.bytes",
            "fetch.max.wait.ms",
            "fetch.message.max.bytes",
            "fetch.wait.max.ms",
            "group.id",
            "isolation.level",
            "max.partition.fetch.bytes",
            "metadata.max.age.ms",
            "topic.metadata.refresh.interval.ms",
        }
    ),
    without_effect=frozenset(
        {
            *_TUNING,
            "allow.auto.create.topics",
            "auto.commit.interval.ms",
            "check.crcs",
            "default.api.timeout.ms",
            "fetch.min.bytes",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "max.poll.records",
            "partition.assignment.strategy",
            "session.timeout.ms",
        }
    ),
    refused={
        "auto.offset.reset": "not supported: use startingOffsets instead",
        "enable.auto.commit": "not supported: Spark keeps the offsets in its checkpoint",
        "exclude.internal.topics": "not supported: a pattern never matches internal topics; subscribe to them by name",
        "interceptor.classes": _JAVA_CLASS,
        "key.deserializer": _BYTES_ONLY,
        "value.deserializer": _BYTES_ONLY,
    },
)

SINK_KEYS = KafkaKeys(
    client=ProducerSettings,
    honoured=frozenset(
        {
            *_CONNECTION,
            "acks",
            "batch.size",
            "compression.codec",
            "compression.level",
            "compression.type",
            "delivery.timeout.ms",
            "message.timeout.ms",
            "request.required.acks",
        }
    ),
    without_effect=frozenset(
        {
            *_TUNING,
            "batch.num.messages",
            "buffer.memory",
            "enable.idempotence",
            "linger.ms",
            "max.block.ms",
            "max.in.flight.requests.per.connection",
            "max.request.size",
            "message.max.bytes",
            "metadata.max.age.ms",
            "metadata.max.idle.ms",
            "queue.buffering.max.kbytes",
            "queue.buffering.max.messages",
            "queue.buffering.max.ms",
            "retries",
        }
    ),
    refused={
        "interceptor.classes": _JAVA_CLASS,
        "key.serializer": _BYTES_ONLY,
        "partitioner": "rows go where Java's default partitioner sends them; use the column 'partition'",
        "partitioner.class": "rows go where Java's default partitioner sends them; use the column 'partition'",
        "partitioner.ignore.keys": "a key always decides; use the column 'partition', or leave out 'key'",
        "transactional.id": "is chosen for each task of a query; exactly once needs no name",
        "value.serializer": _BYTES_ONLY,
    },
)

_warned: set[str] = set()


def kafka_settings(given: Mapping[str, str], keys: KafkaKeys[S]) -> S:
    """The client's settings from options whose names, without their prefix, are `given`'s."""
    if not given.get("bootstrap.servers", "").strip():
        raise OptionError("kafka.bootstrap.servers", "is required: host:port of one or more brokers")
    honoured = {name: value for name, value in given.items() if _is_honoured(name, keys)}
    servers = {"bootstrap.servers": honoured.pop("bootstrap.servers")}
    settings = _parsed("bootstrap.servers", servers, keys)
    # These keys only make sense together.
    secured = {name: value for name, value in honoured.items() if name in _SECURITY}
    for name, value in honoured.items():
        _parsed(name, servers | {name: value} | (secured if name in _SECURITY else {}), keys)
    return keys.client.parse(servers | honoured) if honoured else settings


def _parsed(name: str, given: Mapping[str, str], keys: KafkaKeys[S]) -> S:
    """Parses the key together with the servers only, so that an error concerns `name`."""
    try:
        return keys.client.parse(given)
    except KafkaException as error:
        raise OptionError(PREFIX + name, _reason(name, error)) from None


def _is_honoured(name: str, keys: KafkaKeys[Any]) -> bool:
    """Whether the key is passed to the client. Warns about a key without effect, and raises for a refused one."""
    if name in keys.honoured:
        return True
    if name in keys.without_effect:
        _warn_once(name)
        return False
    if name in keys.refused:
        raise OptionError(PREFIX + name, keys.refused[name])
    if name.startswith(("sasl.", "ssl.")):
        raise OptionError(PREFIX + name, _NO_SUCH_SECURITY)
    raise OptionError(PREFIX + name, _unknown(name, keys))


def _warn_once(name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        log.warning("option %r is accepted, but has no effect here", PREFIX + name)


def _unknown(name: str, keys: KafkaKeys[Any]) -> str:
    other = SINK_KEYS if keys is SOURCE_KEYS else SOURCE_KEYS
    if name in other.honoured | other.without_effect:
        return f"belongs to Kafka's {other.client.title}"
    near = difflib.get_close_matches(name, sorted(keys.honoured | keys.without_effect), n=1)
    return f"unknown; did you mean {PREFIX}{near[0]}?" if near else "unknown to Kafka's clients"


def _reason(name: str, error: KafkaException) -> str:
    """The text of the client's error without the name of the key, which the option's error has."""
    return error.error.str().partition(f'"{name}": ')[2] or error.error.str()
