"""Groups and transactional ids that this broker coordinates, with the lag of consumers as kafka_exporter names it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.group.consumer.group import GroupState as ConsumerGroupState
from felice.coordinator.group.offsets.store import TopicOffsets
from felice.coordinator.group.shard import GroupShard
from felice.coordinator.transaction.states import TransactionState
from felice.replication.partitions import Partitions
from felice.server.metrics.families import PAUSE, Families, Family, Kind, Row, counter, gauge, label_text
from felice.server.metrics.names import MBean
from felice.server.metrics.remote_offsets import RemoteOffsets
from felice.server.monitoring.sources import Sources

_coordinator = partial(MBean, "kafka.server", "group-coordinator-metrics")
_groups = partial(MBean, "kafka.coordinator.group", "GroupMetadataManager")

_STATES = {
    GroupState.STABLE: "NumGroupsStable",
    GroupState.EMPTY: "NumGroupsEmpty",
    GroupState.DEAD: "NumGroupsDead",
    GroupState.PREPARING_REBALANCE: "NumGroupsPreparingRebalance",
    GroupState.COMPLETING_REBALANCE: "NumGroupsCompletingRebalance",
}
# A step is a group, or `_MEMBERS_A_STEP` of its members.
_STEPS_BETWEEN_PAUSES = 20
_MEMBERS_A_STEP = 50


def groups(sources: Sources) -> Families:
    """The number of groups by protocol and state, and the members of each group."""
    classic: Counter[GroupState] = Counter()
    consumer: Counter[ConsumerGroupState] = Counter()
    members: list[Row] = []
    offsets = steps = 0
    for shard in _group_shards(sources):
        for group in list(shard.groups.values()):
            if isinstance(group, ClassicGroup):
                classic[group.state] += 1
            else:
                consumer[group.state] += 1
            offsets += sum(map(len, shard.offsets.topics(group.group_id).values()))
            members.append((label_text(consumergroup=group.group_id), len(group.members)))
            # The state of a consumer group depends on each of its members.
            steps += 1 + len(group.members) // _MEMBERS_A_STEP
            if steps >= _STEPS_BETWEEN_PAUSES:
                steps = 0
                yield PAUSE
    yield gauge(
        _groups("NumGroups"), "Groups that this broker coordinates.", classic.total() + consumer.total()
    )
    for state, name in _STATES.items():
        yield gauge(_groups(name), f"Groups of the classic protocol in state {state.value}.", classic[state])
    yield gauge(_groups("NumOffsets"), "Committed offsets.", offsets)
    yield from _by_protocol(sources, classic.total(), consumer)
    yield Family("kafka_consumergroup_members", Kind.GAUGE, "Members of the group.", members)


def _by_protocol(sources: Sources, classic: int, consumer: Counter[ConsumerGroupState]) -> Iterator[Family]:
    counts = {"classic": classic, "consumer": consumer.total()}
    rows = [(label_text(protocol=protocol), count) for protocol, count in counts.items()]
    yield Family(_coordinator("group-count"), Kind.GAUGE, "Groups, by protocol.", rows)
    rows = [(label_text(state=state.value.lower()), consumer[state]) for state in ConsumerGroupState]
    yield Family(
        _coordinator("consumer-group-count"), Kind.GAUGE, "Groups of the consumer protocol, by state.", rows
    )
    coordinators = sources.services.coordinators
    yield counter(
        _coordinator("consumer-group-rebalance-count"),
        "How often a group of the consumer protocol needed another assignment.",
        coordinators.groups.counts.consumer_rebalances if coordinators.are_made else 0,
    )


def lag(sources: Sources) -> Families:
    """Committed offsets and lag: high watermark minus committed offset.

    The lag of a partition without a replica on this broker needs the answer of another one (`remote_offsets`).
    """
    found = _Lags(sources.services.partitions, sources.remote_offsets)
    for shard in _group_shards(sources):
        for number, group_id in enumerate(list(shard.groups)):
            for topic, partitions in list(shard.offsets.topics(group_id).items()):
                found.add(group_id, topic, partitions)
            if number % _STEPS_BETWEEN_PAUSES == 0:
                yield PAUSE
    of_group = "kafka_consumergroup"
    yield Family(f"{of_group}_current_offset", Kind.GAUGE, "Committed offset.", found.offsets)
    yield Family(
        f"{of_group}_current_offset_sum",
        Kind.GAUGE,
        "Sum of the topic's committed offsets.",
        found.offset_sums,
    )
    yield Family(f"{of_group}_lag", Kind.GAUGE, "Records behind the committed offset.", found.lags)
    yield Family(f"{of_group}_lag_sum", Kind.GAUGE, "Sum of the topic's lags.", found.lag_sums)


class _Lags:
    """The rows of committed offsets and lags."""

    def __init__(self, partitions: Partitions, remote: RemoteOffsets) -> None:
        self._partitions = partitions
        self._remote = remote
        self.offsets: list[Row] = []
        self.offset_sums: list[Row] = []
        self.lags: list[Row] = []
        self.lag_sums: list[Row] = []

    def add(self, group_id: str, topic: str, committed: TopicOffsets) -> None:
        """Adds the commits of one group for one topic."""
        of_topic = label_text(consumergroup=group_id, topic=topic)
        known = []
        for partition, commit in committed.items():
            labels = f'{of_topic},partition="{partition}"'
            self.offsets.append((labels, commit.offset))
            high_watermark = self._high_watermark(topic, partition)
            if high_watermark is not None:
                known.append(max(0, high_watermark - commit.offset))
                self.lags.append((labels, known[-1]))
        self.offset_sums.append((of_topic, sum(commit.offset for commit in committed.values())))
        if len(known) == len(committed):
            self.lag_sums.append((of_topic, sum(known)))

    def _high_watermark(self, topic: str, partition: int) -> int | None:
        replica = self._partitions.get(topic, partition)
        return self._remote.get(topic, partition) if replica is None else replica.known_high_watermark


def transactions(sources: Sources) -> Families:
    """Transactional ids by the state of their transaction."""
    states: Counter[TransactionState] = Counter()
    coordinators = sources.services.coordinators
    for shard in coordinators.transactions.shards() if coordinators.are_made else ():
        states.update(metadata.state for metadata in list(shard.transactions.values()))
        yield PAUSE
    rows = [(label_text(state=state.name.lower()), states[state]) for state in TransactionState]
    yield Family("felice_transactions", Kind.GAUGE, "Transactional ids coordinated here, by state.", rows)


def _group_shards(sources: Sources) -> list[GroupShard]:
    coordinators = sources.services.coordinators
    return coordinators.groups.shards() if coordinators.are_made else []
