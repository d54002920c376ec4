"""Frames of other implementations: three by librdkafka 2.16.0 on the wire, one by kafka-python 3.0.12."""

import struct

from felice.protocol.api import API
from felice.protocol.codec import decode, encode
from felice.protocol.frames import decode_request_header, encode_request
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BATCH = (
    "0000000000000000 0000003a 00000000 02 a6cdca9e 0000 00000000 0000013bf3685800 0000013bf3685800"
    "ffffffffffffffff ffff ffffffff 00000001 10 00 00 00 02 6b 02 76 00"
)
API_VERSIONS_V3 = (
    "0000003e 0012 0003 00000001 0005 70726f6265 00"
    "17 636f6e666c75656e742d6b61666b612d707974686f6e 16 322e31362e312d72646b61666b612d322e31362e30 00"
)
METADATA_V13 = (
    "0000002d 0003 000d 00000002 0005 70726f6265 00"
    "02 00000000000000000000000000000000 08 666c6967687473 00 01 00 00"
)
PRODUCE_V10 = (
    "0000006f 0000 000a 00000002 0005 70726f6265 00"
    "00 ffff 00007530 02 08 666c6967687473 02 00000000 47" + BATCH + "00 00 00"
)
FETCH_RESPONSE_V12 = (
    "00000000 0000 00000000 02 08 666c6967687473 02 00000002 0000 0000000000000009 0000000000000009"
    "0000000000000000 00 ffffffff 08 5245434f524453 01 01 09 00000001 00000005 00 00 00"
)

TOPIC = TopicProduceData(
    name="flights", partition_data=[PartitionProduceData(index=0, records=bytes.fromhex(BATCH))]
)


def check_request(text: str, version: int, correlation_id: int, message: object) -> None:
    frame = bytes.fromhex(text)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    header, position = decode_request_header(frame[4:])
    assert (header.api_version, header.correlation_id, header.client_id) == (version, correlation_id, "probe")
    assert decode(type(message), frame[4:], version, position) == message
    assert encode_request(header.api_key, version, correlation_id, "probe", message) == frame


def test_api_versions_of_librdkafka() -> None:
    message = ApiVersionsRequest(
        client_software_name="confluent-kafka-python", client_software_version="2.16.1-rdkafka-2.16.0"
    )
    check_request(API_VERSIONS_V3, 3, 1, message)


def test_metadata_of_librdkafka() -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="flights")])
    check_request(METADATA_V13, 13, 2, message)


def test_produce_of_librdkafka() -> None:
    check_request(PRODUCE_V10, 10, 2, ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[TOPIC]))


def test_fetch_response_of_kafka_python() -> None:
    partition = PartitionData(
        partition_index=2,
        high_watermark=9,
        last_stable_offset=9,
        log_start_offset=0,
        aborted_transactions=None,
        current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=5),
        records=b"RECORDS",
    )
    message = FetchResponse(responses=[FetchableTopicResponse(topic="flights", partitions=[partition])])
    body = bytes.fromhex(FETCH_RESPONSE_V12)
    assert decode(FetchResponse, body, 12) == message
    assert encode(message, 12) == body


def test_api_versions_answer_has_no_tag_buffer_in_its_header() -> None:
    assert API.API_VERSIONS.request_header_version(3) == 2
    assert API.API_VERSIONS.response_header_version(3) == 0
    assert API.METADATA.response_header_version(13) == 1
