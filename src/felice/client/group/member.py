"""A member of a classic consumer group: what it says, and what it makes of the answers. Pure.

Keeps true:  commits and heartbeats carry the generation of the last completed join. A member id once given is used
             until the coordinator does not know it any more. What a rebalance takes away is the difference
             between what was owned and what was assigned; an eager member owns nothing while it joins.
Leaves:      requests, waiting and callbacks to `membership`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from felice.assignment import ASSIGNORS, RebalanceProtocol
from felice.assignment import Subscription as MemberSubscription
from felice.assignment import TopicPartition as AssignorPartition
from felice.client.group.requests import Committer
from felice.client.model import Partition
from felice.client.net.requests import by_topic
from felice.client.net.wire import ByVersion
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
    """What an answer of the coordinator asks of the member."""

    GO_ON = "go on"
    RETRY = "the same again after a while"
    REJOIN = "join again, being who it is"
    FIND = "look for the coordinator"
    FORGET = "what it had is lost: join again as nobody"
    STOP = "the group does not want it"


_ANSWERS = {
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
    return _ANSWERS.get(ErrorCode.of(error_code), MemberAction.STOP)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    group_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: tuple[str, ...]
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What a rebalance does to this member."""

    assigned: tuple[Partition, ...]
    added: tuple[Partition, ...]
    revoked: tuple[Partition, ...]


class GroupMember:
    """State of one member; every method is one step of the protocol."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.protocol_name: str | None = None
        self.owned: frozenset[Partition] = frozenset()
        self.expelled = False
        """It was a member and is not any more: what it would commit may be others' by now."""
        self._last_generation = -1
        self._last_assigned: tuple[Partition, ...] = ()

    @property
    def cooperative(self) -> bool:
        """KIP-429: all assignors of a group are of one kind."""
        return all(
            ASSIGNORS[name].protocol is RebalanceProtocol.COOPERATIVE for name in self.settings.assignors
        )

    @property
    def joined(self) -> bool:
        return self.generation >= 0

    @property
    def committer(self) -> Committer:
        return Committer(self.generation, self.member_id, self.settings.instance_id)

    # Join

    def join_request(self, topics: Iterable[str], reason: str) -> JoinGroupRequest:
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
        """What every member asks for; only the leader is told."""
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
        """The leader's work: partitions for every member, by the assignor that the group chose."""
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
        return self._after(error_code)

    def _after(self, error_code: int) -> MemberAction:
        step = next_step(error_code)
        if step is MemberAction.FORGET:
            # One that is only late stays known: under a new id its old self would hold up the next rebalance.
            member_id = self.member_id if error_code == ErrorCode.ILLEGAL_GENERATION else ""
            self.forget()
            self.member_id = member_id
        return step

    def on_assignment(self, data: bytes) -> Change:
        """Compare what was assigned with what is owned; the caller then revokes, adds and calls `own`."""
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
        self.owned = frozenset(partitions)

    # Heartbeat, leave

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
        )

    def on_heartbeat(self, error_code: int) -> MemberAction:
        return self._after(error_code)

    def leave_request(self, reason: str) -> ByVersion:
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
        """The coordinator does not know this member (any more)."""
        self.expelled = self.expelled or self.joined
        self.member_id = ""
        self.generation = -1
        self.is_leader = False


def _to_wire(partitions: Iterable[Partition]) -> list[AssignedTopic]:
    return [AssignedTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()]


def _from_wire(rows: Iterable[AssignedTopic]) -> list[Partition]:
    return [(row.topic, number) for row in rows for number in row.partitions]
