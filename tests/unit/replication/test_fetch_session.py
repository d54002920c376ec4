"""Both ends of a fetch session: the leader knows the partitions that the follower wants, even if messages are lost."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

import pytest

from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from felice.replication.fetch_session import FollowersSession, SessionPlan
from felice.server.fetching.fetch_sessions import FetchSessions

VERSION = 18
Key = tuple[UUID, int]


def request_of(plan: SessionPlan[Key, int]) -> FetchRequest:
    return FetchRequest(
        replica_state=ReplicaState(replica_id=2, replica_epoch=1),
        session_id=plan.session_id,
        session_epoch=plan.epoch,
        topics=[
            FetchTopic(topic_id=topic, partitions=[FetchPartition(partition=number, fetch_offset=offset)])
            for (topic, number), offset in plan.asked.items()
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic_id=topic, partitions=[number]) for topic, number in plan.forgotten
        ],
    )


@dataclass
class Ends:
    follower: FollowersSession[Key, int]
    leader: FetchSessions

    def exchange(self, wanted: dict[Key, int], touched: Iterable[Key]) -> dict[Key, int] | None:
        """The partitions that the leader read; None if it refused the request."""
        try:
            plan = self.leader.open(request_of(self.follower.plan(wanted, touched)), VERSION, 0)
        except ApiError as error:
            assert not self.follower.on_response(error.code, 0)
            return None
        assert self.follower.on_response(0, plan.session_id)
        return {(asked.topic, asked.partition): asked.fetch_offset for asked in plan.partitions}  # type: ignore[misc]


def ends(slots: int = 10) -> Ends:
    return Ends(FollowersSession(), FetchSessions(slots, random.Random(1)))


@pytest.mark.parametrize("seed", range(30))
def test_the_leader_decodes_the_followers_request(seed: int) -> None:
    chance, both = random.Random(seed), ends(slots=seed % 3)
    wanted: dict[Key, int] = {}
    touched: dict[Key, None] = {}
    for _ in range(60):
        key = UUID(int=chance.randrange(1, 4)), chance.randrange(3)
        touched[key] = None
        if chance.random() < 0.3:
            wanted.pop(key, None)
        else:
            wanted[key] = chance.randrange(100)
        if not wanted:
            continue
        what_happens = chance.random()
        if what_happens < 0.1:
            # The request or its response was lost.
            plan = both.follower.plan(wanted, touched)
            if what_happens < 0.05:
                both.leader.open(request_of(plan), VERSION, 0)
            both.follower.on_failure()
        elif what_happens < 0.15:
            both.leader = FetchSessions(seed % 3, random.Random(2))
        read = both.exchange(wanted, touched)
        assert read == wanted if read is not None else both.exchange(wanted, ()) == wanted
        touched.clear()


def test_only_changes_are_said_once_there_is_a_session() -> None:
    both = ends()
    first, second, third = ((UUID(int=1), number) for number in range(3))
    both.exchange({first: 0, second: 0}, ())
    plan = both.follower.plan({first: 5, third: 0}, (first, second, third))
    assert (plan.asked, plan.forgotten, plan.epoch) == ({first: 5, third: 0}, (second,), 1)


def test_a_session_that_the_leader_forgot_is_not_closed_again() -> None:
    session: FollowersSession[Key, int] = FollowersSession()
    session.plan({(UUID(int=1), 0): 1}, ())
    session.on_response(0, 77)
    session.on_failure()
    assert session.plan({}, ()).session_id == 77
    session.on_response(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert (session.plan({}, ()).session_id, session.plan({}, ()).epoch) == (0, 0)
