"""A cluster with a dead broker whose partitions have no leader: clients and tools go on with the others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from conformance.command_line import run_command
from felice.cli import main
from felice.cli.kafka_tools.consumer_groups import kafka_consumer_groups
from felice.cli.kafka_tools.log_dirs import kafka_log_dirs
from felice.cli.kafka_tools.offsets import kafka_get_offsets
from felice.cli.kafka_tools.reassign_partitions import kafka_reassign_partitions
from felice.client import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from felice.client.admin import AdminClient, NewTopic
from felice.client.blocking import BlockingClient
from felice.pipelines.spark.mistakes import ClusterError
from felice.pipelines.spark.offsets import Checkpoint
from felice.pipelines.spark.options import SourceOptions
from felice.pipelines.spark.reader import BatchReader, StreamReader
from felice.records.builder import build_batch
from felice.records.record import Record
from felice.testing import Cluster
from waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.felice_only

TOPIC = "spread"
DEAD = 3
# Less than the time after which clients and tools used to give up, and more than a loaded machine needs.
AT_ONCE_S = 25.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Group "readers" must have its coordinator on a broker that lives: its partition has three replicas.
    with Cluster(brokers=3) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        topic = NewTopic(TOPIC, replica_assignment=[[1], [2], [DEAD]])
        admin.create_topics([topic])[TOPIC].result(LIMIT_S)
        producer = Producer({"bootstrap.servers": started.bootstrap})
        for partition in range(3):
            for number in range(10):
                producer.produce(TOPIC, f"{partition}.{number}", partition=partition)
        assert producer.flush(LIMIT_S) == 0
        consumer = Consumer({"bootstrap.servers": started.bootstrap, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition(TOPIC, number, 4) for number in range(3)], asynchronous=False)
        consumer.close()
        # The topic of transactions needs three brokers when it is made.
        Producer(config(started, **{"transactional.id": "first"})).init_transactions(LIMIT_S)
        started.wait_in_sync(LIMIT_S)
        started.kill_broker(DEAD)
        wait_until(lambda: started.leader(TOPIC, 2) == -1)
        yield started


def config(cluster: Cluster, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap, **more}


@pytest.mark.parametrize("group", ["new", "readers"])
def test_a_consumer_reads_the_partitions_that_have_a_leader(cluster: Cluster, group: str) -> None:
    consumer = Consumer(
        config(cluster, **{"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    )
    began = time.monotonic()
    consumer.subscribe([TOPIC])
    found = set()
    wanted = {
        f"{partition}.{number}"
        for partition in (0, 1)
        for number in range(4 if group == "readers" else 0, 10)
    }
    while found != wanted and time.monotonic() < began + LIMIT_S:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None, message.error()
            found.add((message.value() or b"").decode())
    assert found == wanted
    if group == "readers":
        committed = consumer.committed(
            [TopicPartition(TOPIC, number) for number in range(3)], timeout=LIMIT_S
        )
        assert [row.offset for row in committed] == [4, 4, 4]
    consumer.close()


def test_the_partition_that_gets_its_leader_back_is_read_too(cluster: Cluster) -> None:
    consumer = Consumer(config(cluster, **{"group.id": "later", "auto.offset.reset": "earliest"}))
    consumer.assign([TopicPartition(TOPIC, number) for number in range(3)])
    found: set[str] = set()

    def read(count: int) -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.add((message.value() or b"").decode())
        return len(found) == count

    wait_until(lambda: read(20))
    cluster.start_broker(DEAD)
    try:
        wait_until(lambda: read(30))
    finally:
        cluster.kill_broker(DEAD)
        wait_until(lambda: cluster.leader(TOPIC, 2) == -1)
        consumer.close()


def test_lookups_of_offsets_end_within_their_limit_and_have_the_other_rows(cluster: Cluster) -> None:
    consumer = Consumer(config(cluster, **{"group.id": "lookups"}))
    asked = [TopicPartition(TOPIC, number, 0) for number in range(3)]
    rows = consumer.offsets_for_times(asked, timeout=5.0)
    assert [row.offset for row in rows[:2]] == [0, 0]
    assert rows[2].error is not None
    consumer.close()


def test_kafka_get_offsets_prints_the_other_rows(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--bootstrap-server", cluster.bootstrap, "--topic", TOPIC]
    began = time.monotonic()
    assert main.run(kafka_get_offsets, words, usage_code=1) == 0
    took_s = time.monotonic() - began
    printed = capsys.readouterr()
    assert printed.out.split() == [f"{TOPIC}:0:10", f"{TOPIC}:1:10"]
    assert printed.err.startswith(f"Skip getting offsets for topic-partition {TOPIC}-2 due to error: ")
    assert took_s < AT_ONCE_S


def test_kafka_consumer_groups_describes_the_other_rows(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--bootstrap-server", cluster.bootstrap, "--describe", "--group", "readers"]
    assert main.run(kafka_consumer_groups, words, usage_code=1) == 0
    printed = capsys.readouterr()
    rows = [line.split()[1:6] for line in printed.out.splitlines() if line.startswith("readers")]
    assert rows == [
        [TOPIC, "0", "4", "10", "6"],
        [TOPIC, "1", "4", "10", "6"],
        [TOPIC, "2", "4", "-", "-"],
    ]
    assert f"the end offset of {TOPIC}-2 is unknown: " in printed.err


def test_kafka_log_dirs_prints_the_brokers_that_answer(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--bootstrap-server", cluster.bootstrap, "--describe", "--broker-list", "1,2,3"]
    assert main.run(kafka_log_dirs, words, usage_code=1) == 1
    printed = capsys.readouterr()
    document = json.loads(printed.out.splitlines()[-1])
    assert [row["broker"] for row in document["brokers"]] == [1, 2]
    assert "3" in printed.err


def test_felice_shows_the_other_rows(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FELICE_BOOTSTRAP_SERVER", cluster.bootstrap)
    shown = json.loads(run_command(main.felice, ["offsets", "get", TOPIC, "--json"], 0, capsys))
    assert [(row["partition"], row["offset"]) for row in shown] == [(0, 10), (1, 10)]
    described = json.loads(run_command(main.felice, ["groups", "describe", "readers", "--json"], 0, capsys))
    assert [row["lag"] for row in described["offsets"]] == [6, 6, None]


def test_verify_names_the_broker_that_keeps_its_throttle(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    row = {"topic": TOPIC, "partition": 2, "replicas": [DEAD]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    words = ["--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan), "--verify"]
    assert main.run(kafka_reassign_partitions, words, usage_code=1) == 1
    printed = capsys.readouterr()
    assert f"Reassignment of partition {TOPIC}-2 is completed." in printed.out
    assert "Clearing broker-level throttles on brokers 1,2\n" in printed.out
    assert f"the replication throttle of broker {DEAD} could not be removed" in printed.err


def test_records_are_deleted_from_the_other_partitions(cluster: Cluster) -> None:
    admin = AdminClient(config(cluster))
    futures = admin.delete_records(
        [TopicPartition(TOPIC, number, 1) for number in range(3)], request_timeout=30.0
    )
    outcomes = [
        future.exception(LIMIT_S) for _, future in sorted(futures.items(), key=lambda row: row[0].partition)
    ]
    assert outcomes[:2] == [None, None]
    assert outcomes[2] is not None


def test_flush_delivers_the_records_of_the_other_partitions(cluster: Cluster) -> None:
    reports: dict[str, KafkaError | None] = {}
    producer = Producer(config(cluster, **{"message.timeout.ms": 60_000}))
    for partition in (2, 0, 1):
        producer.produce(
            TOPIC,
            f"late {partition}",
            partition=partition,
            on_delivery=lambda error, message: reports.update({str(message.partition()): error}),
        )
    wait_until(lambda: producer.poll(0.1) is not None and reports.keys() >= {"0", "1"})
    assert reports == {"0": None, "1": None}
    producer.purge()
    producer.flush(LIMIT_S)


def test_the_blocking_client_has_the_offsets_of_the_others(cluster: Cluster) -> None:
    asked = {(TOPIC, number): -1 for number in range(3)}
    with BlockingClient(cluster.bootstrap, retry_timeout_ms=2000) as client:
        rows = client.offsets_of_each(asked)
        assert all(getattr(rows[TOPIC, number], "offset", 0) >= 10 for number in (0, 1))
        assert isinstance(rows[TOPIC, 2], KafkaException)
        with pytest.raises(KafkaException, match=f"{TOPIC}-2"):
            client.list_offsets(asked)


def test_the_blocking_client_appends_to_the_other_partitions(cluster: Cluster) -> None:
    """With `acks=-1` each batch is acknowledged or raises; the one without a leader comes first."""
    topic = "appended"
    admin = AdminClient(config(cluster))
    # The dead broker cannot have the only replica of a new partition.
    admin.create_topics([NewTopic(topic, replica_assignment=[[1], [2]])])[topic].result(LIMIT_S)
    batch = build_batch([Record(0, 1, None, b"v")])
    with BlockingClient(cluster.bootstrap, retry_timeout_ms=2000) as client:
        with pytest.raises(KafkaException, match=f"{TOPIC}-2"):
            client.produce([(TOPIC, 2, batch), (topic, 0, batch), (topic, 1, batch)])
        found = client.list_offsets({(topic, number): -1 for number in range(2)})
        assert [row.offset for _, row in sorted(found.items())] == [1, 1]


SOURCE = {"subscribe": TOPIC, "fetchOffset.retryIntervalMs": "500", "kafka.request.timeout.ms": "10000"}


def source_options(cluster: Cluster) -> SourceOptions:
    return SourceOptions.parse({"kafka.bootstrap.servers": cluster.bootstrap, **SOURCE})


def test_a_batch_query_names_the_partition_without_a_leader(cluster: Cluster) -> None:
    began = time.monotonic()
    with pytest.raises(ClusterError, match=f"{TOPIC}-2"):
        BatchReader(source_options(cluster), cores=2).partitions()
    assert time.monotonic() - began < AT_ONCE_S


def test_a_stream_reads_the_other_partitions_and_later_the_one_that_had_no_leader(cluster: Cluster) -> None:
    stream = StreamReader(source_options(cluster), cores=2)
    start = {TOPIC: {"0": 4, "1": 4, "2": 4}}

    def check_rows(start: Checkpoint, end: Checkpoint) -> None:
        """A micro-batch has each record between its offsets once."""
        batches = [batch for task in stream.partitions(start, end) for batch in stream.read(task)]
        rows = sorted((row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist())
        spans = [range(start[TOPIC][number], end[TOPIC][number]) for number in ("0", "1", "2")]
        assert rows == [(number, offset) for number, span in enumerate(spans) for offset in span]

    began = time.monotonic()
    end = stream.latestOffset(start, ReadAllAvailable())
    assert time.monotonic() - began < AT_ONCE_S
    assert end[TOPIC]["0"] >= 10 and end[TOPIC]["1"] >= 10 and end[TOPIC]["2"] == 4
    check_rows(start, end)
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    with pytest.raises(ClusterError, match=f"{TOPIC}-2"):
        stream.prepareForTriggerAvailableNow()
    cluster.start_broker(DEAD)
    try:
        wait_until(lambda: stream.latestOffset(end, ReadAllAvailable()) != end)
        last = stream.latestOffset(end, ReadAllAvailable())
        assert last[TOPIC]["2"] >= 10
        check_rows(end, last)
    finally:
        stream.stop()
        cluster.kill_broker(DEAD)
        wait_until(lambda: cluster.leader(TOPIC, 2) == -1)


def test_the_end_for_a_reader_of_committed_records_is_the_last_stable_offset(cluster: Cluster) -> None:
    topic = "ends"
    admin = AdminClient(config(cluster))
    admin.create_topics([NewTopic(topic, replica_assignment=[[1, 2]])])[topic].result(LIMIT_S)
    plain = Producer(config(cluster))
    for _ in range(2):
        plain.produce(topic, "a", partition=0)
    assert plain.flush(LIMIT_S) == 0
    open_one = Producer(config(cluster, **{"transactional.id": "open"}))
    open_one.init_transactions(LIMIT_S)
    open_one.begin_transaction()
    open_one.produce(topic, "b", partition=0)
    assert open_one.flush(LIMIT_S) == 0
    for level, end in (("read_committed", 2), ("read_uncommitted", 3)):
        consumer = Consumer(config(cluster, **{"group.id": "ends", "isolation.level": level}))
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=LIMIT_S) == (0, end)
        consumer.close()
    open_one.abort_transaction(LIMIT_S)


def test_an_offset_that_a_transaction_commits_holds_back_no_other_partition(cluster: Cluster) -> None:
    """The coordinator cannot tell this offset before the transaction ends: UNSTABLE_OFFSET_COMMIT."""
    settings = {"group.id": "pending", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(config(cluster, **settings))
    consumer.commit(offsets=[TopicPartition(TOPIC, 1, 8)], asynchronous=False)
    open_one = Producer(config(cluster, **{"transactional.id": "pending"}))
    open_one.init_transactions(LIMIT_S)
    open_one.begin_transaction()
    open_one.send_offsets_to_transaction(
        [TopicPartition(TOPIC, 0, 5)], consumer.consumer_group_metadata(), LIMIT_S
    )
    consumer.assign([TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)])
    read: list[tuple[int | None, int | None]] = []

    def see(count: int) -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            if message.value() in (b"0.5", b"0.6", b"0.7", b"0.8", b"0.9", b"1.8", b"1.9"):
                read.append((message.partition(), message.offset()))
        return len(read) == count

    began = time.monotonic()
    wait_until(lambda: see(2))
    assert time.monotonic() - began < AT_ONCE_S
    assert read == [(1, 8), (1, 9)]
    open_one.commit_transaction(LIMIT_S)
    wait_until(lambda: see(7))
    assert read[2:] == [(0, offset) for offset in range(5, 10)]
    consumer.close()
