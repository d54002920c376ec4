"""The keys of Java's clients in properties of tools and of Connect, converted for this client.

Keeps true: a key that Kafka documents for producers, consumers and admin clients has its effect, or it only tunes
            Java's clients and is accepted and named, or it is refused with the reason. A key that decides which
            records are read, where they go, or who may read them is never accepted without effect. A test compares the
            table with the keys of Kafka's own jars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from felice.client.error import KafkaError, KafkaException, failure

# They tune the threads, buffers, classes, metrics and logins of Java's clients.
WITHOUT_EFFECT = frozenset(
    {
        "auto.include.jmx.reporter",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "internal.leave.group.on.close",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "security.providers",
        "share.acknowledgement.mode",
        "share.acquire.mode",
        "socket.connection.setup.timeout.max.ms",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "value.deserializer",
        "value.serializer",
    }
)

_JAVA_CLASS = "names a Java class, which Felice cannot load"
# An empty value, or the value beside it, asks for what happens anyway.
_REFUSED: Mapping[str, tuple[str, str]] = {
    "bootstrap.controllers": ("there are no controllers to connect to", ""),
    "interceptor.classes": (_JAVA_CLASS, ""),
    "sasl.client.callback.handler.class": (_JAVA_CLASS, ""),
    "sasl.login.callback.handler.class": (_JAVA_CLASS, ""),
    "sasl.login.class": (_JAVA_CLASS, ""),
    "ssl.engine.factory.class": (_JAVA_CLASS, ""),
    "transaction.two.phase.commit.enable": ("Felice has no two-phase commit", "false"),
}

_PARTITIONERS = {
    "": "murmur2_random",
    "null": "murmur2_random",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "murmur2_random",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "sticky",
}
_ASSIGNORS = {
    "CooperativeStickyAssignor": "cooperative-sticky",
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
}
_ASSIGNOR_PACKAGE = "org.apache.kafka.clients.consumer."
_OAUTH = "sasl.oauthbearer."
_LEVEL = "compression.{}.level"
_LEVELS = {_LEVEL.format(codec): codec for codec in ("gzip", "lz4", "zstd")}


def convert_java_keys(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The properties for Felice's client, and the keys that have no effect here: tell the user about them.

    Raises `KafkaException` (_INVALID_ARG) for keys that cannot be followed.
    """
    found: dict[str, str] = {}
    without_effect: list[str] = []
    for name, value in given.items():
        if name in _CONVERTED:
            found.update(_CONVERTED[name](name, value.strip(), given))
        elif name in _REFUSED:
            reason, harmless = _REFUSED[name]
            if value.strip().lower() not in ("", harmless):
                raise _refusal(name, reason)
        elif name in WITHOUT_EFFECT or (name.startswith(_OAUTH) and not _uses_oauth(given, name)):
            without_effect.append(name)
        else:
            found[name] = value
    return found, without_effect


def _refusal(name: str, reason: str) -> KafkaException:
    return failure(KafkaError._INVALID_ARG, f"configuration property {name!r}: {reason}")


def _uses_oauth(given: Mapping[str, str], name: str) -> bool:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or ""
    return name == f"{_OAUTH}config" or mechanism.strip().upper() == "OAUTHBEARER"


def _partitioner(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    if value not in _PARTITIONERS:
        known = ", ".join(sorted(filter(lambda text: "." in text, _PARTITIONERS)))
        raise _refusal(name, f"there is no partitioner {value!r}; there are {known}")
    # Without a class, another key may have chosen.
    return {"partitioner": _PARTITIONERS[value]} if "." in value else {}


def _ignore_keys(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    if value.lower() not in ("true", "false"):
        raise _refusal(name, f"expected true or false, got {value!r}")
    # A partitioner's class takes its own decision, in Java too.
    chosen = "partitioner" in given or "." in given.get("partitioner.class", "")
    return {"partitioner": "sticky"} if value.lower() == "true" and not chosen else {}


def _level(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    """The level of one codec, if that codec is chosen."""
    codec = given.get("compression.type", given.get("compression.codec", "none")).strip().lower()
    return {"compression.level": value} if _LEVELS[name] == codec else {}


def _assignors(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    """Java's classes by the names of the client."""
    classes = [text.strip() for text in value.split(",") if text.strip()]
    names = [_ASSIGNORS.get(text.removeprefix(_ASSIGNOR_PACKAGE), text) for text in classes]
    if any(text.startswith(_ASSIGNOR_PACKAGE) for text in classes) and len(set(names)) > 1:
        # Java's default, range and cooperative-sticky, stands for range until the second takes over.
        names = [text for text in names if text != "cooperative-sticky"]
    return {name: ",".join(names)}


def _idle(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    """No limit is any negative number in Java, and 0 in librdkafka."""
    return {name: "0" if value.startswith("-") and value[1:].isdecimal() else value}


def _reset(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    if value.lower().startswith("by_duration:"):
        raise _refusal(
            name,
            "Felice's consumer cannot begin at a duration ago; set the offsets of the group with "
            "kafka-consumer-groups --reset-offsets --by-duration",
        )
    return {name: value}


_CONVERTED: Mapping[str, Callable[[str, str, Mapping[str, str]], dict[str, str]]] = {
    **dict.fromkeys(_LEVELS, _level),
    "auto.offset.reset": _reset,
    "connections.max.idle.ms": _idle,
    "partition.assignment.strategy": _assignors,
    "partitioner.class": _partitioner,
    "partitioner.ignore.keys": _ignore_keys,
}


def is_known(name: str) -> bool:
    """Whether the conversion has a rule for the key."""
    return name in WITHOUT_EFFECT or name in _REFUSED or name in _CONVERTED or name.startswith(_OAUTH)
