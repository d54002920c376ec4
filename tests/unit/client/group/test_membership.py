"""A consumer in a group with a scripted coordinator: the identity that it sends, and when it sends requests."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from felice.client import Consumer, KafkaError, KafkaException, TopicPartition, aio
from felice.client.net import waiting
from felice.protocol.codec import encode_data
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment
from felice.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from felice.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from felice.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from felice.records.builder import build_batch
from felice.records.record import Record
from unit.client.fake_broker import FakeBroker
from waiting import LIMIT_S, wait_until


class Coordinator(FakeBroker):
    """Assigns partition 0 of topic t to every member."""

    def __init__(self) -> None:
        super().__init__({"t": 1})
        rows = [AssignedTopic(topic="t", partitions=[0])]
        assignment = encode_data(ConsumerProtocolAssignment(assigned_partitions=rows), 0)
        self.handlers[JoinGroupRequest] = lambda request, version: JoinGroupResponse(
            generation_id=len(self.asked(JoinGroupRequest)),
            protocol_name="range",
            leader="other",
            member_id=request.member_id or "me",
        )
        self.handlers[SyncGroupRequest] = lambda request, version: SyncGroupResponse(assignment=assignment)
        self.handlers[HeartbeatRequest] = lambda request, version: HeartbeatResponse()
        self.handlers[LeaveGroupRequest] = lambda request, version: LeaveGroupResponse()
        self.committed_error = 0
        self.handlers[OffsetFetchRequest] = self._committed
        self.handlers[OffsetCommitRequest] = self._refuse_commit
        self.append("t", 0, build_batch([Record(0, 1, None, b"v")] * 3))

    def _refuse_commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        row = OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[row])])

    def _committed(self, request: Any, version: int) -> OffsetFetchResponse:
        row = OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=-1, metadata="", error_code=self.committed_error
        )
        topics = [OffsetFetchResponseTopics(name="t", partitions=[row])]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


@pytest.fixture
def broker() -> Iterator[Coordinator]:
    with Coordinator() as started:
        yield started


def settings(broker: Coordinator, **keys: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 50,
        "session.timeout.ms": 60_000,
        "fetch.wait.max.ms": 10,
        **{name.replace("_", "."): value for name, value in keys.items()},
    }


def spin(consumer: Consumer, until: Callable[[], bool], limit_s: float = LIMIT_S) -> list[KafkaError]:
    errors = []
    deadline = time.monotonic() + limit_s
    while not until():
        assert time.monotonic() < deadline, "it never happened"
        message = consumer.poll(0.02)
        error = message.error() if message is not None else None
        if error is not None:
            errors.append(error)
    return errors


def test_heartbeats_continue_while_partitions_wait_to_be_revoked(broker: Coordinator) -> None:
    with Consumer(settings(broker)) as consumer:
        told: list[str] = []
        consumer.subscribe(["t"], on_revoke=lambda _, tps: told.append("revoke"))
        spin(consumer, lambda: bool(consumer.assignment()))
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        before = len(broker.asked(HeartbeatRequest))
        wait_until(lambda: len(broker.asked(HeartbeatRequest)) >= before + 6)
        assert not told
        spin(consumer, lambda: len(broker.asked(JoinGroupRequest)) == 2)
        assert told == ["revoke"]


def test_member_expelled_during_a_revocation_is_a_full_member_after_the_next_join(
    broker: Coordinator,
) -> None:
    told: list[str] = []
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(
            ["t"],
            on_assign=lambda _, tps: told.append("assign"),
            on_revoke=lambda _, tps: told.append("revoke"),
            on_lost=lambda _, tps: told.append("lost"),
        )
        spin(consumer, lambda: told == ["assign"])
        before = len(broker.asked(HeartbeatRequest))
        for code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID):
            broker.script(HeartbeatRequest, HeartbeatResponse(error_code=code))
        wait_until(lambda: len(broker.asked(HeartbeatRequest)) >= before + 2)
        membership = consumer._core.membership
        wait_until(lambda: membership is not None and membership._lost)  # it has read the second response
        spin(consumer, lambda: told == ["assign", "revoke", "assign"])
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        spin(consumer, lambda: len(told) == 5)
    assert told[3:5] == ["revoke", "assign"]


def test_replaced_static_member_does_not_rejoin(broker: Coordinator) -> None:
    with Consumer(settings(broker, group_instance_id="one")) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: bool(consumer.assignment()))
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        errors = spin(consumer, lambda: not consumer.assignment())
        deadline = time.monotonic() + 0.7
        errors += spin(consumer, lambda: time.monotonic() > deadline)
        for call in (
            lambda: consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False),
            lambda: consumer.commit(asynchronous=False),
            lambda: consumer.subscribe(["t"]),
            consumer.unsubscribe,
        ):
            with pytest.raises(KafkaException) as refused:
                call()
            assert (refused.value.code, refused.value.error.fatal()) == (KafkaError._FATAL, True)
    assert KafkaError._FATAL in errors
    assert len(broker.asked(JoinGroupRequest)) == 1


@pytest.mark.parametrize(("instance_id", "leaves"), [("one", 0), (None, 1)])
def test_static_member_that_is_not_polled_keeps_its_place(
    broker: Coordinator, instance_id: str | None, leaves: int
) -> None:
    given = {} if instance_id is None else {"group_instance_id": instance_id}
    with Consumer(settings(broker, **given)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: bool(consumer.assignment()))
        membership = consumer._core.membership
        assert membership is not None
        # Only now: a slow machine polls rarely.
        membership._settings = replace(membership._settings, max_poll_interval_ms=1000)
        wait_until(lambda: not membership.member.joined)
        assert len(broker.asked(LeaveGroupRequest)) == leaves
        beats = len(broker.asked(HeartbeatRequest))
        time.sleep(0.3)
        assert len(broker.asked(HeartbeatRequest)) == beats


def test_expelled_member_commits_nothing(broker: Coordinator) -> None:
    with Consumer(
        settings(broker, auto_commit_interval_ms=100, max_poll_interval_ms=300, session_timeout_ms=300)
    ) as consumer:
        consumer.subscribe(["t"], on_lost=lambda _, tps: None)
        while consumer.poll(0.1) is None:
            pass
        # The loss is reported only at the next poll: until then the position still exists and must not be committed.
        time.sleep(1.0)
        commits = broker.asked(OffsetCommitRequest)
    assert all(request.generation_id_or_member_epoch >= 0 for request in commits), commits


def test_error_of_a_committed_offset_does_not_cause_a_reset(broker: Coordinator) -> None:
    broker.committed_error = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        message = None
        while message is None:
            message = consumer.poll(0.1)
        assert message.error() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        broker.committed_error = 0
        spin(consumer, lambda: consumer.position(consumer.assignment())[0].offset == 3)


def test_assignment_is_in_force_when_the_poll_that_ran_its_callback_returns(broker: Coordinator) -> None:
    told: list[int] = []

    def on_assign(consumer: Consumer, partitions: Any) -> None:
        consumer._thread.post(time.sleep, 0.3)  # keeps the loop busy
        told.append(len(partitions))

    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"], on_assign=on_assign)
        spin(consumer, lambda: bool(told))
        assert [tp.topic for tp in consumer.assignment()] == ["t"]


def test_closing_member_leaves_its_group_although_a_callback_raises(broker: Coordinator) -> None:
    def fail(consumer: Consumer, partitions: Any) -> None:
        raise ZeroDivisionError("mine")

    consumer = Consumer(settings(broker))
    consumer.subscribe(["t"], on_revoke=fail)
    spin(consumer, lambda: bool(consumer.assignment()))
    with pytest.raises(ZeroDivisionError, match="mine"):
        consumer.close()
    assert len(broker.asked(LeaveGroupRequest)) == 1
    consumer.close()


def test_exception_of_a_coroutine_callback_is_reported_and_the_membership_continues(
    broker: Coordinator,
) -> None:
    async def fail(partitions: Any) -> None:
        raise ZeroDivisionError("mine")

    async def main() -> tuple[KafkaError | None, int]:
        async with aio.Consumer(settings(broker)) as consumer:
            await consumer.subscribe(["t"], on_assign=fail)
            first = await consumer.poll(LIMIT_S)
            assert first is not None
            values = 0
            while values < 3 and await consumer.poll(LIMIT_S) is not None:
                values += 1
            return first.error(), values

    error, values = asyncio.run(main())
    assert error == KafkaError._APPLICATION and "ZeroDivisionError: mine" in str(error)
    assert values == 3


def test_commit_callback_that_raises_does_not_end_automatic_commits(broker: Coordinator) -> None:
    def fail(error: Any, rows: Any) -> None:
        raise ZeroDivisionError("mine")

    async def main() -> None:
        keys = settings(broker, auto_commit_interval_ms=50)
        async with aio.Consumer({**keys, "on_commit": fail}) as consumer:
            await consumer.subscribe(["t"])
            async with asyncio.timeout(LIMIT_S):
                while len(broker.asked(OffsetCommitRequest)) < 3:
                    await consumer.poll(0.05)

    asyncio.run(main())


def test_consumer_without_its_thread_raises(broker: Coordinator) -> None:
    consumer = Consumer(settings(broker))
    consumer._thread.stop()
    with pytest.raises(RuntimeError, match="the consumer is closed"):
        consumer.poll(1)


def waiting_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if line.startswith("waiting: ")]


def test_wait_for_a_coordinator_is_reported_once_with_its_reason(
    broker: Coordinator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.3)
    heard: list[KafkaError] = []
    find = broker.handlers[FindCoordinatorRequest]

    def refuse(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        code, reason = ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is full"
        rows = [
            FoundCoordinator(key="g", node_id=-1, host="", port=-1, error_code=code, error_message=reason)
        ]
        return FindCoordinatorResponse(coordinators=rows)

    broker.handlers[FindCoordinatorRequest] = refuse
    with Consumer({**settings(broker), "error_cb": heard.append}) as consumer:
        consumer.subscribe(["t"])
        assert not spin(consumer, lambda: bool(heard))
        asked = len(broker.asked(FindCoordinatorRequest))
        spin(consumer, lambda: len(broker.asked(FindCoordinatorRequest)) > asked + 5)
        assert len(heard) == len(waiting_lines(caplog)) == 1
        assert heard[0] == KafkaError.COORDINATOR_NOT_AVAILABLE and heard[0].retriable()
        assert heard[0].str().endswith("coordinator of group 'g': the disk is full")
        broker.handlers[FindCoordinatorRequest] = find
        spin(consumer, lambda: bool(consumer.assignment()))


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_MEMBER_ID])
def test_wait_to_join_a_group_is_reported_once_too(
    broker: Coordinator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.3)
    join = broker.handlers[JoinGroupRequest]
    broker.handlers[JoinGroupRequest] = lambda request, version: JoinGroupResponse(error_code=code)
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        # Not delivered as an error of `poll`: many applications stop at the first such error.
        assert not spin(consumer, lambda: bool(waiting_lines(caplog)))
        asked = len(broker.asked(JoinGroupRequest))
        spin(consumer, lambda: len(broker.asked(JoinGroupRequest)) > asked + 3)
        assert len(waiting_lines(caplog)) == 1
        assert "group 'g' cannot be joined yet" in waiting_lines(caplog)[0]
        broker.handlers[JoinGroupRequest] = join
        spin(consumer, lambda: bool(consumer.assignment()))
        assert len(waiting_lines(caplog)) == 1
