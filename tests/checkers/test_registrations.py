"""The checker finds each kind of fault in a history, and none in a right one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkers.registrations import (
    Deletion,
    LookedUp,
    Registered,
    Registration,
    Setting,
    deletion_anomalies,
    registration_anomalies,
    setting_anomalies,
)

ASKED = [
    Registration("a", "A", 1.0, 1, 2.0),
    Registration("b", "A", 1.5, 1, 2.5),
    Registration("a", "B", 3.0, 2, 4.0),
    Registration("c", "C", 3.5),  # no answer
    Registration("c", "D", 5.0, 4, 6.0),
]
FOUND = [
    Registered("a", 1, 1, "A"),
    Registered("b", 1, 1, "A"),
    Registered("a", 2, 2, "B"),
    Registered("c", 1, 4, "D"),
]
UNKNOWN = Registered("c", 1, 3, "C")


def test_a_right_history_has_no_anomalies() -> None:
    assert registration_anomalies(ASKED, FOUND, seen=FOUND) == []


def test_a_request_without_an_answer_may_have_registered_its_schema() -> None:
    found = [*FOUND[:-1], UNKNOWN, Registered("c", 2, 4, "D")]
    assert registration_anomalies(ASKED, found) == []


@pytest.mark.parametrize(
    ("asked", "found", "kinds"),
    [
        (ASKED, FOUND[:-1], ["lost"]),
        (
            ASKED,
            [*FOUND[:1], replace(FOUND[1], text="X"), *FOUND[2:]],
            ["two schemas", "lost", "not asked for"],
        ),
        (ASKED, [*FOUND[:-1], replace(FOUND[-1], schema_id=5)], ["two ids", "changed"]),
        (ASKED, [*FOUND, replace(UNKNOWN, version=2, schema_id=2)], ["two schemas"]),
        (ASKED, [*FOUND, Registered("z", 1, 9, "Z")], ["not asked for"]),
        (ASKED, [*FOUND[:2], replace(FOUND[2], version=3), FOUND[3]], ["numbers"]),
        (ASKED, [*FOUND, replace(UNKNOWN, subject="c", version=1)], ["numbers"]),
        (
            [*ASKED[:2], replace(ASKED[2], schema_id=7), *ASKED[3:]],
            [*FOUND[:2], replace(FOUND[2], schema_id=7), FOUND[3]],
            ["back"],
        ),
    ],
    ids=["lost", "other text", "other id", "id twice", "nobody asked", "gap", "number twice", "id goes back"],
)
def test_each_fault_is_found(asked: list[Registration], found: list[Registered], kinds: list[str]) -> None:
    assert [fault.partition(":")[0] for fault in registration_anomalies(asked, found)] == kinds


def test_a_version_that_a_client_saw_stays() -> None:
    [fault] = registration_anomalies(ASKED, FOUND, seen=[Registered("a", 1, 2, "B")])
    assert fault.startswith("changed: Registered(subject='a', version=1, schema_id=2")


def test_ids_may_grow_in_any_order_while_requests_overlap() -> None:
    asked = [Registration("a", "A", 1.0, 2, 5.0), Registration("b", "B", 2.0, 1, 4.0)]
    found = [Registered("a", 1, 2, "A"), Registered("b", 1, 1, "B")]
    assert registration_anomalies(asked, found) == []


def test_an_id_has_one_text_in_every_look_up() -> None:
    assert registration_anomalies(ASKED, FOUND, looked_up=[LookedUp(1, "A"), LookedUp(3, "C")]) == []
    [fault] = registration_anomalies(ASKED, FOUND, looked_up=[LookedUp(2, "A")])[:1]
    assert fault.startswith("two schemas: id 2")


@pytest.mark.parametrize(
    ("deletions", "live", "faults"),
    [
        ([], FOUND, []),
        ([Deletion("a", 1, answered=True)], FOUND[1:], []),
        ([Deletion("a", 1, answered=False)], FOUND[1:], []),
        ([Deletion("a", 1, answered=False)], FOUND, []),
        ([Deletion("a", 1, answered=True)], FOUND, ["not deleted"]),
        ([], FOUND[1:], ["deleted, and nobody asked for it"]),
        ([Deletion("a", 2, answered=True)], FOUND[1:], ["not deleted", "deleted, and nobody asked for it"]),
    ],
)
def test_deletions_hold(deletions: list[Deletion], live: list[Registered], faults: list[str]) -> None:
    assert [fault.partition(":")[0] for fault in deletion_anomalies(deletions, FOUND, live)] == faults


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ({"a": "FULL", "b": "NONE"}, None),
        ({"a": "BACKWARD", "b": "NONE"}, None),  # the request without an answer may have come last
        ({"a": "FULL"}, None),
        ({"a": "NONE"}, "setting: a has NONE, its last answer said FULL"),
        ({}, "setting: a has None, its last answer said FULL"),
        ({"a": "FULL", "b": "FULL"}, "setting: b has FULL, which nobody asked for"),
        ({"a": "FULL", "c": "NONE"}, "setting: c has NONE, which nobody asked for"),
    ],
)
def test_settings_hold(found: dict[str, str], fault: str | None) -> None:
    settings = [
        Setting("a", "NONE", answered=True),
        Setting("a", "BACKWARD", answered=False),
        Setting("a", "FULL", answered=True),
        Setting("b", "NONE", answered=False),
    ]
    assert setting_anomalies(settings, found) == ([] if fault is None else [fault])
