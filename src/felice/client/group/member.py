"""A member of a classic consumer group: builds its requests and applies the responses. Pure.

Keeps true:  Commits and heartbeats carry the generation of the last completed join. A member id is used until the
             coordinator no longer knows it. A rebalance revokes the partitions that were owned and are no longer
             assigned; an eager member owns nothing while it joins.
Leaves:      requests, waiting and callbacks to `membership`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from felice.assignment import ASSIGNORS, RebalanceProtocol
from felice.assignment import Subscription as MemberSubscription
from felice.assignment import TopicPartition as AssignorPartition
from felice.client.group.requests import Committer
from felice.client.model import Partition
from felice.client.net.requests import by_topic
from felice.client.net.wire import ByVersion
from felice.dataclass import dataclass
from felice.protocol.codec import decode_data, encode_data
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from felice.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

_SUBSCRIPTION_VERSION = 3
_ASSIGNMENT_VERSION = 0


class MemberAction(Enum):
    """The member's next action after a response of the coordinator."""

    GO_ON = "go on"
    RETRY = "repeat the request after a backoff"
    REJOIN = "join again with the same member id"
    FIND = "find the coordinator"
    FORGET = "membership is lost: join again without a generation"
    STOP = "the group refuses the member"


_ACTIONS = {
    ErrorCode.NONE: MemberAction.GO_ON,
    ErrorCode.MEMBER_ID_REQUIRED: MemberAction.REJOIN,
    ErrorCode.REBALANCE_IN_PROGRESS: MemberAction.REJOIN,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: MemberAction.RETRY,
    ErrorCode.REQUEST_TIMED_OUT: MemberAction.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: MemberAction.FIND,
    ErrorCode.NOT_COORDINATOR: MemberAction.FIND,
    ErrorCode.UNKNOWN_MEMBER_ID: MemberAction.FORGET,
    ErrorCode.ILLEGAL_GENERATION: MemberAction.FORGET,
}


def next_step(error_code: int) -> MemberAction:
    """Return the action after a response with this error code; STOP for unknown codes."""
    return _ACTIONS.get(ErrorCode.of(error_code), MemberAction.STOP)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings that a member sends to its coordinator."""

    group_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: tuple[str, ...]
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """How a rebalance changes the partitions of this member."""

    assigned: tuple[Partition, ...]
    added: tuple[Partition, ...]
    revoked: tuple[Partition, ...]


class GroupMember:
    """The state of one member; every method is one step of the protocol."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.protocol_name: str | None = None
        self.owned: frozenset[Partition] = frozenset()
        self.expelled = False
        """True after it lost its membership: other members may own its partitions, so it must not commit."""
        self._last_generation = -1
        self._last_assigned: tuple[Partition, ...] = ()

    @property
    def cooperative(self) -> bool:
        """True if the member rebalances cooperatively (KIP-429); all assignors of a group have one kind."""
        return all(
            ASSIGNORS[name].protocol is RebalanceProtocol.COOPERATIVE for name in self.settings.assignors
        )

    @property
    def joined(self) -> bool:
        """True while the member belongs to a generation of the group."""
        return self.generation >= 0

    @property
    def committer(self) -> Committer:
        """The identity with which this member commits."""
        return Committer(self.generation, self.member_id, self.settings.instance_id)

    # Join

    def join_request(self, topics: Iterable[str], reason: str) -> JoinGroupRequest:
        """A JoinGroup request with the member's subscription under each assignor."""
        wanted = sorted(topics)
        settings = self.settings
        return JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self._metadata(name, wanted))
                for name in settings.assignors
            ],
            reason=reason,
        )

    def _metadata(self, assignor: str, topics: list[str]) -> bytes:
        last = [AssignorPartition(*partition) for partition in self._last_assigned]
        owned = sorted(self.owned) if self.cooperative else []
        subscription = ConsumerProtocolSubscription(
            topics=topics,
            user_data=ASSIGNORS[assignor].user_data(last, self._last_generation),
            owned_partitions=_to_wire(owned),
            generation_id=self._last_generation,
            rack_id=self.settings.rack_id,
        )
        return encode_data(subscription, _SUBSCRIPTION_VERSION)

    def on_join(self, response: JoinGroupResponse) -> MemberAction:
        """Apply a JoinGroup response."""
        step = self._after(response.error_code)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif step is MemberAction.GO_ON:
            self.member_id = response.member_id
            self.generation = response.generation_id
            self.expelled = False
            self.protocol_name = response.protocol_name
            self.is_leader = response.leader == response.member_id
        return step

    # Assign and sync

    @staticmethod
    def subscriptions(response: JoinGroupResponse) -> dict[str, MemberSubscription]:
        """Return the subscription of every member; only the leader receives them."""
        members: dict[str, MemberSubscription] = {}
        for row in response.members:
            asked = decode_data(ConsumerProtocolSubscription, row.metadata)
            members[row.member_id] = MemberSubscription(
                topics=tuple(asked.topics),
                owned=tuple(
                    AssignorPartition(*partition) for partition in _from_wire(asked.owned_partitions)
                ),
                generation=asked.generation_id,
                instance_id=row.group_instance_id,
                rack_id=asked.rack_id,
                user_data=asked.user_data,
            )
        return members

    def assignments(
        self, subscriptions: Mapping[str, MemberSubscription], partition_counts: Mapping[str, int]
    ) -> list[SyncGroupRequestAssignment]:
        """As the leader, assign partitions to every member, with the assignor that the group chose."""
        assert self.protocol_name is not None
        chosen = ASSIGNORS[self.protocol_name].assign(subscriptions, partition_counts)
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_data(
                    ConsumerProtocolAssignment(assigned_partitions=_to_wire(sorted(partitions))),
                    _ASSIGNMENT_VERSION,
                ),
            )
            for member_id, partitions in chosen.items()
        ]

    def sync_request(self, assignments: Sequence[SyncGroupRequestAssignment]) -> SyncGroupRequest:
        """A SyncGroup request; the leader's carries the assignments."""
        return SyncGroupRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.protocol_name,
            assignments=list(assignments),
        )

    def on_sync(self, error_code: int) -> MemberAction:
        """Apply the error code of a SyncGroup response."""
        return self._after(error_code)

    def _after(self, error_code: int) -> MemberAction:
        step = next_step(error_code)
        if step is MemberAction.FORGET:
            # A late member keeps its id: under a new id, its old entry would delay the next rebalance.
            member_id = self.member_id if error_code == ErrorCode.ILLEGAL_GENERATION else ""
            self.forget()
            self.member_id = member_id
        return step

    def on_assignment(self, data: bytes) -> Change:
        """Compare the assignment with the owned partitions; the caller then revokes, adds and calls `own`."""
        rows = decode_data(ConsumerProtocolAssignment, data).assigned_partitions if data else []
        assigned = tuple(_from_wire(rows))
        self._last_generation = self.generation
        self._last_assigned = assigned
        return Change(
            assigned,
            tuple(partition for partition in assigned if partition not in self.owned),
            tuple(sorted(self.owned.difference(assigned))),
        )

    def own(self, partitions: Iterable[Partition]) -> None:
        """Note the partitions that the member owns from now on."""
        self.owned = frozenset(partitions)

    # Heartbeat, leave

    def heartbeat_request(self) -> HeartbeatRequest:
        """A heartbeat of the current generation."""
        return HeartbeatRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
        )

    def on_heartbeat(self, error_code: int) -> MemberAction:
        """Apply the error code of a Heartbeat response."""
        return self._after(error_code)

    def leave_request(self, reason: str) -> ByVersion:
        """A LeaveGroup request; `reason` is sent from version 3 on."""
        return ByVersion(LeaveGroupRequest, self._leave(reason))

    def _leave(self, reason: str) -> Callable[[int], LeaveGroupRequest]:
        group_id, member_id, instance_id = self.settings.group_id, self.member_id, self.settings.instance_id

        def build(version: int) -> LeaveGroupRequest:
            if version < 3:
                return LeaveGroupRequest(group_id=group_id, member_id=member_id)
            identity = MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=reason)
            return LeaveGroupRequest(group_id=group_id, members=[identity])

        return build

    def forget(self) -> None:
        """Drop the member id: the coordinator does not know it."""
        self.expelled = self.expelled or self.joined
        self.member_id = ""
        self.generation = -1
        self.is_leader = False


def _to_wire(partitions: Iterable[Partition]) -> list[AssignedTopic]:
    return [AssignedTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()]


def _from_wire(rows: Iterable[AssignedTopic]) -> list[Partition]:
    return [(row.topic, number) for row in rows for number in row.partitions]
