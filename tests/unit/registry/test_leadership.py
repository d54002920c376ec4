"""What a registry makes of the group's decisions."""

from __future__ import annotations

import asyncio
import logging

import pytest

from felice.client.group.election import Assignment
from felice.registry.leader import Choice, Identity
from felice.registry.leadership import GroupMembership, Leadership, NotLeader
from waiting import let_run

OWN, OTHER = Identity("own", 1), Identity("other", 2)


def joined() -> tuple[GroupMembership, Leadership]:
    leadership = Leadership()
    membership = GroupMembership({"bootstrap.servers": "127.0.0.1:1"}, "g", OWN, leadership)
    leadership.holds = lambda: True
    return membership, leadership


def assigned(membership: GroupMembership, data: bytes) -> None:
    membership._on_assigned(Assignment(data, "me", 1))


async def test_the_chosen_member_leads_until_its_role_is_revoked() -> None:
    membership, leadership = joined()
    led: list[None] = []
    leadership.on_mine = lambda: led.append(None)
    assigned(membership, Choice("me", OWN).encode())
    leadership.check()
    assert (leadership.leader, len(led)) == (OWN, 1)
    membership._on_revoked(False)
    with pytest.raises(NotLeader) as refused:
        leadership.check()
    assert refused.value.url is None
    assigned(membership, Choice("me", OWN).encode())
    assert len(led) == 2, "another registry may have led in between"


async def test_the_others_follow() -> None:
    membership, leadership = joined()
    assigned(membership, Choice("you", OTHER).encode())
    with pytest.raises(NotLeader) as refused:
        leadership.check()
    assert refused.value.url == "http://other:2"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (Choice(None, None, 1).encode(), "two registries of the group have one address"),
        (b"nonsense", "the group's leader sent an unknown decision"),
        (b"", "the group's leader sent an unknown decision"),
    ],
)
async def test_without_a_decision_nobody_leads(
    data: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    membership, leadership = joined()
    assigned(membership, Choice("me", OWN).encode())
    with caplog.at_level(logging.ERROR, "felice.registry"):
        assigned(membership, data)
    assert not leadership.is_mine
    assert said in caplog.text


async def test_a_role_counts_only_while_the_membership_is_certain() -> None:
    membership, leadership = joined()
    assigned(membership, Choice("me", OWN).encode())
    leadership.holds = lambda: False
    assert not leadership.is_mine
    with pytest.raises(NotLeader):
        leadership.check()


async def test_a_membership_that_did_not_start_gives_no_role() -> None:
    leadership = Leadership()
    membership = GroupMembership({"bootstrap.servers": "127.0.0.1:1"}, "g", OWN, leadership)
    assigned(membership, Choice("me", OWN).encode())
    assert not leadership.is_mine


async def test_waiting_for_a_leader_ends_with_the_time() -> None:
    leadership = Leadership()
    await leadership.wait_other(None, 0.01)
    leadership.follow(OTHER)
    await leadership.wait_other(None, 60)
    await leadership.wait_other(OTHER.url, 0.01)
    waiting = asyncio.create_task(leadership.wait_other(OTHER.url, 60))
    await let_run()
    leadership.follow(None)
    await let_run()
    assert not waiting.done()
    leadership.lead(OWN)
    await waiting
