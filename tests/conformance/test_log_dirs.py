"""Log directories as administrators see them: their contents, and replicas that move between them (KIP-113)."""

import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from conformance.batches import batch_headers_of
from conformance.live_process import LiveProcess
from conformance.targets import Target
from conformance.topics import list_offset, new_topic, produce_values
from conformance.wire import Wire, unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from felice.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from felice.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from peers import java
from waiting import wait_until

pytestmark = pytest.mark.timeout(1800)

Place = tuple[str, bool]
"""The directory's path, and whether the replica there is only on its way."""


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A broker with two log directories."""
    base = tmp_path_factory.mktemp("roomy")
    dirs = f"{base / 'data'},{base / 'second'}"
    with Target({"log.dirs": dirs}, base) as broker:
        yield broker


def describe(wire: Wire, topics: dict[str, list[int]] | None = None, version: int | None = None) -> Any:
    asked = None
    if topics is not None:
        asked = [DescribableLogDirTopic(topic=name, partitions=found) for name, found in topics.items()]
    return wire.ask(DescribeLogDirsRequest(topics=asked), version)


def paths(wire: Wire) -> list[str]:
    return [row.log_dir for row in describe(wire, {}).results]


def places(wire: Wire, topic: str, partition: int = 0) -> dict[Place, Any]:
    return {
        (row.log_dir, replica.is_future_key): replica
        for row in describe(wire, {topic: [partition]}).results
        for found in row.topics
        for replica in found.partitions
    }


def move(wire: Wire, topic: str, path: str, *partitions: int) -> list[int]:
    wanted = AlterReplicaLogDirTopic(name=topic, partitions=list(partitions or (0,)))
    answer = wire.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[wanted])]))
    return [row.error_code for row in answer.results[0].partitions]


def home(wire: Wire, topic: str, partition: int = 0) -> str:
    return next(path for path, is_future in places(wire, topic, partition) if not is_future)


def other_dir(wire: Wire, topic: str) -> str:
    here = home(wire, topic)
    return next(path for path in paths(wire) if path != here)


def wait_until_moved(wire: Wire, topic: str, path: str) -> None:
    wait_until(lambda: set(places(wire, topic)) == {(path, False)}, 120)


def values_of(bootstrap: str, topic: str, count: int) -> list[bytes]:
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": unique_name("reader"),
        "auto.offset.reset": "earliest",
    }
    consumer = confluent_kafka.Consumer(options)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found: list[bytes] = []
    deadline = time.monotonic() + 300
    while len(found) < count and time.monotonic() < deadline:
        found += [message.value() for message in consumer.consume(1000, 0.5) if message.error() is None]
    consumer.close()
    return found


def test_log_dirs_show_their_replicas_and_free_space(roomy: Target) -> None:
    with roomy.wire() as wire:
        topic = new_topic(wire, 3)
        produce_values(wire, topic, [b"x" * 1000] * 5, partition=1)
        answer = describe(wire)
        assert answer.error_code == 0
        assert len(answer.results) == 2
        for row in answer.results:
            assert row.error_code == 0
            assert 0 < row.usable_bytes <= row.total_bytes
            assert not row.is_cordoned
        held = [
            (replica.partition_index, replica.partition_size, replica.offset_lag, replica.is_future_key)
            for row in answer.results
            for found in row.topics
            if found.name == topic
            for replica in found.partitions
        ]
        assert sorted(held)[0] == (0, 0, 0, False)
        assert [number for number, *_ in sorted(held)] == [0, 1, 2]
        assert sorted(held)[1][1] > 5000


def test_only_the_partitions_asked_for_are_described(roomy: Target) -> None:
    with roomy.wire() as wire:
        topic = new_topic(wire, 3)
        rows = describe(wire, {topic: [2], "no-such-topic": [0]}).results
        found = [(t.name, [p.partition_index for p in t.partitions]) for row in rows for t in row.topics]
        assert found == [(topic, [2])]
        assert all(not row.topics for row in describe(wire, {}).results)


@pytest.mark.parametrize("version", range(1, 6))
def test_every_version_is_answered(roomy: Target, version: int) -> None:
    with roomy.wire() as wire:
        topic = new_topic(wire)
        answer = describe(wire, {topic: [0]}, version)
        assert sum(len(row.topics) for row in answer.results) == 1
        assert all((row.total_bytes == -1) == (version < 4) for row in answer.results)


def test_a_replica_moves_with_all_that_it_holds(roomy: Target) -> None:
    with roomy.wire() as wire:
        topic = new_topic(wire, segment_bytes=1_100_000)
        for number in range(20):
            produce_values(wire, topic, [b"%05d" % number + b"x" * 10_000] * 20)
        before = batch_headers_of(wire, topic)
        target = other_dir(wire, topic)
        assert move(wire, topic, target) == [0]
        wait_until_moved(wire, topic, target)
        assert batch_headers_of(wire, topic) == before
        assert list_offset(wire, topic, -1).offset == 400
        assert produce_values(wire, topic, [b"more"]) == 400


def test_a_replica_moves_under_writes_and_loses_nothing(roomy: Target) -> None:
    with roomy.wire() as wire:
        topic = new_topic(wire, segment_bytes=1_100_000)
        first = home(wire, topic)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": roomy.bootstrap, "enable.idempotence": True, "linger.ms": 1}
        )
        failures: list[Any] = []
        sent = 0

        def send(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                producer.produce(
                    topic,
                    b"%07d" % sent,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
                sent += 1
                producer.poll(0)

        send(20_000)
        target = other_dir(wire, topic)

        def is_at(path: str) -> bool:
            send(500)
            producer.flush(10)
            return set(places(wire, topic)) == {(path, False)}

        for path in (target, first, target):
            assert move(wire, topic, path) == [0]
            wait_until(partial(is_at, path), 300)
        assert producer.flush(120) == 0
        assert not failures
        assert values_of(roomy.bootstrap, topic, sent) == [b"%07d" % number for number in range(sent)]


def test_naming_the_current_directory_changes_nothing(roomy: Target) -> None:
    with roomy.wire() as wire:
        topic = new_topic(wire)
        here = home(wire, topic)
        assert move(wire, topic, here) == [0]
        assert set(places(wire, topic)) == {(here, False)}


def test_impossible_directory_moves_are_refused(roomy: Target) -> None:
    with roomy.wire() as wire:
        topic = new_topic(wire)
        here = home(wire, topic)
        assert move(wire, topic, "/nowhere") == [ErrorCode.LOG_DIR_NOT_FOUND]
        assert move(wire, "no-such-topic", here) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert move(wire, topic, here, 0, 7) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topic_deleted_during_a_directory_move_leaves_no_files(roomy: Target) -> None:
    with roomy.wire() as wire:
        topic = new_topic(wire)
        for _ in range(20):
            produce_values(wire, topic, [b"x" * 900_000])
        assert move(wire, topic, other_dir(wire, topic)) == [0]
        wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=60_000))
        wait_until(lambda: not places(wire, topic))


def test_kafkas_own_tool_shows_the_directories(roomy: Target) -> None:
    java.require_java()
    with roomy.wire() as wire:
        topic = new_topic(wire)
    done = java.run_tool(
        "org.apache.kafka.tools.LogDirsCommand",
        *("--bootstrap-server", roomy.bootstrap, "--describe", "--topic-list", topic),
    )
    assert f'"partition":"{topic}-0"' in done.stdout
    assert done.stdout.count('"logDir"') == 2


def two_dirs(base: Path) -> dict[str, str]:
    return {"log.dirs": f"{base / 'data'},{base / 'second'}"}


@pytest.mark.felice_only
def test_a_directory_move_interrupted_by_kill_9_starts_again(tmp_path: Path) -> None:
    # The move takes more than a minute, so that it has not ended when the broker is killed.
    slow = {**two_dirs(tmp_path), "replica.alter.log.dirs.io.max.bytes.per.second": "100000"}
    with LiveProcess(tmp_path / "data", options=slow) as running, running.wire() as wire:
        topic = new_topic(wire)
        for _ in range(8):
            produce_values(wire, topic, [b"x" * 900_000])
        target = other_dir(wire, topic)
        assert move(wire, topic, target) == [0]
        wait_until(lambda: (target, True) in places(wire, topic))
        running.kill()
    with LiveProcess(tmp_path / "data", options=two_dirs(tmp_path)) as running, running.wire() as wire:
        wait_until_moved(wire, topic, target)
        assert list_offset(wire, topic, -1).offset == 8


@pytest.mark.felice_only
def test_the_rate_of_a_move_can_be_raised_while_it_waits(tmp_path: Path) -> None:
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    slow = {**two_dirs(tmp_path), rate: "1"}
    with LiveProcess(tmp_path / "data", options=slow) as running, running.wire() as wire:
        topic = new_topic(wire)
        produce_values(wire, topic, [b"x" * 900_000])
        target = other_dir(wire, topic)
        assert move(wire, topic, target) == [0]
        wait_until(lambda: (target, True) in places(wire, topic))
        entry = ConfigEntry(rate, "100000000", incremental_operation=AlterConfigOpType.SET)
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        [broker_id] = admin.list_topics(timeout=60).brokers
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)
        wait_until_moved(wire, topic, target)


@pytest.mark.felice_only
def test_a_replica_found_in_both_directories_is_served_from_the_longer_copy(tmp_path: Path) -> None:
    options = two_dirs(tmp_path)
    with LiveProcess(tmp_path / "data", options=options) as running, running.wire() as wire:
        topic = new_topic(wire)
        produce_values(wire, topic, [b"one"])
        here = Path(home(wire, topic))
        running.terminate()
    stale = (tmp_path / "second" if here == tmp_path / "data" else tmp_path / "data") / f"{topic}-0"
    subprocess.run(["cp", "-r", here / f"{topic}-0", stale], check=True)
    with LiveProcess(tmp_path / "data", options=options) as running, running.wire() as wire:
        produce_values(wire, topic, [b"two"])
        longer = home(wire, topic)
        running.kill()
    set_aside = [path for path in tmp_path.glob(f"*/{topic}-0.*-stray") if path.is_dir()]
    assert len(set_aside) == 1
    # As a power loss would have it that undid the renaming.
    set_aside[0].rename(set_aside[0].with_name(f"{topic}-0"))
    with LiveProcess(tmp_path / "data", options=options) as running, running.wire() as wire:
        assert home(wire, topic) == longer
        assert list_offset(wire, topic, -1).offset == 2
