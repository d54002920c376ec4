"""A member of a classic group of any protocol type: builds its requests and applies the responses. Pure.

Keeps true:  Heartbeats carry the generation of the last completed join. A member id is used until the coordinator no
             longer knows it.
Leaves:      requests and waiting to `membership`; the content of metadata and assignments to subclasses and callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from felice.client.net.wire import ByVersion
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from felice.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


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
    protocol_type: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int


class Member:
    """The state of one member; every method is one step of the protocol."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.protocol_name: str | None = None
        self.expelled = False
        """True after it lost its membership: other members may have what was assigned to it."""

    @property
    def joined(self) -> bool:
        """True while the member belongs to a generation of the group."""
        return self.generation >= 0

    # Join and sync

    def join(self, protocols: Iterable[tuple[str, bytes]], reason: str) -> JoinGroupRequest:
        """A JoinGroup request with the member's metadata for each protocol, the preferred protocol first."""
        settings = self.settings
        return JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=settings.instance_id,
            protocol_type=settings.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
            reason=reason,
        )

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

    def sync_request(self, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        """A SyncGroup request; the leader's carries the assignment of each member id."""
        return SyncGroupRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=self.settings.protocol_type,
            protocol_name=self.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in assignments.items()
            ],
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
