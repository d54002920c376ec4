"""A group shard, its log and clients of the KIP-848 protocol, beside clients of the classic one.

    topics t=4 u=2                   the topics of the cluster, with their numbers of partitions
    beat A topics=t,u regex=… owned=t[0,1] epoch=0 instance=i assignor=range rebalance=5000 session=…
    beat A                           a heartbeat with the member's epoch and nothing else
    ack A                            a heartbeat that reports what the member was assigned last
    classic A topics=t               JoinGroup of a consumer with the classic protocol; `sync A` gets its partitions
    classic A protocols=odd!,range   the same with a protocol whose metadata cannot be read
    sync A give=A:t[0,1];B:t[2]      SyncGroup of the leader of a classic group with assignments of consumers
    away A | away A epoch=-2         a heartbeat that leaves; with -2 that of a static member that will return
    replayed                         the log, replayed into another shard, gives the same groups

An answer shows its error, or epoch and assignment: `-` if the answer has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from felice.coordinator.group.consumer.group import ConsumerGroup
from felice.coordinator.group.consumer.values import (
    CONSUMER_RECORDS,
    CurrentRecord,
    EpochRecord,
    ExpressionRecord,
    MemberRecord,
    TargetEpochRecord,
    TargetRecord,
)
from felice.coordinator.group.modern.settings import GroupTimes
from felice.coordinator.group.modern.topics import NO_TOPICS, Topics
from felice.coordinator.group.records import Record
from felice.coordinator.group.shard import GroupShard
from felice.coordinator.group.turn import Caller
from felice.coordinator.shard import Outcome
from felice.protocol.codec import decode_data, encode_data
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from felice.protocol.messages.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from felice.protocol.messages.sync_group import SyncGroupResponse
from scenarios.group_world import GROUP, GroupWorld, describe_record

MAX_SHOWN = 20


@dataclass(frozen=True)
class Topic:
    topic_id: UUID
    partitions: range


@dataclass
class ConsumerGroupWorld(GroupWorld):
    topics: Topics = NO_TOPICS
    epochs: dict[str, int] = field(default_factory=dict)
    assigned: dict[str, list[TopicPartitions]] = field(default_factory=dict)
    work_is_held: bool = False

    def new_shard(self) -> GroupShard:
        return GroupShard(self.settings, lambda: self.topics)

    def carry_out(self, outcome: Outcome[Record]) -> None:
        super().carry_out(outcome)
        if not self.work_is_held:
            self.do_work([], {})
        self._check()

    def _check(self) -> None:
        """G6: no partition has two owners, whatever happened."""
        for group in self.shard.groups.values():
            if isinstance(group, ConsumerGroup):
                held = [
                    (topic_id, partition)
                    for current in group.currents.values()
                    for has in (current.assigned, current.pending)
                    for topic_id, partitions in has.items()
                    for partition in partitions
                ]
                assert len(held) == len(set(held)) == len(group.holders)

    def describe_record(self, record: Record) -> str:
        if not isinstance(record, CONSUMER_RECORDS):
            return describe_record(record)
        who = getattr(record, "member_id", getattr(record, "expression", ""))
        what = f"{type(record).__name__.removesuffix('Record')} {record.group_id} {who}".strip()
        if record.value is None:
            return f"{what} removed"
        return f"{what} {self._describe_value(record)}".strip()

    def _describe_value(self, record: Any) -> str:
        match record:
            case EpochRecord(value=value):
                return str(value.epoch)
            case MemberRecord(value=value):
                text = f"topics={','.join(sorted(value.topics))}"
                text += f" regex={value.expression}" if value.expression else ""
                text += f" instance={value.instance_id}" if value.instance_id else ""
                return text + (" classic" if value.classic else "")
            case TargetEpochRecord(value=value):
                return str(value.epoch)
            case TargetRecord(value=value):
                return self._show(value)
            case CurrentRecord(value=value):
                text = f"{value.epoch} (was {value.previous_epoch}) {value.state.name} {self._show(value.assigned)}"
                return text + (f" revoking {self._show(value.pending)}" if value.pending else "")
            case ExpressionRecord(value=value):
                return ",".join(sorted(value.topics))
        raise AssertionError(record)

    def _show(self, partitions: Any) -> str:
        names = {topic_id: self.topics.names.get(topic_id, "?") for topic_id in partitions}
        shown = sorted((names[topic_id], sorted(has)) for topic_id, has in partitions.items())
        if sum(len(numbers) for _, numbers in shown) > MAX_SHOWN:
            return f"{sum(len(numbers) for _, numbers in shown)} partitions"
        return " ".join(f"{name}{numbers}".replace(" ", "") for name, numbers in shown) or "nothing"

    def _describe(self, name: str, response: Any) -> str:
        if isinstance(response, ConsumerGroupHeartbeatResponse):
            if response.error_code:
                return ErrorCode(response.error_code).name
            self.ids[name] = response.member_id
            self.epochs[name] = response.member_epoch
            if response.assignment is None:
                return f"epoch={response.member_epoch} -"
            self.assigned[name] = response.assignment.topic_partitions
            shown = {row.topic_id: row.partitions for row in response.assignment.topic_partitions}
            return f"epoch={response.member_epoch} {self._show(shown)}"
        if isinstance(response, SyncGroupResponse) and response.assignment:
            rows = decode_data(ConsumerProtocolAssignment, bytes(response.assignment)).assigned_partitions
            text = " ".join(f"{row.topic}{row.partitions}".replace(" ", "") for row in rows)
            return f"sync NONE {text or 'nothing'}"
        if isinstance(response, JoinGroupResponse):
            self.epochs[name] = response.generation_id
        return super()._describe(name, response)

    def topic_id(self, topic: str) -> UUID:
        return self.topics.by_name[topic].topic_id

    # Commands

    def do_topics(self, names: list[str], options: dict[str, str]) -> None:
        by_name = {
            name: Topic(
                UUID(int=sum(map(ord, name)) + (0 if "+" not in count else 1 << 64)), range(int(count))
            )
            for name, count in options.items()
        }
        ids = {topic.topic_id: name for name, topic in by_name.items()}
        self.topics = Topics(by_name, ids, self.topics.version + 1)

    def do_times(self, names: list[str], options: dict[str, str]) -> None:
        times = GroupTimes(**{name: int(value) for name, value in options.items()})
        self.settings = type(self.settings)(times_of=lambda _: times)
        self.start()

    def do_beat(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        owned = None
        if "owned" in options:
            owned = self._parse(options["owned"])
        epoch = int(options.get("epoch", self.epochs.get(name, 0)))
        if epoch == 0 and owned is None:
            owned = []
        topics = options.get("topics")
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.get("group", GROUP),
            member_id=self._member_id(name, options) or name,
            member_epoch=epoch,
            instance_id=options.get("instance"),
            rebalance_timeout_ms=int(options.get("rebalance", "60000" if epoch == 0 else "-1")),
            subscribed_topic_names=None if topics is None else [one for one in topics.split(",") if one],
            subscribed_topic_regex=options.get("regex"),
            server_assignor=options.get("assignor"),
            topic_partitions=owned,
        )
        caller = Caller(self.waiter(name), 1, name, "/host", name)
        may = None
        if "hides" in options:
            hidden = set(options["hides"].split(","))
            may = lambda topic: topic not in hidden  # noqa: E731
        self.carry_out(self.shard.consumer_heartbeat(request, caller, may, self.now))

    def _parse(self, text: str) -> list[TopicPartitions]:
        rows = []
        for name, numbers in re.findall(r"(\w+)\[([\d,]*)\]", text):
            topic_id = self.topics.by_name[name].topic_id
            partitions = [int(number) for number in numbers.split(",") if number]
            rows.append(TopicPartitions(topic_id=topic_id, partitions=partitions))
        return rows

    def do_ack(self, names: list[str], options: dict[str, str]) -> None:
        for name in names:
            shown = {row.topic_id: row.partitions for row in self.assigned.get(name, [])}
            owned = "" if not shown else self._show(shown).replace(" ", ";")
            self.do_beat([name], {**options, "owned": owned})

    def do_away(self, names: list[str], options: dict[str, str]) -> None:
        for name in names:
            self.do_beat([name], {"epoch": "-1", **options})
            self.epochs.pop(name, None)
            self.assigned.pop(name, None)

    def do_classic(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        self.issued_ids += 1
        rows = self._parse(options.get("owned", ""))
        subscription = ConsumerProtocolSubscription(
            topics=[topic for topic in options.get("topics", "t").split(",") if topic],
            owned_partitions=[
                AssignedTopic(topic=self.topics.names[row.topic_id], partitions=row.partitions)
                for row in rows
            ],
        )
        protocols = [
            JoinGroupRequestProtocol(
                name=one.rstrip("!"), metadata=b"" if one.endswith("!") else encode_data(subscription, 1)
            )
            for one in options.get("protocols", "range").split(",")
            if one
        ]
        instance = options.get("instance")
        request = JoinGroupRequest(
            group_id=options.get("group", GROUP),
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "60000")),
            member_id=self._member_id(name, options),
            group_instance_id=instance,
            protocol_type=options.get("type", "consumer"),
            protocols=protocols,
        )
        new_id = f"{instance or name}-{self.issued_ids}"
        caller = Caller(self.waiter(name), int(options.get("v", "9")), name, "/host", new_id)
        self.carry_out(self.shard.join(request, caller, self.now))

    def assignment_of(self, text: str) -> bytes:
        rows = [
            AssignedTopic(topic=self.topics.names[row.topic_id], partitions=row.partitions)
            for row in self._parse(text)
        ]
        return encode_data(ConsumerProtocolAssignment(assigned_partitions=rows), 0)

    def do_hold_work(self, names: list[str], options: dict[str, str]) -> None:
        self.work_is_held = True

    def do_work(self, names: list[str], options: dict[str, str]) -> None:
        work, self.work = self.work, []
        for one in work:
            one.run()
            self.carry_out(one.on_done(self.now, None))

    def do_consumers(self, names: list[str], options: dict[str, str]) -> None:
        described = self.shard.describe_consumer(options.get("group", GROUP))
        if described.error_code:
            self.say(ErrorCode(described.error_code).name)
            return
        self.say(
            f"{described.group_state} epoch={described.group_epoch} target={described.assignment_epoch} "
            f"assignor={described.assignor_name}"
        )
        for member in described.members:
            current, target = (
                self._show({row.topic_id: row.partitions for row in assignment.topic_partitions})
                for assignment in (member.assignment, member.target_assignment)
            )
            self.say(f"  {member.member_id} epoch={member.member_epoch} has {current}, shall have {target}")

    def do_replayed(self, names: list[str], options: dict[str, str]) -> None:
        other = self.new_shard()
        for key, value in self.log:
            record = self.codec.decode(key, value)
            if record is not None:
                other.replay(record)
        mine, theirs = (
            {
                group_id: (
                    group.epoch,
                    group.target_epoch,
                    group.members,
                    group.targets,
                    group.currents,
                    group.expressions,
                    group.static_members,
                    group.holders,
                    group.names,
                    group.expression_users,
                    group.classic_count,
                )
                for group_id, group in shard.groups.items()
                if isinstance(group, ConsumerGroup)
            }
            for shard in (self.shard, other)
        )
        assert mine == theirs, f"{mine}\n{theirs}"
        self.say("the same")
