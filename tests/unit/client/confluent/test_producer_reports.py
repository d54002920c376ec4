"""Each record gets exactly one report, whatever raises, and in whatever moment."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest

from felice.client import Producer, SerializingProducer
from felice.client.error import KafkaError, KafkaException, ValueSerializationError
from felice.client.model import Message
from felice.client.produce import batches, sender
from felice.client.produce.serving import FirstError
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.produce import ProduceRequest
from felice.records import builder, reader
from unit.client.confluent.test_producer import producer
from unit.client.fake_broker import FakeBroker, Hang

LIMIT_S = 60


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 2, "other": 1}) as started:
        yield started


def test_the_error_of_a_callback_is_logged_if_the_call_fails_for_another_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(BufferError), FirstError() as errors:
        errors.add(ValueError("of a callback"))
        raise BufferError
    assert "ValueError: of a callback" in caplog.text


class Reports:
    """Counts the reports of each record by its value, and raises for the values in `raising`."""

    def __init__(self, *raising: bytes) -> None:
        self.counts: Counter[bytes | None] = Counter()
        self.errors: dict[bytes | None, KafkaError | None] = {}
        self._raising = raising

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.counts[message.value()] += 1
        self.errors[message.value()] = error
        if message.value() in self._raising:
            raise ValueError(message.value())


def once(count: int) -> dict[bytes, int]:
    return {b"%d" % number: 1 for number in range(count)}


def produce(made: Producer, reports: Reports, count: int, topic: str = "t", **keys: Any) -> None:
    for number in range(count):
        made.produce(topic, b"%d" % number, partition=0, on_delivery=reports, **keys)


# Callbacks that raise


@pytest.mark.parametrize("end", ["poll", "flush", "close", "with"])
def test_the_first_exception_of_a_callback_is_raised_after_all_reports(broker: FakeBroker, end: str) -> None:
    reports = Reports(b"1", b"3")
    made = producer(broker, linger_ms=20)
    produce(made, reports, 5)
    with pytest.raises(ValueError, match="b'1'"):
        if end == "with":
            with made:
                pass
        else:
            getattr(made, end)()
    assert reports.counts == once(5)
    made.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_callback_ends_the_call_and_loses_no_report(
    broker: FakeBroker, error: type[BaseException]
) -> None:
    reports = Reports()

    def interrupted(failure: KafkaError | None, message: Message) -> None:
        reports(failure, message)
        raise error

    made = producer(broker, linger_ms=20)
    made.produce("t", b"0", partition=0, on_delivery=interrupted)
    made.produce("t", b"1", partition=0, on_delivery=reports)
    with pytest.raises(error):
        made.flush(LIMIT_S)
    made.close()
    assert reports.counts == once(2)


@pytest.mark.parametrize("name", ["stats_cb", "error_cb", "throttle_cb"])
def test_another_callback_that_raises_costs_no_report(broker: FakeBroker, name: str) -> None:
    reports = Reports()
    made = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 60_000, name: lambda _: None})
    made._thread.post(made._inbox.tell, _raise, "an event")
    produce(made, reports, 3)
    with pytest.raises(ZeroDivisionError):
        while True:
            made.poll(LIMIT_S)
    made._thread.post(made._inbox.tell, _raise, "an event")
    with pytest.raises(ZeroDivisionError):
        made.close()
    assert reports.counts == once(3)


def test_a_callback_that_serves_reports_itself_gets_each_once(broker: FakeBroker) -> None:
    reports = Reports()
    made = producer(broker, linger_ms=20)

    def nested(error: KafkaError | None, message: Message) -> None:
        reports(error, message)
        made.poll(0)

    for number in range(4):
        made.produce("t", b"%d" % number, partition=0, on_delivery=nested)
    made.close()
    assert reports.counts == once(4)


def test_threads_that_poll_at_once_serve_each_report_once(broker: FakeBroker) -> None:
    reports: list[bytes | None] = []  # appending is atomic, counting is not
    made = producer(broker, linger_ms=1)
    is_over = threading.Event()
    failures: list[BaseException] = []

    def poll() -> None:
        while not is_over.is_set():
            try:
                made.poll(0.001)
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=poll) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(5_000):
        made.produce("t", b"%d" % number, on_delivery=lambda error, message: reports.append(message.value()))
    made.flush(LIMIT_S)
    is_over.set()
    for thread in threads:
        thread.join()
    made.close()
    assert not failures
    assert Counter(reports) == once(5_000)


# What cannot be encoded


@pytest.mark.parametrize("topic", ["t", "new"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": {"\ud800": b""}},
        {"headers": [("a", "\ud800")]},
        {"headers": ["ab"]},
        {"headers": "ab"},
        {"headers": ""},
        {"headers": [("a", b"b", b"c")]},
        {"headers": [("a",)]},
        {"headers": [None]},
        {"headers": 0},
        {"headers": [(b"a", b"b")]},
        {"value": "\ud800"},
        {"key": "\ud800"},
        {"topic": "\ud800"},
        {"topic": "t" * 513},
        {"partition": -2},
        {"partition": 1 << 31},
        {"partition": 1.0},
        {"partition": None},
        {"timestamp": 1.5},
        {"timestamp": 0.0},
        {"timestamp": None},
        {"timestamp": -1},
        {"timestamp": 1 << 63},
    ],
    ids=ascii,
)
def test_what_cannot_be_a_record_is_refused_and_costs_no_other_its_report(
    broker: FakeBroker, topic: str, wrong: dict[str, Any]
) -> None:
    reports = Reports()
    with producer(broker, topic_metadata_propagation_max_ms=60_000, linger_ms=10) as made:
        made.produce(topic, b"0", partition=0, on_delivery=reports)
        with pytest.raises((TypeError, ValueError, KafkaException)):
            made.produce(**{"topic": topic, "value": b"bad", "on_delivery": reports, **wrong})
        made.produce(topic, b"1", partition=0, on_delivery=reports)
        broker.topics["new"] = broker.topics["other"]
        assert made.flush(LIMIT_S) == 0
    assert reports.counts == once(2)


def test_a_partition_that_cannot_be_is_refused_beside_an_open_batch(broker: FakeBroker) -> None:
    with producer(broker, linger_ms=60_000, sticky_partitioning_linger_ms=60_000) as made:
        made.produce("t", b"0", partition=0)
        made.flush(LIMIT_S)
        made.produce("t", b"1")  # its batch stays open
        with pytest.raises(KafkaException) as caught:
            made.produce("t", b"2", partition=-2)
        assert caught.value.error == KafkaError._UNKNOWN_PARTITION
        assert len(made) == 1


def test_a_record_that_the_encoder_refuses_first_in_its_batch_leaves_nothing_behind(
    broker: FakeBroker,
) -> None:
    reports = Reports()
    with producer(broker) as made:
        made.produce("t", b"0", partition=0, on_delivery=reports)
        assert made.flush(LIMIT_S) == 0
        with (
            patch.object(builder.BatchBuilder, "append", side_effect=MemoryError),
            pytest.raises(MemoryError),
        ):
            made.produce("t", b"bad", partition=0, on_delivery=reports)
        made.produce("t", b"1", partition=0, on_delivery=reports)
        assert made.flush(LIMIT_S) == 0
    assert reports.counts == once(2)


@pytest.mark.parametrize(
    ("codec", "level", "is_accepted"),
    [
        ("gzip", 9, True),
        ("gzip", 10, False),
        ("gzip", 22, False),
        ("lz4", 17, True),
        ("lz4", 18, False),
        ("zstd", 22, True),
        ("snappy", 22, True),
        ("none", 22, True),
    ],
)
def test_a_level_that_the_codec_does_not_have_is_refused_when_the_client_is_made(
    broker: FakeBroker, codec: str, level: int, is_accepted: bool
) -> None:
    reports = Reports()
    keys = {"compression_type": codec, "compression_level": level}
    if not is_accepted:
        with pytest.raises(KafkaException, match=r'"compression\.level"'):
            producer(broker, **keys)
        return
    with producer(broker, **keys) as made:
        produce(made, reports, 3)
    assert reports.counts == once(3)
    assert reports.errors[b"0"] is None


# Failures inside the client


def _raise(*args: object, **kwargs: object) -> Any:
    raise ZeroDivisionError("injected")


def _raise_once(original: Callable[..., Any]) -> Callable[..., Any]:
    calls: list[None] = []

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        return _raise() if len(calls) == 1 else original(*args, **kwargs)

    return stand_in


PLACES: list[tuple[Any, str]] = [
    (builder, "compress"),
    (batches.ProducerBatch, "number"),
    (batches.PartitionQueue, "take"),
    (sender, "produce_request"),
    (sender.Sender, "_send"),
    (sender.Sender, "_send_to"),
    (sender.Sender, "_identify"),
    (sender.Sender, "_rows"),
    (sender.Sender, "_on_row"),
    (sender.Sender, "_show_partitions"),
    (sender.Sender, "_follow_topology"),
    (sender.Sender, "_count_sent"),
    (reader, "read_records"),
]


@pytest.mark.parametrize("topic", ["t", "new"])
@pytest.mark.parametrize("is_once", [True, False])
@pytest.mark.parametrize(("owner", "name"), PLACES, ids=lambda place: str(place).split(".")[-1])
def test_an_exception_anywhere_in_the_sender_ends_in_reports(
    broker: FakeBroker, owner: Any, name: str, is_once: bool, topic: str
) -> None:
    reports = Reports()
    instead = _raise_once(getattr(owner, name)) if is_once else _raise
    with patch.object(owner, name, instead):
        made = producer(broker, compression_type="gzip", linger_ms=5)
        produce(made, reports, 4, topic)
        broker.topics["new"] = broker.topics["other"]
        assert made.flush(LIMIT_S) == 0
        made.close()
    assert reports.counts == once(4)


def test_an_unexpected_answer_about_the_producer_id_fails_the_records(broker: FakeBroker) -> None:
    reports = Reports()
    with patch.object(sender, "InitProducerIdResponse", create=True), producer(broker) as made:
        broker.handlers[InitProducerIdRequest] = lambda request, version: broker.produce_error(0)(
            ProduceRequest(topic_data=[]), version
        )
        produce(made, reports, 2)
        made.purge(blocking=True)
        assert made.flush(LIMIT_S) == 0
    assert reports.counts == once(2)


def test_a_batch_above_the_limit_of_decompression_has_its_reports(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[KafkaError | None, int | None]] = []
    with producer(broker, compression_type="gzip", linger_ms=20) as made:
        for _ in range(2):
            made.produce(
                "t", b"x", partition=0, on_delivery=lambda error, m: seen.append((error, m.offset()))
            )
        monkeypatch.setattr("felice.client.produce.reports.read_batch", _raise)
        assert made.flush(LIMIT_S) == 0
    assert seen == [(None, 0), (None, 1)]


# Closing


@pytest.mark.parametrize("where", ["held", "in flight"])
def test_records_that_are_left_at_a_close_are_reported(broker: FakeBroker, where: str) -> None:
    reports = Reports()
    if where == "held":
        broker.script(MetadataRequest, *[Hang] * 10)
    else:
        broker.script(ProduceRequest, Hang)
    made = producer(broker, linger_ms=0)
    produce(made, reports, 3)
    assert made.close(0.3) is False
    assert reports.counts == once(3)
    assert {error.name() for error in reports.errors.values() if error} <= {"_PURGE_QUEUE", "_PURGE_INFLIGHT"}


def test_a_serializer_that_raises_costs_no_other_record_its_report(broker: FakeBroker) -> None:
    reports = Reports()

    def serialize(value: int, _: object) -> bytes:
        if value == 7:
            raise LookupError("mine")
        return b"%d" % value

    made: SerializingProducer[None, int] = SerializingProducer(
        {"bootstrap.servers": broker.bootstrap, "value.serializer": serialize}
    )
    made.produce("t", value=0, on_delivery=reports)
    with pytest.raises(ValueSerializationError):
        made.produce("t", value=7, on_delivery=reports)
    made.produce("t", value=1, on_delivery=reports)
    made.close()
    assert reports.counts == once(2)


def test_a_flush_at_the_interpreter_s_exit_serves_the_reports(broker: FakeBroker) -> None:
    code = f"""
import atexit
from felice.client import Producer
made = Producer({{"bootstrap.servers": "{broker.bootstrap}", "linger.ms": 60000}})
for number in range(3):
    made.produce("t", b"%d" % number, on_delivery=lambda error, m: print(error, m.value(), flush=True))
atexit.register(made.close)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert Counter(ended.stdout.splitlines()) == {f"None b'{number}'": 1 for number in range(3)}, ended.stderr


def test_a_refused_batch_that_cannot_be_split_is_reported(broker: FakeBroker) -> None:
    reports = Reports()
    broker.script(ProduceRequest, broker.produce_error(ErrorCode.MESSAGE_TOO_LARGE))
    with (
        patch.object(batches.ProducerBatch, "split", _raise),
        producer(broker, linger_ms=20) as made,
    ):
        produce(made, reports, 3)
        assert made.flush(LIMIT_S) == 0
    assert reports.counts == once(3)


# Tables


def test_a_row_whose_partition_is_null_goes_where_its_key_goes(broker: FakeBroker) -> None:
    pa = pytest.importorskip("pyarrow")
    keys = [b"%d" % number for number in range(20)]
    table = pa.table({"key": keys, "value": keys, "partition": pa.array([None] * 19 + [1], pa.int32())})
    with producer(broker) as made:
        made.produce_arrow("t", table)
        made.flush(LIMIT_S)
        for key in keys[:19]:
            made.produce("t", b"again", key=key)
    for key in keys[:19]:
        homes = [
            partition
            for partition in (0, 1)
            if any(record.key == key for record in reader.read_records(bytes(broker.logs["t", partition])))
        ]
        assert len(homes) == 1
    assert keys[19] in broker.values("t", 1)


@pytest.mark.parametrize(
    "column",
    [
        {"timestamp": [5, 5, -1]},
        {"timestamp": "before 1970"},
        {"headers": [[("a", b"1")], None, [(None, b"2")]]},
    ],
    ids=["negative", "before 1970", "header without name"],
)
def test_a_table_with_a_row_that_cannot_be_a_record_sends_nothing(
    broker: FakeBroker, column: dict[str, Any]
) -> None:
    pa = pytest.importorskip("pyarrow")
    columns: dict[str, Any] = {"value": [b"0", b"1", b"2"], "partition": pa.array([0, 0, 1], pa.int32())}
    if column.get("timestamp") == "before 1970":
        columns["timestamp"] = pa.array([5, 5, -1], pa.timestamp("us"))
    elif "headers" in column:
        pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
        rows = [
            None if row is None else [{"key": key, "value": value} for key, value in row]
            for row in column["headers"]
        ]
        columns["headers"] = pa.array(rows, pa.list_(pair))
    else:
        columns |= column
    with producer(broker) as made:
        with pytest.raises(KafkaException) as caught:
            made.produce_arrow("t", pa.table(columns))
        assert len(made) == 0
    assert caught.value.error == KafkaError._INVALID_ARG
    assert not broker.values("t", 0)


def test_callbacks_that_raise_while_a_table_waits_for_room_lose_no_row(broker: FakeBroker) -> None:
    pa = pytest.importorskip("pyarrow")
    reports = Reports(b"1")
    made = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "on_delivery": reports,
            "batch.size": 100,
            "queue.buffering.max.messages": 2,
        }
    )
    table = pa.table({"value": [b"%d" % number for number in range(20)], "partition": [0] * 20})
    with pytest.raises(ValueError, match="b'1'"):
        made.produce_arrow("t", table)
        made.close()
    made.close()
    assert reports.counts == once(20)


@pytest.mark.parametrize("key", ["client.id", "transactional.id"])
def test_a_text_that_utf_8_cannot_encode_is_refused_when_the_client_is_made(
    broker: FakeBroker, key: str
) -> None:
    with pytest.raises(KafkaException, match=key):
        Producer({"bootstrap.servers": broker.bootstrap, key: "\ud800"})
