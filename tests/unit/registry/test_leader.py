"""The texts of the protocol `sr`."""

from __future__ import annotations

import json

import pytest

from felice.registry.leader import BadMember, Choice, Identity, assign, choice_of, choose, identity_of

CONFLUENT = b'{"version":1,"host":"sr1","port":8081,"master_eligibility":true,"scheme":"http"}'


def test_the_identity_is_that_of_confluents_registry() -> None:
    assert Identity("sr1", 8081).encode() == CONFLUENT
    assert identity_of(CONFLUENT) == Identity("sr1", 8081)
    assert Identity("::1", 8081, scheme="https").url == "https://[::1]:8081"


def test_a_later_version_names_the_eligibility_otherwise() -> None:
    text = b'{"version":2,"host":"sr1","port":8081,"leader_eligibility":false,"scheme":"https","more":1}'
    assert identity_of(text) == Identity("sr1", 8081, eligible=False, scheme="https")


def test_the_smallest_address_leads() -> None:
    members = {"m1": Identity("b", 1), "m2": Identity("a", 2), "m3": Identity("a", 1, eligible=False)}
    choice = choose({name: identity.encode() for name, identity in members.items()})
    assert choice == Choice("m2", members["m2"])
    assigned = assign({name: identity.encode() for name, identity in members.items()})
    assert set(assigned) == set(members)
    assert json.loads(assigned["m1"]) == {
        "version": 1,
        "error": 0,
        "master": "m2",
        "master_identity": {
            "version": 1,
            "host": "a",
            "port": 2,
            "master_eligibility": True,
            "scheme": "http",
        },
    }
    assert {choice_of(assignment) for assignment in assigned.values()} == {choice}


def test_nobody_leads_if_two_have_one_address_or_none_may() -> None:
    same = Identity("a", 1).encode()
    assert choose({"m1": same, "m2": same}) == Choice(None, None, 1)
    assert choose({"m1": Identity("a", 1, eligible=False).encode()}) == Choice(None, None)
    assert choose({}) == Choice(None, None)
    assert choice_of(Choice(None, None, 1).encode()) == Choice(None, None, 1)


def test_a_member_of_another_kind_cannot_lead() -> None:
    assert choose({"m1": b"nonsense", "m2": Identity("z", 9).encode()}).member_id == "m2"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"host":"a"}',
        b'{"host":5,"port":1}',
        b'{"host":"a","port":true}',
        b'{"host":"a","port":1,"scheme":"ftp"}',
        b'{"host":"a","port":1,"master_eligibility":"yes"}',
    ],
)
def test_bad_metadata_is_named(data: bytes) -> None:
    with pytest.raises(BadMember):
        identity_of(data)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"error":0,"master":5}', b'{"error":0,"master":"m","master_identity":5}']
)
def test_a_bad_assignment_is_named(data: bytes) -> None:
    with pytest.raises(BadMember):
        choice_of(data)
