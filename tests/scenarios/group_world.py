"""A group shard with its log, its clock and some clients, driven by commands of one line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.offsets import commits as offset_rules
from felice.coordinator.group.offsets.commits import Commit
from felice.coordinator.group.records import GroupRecord, GroupRecordCodec, OffsetRecord, Record
from felice.coordinator.group.settings import GroupSettings
from felice.coordinator.group.shard import GroupShard
from felice.coordinator.group.turn import Caller
from felice.coordinator.shard import Outcome, ReplyAfterWrite
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.delete_groups import DeletableGroupResult
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from felice.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponsePartition,
)
from felice.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
)
from felice.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from felice.protocol.primitives import ZERO_UUID
from scenarios.coordinator_world import CoordinatorWorld

GROUP = "g"


@dataclass
class GroupWorld(CoordinatorWorld[Record]):
    settings: GroupSettings = field(default_factory=GroupSettings)
    codec: GroupRecordCodec = field(default_factory=GroupRecordCodec)
    shard: GroupShard = field(init=False)
    ids: dict[str, str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    issued_ids: int = 0

    def __post_init__(self) -> None:
        self.start()

    def new_shard(self) -> GroupShard:
        return GroupShard(self.settings)

    def is_option(self, word: str) -> bool:
        return "=" in word and "/" not in word

    def describe_record(self, record: Record) -> str:
        return describe_record(record)

    def on_answer(self, name: str, response: Any) -> None:
        self.say(f"{name}: {self._describe(name, response)}")

    def _describe(self, name: str, response: Any) -> str:
        if isinstance(response, JoinGroupResponse):
            if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.ids[name] = response.member_id
            if response.error_code == 0:
                self.generations[name] = response.generation_id
        return describe_response(response)

    def _member_id(self, name: str, options: dict[str, str]) -> str:
        return options.get("as", self.ids.get(name, ""))

    def topic_id(self, topic: str) -> UUID:
        """The id of a topic; unknown in the scenarios of classic groups."""
        return ZERO_UUID

    # Commands

    def do_join(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        self.issued_ids += 1
        instance = options.get("instance")
        protocols = [
            entry.partition(":") for entry in options.get("protocols", "range:m").split(",") if entry
        ]
        request = JoinGroupRequest(
            group_id=options.get("group", GROUP),
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "60000")),
            member_id=self._member_id(name, options),
            group_instance_id=instance,
            protocol_type=options.get("type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=p, metadata=m.encode()) for p, _, m in protocols],
        )
        new_id = f"{instance or name}-{self.issued_ids}"
        caller = Caller(self.waiter(name), int(options.get("v", "9")), name, "/host", new_id)
        self.carry_out(self.shard.join(request, caller, self.now))

    def do_sync(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        request = SyncGroupRequest(
            group_id=options.get("group", GROUP),
            generation_id=int(options.get("gen", self.generations.get(name, -1))),
            member_id=self._member_id(name, options),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type"),
            protocol_name=options.get("protocol"),
            assignments=[
                SyncGroupRequestAssignment(member_id=self.ids.get(who, who), assignment=what)
                for who, what in self._assignments(options).items()
            ],
        )
        self.carry_out(self.shard.sync(request, Caller(self.waiter(name), 5), self.now))

    def _assignments(self, options: dict[str, str]) -> dict[str, bytes]:
        given = [entry.partition(":") for entry in options.get("give", "").split(";") if entry]
        if given:
            return {who: self.assignment_of(what) for who, _, what in given}
        brought = [entry.partition(":") for entry in options.get("assign", "").split(",") if entry]
        return {who: what.encode() for who, _, what in brought}

    def assignment_of(self, text: str) -> bytes:
        """An assignment of consumers."""
        raise NotImplementedError

    def do_heartbeat(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        request = HeartbeatRequest(
            group_id=options.get("group", GROUP),
            generation_id=int(options.get("gen", self.generations.get(name, -1))),
            member_id=self._member_id(name, options),
            group_instance_id=options.get("instance"),
        )
        self.say(f"{name}: {ErrorCode(self.shard.heartbeat(request, self.now).error_code).name}")

    def do_leave(self, names: list[str], options: dict[str, str]) -> None:
        leavers = [
            MemberIdentity(
                member_id=self._member_id(name, options), group_instance_id=options.get("instance")
            )
            for name in names
        ] or [MemberIdentity(group_instance_id=options.get("instance"))]
        group_id = options.get("group", GROUP)
        caller = Caller(self.waiter("leave"), 5)
        self.carry_out(self.shard.leave(group_id, leavers, caller, self.now))

    def do_commit(self, names: list[str], options: dict[str, str]) -> None:
        who = [name for name in names if "/" not in name]
        name = who[0] if who else "admin"
        request = OffsetCommitRequest(
            group_id=options.get("group", GROUP),
            generation_id_or_member_epoch=int(options.get("gen", self.generations.get(name, -1))),
            member_id=self._member_id(name, options),
            group_instance_id=options.get("instance"),
            retention_time_ms=int(options.get("retention", "-1")),
        )
        commits = []
        for word in names:
            if "/" in word:
                where, _, offset = word.partition("=")
                topic, _, partition = where.partition("/")
                asked = OffsetCommitRequestPartition(
                    partition_index=int(partition),
                    committed_offset=int(offset),
                    committed_leader_epoch=0,
                    committed_metadata=options.get("metadata"),
                )
                commits.append(Commit(topic, asked, OffsetCommitResponsePartition(), self.topic_id(topic)))
        caller = Caller(self.waiter(name), int(options.get("v", "9")))
        error, records = self.shard.commit(request, commits, caller, self.now)
        if error:
            caller.waiter.answer(error)
            return
        codes = [ErrorCode(commit.row.error_code) for commit in commits]
        self.carry_out(
            Outcome(
                records=records,
                after_write=[ReplyAfterWrite(caller.waiter, max(codes), lambda failed: failed)],
            )
        )

    def do_fetch(self, names: list[str], options: dict[str, str]) -> None:
        group_id = options.get("group", GROUP)
        stable = options.get("stable") == "1"
        for word in names:
            topic, _, partition = word.partition("/")
            (row,) = offset_rules.fetch(self.shard.offsets, group_id, topic, [int(partition)], stable)
            error = ErrorCode(row.error_code).name
            self.say(f"{word}: {error} offset={row.committed_offset} metadata={row.metadata!r}")

    def do_delete_offsets(self, names: list[str], options: dict[str, str]) -> None:
        request = OffsetDeleteRequest(group_id=options.get("group", GROUP))
        for word in names:
            topic, _, partition = word.partition("/")
            asked = OffsetDeleteRequestPartition(partition_index=int(partition))
            request.topics.append(OffsetDeleteRequestTopic(name=topic, partitions=[asked]))
        caller = Caller(self.waiter("delete-offsets"), 0)
        rows = [OffsetDeleteResponseTopic(name=topic.name) for topic in request.topics]
        self.carry_out(self.shard.delete_offsets(request, OffsetDeleteResponse(topics=rows), caller))

    def do_delete(self, names: list[str], options: dict[str, str]) -> None:
        self.carry_out(self.shard.delete(options.get("group", GROUP), Caller(self.waiter("delete"), 2)))

    def do_topic_deleted(self, names: list[str], options: dict[str, str]) -> None:
        self.carry_out(self.shard.on_topics_deleted(names))

    def do_describe(self, names: list[str], options: dict[str, str]) -> None:
        described = self.shard.describe(options.get("group", GROUP), int(options.get("v", "6")))
        error = ErrorCode(described.error_code).name
        data = f"{described.protocol_type!r} {described.protocol_data!r}"
        self.say(f"{described.group_id}: {error} {described.group_state} {data}")
        for member in described.members:
            self.say(
                f"  {member.member_id} instance={member.group_instance_id} client={member.client_id} "
                f"metadata={member.member_metadata!r} assignment={member.member_assignment!r}"
            )

    def do_list(self, names: list[str], options: dict[str, str]) -> None:
        states = [options["state"]] if "state" in options else []
        types = [options["type"]] if "type" in options else []
        for group in self.shard.list(states, types):
            self.say(f"{group.group_id} {group.group_state} {group.group_type} {group.protocol_type!r}")

    def do_show(self, names: list[str], options: dict[str, str]) -> None:
        for group in self.shard.groups.values():
            if not isinstance(group, ClassicGroup):
                continue
            members = ",".join(
                f"{m.member_id}{'?' if m.joining else ''}{'!' if m.syncing else ''}={text_of(m.assignment)}"
                for m in group.members.values()
            )
            self.say(
                f"{group.group_id} {group.state.value} gen={group.generation} leader={group.leader_id} "
                f"protocol={group.protocol_name} members=[{members}] pending=[{','.join(group.pending_joins)}]"
            )

    def do_reload(self, names: list[str], options: dict[str, str]) -> None:
        for reply in self.shard.on_unloaded(ErrorCode.NOT_COORDINATOR):
            reply.waiter.answer(reply.response)
        self.start()


def text_of(payload: bytes) -> str:
    """What a client passes to another; of real consumers' metadata only the length."""
    try:
        return bytes(payload).decode("ascii")
    except UnicodeDecodeError:
        return f"<{len(payload)} bytes>"


def describe_response(response: Any) -> str:
    match response:
        case JoinGroupResponse():
            members = ",".join(f"{m.member_id}={text_of(m.metadata)}" for m in response.members)
            text = f"join {ErrorCode(response.error_code).name} member={response.member_id}"
            if response.error_code == 0:
                text += f" gen={response.generation_id} protocol={response.protocol_name} leader={response.leader}"
            text += f" members=[{members}]" if members else ""
            return text + (" skip-assignment" if response.skip_assignment else "")
        case SyncGroupResponse():
            error = ErrorCode(response.error_code).name
            return f"sync {error} assignment={text_of(response.assignment)!r}"
        case LeaveGroupResponse():
            rows = [
                f"{m.member_id or m.group_instance_id}:{ErrorCode(m.error_code).name}"
                for m in response.members
            ]
            return f"{ErrorCode(response.error_code).name} {' '.join(rows)}"
        case OffsetDeleteResponse():
            rows = [
                f"{topic.name}/{row.partition_index}:{ErrorCode(row.error_code).name}"
                for topic in response.topics
                for row in topic.partitions
            ]
            return f"{ErrorCode(response.error_code).name} {' '.join(rows)}"
        case DeletableGroupResult():
            return ErrorCode(response.error_code).name
        case ErrorCode():
            return response.name
    raise AssertionError(f"no description of {response!r}")


def describe_record(record: Record) -> str:
    if isinstance(record, OffsetRecord):
        where = f"offset {record.group_id} {record.topic}/{record.partition}"
        return f"{where} removed" if record.committed is None else f"{where} = {record.committed.offset}"
    assert isinstance(record, GroupRecord)
    if record.value is None:
        return f"group {record.group_id} removed"
    members = ",".join(f"{m.member_id}={text_of(m.assignment)}" for m in record.value.members)
    return f"group {record.group_id} gen={record.value.generation} leader={record.value.leader} members=[{members}]"
