"""The comparison's own parts, without brokers: random operations, normalised answers, differences, accepted ones."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest

from conformance.wire import api_named
from differential import accepted
from differential.accepted import Accepted, covering
from differential.address import Address
from differential.batches import BREAKS, batch_of
from differential.generator import PRODUCERS, random_operations
from differential.normalise import UNKNOWN_ID, Normaliser, differences
from differential.operation import Operation
from differential.plain import fit, to_message, to_plain
from differential.side import Side
from felice.protocol.codec import decode, encode
from felice.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from felice.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from felice.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from felice.protocol.messages.metadata import MetadataRequest
from felice.records.batch import BatchHeader
from felice.records.validate import only_batch

DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"
NOW_MS = 1_700_000_000_000
METADATA = Operation("Metadata", 9, {"topics": None})


def side() -> Side:
    return Side("either", Address("nowhere:0"), "run-1-", NOW_MS, 0.0)


# Random operations


def test_a_seed_gives_the_same_operations_every_time() -> None:
    assert list(random_operations("5/1", 60)) == list(random_operations("5/1", 60))
    assert list(random_operations("5/1", 60)) != list(random_operations("5/2", 60))


def test_every_operation_survives_being_printed_and_can_be_sent() -> None:
    """Encoded with nothing learned, and decoded again to the last byte."""
    apis = set()
    for number in range(60):
        for operation in random_operations(f"1/{number}", 40):
            assert Operation.from_json(operation.to_json()) == operation
            api = api_named(operation.api)
            message = to_message(api.request, side().resolve(operation.body))
            decode(api.request, encode(message, operation.version), operation.version)
            apis.add(operation.api)
    assert len(apis) >= 38


def test_symbols_become_what_the_broker_gave() -> None:
    known = side()
    known.producers["p0"] = (7, 3)
    known.members["m0"] = ("id", 4)
    known.topic_ids["run-1-a"] = UUID(int=5)
    known.sequences[7, 3, "run-1-a", 0] = 9
    body = {
        "name": "~a",
        "ids": [{"ref": ["topic_id", "~a"]}, {"ref": ["topic_id", "~b"]}],
        "pid": {"ref": ["pid", "p0"]},
        "epochs": [{"ref": ["epoch", "p0"]}, {"ref": ["epoch", "p0", -1]}, {"ref": ["epoch", "p1"]}],
        "member": [{"ref": ["member", "m0"]}, {"ref": ["generation", "m0", 1]}, {"ref": ["member", "m1"]}],
        "seq": {"ref": ["seq", "p0", "~a", 0, 1]},
        "at": {"time": -5},
    }
    assert known.resolve(body) == {
        "name": "run-1-a",
        "ids": [UUID(int=5), UNKNOWN_ID],
        "pid": 7,
        "epochs": [3, 2, -1],
        "member": ["id", 5, ""],
        "seq": 10,
        "at": NOW_MS - 5,
    }


def test_a_request_has_the_fields_of_its_version_only() -> None:
    body = {
        "topics": [{"name": "a", "topic_id": str(UUID(int=1))}],
        "allow_auto_topic_creation": True,
        "x": 1,
    }
    assert fit(MetadataRequest, body, 3) == {"topics": [{"name": "a"}]}
    assert fit(MetadataRequest, body, 12) == {name: body[name] for name in body if name != "x"}


@pytest.mark.parametrize("fault", BREAKS)
def test_a_broken_batch_is_broken_and_a_good_one_is_not(fault: str) -> None:
    made = batch_of({"values": ["a", "b"], "break": fault, "pid": 7, "epoch": 1, "seq": 3}, NOW_MS)
    good = batch_of({"values": ["a", "b"], "pid": 7, "epoch": 1, "seq": 3}, NOW_MS)
    assert (made == good) == (fault == "")
    assert good is not None
    assert only_batch(good) == BatchHeader.parse(good)
    assert BatchHeader.parse(good).base_sequence == 3


# Answers


def group(member_id: str, host: str, client_id: str = "wire") -> DescribeGroupsResponse:
    member = DescribedGroupMember(member_id=member_id, client_id=client_id, client_host=host)
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id="run-1-g", members=[member])])


def test_what_may_differ_is_equal_afterwards_and_the_rest_is_not() -> None:
    one, other = Normaliser("run-1-"), Normaliser("run-1-")
    one.learn("member", "wire-123", "m0")
    other.learn("member", "wire-456", "m0")
    answers = one.answer(group("wire-123", "/a"), 5), other.answer(group("wire-456", "/b"), 5)
    assert answers[0] == answers[1]
    assert answers[0]["groups"][0]["group_id"] == "~g"
    changed = other.answer(group("wire-456", "/b", "other"), 5)
    assert differences(answers[0], changed) == [("groups[].members[].client_id", "wire", "other")]
    assert other.answer(group("wire-789", "/b"), 5) != answers[1]


def test_the_order_of_rows_does_not_count_and_rows_of_other_stories_do_not() -> None:
    names = ["run-1-g", "run-1-h", "run-2-g"]
    answers = [
        Normaliser("run-1-").answer(
            ListGroupsResponse(groups=[ListedGroup(group_id=name) for name in order]), 4
        )
        for order in (names, names[1::-1])
    ]
    assert answers[0] == answers[1]
    assert [row["group_id"] for row in answers[0]["groups"]] == ["~g", "~h"]


def test_fetched_batches_are_compared_record_by_record() -> None:
    def answer(value: str, producer_id: int) -> object:
        normaliser = Normaliser("run-1-")
        normaliser.learn("producer", producer_id)
        records = batch_of({"values": [value], "pid": producer_id, "epoch": 0, "seq": 0}, NOW_MS)
        row = PartitionData(records=records)
        return normaliser.answer(
            FetchResponse(responses=[FetchableTopicResponse(topic="run-1-a", partitions=[row])]), 12
        )

    assert answer("v", 7) == answer("v", 8)
    path = "responses[].partitions[].records[].records[]"
    assert differences(answer("v", 7), answer("w", 7)) == [
        (path, [0, None, "v"], None),
        (path, None, [0, None, "w"]),
    ]


def test_plain_values_hold_the_fields_of_the_version() -> None:
    row = ListedGroup(group_id="g", group_state="Stable")
    plain = to_plain(ListGroupsResponse(groups=[row]), 3, lambda name, value: value)
    assert plain == {
        "throttle_time_ms": 0,
        "error_code": 0,
        "groups": [{"group_id": "g", "protocol_type": ""}],
    }


def test_rows_are_compared_by_their_name() -> None:
    kafka = [{"name": "a", "error_code": 0}, {"name": "b", "error_code": 3}]
    felice = [{"name": "b", "error_code": 7}, {"name": "c", "error_code": 0}]
    assert differences({"t": kafka}, {"t": felice}) == [
        ("t[]", kafka[0], None),
        ("t[].error_code", 3, 7),
        ("t[]", None, felice[1]),
    ]
    assert differences([1, 1], [1]) == [("[] times", 2, 1)]


# Accepted differences


def test_a_row_covers_what_it_describes_and_nothing_else() -> None:
    row = Accepted("Metadata", "because", "*.error_code", "-1", "*", whole_answer=True)
    found = [("topics[].error_code", -1, 17), ("brokers[]", None, {})]
    assert covering([row], METADATA, found) == [row]
    assert covering([row], METADATA, found[1:]) is None
    assert covering([row], METADATA, [("topics[].error_code", 1, 17)]) is None
    assert covering([row], Operation("Fetch", 9, {}), found) is None
    partial = Accepted("Metadata", "because", "*.error_code", "-1")
    assert covering([partial], METADATA, found) is None


def test_every_accepted_difference_is_in_the_document() -> None:
    text = re.sub(r"\s+", " ", DOCUMENT.read_text())
    for row in accepted.load():
        assert row.reason in text, f"docs/compatibility.md does not say: {row.reason}"


def test_every_slot_of_a_producer_is_used() -> None:
    used = {operation.slot for number in range(20) for operation in random_operations(f"2/{number}", 40)}
    assert set(PRODUCERS) <= used
