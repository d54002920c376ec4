"""Frames cut from a stream, replies in order, and peers that break the rules."""

import struct
import tracemalloc

import pytest

from felice.protocol.api import API
from felice.protocol.codec import join_parts
from felice.protocol.connection import (
    ClientConnection,
    FrameReader,
    ProtocolViolation,
    Request,
    ServerConnection,
    encode_reply,
)
from felice.protocol.frame_memory import SCRATCH_BYTES, FrameMemory
from felice.protocol.frames import encode_request, encode_response
from felice.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from felice.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.protocol.primitives import MalformedMessage

MAX_BYTES = 10 * 1024 * 1024


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def heartbeat(correlation_id: int, group_id: str = "g") -> bytes:
    return encode_request(12, 4, correlation_id, "c", HeartbeatRequest(group_id=group_id))


def feed(connection: ServerConnection, data: bytes | memoryview) -> list[Request]:
    """The requests that are whole now, up to one that breaks the protocol."""
    rest = memoryview(data)
    found: list[Request] = []
    while rest:
        buffer = connection.get_buffer()
        count = min(len(buffer), len(rest))
        buffer[:count] = rest[:count]
        rest = rest[count:]
        connection.received(count)
        while (request := connection.next_request()) is not None:
            found.append(request)
    return found


def correlation_ids(requests: list[Request]) -> list[int]:
    return [request.correlation_id for request in requests]


def replies(connection: ServerConnection) -> list[int]:
    """Correlation ids of the replies that may leave now."""
    reader = FrameReader(MAX_BYTES)
    return [int.from_bytes(frame[:4], "big") for frame in reader.feed(join_parts(connection.take_replies()))]


# Frames


def in_pieces(reader: FrameReader, data: bytes, sizes: list[int]) -> list[bytes]:
    frames: list[memoryview] = []
    for size in sizes:
        frames += reader.feed(data[:size])
        data = data[size:]
    frames += reader.feed(data)
    return [bytes(frame) for frame in frames]


def test_frames_do_not_depend_on_where_the_stream_is_cut() -> None:
    bodies = [b"first", b"", b"x" * 300, b"last"]
    data = b"".join(map(framed, bodies))
    for first in range(len(data) + 1):
        assert in_pieces(FrameReader(MAX_BYTES), data, [first]) == bodies
        assert in_pieces(FrameReader(MAX_BYTES), data, [first, 1, 1, 1]) == bodies
    assert in_pieces(FrameReader(MAX_BYTES), data, [1] * len(data)) == bodies


@pytest.mark.parametrize(
    "size", [SCRATCH_BYTES - 4, SCRATCH_BYTES - 3, SCRATCH_BYTES, 1024 * 1024 + 1, 5_000_000]
)
def test_large_frames_between_small_ones_are_complete(size: int) -> None:
    large = bytes(range(256)) * (size // 256) + b"!" * (size % 256)
    data = framed(b"a") + framed(large) + framed(b"b")
    for first in (4, 5, 9, 10, 5000, size, size + 12):
        assert in_pieces(FrameReader(MAX_BYTES), data, [first]) == [b"a", large, b"b"]


def test_a_frame_handed_out_is_not_written_to_again() -> None:
    reader = FrameReader(MAX_BYTES)
    frames = reader.feed(framed(b"small")) + reader.feed(framed(b"l" * SCRATCH_BYTES * 2))
    reader.feed(framed(b"later") * 10 + framed(b"m" * SCRATCH_BYTES * 2))
    assert [bytes(frame) for frame in frames] == [b"small", b"l" * SCRATCH_BYTES * 2]


def test_a_large_frame_is_received_into_its_own_buffer() -> None:
    reader = FrameReader(MAX_BYTES)
    assert reader.feed(struct.pack(">i", 200_000) + b"x" * 10) == []
    buffer = reader.get_buffer()
    assert len(buffer) == 200_000 - 10
    buffer[:] = b"y" * len(buffer)
    (frame,) = reader.received(len(buffer))
    assert isinstance(frame, memoryview)
    assert frame.obj is buffer.obj
    assert bytes(frame) == b"x" * 10 + b"y" * (200_000 - 10)


def test_readers_may_share_memory() -> None:
    memory = FrameMemory()
    first, second = FrameReader(MAX_BYTES, memory), FrameReader(MAX_BYTES, memory)
    data = framed(b"hello") + framed(b"again")
    frames: list[memoryview] = []
    for position in range(len(data)):
        frames += first.feed(data[position : position + 1])
        second.feed(framed(b"\xff" * 40))
    assert frames == [b"hello", b"again"]


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_frame_of_a_forbidden_size_is_refused_and_earlier_frames_are_kept(size: int) -> None:
    reader = FrameReader(1000)
    data = framed(b"good") + struct.pack(">i", size) + b"tail"
    assert reader.feed(data) == [b"good"]
    assert isinstance(reader.failure, ProtocolViolation)
    assert str(size) in str(reader.failure)
    assert reader.feed(framed(b"more")) == []


def test_announcing_a_large_frame_costs_little() -> None:
    tracemalloc.start()
    reader = FrameReader(
        100 * 1024 * 1024, FrameMemory(pool_bytes=8 * 1024 * 1024, map_from_bytes=1024 * 1024)
    )
    reader.feed(struct.pack(">i", 100 * 1024 * 1024) + b"x" * 100)
    assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    tracemalloc.stop()


# The broker's end


def test_requests_are_decoded() -> None:
    connection = ServerConnection(MAX_BYTES)
    (request,) = feed(connection, heartbeat(7, "group"))
    assert request.message == HeartbeatRequest(group_id="group")
    assert (request.client_id, request.correlation_id) == ("c", 7)


def test_replies_leave_in_request_order_however_they_are_made() -> None:
    connection = ServerConnection(MAX_BYTES)
    first, second, third = feed(connection, heartbeat(1) + heartbeat(2) + heartbeat(3))
    third.reply = encode_reply(third, HeartbeatResponse())
    assert replies(connection) == []
    first.reply = encode_reply(first, HeartbeatResponse())
    assert replies(connection) == [1]
    assert len(connection.unanswered) == 2
    second.reply = encode_reply(second, HeartbeatResponse())
    assert replies(connection) == [2, 3]
    assert len(connection.unanswered) == 0


def test_a_request_without_a_reply_does_not_delay_others() -> None:
    connection = ServerConnection(MAX_BYTES)
    silent, loud = feed(connection, heartbeat(1) + heartbeat(2))
    loud.reply = encode_reply(loud, HeartbeatResponse())
    assert replies(connection) == []
    silent.reply = []
    assert replies(connection) == [2]


def test_requests_do_not_depend_on_where_the_stream_is_cut() -> None:
    data = heartbeat(1) + encode_request(3, 13, 2, None, MetadataRequest()) + heartbeat(3)
    for first in range(len(data) + 1):
        connection = ServerConnection(MAX_BYTES)
        found = feed(connection, data[:first]) + feed(connection, data[first:])
        assert correlation_ids(found) == [1, 2, 3]


def test_records_of_a_large_request_are_not_copied() -> None:
    partition = PartitionProduceData(records=b"r" * 200_000)
    produce = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    connection = ServerConnection(MAX_BYTES)
    data = memoryview(encode_request(0, 10, 1, "c", produce))
    feed(connection, data[:1000])
    buffer = connection.get_buffer()
    buffer[:] = data[1000:]
    connection.received(len(buffer))
    request = connection.next_request()
    assert request is not None
    records = request.message.topic_data[0].partition_data[0].records
    assert records.obj is buffer.obj
    assert records == b"r" * 200_000


def test_records_of_a_small_request_can_be_stamped_in_place() -> None:
    partition = PartitionProduceData(records=b"r" * 70)
    produce = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    (request,) = feed(ServerConnection(MAX_BYTES), encode_request(0, 10, 1, "c", produce))
    records = request.message.topic_data[0].partition_data[0].records
    struct.pack_into(">q", records, 0, 42)
    assert bytes(records) == struct.pack(">q", 42) + b"r" * 62


def test_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    connection = ServerConnection(MAX_BYTES)
    (request,) = feed(
        connection, framed(struct.pack(">hhih", 18, 99, 5, 1) + b"c\x00 a body from the future")
    )
    assert request.message is None
    answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, max_version=4)])
    request.reply = encode_reply(request, answer)
    assert join_parts(connection.take_replies()) == encode_response(18, 0, 5, answer)


def test_api_versions_v3_answer_has_an_old_header_and_a_flexible_body() -> None:
    connection = ServerConnection(MAX_BYTES)
    (request,) = feed(connection, encode_request(18, 3, 5, "c", ApiVersionsRequest()))
    request.reply = encode_reply(request, ApiVersionsResponse())
    assert join_parts(connection.take_replies())[4:] == bytes.fromhex("00000005 0000 01 00000000 00")


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (struct.pack(">hhih", 999, 0, 1, -1), "API key 999 in version 0 is not supported"),
        (struct.pack(">hhih", 3, 14, 1, -1), "Metadata in version 14 is not supported"),
        (struct.pack(">hhih", 0, 2, 1, -1), "Produce in version 2 is not supported"),
        (encode_request(22, 6, 1, None, InitProducerIdRequest())[4:], "InitProducerId in version 6"),
    ],
)
def test_other_unsupported_requests_end_the_connection_after_the_earlier_replies(
    frame: bytes, reason: str
) -> None:
    connection = ServerConnection(MAX_BYTES)
    found = feed(connection, heartbeat(1) + framed(frame) + heartbeat(2))
    assert correlation_ids(found) == [1]
    assert reason in str(connection.failure)
    found[0].reply = encode_reply(found[0], HeartbeatResponse())
    assert replies(connection) == [1]
    assert feed(connection, heartbeat(3)) == []


def test_api_that_this_server_does_not_serve_is_unsupported() -> None:
    connection = ServerConnection(MAX_BYTES, {3: API.METADATA})
    assert feed(connection, heartbeat(1)) == []
    assert "API key 12" in str(connection.failure)


def test_a_malformed_request_ends_the_connection_after_the_earlier_replies() -> None:
    connection = ServerConnection(MAX_BYTES)
    broken = framed(heartbeat(2)[4:-1])
    assert correlation_ids(feed(connection, heartbeat(1) + broken + heartbeat(3))) == [1]
    assert isinstance(connection.failure, MalformedMessage)


def test_oversized_request_ends_the_connection() -> None:
    connection = ServerConnection(100)
    assert correlation_ids(feed(connection, heartbeat(1) + struct.pack(">i", 101))) == [1]
    assert isinstance(connection.failure, ProtocolViolation)


# The client's end


def test_responses_are_matched_to_requests() -> None:
    client, server = ClientConnection("c", MAX_BYTES), ServerConnection(MAX_BYTES)
    sent = [
        client.send(API.HEARTBEAT, 4, HeartbeatRequest(group_id="g")),
        client.send(API.METADATA, 13, MetadataRequest()),
    ]
    answers = {12: HeartbeatResponse(error_code=27), 3: MetadataResponse(cluster_id="x")}
    for request in feed(server, b"".join(join_parts(parts) for _, parts in sent)):
        request.reply = encode_reply(request, answers[request.api.key])
    assert client.in_flight == 2
    found = client.feed(join_parts(server.take_replies()))
    assert [(response.correlation_id, response.api.name, response.version) for response in found] == [
        (0, "Heartbeat", 4),
        (1, "Metadata", 13),
    ]
    assert [response.message for response in found] == [answers[12], answers[3]]
    assert client.in_flight == 0


def test_response_to_another_request_ends_the_connection() -> None:
    client = ClientConnection("c", MAX_BYTES)
    client.send(API.HEARTBEAT, 4, HeartbeatRequest())
    assert client.feed(encode_response(12, 4, 5, HeartbeatResponse())) == []
    assert "response 5 where 0 was due" in str(client.failure)


def test_response_to_no_request_ends_the_connection() -> None:
    client = ClientConnection("c", MAX_BYTES)
    client.send(API.HEARTBEAT, 4, HeartbeatRequest(), expect_response=False)
    assert client.in_flight == 0
    assert client.feed(encode_response(12, 4, 0, HeartbeatResponse())) == []
    assert "response 0 to no request" in str(client.failure)


def test_oversized_and_malformed_responses_end_the_connection() -> None:
    client = ClientConnection("c", 50)
    assert client.feed(struct.pack(">i", 51)) == []
    assert "at most 50" in str(client.failure)
    other = ClientConnection("c", 50)
    other.send(API.HEARTBEAT, 4, HeartbeatRequest())
    other.feed(framed(b"\0\0\0\0\0" + b"\0" * 3))
    assert isinstance(other.failure, MalformedMessage)
