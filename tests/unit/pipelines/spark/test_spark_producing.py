from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from felice.client.error import error_of, failure
from felice.client.model import ClusterMetadata, PartitionMetadata, TopicMetadata
from felice.client.produce.partitioners import murmur2_random
from felice.pipelines.limits import TopicLimits
from felice.pipelines.spark import producing
from felice.pipelines.spark.mistakes import ClusterError
from felice.pipelines.spark.options import SinkOptions
from felice.pipelines.spark.producing import NUMBER, PlainOutput, RowError, TopicWriter
from felice.records.reader import read_records

UNKNOWN_TOPIC = 3
INVALID_TOPIC = 17
MESSAGE_TOO_LARGE = 10


class Brokers:
    """Keeps what was produced, by topic and partition."""

    def __init__(self) -> None:
        self.partitions = {"out": 3, "one": 1, "small": 1}
        self.errors: dict[str, list[int]] = {}
        self.records: dict[tuple[str, int], list[Any]] = {}
        self.requests: list[int] = []
        self.max_bytes = {"small": 5_000}
        self.tells_limits = True

    def metadata(self, topics: list[str], *, allow_auto_create: bool) -> ClusterMetadata:
        assert allow_auto_create
        (name,) = topics
        if self.errors.get(name):
            return ClusterMetadata(
                topics={name: TopicMetadata(name, error=error_of(self.errors[name].pop(0)))}
            )
        partitions = {index: PartitionMetadata(index) for index in range(self.partitions[name])}
        return ClusterMetadata(topics={name: TopicMetadata(name, partitions)})

    def produce(self, batches: Iterable[tuple[str, int, Any]], acks: int) -> None:
        self.requests.append(acks)
        for topic, partition, batch in batches:
            if len(batch) > self.max_bytes.get(topic, 1 << 20):
                raise failure(MESSAGE_TOO_LARGE, f"{topic}-{partition}")
            self.records.setdefault((topic, partition), []).extend(read_records(batch))


_connected: list[Brokers] = []


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    _connected.append(Brokers())
    yield _connected[-1]
    _connected.clear()


def write(*batches: dict[str, list[Any]], missing_topic_s: float = math.inf, **given: str) -> int:
    options = SinkOptions.parse({"kafka.bootstrap.servers": "h:1"} | given)
    options = replace(options, missing_topic_s=missing_topic_s)
    client: Any = _connected[0]

    def limits_of(topic: str) -> TopicLimits:
        known = client.max_bytes if client.tells_limits else {}
        return TopicLimits(known[topic]) if topic in known else TopicLimits()

    writer = TopicWriter(options, client, PlainOutput(client, options), limits_of)
    for columns in batches:
        writer.add(pa.RecordBatch.from_pydict(columns))
    writer.flush()
    return writer.rows_written


def test_a_key_goes_where_javas_producer_puts_it_and_keeps_its_order(brokers: Brokers) -> None:
    keys = [f"k{index % 7}" for index in range(100)]
    assert write({"key": keys, "value": [str(index) for index in range(100)]}, topic="out") == 100
    found = {partition: records for (_, partition), records in brokers.records.items()}
    assert sum(map(len, found.values())) == 100
    for partition, records in found.items():
        assert {murmur2_random(record.key, 3) for record in records} == {partition}
        values = [int(record.value) for record in records]
        assert values == sorted(values)


def test_a_partition_column_decides_before_the_key(brokers: Brokers) -> None:
    columns = {
        "key": ["a", "a", "a"],
        "value": ["0", "1", "2"],
        "partition": pa.array([2, None, 0], pa.int32()),
    }
    write(columns, topic="out")
    by_key = murmur2_random(b"a", 3)
    assert [r.value for r in brokers.records["out", 2]] == ([b"0", b"1"] if by_key == 2 else [b"0"])
    assert b"2" in [r.value for r in brokers.records["out", 0]]
    assert b"1" in [r.value for r in brokers.records["out", by_key or 0]]


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (pa.timestamp("us", tz="UTC"), -1, "1969-12-31 23:59:59.999999"),
        (pa.timestamp("us", tz="UTC"), -60_000_000, "1969-12-31 23:59:00"),
        (pa.timestamp("us", tz="Europe/Berlin"), -1, "1970-01-01 00:59:59.999999"),
        (pa.timestamp("us", tz="UTC"), -63_000_000_000_000_000, "-0027"),
        (pa.int64(), -1, "-1"),
    ],
)
def test_a_time_before_1970_is_refused_before_a_row_is_sent(
    brokers: Brokers, kind: pa.DataType, value: int, said: str
) -> None:
    times = pa.array([None, 0, value], pa.int64()).cast(kind)
    with pytest.raises(RowError, match=f"timestamp {said}.*before 1970"):
        write({"value": ["x", "y", "z"], "timestamp": times}, topic="out")
    assert brokers.records == {}


def test_a_header_without_a_name_is_refused_before_a_row_is_sent(brokers: Brokers) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([None, [], [{"key": "a", "value": None}], [{"key": None, "value": b"1"}]], kind)
    with pytest.raises(RowError, match="key is null"):
        write({"value": ["x"] * 4, "headers": headers}, topic="out")
    assert brokers.records == {}
    write({"value": ["x"] * 3, "headers": headers.slice(0, 3)}, topic="out")


def test_the_remainder_of_a_number_is_the_partition(brokers: Brokers) -> None:
    rows = {
        "key": ["k", "k", "k", None],
        "value": ["a", "b", "c", "d"],
        NUMBER: pa.array([5, None, (1 << 63) - 1, 3], pa.int64()),
    }
    write(rows, topic="out")
    found = {
        record.value: partition for (_, partition), records in brokers.records.items() for record in records
    }
    by_key = murmur2_random(b"k", 3)
    assert found == {b"a": 2, b"b": by_key, b"c": ((1 << 63) - 1) % 3, b"d": 0}


@pytest.mark.parametrize("partition", [3, -1])
def test_a_partition_there_is_none_of_is_refused(brokers: Brokers, partition: int) -> None:
    with pytest.raises(RowError, match=f"partition {partition} of topic out, which has 3"):
        write({"value": ["x"], "partition": pa.array([partition], pa.int32())}, topic="out")


def test_a_topic_with_one_partition_honours_the_column_too(brokers: Brokers) -> None:
    with pytest.raises(RowError, match="partition 1 of topic one, which has 1"):
        write({"value": ["x"], "partition": pa.array([1], pa.int32())}, topic="one")


def test_rows_without_key_are_dealt_over_all_partitions(brokers: Brokers) -> None:
    write({"value": ["x"] * (3 * producing.RUN_ROWS)}, topic="out")
    assert [len(brokers.records["out", partition]) for partition in range(3)] == [producing.RUN_ROWS] * 3


def test_small_flushes_without_key_take_turns(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "FLUSH_AT_BYTES", 1)
    write(*[{"value": ["x"] * 10}] * 3, topic="out")
    assert [len(brokers.records["out", partition]) for partition in range(3)] == [10] * 3


def test_the_topic_column_sends_each_row_to_its_topic(brokers: Brokers) -> None:
    write({"value": ["a", "b", "c"], "topic": ["one", "out", "one"]})
    assert [r.value for r in brokers.records["one", 0]] == [b"a", b"c"]
    assert [r.value for key, records in brokers.records.items() if key[0] == "out" for r in records] == [b"b"]


def test_the_topic_option_overrules_the_column(brokers: Brokers) -> None:
    write({"value": ["a"], "topic": ["out"]}, topic="one")
    assert list(brokers.records) == [("one", 0)]


def test_a_null_topic_is_refused(brokers: Brokers) -> None:
    with pytest.raises(RowError, match="null for its topic"):
        write({"value": ["a", "b"], "topic": ["one", None]})


def test_null_keys_and_values_stay_null_and_headers_travel(brokers: Brokers) -> None:
    headers = pa.array(
        [[{"key": "h", "value": b"1"}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    write({"key": pa.array([None, "k"]), "value": pa.array(["v", None]), "headers": headers}, topic="one")
    first, second = brokers.records["one", 0]
    assert (first.key, first.value, first.headers) == (None, b"v", (("h", b"1"),))
    assert (second.key, second.value, second.headers) == (b"k", None, ())


def test_rows_are_gathered_into_few_requests(brokers: Brokers) -> None:
    assert write(*[{"value": ["x" * 100] * 10}] * 20, topic="one") == 200
    assert brokers.requests == [-1]


def test_no_more_than_a_bounded_part_is_held(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "FLUSH_AT_BYTES", 2000)
    assert write(*[{"value": ["x" * 100] * 10}] * 20, topic="one") == 200
    assert len(brokers.requests) >= 10


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_batches_are_as_small_as_their_topic_wants(brokers: Brokers, codec: str) -> None:
    values = [f"{number:0100d}" for number in range(500)]
    write({"value": values}, topic="small", **{"kafka.compression.type": codec})
    assert [record.value.decode() for record in brokers.records["small", 0]] == values


def test_a_row_that_is_too_large_for_its_topic_is_told_with_its_size(brokers: Brokers) -> None:
    said = r"a row of 6\d\d\d bytes is too large for topic small: its max.message.bytes is lower"
    with pytest.raises(RowError, match=said):
        write({"value": ["x", "x" * 6000, "x"], "topic": ["one", "small", "small"]})


def test_a_row_above_the_batch_size_is_not_blamed_for_that_of_another_topic(brokers: Brokers) -> None:
    with pytest.raises(RowError, match=r"a row of 6\d\d\d bytes is too large for topic small"):
        write({"value": ["x" * 3000, "x" * 6000], "topic": ["one", "small"]}, **{"kafka.batch.size": "1000"})


def test_a_topic_with_a_limit_that_is_not_known_says_how_to_write_smaller_batches(brokers: Brokers) -> None:
    brokers.max_bytes["one"], brokers.tells_limits = 5_000, False
    with pytest.raises(RowError, match="set 'kafka.batch.size' to less than its max.message.bytes"):
        write({"value": ["x" * 100] * 500}, topic="one")
    assert write({"value": ["x" * 100] * 500}, topic="one", **{"kafka.batch.size": "4000"}) == 500


def test_a_task_without_rows_writes_nothing(brokers: Brokers) -> None:
    assert write(topic="one") == 0
    assert brokers.requests == []


def test_a_topic_being_created_is_waited_for(brokers: Brokers) -> None:
    brokers.errors["one"] = [UNKNOWN_TOPIC, UNKNOWN_TOPIC]
    assert write({"value": ["x"]}, topic="one") == 1


def test_a_topic_that_stays_missing_is_waited_for_as_long_as_the_caller_says(brokers: Brokers) -> None:
    brokers.errors["one"] = [UNKNOWN_TOPIC] * 1_000
    with pytest.raises(ClusterError, match="topic one cannot be written: "):
        write({"value": ["x"]}, topic="one", missing_topic_s=0.0)


def test_a_topic_that_cannot_be_is_not_waited_for(brokers: Brokers) -> None:
    brokers.errors["one"] = [INVALID_TOPIC]
    with pytest.raises(ClusterError, match="topic one cannot be written: .*not valid"):
        write({"value": ["x"]}, topic="one")
