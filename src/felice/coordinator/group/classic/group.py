"""A classic group as data: its members, their common protocol, and the values that the state machine needs.

Keeps true:  the state changes only along the transitions of `states`.
             The leader is a member, whenever there are members.
             Each instance id belongs to at most one member, and `joining_count` is the number of parked joins.
Decides nothing by itself: `join`, `sync`, `membership` and `rebalance` do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace

from felice.coordinator.group.alarms import Alarms
from felice.coordinator.group.classic.member import Member
from felice.coordinator.group.classic.states import PREVIOUS_STATES, GroupState
from felice.coordinator.group.records import GroupRecord
from felice.coordinator.java_hash import java_string_hash
from felice.coordinator.shard import NEVER_MS, Instant, Waiter
from felice.dataclass import dataclass
from felice.protocol.codec import data_version, decode_prefix
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolSubscription
from felice.protocol.messages.join_group import JoinGroupResponse
from felice.protocol.messages.offsets_topic import GroupMetadataValue, MemberMetadata
from felice.protocol.primitives import MalformedMessage

NO_STATE_TIMESTAMP = -1
_JAVA_MAP_BUCKETS = 16
# Parsing subscriptions takes time on the event loop, and a group has as many as members.
_SUBSCRIBED_TOPICS_MAX = 10_000


@dataclass(slots=True)
class ClassicGroup:
    """`state_timestamp_ms` is wall time; all deadlines are steady time (`shard.Instant`).

    `pending_joins` are member ids that were given out with MEMBER_ID_REQUIRED and have not been used yet, with their
    deadlines. `pending_syncs` are the members whose SyncGroup of this generation is missing. `wake_at_ms` is never
    later than the earliest deadline of the group.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.EMPTY
    state_timestamp_ms: int = NO_STATE_TIMESTAMP
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_joins: dict[str, int] = field(default_factory=dict)
    pending_syncs: dict[str, None] = field(default_factory=dict)
    joining_count: int = 0
    protocol_support: Counter[str] = field(default_factory=Counter)
    # None: unknown (another protocol type, or unreadable metadata).
    subscribed_topics: frozenset[str] | None = None
    # The initial delay ends early if no new member came during its last part.
    new_member_joined: bool = False
    initial_delay_left_ms: int = 0
    join_deadline_ms: int = NEVER_MS
    sync_deadline_ms: int = NEVER_MS
    wake_at_ms: int = NEVER_MS
    alarms: Alarms = field(default_factory=Alarms, repr=False)

    # States

    def transition(self, state: GroupState, now: Instant) -> None:
        """Takes a new state; asserts that `states` allows it."""
        assert self.state in PREVIOUS_STATES[state], f"group {self.group_id}: {self.state} -> {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now.wall_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether the state allows a rebalance to begin."""
        return self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    @property
    def is_consumer_type(self) -> bool:
        """Whether the members are consumers, so that their subscriptions can be read."""
        return self.protocol_type == PROTOCOL_TYPE

    def wake_at(self, deadline_ms: int) -> None:
        """Makes sure that `on_time` runs for this group at `deadline_ms` at the latest."""
        if deadline_ms < self.wake_at_ms:
            self.wake_at_ms = deadline_ms
            self.alarms.set(self.group_id, deadline_ms)

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        """Adds a member that joins. The first member becomes the leader and sets the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.protocol_support.update(name for name, _ in member.protocols)
        self.joining_count += member.joining is not None
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Removes a member, or an id that never joined. If the member led, another one becomes the leader."""
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        self._forget_protocols(member)
        self.joining_count -= member.joining is not None
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static(self, instance_id: str, new_member_id: str) -> Member:
        """The same instance under a new member id keeps its place and assignment; parked requests are not moved."""
        old = self.members.pop(self.static_members[instance_id])
        self.joining_count -= old.joining is not None
        new = replace(old, member_id=new_member_id, joining=None, syncing=None)
        self.members[new_member_id] = new
        self.static_members[instance_id] = new_member_id
        if self.pending_syncs.pop(old.member_id, ...) is None:
            self.pending_syncs[new_member_id] = None
        if self.leader_id == old.member_id:
            self.leader_id = new_member_id
        return old

    def set_protocols(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Replaces the protocols that a member supports, each a name with its metadata."""
        self._forget_protocols(member)
        member.protocols = protocols
        self.protocol_support.update(name for name, _ in protocols)

    def _forget_protocols(self, member: Member) -> None:
        self.protocol_support.subtract(name for name, _ in member.protocols)

    def park_join(
        self, member: Member, waiter: Waiter[JoinGroupResponse]
    ) -> Waiter[JoinGroupResponse] | None:
        """Lets the member's JoinGroup wait. Returns the waiting request that the new one replaces, if there was one."""
        displaced, member.joining = member.joining, waiter
        self.joining_count += displaced is None
        return displaced

    def unpark_join(self, member: Member) -> Waiter[JoinGroupResponse] | None:
        """Takes the member's waiting JoinGroup, if there is one. The caller must answer it."""
        waiter, member.joining = member.joining, None
        self.joining_count -= waiter is not None
        return waiter

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Checks the instance id first: a fenced instance must get that error, not UNKNOWN_MEMBER_ID."""
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_generation(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Checks that the request comes from a member of the current generation."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.check_member(member_id, instance_id)
        if error == ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    @property
    def all_members_joined(self) -> bool:
        """Whether the join phase may end: every member has joined, and every id that was given out was used."""
        return self.joining_count == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_leader(self) -> bool:
        """Keeps the leader if it rejoined, else elects a member that did; returns whether there is a leader."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.joining is not None:
            return True
        joined = next((member for member in self.members.values() if member.joining is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    # Protocols

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a member with these protocols could join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and any(
            self.protocol_support[name] == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Every member votes for the first of its protocols that all members support; most votes win.

        The names decide a tie, never the order of members: a static member that returns must not change the result.
        """
        size = len(self.members)
        candidates = frozenset(name for name, count in self.protocol_support.items() if count == size)
        votes = Counter(member.vote(candidates) for member in self.members.values())
        most = max(votes.values())
        return min((name for name, count in votes.items() if count == most), key=_tie_order)

    def next_generation(self, now: Instant) -> None:
        """Ends the join phase: raises the generation, and chooses the protocol that the members have in common."""
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.read_subscribed_topics()
        empty = not self.members
        self.transition(GroupState.EMPTY if empty else GroupState.COMPLETING_REBALANCE, now)

    def read_subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all members' subscriptions; None if they cannot be read, so that any topic may be in use."""
        if not self.is_consumer_type:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = subscription_topics(member.metadata(self.protocol_name))
            if subscribed is None:
                return None
            topics.update(subscribed)
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """If subscriptions are unknown, a consumer group counts as subscribed to every topic."""
        if self.subscribed_topics is None:
            return self.is_consumer_type
        return topic in self.subscribed_topics

    # Offsets, as `offsets.commits.Group`

    def may_read(self, topic: str) -> bool:
        """Whether the offsets of the topic are kept. Only a Stable group of consumers has a known subscription."""
        if self.state is GroupState.EMPTY:
            return False
        if not self.is_consumer_type or self.state is not GroupState.STABLE or self.subscribed_topics is None:
            return True
        return topic in self.subscribed_topics

    @property
    def empty_since_ms(self) -> int | None:
        """When the group lost its last member; None for a group with members, and for a group that only commits."""
        is_known = self.protocol_type is not None and self.state_timestamp_ms != NO_STATE_TIMESTAMP
        return self.state_timestamp_ms if is_known and self.state is GroupState.EMPTY else None

    # Records

    def record(self, assignments: dict[str, bytes] | None = None) -> GroupRecord:
        """This generation as it is stored; with `assignments` in place of the members' current ones."""
        protocol = self.protocol_name or ""
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol),
                assignment=member.assignment if assignments is None else assignments[member.member_id],
            )
            for member in self.members.values()
        ]
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_timestamp_ms,
            members=members,
        )
        return GroupRecord(self.group_id, value)

    @classmethod
    def restore(cls, group_id: str, value: GroupMetadataValue, alarms: Alarms) -> ClassicGroup:
        """Restores the Stable group of this record; the caller starts its sessions."""
        group = cls(
            group_id,
            state=GroupState.STABLE if value.members else GroupState.EMPTY,
            state_timestamp_ms=value.current_state_timestamp,
            generation=value.generation,
            protocol_name=value.protocol,
            leader_id=value.leader,
            alarms=alarms,
        )
        for stored in value.members:
            group.add(_restore_member(stored, value.protocol or ""), value.protocol_type)
        group.protocol_type = value.protocol_type or None
        group.subscribed_topics = group.read_subscribed_topics()
        return group


def _tie_order(protocol: str) -> tuple[int, str]:
    """Kafka's order: it counts votes in a Java hash map, and takes the first of the most voted in the map's order."""
    hashed = java_string_hash(protocol) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) % _JAVA_MAP_BUCKETS, protocol


def _restore_member(stored: MemberMetadata, protocol: str) -> Member:
    session_timeout_ms = stored.session_timeout
    return Member(
        member_id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        # Version 0 of the record has no rebalance timeout.
        rebalance_timeout_ms=session_timeout_ms
        if stored.rebalance_timeout == -1
        else stored.rebalance_timeout,
        session_timeout_ms=session_timeout_ms,
        protocols=((protocol, bytes(stored.subscription)),),
        assignment=bytes(stored.assignment),
    )


def subscription_topics(metadata: bytes) -> list[str] | None:
    """The topics of a consumer's subscription, of any version: all versions begin with version 0.

    None if they cannot be read, or are more than `_SUBSCRIBED_TOPICS_MAX`.
    """
    try:
        data_version(metadata)
        return decode_prefix(ConsumerProtocolSubscription, metadata, 0, 2, _SUBSCRIBED_TOPICS_MAX)[0].topics
    except MalformedMessage:
        return None
