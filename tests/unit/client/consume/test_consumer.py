import gc
import threading
import time
import weakref
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
    Message,
    Producer,
    TopicPartition,
)
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from felice.protocol.messages.list_offsets import ListOffsetsRequest
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from felice.records.builder import build_batch
from felice.records.record import Record
from unit.client.fake_broker import Disconnect, FakeBroker
from waiting import LIMIT_S, wait_until


class Committing(FakeBroker):
    """Keeps the committed offsets of one group."""

    def __init__(self) -> None:
        super().__init__({"t": 2})
        self.committed: dict[tuple[str, int], int] = {}
        self.handlers[OffsetCommitRequest] = self._commit
        self.handlers[OffsetFetchRequest] = self._fetch_offsets

    def _commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        for topic in request.topics:
            for row in topic.partitions:
                self.committed[topic.name, row.partition_index] = row.committed_offset
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=row.partition_index)
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _fetch_offsets(self, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=number,
                        committed_offset=self.committed.get((topic.name, number), -1),
                        metadata="",
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.groups[0].topics or []
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])

    def fill(self, partition: int, *values: bytes) -> None:
        self.append("t", partition, build_batch([Record(0, 1, None, value) for value in values]))


@pytest.fixture
def broker() -> Iterator[Committing]:
    with Committing() as started:
        started.fill(0, b"0", b"1", b"2")
        started.fill(0, b"3")
        yield started


@pytest.fixture
def consumer(broker: Committing) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(**keys: Any) -> Consumer:
        config = {
            "bootstrap.servers": broker.bootstrap,
            "fetch.wait.max.ms": 10,
            "fetch.error.backoff.ms": 10,
            "retry.backoff.max.ms": 20,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        given = {name if name == "on_commit" else name.replace("_", "."): keys[name] for name in keys}
        made.append(Consumer({**config, **given}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def read(consumer: Consumer, count: int, timeout: float = LIMIT_S) -> list[Message]:
    return consumer.consume(count, timeout)


def at(offset: int, partition: int = 0) -> TopicPartition:
    return TopicPartition("t", partition, offset)


def test_assigned_offset_is_where_reading_begins(consumer: Callable[..., Consumer]) -> None:
    one = consumer()
    one.assign([at(2)])
    assert [message.offset() for message in read(one, 2)] == [2, 3]
    assert one.poll(0.05) is None
    assert one.position([at(0)])[0].offset == 4


@pytest.mark.parametrize(("start", "first"), [(OFFSET_BEGINNING, 0), (OFFSET_INVALID, 0)])
def test_logical_offsets_are_looked_up(consumer: Callable[..., Consumer], start: int, first: int) -> None:
    one = consumer()
    one.assign([at(start)])
    assert read(one, 1)[0].offset() == first


def test_reading_from_the_end_delivers_new_records(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    one = consumer()
    one.assign([at(OFFSET_END)])
    wait_until(lambda: broker.asked(FetchRequest))  # it has found the end
    assert one.poll(0) is None
    broker.fill(0, b"new")
    message = one.poll(LIMIT_S)
    assert message is not None and (message.offset(), message.value()) == (4, b"new")


def test_committed_offset_takes_precedence_over_the_reset(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    broker.committed["t", 0] = 3
    one = consumer(group_id="g")
    one.assign([at(OFFSET_INVALID)])
    assert read(one, 1)[0].offset() == 3


def test_without_reset_policy_a_missing_commit_is_an_error(consumer: Callable[..., Consumer]) -> None:
    one = consumer(group_id="g", auto_offset_reset="error")
    one.assign([at(OFFSET_INVALID)])
    message = one.poll(LIMIT_S)
    assert message is not None and message.error() == KafkaError._AUTO_OFFSET_RESET
    assert (message.topic(), message.partition()) == ("t", 0)


def out_of_range(broker: Committing) -> FetchResponse:
    row = PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, aborted_transactions=[])
    topic = FetchableTopicResponse(topic_id=broker.topics["t"][0], partitions=[row])
    return FetchResponse(responses=[topic])


def test_offset_out_of_range_is_reset(consumer: Callable[..., Consumer], broker: Committing) -> None:
    broker.script(FetchRequest, out_of_range(broker))
    one = consumer()
    one.assign([at(99)])
    assert read(one, 1)[0].offset() == 0


def test_offset_out_of_range_is_an_error_with_policy_error(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    broker.script(FetchRequest, out_of_range(broker))
    one = consumer(auto_offset_reset="error")
    one.assign([at(99)])
    message = one.poll(LIMIT_S)
    assert message is not None and message.error() == KafkaError._AUTO_OFFSET_RESET


def test_end_of_partition_is_reported_once_per_end(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    one = consumer(enable_partition_eof=True)
    one.assign([at(3)])
    data, end = read(one, 2)
    assert data.offset() == 3
    assert end.error() == KafkaError._PARTITION_EOF and end.offset() == 4
    assert one.poll(0.1) is None
    broker.fill(0, b"4")
    assert [message.offset() for message in read(one, 2)] == [4, 5]


def test_seek_and_pause_and_resume(consumer: Callable[..., Consumer], broker: Committing) -> None:
    one = consumer()
    one.assign([at(0), at(0, partition=1)])
    assert len(read(one, 4)) == 4
    one.seek(at(1))
    assert read(one, 1)[0].offset() == 1
    one.pause([at(0)])
    broker.fill(1, b"other")
    assert [message.partition() for message in read(one, 1)] == [1]
    assert one.consume(5, 0.2) == []
    one.resume([at(0)])
    assert [message.offset() for message in read(one, 2)] == [2, 3]


def test_commit_is_message_plus_one_or_the_consumed_offsets(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    one = consumer(group_id="g")
    one.assign([at(0)])
    with pytest.raises(KafkaException) as caught:
        one.commit(asynchronous=False)
    assert caught.value.args[0] == KafkaError._NO_OFFSET
    messages = read(one, 3)
    one.commit(message=messages[0], asynchronous=False)
    assert broker.committed == {("t", 0): 1}
    rows = one.commit(asynchronous=False)
    assert rows is not None and rows[0].offset == 3 and broker.committed == {("t", 0): 3}
    one.commit(offsets=[at(2)], asynchronous=False)
    assert one.committed([at(0), at(0, partition=1)])[0].offset == 2
    assert one.committed([at(0, partition=1)])[0].offset == OFFSET_INVALID


def test_automatic_commits_happen_by_time_and_at_the_end(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    told: list[Any] = []
    one = consumer(
        group_id="g",
        enable_auto_commit=True,
        auto_commit_interval_ms=30,
        on_commit=lambda *report: told.append(report),
    )
    one.assign([at(0)])
    read(one, 2)
    wait_until(lambda: broker.committed)
    wait_until(lambda: (one.poll(0), told)[1])  # `poll` may return a record first
    assert broker.committed["t", 0] >= 2 and told[0][0] is None
    one.seek(at(3))
    read(one, 1)
    one.close()
    assert broker.committed["t", 0] == 4


def test_stored_offsets_are_committed(consumer: Callable[..., Consumer], broker: Committing) -> None:
    one = consumer(group_id="g", enable_auto_offset_store=False)
    one.assign([at(0)])
    messages = read(one, 3)
    one.store_offsets(message=messages[1])
    one.commit(asynchronous=False)
    assert broker.committed == {("t", 0): 2}
    with pytest.raises(KafkaException):
        consumer(group_id="g").store_offsets(offsets=[at(1)])


def test_lost_broker_is_found_again(consumer: Callable[..., Consumer], broker: Committing) -> None:
    broker.script(FetchRequest, Disconnect, Disconnect)
    broker.script(ListOffsetsRequest, Disconnect)
    one = consumer()
    one.assign([at(OFFSET_BEGINNING)])
    assert len(read(one, 4)) == 4


def test_group_calls_without_group_id_raise(consumer: Callable[..., Consumer]) -> None:
    one = consumer()
    for call in (lambda: one.subscribe(["t"]), lambda: one.committed([at(0)])):
        with pytest.raises(KafkaException, match="group.id"):
            call()


def test_calls_on_a_closed_consumer_raise(consumer: Callable[..., Consumer]) -> None:
    one = consumer()
    one.close()
    one.close()
    for call in (one.poll, one.assignment, one.memberid):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_poll_of_an_unreachable_broker_reports_the_address() -> None:
    with Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}) as one:
        one.assign([at(0)])
        message = one.poll(LIMIT_S)
        assert message is not None and message.error() == KafkaError._ALL_BROKERS_DOWN
        assert b"127.0.0.1:1" in message.value()


def test_prefetching_stops_at_its_limits(consumer: Callable[..., Consumer], broker: Committing) -> None:
    for _ in range(50):
        broker.fill(0, b"x" * 1000)
    one = consumer(queued_min_messages=1)
    one.assign([at(0)])
    one.poll(LIMIT_S)
    time.sleep(0.2)
    assert len(broker.asked(FetchRequest)) == 1
    assert len(read(one, 53)) == 53


def test_columns_and_messages_may_be_mixed(consumer: Callable[..., Consumer]) -> None:
    pytest.importorskip("pyarrow")
    one = consumer()
    one.assign([at(0)])
    assert read(one, 1)[0].offset() == 0
    table = one.consume_arrow(2, LIMIT_S)
    assert table.column("offset").to_pylist() == [1, 2]
    assert table.column("topic").to_pylist() == ["t", "t"]
    assert read(one, 1)[0].offset() == 3
    assert one.consume_arrow(2, 0.05).num_rows == 0


def test_reply_to_a_fetch_from_before_the_seek_is_dropped(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    one = consumer(fetch_wait_max_ms=200)
    answering = broker.handlers[FetchRequest]

    def late(request: FetchRequest, version: int) -> Any:
        """Respond for offset 3 only after the consumer has returned to offset 0."""
        one._core.subscription.of("t", 0).seek(0)
        return answering(request, version)

    broker.script(FetchRequest, late)
    one.assign([at(3)])
    assert [message.offset() for message in read(one, 4)] == [0, 1, 2, 3]


def test_assigned_topic_that_does_not_exist_is_reported_once(consumer: Callable[..., Consumer]) -> None:
    one = consumer()
    one.assign([TopicPartition("nowhere", 0, 0)])
    message = one.poll(LIMIT_S)
    assert message is not None and message.error() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert message.topic() == "nowhere"
    assert one.poll(0.3) is None


def test_thread_ends_when_the_client_is_collected(broker: Committing) -> None:
    before = threading.active_count()
    one = Consumer({"bootstrap.servers": broker.bootstrap})
    one.assign([at(0)])
    assert len(read(one, 4)) == 4
    other = Producer({"bootstrap.servers": broker.bootstrap})
    other.produce("t", b"v")
    other.flush(LIMIT_S)
    assert threading.active_count() > before
    del one, other
    gc.collect()
    wait_until(lambda: threading.active_count() <= before)
    assert threading.active_count() == before


def test_calls_with_nothing_to_do_do_not_raise(
    consumer: Callable[..., Consumer],
) -> None:
    told: list[Any] = []
    one = consumer(group_id="g", on_commit=lambda error, rows: told.append((error, rows)))
    one.assign([TopicPartition("t", 0)])
    assert one.consume(0, 0.1) == []
    # A rebalance may just have revoked the partition, before the application learned of it.
    one.pause([TopicPartition("t", 1)])
    one.resume([TopicPartition("t", 1)])
    # Otherwise its record might be consumed before the offsets to commit are taken.
    one.pause([TopicPartition("t", 0)])
    assert one.commit() is None
    wait_until(lambda: one.consume(1, 0.05) or told)
    assert told == [(KafkaError(KafkaError._NO_OFFSET), [TopicPartition("t", 0)])]


def test_subscription_without_topics_is_refused(consumer: Callable[..., Consumer]) -> None:
    with pytest.raises(KafkaException) as caught:
        consumer(group_id="g").subscribe([])
    assert caught.value.args[0] == KafkaError._INVALID_ARG


def test_a_batch_that_cannot_be_read_is_told_with_its_place_and_read_again(
    consumer: Callable[..., Consumer], broker: Committing
) -> None:
    data = bytearray(build_batch([Record(0, 1, None, b"3")], base_offset=3))
    data[16] = 9  # the version of its format
    row = PartitionData(partition_index=0, high_watermark=4, records=bytes(data), aborted_transactions=[])
    topic_id = broker.topics["t"][0]
    topics = [FetchableTopicResponse(topic="t", topic_id=topic_id, partitions=[row])]
    broker.script(FetchRequest, FetchResponse(responses=topics))
    one = consumer()
    one.assign([at(3)])
    message = one.poll(LIMIT_S)
    error = message.error() if message is not None else None
    assert message is not None and error is not None
    assert (message.topic(), message.partition(), message.offset()) == ("t", 0, 3)
    message = one.poll(LIMIT_S)
    assert message is not None and (message.offset(), message.value()) == (3, b"3")


def test_a_message_in_a_cycle_is_collected(consumer: Callable[..., Consumer]) -> None:
    """The collector does not visit messages from the broker, until they get other values."""

    class Value:
        message: object

    one = consumer()
    one.assign([at(0)])
    [message] = read(one, 1)
    value = Value()
    message.set_value(value)
    value.message = message
    seen = weakref.ref(value)
    del message, value
    one.unassign()
    one.poll(0)  # lets go of the batch
    gc.collect()
    assert seen() is None
