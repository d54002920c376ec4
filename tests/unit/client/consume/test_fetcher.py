"""What a consumer asks of leaders, when it asks, and what it makes of their answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from felice.client import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)
from felice.client.model import OFFSET_TAIL_BASE
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from felice.records.builder import build_batch
from felice.records.record import Record
from unit.client.aio.test_aio_consumer import Committing, at, config
from unit.client.fake_broker import FakeBroker, Hang


@pytest.fixture
def broker() -> Iterator[Committing]:
    with Committing() as started:
        for number in range(3):
            started.append("t", 0, one(b"%d" % number))
        started.append("t", 1, one(b"other"))
        yield started


@pytest.fixture
def consumer(broker: Committing) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(**options: Any) -> Consumer:
        short = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 10, "fetch_error_backoff_ms": 10}
        made.append(Consumer(config(broker, short | options)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def one(value: bytes) -> bytes:
    return build_batch([Record(0, 1, None, value)])


def wait(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def values(messages: list[Message]) -> list[Any]:
    return [message.error().name() if message.error() else message.value() for message in messages]


def errors(broker: FakeBroker, *rows: PartitionData, error_code: int = 0) -> FetchResponse:
    topic = FetchableTopicResponse(topic="t", topic_id=broker.topics["t"][0], partitions=list(rows))
    return FetchResponse(responses=[topic] if rows else [], error_code=error_code)


def failed(number: int, code: int, **fields: Any) -> PartitionData:
    return PartitionData(partition_index=number, error_code=code, high_watermark=-1, **fields)


def asked(broker: FakeBroker) -> list[dict[int, int]]:
    """Fetch offsets by partition, of each request."""
    return [
        {row.partition: row.fetch_offset for topic in request.topics for row in topic.partitions}
        for request in broker.asked(FetchRequest)
    ]


def test_every_field_of_a_fetch(consumer: Callable[..., Consumer], broker: Committing) -> None:
    reader = consumer(
        fetch_wait_max_ms=77,
        fetch_min_bytes=2,
        fetch_max_bytes=1_000_000,
        max_partition_fetch_bytes=900_000,
        isolation_level="read_committed",
        client_rack="r",
    )
    reader.assign([at(0), at(1, 1)])
    wait(lambda: broker.asked(FetchRequest))
    request = broker.asked(FetchRequest)[0]
    fields = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    assert (*fields, request.rack_id, request.replica_id) == (77, 2, 1_000_000, 1, "r", -1)
    rows = [
        (row.partition, row.fetch_offset, row.partition_max_bytes, row.current_leader_epoch)
        for row in request.topics[0].partitions
    ]
    assert rows == [(0, 0, 900_000, broker.leader_epoch), (1, 1, 900_000, broker.leader_epoch)]


def test_a_partition_that_was_assigned_later_does_not_wait_behind_a_long_poll(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    broker.script(FetchRequest, Hang)
    reader = consumer(fetch_wait_max_ms=30_000)
    reader.assign([at(3)])
    wait(lambda: len(broker.asked(FetchRequest)) == 1)
    reader.incremental_assign([at(0, 1)])
    assert values(reader.consume(1, 60)) == [b"other"]
    first, second = broker.asked(FetchRequest)[:2]
    assert asked(broker)[:2] == [{0: 3}, {1: 0}]
    # It is a long poll, too: no partition is full.
    assert (first.max_wait_ms, second.max_wait_ms) == (30_000, 30_000)


@pytest.mark.parametrize(
    "limit", [{"queued_min_messages": 1}, {"max_partition_fetch_bytes": 1}, {"queued_max_messages_kbytes": 1}]
)
def test_a_full_partition_is_fetched_again_only_after_it_was_delivered(
    consumer: Callable[..., Consumer], broker: Committing, limit: dict[str, int]
) -> None:
    if "queued_max_messages_kbytes" in limit:
        broker.append("t", 0, one(b"x" * 2000))
    reader = consumer(**limit)
    reader.assign([at(0)])
    wait(lambda: len(broker.asked(FetchRequest)) == 1)
    count = broker.ends["t", 0]
    wait(lambda: reader._delivery.buffered_bytes)
    broker.append("t", 0, one(b"later"))
    time.sleep(0.1)
    assert len(broker.asked(FetchRequest)) == 1
    assert len(reader.consume(count, 60)) == count
    assert values(reader.consume(1, 60)) == [b"later"]
    assert asked(broker)[1] == {0: count}


def test_the_second_request_is_short_while_a_partition_is_full(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    reader = consumer(fetch_wait_max_ms=30_000, queued_min_messages=1)
    reader.assign([at(0), at(1, 1)])
    # The first has records in the queue and is full; the second is at its end.
    wait(lambda: reader._delivery.buffered_bytes)
    broker.script(FetchRequest, *[Hang] * 4)
    wait(lambda: not broker.scripts[FetchRequest] or len(broker.scripts[FetchRequest]) == 3)
    # The first connection waits for a long poll: what moves now goes over the second.
    reader.seek(at(0, 1))
    wait(lambda: 50 in {request.max_wait_ms for request in broker.asked(FetchRequest)})
    assert {request.max_wait_ms for request in broker.asked(FetchRequest)} == {30_000, 50}


def test_a_missing_topic_is_reported_once(consumer: Callable[..., Consumer], broker: Committing) -> None:
    reader = consumer()
    reader.assign([TopicPartition("no", 0, 0), TopicPartition("no", 1, 0)])
    [message] = reader.consume(1, 60)
    assert reader.consume(1, 0.1) == []
    error = message.error()
    assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and error.str().endswith(": no")
    assert message.topic() == "no"
    broker.topics["no"] = (broker.topics["t"][0], 2)
    broker.topics.pop("t")
    broker.append("no", 0, one(b"now"))
    assert values(reader.consume(1, 60)) == [b"now"]


@pytest.mark.parametrize(
    ("code", "is_reported", "is_refreshed"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False, True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False, True),
        (ErrorCode.FENCED_LEADER_EPOCH, False, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True, True),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True, False),
    ],
)
def test_an_error_of_a_partition_delays_it_and_only_it(
    consumer: Callable[..., Consumer], broker: Committing, code: int, is_reported: bool, is_refreshed: bool
) -> None:
    reader = consumer(fetch_error_backoff_ms=60_000)
    failed_at: list[float] = []
    answered_at: list[float] = []
    usual = broker.handlers[FetchRequest]

    def fail_twice(request: FetchRequest, version: int) -> Any:
        if not any(row.partition == 0 for topic in request.topics for row in topic.partitions):
            return usual(request, version)
        if len(failed_at) < 2:
            failed_at.append(time.monotonic())
            return errors(broker, failed(0, code))
        answered_at.append(time.monotonic())
        return usual(request, version)

    broker.handlers[FetchRequest] = fail_twice
    reader.assign([at(0), at(0, 1)])
    found = reader.consume(1 + is_reported, 30)
    assert [message.value() for message in found if message.error() is None] == [b"other"]
    assert asked(broker)[:2] == [{0: 0, 1: 0}, {1: 0}], "the other goes on at once"
    # The first goes on after its delay, which is short from now on; `seek` ends the long one.
    fetcher = reader._core.fetcher
    fetcher._settings = replace(fetcher._settings, fetch_error_backoff_ms=400)
    reader.seek(at(0))
    found += reader.consume(3 + is_reported, 60)
    assert values(found[-3:]) == [b"0", b"1", b"2"]
    assert answered_at[0] - failed_at[1] >= 0.39
    events = [message for message in found if message.error() is not None]
    assert [message.error() for message in events] == ([code] * 2 if is_reported else [])
    for message in events:
        assert (message.topic(), message.partition()) == ("t", 0)
        assert message.error().str().endswith(": t-0")
    assert (len(broker.asked(MetadataRequest)) > 1) == is_refreshed


@pytest.mark.parametrize(
    ("code", "is_reported"),
    [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True), (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, False)],
)
def test_an_error_of_a_whole_fetch_delays_its_partitions(
    consumer: Callable[..., Consumer], broker: Committing, code: int, is_reported: bool
) -> None:
    reader = consumer(fetch_error_backoff_ms=150)
    broker.script(FetchRequest, errors(broker, error_code=code))
    started = time.monotonic()
    reader.assign([at(0)])
    found = reader.consume(3 + is_reported, 60)
    assert time.monotonic() - started >= 0.14
    events = [message.error() for message in found if message.error() is not None]
    assert events == ([code] if is_reported else [])


def test_a_hint_of_the_new_leader_is_followed() -> None:
    with Committing() as first, Committing() as second:
        second.append("t", 0, one(b"there"))
        usual = first.handlers[MetadataRequest]

        def both(request: MetadataRequest, version: int) -> MetadataResponse:
            response: MetadataResponse = usual(request, version)
            response.brokers.append(MetadataResponseBroker(node_id=2, host="127.0.0.1", port=second.port))
            return response

        first.handlers[MetadataRequest] = both
        second.handlers[MetadataRequest] = lambda request, version: Hang
        moved = failed(
            0, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
        )
        first.script(FetchRequest, lambda request, version: errors(first, moved))
        with Consumer(config(first, {"fetch_error_backoff_ms": 10})) as reader:
            reader.assign([at(0)])
            assert values(reader.consume(1, 60)) == [b"there"]
        epochs = {
            row.current_leader_epoch
            for request in second.asked(FetchRequest)
            for topic in request.topics
            for row in topic.partitions
        }
        assert epochs == {9}


def test_the_end_is_reported_once_for_each_end(consumer: Callable[..., Consumer], broker: Committing) -> None:
    reader = consumer(enable_partition_eof=True)
    reader.assign([at(2)])
    end = KafkaError._PARTITION_EOF
    messages = reader.consume(2, 60)
    assert values(messages) == [b"2", "_PARTITION_EOF"]
    assert (messages[1].error(), messages[1].partition(), messages[1].offset()) == (end, 0, 3)
    assert reader.consume(1, 0.1) == []
    broker.append("t", 0, one(b"3"))
    assert values(reader.consume(2, 60)) == [b"3", "_PARTITION_EOF"]
    reader.seek(at(4))
    assert values(reader.consume(1, 60)) == ["_PARTITION_EOF"]


def test_the_end_of_committed_records_is_an_end(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    usual = broker.handlers[FetchRequest]

    def open_transaction(request: FetchRequest, version: int) -> FetchResponse:
        response: FetchResponse = usual(request, version)
        for row in response.responses[0].partitions:
            row.last_stable_offset, row.records = 1, one(b"0") if row.partition_index == 0 else b""
        return response

    broker.handlers[FetchRequest] = open_transaction
    reader = consumer(enable_partition_eof=True, isolation_level="read_committed")
    reader.assign([at(0)])
    assert values(reader.consume(2, 60)) == [b"0", "_PARTITION_EOF"]


# Where reading starts


OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("policy", "found"), [("earliest", [b"0"]), ("latest", [b"new"])])
def test_an_offset_out_of_range_is_reset_by_the_policy(
    consumer: Callable[..., Consumer], broker: Committing, policy: str, found: list[bytes]
) -> None:
    reader = consumer(auto_offset_reset=policy)
    broker.script(FetchRequest, lambda request, version: errors(broker, failed(0, OUT_OF_RANGE)))
    reader.assign([at(99)])
    wait(lambda: len(broker.asked(FetchRequest)) >= 2)
    broker.append("t", 0, one(b"new"))
    assert values(reader.consume(1, 60)) == found


def test_an_offset_out_of_range_is_an_error_without_a_policy(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    reader = consumer(auto_offset_reset="error")
    broker.script(FetchRequest, lambda request, version: errors(broker, failed(0, OUT_OF_RANGE)))
    reader.assign([at(99)])
    [message] = reader.consume(1, 60)
    error = message.error()
    assert error == KafkaError._AUTO_OFFSET_RESET
    assert error.str().endswith(": t-0: offset 99 is out of range") and message.offset() == 99
    assert reader.consume(1, 0.1) == [] and len(broker.asked(FetchRequest)) == 1, "it waits for a seek"
    reader.seek(at(2))
    assert values(reader.consume(1, 60)) == [b"2"]


def test_an_offset_out_of_range_is_reset_only_after_what_was_fetched_before(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    reader = consumer()
    reader.assign([at(0)])
    wait(lambda: reader._delivery.buffered_bytes)
    gone = lambda request, version: errors(broker, failed(0, OUT_OF_RANGE))  # noqa: E731
    broker.handlers[FetchRequest], usual = gone, broker.handlers[FetchRequest]
    before = len(broker.asked(FetchRequest))
    wait(lambda: len(broker.asked(FetchRequest)) >= before + 2)
    assert values(reader.consume(3, 60)) == [b"0", b"1", b"2"]
    assert broker.asked(ListOffsetsRequest) == []
    wait(lambda: reader.poll(0.01) or broker.asked(ListOffsetsRequest))
    broker.handlers[FetchRequest] = usual
    # After the reset to the beginning, all of them come again.
    assert values(reader.consume(3, 60)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (OFFSET_BEGINNING, [b"0", b"1", b"2", b"new"]),
        (OFFSET_END, [b"new"]),
        (OFFSET_TAIL_BASE - 2, [b"1", b"2", b"new"]),
        (OFFSET_TAIL_BASE - 50, [b"0", b"1", b"2", b"new"]),
        (OFFSET_STORED, [b"2", b"new"]),
        (1, [b"1", b"2", b"new"]),
    ],
)
def test_logical_offsets_are_looked_up(
    consumer: Callable[..., Consumer], broker: Committing, start: int, found: list[bytes]
) -> None:
    broker.committed[0] = (2, "")
    reader = consumer()
    reader.assign([at(start)])
    wait(lambda: broker.asked(FetchRequest))
    broker.append("t", 0, one(b"new"))
    assert values(reader.consume(len(found), 60)) == found


def test_without_a_committed_offset_the_policy_decides(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    reader = consumer(auto_offset_reset="error")
    reader.assign([at(OFFSET_STORED)])
    [message] = reader.consume(1, 60)
    assert message.error() == KafkaError._AUTO_OFFSET_RESET
    assert message.error().str().endswith(": t-0 has no committed offset")
    assert reader.consume(1, 0.1) == [] and broker.asked(FetchRequest) == []
    reader.seek(at(1))
    assert values(reader.consume(1, 60)) == [b"1"]


@pytest.mark.parametrize(
    ("code", "is_reported"),
    [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, True), (ErrorCode.OFFSET_NOT_AVAILABLE, False)],
)
def test_a_lookup_that_fails_is_repeated_and_a_lasting_error_is_told(
    consumer: Callable[..., Consumer], broker: Committing, code: int, is_reported: bool
) -> None:
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=code)
    answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])
    broker.script(ListOffsetsRequest, answer)
    reader = consumer()
    reader.assign([at(OFFSET_BEGINNING)])
    expected = [ErrorCode(code).name, b"0"] if is_reported else [b"0"]
    messages = reader.consume(len(expected), 60)
    assert values(messages) == expected
    if is_reported:
        assert (messages[0].topic(), messages[0].partition()) == ("t", 0)


@pytest.mark.parametrize(
    ("code", "is_reported"),
    [(ErrorCode.GROUP_AUTHORIZATION_FAILED, True), (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False)],
)
def test_committed_offsets_that_cannot_be_read_are_not_passed_over(
    consumer: Callable[..., Consumer], broker: Committing, code: int, is_reported: bool
) -> None:
    broker.committed[0] = (2, "")
    broker.script(
        OffsetFetchRequest,
        OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=code)]),
    )
    reader = consumer()
    reader.assign([at(OFFSET_STORED)])
    expected = [ErrorCode(code).name, b"2"] if is_reported else [b"2"]
    assert values(reader.consume(len(expected), 60)) == expected


def test_an_answer_for_a_partition_that_was_moved_meanwhile_is_dropped(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    reader = consumer()
    usual = broker.handlers[FetchRequest]

    def late(request: FetchRequest, version: int) -> FetchResponse:
        response: FetchResponse = usual(request, version)
        reader._thread.post(reader._core.seek, at(2))
        time.sleep(0.1)
        return response

    broker.script(FetchRequest, late)
    reader.assign([at(0)])
    assert values(reader.consume(1, 60)) == [b"2"]


def test_an_answer_to_a_fetch_of_an_earlier_offset_is_dropped(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    """When the broker of a partition changes, both may be asked, and the other one has answered meanwhile."""
    reader = consumer()
    usual = broker.handlers[FetchRequest]

    def overtaken(request: FetchRequest, version: int) -> FetchResponse:
        response: FetchResponse = usual(request, version)
        response.responses[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        reader._thread.run(go_on_from(2))
        return response

    async def go_on_from(offset: int) -> None:
        partition = reader._core.subscription.assigned["t", 0]
        partition.fetch_offset = partition.position = offset

    broker.script(FetchRequest, overtaken)
    reader.assign([at(0)])
    assert values(reader.consume(1, 60)) == [b"2"]


def test_records_that_cannot_be_read_are_told_and_fetched_again(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    usual = broker.handlers[FetchRequest]

    def damaged(request: FetchRequest, version: int) -> FetchResponse:
        response: FetchResponse = usual(request, version)
        for row in response.responses[0].partitions:
            data = bytearray(row.records or b"")
            data[16] = 1  # a format that is no longer used
            row.records = bytes(data)
        return response

    broker.script(FetchRequest, damaged)
    reader = consumer()
    reader.assign([at(0)])
    messages = reader.consume(2, 60)
    assert messages[0].error() is not None and messages[0].partition() == 0
    assert values(messages[1:]) == [b"0"]
