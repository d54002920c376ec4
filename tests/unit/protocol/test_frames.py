"""Headers of any version can be read, and malformed headers are refused."""

import struct

import pytest

from felice.protocol.api import API
from felice.protocol.frames import (
    RequestHeader,
    decode_correlation_id,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from felice.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from felice.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from felice.protocol.primitives import MalformedMessage


def test_client_id_may_be_null_or_empty() -> None:
    for client_id in (None, "", "ü"):
        frame = encode_request(12, 4, 5, client_id, HeartbeatRequest())[4:]
        assert decode_request_header(frame)[0] == RequestHeader(12, 4, 5, client_id)


def test_header_of_an_unknown_api_or_version_is_read() -> None:
    for key, version in ((18, 99), (999, 0), (-1, -1)):
        frame = struct.pack(">hhih", key, version, 5, 2) + b"id" + b"whatever follows"
        assert decode_request_header(frame)[0] == RequestHeader(key, version, 5, "id")


def test_tags_in_a_header_are_skipped() -> None:
    frame = struct.pack(">hhih", 12, 4, 5, -1) + b"\x02\x05\x01x\x06\x00" + b"body"
    assert frame[decode_request_header(frame)[1] :] == b"body"
    answer = struct.pack(">i", 5) + b"\x01\x05\x01x" + encode_response(12, 4, 5, HeartbeatResponse())[9:]
    assert decode_response(API.HEARTBEAT, 4, answer) == HeartbeatResponse()


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x0c\0\4\0\0\0\5\0",
        struct.pack(">hhih", 12, 4, 5, 9) + b"id",
        struct.pack(">hhih", 12, 4, 5, -2),
        struct.pack(">hhih", 12, 4, 5, 1) + b"\xff\0",
        struct.pack(">hhih", 12, 4, 5, -1),
        struct.pack(">hhih", 12, 4, 5, -1) + b"\x01\x05\x09x",
        struct.pack(">hhih", 12, 4, 5, -1) + b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_broken_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedMessage, match="RequestHeader"):
        decode_request_header(frame)


def test_length_of_a_client_id_below_minus_one_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="RequestHeader: client_id at byte 10: length -2"):
        decode_request_header(struct.pack(">hhih", 12, 0, 5, -2) + b"body")


def test_broken_response_header_is_malformed() -> None:
    for frame in (b"\0\0\0", b""):
        with pytest.raises(MalformedMessage, match="correlation_id"):
            decode_correlation_id(frame)
    for frame in (b"\0\0\0\5", b"\0\0\0\5\x01\x05\x09x"):
        with pytest.raises(MalformedMessage, match="ResponseHeader: tags"):
            decode_response(API.HEARTBEAT, 4, frame)


def test_client_reads_a_refusal_of_its_api_versions_in_version_0() -> None:
    row = ApiVersion(api_key=18, min_version=0, max_version=3)
    refusal = ApiVersionsResponse(error_code=35, api_keys=[row])
    frame = encode_response(18, 0, 1, refusal)[4:]
    assert decode_response(API.API_VERSIONS, 4, frame) == refusal


def test_api_versions_answer_is_read_in_its_own_version_otherwise() -> None:
    answer = ApiVersionsResponse(finalized_features_epoch=7)
    assert decode_response(API.API_VERSIONS, 4, encode_response(18, 4, 1, answer)[4:]) == answer


def test_sizes_precede_the_data() -> None:
    for frame in (
        encode_request(18, 3, 1, "id", ApiVersionsRequest()),
        encode_response(18, 3, 1, ApiVersionsResponse()),
    ):
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
