"""The requests of a member, and what it does after each kind of response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from felice.client import Consumer, ConsumerGroupMetadata, KafkaError, TopicPartition
from felice.client.net import waiting
from felice.protocol.codec import decode_data, encode_data
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from felice.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from felice.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from unit.client.admin.exchange import broker_ranges
from unit.client.group.test_membership import Coordinator, settings, spin, waiting_lines
from waiting import wait_until


@pytest.fixture
def broker() -> Any:
    with Coordinator() as started:
        yield started


def assigned(*topics: tuple[str, list[int]]) -> bytes:
    rows = [AssignedTopic(topic=topic, partitions=numbers) for topic, numbers in topics]
    return encode_data(ConsumerProtocolAssignment(assigned_partitions=rows), 0)


def subscription(*topics: str) -> bytes:
    return encode_data(ConsumerProtocolSubscription(topics=list(topics)), 0)


def test_requests_carry_the_settings_and_the_identity(broker: Coordinator) -> None:
    keys = {
        "group.instance.id": "static",
        "max.poll.interval.ms": 70_000,
        "client.rack": "r",
        "partition.assignment.strategy": "range,roundrobin",
    }
    with Consumer({**settings(broker), **keys}) as consumer:
        assert consumer.consumer_group_metadata() == ConsumerGroupMetadata("g", -1, "", None)
        consumer.subscribe(["t"])
        spin(consumer, lambda: len(broker.asked(HeartbeatRequest)) >= 2)
        assert consumer.consumer_group_metadata() == ConsumerGroupMetadata("g", 1, "me", "static")
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        spin(consumer, lambda: len(broker.asked(SyncGroupRequest)) == 2)
    first, second = broker.asked(JoinGroupRequest)
    assert (first.group_id, first.member_id, first.group_instance_id) == ("g", "", "static")
    assert (first.session_timeout_ms, first.rebalance_timeout_ms) == (60_000, 70_000)
    assert (first.protocol_type, first.reason) == ("consumer", "first join")
    assert [row.name for row in first.protocols] == ["range", "roundrobin"]
    said = decode_data(ConsumerProtocolSubscription, first.protocols[0].metadata)
    assert (said.topics, said.owned_partitions, said.generation_id, said.rack_id) == (["t"], [], -1, "r")
    assert (second.member_id, second.reason) == ("me", "the group rebalances")
    again = decode_data(ConsumerProtocolSubscription, second.protocols[0].metadata)
    assert (again.owned_partitions, again.generation_id) == ([], 1), "an eager member owns nothing"
    sync = broker.asked(SyncGroupRequest)[0]
    assert (sync.group_id, sync.generation_id, sync.member_id, sync.group_instance_id) == (
        "g",
        1,
        "me",
        "static",
    )
    assert (sync.protocol_type, sync.protocol_name, sync.assignments) == ("consumer", "range", [])
    beat = broker.asked(HeartbeatRequest)[0]
    assert (beat.group_id, beat.generation_id, beat.member_id, beat.group_instance_id) == (
        "g",
        1,
        "me",
        "static",
    )
    assert broker.asked(LeaveGroupRequest) == [], "a static member keeps its place"


def test_a_member_leaves_with_a_reason_when_it_is_closed(broker: Coordinator) -> None:
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: bool(consumer.assignment()))
    identity = MemberIdentity(member_id="me", reason="the consumer was closed or unsubscribed")
    assert broker.asked(LeaveGroupRequest) == [LeaveGroupRequest(group_id="g", members=[identity])]


def test_a_member_that_was_told_its_id_joins_again_at_once(broker: Coordinator) -> None:
    broker.script(
        JoinGroupRequest, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="given")
    )
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: bool(consumer.assignment()))
    assert [row.member_id for row in broker.asked(JoinGroupRequest)] == ["", "given"]


def test_the_leader_assigns_topics_that_only_others_subscribe_to(broker: Coordinator) -> None:
    broker.topics["u"] = (broker.topics["t"][0], 2)
    members = [
        JoinGroupResponseMember(member_id="me", metadata=subscription("t")),
        JoinGroupResponseMember(member_id="other", metadata=subscription("u")),
    ]
    broker.script(
        JoinGroupRequest,
        JoinGroupResponse(
            generation_id=1, protocol_name="range", leader="me", member_id="me", members=members
        ),
    )
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: bool(broker.asked(SyncGroupRequest)))
        given = {
            row.member_id: [
                (topic.topic, topic.partitions)
                for topic in decode_data(ConsumerProtocolAssignment, row.assignment).assigned_partitions
            ]
            for row in broker.asked(SyncGroupRequest)[0].assignments
        }
    assert given == {"me": [("t", [0])], "other": [("u", [0, 1])]}


def test_a_leader_that_need_not_assign_sends_no_assignment(broker: Coordinator) -> None:
    broker.script(
        JoinGroupRequest,
        JoinGroupResponse(
            generation_id=1,
            protocol_name="range",
            leader="me",
            member_id="me",
            skip_assignment=True,
            members=[JoinGroupResponseMember(member_id="me", metadata=subscription("t"))],
        ),
    )
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: bool(consumer.assignment()))
    assert [row.assignments for row in broker.asked(SyncGroupRequest)] == [[]]


def test_a_leader_rebalances_when_a_topic_gets_partitions(broker: Coordinator) -> None:
    member = JoinGroupResponseMember(member_id="me", metadata=subscription("t"))
    broker.handlers[JoinGroupRequest] = lambda request, version: JoinGroupResponse(
        generation_id=1, protocol_name="range", leader="me", member_id="me", members=[member]
    )
    with Consumer(settings(broker, metadata_max_age_ms=100)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: bool(consumer.assignment()))
        broker.topics["t"] = (broker.topics["t"][0], 2)
        spin(consumer, lambda: len(broker.asked(JoinGroupRequest)) == 2)
        spin(consumer, lambda: bool(consumer.assignment()))
    assert broker.asked(JoinGroupRequest)[1].reason == "topics changed"


@pytest.mark.parametrize("response", ["join", "sync", "heartbeat"])
@pytest.mark.parametrize(
    ("code", "lookups", "member_id"),
    [
        (ErrorCode.NOT_COORDINATOR, 2, "me"),
        (ErrorCode.REBALANCE_IN_PROGRESS, 1, "me"),
        (ErrorCode.UNKNOWN_MEMBER_ID, 1, ""),
        (ErrorCode.ILLEGAL_GENERATION, 1, "me"),
    ],
)
def test_what_a_member_does_after_an_error(
    broker: Coordinator, response: str, code: int, lookups: int, member_id: str
) -> None:
    kind, answer = {
        "join": (JoinGroupRequest, JoinGroupResponse(error_code=code)),
        "sync": (SyncGroupRequest, SyncGroupResponse(error_code=code)),
        "heartbeat": (HeartbeatRequest, HeartbeatResponse(error_code=code)),
    }[response]
    broker.script(kind, answer)
    joins = 1 if (response, code) == ("heartbeat", ErrorCode.NOT_COORDINATOR) else 2
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        errors = spin(
            consumer,
            lambda: (
                bool(consumer.assignment())
                and len(broker.asked(JoinGroupRequest)) == joins
                and len(broker.asked(HeartbeatRequest)) >= 2
            ),
        )
    found = [row.key_type for row in broker.asked(FindCoordinatorRequest)]
    assert (errors, len(found)) == ([], lookups)
    if joins == 2 and response != "join":
        assert broker.asked(JoinGroupRequest)[1].member_id == member_id


@pytest.mark.parametrize("kind", [JoinGroupRequest, SyncGroupRequest])
def test_a_group_that_refuses_the_member_is_told_to_the_application(broker: Coordinator, kind: type) -> None:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    answer = {JoinGroupRequest: JoinGroupResponse, SyncGroupRequest: SyncGroupResponse}[kind](error_code=code)
    broker.script(kind, answer)
    told: list[KafkaError] = []
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        told += spin(consumer, lambda: bool(consumer.assignment()))
    [error] = told
    assert error == code and error.str().endswith(": group 'g'")


def test_a_broker_without_groups_is_told_to_the_application() -> None:
    with Coordinator() as broker:
        broker.ranges = {key: row for key, row in broker_ranges({}).items() if key != 11}
        told: list[KafkaError] = []
        with Consumer(settings(broker)) as consumer:
            consumer.subscribe(["t"])
            while not told:
                message = consumer.poll(0.05)
                if message is not None and message.error() is not None:
                    told.append(message.error())
    assert told[0] == KafkaError._UNSUPPORTED_FEATURE


def test_an_assignment_that_cannot_be_read_is_told_to_the_application(broker: Coordinator) -> None:
    broker.script(SyncGroupRequest, SyncGroupResponse(assignment=b"\0"))
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        [error] = spin(consumer, lambda: bool(consumer.assignment()))
    assert error == KafkaError._BAD_MSG


def test_each_wait_to_join_is_reported(
    broker: Coordinator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.2)
    join = broker.handlers[JoinGroupRequest]
    loading = JoinGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with Consumer(settings(broker)) as consumer:
        for turn in (1, 2):
            broker.handlers[JoinGroupRequest] = lambda request, version: loading
            if turn == 1:
                consumer.subscribe(["t"])
            else:
                broker.script(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            spin(consumer, lambda turn=turn: len(waiting_lines(caplog)) == turn)
            broker.handlers[JoinGroupRequest] = join
            spin(consumer, lambda: bool(consumer.assignment()))
    assert len(waiting_lines(caplog)) == 2


def test_a_member_that_is_not_polled_leaves_with_a_reason_and_comes_back(broker: Coordinator) -> None:
    told: list[str] = []
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"], on_lost=lambda _, tps: told.append("lost"))
        spin(consumer, lambda: bool(consumer.assignment()))
        membership = consumer._core.membership
        assert membership is not None
        given, membership._settings = (
            membership._settings,
            replace(membership._settings, max_poll_interval_ms=1000),
        )
        wait_until(lambda: broker.asked(LeaveGroupRequest))
        membership._settings = given  # a slow machine polls rarely
        [identity] = broker.asked(LeaveGroupRequest)[0].members
        assert (identity.member_id, identity.reason) == ("me", "max.poll.interval.ms exceeded")
        errors = spin(consumer, lambda: len(broker.asked(JoinGroupRequest)) == 2)
        assert KafkaError._MAX_POLL_EXCEEDED in errors and told == ["lost"]
        assert broker.asked(JoinGroupRequest)[1].member_id == ""


def test_a_subscription_that_changes_joins_again(broker: Coordinator) -> None:
    broker.topics["u"] = (broker.topics["t"][0], 1)
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: bool(consumer.assignment()))
        consumer.subscribe(["t", "u"])
        spin(consumer, lambda: len(broker.asked(JoinGroupRequest)) == 2)
    request = broker.asked(JoinGroupRequest)[1]
    assert request.reason == "the subscription changed"
    assert decode_data(ConsumerProtocolSubscription, request.protocols[0].metadata).topics == ["t", "u"]


def test_subscribed_topics_are_created_only_if_allowed(broker: Coordinator) -> None:
    for allowed in (True, False):
        with Consumer(settings(broker, allow_auto_create_topics=allowed)) as consumer:
            consumer.subscribe(["t"])
            spin(consumer, lambda: bool(consumer.assignment()))
        asked = [row for row in broker.asked(MetadataRequest) if row.topics]
        assert {row.allow_auto_topic_creation for row in asked} == {allowed}
        broker.requests.clear()


def cooperative(broker: Coordinator, *answers: bytes) -> dict[str, Any]:
    broker.script(SyncGroupRequest, *(SyncGroupResponse(assignment=answer) for answer in answers))
    return settings(broker, partition_assignment_strategy="cooperative-sticky")


def test_a_cooperative_member_gives_up_only_what_it_loses_and_joins_again(broker: Coordinator) -> None:
    broker.topics["t"] = (broker.topics["t"][0], 3)
    told: list[tuple[str, list[int]]] = []

    def note(kind: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        return lambda _, tps: told.append((kind, [tp.partition for tp in tps]))

    options = cooperative(broker, assigned(("t", [0, 1])), assigned(("t", [1])), assigned(("t", [1, 2])))
    with Consumer(options) as consumer:
        consumer.subscribe(["t"], on_assign=note("assign"), on_revoke=note("revoke"))
        spin(consumer, lambda: len(told) == 1)
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        spin(consumer, lambda: len(told) >= 3)
        assert sorted(tp.partition for tp in consumer.assignment()) == [1, 2]
    assert told[:3] == [("assign", [0, 1]), ("revoke", [0]), ("assign", [2])]
    joins = broker.asked(JoinGroupRequest)
    owned = [
        [
            (row.topic, row.partitions)
            for row in decode_data(ConsumerProtocolSubscription, join.protocols[0].metadata).owned_partitions
        ]
        for join in joins
    ]
    assert owned == [[], [("t", [0, 1])], [("t", [1])]]
    assert joins[2].reason == "revoked partitions can be assigned to others now"
