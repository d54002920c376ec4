import pickle
import time
from collections.abc import Iterator

import pytest

from felice.client.blocking import EARLIEST, LATEST, BlockingClient, OffsetOutOfRange
from felice.client.blocking.link import BlockingLink
from felice.client.consume.isolation import READ_COMMITTED, READ_UNCOMMITTED
from felice.client.error import KafkaError, KafkaException, failure
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from felice.protocol.messages.list_offsets import ListOffsetsRequest
from felice.protocol.messages.produce import ProduceRequest
from felice.records.builder import build_batch
from felice.records.reader import read_records
from felice.records.record import Record
from unit.client.fake_broker import Disconnect, FakeBroker


def batch(*values: bytes) -> bytes:
    return build_batch([Record(0, 1, None, value) for value in values])


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 3}) as started:
        yield started


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[BlockingClient]:
    with BlockingClient(broker.bootstrap, retry_timeout_ms=60_000, fetch_max_wait_ms=10) as made:
        yield made


def fetch_error(broker: FakeBroker, code: int) -> FetchResponse:
    row = PartitionData(partition_index=0, error_code=code, high_watermark=-1, aborted_transactions=[])
    topic_id = broker.topics["t"][0]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=topic_id, partitions=[row])])


def test_produced_batches_are_fetched_whole(broker: FakeBroker, client: BlockingClient) -> None:
    for number in range(5):
        assert client.produce_raw("t", 0, batch(b"%d" % number)).base_offset == number
    values = [record.value for data in client.fetch_raw("t", 0, 1, 4) for record in read_records(data)]
    assert values[:3] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("prefetch", [True, False])
def test_many_partitions_come_in_few_requests(broker: FakeBroker, prefetch: bool) -> None:
    with BlockingClient(broker.bootstrap, prefetch=prefetch, fetch_max_wait_ms=10) as client:
        client.produce([("t", number % 3, batch(b"%d" % number)) for number in range(12)])
        seen: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}
        for piece in client.fetch({("t", number): (0, 4) for number in range(3)}):
            seen[piece.partition] += [record.value for record in read_records(piece.data)]
            assert piece.next_offset == 4
    assert seen == {number: [b"%d" % (number + 3 * turn) for turn in range(4)] for number in range(3)}
    assert len(broker.asked(FetchRequest)) == 1


def test_no_batch_is_lost_if_the_next_request_cannot_be_sent(
    broker: FakeBroker, client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request is sent before the batches of a response are returned."""
    real, sent = BlockingLink.send, list[object]()

    def send(link: BlockingLink, request: object, *, answered: bool = True) -> None:
        if fetches := broker.asked(FetchRequest):
            sent.append(request)
            if len(sent) == 1:
                assert len(fetches) == 1
                broker.append("t", 0, batch(b"1"))
                raise failure(KafkaError._TRANSPORT, "connection reset", retriable=True)
        real(link, request, answered=answered)

    broker.append("t", 0, batch(b"0"))
    monkeypatch.setattr(BlockingLink, "send", send)
    values = [record.value for data in client.fetch_raw("t", 0, 0, 2) for record in read_records(data)]
    assert values == [b"0", b"1"]
    assert len(sent) > 1


def test_results_come_in_the_order_given_and_partitions_keep_theirs(client: BlockingClient) -> None:
    rows = client.produce([("t", 1, batch(b"a")), ("t", 0, batch(b"b", b"c")), ("t", 1, batch(b"d"))])
    assert [(row.partition, row.base_offset) for row in rows] == [(1, 0), (0, 0), (1, 1)]


def test_offset_out_of_range_has_its_own_exception(broker: FakeBroker, client: BlockingClient) -> None:
    broker.script(FetchRequest, fetch_error(broker, ErrorCode.OFFSET_OUT_OF_RANGE))
    with pytest.raises(OffsetOutOfRange) as caught:
        list(client.fetch_raw("t", 0, 3, 9))
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.topic, copy.partition, copy.offset) == ("t", 0, 3)


def test_moved_leader_and_lost_connections_are_retried(broker: FakeBroker, client: BlockingClient) -> None:
    broker.script(ProduceRequest, broker.produce_error(ErrorCode.NOT_LEADER_OR_FOLLOWER), Disconnect)
    client.produce_raw("t", 0, batch(b"v"))
    broker.script(FetchRequest, fetch_error(broker, ErrorCode.NOT_LEADER_OR_FOLLOWER), Disconnect)
    assert len(list(client.fetch_raw("t", 0, 0, 1))) == 1
    broker.script(ListOffsetsRequest, Disconnect)
    assert client.list_offsets({("t", 0): LATEST})["t", 0].offset == 1


def test_retries_end_with_the_last_reason(broker: FakeBroker) -> None:
    broker.handlers[ProduceRequest] = broker.produce_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    started = time.monotonic()
    with (
        BlockingClient(broker.bootstrap, retry_timeout_ms=150) as client,
        pytest.raises(KafkaException) as caught,
    ):
        client.produce_raw("t", 0, batch(b"v"))
    assert caught.value.args[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert time.monotonic() - started < 40


def test_permanent_error_names_topic_and_partition(broker: FakeBroker, client: BlockingClient) -> None:
    broker.script(ProduceRequest, broker.produce_error(ErrorCode.INVALID_RECORD))
    with pytest.raises(KafkaException, match="t-0"):
        client.produce_raw("t", 0, batch(b"v"))
    with pytest.raises(KafkaException, match="nowhere-0"):
        client.list_offsets({("nowhere", 0): EARLIEST})


def test_unfinished_read_does_not_disturb_later_requests(broker: FakeBroker, client: BlockingClient) -> None:
    client.produce([("t", 0, batch(b"a")), ("t", 1, batch(b"b"))])
    reading = client.fetch({("t", 0): (0, 1), ("t", 1): (0, 5)})
    next(reading)
    assert client.list_offsets({("t", 0): LATEST})["t", 0].offset == 1


def test_client_can_be_pickled_and_the_copy_works(broker: FakeBroker, client: BlockingClient) -> None:
    client.produce_raw("t", 0, batch(b"v"))
    with pickle.loads(pickle.dumps(client)) as copy:
        assert copy.metadata(["t"]).topics["t"].partitions.keys() == {0, 1, 2}


def test_unreachable_brokers_are_all_named() -> None:
    with (
        BlockingClient("127.0.0.1:1,127.0.0.1:2", connect_timeout_ms=500) as client,
        pytest.raises(KafkaException) as caught,
    ):
        client.metadata()
    error = caught.value.args[0]
    assert error == KafkaError._ALL_BROKERS_DOWN
    assert "127.0.0.1:1:" in error.str() and "127.0.0.1:2:" in error.str()


def test_acks_zero_returns_at_once(broker: FakeBroker, client: BlockingClient) -> None:
    assert client.produce_raw("t", 0, batch(b"v"), acks=0).base_offset == -1
    client.metadata()
    assert broker.values("t", 0) == [b"v"]


def test_batches_beyond_the_end_are_not_returned(broker: FakeBroker, client: BlockingClient) -> None:
    client.produce([("t", 0, batch(b"%d" % number)) for number in range(6)])
    values = [record.value for data in client.fetch_raw("t", 0, 2, 4) for record in read_records(data)]
    assert values == [b"2", b"3"]


def test_wait_for_an_end_beyond_the_log_is_bounded(broker: FakeBroker) -> None:
    with BlockingClient(broker.bootstrap, retry_timeout_ms=150, fetch_max_wait_ms=10) as client:
        client.produce_raw("t", 0, batch(b"v"))
        with pytest.raises(KafkaException, match="t-0 ends at 1, 5 was asked for"):
            list(client.fetch_raw("t", 0, 0, 5))


def in_transaction(value: bytes, producer_id: int) -> bytes:
    records = [Record(0, 1, None, value)]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def test_read_committed_leaves_out_aborted_records_and_read_uncommitted_does_not(
    broker: FakeBroker, client: BlockingClient
) -> None:
    for data in (in_transaction(b"aborted", 7), in_transaction(b"committed", 8), batch(b"plain")):
        broker.append("t", 0, data)

    def fetched(request: FetchRequest, version: int) -> FetchResponse:
        response: FetchResponse = broker._fetch(request, version)
        aborted = AbortedTransaction(producer_id=7, first_offset=0)
        for row in response.responses[0].partitions:
            row.aborted_transactions = [aborted] if request.isolation_level == READ_COMMITTED else None
        return response

    broker.handlers[FetchRequest] = fetched
    read: dict[int, list[bytes | None]] = {}
    for level in (READ_UNCOMMITTED, READ_COMMITTED):
        pieces = client.fetch_raw("t", 0, 0, 3, isolation_level=level)
        read[level] = [record.value for data in pieces for record in read_records(data)]
    assert read == {
        READ_UNCOMMITTED: [b"aborted", b"committed", b"plain"],
        READ_COMMITTED: [b"committed", b"plain"],
    }
