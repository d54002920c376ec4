"""Names that Kafka knows and that mean nothing here, so that a warning can tell them from a slip of the pen.

Prefixes stand for their families: thread pools and purgatories of the JVM broker, KRaft, security and quotas
that are not built.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_PREFIXES = (
    "alter.", "auto.leader.", "authorizer.", "background.", "broker.heartbeat.", "broker.id.generation.",
    "broker.session.", "client.quota.", "compression.gzip.", "compression.lz4.", "compression.zstd.",
    "confluent.", "connection.failed.", "connections.max.reauth", "control.plane.", "controlled.shutdown.",
    "controller.", "create.topic.", "delegation.token.", "early.start.", "eligible.leader.", "fetch.purgatory.",
    "follower.", "group.consumer.", "group.coordinator.", "group.share.", "group.streams.",
    "initial.broker.", "inter.broker.", "kafka.metrics.", "leader.", "log.cleaner.", "log.dir.failure.",
    "log.initial.", "log.local.", "log.message.", "max.connection.creation", "metadata.", "metric", "num.",
    "offsets.", "password.encoder.", "principal.", "process.roles", "producer.purgatory.", "queued.",
    "quota.", "remote.", "replica.", "request.timeout", "reserved.", "sasl.", "security.", "server.max.",
    "share.coordinator.", "socket.", "ssl.", "super.users", "telemetry.", "transaction.", "transactional.",
    "unclean.leader.", "unstable.", "zookeeper.",
)  # fmt: skip


def is_kafkas(name: str) -> bool:
    """Whether an option that Felice does not have looks like one of Kafka's."""
    return name.startswith(_PREFIXES) or name.startswith("listener.name.")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The option that was probably meant."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.85)
    return found[0] if found else None
