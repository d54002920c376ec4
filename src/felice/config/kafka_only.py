"""Names of Kafka options that Felice does not have, so that warnings can distinguish them from typing errors.

The list has exact names, because many are similar to an option of Felice without being a typing error of it
(`group.share.session.timeout.ms`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from felice.config.broker import BROKER_OPTIONS
from felice.config.topic import TOPIC_OPTIONS
from felice.config.without_effect import SETTABLE

# The options of Kafka 4.3.1 (KafkaConfig.configDef) and older versions that Felice does not have: the JVM's thread
# pools and purgatories, KRaft, unsupported features (Java plugins, Kerberos, tiered storage, other kinds of groups).
_NAMES = """
advertised.host.name advertised.port alter.config.policy.class.name
alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
background.threads broker.heartbeat.interval.ms broker.session.timeout.ms client.quota.callback.class
control.plane.listener.name controller.performance.always.log.threshold.ms
controller.performance.sample.period.ms controller.quorum.append.linger.ms
controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
controller.quorum.voters controller.socket.timeout.ms cordoned.log.dirs create.topic.policy.class.name
delete.records.purgatory.purge.interval.requests early.start.listeners eligible.leader.replicas.enable
fetch.purgatory.purge.interval.requests follower.fetch.last.tiered.offset.enable
group.coordinator.append.linger.ms group.coordinator.background.threads
group.coordinator.cached.buffer.max.bytes group.coordinator.rebalance.protocols group.coordinator.threads
group.share.assignment.interval.ms group.share.assignors group.share.delivery.count.limit
group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms
group.share.max.assignment.interval.ms group.share.max.delivery.count.limit
group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.share.sessions
group.share.max.size group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
group.share.partition.max.record.locks group.share.persister.class.name group.share.record.lock.duration.ms
group.share.session.timeout.ms group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms
group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
group.streams.num.standby.replicas group.streams.session.timeout.ms host.name
initial.broker.registration.timeout.ms inter.broker.protocol.version internal.metadata.delete.delay.millis
internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
kafka.metrics.polling.interval.secs kafka.metrics.reporters log.dir.failure.timeout.ms
log.initial.task.delay.ms log.message.downconversion.enable log.message.format.version
log.message.timestamp.difference.max.ms metadata.log.dir
metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms
metadata.max.retention.bytes metadata.max.retention.ms metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms num.io.threads num.network.threads
num.replica.alter.log.dirs.threads offsets.commit.required.acks offsets.load.buffer.size
offsets.topic.compression.codec password.encoder.cipher.algorithm password.encoder.iterations
password.encoder.key.length password.encoder.keyfactory.algorithm password.encoder.old.secret
password.encoder.secret port principal.builder.class process.roles
producer.purgatory.purge.interval.requests quota.consumer.default quota.producer.default
remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.index.file.cache.ttl.ms remote.log.manager.copier.thread.pool.size
remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size
remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.follower.thread.pool.size
remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter
remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
remote.log.reader.max.pending.tasks remote.log.reader.threads remote.log.storage.manager.class.name
remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
remote.log.storage.system.enable replica.lag.max.messages replica.socket.receive.buffer.bytes
replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms
sasl.client.callback.handler.class sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwt.retriever.class
sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
security.providers server.max.startup.time.ms share.coordinator.append.linger.ms
share.coordinator.cached.buffer.max.bytes share.coordinator.cold.partition.snapshot.interval.ms
share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
share.coordinator.threads share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.receive.buffer.bytes
ssl.engine.factory.class ssl.keymanager.algorithm ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm
transaction.state.log.load.buffer.size transaction.two.phase.commit.enable
unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable
zookeeper.metadata.migration.enable
"""
KAFKA_ONLY = frozenset(_NAMES.split())

_FAMILIES = ("config.providers.", "confluent.", "kafka.", "listener.name.", "rlmm.config.", "rsm.config.")
"""Prefixes of names that Kafka passes on to listeners, plugins and reporters."""


def is_kafkas(name: str) -> bool:
    """Whether Kafka has an option with this name that Felice does not have."""
    return name in KAFKA_ONLY or name.startswith(_FAMILIES)


def is_settable_at_run_time(name: str) -> bool:
    """Whether Kafka accepts a change of this option at run time, although Felice ignores it.

    Names that Kafka does not know either are accepted, as by Kafka. Options of unsupported features (`KAFKA_ONLY`) are
    not, except those in `SETTABLE`, nor are other names with the prefix of a listener.
    """
    if name in SETTABLE:
        return True
    return name not in KAFKA_ONLY and not name.startswith("listener.name.")


def nearest(name: str) -> str | None:
    """The broker option that an unknown name probably means, or None. For the name of a topic option it is the broker
    option that sets its default.
    """
    if name in TOPIC_OPTIONS and TOPIC_OPTIONS[name].synonyms:
        return TOPIC_OPTIONS[name].synonyms[0][0]
    if is_kafkas(name):
        return None
    found = difflib.get_close_matches(name, BROKER_OPTIONS, n=1, cutoff=0.85)
    return found[0] if found else None


def why_no_broker(properties: Mapping[str, str]) -> str | None:
    """Why the configuration of a KRaft node starts no broker here, or None.

    A broker whose controllers are elsewhere would start a cluster of its own.
    """
    roles = _items("process.roles", properties)
    if roles == ("controller",):
        return "process.roles=controller: Felice has no KRaft controllers; start its brokers only"
    if properties.get("zookeeper.connect"):
        return None
    for name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        count = len(_items(name, properties))
        if count > 1:
            return f"{name} names {count} controllers; Felice has no KRaft quorum, set zookeeper.connect"
    if roles == ("broker",):
        return (
            "process.roles=broker leaves the metadata to a KRaft controller, which Felice does not have; "
            "set zookeeper.connect, or process.roles=broker,controller for a cluster of this broker alone"
        )
    return None


def _items(name: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(item.strip() for item in properties.get(name, "").split(",") if item.strip())
