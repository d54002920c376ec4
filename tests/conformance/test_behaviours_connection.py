"""Rules 1-15: connections and versions. Each docstring opens with the number of its rule."""

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from conformance.batches import FETCH_BY_NAME, fetch_request
from conformance.targets import IDLE_S, Target
from conformance.topics import new_topic
from conformance.wire import ConnectionClosed, Wire, api_named, request_header
from felice.protocol.api import API, Api
from felice.protocol.codec import decode
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from felice.protocol.messages.produce import ProduceRequest

API_VERSIONS_KEY = 18
METADATA_KEY = 3


def named_client() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="wire", client_software_version="1.0")


def offered(wire: Wire) -> dict[int, tuple[int, int]]:
    answer = wire.ask(named_client(), 3)
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


def ask_unknown_version(wire: Wire, version: int) -> ApiVersionsResponse:
    wire.send_frame(request_header(API_VERSIONS_KEY, version, 7, "wire", 2) + b"\2a\2b\0")
    frame = wire.read_frame()
    assert struct.unpack_from(">i", frame)[0] == 7
    return decode(ApiVersionsResponse, frame[4:], 0)


def test_api_versions_of_an_unknown_version_is_answered_in_v0_with_its_own_row(wire: Wire) -> None:
    """1: error 35, the ApiVersions row, and the connection stays for the retry."""
    answer = ask_unknown_version(wire, 99)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    row = next(row for row in answer.api_keys if row.api_key == API_VERSIONS_KEY)
    assert (row.min_version, row.max_version) == offered(wire)[API_VERSIONS_KEY]


@pytest.mark.parametrize("version", [3, 4])
def test_api_versions_response_header_has_no_tag_buffer(wire: Wire, version: int) -> None:
    """2: even in flexible versions the body starts right after the correlation id."""
    wire.send(named_client(), version)
    frame = wire.read_frame()
    answer = decode(ApiVersionsResponse, frame[4:], version)
    assert answer.error_code == 0
    assert answer.api_keys


@pytest.mark.parametrize("name", ["", "two words", "-dash", "dash-", "naïve"])
def test_api_versions_refuses_a_malformed_client_name(wire: Wire, name: str) -> None:
    """3: INVALID_REQUEST, for the name and for the version alike."""
    asked = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
    assert wire.ask(asked, 3).error_code == ErrorCode.INVALID_REQUEST
    asked = ApiVersionsRequest(client_software_name="wire", client_software_version=name)
    assert wire.ask(asked, 4).error_code == ErrorCode.INVALID_REQUEST
    assert wire.ask(named_client(), 3).error_code == 0


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(999, 0), (-1, 0), (METADATA_KEY, 99), (METADATA_KEY, -1), (1, 3), (0, 2), (0, 99), (19, 1)],
)
def test_an_unsupported_key_or_version_closes_the_connection(wire: Wire, api_key: int, version: int) -> None:
    """5: no reply at all; Produce 0-2 too, although they are offered."""
    wire.send_frame(request_header(api_key, version, 1, "wire", 1) + b"\0" * 16)
    assert wire.is_closed_by_peer()


def test_replies_come_in_request_order(wire: Wire) -> None:
    """6: a long poll delays the responses to later requests of its connection."""
    topic = new_topic(wire)
    began = time.monotonic()
    polled = wire.send(fetch_request(topic, max_wait_ms=500), FETCH_BY_NAME)
    asked = MetadataRequest(topics=[])
    behind = [wire.send(asked, version) for version in (1, 9, 12)]
    fetched = wire.receive(fetch_request(topic), FETCH_BY_NAME, polled)
    assert time.monotonic() - began >= 0.45
    assert fetched.responses[0].partitions[0].error_code == 0
    for correlation_id, version in zip(behind, (1, 9, 12), strict=True):
        assert wire.receive(asked, version, correlation_id).brokers


def test_produce_is_offered_from_version_0(wire: Wire) -> None:
    """7: otherwise older librdkafka does not compress."""
    assert offered(wire)[0][0] == 0


def test_all_group_apis_are_offered_with_the_old_versions_clients_cap_at(wire: Wire) -> None:
    """8: otherwise librdkafka disables its support of groups."""
    rows = offered(wire)
    minima = {name: rows[api_named(name).key][0] for name in GROUP_API_MINIMA}
    assert minima == GROUP_API_MINIMA
    assert all(rows[api_named(name).key][1] >= low for name, low in GROUP_API_MAXIMA_AT_LEAST.items())


GROUP_API_MINIMA = {
    "FindCoordinator": 0,
    "OffsetCommit": 2,
    "OffsetFetch": 1,
    "JoinGroup": 0,
    "SyncGroup": 0,
    "Heartbeat": 0,
    "LeaveGroup": 0,
}
GROUP_API_MAXIMA_AT_LEAST = {"FindCoordinator": 4, "JoinGroup": 9, "LeaveGroup": 5, "OffsetFetch": 9}


def harmless_request(api: Api) -> Any:
    """A request of this API that changes nothing."""
    if api.request is ProduceRequest:
        return ProduceRequest(acks=1, timeout_ms=1000)
    if api.request is ApiVersionsRequest:
        return named_client()
    return api.request()


@pytest.mark.parametrize("api", API.by_key.values(), ids=lambda api: api.name)
def test_every_version_offered_is_answered_in_its_own_form(broker: Target, wire: Wire, api: Api) -> None:
    """9: each offered version is served, and the response decodes to its last byte."""
    rows = offered(wire)
    if api.key not in rows:
        pytest.skip(f"{api.name} is not offered")
    low, high = rows[api.key]
    for version in range(max(low, api.versions.min), min(high, api.versions.max) + 1):
        try:
            wire.ask(harmless_request(api), version)
        except ConnectionClosed:
            pytest.fail(f"{api.name} v{version} is offered, yet closes the connection")


def test_versions_are_coherent_between_apis(wire: Wire) -> None:
    """10: topic ids in Fetch, Produce and OffsetFetch need a version of Metadata that returns them."""
    rows = offered(wire)
    by_id = {"Fetch": 13, "Produce": 13, "OffsetFetch": 10, "OffsetCommit": 10}
    if any(rows[api_named(name).key][1] >= version for name, version in by_id.items()):
        assert rows[METADATA_KEY][1] >= 12


def test_unknown_tagged_fields_are_skipped_in_every_struct(wire: Wire) -> None:
    """11: in the header, in the body and in a struct within it."""
    topic = new_topic(wire)
    tags = b"\x01" + b"\x63" + b"\x03abc"
    header = struct.pack(">hhih", METADATA_KEY, 12, 5, 4) + b"wire" + tags
    name = topic.encode()
    body = b"\x02" + bytes(16) + bytes([len(name) + 1]) + name + tags + b"\x00\x00" + tags
    wire.send_frame(header + body)
    frame = wire.read_frame()
    answer = decode(MetadataResponse, frame[5:], 12)
    assert [row.name for row in answer.topics] == [topic]


@pytest.mark.parametrize("client_id", [None, "", "wire", "héllo"])
@pytest.mark.parametrize("version", [1, 12])
def test_the_client_id_is_a_nullable_string_in_both_headers(
    wire: Wire, client_id: str | None, version: int
) -> None:
    """12: header v2 keeps the plain int16 length."""
    assert wire.ask(MetadataRequest(topics=[]), version, client_id).brokers


def unless_idle(act: Callable[[list[float]], None]) -> None:
    """Repeats `act` if the machine was so busy that a connection may have been idle for too long.

    A connection that is closed before the idle time is over fails the test. If the last answer may take longer, `act`
    appends the time at which it sent the request to the list.
    """
    for _ in range(20):
        began = time.monotonic()
        sent: list[float] = []
        try:
            act(sent)
            return
        except (ConnectionClosed, ConnectionError):
            if (sent[0] if sent else time.monotonic()) - began < IDLE_S * 0.9:
                raise
    raise AssertionError(f"the steps always took more than {IDLE_S} s")


def test_an_idle_connection_is_closed(impatient_broker: Target) -> None:
    """13: after connections.max.idle.ms."""

    def use_and_wait(sent: list[float]) -> None:
        with impatient_broker.wire() as wire:
            began = time.monotonic()
            wire.ask(MetadataRequest(topics=[]), 9)
            assert wire.is_closed_by_peer()
            assert time.monotonic() - began >= IDLE_S * 0.9

    unless_idle(use_and_wait)


@pytest.mark.felice_only  # Apache Kafka closes it when the wait is longer than the idle time
def test_a_connection_that_waits_for_its_answer_is_not_idle(impatient_broker: Target) -> None:
    """13: the response to a long poll is sent, however long it takes."""
    created: list[str] = []

    def create(sent: list[float]) -> None:
        with impatient_broker.wire() as wire:
            created.append(new_topic(wire))

    def wait_for_records(sent: list[float]) -> None:
        with impatient_broker.wire() as wire:
            asked = fetch_request(created[-1], max_wait_ms=3000)
            wire.send(asked, FETCH_BY_NAME)
            sent.append(time.monotonic())
            answer = wire.receive(asked, FETCH_BY_NAME)
            assert answer.responses[0].partitions[0].error_code == 0

    unless_idle(create)
    unless_idle(wait_for_records)


def test_features_that_may_be_off_are_hidden_below_version_4(wire: Wire) -> None:
    """15: in v3 no supported feature has minimum 0."""
    answer = wire.ask(named_client(), 3)
    assert all(row.min_version > 0 for row in answer.supported_features)


def test_a_frame_larger_than_allowed_closes_the_connection(strict_broker: Target) -> None:
    """36: socket.request.max.bytes is compared with the announced size."""
    with strict_broker.wire() as wire:
        wire.send_raw(struct.pack(">i", 3_000_000))
        assert wire.is_closed_by_peer()


@pytest.mark.parametrize("size", [-1, -(2**31)])
def test_a_negative_frame_size_closes_the_connection(wire: Wire, size: int) -> None:
    """36: a size below zero is no frame."""
    wire.send_raw(struct.pack(">i", size))
    assert wire.is_closed_by_peer()


def test_many_connections_are_served_at_once(connect: Callable[[], Wire]) -> None:
    """6: responses are ordered in each connection, not among connections."""
    opened = [connect() for _ in range(20)]
    asked = HeartbeatRequest(group_id="", member_id="", generation_id=0)
    for wire in opened:
        wire.send(asked, 4)
    for wire in reversed(opened):
        assert wire.receive(asked, 4).error_code == ErrorCode.INVALID_GROUP_ID


def test_metadata_null_and_empty_topics_differ(wire: Wire) -> None:
    """11: a null array is not an empty array."""
    topic = new_topic(wire)
    everything = wire.ask(MetadataRequest(topics=None), 9).topics
    assert topic in [row.name for row in everything]
    assert wire.ask(MetadataRequest(topics=[]), 9).topics == []
    named = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9).topics
    assert [row.name for row in named] == [topic]
