"""A cluster of three with Kafka's own tools and real clients: replicas are reassigned, leaders fail back, brokers
restart.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from conformance.batches import fetch_request
from conformance.command_line import COMMAND_TIMEOUT_S
from conformance.reassignment import move, wire_to
from conformance.topics import PRODUCE_BY_NAME, batch_of, list_offset, produce_request
from conformance.wire import unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from felice.testing import Cluster
from peers import java
from waiting import LIMIT_S, wait_until

FETCH_BY_NAME = 12
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
    assert producer.flush(COMMAND_TIMEOUT_S) == 0
    rows = [
        {"topic": "moving", "partition": 0, "replicas": [3, 1]},
        {"topic": "moving", "partition": 1, "replicas": [2, 3, 1]},
    ]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    reassignment = ("--reassignment-json-file", str(plan))
    assert "Successfully started" in tool(REASSIGN, cluster, *reassignment, "--execute")
    cluster.wait_until(
        lambda found: set(found.isr("moving", 0)) == {1, 3} and len(found.isr("moving", 1)) == 3,
        120,
    )
    verified = tool(REASSIGN, cluster, *reassignment, "--verify")
    assert verified.count("is completed") == 2, verified
    elect = ("--election-type", "preferred", "--topic", "moving", "--partition", "0")
    tool(ELECTION, cluster, *elect)
    cluster.wait_until(lambda found: found.leader("moving", 0) == 3, 120)
    described = tool(TOPICS, cluster, "--describe", "--topic", "moving")
    assert "Replicas: 3,1" in described
    assert "Replicas: 2,3,1" in described
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    consumer.assign([confluent_kafka.TopicPartition("moving", index, 0) for index in (0, 1)])
    found: list[int] = []
    while len(found) < 500:
        batch = consumer.consume(500, LIMIT_S)
        assert batch, f"only {len(found)} records are left"
        found += [int(row.value() or b"") for row in batch if not row.error()]
    consumer.close()
    assert sorted(found) == list(range(500))


@pytest.mark.parametrize("keeps_a_replica", [True, False])
def test_the_former_leader_answers_not_leader_or_follower(cluster: Cluster, keeps_a_replica: bool) -> None:
    """34: not UNKNOWN_TOPIC_OR_PARTITION, which means that the topic does not exist; in old and new versions."""
    topic, old, _ = moved_topic(cluster, keeps_a_replica)
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    with wire_to(cluster, old) as wire:
        for version in (3, 9, PRODUCE_BY_NAME):
            produced = wire.ask(produce_request(topic, batch_of(b"v")), version)
            assert produced.responses[0].partition_responses[0].error_code == moved
        # From version 11 on a follower serves consumers, too (KIP-392).
        for version in (4, 10) if keeps_a_replica else (4, 10, FETCH_BY_NAME):
            fetched = wire.ask(fetch_request(topic, max_wait_ms=0), version)
            assert fetched.responses[0].partitions[0].error_code == moved
        assert list_offset(wire, topic, -1).error_code == moved
        asked = OffsetForLeaderPartition(partition=0, leader_epoch=0)
        epochs = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
        )
        assert wire.ask(epochs).topics[0].partitions[0].error_code == moved


def test_the_refusal_names_the_leader_and_its_address(cluster: Cluster) -> None:
    """37: KIP-951, in Produce from version 10 and in Fetch from 16."""
    topic, old, new = moved_topic(cluster, keeps_a_replica=False)
    partition = cluster.image.partition(topic, 0)
    found = cluster.image.topics[topic].topic_id
    assert partition is not None
    told = (new, partition.leader_epoch, [(new, "127.0.0.1", cluster.port(new))])
    with wire_to(cluster, old) as wire:
        produced = wire.ask(produce_request(topic, batch_of(b"v")), 10)
        assert hint(produced, produced.responses[0].partition_responses[0]) == told
        request = fetch_request(topic, max_wait_ms=0)
        request.topics[0].topic_id = found
        fetched = wire.ask(request, 16)
        assert hint(fetched, fetched.responses[0].partitions[0]) == told
        before = wire.ask(produce_request(topic, batch_of(b"v")), 9)
        assert before.responses[0].partition_responses[0].current_leader is None
        assert before.node_endpoints == []


def hint(response: Any, row: Any) -> tuple[int, int, list[tuple[int, str, int]]]:
    nodes = [(node.node_id, node.host, node.port) for node in response.node_endpoints]
    return row.current_leader.leader_id, row.current_leader.leader_epoch, nodes


def moved_topic(cluster: Cluster, keeps_a_replica: bool) -> tuple[str, int, int]:
    """A reassigned topic, its former leader and its present leader."""
    topic = unique_name("moved")
    cluster.create_topic(topic, 1, 1)
    old = cluster.leader(topic)
    new = old % 3 + 1
    if keeps_a_replica:
        move(cluster, topic, 0, [old, new])
    move(cluster, topic, 0, [new])
    if keeps_a_replica:
        move(cluster, topic, 0, [new, old])
    assert cluster.leader(topic) == new
    return topic, old, new


def test_brokers_restart_one_by_one_without_a_failed_request(cluster: Cluster) -> None:
    """A rolling restart under acks=all: each broker hands over its leaderships first, and catches up before the next
    stops.
    """
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
            cluster.wait_in_sync(120)
    finally:
        stopping.set()
        thread.join()
    assert producer.flush(COMMAND_TIMEOUT_S) == 0
    assert failures == []
    assert len(delivered) > 20


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
    wait_until(lambda: sorted(admin.list_topics(timeout=COMMAND_TIMEOUT_S).brokers) == [1, 2, 3])
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert (process.returncode, output, errors) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--brokers", "0"), "0 is not in the range"),
        (("--brokers", "3", "-o", "node.id=7"), "node.id must differ between brokers"),
        (("--brokers", "3", "--port", "65534"), "3 ports from 65534 on would exceed 65535"),
    ],
)
def test_an_impossible_cluster_is_refused_in_one_line(
    arguments: tuple[str, ...], fault: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "felice.cli.main", "start", "--data-dir", str(tmp_path / "data"), *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    assert done.returncode != 0
    assert fault in done.stderr
    assert "Traceback" not in done.stderr
