"""Topics through `format("felice")` into Spark and back, with other clients at both ends."""

import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.client.blocking import BlockingClient
from felice.client.blocking.coordinators import BlockingCoordinators
from felice.pipelines.spark.lag import offsets_behind
from waiting import wait_until

# Yesterday: records older than a topic's retention would go while the test reads them.
EPOCH_MS = (int(time.time()) - 86_400) * 1000


@pytest.fixture
def topic(broker: Target) -> str:
    name = unique_name("spark")
    create_topic(broker, name, partitions=3)
    return name


@pytest.fixture
def read(spark: Any, broker: Target) -> Callable[..., Any]:
    def load(**options: Any) -> Any:
        return (
            spark.read.format("felice")
            .options(**{"kafka.bootstrap.servers": broker.bootstrap} | options)
            .load()
        )

    return load


@pytest.fixture
def stream(spark: Any, broker: Target) -> Callable[..., Any]:
    def load(**options: Any) -> Any:
        source = spark.readStream.format("felice").options(**{"kafka.bootstrap.servers": broker.bootstrap})
        return source.options(**options).load()

    return load


@pytest.fixture
def write(broker: Target) -> Callable[..., None]:
    def save(frame: Any, **options: Any) -> None:
        target = frame.write.format("felice").options(
            **{"kafka.bootstrap.servers": broker.bootstrap} | options
        )
        target.mode("append").save()

    return save


def produce(broker: Target, topic: str, count: int, partition: int = 0, first: int = 0) -> None:
    """Produces records with librdkafka: the value is their number, and timestamps are a second apart."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(
            topic,
            str(number).encode(),
            b"k",
            partition,
            timestamp=EPOCH_MS + 1000 * number,
            headers=[("n", b"1")],
        )
    assert producer.flush(60) == 0


def consume(broker: Target, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": unique_name("g"), "auto.offset.reset": "earliest"}
    )
    partitions = consumer.list_topics(topic, 60).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    messages: list[Any] = []
    while len(messages) < count:
        got = consumer.consume(count - len(messages), 60)
        assert got, f"only {len(messages)} of {count} records came"
        messages += got
    consumer.close()
    return messages


def open_transactions(broker: Target, query_id: str) -> list[str]:
    """Open transactions of this query only: other tests leave some open on the same broker."""
    with BlockingClient(broker.bootstrap) as client:
        return BlockingCoordinators(client).list_open(f"felice-spark-{query_id}")


def values(frame: Any) -> list[int]:
    return sorted(int(row["value"]) for row in frame.select("value").collect())


def run_now(frame: Any, checkpoint: Path, collect: list[Any], **trigger: Any) -> Any:
    """Runs a streaming query over the existing records; the rows of each batch are added to `collect`."""
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: collect.append(batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )
    query.awaitTermination()
    return query


def test_records_of_librdkafka_are_read_with_the_columns_of_sparks_kafka_source(
    broker: Target, topic: str, read: Callable[..., Any]
) -> None:
    produce(broker, topic, 5, partition=2)
    frame = read(subscribe=topic, includeHeaders="true")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = sorted(frame.collect(), key=lambda row: row["offset"])
    assert [(row["partition"], row["offset"], bytes(row["value"])) for row in rows] == [
        (2, number, str(number).encode()) for number in range(5)
    ]
    third = rows[3]
    assert (third["topic"], bytes(third["key"]), third["timestampType"]) == (topic, b"k", 0)
    assert third["timestamp"].astimezone(datetime.UTC) == datetime.datetime.fromtimestamp(
        EPOCH_MS / 1000 + 3, datetime.UTC
    )
    assert [(header["key"], bytes(header["value"])) for header in third["headers"]] == [("n", b"1")]


def test_librdkafka_reads_the_records_of_spark(
    broker: Target, spark: Any, topic: str, write: Callable[..., None]
) -> None:
    frame = spark.range(2000).selectExpr(
        "cast(id % 10 as string) as key",
        "cast(id as string) as value",
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers",
    )
    write(frame, topic=topic, **{"kafka.compression.type": "zstd"})
    messages = consume(broker, topic, 2000)
    assert sorted(int(message.value()) for message in messages) == list(range(2000))
    assert {message.headers()[0] for message in messages} == {("h", b"x")}
    partitions_of_key: dict[bytes, set[int]] = {}
    for message in messages:
        partitions_of_key.setdefault(message.key(), set()).add(message.partition())
    assert all(len(partitions) == 1 for partitions in partitions_of_key.values())


def test_partition_and_topic_columns_say_where_rows_go(
    broker: Target, spark: Any, topic: str, read: Callable[..., Any], write: Callable[..., None]
) -> None:
    other = unique_name("spark")
    create_topic(broker, other, partitions=1)
    rows = [("a", topic, 1), ("b", topic, 2), ("c", other, 0), (None, topic, 0)]
    write(spark.createDataFrame(rows, "value string, topic string, partition int"))
    found = read(subscribe=f"{topic},{other}").select("value", "topic", "partition").collect()
    assert {
        (row["value"] and bytes(row["value"]).decode(), row["topic"], row["partition"]) for row in found
    } == set(rows)


def test_a_batch_reads_just_between_its_offsets(broker: Target, topic: str, read: Callable[..., Any]) -> None:
    for partition in range(3):
        produce(broker, topic, 10, partition, first=10 * partition)
    starting = json.dumps({topic: {"0": 8, "1": -2, "2": 5}})
    ending = json.dumps({topic: {"0": -1, "1": 2, "2": 6}})
    frame = read(subscribe=topic, startingOffsets=starting, endingOffsets=ending)
    assert values(frame) == [8, 9, 10, 11, 25]
    assert values(read(assign=json.dumps({topic: [1]}))) == list(range(10, 20))


def test_a_batch_reads_between_timestamps(broker: Target, topic: str, read: Callable[..., Any]) -> None:
    produce(broker, topic, 10, 0)
    produce(broker, topic, 10, 1, first=5)
    produce(broker, topic, 10, 2, first=20)
    between = {"startingTimestamp": str(EPOCH_MS + 7000), "endingTimestamp": str(EPOCH_MS + 12_000)}
    assert values(read(subscribe=topic, **between)) == [7, 7, 8, 8, 9, 9, 10, 11]
    late = {"startingTimestamp": str(EPOCH_MS + 12_000)}
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy=latest"):
        read(subscribe=topic, **late).collect()
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert values(read(subscribe=topic, **late, **strategy)) == [12, 13, 14, *range(20, 30)]


def test_filters_choose_rows_and_narrow_what_is_read(
    broker: Target, topic: str, read: Callable[..., Any]
) -> None:
    for partition in range(3):
        produce(broker, topic, 20, partition, first=20 * partition)
    frame = read(subscribe=topic)
    rows = frame.where("partition = 1 and offset >= 5 and offset < 8")
    assert values(rows) == [25, 26, 27]
    assert rows.rdd.getNumPartitions() == 1
    moment = f"timestamp_millis({EPOCH_MS + 57_000})"
    assert values(frame.where(f"timestamp >= {moment}")) == [57, 58, 59]
    assert values(frame.where(f"timestamp < {moment} and partition = 2 and offset > 14")) == [55, 56]
    assert values(frame.where("topic = 'another'")) == []


def test_a_pattern_reads_all_topics_it_matches(broker: Target, read: Callable[..., Any]) -> None:
    prefix = unique_name("pattern")
    for number, name in enumerate((f"{prefix}-a", f"{prefix}-b", f"other-{prefix}-a")):
        create_topic(broker, name)
        produce(broker, name, 1, first=number)
    assert values(read(subscribePattern=f"^{prefix}-.*")) == [0, 1]
    assert values(read(subscribePattern=f"{prefix}-.*")) == [0, 1, 2], (
        "Spark's own source finds it anywhere, too"
    )


def test_many_partitions_are_read_by_as_few_tasks_as_there_are_cores(
    broker: Target, read: Callable[..., Any]
) -> None:
    name = unique_name("wide")
    create_topic(broker, name, partitions=8)
    for partition in range(8):
        produce(broker, name, 5, partition, first=5 * partition)
    assert read(subscribe=name).rdd.getNumPartitions() == 2
    assert read(subscribe=name, minPartitions="12").rdd.getNumPartitions() == 12
    assert values(read(subscribe=name, minPartitions="12")) == list(range(40))
    assert values(read(subscribe=name, maxRecordsPerPartition="3")) == list(range(40))


def test_an_empty_topic_is_an_empty_table(topic: str, read: Callable[..., Any]) -> None:
    assert read(subscribe=topic).count() == 0


def test_a_stream_continues_from_its_checkpoint(
    broker: Target, topic: str, stream: Callable[..., Any], tmp_path: Path
) -> None:
    produce(broker, topic, 90, 0)
    produce(broker, topic, 10, 1, first=90)
    batches: list[Any] = []
    frame = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="50")
    run_now(frame, tmp_path, batches)
    assert [len(batch) for batch in batches] == [50, 50]
    assert sorted(int(row["value"]) for batch in batches for row in batch) == list(range(100))

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result()
    produce(broker, topic, 5, 2, first=100)
    produce(broker, topic, 5, 3, first=105)
    batches.clear()
    run_now(frame, tmp_path, batches)
    assert sorted(int(row["value"]) for batch in batches for row in batch) == list(range(100, 110))
    last = max((tmp_path / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert json.loads(last.read_text().splitlines()[-1]) == {topic: {"0": 90, "1": 10, "2": 5, "3": 5}}


def test_a_stream_starts_at_the_end_by_default(
    broker: Target, topic: str, stream: Callable[..., Any], tmp_path: Path
) -> None:
    produce(broker, topic, 10)
    batches: list[Any] = []
    query = (
        stream(subscribe=topic)
        .writeStream.foreachBatch(lambda batch, _: batches.append(batch.collect()))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        produce(broker, topic, 3, first=10)
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(int(row["value"]) for batch in batches for row in batch) == [10, 11, 12]


def test_a_stream_goes_through_spark_to_another_topic(
    broker: Target, topic: str, stream: Callable[..., Any], tmp_path: Path
) -> None:
    produce(broker, topic, 300, 0)
    produce(broker, topic, 300, 1, first=300)
    target = unique_name("out")
    create_topic(broker, target, partitions=2)
    query = (
        stream(subscribe=topic, startingOffsets="earliest")
        .selectExpr("value as key", "cast(cast(value as string) * 2 as string) as value")
        .writeStream.format("felice")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": target})
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    wait_until(lambda: not open_transactions(broker, query.id))
    messages = consume(broker, target, 600)
    assert {int(m.key()): float(m.value()) for m in messages} == {
        number: 2.0 * number for number in range(600)
    }


@pytest.mark.parametrize("named", [{}, {"groupId": "spark-lag-test"}])
def test_a_consumer_group_shows_the_lag_of_a_stream(
    broker: Target, topic: str, stream: Callable[..., Any], tmp_path: Path, named: dict[str, str]
) -> None:
    produce(broker, topic, 60, 0)
    produce(broker, topic, 20, 1, first=60)
    frame = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40", **named)
    query = run_now(frame, tmp_path, [])
    group = named.get("groupId", f"felice-spark-{query.id}")
    assert committed(broker, group) == {(topic, 0): 60, (topic, 1): 20, (topic, 2): 0}
    first, last = query.recentProgress[0], query.recentProgress[-1]
    assert offsets_behind(first)["offsetsBehindLatest"] == 40
    assert offsets_behind(last) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 0,
        "avgOffsetsBehindLatest": 0,
        "offsetsBehindLatest": 0,
    }
    produce(broker, topic, 5, 2, first=80)
    run_now(frame, tmp_path, [])
    assert committed(broker, group)[topic, 2] == 5


def committed(broker: Target, group: str) -> dict[tuple[str, int], int]:
    with BlockingClient(broker.bootstrap) as client:
        return {key: row.offset for key, row in BlockingCoordinators(client).committed(group).items()}


def test_lost_records_fail_a_stream_unless_it_may_go_on(
    broker: Target, topic: str, stream: Callable[..., Any], tmp_path: Path
) -> None:
    produce(broker, topic, 20)
    batches: list[Any] = []
    run_now(stream(subscribe=topic, startingOffsets="earliest"), tmp_path, batches)
    produce(broker, topic, 20, first=20)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 30)])[TopicPartition(topic, 0, 30)].result()
    with pytest.raises(Exception, match="holds offsets 30 to 40, not all of 20 to 40"):
        run_now(stream(subscribe=topic, startingOffsets="earliest"), tmp_path, batches)
    batches.clear()
    run_now(stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false"), tmp_path, batches)
    assert sorted(int(row["value"]) for batch in batches for row in batch) == list(range(30, 40))


def test_an_offset_out_of_range_fails_a_batch(broker: Target, topic: str, read: Callable[..., Any]) -> None:
    produce(broker, topic, 5)
    offsets = json.dumps({topic: {"0": 7, "1": 0, "2": 0}})
    with pytest.raises(Exception, match=f"{topic}"):
        read(subscribe=topic, startingOffsets=offsets).collect()


def test_a_checkpoint_of_a_query_over_another_topic_is_refused(
    broker: Target, topic: str, stream: Callable[..., Any], tmp_path: Path
) -> None:
    other = unique_name("other")
    create_topic(broker, other, partitions=3)
    for name in (topic, other):
        produce(broker, name, 3)
    batches: list[Any] = []
    run_now(stream(subscribe=other, startingOffsets="earliest"), tmp_path, batches)
    batches.clear()
    with pytest.raises(Exception, match=f"checkpoint is of a query that reads topic {other}"):
        run_now(stream(subscribe=topic, startingOffsets="earliest"), tmp_path, batches)
    assert batches == []


def test_the_sink_creates_a_missing_topic_where_brokers_do(
    spark: Any, read: Callable[..., Any], write: Callable[..., None]
) -> None:
    name = unique_name("created")
    write(spark.createDataFrame([("v",)], "value string"), topic=name)
    assert [bytes(row["value"]) for row in read(subscribe=name).collect()] == [b"v"]


@pytest.mark.parametrize("identified", [{}, {"txnAppId": "small-batches", "txnVersion": "1"}])
def test_the_sink_writes_batches_as_small_as_the_topic_wants(
    broker: Target,
    spark: Any,
    read: Callable[..., Any],
    write: Callable[..., None],
    identified: dict[str, str],
) -> None:
    name = unique_name("small")
    create_topic(broker, name, max_message_bytes=5000)
    rows = spark.range(100).selectExpr("rpad(cast(id as string), 900) as value")
    write(rows, topic=name, **identified)
    assert values(read(subscribe=name)) == list(range(100))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "no-such-topic"}, "cannot read no-such-topic"),
        ({"subscribe": "a", "startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({}, "exactly one of subscribe, subscribePattern and assign"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "cannot start at the latest"),
        ({"subscribe": "a", "maxTriggerDelay": "5s"}, "no effect without minOffsetsPerTrigger"),
        ({"subscribe": "a", "minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger"),
        (
            {"subscribe": "a", "kafka.bootstrap.servers": "127.0.0.1:1", "fetchOffset.numRetries": "0"},
            "127.0.0.1:1",
        ),
    ],
)
def test_a_wrong_reader_option_is_named(read: Callable[..., Any], options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        read(**options).collect()


def test_a_wrong_option_is_refused_when_the_source_is_loaded(stream: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match="option 'startingofsets': unknown; did you mean startingOffsets"):
        stream(subscribe="a", startingOfsets="earliest")


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "1 second"}])
def test_options_that_a_stream_refuses_are_reported_before_sparks_errors(
    topic: str, stream: Callable[..., Any], tmp_path: Path, trigger: dict[str, Any]
) -> None:
    with pytest.raises(Exception, match="option 'endingOffsets': a streaming query has no end") as caught:
        run_now(stream(subscribe=topic, endingOffsets="latest"), tmp_path, [], **trigger)
    assert "UnboundLocalError" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("id as key", {"topic": "a"}, "'key' is bigint"),
        ("cast(id as string) as key", {"topic": "a"}, "no column 'value'"),
        ("cast(id as string) as value", {}, "no column 'topic'"),
        ("cast(id as string) as value", {"topics": "a"}, "did you mean topic"),
        ("cast(id as string) as value, 99 as partition", {"topic": None}, "partition 99 of topic"),
        (
            "cast(id as string) as value",
            {"topic": "no topic"},
            "topic no topic cannot be written: .*not valid",
        ),
        (
            "cast(id as string) as value",
            {"topic": "a", "kafka.bootstrap.servers": "127.0.0.1:1", "kafka.delivery.timeout.ms": "500"},
            "no broker answers: 127.0.0.1:1",
        ),
    ],
)
def test_a_wrong_writer_option_is_named(
    spark: Any, topic: str, write: Callable[..., None], columns: str, options: dict[str, Any], said: str
) -> None:
    chosen = {name: value or topic for name, value in options.items()}
    with pytest.raises(Exception, match=said):
        write(spark.range(1).selectExpr(*columns.split(", ")), **chosen)
