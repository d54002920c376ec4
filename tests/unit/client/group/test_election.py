"""A member of an election with a scripted coordinator: when it has its role, and when it does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import pytest

from felice.client import KafkaException
from felice.client.group.election import Assignment, Election, Roles
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from felice.protocol.messages.leave_group import LeaveGroupRequest
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from unit.client.fake_broker import FakeBroker, Hang
from unit.client.group.test_membership import Coordinator
from waiting import let_run, until


class Member:
    """An election, and what it was told."""

    def __init__(self, broker: FakeBroker, session_timeout_s: float = 60.0, assign: bytes = b"role") -> None:
        self.told: list[object] = []
        # How long ago the last confirmed request was sent, at each loss of the role.
        self.ages_s: list[float] = []
        self._assign = assign
        roles = Roles(self.assign, self.told.append, self.on_revoked)
        self.election = Election(
            {"bootstrap.servers": broker.bootstrap},
            "g",
            "sr",
            "v0",
            b"identity",
            roles,
            session_timeout_s=session_timeout_s,
            heartbeat_interval_s=0.05,
        )

    def on_revoked(self, lost: bool) -> None:
        assert self.election.assignment is None
        candidacy = self.election._candidacy
        if candidacy is not None:
            self.ages_s.append(asyncio.get_running_loop().time() - candidacy.confirmed_at)
        self.told.append(lost)

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return dict.fromkeys(members, self._assign) | ({"stranger": b""} if self._assign == b"wrong" else {})


def electing() -> Coordinator:
    """A coordinator that lets every member lead the group and returns what it assigns."""
    broker = Coordinator()
    broker.handlers[JoinGroupRequest] = lambda request, version: JoinGroupResponse(
        generation_id=len(broker.asked(JoinGroupRequest)),
        protocol_name="v0",
        leader="me",
        member_id="me",
        members=[JoinGroupResponseMember(member_id="me", metadata=request.protocols[0].metadata)],
    )
    broker.handlers[SyncGroupRequest] = lambda request, version: SyncGroupResponse(
        assignment=request.assignments[0].assignment
    )
    return broker


def test_the_requests_carry_protocol_metadata_and_assignments() -> None:
    async def main() -> None:
        with electing() as broker:
            member = Member(broker)
            await member.election.start()
            assert member.told == [Assignment(b"role", "me", 1)]
            assert member.election.assignment == member.told[0] and member.election.member_id == "me"
            join = broker.asked(JoinGroupRequest)[0]
            assert (join.protocol_type, join.protocols[0].name) == ("sr", "v0")
            assert join.protocols[0].metadata == b"identity"
            assert join.rebalance_timeout_ms >= join.session_timeout_ms == 60_000
            sync = broker.asked(SyncGroupRequest)[0]
            assert (sync.protocol_type, sync.protocol_name) == ("sr", "v0")
            await member.election.stop()
            assert member.told[1:] == [False]
            assert len(broker.asked(LeaveGroupRequest)) == 1
            assert member.election.assignment is None

    asyncio.run(main())


@pytest.mark.parametrize(
    ("code", "lost"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, True),
        (ErrorCode.ILLEGAL_GENERATION, True),
    ],
)
def test_a_rebalance_takes_the_role_before_the_member_joins_again(code: ErrorCode, lost: bool) -> None:
    async def main() -> None:
        with electing() as broker:
            member = Member(broker)
            await member.election.start()
            broker.script(JoinGroupRequest, Hang())
            broker.script(HeartbeatRequest, HeartbeatResponse(error_code=code))
            await until(lambda: len(broker.asked(JoinGroupRequest)) == 2)
            assert member.told[1:] == [lost] and member.election.assignment is None
            await member.election.stop()
            assert member.told[1:] == [lost]

    asyncio.run(main())


def test_heartbeats_that_fail_take_the_role_before_the_session_is_over() -> None:
    async def main() -> None:
        with electing() as broker:
            member = Member(broker, session_timeout_s=2.0)
            await member.election.start()
            broker.handlers[HeartbeatRequest] = lambda request, version: HeartbeatResponse(
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
            await until(lambda: len(member.told) > 1)
            assert member.told[1] is True
            assert (
                member.ages_s[0] >= 1.6
            )  # not before: a coordinator that answers late must not cost the role
            await until(lambda: len(broker.asked(JoinGroupRequest)) >= 2)
            await member.election.stop()

    asyncio.run(main())


def test_an_assignment_that_arrives_after_the_session_is_not_used() -> None:
    async def main() -> None:
        with electing() as broker:
            answers = iter([0.5])

            def late(request: SyncGroupRequest, version: int) -> SyncGroupResponse:
                time.sleep(next(answers, 0.0))
                return SyncGroupResponse(assignment=request.assignments[0].assignment)

            broker.handlers[SyncGroupRequest] = late
            member = Member(broker, session_timeout_s=0.5)
            await member.election.start()
            assert next(one.generation for one in member.told if isinstance(one, Assignment)) >= 2
            await member.election.stop()

    asyncio.run(main())


def test_callbacks_that_raise_do_not_end_the_membership(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with electing() as broker:
            member = Member(broker)

            def raising(argument: object) -> None:
                member.told.append(argument)
                raise ValueError("the application's")

            member.election._roles = Roles(member.assign, raising, raising)
            await member.election.start()
            broker.script(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            await until(lambda: len(member.told) == 3)
            assert [type(one) for one in member.told] == [Assignment, bool, Assignment]
            await member.election.stop()
            assert caplog.text.count("ValueError: the application's") == 4

    asyncio.run(main())


def test_an_assignment_for_a_stranger_is_an_error() -> None:
    async def main() -> None:
        with electing() as broker:
            member = Member(broker, assign=b"wrong")
            with pytest.raises(KafkaException, match=r"assign named no members of the group: \['stranger'\]"):
                await member.election.start()
            assert not broker.asked(SyncGroupRequest)
            await let_run()
            assert not member.told

    asyncio.run(main())


def test_an_election_starts_once_at_a_time() -> None:
    async def main() -> None:
        with electing() as broker:
            member = Member(broker)
            assert member.election.assignment is None and member.election.member_id == ""
            member.election.rejoin("ignored: it has not started")
            await member.election.start()
            with pytest.raises(KafkaException, match="has started already"):
                await member.election.start()
            await member.election.stop()
            await member.election.start()
            await member.election.stop()
            assert len(member.told) == 4

    asyncio.run(main())
