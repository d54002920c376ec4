"""Functions that send one group request over `Wire`, which the tests of group rules share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from felice.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from felice.protocol.messages.list_groups import ListGroupsRequest
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from waiting import wait_until

NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


def find_coordinator(wire: Wire, group: str) -> None:
    """Waits until the group has a coordinator that has loaded it."""
    asked = FindCoordinatorRequest(coordinator_keys=[group])
    wait_until(lambda: wire.ask(asked, 4).coordinators[0].error_code == 0)
    wait_until(lambda: fetch_group(wire, group).error_code not in NOT_YET)
    wait_until(lambda: wire.ask(ListGroupsRequest(), 4).error_code not in NOT_YET)


@dataclass(slots=True)
class Member:
    """One member, driven by the test: it sends what the test says and remembers the responses."""

    wire: Wire
    group: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    protocols: tuple[tuple[str, bytes], ...] = (("range", b"meta"),)
    protocol_type: str = "consumer"
    session_timeout_ms: int = 30_000
    rebalance_timeout_ms: int = 60_000

    def join_request(self, **changes: Any) -> JoinGroupRequest:
        fields: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": self.protocol_type,
            "protocols": [JoinGroupRequestProtocol(name=n, metadata=m) for n, m in self.protocols],
        }
        return JoinGroupRequest(**{**fields, **changes})

    def send_join(self, version: int = 9, **changes: Any) -> None:
        self.wire.send(self.join_request(**changes), version)

    def receive_join(self, version: int = 9) -> Any:
        return self.heard(self.wire.receive(self.join_request(), version))

    def heard(self, answer: Any) -> Any:
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        if answer.error_code == ErrorCode.NONE:
            self.generation = answer.generation_id
        return answer

    def join(self, version: int = 9, **changes: Any) -> Any:
        answer = self.heard(self.wire.ask(self.join_request(**changes), version))
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = self.heard(self.wire.ask(self.join_request(**changes), version))
        return answer

    def sync_request(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> SyncGroupRequest:
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocols[0][0],
            "assignments": [
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        }
        return SyncGroupRequest(**{**fields, **changes})

    def sync(self, assignments: dict[str, bytes] | None = None, version: int = 5, **changes: Any) -> Any:
        return self.wire.ask(self.sync_request(assignments, **changes), version)

    def heartbeat(self, version: int = 4, **changes: Any) -> int:
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }
        code: int = self.wire.ask(HeartbeatRequest(**{**fields, **changes}), version).error_code
        return code

    def leave(self, version: int = 5) -> Any:
        asked = LeaveGroupRequest(group_id=self.group)
        if version < 3:
            asked.member_id = self.member_id
        else:
            member = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            asked.members = [member]
        return self.wire.ask(asked, version)

    def commit(self, topic: str, offset: int, version: int = 9, **changes: Any) -> int:
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }
        return commit(self.wire, topic, offset, version, **{**fields, **changes})


def stable_member(wire: Wire, group: str, assignment: bytes = b"all", **fields: Any) -> Member:
    """The only member of a group in the state Stable."""
    find_coordinator(wire, group)
    member = Member(wire, group, **fields)
    joined = member.join()
    assert joined.error_code == 0, joined
    synced = member.sync({member.member_id: assignment})
    assert synced.error_code == 0, synced
    return member


def commit(wire: Wire, topic: str, offset: int, version: int = 9, partition: int = 0, **fields: Any) -> int:
    """Commits one offset; returns the error of its row."""
    epoch, metadata = fields.pop("leader_epoch", -1), fields.pop("metadata", "")
    row = OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        committed_metadata=metadata,
    )
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[row])]
    code: int = (
        wire.ask(OffsetCommitRequest(topics=topics, **fields), version).topics[0].partitions[0].error_code
    )
    return code


def fetch_group(
    wire: Wire,
    group: str,
    topics: dict[str, list[int]] | None = None,
    version: int = 8,
    require_stable: bool = False,
) -> Any:
    """The group's row of a batched OffsetFetch; without `topics` it has all offsets of the group."""
    asked = None
    if topics is not None:
        asked = [OffsetFetchRequestTopics(name=n, partition_indexes=indexes) for n, indexes in topics.items()]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=asked)], require_stable=require_stable
    )
    return wire.ask(request, version).groups[0]


def fetch_single(wire: Wire, group: str, topics: dict[str, list[int]] | None, version: int) -> Any:
    """The response of an OffsetFetch up to version 7."""
    asked = None
    if topics is not None:
        asked = [OffsetFetchRequestTopic(name=n, partition_indexes=indexes) for n, indexes in topics.items()]
    return wire.ask(OffsetFetchRequest(group_id=group, topics=asked), version)


def committed(wire: Wire, group: str, topic: str, partition: int = 0) -> int:
    offset: int = fetch_group(wire, group, {topic: [partition]}).topics[0].partitions[0].committed_offset
    return offset
