"""Options of Kafka that have no effect in Felice, but that tools read or set.

Keeps true: the values that DescribeConfigs shows for these options are true of every Felice broker. No configuration
            changes the values in `FIXED`. Options in `SETTABLE` may be set in the file or at run time, as with Kafka:
            the value is checked and shown, and a warning says that it has no effect. Their defaults describe how
            Felice behaves.
"""

from __future__ import annotations

from felice.config.option import Kind, Option, OptionValue, Scope


def _fixed(name: str, kind: Kind, value: OptionValue, doc: str) -> Option:
    return Option(name, kind, value, doc)


def _settable(name: str, kind: Kind, default: OptionValue, doc: str, minimum: float | None = None) -> Option:
    return Option(name, kind, default, doc, scope=Scope.CLUSTER_WIDE, minimum=minimum)


def _threads(name: str, work: str) -> Option:
    return _settable(name, Kind.INT, None, f"Kafka's threads for {work}; Felice uses one event loop.", 1)


def _tiered(name: str, kind: Kind, minimum: float | None = 1) -> Option:
    return _settable(name, kind, None, "Part of tiered storage, which is not supported.", minimum)


_FIXED = (
    _fixed("alter.config.policy.class.name", Kind.CLASS, None, "A policy for configurations; not supported."),
    _fixed("client.quota.callback.class", Kind.CLASS, None, "A plugin for client quotas; not supported."),
    _fixed("cordoned.log.dirs", Kind.LIST, (), "Directories that take no new partitions; not supported."),
    _fixed("create.topic.policy.class.name", Kind.CLASS, None, "A policy for new topics; not supported."),
    _fixed(
        "follower.fetch.last.tiered.offset.enable",
        Kind.BOOLEAN,
        False,
        "Part of tiered storage; not supported.",
    ),
    _fixed(
        "group.coordinator.rebalance.protocols",
        Kind.LIST,
        ("classic", "consumer"),
        "The supported group protocols.",
    ),
    _fixed(
        "inter.broker.protocol.version",
        Kind.STRING,
        "4.3-IV0",
        "The Kafka release whose protocol the brokers speak. Kafka showed it up to 3.9; consoles still read it.",
    ),
    _fixed(
        "remote.log.storage.system.enable",
        Kind.BOOLEAN,
        False,
        "Whether there is tiered storage; not supported.",
    ),
    _fixed(
        "socket.receive.buffer.bytes",
        Kind.INT,
        -1,
        "The receive buffer of sockets; -1: the operating system decides.",
    ),
    _fixed(
        "transaction.two.phase.commit.enable",
        Kind.BOOLEAN,
        False,
        "Two-phase commit (KIP-939); not supported.",
    ),
)

_SETTABLE = (
    _threads("background.threads", "tasks in the background"),
    _threads("num.io.threads", "requests"),
    _threads("num.network.threads", "connections"),
    _settable(
        "metric.reporters", Kind.LIST, (), "Classes that report metrics; Felice cannot run Java plugins."
    ),
    _settable(
        "group.coordinator.cached.buffer.max.bytes",
        Kind.INT,
        None,
        "The buffer of Kafka's group coordinator; Felice has none.",
        512 * 1024,
    ),
    _settable(
        "share.coordinator.cached.buffer.max.bytes",
        Kind.INT,
        None,
        "The buffer of Kafka's share coordinator; share groups are not supported.",
        512 * 1024,
    ),
    *(
        _settable(
            f"group.{kind}.assignment.interval.ms",
            Kind.INT,
            None,
            f"How often Kafka assigns partitions in {kind} groups, which are not supported.",
            0,
        )
        for kind in ("share", "streams")
    ),
    _tiered("remote.fetch.max.wait.ms", Kind.INT),
    _tiered("remote.list.offsets.request.timeout.ms", Kind.LONG),
    _tiered("remote.log.index.file.cache.total.size.bytes", Kind.LONG),
    _tiered("remote.log.manager.copier.thread.pool.size", Kind.INT),
    _tiered("remote.log.manager.copy.max.bytes.per.second", Kind.LONG),
    _tiered("remote.log.manager.expiration.thread.pool.size", Kind.INT),
    _tiered("remote.log.manager.fetch.max.bytes.per.second", Kind.LONG),
    _tiered("remote.log.manager.follower.thread.pool.size", Kind.INT),
    _tiered("remote.log.reader.threads", Kind.INT),
)

FIXED: dict[str, Option] = {option.name: option for option in _FIXED}
SETTABLE: dict[str, Option] = {option.name: option for option in _SETTABLE}
