"""Each call of `Producer` against a scripted broker: what it sends, returns and raises."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from felice.client import KafkaError, KafkaException, Message, Producer
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.produce import ProduceRequest
from felice.records.reader import read_records
from unit.client.confluent.test_producer import Reports, producer
from unit.client.fake_broker import FakeBroker, Hang


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 2}) as started:
        yield started


def records(broker: FakeBroker, partition: int) -> list[tuple[Any, ...]]:
    return [
        (row.key, row.value, row.timestamp, row.headers)
        for row in read_records(bytes(broker.logs["t", partition]))
    ]


def wait(condition: Any) -> None:
    while not condition():
        time.sleep(0.005)


def test_a_record_with_every_field(broker: FakeBroker) -> None:
    with producer(broker) as made:
        made.produce("t", "v", "k", 1, timestamp=77, headers={"h": "x", "n": None})
        made.produce("t", b"w", partition=1)
    first, second = records(broker, 1)
    assert first == (b"k", b"v", 77, (("h", b"x"), ("n", None)))
    assert second[:2] == (None, b"w") and abs(second[2] / 1000 - time.time()) < 3600


def test_reports_go_to_the_record_or_to_the_default(broker: FakeBroker) -> None:
    told: list[str] = []

    def note(name: str) -> Any:
        return lambda error, message: told.append(name)

    with producer(broker, on_delivery=None) as made:
        made._default_report = note("default")
        made.produce("t", b"1", callback=note("callback"))
        made.flush()
        made.produce("t", b"2", on_delivery=note("on_delivery"))
        made.flush()
        made.produce("t", b"3")
        made.flush()
    assert told == ["callback", "on_delivery", "default"]


def test_a_batch_of_dicts_marks_those_that_are_refused(broker: FakeBroker) -> None:
    reports: Reports = []
    own: Reports = []
    rows: list[dict[str, Any]] = [
        {
            "value": b"1",
            "key": b"k",
            "timestamp": 77,
            "headers": [("h", b"x")],
            "_error": "of an earlier call",
        },
        {"value": b"2", "partition": 0, "callback": lambda *report: own.append(report)},
        {"value": b"9" * 2_000_000},
        {"value": b"3"},
        {"value": b"4"},
    ]
    with producer(broker, queue_buffering_max_messages=3, linger_ms=10_000) as made:
        count = made.produce_batch("t", rows, 1, on_delivery=lambda *report: reports.append(report))
        assert count == 3
        made.flush()
    errors = [row.get("_error") for row in rows]
    assert errors == [None, None, ErrorCode.MESSAGE_TOO_LARGE, None, KafkaError._QUEUE_FULL]
    assert errors[4].retriable() and not errors[2].retriable()
    assert records(broker, 1)[0] == (b"k", b"1", 77, (("h", b"x"),))
    assert [row[1] for row in records(broker, 1)] == [b"1", b"3"]
    assert [row[1] for row in records(broker, 0)] == [b"2"]
    assert (len(reports), len(own)) == (2, 1)


def test_a_poll_serves_what_is_there_or_waits(broker: FakeBroker) -> None:
    reports: list[Message] = []
    with producer(broker) as made:
        assert made.poll(0) == 0
        started = time.monotonic()
        assert made.poll(0.1) == 0
        assert time.monotonic() - started >= 0.1
        made.produce("t", b"v", on_delivery=lambda error, message: reports.append(message))
        assert made.poll() == 1 == len(reports)


def test_a_flush_ends_lingering_and_its_timeout(broker: FakeBroker) -> None:
    with producer(broker, linger_ms=60_000) as made:
        made.produce("t", b"1", partition=0)
        assert len(made) == 1 and made.flush() == 0 == len(made)
        made.produce("t", b"2", partition=0)
        time.sleep(0.05)
        assert len(broker.asked(ProduceRequest)) == 1, "it lingers again"
        broker.script(ProduceRequest, Hang)
        started = time.monotonic()
        assert made.flush(0.1) == 1
        assert 0.1 <= time.monotonic() - started < 40
        made.purge()
        assert made.flush() == 0


@pytest.mark.parametrize("in_queue", [True, False])
def test_a_purge_drops_what_waits_or_what_is_in_flight(broker: FakeBroker, in_queue: bool) -> None:
    told: dict[bytes | None, KafkaError | None] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        told[message.value()] = error

    broker.script(ProduceRequest, Hang)
    with producer(broker, max_in_flight_requests_per_connection=1) as made:
        made.produce("t", b"1", partition=0, on_delivery=note)
        wait(lambda: broker.asked(ProduceRequest))
        made.produce("t", b"2", partition=0, on_delivery=note)
        made.purge(in_queue=in_queue, in_flight=not in_queue)
        made.poll(60)
        assert told == ({b"2": KafkaError._PURGE_QUEUE} if in_queue else {b"1": KafkaError._PURGE_INFLIGHT})
        made.purge(blocking=False)
        wait(lambda: made.poll(0.01) or len(told) == 2)


def test_topics_and_the_cluster(broker: FakeBroker) -> None:
    with producer(broker) as made:
        assert sorted(made.list_topics().topics) == ["t"]
        assert sorted(made.list_topics("t", 60).topics) == ["t"]
        assert made.cluster_id() == made.cluster_id(60) == "fake"
        broker.script(MetadataRequest, Hang)
        with pytest.raises(KafkaException, match=r"no answer in 0.1 s") as late:
            made.list_topics(timeout=0.1)
        assert late.value.code == KafkaError._TRANSPORT
        wait(lambda: len(broker.asked(MetadataRequest)) == 5)
    asked = [
        None if request.topics is None else [each.name for each in request.topics]
        for request in broker.asked(MetadataRequest)
    ]
    assert asked == [None, ["t"], [], [], None]


def test_a_closed_producer_has_sent_what_it_could(broker: FakeBroker) -> None:
    made = producer(broker, linger_ms=60_000)
    made.produce("t", b"v", partition=1)
    assert made.close() is True
    assert made.close() is True
    assert broker.values("t", 1) == [b"v"]
    with pytest.raises(RuntimeError, match="^the producer is closed$"):
        made.poll(1)
    for call in (made.list_topics, made.cluster_id, made.purge):
        with pytest.raises(RuntimeError, match="^the producer is closed$"):
            call()
    late = producer(broker)
    broker.script(ProduceRequest, Hang)
    late.produce("t", b"v")
    assert late.close(0.1) is False


def test_a_context_closes_the_producer(broker: FakeBroker) -> None:
    with producer(broker) as made:
        thread = made._thread
        assert bool(made)
    assert not thread.alive
    with pytest.raises(RuntimeError, match="closed"):
        made.produce("t", b"v")


def test_settings_may_be_keywords(broker: FakeBroker) -> None:
    with Producer(**{"bootstrap.servers": broker.bootstrap}) as made:
        assert made.cluster_id() == "fake"


def test_a_table_waits_for_room_as_long_as_its_timeout(broker: FakeBroker) -> None:
    pa = pytest.importorskip("pyarrow")
    values = [b"%d" % number for number in range(30)]
    table = pa.table({"value": values, "partition": [0] * 30})
    with producer(broker, queue_buffering_max_messages=10, batch_size=100) as made:
        assert made.produce_arrow("t", table, timeout=60) == 30
        made.flush()
        assert broker.values("t", 0) == values
        broker.script(ProduceRequest, *[Hang] * 10)
        started = time.monotonic()
        with pytest.raises(BufferError):
            made.produce_arrow("t", table, timeout=0.3)
        assert 0.3 <= time.monotonic() - started < 40
        made.purge()


def test_a_table_of_records_with_every_field(broker: FakeBroker) -> None:
    pa = pytest.importorskip("pyarrow")
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "id": [b"k", None],
            "body": [b"v", b"w"],
            "at": [77, 78],
            "where": [1, 1],
            "notes": pa.array([[{"key": "h", "value": b"x"}], None], type=kind),
        }
    )
    with producer(broker) as made:
        assert (
            made.produce_arrow(
                "t", table, key="id", value="body", partition="where", timestamp="at", headers="notes"
            )
            == 2
        )
        made.flush()
    assert records(broker, 1) == [(b"k", b"v", 77, (("h", b"x"),)), (None, b"w", 78, ())]


def test_rows_without_a_partition_or_a_key_are_spread(broker: FakeBroker) -> None:
    pa = pytest.importorskip("pyarrow")
    with producer(broker) as made:
        made.produce_arrow("t", pa.table({"value": [b"1", b"2", b"3"]}))
        made.flush()
        found = sorted([len(broker.values("t", number)) for number in (0, 1)])
        assert found == [1, 2]
        made.produce_arrow("t", pa.table({"key": [b"k", None, None], "value": [b"4", b"5", b"6"]}))
        made.produce_arrow("t", pa.table({"partition": [0, None], "value": [b"7", b"8"]}))
        made.flush()
    everything = broker.values("t", 0) + broker.values("t", 1)
    assert sorted(value or b"" for value in everything) == [b"%d" % number for number in range(1, 9)]
    assert b"7" in broker.values("t", 0)


@pytest.mark.parametrize(
    ("columns", "names", "text"),
    [
        ({"partition": [0]}, {}, "neither a column 'value' nor 'key'"),
        ({"value": [b"1"], "partition": [-1]}, {}, "partitions -1 to -1 are asked for, the topic has 2"),
        ({"value": [b"1"], "partition": [2]}, {}, "partitions 2 to 2 are asked for, the topic has 2"),
        ({"value": [b"1"]}, {"timestamp": "at"}, "no column 'at'"),
        ({"value": [b"1"], "odd": [1]}, {"headers": None}, "columns 'odd'"),
    ],
)
def test_a_table_that_is_no_table_of_records_is_refused(
    broker: FakeBroker, columns: dict[str, Any], names: dict[str, Any], text: str
) -> None:
    pa = pytest.importorskip("pyarrow")
    with producer(broker) as made:
        with pytest.raises(KafkaException, match=text):
            made.produce_arrow("t", pa.table(columns), **names)
        twice = pa.Table.from_arrays([pa.array([b"1"])] * 2, names=["value", "value"])
        with pytest.raises(KafkaException, match="several columns 'value'"):
            made.produce_arrow("t", twice)


def test_a_topic_that_does_not_exist_is_an_error_of_the_table(broker: FakeBroker) -> None:
    pa = pytest.importorskip("pyarrow")
    with producer(broker) as made, pytest.raises(KafkaException) as raised:
        made.produce_arrow("no", pa.table({"value": [b"1"]}), timeout=1)
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_reports_are_served_in_the_thread_that_polls(broker: FakeBroker) -> None:
    threads: list[int] = []
    with producer(broker) as made:
        made.produce("t", b"v", on_delivery=lambda *report: threads.append(threading.get_ident()))
        made.flush()
    assert threads == [threading.get_ident()]
