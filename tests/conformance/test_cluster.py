"""A cluster of three under Kafka's own tools and real clients: replicas move, leaders return, brokers come and go."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from felice.testing import Cluster
from peers import java

pytestmark = pytest.mark.felice_only

TOPICS = "org.apache.kafka.tools.TopicCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as started:
        yield started


def tool(main_class: str, cluster: Cluster, *arguments: str) -> str:
    return java.run_tool(main_class, "--bootstrap-server", cluster.bootstrap, *arguments).stdout


def test_kafkas_tools_move_a_topic_and_elect_its_leader(cluster: Cluster, tmp_path: Path) -> None:
    java.require_java()
    assignment = ("--replica-assignment", "1:2,2:3")
    tool(TOPICS, cluster, "--create", "--topic", "moving", *assignment)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for value in range(500):
        producer.produce("moving", b"%d" % value, partition=value % 2)
    assert producer.flush(20) == 0
    rows = [
        {"topic": "moving", "partition": 0, "replicas": [3, 1]},
        {"topic": "moving", "partition": 1, "replicas": [2, 3, 1]},
    ]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    reassignment = ("--reassignment-json-file", str(plan))
    assert "Successfully started" in tool(REASSIGN, cluster, *reassignment, "--execute")
    cluster.wait_until(
        lambda found: set(found.isr("moving", 0)) == {1, 3} and len(found.isr("moving", 1)) == 3
    )
    verified = tool(REASSIGN, cluster, *reassignment, "--verify")
    assert verified.count("is completed") == 2, verified
    elect = ("--election-type", "preferred", "--topic", "moving", "--partition", "0")
    tool(ELECTION, cluster, *elect)
    assert cluster.leader("moving", 0) == 3
    described = tool(TOPICS, cluster, "--describe", "--topic", "moving")
    assert "Replicas: 3,1" in described
    assert "Replicas: 2,3,1" in described
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    consumer.assign([confluent_kafka.TopicPartition("moving", index, 0) for index in (0, 1)])
    found: list[int] = []
    while len(found) < 500:
        batch = consumer.consume(500, 5.0)
        assert batch, f"only {len(found)} records are left"
        found += [int(row.value() or b"") for row in batch if not row.error()]
    consumer.close()
    assert sorted(found) == list(range(500))


def test_brokers_restart_one_by_one_without_a_failed_request(cluster: Cluster) -> None:
    """A rolling restart under acks=all: each broker gives its leaderships away, and catches up before the next."""
    cluster.create_topic("rolling", 6, 3, {"min.insync.replicas": "2"})
    failures: list[str] = []
    delivered: list[int] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "retry.backoff.ms": 20})

    def report(error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            failures.append(str(error))
        else:
            delivered.append(int(message.value() or b""))

    stopping = threading.Event()

    def keep_producing() -> None:
        value = 0
        while not stopping.wait(0.002):
            producer.produce("rolling", b"%d" % value, on_delivery=report)
            producer.poll(0)
            value += 1

    thread = threading.Thread(target=keep_producing)
    thread.start()
    try:
        for broker_id in (1, 2, 3):
            cluster.stop_broker(broker_id)
            cluster.start_broker(broker_id)
            cluster.wait_in_sync()
    finally:
        stopping.set()
        thread.join()
    assert producer.flush(20) == 0
    assert failures == []
    assert len(delivered) > 100


def test_a_whole_cluster_starts_from_the_command_line(tmp_path: Path) -> None:
    arguments = ("start", "--brokers", "3", "--port", "0", "--data-dir", str(tmp_path / "data"))
    process = subprocess.Popen(
        [sys.executable, "-m", "felice.cli.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    ready = process.stdout.readline()
    addresses = ready.strip().removeprefix("Felice is ready on ").replace("PLAINTEXT://", "").split(", ")
    assert len(addresses) == 3, ready
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": addresses[1]})
    assert sorted(admin.list_topics(timeout=10).brokers) == [1, 2, 3]
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output, errors) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--brokers", "0"), "0 is not in the range"),
        (("--brokers", "3", "-o", "node.id=7"), "node.id is each broker's own"),
        (("--brokers", "3", "--port", "65534"), "there are not 3 ports from 65534 on"),
    ],
)
def test_an_impossible_cluster_is_refused_in_one_line(
    arguments: tuple[str, ...], fault: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "felice.cli.main", "start", "--data-dir", str(tmp_path / "data"), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode != 0
    assert fault in done.stderr
    assert "Traceback" not in done.stderr
