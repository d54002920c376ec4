"""The inputs that the codec refuses and accepts, and the bytes that it does not copy."""

import uuid
from dataclasses import dataclass

import pytest

from felice.protocol.codec import (
    decode,
    decode_data,
    decode_prefix,
    encode,
    encode_data,
    encode_parts,
    join_parts,
    parts_size,
)
from felice.protocol.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)
from felice.protocol.messages.consumer_protocol import AssignedTopic, ConsumerProtocolSubscription
from felice.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from felice.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.join_group import JoinGroupResponse
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from felice.protocol.messages.offset_fetch import OffsetFetchRequest
from felice.protocol.messages.offsets_topic import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.protocol.primitives import MalformedMessage, OversizedMessage, UnencodableMessage, uvarint


@dataclass(frozen=True)
class Slice:
    """Bytes in a file, as the log hands them out."""

    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read(self) -> bytes:
        return self.data


def produce(records: object) -> ProduceRequest:
    partition = PartitionProduceData(index=1, records=records)
    return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])


def fetched(records: object) -> FetchResponse:
    partitions = [PartitionData(partition_index=1, records=records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


# Null and empty


@pytest.mark.parametrize("version", [1, 8, 9, 13])
def test_null_array_is_not_an_empty_array(version: int) -> None:
    for message in (MetadataRequest(topics=None), MetadataRequest(topics=[])):
        assert decode(MetadataRequest, encode(message, version), version) == message
    assert encode(MetadataRequest(topics=None), version) != encode(MetadataRequest(topics=[]), version)


def test_null_where_the_version_has_none_is_malformed() -> None:
    with pytest.raises(
        MalformedMessage, match="MetadataRequest v0: topics at byte 4: null or negative length -1"
    ):
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)
    with pytest.raises(MalformedMessage, match="group_id"):
        decode(HeartbeatRequest, b"\xff\xff" + b"\0" * 8, 0)
    with pytest.raises(MalformedMessage, match="null"):
        decode(HeartbeatRequest, b"\0" + b"\0" * 8, 4)


def test_null_where_the_version_has_none_cannot_be_encoded() -> None:
    with pytest.raises(UnencodableMessage, match="MetadataRequest v0: topics: must not be null"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(UnencodableMessage, match="JoinGroupResponse v6: protocol_name: must not be null"):
        encode(JoinGroupResponse(protocol_name=None), 6)
    assert (
        decode(JoinGroupResponse, encode(JoinGroupResponse(protocol_name=None), 7), 7).protocol_name is None
    )


def test_negative_lengths_other_than_null_are_malformed() -> None:
    with pytest.raises(MalformedMessage, match="negative length -2"):
        decode(MetadataRequest, b"\xff\xff\xff\xfe", 1)


def test_struct_that_may_be_null() -> None:
    for cursor in (None, Cursor(topic_name="t", partition_index=3)):
        message = DescribeTopicPartitionsRequest(cursor=cursor)
        assert decode(DescribeTopicPartitionsRequest, encode(message, 0), 0) == message


# Fields that a version lacks


def test_field_that_the_version_lacks_keeps_its_default() -> None:
    data = encode(FetchRequest(max_bytes=5, rack_id="r"), 4)
    assert decode(FetchRequest, data, 4) == FetchRequest(max_bytes=5)


def test_value_that_the_version_lacks_is_dropped_if_ignorable_and_refused_if_not() -> None:
    assert encode(FetchRequest(rack_id="r"), 4) == encode(FetchRequest(), 4)
    with pytest.raises(UnencodableMessage, match="FetchRequest v6: forgotten_topics_data: not in version 6"):
        encode(FetchRequest(forgotten_topics_data=[ForgottenTopic()]), 6)
    with pytest.raises(UnencodableMessage, match="allow_auto_topic_creation"):
        encode(MetadataRequest(allow_auto_topic_creation=False), 3)
    with pytest.raises(UnencodableMessage, match="topics"):
        encode(OffsetFetchRequest(topics=None), 8)
    moved = PartitionData(current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=1))
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[moved])])
    with pytest.raises(UnencodableMessage, match=r"responses\[\]\.partitions\[\]\.current_leader"):
        encode(response, 11)


def test_version_outside_the_declaration_is_refused() -> None:
    with pytest.raises(ValueError, match="FetchRequest has versions 4-18, not 19"):
        encode(FetchRequest(), 19)
    with pytest.raises(ValueError, match="not 3"):
        decode(FetchRequest, b"", 3)


# Tagged fields


def test_unknown_tags_are_skipped_in_every_struct() -> None:
    topic = b"\x02t" + b"\x01\x63\x02hi"
    message = b"\x02" + topic + b"\x01\x00\x00" + b"\x02\x00\x00\xe8\x07\x01!"
    expected = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")], include_topic_authorized_operations=False
    )
    assert decode(MetadataRequest, message, 9) == expected


def test_unknown_tags_beside_known_ones_are_skipped() -> None:
    data = encode(FetchRequest(cluster_id="c"), 15)
    assert data.endswith(b"\x01\x00\x02\x02c")
    more = data[:-5] + b"\x02" + data[-4:] + b"\x7f\x03abc"
    assert decode(FetchRequest, more, 15) == FetchRequest(cluster_id="c")


def test_tag_with_a_wrong_size_is_malformed() -> None:
    data = encode(FetchRequest(cluster_id="c"), 15)
    with pytest.raises(MalformedMessage, match="cluster_id at byte .*tagged field ends"):
        decode(FetchRequest, data[:-3] + b"\x03\x02c\x00", 15)
    with pytest.raises(MalformedMessage, match="tagged field of 9 bytes, 2 left"):
        decode(FetchRequest, data[:-3] + b"\x09\x02c", 15)


def test_absent_tagged_struct_is_none_and_so_is_one_of_defaults() -> None:
    assert FetchRequest().replica_state is None
    partition = PartitionData(current_leader=LeaderIdAndEpoch())
    data = encode(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), 12)
    assert decode(FetchResponse, data, 12).responses[0].partitions[0].current_leader is None


@pytest.mark.parametrize(
    ("classic", "tags"),
    [
        (None, "01 00 01 00"),
        (ClassicMemberMetadata(), "00"),
        (ClassicMemberMetadata(session_timeout_ms=9), "01 00 07 01 00000009 01 00"),
    ],
)
def test_null_is_not_the_default_of_a_tagged_struct_whose_absence_means_defaults(
    classic: ClassicMemberMetadata | None, tags: str
) -> None:
    member = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex=None,
        server_assignor=None,
        classic_member_metadata=classic,
    )
    data = bytes.fromhex("0000 00 00 02 63 03 2f68 02 02 74 00 ffffffff 00") + bytes.fromhex(tags)
    assert encode_data(member) == data
    assert decode_data(ConsumerGroupMemberMetadataValue, data) == member


def test_null_is_not_the_default_of_a_tagged_list_whose_absence_means_an_empty_one() -> None:
    topic_id = uuid.UUID(int=5)
    for epochs, tags in (None, "01 00 01 00"), ([], "00"), ([7], "01 00 05 02 00000007"):
        topic = CurrentTopicPartitions(topic_id=topic_id, partitions=[3], assignment_epochs=epochs)
        member = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2, previous_member_epoch=1, state=1, assigned_partitions=[topic]
        )
        data = (
            bytes.fromhex("0000 00000002 00000001 01 02")
            + topic_id.bytes
            + bytes.fromhex(f"02 00000003 {tags} 01 00")
        )
        assert encode_data(member) == data
        assert decode_data(ConsumerGroupCurrentMemberAssignmentValue, data) == member


def test_a_tagged_struct_with_anything_behind_its_null_is_malformed() -> None:
    data = bytes.fromhex("0000 00 00 01 01 01 00 ffffffff 00 01 00 07 00 00000009 01 00")
    with pytest.raises(MalformedMessage, match="classic_member_metadata"):
        decode_data(ConsumerGroupMemberMetadataValue, data)


# Malformed bytes


def test_malformed_message_names_message_field_and_position() -> None:
    data = encode(produce(b"x" * 50), 7)
    with pytest.raises(MalformedMessage) as caught:
        decode(ProduceRequest, data[:-1], 7)
    error = caught.value
    assert (error.message, error.field) == ("ProduceRequest v7", "topic_data[].partition_data[].records")
    assert error.position == len(data) - 50
    assert str(error).endswith("records at byte 27: 50 bytes announced, 49 left")


def test_end_within_fixed_fields_names_the_one_that_does_not_fit() -> None:
    with pytest.raises(
        MalformedMessage, match="HeartbeatRequest v0: generation_id at byte 3: ends too early"
    ):
        decode(HeartbeatRequest, b"\0\x01g\0\0", 0)
    with pytest.raises(MalformedMessage, match="member_id at byte 7"):
        decode(HeartbeatRequest, b"\0\x01g\0\0\0\0\0", 0)


def test_text_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="group_id at byte 2: not UTF-8"):
        decode(HeartbeatRequest, b"\0\x01\xff" + b"\0" * 6, 0)


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x7f"])
def test_overlong_varint_is_malformed(count: bytes) -> None:
    with pytest.raises(MalformedMessage, match="varint"):
        decode(MetadataRequest, count + b"\0" * 20, 9)


def test_count_beyond_the_bytes_left_is_malformed_before_anything_is_made() -> None:
    with pytest.raises(
        MalformedMessage, match="topics at byte 4: 2147483647 elements announced, 6 bytes left"
    ):
        decode(MetadataRequest, b"\x7f\xff\xff\xff" + b"\0" * 6, 1)
    with pytest.raises(MalformedMessage, match="elements announced"):
        decode(MetadataRequest, b"\xff\xff\xff\xff\x0f" + b"\0" * 6, 9)


# Wrong values of ours


@pytest.mark.parametrize("message", [ProduceRequest(acks=2**15), ProduceRequest(timeout_ms=None)])  # type: ignore[arg-type]
def test_value_of_the_wrong_type_or_range_is_named(message: ProduceRequest) -> None:
    with pytest.raises(UnencodableMessage, match="ProduceRequest v9: acks, timeout_ms.*wrong type or range"):
        encode(message, 9)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 129, 16382, 16383, 16384, 32767])
def test_lengths_around_the_steps_of_a_varint(size: int) -> None:
    assert (
        decode(HeartbeatRequest, encode(HeartbeatRequest(group_id="x" * size), 4), 4).group_id == "x" * size
    )
    names = [MetadataRequestTopic(name="t")] * size
    assert decode(MetadataRequest, encode(MetadataRequest(topics=names), 9), 9).topics == names


def test_string_that_is_too_long_is_refused() -> None:
    with pytest.raises(UnencodableMessage, match="group_id: string of 32768 bytes is too long"):
        encode(HeartbeatRequest(group_id="x" * 32768), 4)
    assert encode(HeartbeatRequest(group_id="x" * 32767), 4)


def test_records_that_are_not_bytes_are_refused() -> None:
    with pytest.raises(UnencodableMessage, match="records: expected bytes, got str"):
        encode(produce("text"), 7)


# Parts


def test_records_that_live_elsewhere_are_parts_of_their_own() -> None:
    records = Slice(b"records")
    parts = encode_parts(fetched(records), 12)
    assert parts[1] is records
    assert parts_size(parts) == len(join_parts(parts))
    assert join_parts(parts) == encode(fetched(b"records"), 12)


def test_large_records_are_not_copied_and_small_ones_need_no_part() -> None:
    large = memoryview(bytearray(5000))
    assert encode_parts(fetched(large), 12)[1] is large
    assert len(encode_parts(fetched(b"x" * 100), 12)) == 1
    assert len(encode_parts(fetched(None), 12)) == 1


def test_decoded_records_are_a_view_into_the_frame() -> None:
    frame = bytearray(encode(produce(b"x" * 5000), 7))
    records = decode(ProduceRequest, frame, 7).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    records[0] = ord("y")
    assert frame.endswith(b"y" + b"x" * 4999)


def test_size_of_a_view_is_counted_in_bytes() -> None:
    view = memoryview(bytearray(16)).cast("q")
    assert encode(produce(view), 7) == encode(produce(bytes(16)), 7)


# Data with a version in front


def test_newer_version_between_consumers_is_read_as_the_newest_known() -> None:
    message = ConsumerProtocolSubscription(
        topics=["t"], owned_partitions=[AssignedTopic(topic="t", partitions=[1])], rack_id="r"
    )
    data = encode_data(message, 3)
    assert decode_data(ConsumerProtocolSubscription, b"\x00\x09" + data[2:] + b"more") == message


def test_key_of_a_record_begins_with_its_type() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=7)
    assert encode_data(key) == bytes.fromhex("0001 0001 67 0001 74 00000007")
    assert decode_data(OffsetCommitKey, encode_data(key)) == key
    assert encode_data(GroupMetadataKey(group="g"))[:2] == b"\0\2"
    assert encode_data(LegacyOffsetCommitKey())[:2] == b"\0\0"
    with pytest.raises(MalformedMessage, match="expected type 2, got 1"):
        decode_data(GroupMetadataKey, encode_data(key))


def test_value_of_a_record_in_an_unknown_version_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="OffsetCommitValue: version at byte 0: expected 0-4, got 5"):
        decode_data(OffsetCommitValue, b"\0\5" + b"\0" * 30)
    with pytest.raises(MalformedMessage, match="expected 2 bytes, got 1"):
        decode_data(OffsetCommitValue, b"\0")


def test_topic_id_of_an_offset_travels_from_version_4() -> None:
    value = OffsetCommitValue(offset=3, topic_id=uuid.UUID(int=9))
    assert decode_data(OffsetCommitValue, encode_data(value, 4)) == value
    assert decode_data(OffsetCommitValue, encode_data(value, 3)) == OffsetCommitValue(offset=3)


def test_message_of_another_version_has_other_fields() -> None:
    assert len(encode(MetadataResponse(), 0)) < len(encode(MetadataResponse(), 3))


def test_unknown_tagged_fields_count_as_elements() -> None:
    """Each is skipped by plain Python: fifty million fit into one frame."""
    empty = encode(HeartbeatRequest(), 4)
    assert empty[-1] == 0
    tags = b"".join(uvarint(number) + b"\x00" for number in range(100, 200))
    message = empty[:-1] + uvarint(100) + tags
    assert decode_prefix(HeartbeatRequest, message, 4, 0, 100)[1] == len(message)
    with pytest.raises(OversizedMessage):
        decode_prefix(HeartbeatRequest, message, 4, 0, 99)
