"""All configuration keys of the client, as data, and their parsing.

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
from dataclasses import replace
from ipaddress import IPv6Address
from math import nan
from random import Random
from typing import Any, cast

from felice.client.error import KafkaError, failure
from felice.client.security import MECHANISMS, PLAIN_TEXT, PROTOCOLS, SECRETS, TEXT_KEYS, make_security
from felice.client.tuning import TUNING, UNSUPPORTED, Tuning, whole_number
from felice.dataclass import dataclass
from felice.env import Environment

_INT_MAX = 2**31 - 1
# The room that librdkafka leaves in a response beside its records.
_RESPONSE_OVERHEAD = 512
_DEFAULT_PORT = 9092
_HOST_AND_PORT = re.compile(r"(\[(?P<ipv6>[^\[\]]+)\]|(?P<name>[^\[\]:]+))(:(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key. `clients` holds p, c or a for each kind of client in which the key has an effect, `silent`
    those of the other kinds in which librdkafka accepts it without a warning."""

    name: str
    parse: Callable[[object], object]
    default: object
    clients: str = "pca"
    aliases: tuple[str, ...] = ()
    silent: str = ""


def _integer(low: int, high: int = _INT_MAX) -> Callable[[object], int]:
    def parse(value: object) -> int:
        number = whole_number(value)
        if number is None or not low <= number <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return number

    return parse


def _number(low: float, high: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        try:
            number = float(str(value).strip())
        except ValueError:
            number = nan
        if not low <= number <= high:
            raise ValueError(f"expected a number from {low} to {high}")
        return number

    return parse


def _boolean(value: object) -> bool:
    text = str(value).strip().lower()
    if text in ("true", "1", "t"):
        return True
    if text in ("false", "0", "f"):
        return False
    raise ValueError("expected true or false")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("expected a string that UTF-8 can encode") from None
    return value


def _name(value: object) -> str:
    if not _text(value):
        raise ValueError("expected a name")
    return _text(value)


def _named(**values: object) -> Callable[[object], object]:
    """Parse one of several names, each of which stands for a value."""

    def parse(value: object) -> object:
        text = str(value).strip().lower()
        if text not in values:
            raise ValueError(f"expected one of {', '.join(values)}")
        return values[text]

    return parse


def _function(value: object) -> object:
    if not callable(value):
        raise ValueError("expected a callable")
    return value


def _partitioner(value: object) -> object:
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


def _upper_of(*names: str) -> Callable[[object], str]:
    """Parse one of several names in capitals; the case of the value does not matter."""

    def parse(value: object) -> str:
        name = str(value).strip().upper()
        if name not in names:
            raise ValueError(f"expected one of {', '.join(names)}")
        return name

    return parse


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
    names = _names_in(_text(value))
    unknown = [name for name in names if name not in DEBUG_CONTEXTS]
    if unknown:
        raise ValueError(f"expected a comma-separated list of {', '.join(DEBUG_CONTEXTS)}")
    return ",".join(names)


def _names_in(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


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

_IDENTIFICATION = {"https": "https", "none": "none", "": "none"}
_ACKS = {"-1": -1, "all": -1, "0": 0, "1": 1}
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
# The highest compression.level of gzip, lz4 and zstd. snappy has no levels.
_HIGHEST_LEVELS = {1: 9, 3: 17, 4: 22}
_RESETS = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), "earliest"),
    **dict.fromkeys(("latest", "largest", "end"), "latest"),
    **dict.fromkeys(("error", "none"), "error"),
}

KEYS = (
    Key("bootstrap.servers", _text, "", aliases=("metadata.broker.list",)),
    Key("client.id", _text, "felice"),
    Key("client.rack", _text, "", "c", silent="pa"),
    Key("security.protocol", _upper_of(*PROTOCOLS), "PLAINTEXT"),
    Key("sasl.mechanism", _upper_of(*MECHANISMS), None, aliases=("sasl.mechanisms",)),
    Key("ssl.endpoint.identification.algorithm", _named(**_IDENTIFICATION), "https"),
    Key("enable.ssl.certificate.verification", _boolean, True),
    Key("oauth_cb", _function, None),
    *(Key(name, _text, None) for name in TEXT_KEYS),
    Key("request.timeout.ms", _integer(1), 30_000, aliases=("socket.timeout.ms",)),
    Key("socket.connection.setup.timeout.ms", _integer(1), 30_000),
    Key("socket.send.buffer.bytes", _integer(-1), -1, aliases=("send.buffer.bytes",)),
    Key("socket.receive.buffer.bytes", _integer(-1), -1, aliases=("receive.buffer.bytes",)),
    Key("reconnect.backoff.ms", _integer(0), 100),
    Key("reconnect.backoff.max.ms", _integer(0), 10_000),
    Key("retry.backoff.ms", _integer(1), 100),
    Key("retry.backoff.max.ms", _integer(1), 1_000),
    Key("connections.max.idle.ms", _integer(0), 540_000),
    Key("metadata.max.age.ms", _integer(1), 300_000, aliases=("topic.metadata.refresh.interval.ms",)),
    Key("topic.metadata.propagation.max.ms", _integer(0), 30_000, "p", silent="ca"),
    Key("max.in.flight.requests.per.connection", _integer(1, 1_000_000), 5, "p", ("max.in.flight",), "ca"),
    Key("socket.keepalive.enable", _boolean, False),
    Key("allow.auto.create.topics", _boolean, False, "pc", silent="a"),
    Key("error_cb", _function, None, "pc", silent="a"),
    Key("throttle_cb", _function, None, "pc", silent="a"),
    Key("stats_cb", _function, None, "pc", silent="a"),
    Key("statistics.interval.ms", _integer(0, 86_400_000), 0, "pc", silent="a"),
    Key("debug", _contexts, ""),
    Key("logger", lambda value: value, None),
    # Producer
    Key("acks", lambda value: _named(**_ACKS)(value), -1, "p", ("request.required.acks",)),
    Key("enable.idempotence", _boolean, True, "p"),
    Key("transactional.id", _name, None, "p"),
    Key("transaction.timeout.ms", _integer(1), 60_000, "p"),
    Key("batch.size", _integer(1), 1_000_000, "p"),
    Key("batch.num.messages", _integer(1, 1_000_000), 10_000, "p"),
    Key("linger.ms", _number(0, 900_000), 5.0, "p", ("queue.buffering.max.ms",)),
    Key("queue.buffering.max.messages", _integer(0), 100_000, "p"),
    Key("queue.buffering.max.kbytes", _integer(1), 1_048_576, "p"),
    Key("buffer.memory", _integer(1, 2**62), None, "p"),
    Key("compression.type", _named(**_CODECS), 0, "p", ("compression.codec",)),
    Key("compression.level", _integer(-1, 22), -1, "p"),
    Key("message.max.bytes", _integer(1), 1_000_000, "p", ("max.request.size",), "ca"),
    Key("retries", _integer(0), _INT_MAX, "p", ("message.send.max.retries",)),
    Key("delivery.timeout.ms", _integer(0), 300_000, "p", ("message.timeout.ms",)),
    Key("partitioner", _partitioner, "murmur2_random", "p"),
    Key("sticky.partitioning.linger.ms", _integer(0), 10, "p"),
    Key("on_delivery", _function, None, "p", ("dr_cb", "dr_msg_cb")),
    Key("delivery.report.only.error", _boolean, False, "p"),
    # Consumer
    Key("group.id", _text, None, "c"),
    Key("group.instance.id", _text, None, "c"),
    Key("group.protocol", _named(classic="classic"), "classic", "c"),
    Key("session.timeout.ms", _integer(1), 45_000, "c"),
    Key("heartbeat.interval.ms", _integer(1), 3_000, "c"),
    Key("max.poll.interval.ms", _integer(1), 300_000, "c"),
    Key("partition.assignment.strategy", _assignors, ("range", "roundrobin"), "c"),
    Key("enable.auto.commit", _boolean, True, "c"),
    Key("auto.commit.interval.ms", _integer(1), 5_000, "c"),
    Key("enable.auto.offset.store", _boolean, True, "c"),
    Key("auto.offset.reset", _named(**_RESETS), "latest", "c"),
    Key("fetch.min.bytes", _integer(1), 1, "c"),
    Key("fetch.max.bytes", _integer(1), 52_428_800, "c"),
    Key("fetch.wait.max.ms", _integer(0), 500, "c", ("fetch.max.wait.ms",)),
    Key("fetch.error.backoff.ms", _integer(1), 500, "c"),
    Key("max.partition.fetch.bytes", _integer(1), 1_048_576, "c", ("fetch.message.max.bytes",)),
    Key("queued.min.messages", _integer(1), 100_000, "c"),
    Key("queued.max.messages.kbytes", _integer(1), 65_536, "c"),
    Key("isolation.level", _named(read_uncommitted=0, read_committed=1), 1, "c"),
    Key("enable.partition.eof", _boolean, False, "c"),
    Key("check.crcs", _boolean, True, "c"),
    Key("on_commit", _function, None, "c"),
)

# The child of the client's logger that warns of keys without effect.
CONFIGURATION_LOGGER = "configuration"

_BY_NAME = {name: key for key in KEYS for name in (key.name, *key.aliases)}
_CLIENTS = {"p": "producer", "c": "consumer", "a": "admin client"}


class Settings(dict[str, Any]):
    """Parsed values by the key's main name, including defaults. The key decides the type of its value."""

    def __init__(self, kind: str, values: Mapping[str, object], explicit: set[str], env: Environment) -> None:
        super().__init__(values)
        self.kind = kind
        self.explicit = explicit
        # The client's source of network, wall time and randomness.
        self.env = env
        # Keys that were given and have no effect in this client.
        self.without_effect: tuple[str, ...] = ()
        self.security = PLAIN_TEXT
        self._levels: dict[str, int] = {}

    def logger(self, name: str = "") -> logging.Logger:
        """Return the application's logger, or `felice.client`; `name` selects a child of it."""
        base: logging.Logger = self["logger"] or logging.getLogger("felice.client")
        if not name or not isinstance(base, logging.Logger):
            return base
        if base.manager.loggerDict.get(base.name) is base:
            return base.getChild(name)
        # For a logger created without `getLogger`, a child found by name would not reach its handlers.
        child = logging.Logger(f"{base.name}.{name}", self._levels.get(name, logging.NOTSET))
        child.parent = base
        return child

    def turn_on_debug(self) -> None:
        """Enable the loggers of the chosen contexts, and disable the others unless the application set their level.

        Otherwise a program whose own logger is at DEBUG would get a line for every request.
        """
        chosen = {DEBUG_CONTEXTS[context] for context in _names_in(self["debug"])}
        for name in set(DEBUG_CONTEXTS.values()) - {""}:
            level = logging.DEBUG if name in chosen or "all" in _names_in(self["debug"]) else logging.INFO
            self._levels[name] = level
            found = self.logger(name)
            if found is self.logger():
                continue  # an adapter: the application sets its level
            if level == logging.DEBUG or found.level == logging.NOTSET:
                found.setLevel(level)

    def __repr__(self) -> str:
        """The values without passwords and keys."""
        return repr({name: "[hidden]" if name in SECRETS else value for name, value in self.items()})

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """Host and port of each bootstrap server."""
        return parse_addresses(self["bootstrap.servers"])


def parse_settings(kind: str, given: Mapping[str, object], env: Environment | None = None) -> Settings:
    """Parse a configuration. `kind` is p, c or a. Raises `KafkaException` (_INVALID_ARG) that names the wrong key."""
    values = {key.name: key.default for key in KEYS if kind in key.clients}
    if kind == "p":
        values["allow.auto.create.topics"] = True
    explicit: set[str] = set()
    chosen: dict[str, object] = {}
    without_effect: list[str] = []
    for name, value in _flattened(given).items():
        key = _find(name)
        chosen[name] = parsed = _parse(key.parse, name, value)
        if isinstance(key, Tuning):
            if parsed not in key.followed:
                without_effect.append(name)
        elif kind in key.clients:
            values[key.name] = parsed
            explicit.add(key.name)
        elif kind not in key.silent and not (kind == "a" and "p" in key.clients):
            without_effect.append(name)
    settings = Settings(kind, values, explicit, env or _machine())
    _check(settings, chosen)
    settings.security = make_security(settings)
    settings.without_effect = tuple(sorted(without_effect))
    _turn_on_debug(settings)
    if without_effect:
        named = ", ".join(settings.without_effect)
        logger = settings.logger(CONFIGURATION_LOGGER)
        logger.warning("configuration without effect in this %s: %s", _CLIENTS[kind], named)
    return settings


def _turn_on_debug(settings: Settings) -> None:
    """Set up the loggers. `debug` writes to standard error if the application has not configured logging."""
    settings.turn_on_debug()
    base = settings.logger()
    if settings["debug"] and not base.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        base.addHandler(handler)


def _flattened(given: Mapping[str, object]) -> dict[str, object]:
    """Drop values that are None, and merge `default.topic.config`, whose keys have lower priority."""
    nested = given.get("default.topic.config") or {}
    if not isinstance(nested, Mapping):
        raise _invalid('Configuration property "default.topic.config": expected a dict')
    flat = {**nested, **{name: given[name] for name in given if name != "default.topic.config"}}
    return {name: value for name, value in flat.items() if value is not None}


def _machine() -> Environment:
    # Randomness for jitter and partitioning, used up to once per record: not for secrets, so without system calls.
    return replace(Environment.system(), random=Random())


def _find(name: str) -> Key | Tuning:
    key = _BY_NAME.get(name) or TUNING.get(name)
    if key is not None:
        return key
    if str(name).startswith(UNSUPPORTED):
        raise _invalid(f'Configuration property "{name}" is not supported by this client')
    near = difflib.get_close_matches(str(name), [*_BY_NAME, *TUNING], n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise _invalid(f'No such configuration property: "{name}"{hint}')


def _parse(parse: Callable[[object], object], name: str, value: object) -> object:
    try:
        return parse(value)
    except (ValueError, TypeError, AttributeError) as error:
        shown = "[hidden]" if name in SECRETS else repr(value)
        raise _invalid(f'Invalid value {shown} for configuration property "{name}": {error}') from None


def _check(settings: Settings, given: Mapping[str, Any]) -> None:
    if settings.kind == "p":
        _check_producer(settings, given)
    _check_pairs(settings, given)
    if settings.kind == "c" and settings["heartbeat.interval.ms"] >= settings["session.timeout.ms"]:
        if "heartbeat.interval.ms" in settings.explicit:
            raise _invalid('"heartbeat.interval.ms" must be less than "session.timeout.ms"')
        settings["heartbeat.interval.ms"] = max(1, settings["session.timeout.ms"] // 3)
    if not settings["bootstrap.servers"]:
        raise _invalid('"bootstrap.servers" is required: host:port, several separated by commas')
    parse_addresses(settings["bootstrap.servers"])


def _check_pairs(settings: Settings, given: Mapping[str, Any]) -> None:
    """Refuse two values that contradict each other, as librdkafka or the Java client does.

    `given` has the values that the application chose, also those without effect here, by the names that it used.
    """
    if settings.kind == "p":
        _check_delivery_timeout(settings, given)
        chose_idempotence = "enable.idempotence" in settings.explicit or settings["transactional.id"]
        if given.get("queuing.strategy") == "lifo" and settings["enable.idempotence"] and chose_idempotence:
            raise _invalid('"queuing.strategy" must be "fifo" when "enable.idempotence" is true')
    if settings.kind == "c":
        _check_at_most(given, settings, "session.timeout.ms", "max.poll.interval.ms")
        largest = settings["fetch.max.bytes"]
        if given.get("message.max.bytes", 0) > largest:
            raise _invalid('"message.max.bytes" must not be above "fetch.max.bytes"')
        if given.get("receive.message.max.bytes", _INT_MAX) < largest + _RESPONSE_OVERHEAD:
            raise _invalid('"receive.message.max.bytes" must be at least "fetch.max.bytes" + 512')
    _check_at_most(given, settings, "reconnect.backoff.ms", "reconnect.backoff.max.ms")


def _check_at_most(given: Mapping[str, Any], settings: Settings, low: str, high: str) -> None:
    if settings[low] > settings[high] and (low in given or high in given):
        raise _invalid(f'"{low}" ({settings[low]}) must not be above "{high}" ({settings[high]})')


def _check_delivery_timeout(settings: Settings, given: Mapping[str, Any]) -> None:
    limit_ms, linger_ms = settings["delivery.timeout.ms"], settings["linger.ms"]
    if not limit_ms or "delivery.timeout.ms" not in settings.explicit:
        return
    if "linger.ms" in settings.explicit and limit_ms <= linger_ms:
        raise _invalid('"delivery.timeout.ms" must be above "linger.ms"')
    # Java's rule, for programs that use Java's names: librdkafka lets message.timeout.ms end a request earlier.
    request_ms = given.get("request.timeout.ms")
    if "delivery.timeout.ms" in given and request_ms and limit_ms < linger_ms + request_ms:
        raise _invalid('"delivery.timeout.ms" must be at least "linger.ms" + "request.timeout.ms"')


def _check_producer(settings: Settings, given: Mapping[str, Any]) -> None:
    _check_compression(settings)
    if settings["transactional.id"]:
        _check_transactional(settings, given)
    elif "transaction.timeout.ms" in settings.explicit:
        raise _invalid('"transaction.timeout.ms" needs "transactional.id"')
    broken = None
    if settings["acks"] != -1:
        broken = '"acks" must be "all"'
    elif settings["max.in.flight.requests.per.connection"] > 5:
        broken = '"max.in.flight.requests.per.connection" must be at most 5'
    elif settings["retries"] == 0:
        broken = '"retries" must be above 0'
    if not broken or not settings["enable.idempotence"]:
        return
    if "enable.idempotence" in settings.explicit:
        raise _invalid(f'{broken} when "enable.idempotence" is true')
    if settings["transactional.id"]:
        raise _invalid(f'{broken} when there is a "transactional.id"')
    # KIP-679: a default must not overrule an explicit setting.
    settings["enable.idempotence"] = False


def _check_compression(settings: Settings) -> None:
    codec, level = settings["compression.type"], settings["compression.level"]
    highest = _HIGHEST_LEVELS.get(codec, level)
    if level > highest:
        raise _invalid(
            f'"compression.level" {level} is above {highest}, the highest of this "compression.type"'
        )


def _check_transactional(settings: Settings, given: Mapping[str, Any]) -> None:
    if not settings["enable.idempotence"]:
        raise _invalid('"enable.idempotence" must be true when there is a "transactional.id"')
    limit_ms = settings["transaction.timeout.ms"]
    if "delivery.timeout.ms" not in settings.explicit:
        # A record cannot be delivered after the end of its transaction.
        settings["delivery.timeout.ms"] = min(settings["delivery.timeout.ms"], limit_ms)
    elif not 0 < settings["delivery.timeout.ms"] <= limit_ms:
        raise _invalid('"delivery.timeout.ms" must be from 1 to "transaction.timeout.ms"')
    if given.get("socket.timeout.ms", 0) > limit_ms + 100:
        raise _invalid('"socket.timeout.ms" must be at most "transaction.timeout.ms" + 100')


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Parse `host:port,host:port`; a scheme such as `PLAINTEXT://` is allowed, the port defaults to 9092.

    As in librdkafka, an IPv6 address before a port is in brackets.
    """
    addresses = [_parse_address(part) for part in filter(None, (piece.strip() for piece in text.split(",")))]
    if not addresses:
        raise _invalid('"bootstrap.servers" names no address')
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
    raise _invalid(f'"bootstrap.servers": {text!r} is not host:port')


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def _invalid(reason: str) -> Exception:
    return failure(KafkaError._INVALID_ARG, reason)
