"""Online migration: a classic group becomes a consumer group, and a consumer group becomes a classic one (KIP-848).

Keeps true:  a conversion moves no partition: each member keeps its partitions.
             The records of both groups are written together with the records of the event that causes the conversion.
`group.consumer.migration.policy` decides which conversions are allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.member import Member
from felice.coordinator.group.classic.rebalance import join_error, start_session
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.group.consumer.classic_members import (
    by_id,
    encode_assignment,
    read_assignment,
    read_subscription,
)
from felice.coordinator.group.consumer.group import ConsumerGroup
from felice.coordinator.group.consumer.values import (
    ClassicProtocols,
    ConsumerRecord,
    CurrentRecord,
    Epoch,
    EpochRecord,
    MemberRecord,
    Subscription,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
    shared_topics,
)
from felice.coordinator.group.modern.reconciliation import Current, MemberState
from felice.coordinator.group.modern.topics import Topics
from felice.coordinator.group.records import Record
from felice.coordinator.group.turn import Turn
from felice.coordinator.shard import Instant, Outcome
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_protocol import PROTOCOL_TYPE
from felice.protocol.messages.sync_group import SyncGroupResponse

# Classic to consumer


def upgraded(group: ClassicGroup, turn: Turn) -> tuple[ConsumerGroup, list[ConsumerRecord]] | None:
    """The consumer group that replaces a classic group, and its records; None if the group cannot be converted.

    The classic group stays as it is: `Upgraded` ends it when the records are committed.
    """
    policy = turn.settings.consumer_migration_policy
    if not policy.allows_upgrade or not group.is_consumer_type:
        return None
    if len(group.members) > turn.settings.consumer_max_size:
        return None
    records = _upgrade_records(group, turn.topics)
    if records is None:
        return None
    made = ConsumerGroup(group.group_id, alarms=group.alarms)
    for record in records:
        made.replay(record)
    for member in group.members.values():
        made.start_session(member.member_id, turn.now.steady_ms + member.session_timeout_ms)
    return made, records


@dataclass(frozen=True, slots=True)
class Upgraded:
    """Continues when the records of an upgrade are committed or refused."""

    group: ClassicGroup

    def on_committed(self, now: Instant) -> Outcome[Record]:
        """Answers the requests that wait in the classic group; their members then join the consumer group."""
        return self._answer(ErrorCode.REBALANCE_IN_PROGRESS)

    def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[Record]:
        """If the classic group was restored, its requests continue to wait."""
        return self._answer(error) if self.group.state is GroupState.DEAD else Outcome()

    def _answer(self, error: ErrorCode) -> Outcome[Record]:
        outcome: Outcome[Record] = Outcome()
        for member in self.group.members.values():
            joining, syncing = self.group.unpark_join(member), member.syncing
            member.syncing = None
            if joining is not None:
                outcome.reply(joining, join_error(error, member.member_id))
            if syncing is not None:
                outcome.reply(syncing, SyncGroupResponse(error_code=error))
        return outcome


def _upgrade_records(group: ClassicGroup, topics: Topics) -> list[ConsumerRecord] | None:
    group_id, epoch = group.group_id, group.generation
    members: list[ConsumerRecord] = []
    targets: list[ConsumerRecord] = []
    currents: list[ConsumerRecord] = []
    taken = set[tuple[UUID, int]]()
    for member in group.members.values():
        protocol = group.protocol_name or member.protocols[0][0]
        subscription = read_subscription(member.metadata(protocol))
        assigned = read_assignment(member.assignment)
        # A SyncGroup of the consumer group reads the first protocol.
        if subscription is None or assigned is None or read_subscription(member.protocols[0][1]) is None:
            return None
        partitions = by_id(assigned, topics)
        pairs = {(topic_id, partition) for topic_id, has in partitions.items() for partition in has}
        if not taken.isdisjoint(pairs):
            return None  # The leader gave a partition to two members. A consumer group cannot have that (G6).
        taken |= pairs
        value = Subscription(
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=shared_topics(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicProtocols(member.session_timeout_ms, member.protocols),
        )
        with_epochs = {topic_id: dict.fromkeys(has, epoch) for topic_id, has in partitions.items()}
        members.append(MemberRecord(group_id, member.member_id, value))
        targets.append(TargetRecord(group_id, member.member_id, partitions))
        current = Current(epoch, epoch, MemberState.STABLE, with_epochs)
        currents.append(CurrentRecord(group_id, member.member_id, current))
    return [
        *members,
        EpochRecord(group_id, Epoch(epoch)),
        *targets,
        TargetEpochRecord(group_id, TargetEpoch(epoch)),
        *currents,
    ]


# Consumer to classic


def must_downgrade(group: ConsumerGroup, leaving: Collection[str], turn: Turn) -> bool:
    """Whether the group becomes a classic one when these members have left: all others use the classic protocol."""
    return len(group.members) > len(leaving) and _fits_classic_group(group, leaving, turn)


def is_last_of_protocol(group: ConsumerGroup, member_id: str, turn: Turn) -> bool:
    """Whether the group becomes a classic one when this member comes back with the classic protocol."""
    return group.members[member_id].classic is None and _fits_classic_group(group, (member_id,), turn)


def _fits_classic_group(group: ConsumerGroup, leaving: Collection[str], turn: Turn) -> bool:
    staying = len(group.members) - len(leaving)
    classic = group.classic_count - sum(group.members[member_id].classic is not None for member_id in leaving)
    is_allowed = turn.settings.consumer_migration_policy.allows_downgrade
    return is_allowed and classic == staying <= turn.settings.max_size


def downgraded(
    group: ConsumerGroup, leaving: Collection[str], protocols: Mapping[str, ClassicProtocols], turn: Turn
) -> ClassicGroup:
    """The classic group with the members that stay. It is Stable, and its generation is the consumer group's epoch.

    `protocols` has the classic protocols of members that rejoin with the classic protocol, by member id.
    """
    made = ClassicGroup(group.group_id, state_timestamp_ms=turn.now.wall_ms, alarms=group.alarms)
    made.generation = group.epoch.epoch
    for member_id, value in group.members.items():
        classic = protocols.get(member_id, value.classic)
        if member_id in leaving or classic is None:
            continue
        member = Member(
            member_id=member_id,
            instance_id=value.instance_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            session_timeout_ms=classic.session_timeout_ms,
            protocols=classic.protocols,
            assignment=encode_assignment(group.current(member_id).partitions, turn.topics, classic),
        )
        made.add(member, PROTOCOL_TYPE)
        start_session(made, member, turn)
    made.protocol_name = made.select_protocol()
    made.subscribed_topics = made.read_subscribed_topics()
    made.state = made.previous_state = GroupState.STABLE
    return made
