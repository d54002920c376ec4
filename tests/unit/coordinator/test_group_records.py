"""Records of `__consumer_offsets`: bytes as Kafka 4.3.1 wrote them, and older versions read."""

from __future__ import annotations

from uuid import UUID

import pytest

from felice.coordinator.group.alarms import Alarms
from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.group.records import CommittedOffset, GroupRecord, GroupRecordCodec, OffsetRecord
from felice.protocol.codec import encode_data
from felice.protocol.messages.offsets_topic import GroupMetadataValue, MemberMetadata, OffsetCommitValue

CODEC = GroupRecordCodec()
TOPIC_ID = UUID(int=7)


def test_a_commit_is_written_in_version_4_with_the_topics_id() -> None:
    record = OffsetRecord("g", "t", 3, CommittedOffset(41, 2, "note", 1000, topic_id=TOPIC_ID))
    key, value = CODEC.encode(record)
    assert key.hex() == "0001" + "000167" + "000174" + "00000003"
    assert value is not None
    assert value.hex() == (
        "0004" + "0000000000000029" + "00000002" + "05" + b"note".hex() + "00000000000003e8"
        "01" + "00" + "10" + TOPIC_ID.hex
    )
    assert CODEC.decode(key, value) == record


def test_a_commit_with_its_own_retention_is_written_in_version_1() -> None:
    record = OffsetRecord("g", "t", 0, CommittedOffset(41, -1, "", 1000, 2000))
    key, value = CODEC.encode(record)
    assert value is not None
    assert value.hex() == "0001" + "0000000000000029" + "0000" + "00000000000003e8" + "00000000000007d0"
    assert CODEC.decode(key, value) == record


@pytest.mark.parametrize("version", range(5))
def test_commits_of_every_version_are_read(version: int) -> None:
    value = encode_data(OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9), version)
    for record_type in (0, 1):
        key = record_type.to_bytes(2) + b"\0\1g\0\1t\0\0\0\0"
        assert CODEC.decode(key, value) == OffsetRecord("g", "t", 0, CommittedOffset(5, -1, "m", 9))


def test_tombstones() -> None:
    for record in (OffsetRecord("g", "t", 0, None), GroupRecord("g", None)):
        key, value = CODEC.encode(record)
        assert value is None
        assert CODEC.decode(key, value) == record


@pytest.mark.parametrize("record_type", [9, 10, 99])
def test_records_of_unknown_kinds_are_skipped(record_type: int) -> None:
    """Other groups of Kafka live in the same topic."""
    assert CODEC.decode(record_type.to_bytes(2) + b"\0\1g", b"\0\0junk") is None


def test_a_group_is_written_in_version_3() -> None:
    group = ClassicGroup("g", generation=4, protocol_type="consumer", state_timestamp_ms=1000)
    key, value = CODEC.encode(group.record())
    assert key.hex() == "0002" + "000167"
    assert value is not None
    assert value.hex() == (
        "0003" + "0008" + b"consumer".hex() + "00000004" + "ffff" + "ffff" + "00000000000003e8" + "00000000"
    )


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_are_restored(version: int) -> None:
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        session_timeout=10_000,
        subscription=b"s",
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=4, protocol="range", leader="m", members=[member]
    )
    record = CODEC.decode(b"\0\2\0\1g", encode_data(value, version))
    assert isinstance(record, GroupRecord)
    assert record.value is not None
    group = ClassicGroup.restore("g", record.value, Alarms())
    restored = group.members["m"]
    assert (group.state, group.generation, group.leader_id) == (GroupState.STABLE, 4, "m")
    # Version 0 has no rebalance timeout: the session timeout stands in for it.
    assert restored.rebalance_timeout_ms == restored.session_timeout_ms == 10_000
    assert restored.metadata("range") == b"s"
    assert restored.assignment == b"a"


def test_a_group_record_is_read_back_unchanged() -> None:
    value = GroupMetadataValue(
        protocol_type="connect",
        generation=9,
        protocol="v1",
        leader="b",
        current_state_timestamp=77,
        members=[
            MemberMetadata(
                member_id=name,
                group_instance_id=instance,
                client_id="c",
                client_host="/h",
                rebalance_timeout=60_000,
                session_timeout=10_000,
                subscription=name.encode(),
                assignment=b"x" + name.encode(),
            )
            for name, instance in (("a", None), ("b", "static"))
        ],
    )
    group = ClassicGroup.restore("g", value, Alarms())
    assert group.record().value == value
    assert group.static_members == {"static": "b"}


def test_a_group_that_never_had_members_is_written_without_a_protocol_type_and_restored() -> None:
    value = ClassicGroup("g").record().value
    assert value is not None
    assert value.protocol_type == ""
    assert ClassicGroup.restore("g", value, Alarms()).protocol_type is None
