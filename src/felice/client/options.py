"""The settings of each kind of client: fields that declare their configuration keys, and their parsing.

Keeps true:  An unknown key or an invalid value is refused; the error names the key and what was expected. An accepted
             key has an effect, or it belongs to the other kind of client, or it tunes a part that only librdkafka has
             (`tuning`). One warning per client names all accepted keys without effect.
Names are librdkafka's and Java's; if they differ, one is the name and the other an alias. If their defaults differ, the
default is librdkafka's, except that idempotence is on as in Java (KIP-679).
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from ipaddress import IPv6Address
from random import Random
from typing import Any, ClassVar, Self, TypeAlias, cast

from felice.client.keys import (
    INT_MAX,
    Key,
    boolean,
    function,
    integer,
    invalid,
    key,
    keys_of,
    make_settings,
    named,
    number,
    one_of,
    text,
)
from felice.client.security import PLAIN_TEXT, Security, SecuritySettings, make_security
from felice.client.tuning import TUNING, UNSUPPORTED, Tuning
from felice.dataclass import dataclass
from felice.env import Environment

# The room that librdkafka leaves in a response beside its records.
_RESPONSE_OVERHEAD = 512
_DEFAULT_PORT = 9092
_HOST_AND_PORT = re.compile(r"(\[(?P<ipv6>[^\[\]]+)\]|(?P<name>[^\[\]:]+))(:(?P<port>[0-9]{1,5}))?")


def _name(value: object) -> str:
    if not text(value):
        raise ValueError("expected a name")
    return text(value)


def _partitioner(value: object) -> str | Callable[..., Any]:
    if callable(value):
        return value
    if str(value) not in PARTITIONER_NAMES:
        raise ValueError(f"expected a callable or one of {', '.join(PARTITIONER_NAMES)}")
    return str(value)


def _assignors(value: object) -> tuple[str, ...]:
    known = ("range", "roundrobin", "sticky", "cooperative-sticky")
    given = value.split(",") if isinstance(value, str) else cast("Iterable[str]", value)
    names = tuple(name.strip().lower() for name in given)
    if not names or any(name not in known for name in names):
        raise ValueError(f"expected a comma-separated list of {', '.join(known)}")
    if "cooperative-sticky" in names and len(names) > 1:
        raise ValueError("cooperative-sticky cannot be mixed with eager assignors")
    return names


# `produce/partitioners` describes what each name does.
PARTITIONER_NAMES = (
    "murmur2_random",
    "murmur2",
    "consistent_random",
    "consistent",
    "fnv1a_random",
    "fnv1a",
    "random",
    "sticky",
    "round_robin",
)


def _contexts(value: object) -> str:
    names = _names_in(text(value))
    unknown = [name for name in names if name not in DEBUG_CONTEXTS]
    if unknown:
        raise ValueError(f"expected a comma-separated list of {', '.join(DEBUG_CONTEXTS)}")
    return ",".join(names)


def _names_in(list_: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in list_.split(",") if name.strip())


# librdkafka's debug contexts, and the client's child logger that each of them enables ("": the client's own logger).
DEBUG_CONTEXTS = {
    "all": "",
    "generic": "broker",
    "broker": "broker",
    "topic": "broker",
    "metadata": "broker",
    "feature": "broker",
    "security": "broker",
    "conf": "broker",
    "protocol": "protocol",
    "queue": "sender",
    "msg": "sender",
    "eos": "transactions",
    "cgrp": "group",
    "consumer": "group",
    "assignor": "group",
    "fetch": "fetch",
    "admin": "protocol",
    "interceptor": "",
    "plugin": "",
    "mock": "",
    "telemetry": "",
}

_ACKS = {"-1": -1, "all": -1, "0": 0, "1": 1}
_ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
# The highest compression.level of gzip, lz4 and zstd. snappy has no levels.
_HIGHEST_LEVELS = {1: 9, 3: 17, 4: 22}
_RESETS = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), "earliest"),
    **dict.fromkeys(("latest", "largest", "end"), "latest"),
    **dict.fromkeys(("error", "none"), "error"),
}

# Keys that are refused with group.protocol=consumer, with the end of librdkafka's error for each.
_CLASSIC_ONLY = {
    "session.timeout.ms": ". It is defined broker side",
    "heartbeat.interval.ms": ". It is defined broker side",
    "partition.assignment.strategy": ". Use `group.remote.assignor` instead",
    "group.protocol.type": "",
}

# The child of the client's logger that warns of keys without effect.
CONFIGURATION_LOGGER = "configuration"

Callback: TypeAlias = Callable[..., Any] | None


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings that every client has. `parse` creates and checks them."""

    kind: ClassVar[str]
    """p, c or a."""
    title: ClassVar[str]
    """The kind of client in words."""

    env: Environment = field(repr=False, compare=False)
    """The client's source of network, wall time and randomness."""
    bootstrap_servers: str = key("bootstrap.servers", text, "", aliases=("metadata.broker.list",))
    client_id: str = key("client.id", text, "felice")
    request_timeout_ms: int = key("request.timeout.ms", integer(1), 30_000, aliases=("socket.timeout.ms",))
    socket_connection_setup_timeout_ms: int = key("socket.connection.setup.timeout.ms", integer(1), 30_000)
    socket_send_buffer_bytes: int = key(
        "socket.send.buffer.bytes", integer(-1), -1, aliases=("send.buffer.bytes",)
    )
    socket_receive_buffer_bytes: int = key(
        "socket.receive.buffer.bytes", integer(-1), -1, aliases=("receive.buffer.bytes",)
    )
    reconnect_backoff_ms: int = key("reconnect.backoff.ms", integer(0), 100)
    reconnect_backoff_max_ms: int = key("reconnect.backoff.max.ms", integer(0), 10_000)
    retry_backoff_ms: int = key("retry.backoff.ms", integer(1), 100)
    retry_backoff_max_ms: int = key("retry.backoff.max.ms", integer(1), 1_000)
    connections_max_idle_ms: int = key("connections.max.idle.ms", integer(0), 540_000)
    metadata_max_age_ms: int = key(
        "metadata.max.age.ms", integer(1), 300_000, aliases=("topic.metadata.refresh.interval.ms",)
    )
    socket_keepalive_enable: bool = key("socket.keepalive.enable", boolean, False)
    allow_auto_create_topics: bool = key("allow.auto.create.topics", boolean, False, "pc", silent="a")
    error_cb: Callback = key("error_cb", function, None, "pc", silent="a")
    throttle_cb: Callback = key("throttle_cb", function, None, "pc", silent="a")
    stats_cb: Callback = key("stats_cb", function, None, "pc", silent="a")
    statistics_interval_ms: int = key("statistics.interval.ms", integer(0, 86_400_000), 0, "pc", silent="a")
    debug: str = key("debug", _contexts, "")
    logger: Any = key("logger", lambda value: value)
    tls_and_sasl: SecuritySettings = SecuritySettings()
    security: Security = field(default=PLAIN_TEXT, repr=False, compare=False)
    """The TLS context and the login that `tls_and_sasl` describes; the files that it names have been read."""
    explicit: frozenset[str] = frozenset()
    """The keys with effect that the application gave, by their main names."""
    without_effect: tuple[str, ...] = ()
    """The keys that the application gave and that have no effect in this client."""
    _levels: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def parse(cls, given: Mapping[str, object], env: Environment | None = None) -> Self:
        """Parse a configuration. Raises `KafkaException` (_INVALID_ARG) that names the wrong key."""
        values: dict[str, object] = {}
        chosen: dict[str, object] = {}
        without_effect: list[str] = []
        for name, value in _flattened(given).items():
            found = _find(name)
            chosen[name] = parsed = _parse(found, name, value)
            if isinstance(found, Tuning):
                if parsed not in found.followed:
                    without_effect.append(name)
            elif cls.kind in found.clients:
                values[found.name] = parsed
            elif cls.kind not in found.silent and not (cls.kind == "a" and "p" in found.clients):
                without_effect.append(name)
        settings = make_settings(
            cls,
            values,
            env=env or _machine(),
            tls_and_sasl=make_settings(SecuritySettings, values),
            explicit=frozenset(values),
            without_effect=tuple(sorted(without_effect)),
        )
        dependent = settings._check(chosen)
        settings = replace(settings, **dependent, security=make_security(settings.tls_and_sasl))
        settings._turn_on_debug()
        if settings.without_effect:
            logger, named = settings.log(CONFIGURATION_LOGGER), ", ".join(settings.without_effect)
            logger.warning("configuration without effect in this %s: %s", cls.title, named)
        return settings

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """Host and port of each bootstrap server."""
        return parse_addresses(self.bootstrap_servers)

    def log(self, name: str = "") -> logging.Logger:
        """Return the application's logger, or `felice.client`; `name` selects a child of it."""
        base: logging.Logger = self.logger or logging.getLogger("felice.client")
        if not name or not isinstance(base, logging.Logger):
            return base
        if base.manager.loggerDict.get(base.name) is base:
            return base.getChild(name)
        # For a logger created without `getLogger`, a child found by name would not reach its handlers.
        child = logging.Logger(f"{base.name}.{name}", self._levels.get(name, logging.NOTSET))
        child.parent = base
        return child

    def _turn_on_debug(self) -> None:
        """Enable the loggers of the chosen contexts, and disable the others unless the application set their level.

        Otherwise a program whose own logger is at DEBUG would get a line for every request. The lines go to standard
        error if the application has not configured logging.
        """
        contexts = _names_in(self.debug)
        chosen = {DEBUG_CONTEXTS[context] for context in contexts}
        for name in set(DEBUG_CONTEXTS.values()) - {""}:
            level = logging.DEBUG if name in chosen or "all" in contexts else logging.INFO
            self._levels[name] = level
            found = self.log(name)
            if found is self.log():
                continue  # an adapter: the application sets its level
            if level == logging.DEBUG or found.level == logging.NOTSET:
                found.setLevel(level)
        base = self.log()
        if self.debug and not base.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
            base.addHandler(handler)

    def _check(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse two values that contradict each other, as librdkafka or the Java client does.

        `given` has the values that the application chose, also those without effect here, by the names that it used.
        Returns the fields whose defaults depend on other values.
        """
        dependent = self._check_own(given)
        _check_at_most(
            given,
            ("reconnect.backoff.ms", self.reconnect_backoff_ms),
            ("reconnect.backoff.max.ms", self.reconnect_backoff_max_ms),
        )
        if not self.bootstrap_servers:
            raise invalid('"bootstrap.servers" is required: host:port, several separated by commas')
        parse_addresses(self.bootstrap_servers)
        return dependent

    def _check_own(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Check the settings that only this kind of client has; returns the same as `_check`."""
        return {}


@dataclass(frozen=True, slots=True)
class AdminSettings(ClientSettings):
    """The settings of an admin client."""

    kind = "a"
    title = "admin client"


@dataclass(frozen=True, slots=True)
class ProducerSettings(ClientSettings):
    """The settings of a producer."""

    kind = "p"
    title = "producer"

    topic_metadata_propagation_max_ms: int = key(
        "topic.metadata.propagation.max.ms", integer(0), 30_000, "p", silent="ca"
    )
    max_in_flight_requests_per_connection: int = key(
        "max.in.flight.requests.per.connection",
        integer(1, 1_000_000),
        5,
        "p",
        ("max.in.flight",),
        silent="ca",
    )
    acks: int = key("acks", named(_ACKS), -1, "p", ("request.required.acks",))
    enable_idempotence: bool = key("enable.idempotence", boolean, True, "p")
    transactional_id: str | None = key("transactional.id", _name, None, "p")
    transaction_timeout_ms: int = key("transaction.timeout.ms", integer(1), 60_000, "p")
    batch_size: int = key("batch.size", integer(1), 1_000_000, "p")
    batch_num_messages: int = key("batch.num.messages", integer(1, 1_000_000), 10_000, "p")
    linger_ms: float = key("linger.ms", number(0, 900_000), 5.0, "p", ("queue.buffering.max.ms",))
    queue_buffering_max_messages: int = key("queue.buffering.max.messages", integer(0), 100_000, "p")
    queue_buffering_max_kbytes: int = key("queue.buffering.max.kbytes", integer(1), 1_048_576, "p")
    buffer_memory: int | None = key("buffer.memory", integer(1, 2**62), None, "p")
    compression_type: int = key("compression.type", named(_CODECS), 0, "p", ("compression.codec",))
    compression_level: int = key("compression.level", integer(-1, 22), -1, "p")
    message_max_bytes: int = key(
        "message.max.bytes", integer(1), 1_000_000, "p", ("max.request.size",), silent="ca"
    )
    retries: int = key("retries", integer(0), INT_MAX, "p", ("message.send.max.retries",))
    delivery_timeout_ms: int = key("delivery.timeout.ms", integer(0), 300_000, "p", ("message.timeout.ms",))
    partitioner: str | Callable[..., Any] = key("partitioner", _partitioner, "murmur2_random", "p")
    sticky_partitioning_linger_ms: int = key("sticky.partitioning.linger.ms", integer(0), 10, "p")
    on_delivery: Callback = key("on_delivery", function, None, "p", ("dr_cb", "dr_msg_cb"))
    delivery_report_only_error: bool = key("delivery.report.only.error", boolean, False, "p")

    @property
    def level(self) -> int | None:
        """The level of the compression; None is the codec's own."""
        return None if self.compression_level < 0 else self.compression_level

    def _check_own(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        self._check_compression()
        delivery_timeout_ms = self._delivery_timeout_ms(given)
        enable_idempotence = self._is_idempotent()
        self._check_delivery_timeout(given)
        chose_idempotence = "enable.idempotence" in self.explicit or self.transactional_id
        if given.get("queuing.strategy") == "lifo" and enable_idempotence and chose_idempotence:
            raise invalid('"queuing.strategy" must be "fifo" when "enable.idempotence" is true')
        return {
            "allow_auto_create_topics": (
                self.allow_auto_create_topics or "allow.auto.create.topics" not in self.explicit
            ),
            "delivery_timeout_ms": delivery_timeout_ms,
            "enable_idempotence": enable_idempotence,
        }

    def _check_compression(self) -> None:
        highest = _HIGHEST_LEVELS.get(self.compression_type, self.compression_level)
        if self.compression_level > highest:
            given = f'"compression.level" {self.compression_level}'
            raise invalid(f'{given} is above {highest}, the highest of this "compression.type"')

    def _delivery_timeout_ms(self, given: Mapping[str, Any]) -> int:
        """The limit for records: they cannot be delivered after the end of their transaction."""
        if not self.transactional_id:
            if "transaction.timeout.ms" in self.explicit:
                raise invalid('"transaction.timeout.ms" needs "transactional.id"')
            return self.delivery_timeout_ms
        if not self.enable_idempotence:
            raise invalid('"enable.idempotence" must be true when there is a "transactional.id"')
        limit_ms = self.transaction_timeout_ms
        if "delivery.timeout.ms" in self.explicit and not 0 < self.delivery_timeout_ms <= limit_ms:
            raise invalid('"delivery.timeout.ms" must be from 1 to "transaction.timeout.ms"')
        if given.get("socket.timeout.ms", 0) > limit_ms + 100:
            raise invalid('"socket.timeout.ms" must be at most "transaction.timeout.ms" + 100')
        return min(self.delivery_timeout_ms, limit_ms)

    def _is_idempotent(self) -> bool:
        broken = None
        if self.acks != -1:
            broken = '"acks" must be "all"'
        elif self.max_in_flight_requests_per_connection > 5:
            broken = '"max.in.flight.requests.per.connection" must be at most 5'
        elif self.retries == 0:
            broken = '"retries" must be above 0'
        if not broken or not self.enable_idempotence:
            return self.enable_idempotence
        if "enable.idempotence" in self.explicit:
            raise invalid(f'{broken} when "enable.idempotence" is true')
        if self.transactional_id:
            raise invalid(f'{broken} when there is a "transactional.id"')
        # KIP-679: a default must not overrule an explicit setting.
        return False

    def _check_delivery_timeout(self, given: Mapping[str, Any]) -> None:
        limit_ms = self.delivery_timeout_ms
        if not limit_ms or "delivery.timeout.ms" not in self.explicit:
            return
        if "linger.ms" in self.explicit and limit_ms <= self.linger_ms:
            raise invalid('"delivery.timeout.ms" must be above "linger.ms"')
        # Java's rule, for programs that use Java's names: librdkafka lets message.timeout.ms end a request earlier.
        request_ms = given.get("request.timeout.ms")
        if "delivery.timeout.ms" in given and request_ms and limit_ms < self.linger_ms + request_ms:
            raise invalid('"delivery.timeout.ms" must be at least "linger.ms" + "request.timeout.ms"')


@dataclass(frozen=True, slots=True)
class ConsumerSettings(ClientSettings):
    """The settings of a consumer."""

    kind = "c"
    title = "consumer"

    client_rack: str = key("client.rack", text, "", "c", silent="pa")
    group_id: str = key("group.id", text, "", "c")
    group_instance_id: str | None = key("group.instance.id", text, None, "c")
    group_protocol: str = key("group.protocol", one_of("classic", "consumer"), "classic", "c")
    group_remote_assignor: str | None = key("group.remote.assignor", text, None, "c")
    session_timeout_ms: int = key("session.timeout.ms", integer(1), 45_000, "c")
    heartbeat_interval_ms: int = key("heartbeat.interval.ms", integer(1), 3_000, "c")
    max_poll_interval_ms: int = key("max.poll.interval.ms", integer(1), 300_000, "c")
    partition_assignment_strategy: tuple[str, ...] = key(
        "partition.assignment.strategy", _assignors, ("range", "roundrobin"), "c"
    )
    enable_auto_commit: bool = key("enable.auto.commit", boolean, True, "c")
    auto_commit_interval_ms: int = key("auto.commit.interval.ms", integer(1), 5_000, "c")
    enable_auto_offset_store: bool = key("enable.auto.offset.store", boolean, True, "c")
    auto_offset_reset: str = key("auto.offset.reset", named(_RESETS), "latest", "c")
    fetch_min_bytes: int = key("fetch.min.bytes", integer(1), 1, "c")
    fetch_max_bytes: int = key("fetch.max.bytes", integer(1), 52_428_800, "c")
    fetch_wait_max_ms: int = key("fetch.wait.max.ms", integer(0), 500, "c", ("fetch.max.wait.ms",))
    fetch_error_backoff_ms: int = key("fetch.error.backoff.ms", integer(1), 500, "c")
    max_partition_fetch_bytes: int = key(
        "max.partition.fetch.bytes", integer(1), 1_048_576, "c", ("fetch.message.max.bytes",)
    )
    queued_min_messages: int = key("queued.min.messages", integer(1), 100_000, "c")
    queued_max_messages_kbytes: int = key("queued.max.messages.kbytes", integer(1), 65_536, "c")
    isolation_level: int = key("isolation.level", named(_ISOLATION), 1, "c")
    enable_partition_eof: bool = key("enable.partition.eof", boolean, False, "c")
    check_crcs: bool = key("check.crcs", boolean, True, "c")
    on_commit: Callback = key("on_commit", function, None, "c")

    def _check_own(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        if given.get("message.max.bytes", 0) > self.fetch_max_bytes:
            raise invalid('"message.max.bytes" must not be above "fetch.max.bytes"')
        if given.get("receive.message.max.bytes", INT_MAX) < self.fetch_max_bytes + _RESPONSE_OVERHEAD:
            raise invalid('"receive.message.max.bytes" must be at least "fetch.max.bytes" + 512')
        return self._check_classic(given) if self.group_protocol == "classic" else self._check_epochs(given)

    def _check_classic(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        _check_at_most(
            given,
            ("session.timeout.ms", self.session_timeout_ms),
            ("max.poll.interval.ms", self.max_poll_interval_ms),
        )
        dependent: dict[str, Any] = {}
        if self.group_remote_assignor:
            dependent["without_effect"] = tuple(sorted((*self.without_effect, "group.remote.assignor")))
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            if "heartbeat.interval.ms" in self.explicit:
                raise invalid('"heartbeat.interval.ms" must be less than "session.timeout.ms"')
            dependent["heartbeat_interval_ms"] = max(1, self.session_timeout_ms // 3)
        return dependent

    def _check_epochs(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        for name, why in _CLASSIC_ONLY.items():
            if name in given:
                raise invalid(f"`{name}` is not supported for `group.protocol=consumer`{why}")
        return {}


_SETTINGS_CLASSES = (ClientSettings, SecuritySettings, ProducerSettings, ConsumerSettings)
KEYS = tuple({found.name: found for each in _SETTINGS_CLASSES for found in keys_of(each)}.values())
_BY_NAME = {name: found for found in KEYS for name in (found.name, *found.aliases)}


def _check_at_most(given: Mapping[str, Any], low: tuple[str, int], high: tuple[str, int]) -> None:
    if low[1] > high[1] and (low[0] in given or high[0] in given):
        raise invalid(f'"{low[0]}" ({low[1]}) must not be above "{high[0]}" ({high[1]})')


def _flattened(given: Mapping[str, object]) -> dict[str, object]:
    """Drop values that are None, and merge `default.topic.config`, whose keys have lower priority."""
    nested = given.get("default.topic.config") or {}
    if not isinstance(nested, Mapping):
        raise invalid('Configuration property "default.topic.config": expected a dict')
    flat = {**nested, **{name: given[name] for name in given if name != "default.topic.config"}}
    return {name: value for name, value in flat.items() if value is not None}


def _machine() -> Environment:
    # Randomness for jitter and partitioning, used up to once per record: not for secrets, so without system calls.
    return replace(Environment.system(), random=Random())


def _find(name: str) -> Key | Tuning:
    found = _BY_NAME.get(name) or TUNING.get(name)
    if found is not None:
        return found
    if str(name).startswith(UNSUPPORTED):
        raise invalid(f'Configuration property "{name}" is not supported by this client')
    near = difflib.get_close_matches(str(name), [*_BY_NAME, *TUNING], n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise invalid(f'No such configuration property: "{name}"{hint}')


def _parse(found: Key | Tuning, name: str, value: object) -> object:
    try:
        return found.parse(value)
    except (ValueError, TypeError, AttributeError) as error:
        shown = "[hidden]" if isinstance(found, Key) and found.secret else repr(value)
        raise invalid(f'Invalid value {shown} for configuration property "{name}": {error}') from None


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Parse `host:port,host:port`; a scheme such as `PLAINTEXT://` is allowed, the port defaults to 9092.

    As in librdkafka, an IPv6 address before a port is in brackets.
    """
    addresses = [_parse_address(part) for part in filter(None, (piece.strip() for piece in text.split(",")))]
    if not addresses:
        raise invalid('"bootstrap.servers" names no address')
    return addresses


def _parse_address(text: str) -> tuple[str, int]:
    address = text.rpartition("://")[2]
    if _is_ipv6(address):
        return address, _DEFAULT_PORT
    found = _HOST_AND_PORT.fullmatch(address)
    if found is not None and (found["ipv6"] is None or _is_ipv6(found["ipv6"])):
        port = int(found["port"] or _DEFAULT_PORT)
        if 0 < port < 65536:
            return found["ipv6"] or found["name"], port
    raise invalid(f'"bootstrap.servers": {text!r} is not host:port')


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True
