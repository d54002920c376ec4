"""Each call of `Consumer` against a scripted broker: what it asks, returns and raises."""

from __future__ import annotations

import gc
import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from felice.client import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    ThrottleEvent,
    TopicPartition,
)
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import FetchRequest, FetchResponse
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from felice.records.builder import build_batch
from felice.records.record import Record
from unit.client.aio.test_aio_consumer import Committing, at, config, facts
from unit.client.fake_broker import Disconnect, Hang
from waiting import wait_until


@pytest.fixture
def broker() -> Iterator[Committing]:
    with Committing() as started:
        for value in (b"0", b"1", b"2"):
            started.append("t", 0, build_batch([Record(0, 1, None, value)]))
        started.append("t", 1, build_batch([Record(0, 1, None, b"other")]))
        yield started


@pytest.fixture
def consumer(broker: Committing) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(**options: Any) -> Consumer:
        made.append(Consumer(config(broker, options)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def row(partition: int, **fields: Any) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, **fields)


def offsets(*rows: ListOffsetsPartitionResponse) -> ListOffsetsResponse:
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=list(rows))])


@pytest.mark.parametrize("topics", ["t", [5], ["t", None]])
def test_topics_are_a_list_of_names(consumer: Callable[..., Consumer], topics: Any) -> None:
    with pytest.raises(TypeError, match="topics: expected a list"):
        consumer().subscribe(topics)


def test_the_assignment_changes_in_steps(consumer: Callable[..., Consumer]) -> None:
    one = consumer()
    one.assign([at(1)])
    one.incremental_assign([at(0, 1)])
    assert facts(one.assignment()) == [(0, 1), (1, 0)]
    with pytest.raises(KafkaException) as raised:
        one.incremental_assign([at(0, 1)])
    assert raised.value.code == KafkaError._CONFLICT
    assert sorted(message.value() or b"" for message in one.consume(3, 60)) == [b"1", b"2", b"other"]
    one.incremental_unassign([at(0, 1)])
    assert facts(one.assignment()) == [(0, 1)]
    with pytest.raises(KafkaException):
        one.incremental_unassign([at(0, 1)])
    one.unassign()
    assert one.assignment() == []


def test_consume_takes_up_to_a_number_of_messages(consumer: Callable[..., Consumer]) -> None:
    one = consumer()
    one.assign([at(0)])
    assert [message.value() for message in one.consume(2, 60)] == [b"0", b"1"]
    assert [message.value() for message in one.consume()] == [b"2"]
    started = time.monotonic()
    assert one.consume(5, 0.1) == []
    assert time.monotonic() - started >= 0.1
    assert one.consume(0) == []
    assert one.poll(0) is None
    for number in (-1, 1_000_001):
        with pytest.raises(ValueError, match="between 0 and 1000000"):
            one.consume(number)


def test_a_poll_waits_for_its_timeout(consumer: Callable[..., Consumer], broker: Committing) -> None:
    one = consumer()
    one.assign([at(3)])
    started = time.monotonic()
    assert one.poll(0.1) is None
    assert time.monotonic() - started >= 0.1
    broker.append("t", 0, build_batch([Record(0, 1, None, b"3")]))
    message = one.poll()
    assert message is not None and message.value() == b"3"


def test_a_pause_of_what_is_not_assigned_is_ignored(consumer: Callable[..., Consumer]) -> None:
    one = consumer()
    one.assign([at(0)])
    one.pause([at(0), at(0, 1)])
    assert one.poll(0.1) is None
    one.resume([at(0), at(0, 1)])
    message = one.poll(60)
    assert message is not None and message.value() == b"0"


def test_a_seek_moves_the_position(consumer: Callable[..., Consumer]) -> None:
    one = consumer()
    one.assign([at(0)])
    assert len(one.consume(3, 60)) == 3
    one.seek(at(1))
    assert facts(one.position([at(0)])) == [(0, OFFSET_INVALID)]
    message = one.poll(60)
    assert message is not None and message.value() == b"1"
    assert facts(one.position([at(0), at(0, 1)])) == [(0, 2), (1, OFFSET_INVALID)]
    one.seek(at(OFFSET_BEGINNING))
    assert one.consume(1, 60)[0].value() == b"0"
    with pytest.raises(KafkaException):
        one.seek(at(0, 1))


def test_commits_of_a_message_of_offsets_and_of_positions(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    one = consumer()
    one.assign([at(0)])
    message = one.poll(60)
    assert facts(one.commit(message, asynchronous=False) or []) == [(0, 1)]
    assert facts(one.commit(offsets=[TopicPartition("t", 1, 5, "note")], asynchronous=False) or []) == [
        (1, 5)
    ]
    assert broker.committed == {0: (1, ""), 1: (5, "note")}
    one.poll(60)
    assert facts(one.commit(asynchronous=False) or []) == [(0, 2)]
    with pytest.raises(KafkaException) as raised:
        one.commit(asynchronous=False)
    assert raised.value.code == KafkaError._NO_OFFSET
    with pytest.raises(ValueError, match="mutually exclusive"):
        one.commit(message, [at(1)])


def test_a_commit_that_nobody_waits_for_is_told_at_the_next_poll(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    one = consumer(on_commit=lambda *result: told.put(result))
    for answers, expected in (((), None), ((OffsetCommitResponse(),), None)):
        broker.script(OffsetCommitRequest, *answers)
        assert one.commit(offsets=[at(4)]) is None
        while told.empty():
            one.poll(0.02)
        error, rows = told.get()
        assert error is expected and facts(rows) == ([] if answers else [(0, 4)])


def test_stored_offsets_are_committed(consumer: Callable[..., Consumer], broker: Committing) -> None:
    one = consumer(enable_auto_offset_store=False)
    one.assign([at(0), at(0, 1)])
    message = next(row for row in one.consume(4, 60) if row.partition() == 0)
    one.store_offsets(message)
    one.store_offsets(offsets=[TopicPartition("t", 1, 1, "note")])
    with pytest.raises(ValueError, match="expected either message or offsets"):
        one.store_offsets()
    assert sorted(facts(one.commit(asynchronous=False) or [])) == [(0, 1), (1, 1)]
    assert broker.committed[1] == (1, "note")
    with pytest.raises(KafkaException):
        one.store_offsets(offsets=[TopicPartition("u", 0, 1)])
    with pytest.raises(KafkaException, match="must be false to store offsets") as raised:
        consumer().store_offsets(message)
    assert raised.value.code == KafkaError._INVALID_ARG


def test_committed_offsets_have_metadata_epochs_and_errors(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    rows = [
        OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=0, committed_leader_epoch=0, metadata="note"
        ),
        OffsetFetchResponsePartitions(
            partition_index=1, metadata="", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ),
        OffsetFetchResponsePartitions(partition_index=2, committed_offset=-1, metadata=""),
    ]
    topics = [OffsetFetchResponseTopics(name="t", partitions=rows)]
    broker.script(
        OffsetFetchRequest,
        OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)]),
    )
    found = consumer().committed([at(0, number) for number in range(4)], 30)
    assert [(row.offset, row.metadata, row.leader_epoch) for row in found] == [
        (0, "note", 0),
        (OFFSET_INVALID, None, None),
        (OFFSET_INVALID, None, None),
        (OFFSET_INVALID, None, None),
    ]
    errors = [row.error for row in found]
    assert errors == [None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, KafkaError._UNKNOWN_PARTITION]


@pytest.mark.parametrize(("level", "number"), [("read_committed", 1), ("read_uncommitted", 0)])
def test_offsets_by_time(
    consumer: Callable[..., Consumer], broker: Committing, level: str, number: int
) -> None:
    one = consumer(isolation_level=level)
    broker.script(
        ListOffsetsRequest,
        offsets(row(0, offset=2, leader_epoch=3), row(1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)),
    )
    first, second = one.offsets_for_times([at(77), at(88, 1)])
    assert (first.offset, first.leader_epoch, first.error) == (2, 3, None)
    assert (second.offset, second.error) == (88, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    [asked] = broker.asked(ListOffsetsRequest)
    assert asked.isolation_level == number
    assert [(part.partition_index, part.timestamp) for part in asked.topics[0].partitions] == [
        (0, 77),
        (1, 88),
    ]
    broker.script(ListOffsetsRequest, offsets(row(0, offset=-1)))
    assert one.offsets_for_times([at(99)], 60)[0].offset == OFFSET_END


@pytest.mark.parametrize("unknown", [TopicPartition("t", 77, 5), TopicPartition("nowhere", 0, 5)])
def test_offsets_of_a_partition_that_brokers_do_not_know_need_no_whole_time_limit(
    consumer: Callable[..., Consumer], unknown: TopicPartition
) -> None:
    one = consumer()
    for call in (
        lambda: one.offsets_for_times([unknown], 3600),
        lambda: one.get_watermark_offsets(unknown, 3600),
    ):
        with pytest.raises(KafkaException) as raised:
            call()
        assert raised.value.code == KafkaError._UNKNOWN_PARTITION


def test_the_ends_of_a_partition(consumer: Callable[..., Consumer], broker: Committing) -> None:
    one = consumer()
    assert one.get_watermark_offsets(at(0)) == (0, 3)
    assert one.get_watermark_offsets(at(0), 60) == (0, 3)
    assert one.get_watermark_offsets(at(0), cached=True) == (OFFSET_INVALID, OFFSET_INVALID)
    one.assign([at(0)])
    one.consume(3, 60)
    assert one.get_watermark_offsets(at(0), cached=True) == (0, 3)
    timestamps = [request.topics[0].partitions[0].timestamp for request in broker.asked(ListOffsetsRequest)]
    assert timestamps == [-2, -1, -2, -1]
    broker.script(ListOffsetsRequest, offsets(row(0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    with pytest.raises(KafkaException) as raised:
        one.get_watermark_offsets(at(0))
    assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_ends_that_no_broker_tells_in_time_are_an_error(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    broker.handlers[ListOffsetsRequest] = lambda request, version: Hang
    broker.script(ListOffsetsRequest, Hang)
    with pytest.raises(KafkaException) as late:
        consumer(socket_timeout_ms=300).get_watermark_offsets(at(0), 0.3)
    assert late.value.code == KafkaError._TIMED_OUT


def test_topics_and_the_cluster(consumer: Callable[..., Consumer], broker: Committing) -> None:
    one = consumer()
    assert sorted(one.list_topics().topics) == ["t"]
    assert sorted(one.list_topics("t", 60).topics) == ["t"]
    assert not one.list_topics("", 60).topics
    assert one.cluster_id() == one.cluster_id(60) == "fake"
    assert (one.memberid(), one.consumer_group_metadata().group_id) == (None, "g")
    asked = [
        None if request.topics is None else [each.name for each in request.topics]
        for request in broker.asked(MetadataRequest)
    ]
    assert asked == [None, ["t"], [], [], []]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda one: one.list_topics(timeout=0.1), KafkaError._TRANSPORT),
        (lambda one: one.cluster_id(0.1), KafkaError._TIMED_OUT),
    ],
)
def test_questions_wait_no_longer_than_their_timeout(
    consumer: Callable[..., Consumer], broker: Committing, call: Any, code: int
) -> None:
    broker.script(MetadataRequest, Hang)
    one = consumer()
    with pytest.raises(KafkaException, match=r"no answer in 0.1 s") as late:
        call(one)
    assert late.value.code == code


def test_a_question_without_a_broker_has_the_reason() -> None:
    with Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}) as one:
        with pytest.raises(KafkaException, match=r"127\.0\.0\.1:1") as raised:
            one.list_topics(timeout=60)
        assert raised.value.code == KafkaError._ALL_BROKERS_DOWN


def test_a_closed_consumer_refuses_calls(broker: Committing) -> None:
    one = Consumer(config(broker, {}))
    one.close()
    one.close()
    for call in (
        lambda: one.poll(0),
        lambda: one.poll(0.1),
        lambda: one.consume(1, 0.1),
        lambda: one.subscribe(["t"]),
        lambda: one.assign([at(0)]),
        lambda: one.assignment(),
        lambda: one.position([at(0)]),
        lambda: one.commit(offsets=[at(0)]),
        lambda: one.store_offsets(),
        lambda: one.memberid(),
        lambda: one.consumer_group_metadata(),
        lambda: one.list_topics(),
        lambda: one.get_watermark_offsets(at(0), cached=True),
    ):
        with pytest.raises(RuntimeError, match="Consumer closed"):
            call()


def test_throttling_and_outages_are_told_to_the_application(broker: Committing) -> None:
    usual = broker.handlers[FetchRequest]

    def slowed(request: FetchRequest, version: int) -> FetchResponse:
        response: FetchResponse = usual(request, version)
        response.throttle_time_ms = 40
        return response

    broker.script(FetchRequest, slowed)
    events: list[ThrottleEvent] = []
    options = config(broker, {}) | {"throttle_cb": events.append}
    with Consumer(options) as one:
        one.assign([at(0)])
        while len(events) < 2:
            one.poll(0.02)
    assert [(event.broker_name, event.broker_id, event.throttle_time) for event in events] == [
        (broker.bootstrap, 1, 0.04),
        (broker.bootstrap, 1, 0.0),
    ]


def test_an_outage_is_an_error_of_poll_or_of_the_callback() -> None:
    told: list[KafkaError] = []
    for callback in (None, told.append):
        options: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
        if callback is not None:
            options["error_cb"] = callback
        with Consumer(options) as one:
            one.assign([at(0)])
            deadline = time.monotonic() + 60
            events = []
            while not events and not told and time.monotonic() < deadline:
                message = one.poll(0.05)
                events += [message.error()] if message is not None else []
        assert (events if callback is None else told) == [KafkaError._ALL_BROKERS_DOWN]


def test_a_columnar_read_takes_rows_up_to_its_limits(consumer: Callable[..., Consumer]) -> None:
    pytest.importorskip("pyarrow")
    one = consumer()
    one.assign([at(0)])
    table = one.consume_arrow(2, 60)
    assert table["value"].to_pylist() == [b"0", b"1"] and "headers" not in table.column_names
    started = time.monotonic()
    rest = one.consume_arrow(timeout=0.1, with_headers=True)
    assert rest["value"].to_pylist() == [b"2"] and "headers" in rest.column_names
    assert time.monotonic() - started >= 0.1
    one.seek(at(0))
    # What one response brought is taken whole; then the limit is reached, and nothing is waited for.
    started = time.monotonic()
    assert one.consume_arrow(100, 60, max_bytes=1)["offset"].to_pylist()[0] == 0
    assert time.monotonic() - started < 60


def test_a_lost_connection_is_not_an_error_of_poll(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    broker.script(FetchRequest, Disconnect)
    one = consumer()
    one.assign([at(0)])
    messages = one.consume(3, 60)
    assert [message.error() for message in messages] == [None] * 3


def test_a_refused_call_leaves_no_coroutine_behind(
    broker: Committing, recwarn: pytest.WarningsRecorder
) -> None:
    one = Consumer(config(broker, {}))
    one.close()
    for call in (one.list_topics, one.unsubscribe):
        with pytest.raises(RuntimeError, match="Consumer closed"):
            call()
    gc.collect()
    assert [str(each.message) for each in recwarn if "never awaited" in str(each.message)] == []


@pytest.mark.parametrize("automatic", [True, False])
def test_positions_are_committed_by_time_only_if_that_is_asked_for(
    consumer: Callable[..., Consumer], broker: Committing, automatic: bool
) -> None:
    one = consumer(enable_auto_commit=automatic, auto_commit_interval_ms=10)
    one.assign([at(0)])
    assert len(one.consume(3, 60)) == 3
    if automatic:
        # The first commit may come between the first and the last of the messages.
        wait_until(lambda: one.poll(0.01) or broker.committed == {0: (3, "")})
    else:
        assert one.poll(0.2) is None
        assert broker.committed == {}
