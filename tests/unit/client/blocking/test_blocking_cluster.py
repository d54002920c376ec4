"""The blocking client with several brokers: which gets what, and how the failure of one leaves the others alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from felice.client.blocking import LATEST, Appended, BlockingClient, BlockingConfig, OffsetOutOfRange
from felice.client.blocking.link import BlockingLink
from felice.client.consume.isolation import READ_COMMITTED
from felice.client.error import KafkaError, KafkaException
from felice.client.model import OffsetAndTimestamp
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from felice.protocol.messages.fetch import FetchRequest, FetchResponse
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse
from felice.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from felice.records.builder import build_batch
from felice.records.reader import read_records
from felice.records.record import Record
from unit.client.fake_broker import Disconnect, FakeBroker, Hang, brokers_at

NO_LEADER, ONE, TWO = -1, 1, 2


def batch(*values: bytes) -> bytes:
    return build_batch([Record(0, 1, None, value) for value in values])


class Pair:
    """Two brokers: `leaders` has the leader of each partition of topic t."""

    def __init__(self, first: FakeBroker, second: FakeBroker) -> None:
        self.brokers = {ONE: first, TWO: second}
        self.leaders = [ONE, TWO, ONE]
        self.ports = {ONE: first.port, TWO: second.port}
        self._usual = first.handlers[MetadataRequest]
        for broker in (first, second):
            broker.handlers[MetadataRequest] = self._metadata

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        response: MetadataResponse = self._usual(request, version)
        response.brokers = brokers_at(self.ports)
        for topic in response.topics:
            for row in topic.partitions:
                row.leader_id = self.leaders[row.partition_index]
        return response

    def leader(self, partition: int) -> FakeBroker:
        return self.brokers[self.leaders[partition]]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with FakeBroker({"t": 3}) as first, FakeBroker({"t": 3}) as second:
        for broker in (first, second):
            for number in range(3):
                broker.append("t", number, batch(b"%d" % number))
        yield Pair(first, second)


@pytest.fixture
def client(pair: Pair) -> Iterator[BlockingClient]:
    with BlockingClient(pair.brokers[ONE].bootstrap, retry_timeout_ms=60_000, fetch_max_wait_ms=10) as made:
        yield made


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before retries, which are not made."""
    made: list[float] = []
    monkeypatch.setattr(time, "sleep", made.append)
    return made


def fetched(client: BlockingClient, *partitions: int, **options: Any) -> list[tuple[int, bytes | None]]:
    """The values read, in the order in which they came."""
    ranges = {("t", number): (0, 1) for number in partitions}
    return [
        (piece.partition, record.value)
        for piece in client.fetch(ranges, **options)
        for record in read_records(piece.data)
    ]


def test_each_leader_is_asked_for_its_partitions(pair: Pair, client: BlockingClient) -> None:
    assert sorted(fetched(client, 0, 1, 2)) == [(0, b"0"), (1, b"1"), (2, b"2")]
    for number, expected in ((ONE, [0, 2]), (TWO, [1])):
        [request] = pair.brokers[number].asked(FetchRequest)
        assert [row.partition for topic in request.topics for row in topic.partitions] == expected
    offsets = client.list_offsets({("t", number): LATEST for number in range(3)})
    assert [offsets["t", number].offset for number in range(3)] == [1, 1, 1]
    client.produce([("t", number, batch(b"v")) for number in range(3)])
    assert [len(pair.brokers[number].asked(ProduceRequest)) for number in (ONE, TWO)] == [1, 1]
    assert [pair.leader(number).ends["t", number] for number in range(3)] == [2, 2, 2]


def test_a_broker_that_is_gone_does_not_delay_the_data_of_others(
    pair: Pair, client: BlockingClient, pauses: list[float]
) -> None:
    client.metadata(["t"])
    there = pair.ports[TWO]
    pair.ports[TWO] = 1
    client.metadata(["t"])
    pieces = client.fetch({("t", number): (0, 1) for number in (1, 0)})
    assert next(pieces).partition == 0
    pair.ports[TWO] = there
    assert [piece.partition for piece in pieces] == [1]
    assert set(pauses) == {0.1}


def test_a_broker_that_leaves_the_metadata_while_another_is_read_is_an_error_that_is_retried(
    pair: Pair, client: BlockingClient, pauses: list[float]
) -> None:
    client.metadata(["t"])

    def fail(request: FetchRequest, version: int) -> Any:
        del pair.ports[TWO]
        pair.leaders = [ONE, ONE, ONE]
        pair.brokers[ONE].handlers[FetchRequest] = usual
        return Disconnect

    usual = pair.brokers[ONE].handlers[FetchRequest]
    pair.brokers[ONE].handlers[FetchRequest] = fail
    assert sorted(fetched(client, 0, 1)) == [(0, b"0"), (1, b"1")]


def test_a_partition_without_a_leader_does_not_delay_the_others(
    pair: Pair, client: BlockingClient, pauses: list[float]
) -> None:
    pair.leaders[1] = NO_LEADER
    pieces = client.fetch({("t", number): (0, 1) for number in (1, 0)})
    assert next(pieces).partition == 0
    pair.leaders[1] = TWO
    assert [piece.partition for piece in pieces] == [1]
    assert pauses, "the metadata was asked for again after a pause"


def test_a_partition_without_a_leader_is_waited_for_and_then_named(pair: Pair) -> None:
    pair.leaders[1] = NO_LEADER
    with BlockingClient(pair.brokers[ONE].bootstrap, retry_timeout_ms=150) as client:
        for call in (
            lambda: fetched(client, 1),
            lambda: client.produce_raw("t", 1, batch(b"v")),
            lambda: client.list_offsets({("t", 1): LATEST}),
        ):
            started = time.monotonic()
            with pytest.raises(KafkaException, match="t-1") as raised:
                call()
            assert raised.value.code == ErrorCode.LEADER_NOT_AVAILABLE
            assert time.monotonic() - started >= 0.15


def test_a_misspelt_name_is_an_error_at_once(client: BlockingClient, pauses: list[float]) -> None:
    for call in (
        lambda: list(client.fetch_raw("no", 0, 0, 1)),
        lambda: client.produce_raw("no", 0, batch(b"v")),
        lambda: client.list_offsets({("no", 0): LATEST}),
        lambda: client.list_offsets({("t", 9): LATEST}),
    ):
        with pytest.raises(KafkaException, match='(no-0|t-9)$|(no-0|t-9)"') as raised:
            call()
        assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not raised.value.error.retriable()
    assert pauses == []


def test_a_topic_that_was_refused_is_an_error_with_the_reason(pair: Pair, client: BlockingClient) -> None:
    def refused(request: MetadataRequest, version: int) -> MetadataResponse:
        response = pair._metadata(request, version)
        for topic in response.topics:
            topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
        return response

    pair.brokers[ONE].handlers[MetadataRequest] = refused
    with pytest.raises(KafkaException) as raised:
        client.list_offsets({("t", 0): LATEST})
    assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_no_broker_at_all_is_retried_until_the_time_limit(pair: Pair) -> None:
    with BlockingClient("127.0.0.1:1", retry_timeout_ms=150) as client:
        for call in (lambda: fetched(client, 0), lambda: client.produce_raw("t", 0, batch(b"v"))):
            with pytest.raises(KafkaException) as raised:
                call()
            assert raised.value.code == KafkaError._ALL_BROKERS_DOWN


def test_a_lost_leader_is_found_through_any_known_broker(
    pair: Pair, client: BlockingClient, pauses: list[float]
) -> None:
    client.metadata(["t"])
    pair.brokers[ONE].script(MetadataRequest, *[Disconnect] * 2)
    pair.brokers[TWO].script(FetchRequest, Disconnect)
    assert fetched(client, 1) == [(1, b"1")]
    assert len(pair.brokers[TWO].asked(MetadataRequest)) >= 1


def test_without_prefetching_each_round_asks_every_leader_once(pair: Pair) -> None:
    for number in range(3):
        pair.leader(number).append("t", number, batch(b"more"))
    with BlockingClient(pair.brokers[ONE].bootstrap, prefetch=False, fetch_max_wait_ms=10) as client:
        for broker in pair.brokers.values():
            usual = broker.handlers[FetchRequest]
            broker.handlers[FetchRequest] = lambda request, version, usual=usual: one_batch(
                usual(request, version)
            )
        pieces = [piece.partition for piece in client.fetch({("t", number): (0, 2) for number in (0, 1)})]
    assert pieces == [0, 1, 0, 1]


def one_batch(response: FetchResponse) -> FetchResponse:
    """Of each partition only the first batch."""
    for topic in response.responses:
        for row in topic.partitions:
            size = 12 + int.from_bytes(bytes(row.records)[8:12], "big")
            row.records = bytes(row.records)[:size]
    return response


def test_partitions_take_turns_at_the_front_of_requests(pair: Pair, client: BlockingClient) -> None:
    broker = pair.brokers[ONE]
    for number in (0, 2):
        broker.append("t", number, batch(b"more"))
    usual = broker.handlers[FetchRequest]
    broker.handlers[FetchRequest] = lambda request, version: one_batch(usual(request, version))
    assert len(list(client.fetch({("t", number): (0, 2) for number in (0, 2)}))) == 4
    first, second = (
        [row.partition for topic in request.topics for row in topic.partitions]
        for request in broker.asked(FetchRequest)[:2]
    )
    assert (first, second) == ([0, 2], [2, 0])


def test_options_of_a_fetch(pair: Pair) -> None:
    config = BlockingConfig(
        pair.brokers[ONE].bootstrap,
        fetch_max_wait_ms=11,
        fetch_max_bytes=12_000,
        partition_max_bytes=13_000,
        isolation_level=READ_COMMITTED,
        client_rack="r",
    )
    with BlockingClient(config) as client:
        fetched(client, 0)
        fetched(client, 0, max_bytes=14_000, partition_max_bytes=15_000, isolation_level=0)
        client.list_offsets({("t", 0): LATEST})
        client.list_offsets({("t", 0): LATEST}, isolation_level=0)
    broker = pair.brokers[ONE]
    sent = [
        (
            row.max_wait_ms,
            row.min_bytes,
            row.max_bytes,
            row.topics[0].partitions[0].partition_max_bytes,
            row.isolation_level,
            row.rack_id,
        )
        for row in broker.asked(FetchRequest)
    ]
    assert sent == [(11, 1, 12_000, 13_000, READ_COMMITTED, "r"), (11, 1, 14_000, 15_000, 0, "r")]
    assert [row.isolation_level for row in broker.asked(ListOffsetsRequest)] == [READ_COMMITTED, 0]


def test_fields_given_beside_a_config_replace_its_own(pair: Pair) -> None:
    config = BlockingConfig("127.0.0.1:1", client_id="a")
    with BlockingClient(config, bootstrap_servers=pair.brokers[ONE].bootstrap) as client:
        assert client.config.client_id == "a"
        assert sorted(client.metadata().topics) == ["t"]


def test_an_empty_range_needs_no_request(pair: Pair, client: BlockingClient) -> None:
    assert list(client.fetch({("t", 0): (1, 1), ("t", 1): (5, 2)})) == []
    assert client.list_offsets({}) == {}
    assert client.produce([]) == []
    assert pair.brokers[ONE].requests == []


def test_one_partition_out_of_range_is_told_before_other_errors(pair: Pair, client: BlockingClient) -> None:
    broker = pair.brokers[ONE]
    usual = broker.handlers[FetchRequest]

    def errors(request: FetchRequest, version: int) -> FetchResponse:
        response: FetchResponse = usual(request, version)
        codes = {0: ErrorCode.NOT_LEADER_OR_FOLLOWER, 2: ErrorCode.OFFSET_OUT_OF_RANGE}
        for row in response.responses[0].partitions:
            row.error_code, row.records = codes[row.partition_index], None
        return response

    broker.script(FetchRequest, errors)
    with pytest.raises(OffsetOutOfRange, match="t-2 does not hold offset 0"):
        fetched(client, 0, 2)


def test_an_error_of_the_whole_fetch_is_raised(pair: Pair, client: BlockingClient) -> None:
    pair.brokers[ONE].script(FetchRequest, FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaException) as raised:
        fetched(client, 0)
    assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_refused_partition_is_named(pair: Pair, client: BlockingClient) -> None:
    broker = pair.brokers[ONE]
    usual = broker.handlers[FetchRequest]

    def refused(request: FetchRequest, version: int) -> FetchResponse:
        response: FetchResponse = usual(request, version)
        row = response.responses[0].partitions[0]
        row.error_code, row.records = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
        return response

    broker.script(FetchRequest, refused)
    with pytest.raises(KafkaException, match="t-0") as raised:
        fetched(client, 0)
    assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_answers_about_other_partitions_are_passed_over(pair: Pair, client: BlockingClient) -> None:
    broker = pair.brokers[ONE]
    usual = broker.handlers[FetchRequest]

    def more(request: FetchRequest, version: int) -> FetchResponse:
        response: FetchResponse = usual(request, version)
        stranger = usual(request, version).responses[0].partitions[0]
        stranger.partition_index = 7
        response.responses[0].partitions.insert(0, stranger)
        return response

    broker.handlers[FetchRequest] = more
    assert fetched(client, 0) == [(0, b"0")]


def test_offsets_with_their_timestamps_and_epochs(pair: Pair, client: BlockingClient) -> None:
    rows = [
        ListOffsetsPartitionResponse(partition_index=0, offset=5, timestamp=70, leader_epoch=3),
        ListOffsetsPartitionResponse(partition_index=2, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]
    answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])
    pair.brokers[ONE].script(ListOffsetsRequest, answer)
    found = client.list_offsets({("t", 0): 60, ("t", 2): LATEST})
    assert found == {("t", 0): OffsetAndTimestamp(5, 70, 3), ("t", 2): OffsetAndTimestamp(1, -1, -1)}
    again = pair.brokers[ONE].asked(ListOffsetsRequest)[1]
    assert [row.partition_index for row in again.topics[0].partitions] == [2], "only what was missing"


def test_a_refused_offset_names_its_partition(pair: Pair, client: BlockingClient) -> None:
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])
    pair.brokers[ONE].script(ListOffsetsRequest, answer)
    with pytest.raises(KafkaException, match="t-0") as raised:
        client.list_offsets({("t", 0): LATEST})
    assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_an_answer_without_records_is_waited_out(pair: Pair, client: BlockingClient) -> None:
    broker = pair.brokers[ONE]
    usual = broker.handlers[FetchRequest]

    def nothing(request: FetchRequest, version: int) -> FetchResponse:
        response: FetchResponse = usual(request, version)
        response.responses[0].partitions[0].records = None
        return response

    broker.script(FetchRequest, nothing)
    assert fetched(client, 0) == [(0, b"0")]


# Produce


@pytest.mark.parametrize(("more", "sizes"), [(0, [2, 1]), (-1, [1, 1, 1])])
def test_a_request_holds_batches_up_to_its_limit(
    pair: Pair, client: BlockingClient, more: int, sizes: list[int]
) -> None:
    pair.leaders = [ONE, ONE, ONE]
    data = batch(b"0123456789")
    client.produce([("t", number, data) for number in range(3)], max_request_bytes=2 * len(data) + more)
    asked = pair.brokers[ONE].asked(ProduceRequest)
    assert [len(request.topic_data[0].partition_data) for request in asked] == sizes


def test_a_batch_above_the_limit_goes_alone(pair: Pair, client: BlockingClient) -> None:
    pair.leaders = [ONE, ONE, ONE]
    rows = client.produce([("t", number, batch(b"v")) for number in range(2)], max_request_bytes=1)
    assert [(row.partition, row.base_offset) for row in rows] == [(0, 1), (1, 1)]
    assert len(pair.brokers[ONE].asked(ProduceRequest)) == 2


def test_later_batches_of_a_partition_do_not_pass_earlier_ones(pair: Pair, client: BlockingClient) -> None:
    pair.leaders = [ONE, ONE, ONE]
    large, small = batch(b"0" * 100), batch(b"1")
    rows = client.produce(
        [("t", 0, small), ("t", 1, large), ("t", 1, small)], max_request_bytes=len(large) + 1
    )
    assert [(row.partition, row.base_offset) for row in rows] == [(0, 1), (1, 1), (1, 2)]


def test_a_produced_batch_has_the_broker_time_and_the_request_its_options(
    pair: Pair, client: BlockingClient
) -> None:
    row = PartitionProduceResponse(index=0, base_offset=4, log_append_time_ms=99)
    topic_id = pair.brokers[ONE].topics["t"][0]
    topics = [TopicProduceResponse(name="t", topic_id=topic_id, partition_responses=[row])]
    pair.brokers[ONE].script(ProduceRequest, ProduceResponse(responses=topics))
    assert client.produce_raw("t", 0, batch(b"v"), acks=1) == Appended("t", 0, 4, 99)
    client.produce([("t", 0, batch(b"v"))], transactional_id="x")
    first, second = pair.brokers[ONE].asked(ProduceRequest)
    assert (first.acks, first.timeout_ms, first.transactional_id) == (1, 30_000, None)
    assert (second.acks, second.transactional_id) == (-1, "x")


def test_only_the_batches_without_an_acknowledgement_are_sent_again(
    pair: Pair, client: BlockingClient, pauses: list[float]
) -> None:
    pair.brokers[TWO].script(ProduceRequest, Disconnect)
    client.produce([("t", number, batch(b"v")) for number in (0, 1)])
    assert len(pair.brokers[ONE].asked(ProduceRequest)) == 1
    assert len(pair.brokers[TWO].asked(ProduceRequest)) == 2
    assert pauses == [0.1]


@pytest.mark.parametrize(("text", "end"), [("too old", "t-0: too old"), (None, "t-0")])
def test_a_refused_batch_has_the_reason_of_the_broker(
    pair: Pair, client: BlockingClient, text: str | None, end: str
) -> None:
    row = PartitionProduceResponse(index=0, error_code=ErrorCode.INVALID_TIMESTAMP, error_message=text)
    topic_id = pair.brokers[ONE].topics["t"][0]
    topics = [TopicProduceResponse(name="t", topic_id=topic_id, partition_responses=[row])]
    pair.brokers[ONE].script(ProduceRequest, ProduceResponse(responses=topics))
    with pytest.raises(KafkaException) as raised:
        client.produce_raw("t", 0, batch(b"v"))
    assert raised.value.code == ErrorCode.INVALID_TIMESTAMP
    assert raised.value.error.str().endswith(f": {end}")


# Metadata and connections


def test_the_metadata_of_all_topics_forgets_those_that_are_gone(pair: Pair, client: BlockingClient) -> None:
    assert sorted(client.metadata().topics) == ["t"]
    for broker in pair.brokers.values():
        broker.topics["u"] = broker.topics.pop("t")
    assert sorted(client.metadata(["u"]).topics) == ["u"]
    assert sorted(client.metadata().topics) == ["u"]
    assert client.metadata(["t"]).topics["t"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_created_only_if_wanted(pair: Pair, client: BlockingClient) -> None:
    client.metadata(["t"])
    client.metadata(["t"], allow_auto_create=True)
    asked = [row.allow_auto_topic_creation for row in pair.brokers[ONE].asked(MetadataRequest)]
    assert asked == [False, True]


def test_requests_to_one_broker_are_answered_in_their_order(pair: Pair, client: BlockingClient) -> None:
    address = ("127.0.0.1", pair.ports[TWO])
    requests = [MetadataRequest(topics=[]), ListOffsetsRequest(), MetadataRequest(topics=[])]
    kinds = [type(response) for response in client.ask_all(address, iter(requests))]
    assert kinds == [MetadataResponse, ListOffsetsResponse, MetadataResponse]
    assert isinstance(client.ask(address, MetadataRequest(topics=[])), MetadataResponse)
    assert pair.brokers[ONE].requests == []


def test_a_closed_client_connects_again(pair: Pair, client: BlockingClient) -> None:
    client.metadata(["t"])
    client.close()
    assert client.metadata(["t"]).topics["t"].error is None
    assert len(pair.brokers[ONE].asked(ApiVersionsRequest)) == 2


def test_a_broker_that_refuses_a_request_for_good_is_not_followed_by_another(
    pair: Pair, client: BlockingClient
) -> None:
    client.metadata(["t"])
    before = len(pair.brokers[TWO].requests)
    pair.brokers[ONE].ranges = pair.brokers[TWO].ranges = {18: (0, 4)}
    client.close()
    with pytest.raises(KafkaException) as raised:
        client.ask_any(MetadataRequest(topics=[]))
    assert raised.value.code == KafkaError._UNSUPPORTED_FEATURE
    assert len(pair.brokers[TWO].requests) <= before + 1


# One connection


def link(port: int) -> BlockingLink:
    return BlockingLink("127.0.0.1", port, client_id="c", connect_s=60, request_s=60)


def test_a_broker_that_does_not_answer_is_given_up_after_the_time_limit() -> None:
    with FakeBroker() as broker:
        broker.script(MetadataRequest, Hang)
        opened = link(broker.port)
        opened.request_s = 1.0  # only now: it also limits the first request
        with pytest.raises(KafkaException) as raised:
            opened.call(MetadataRequest(topics=[]))
        assert raised.value.code == KafkaError._TIMED_OUT and raised.value.error.retriable()
        text = f"{broker.bootstrap}: no reply in 1000 ms waiting for a reply"
        assert raised.value.error.str().endswith(f": {text}")
        assert opened.closed
        with pytest.raises(KafkaException, match=f"{broker.bootstrap}: disconnected") as raised:
            opened.send(MetadataRequest(topics=[]))
        assert raised.value.code == KafkaError._TRANSPORT and raised.value.error.retriable()


def test_the_wait_of_a_fetch_is_added_to_the_time_limit() -> None:
    def late(request: Any, version: int) -> MetadataResponse:
        time.sleep(1.3)
        return MetadataResponse(cluster_id="late")

    with FakeBroker() as broker:
        broker.script(MetadataRequest, late)
        opened = link(broker.port)
        opened.request_s = 1.0
        opened.send(MetadataRequest(topics=[]))
        assert opened.in_flight == 1
        assert opened.receive(extra_s=60).cluster_id == "late"
        assert opened.in_flight == 0
        opened.close()


@pytest.mark.parametrize(
    ("answers", "versions"),
    [
        ([], [4]),
        ([(2, 35)], [4, 2]),
        ([(3, 35), (1, 35)], [4, 3, 1]),
        # A broker that offers the version that it refused is asked in the one before it.
        ([(4, 35)], [4, 3]),
        ([(None, 35)], [4, 0]),
    ],
)
def test_versions_are_negotiated_downwards(answers: list[Any], versions: list[int]) -> None:
    def refusal(newest: int | None, code: int) -> Callable[[Any, int], Any]:
        rows = [] if newest is None else [ApiVersion(api_key=18, min_version=0, max_version=newest)]
        # The refusal is always of version 0, which every client can read (KIP-511).
        return lambda request, version: (ApiVersionsResponse(error_code=code, api_keys=rows), 0)

    with FakeBroker() as broker:
        broker.script(ApiVersionsRequest, *(refusal(*answer) for answer in answers))
        opened = link(broker.port)
        assert [version for _, version in broker.requests] == versions
        assert opened.versions.ranges[18] == (0, 4)
        opened.close()


def test_a_broker_that_refuses_every_version_is_an_error_and_the_connection_is_closed() -> None:
    with FakeBroker() as broker:
        refusal = ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        broker.script(ApiVersionsRequest, refusal)
        with pytest.raises(KafkaException, match="refused ApiVersions") as raised:
            link(broker.port)
        assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
