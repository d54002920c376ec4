"""Members of a group with a protocol type of their own elect a leader, at a real coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from felice.client import KafkaError, KafkaException
from felice.client.aio import Consumer
from felice.client.group.election import Assignment, Election, Roles
from felice.protocol.errors import ErrorCode
from felice.testing import AsyncBroker
from waiting import until

GROUP = "elected"


class Candidate:
    """A member whose name is its metadata; the smallest name becomes the leader."""

    def __init__(self, broker: AsyncBroker, name: str, **options: Any) -> None:
        self.name = name
        self.told: list[str] = []
        self.errors: list[KafkaError] = []
        self.refusal: Exception | None = None
        roles = Roles(self.assign, self.on_assigned, self.on_revoked, self.errors.append)
        config = {"bootstrap.servers": broker.bootstrap, "client.id": name, "reconnect.backoff.max.ms": 500}
        options = {"session_timeout_s": 6.0, "heartbeat_interval_s": 0.1, **options}
        self.election = Election(config, GROUP, "sr", "v0", name.encode(), roles, **options)

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        if self.refusal is not None:
            raise self.refusal
        leader = min(members.values())
        return dict.fromkeys(members, leader)

    def on_assigned(self, assignment: Assignment) -> None:
        self.told.append(f"assigned {assignment.data.decode()}")

    def on_revoked(self, lost: bool) -> None:
        assert self.election.assignment is None
        self.told.append("lost" if lost else "revoked")

    @property
    def leader(self) -> str | None:
        held = self.election.assignment
        return None if held is None else held.data.decode()


def test_all_members_get_the_same_leader_and_the_next_one_when_it_leaves() -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            b, c, a = (Candidate(broker, name) for name in "bca")
            await b.election.start()
            assert b.leader == "b" and b.election.member_id
            await c.election.start()
            await until(lambda: b.leader == c.leader == "b")
            await a.election.start()
            await until(lambda: a.leader == b.leader == c.leader == "a")
            await a.election.stop()
            assert a.told[-1] == "revoked" and a.leader is None
            await until(lambda: b.leader == c.leader == "b")
            for told in (a.told, b.told, c.told):
                turns = ["assigned" in line for line in told]
                assert turns == [number % 2 == 0 for number in range(len(turns))]
                assert "lost" not in told
            await b.election.stop()
            await c.election.stop()

    asyncio.run(main())


def test_metadata_that_changed_is_assigned_by_after_a_rejoin() -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            b, c = Candidate(broker, "b"), Candidate(broker, "c")
            await b.election.start()
            await c.election.start()
            await until(lambda: b.leader == c.leader == "b")
            c.election.metadata = b"a"
            c.election.rejoin("its metadata changed")
            await until(lambda: b.leader == c.leader == "a")
            await b.election.stop()
            await c.election.stop()

    asyncio.run(main())


def test_a_member_without_heartbeats_gives_up_its_role_by_its_own_clock() -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            a = Candidate(broker, "a")
            await a.election.start()
            fault = broker.faults.black_hole("Heartbeat", client_id="a")
            await until(lambda: a.told[-1] != "assigned a")
            # The member gives up its role by the clock; it is told in the next turn of its loop.
            await until(lambda: a.told == ["assigned a", "lost"])
            fault.remove()
            await until(lambda: a.leader == "a")
            await a.election.stop()

    asyncio.run(main())


def test_a_role_is_assigned_again_after_the_broker_restarted() -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            a = Candidate(broker, "a")
            await a.election.start()
            await broker.stop()
            await until(lambda: a.leader is None)
            # It is told in the next turn of its loop.
            await until(lambda: a.told == ["assigned a", "lost"])
            await broker.start()
            await until(lambda: a.leader == "a")
            assert a.told == ["assigned a", "lost", "assigned a"]
            await a.election.stop()

    asyncio.run(main())


def test_start_waits_for_a_broker_and_names_the_reason_if_none_comes() -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            a = Candidate(broker, "a")
            await broker.stop()
            with pytest.raises(
                KafkaException, match="'elected' was not joined in 1 s: .*[Rr]efused"
            ) as raised:
                await a.election.start(1.0)
            assert raised.value.code == KafkaError._TIMED_OUT
            starting = asyncio.create_task(a.election.start())
            await broker.start()
            await starting
            assert a.leader == "a"
            await a.election.stop()

    asyncio.run(main())


def test_start_raises_what_a_retry_does_not_resolve() -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            broker.blocking.create_topic("t")
            config = {"bootstrap.servers": broker.bootstrap, "group.id": GROUP}
            async with Consumer(config) as consumer:
                await consumer.subscribe(["t"])
                while not consumer.assignment():
                    await consumer.poll(0.1)
                a = Candidate(broker, "a")
                with pytest.raises(KafkaException) as raised:
                    await a.election.start()
                assert raised.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
                assert not a.told

    asyncio.run(main())


def test_errors_of_assign_are_reported_and_the_group_tries_again() -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            a = Candidate(broker, "a")
            await a.election.start()
            a.refusal = ValueError("no identity")
            a.election.rejoin("the test wants it")
            await until(lambda: len(a.errors) >= 2)
            assert "assign raised ValueError: no identity" in a.errors[0].str()
            assert a.told == ["assigned a", "revoked"]
            a.refusal = None
            await until(lambda: a.leader == "a")
            await a.election.stop()

    asyncio.run(main())
