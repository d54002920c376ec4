"""A broker without free file descriptors: which clients wait, what is logged, what recovers without a restart."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from conformance.live_process import LiveProcess
from conformance.wire import Wire
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.records.builder import BatchBuilder
from waiting import wait_until

pytestmark = pytest.mark.felice_only

LIMIT = 256
# The broker keeps half of so small a limit for its files.
MORE_THAN_ARE_ACCEPTED = 140


def test_a_connection_takes_one_descriptor(tmp_path: Path) -> None:
    with LiveProcess(tmp_path / "data") as broker, broker.wire() as wire:
        wire.ask(MetadataRequest(topics=[]), 9)
        before = broker.open_files()
        opened = [broker.wire() for _ in range(20)]
        for each in opened:
            each.ask(MetadataRequest(topics=[]), 9)
        assert broker.open_files() == before + 20
        for each in opened:
            each.close()


def test_the_soft_limit_is_raised_at_the_start(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1000, hard), hard))
    try:
        with LiveProcess(tmp_path / "data") as broker:
            assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)[0] == min(hard, 1_048_576)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_at_the_limit_new_connections_wait_and_topics_can_be_created(tmp_path: Path) -> None:
    with LiveProcess(tmp_path / "data") as broker, broker.wire() as wire:
        wire.ask(MetadataRequest(topics=[]), 9)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        opened = [broker.wire() for _ in range(MORE_THAN_ARE_ACCEPTED)]
        wait_until(lambda: "new connections wait until others close" in broker.stderr())
        create(wire, "u")
        last = opened[-1]
        last.send(MetadataRequest(topics=[]), 9)
        assert last.is_silent_for(0.3)
        for each in opened[:-1]:
            each.close()
        assert last.receive(MetadataRequest(topics=[]), 9).brokers
        last.close()
        assert broker.stderr().count("new connections wait until others close") == 1
        assert "Traceback" not in broker.stderr()


def test_a_topic_created_without_a_free_descriptor_comes_online_later(tmp_path: Path) -> None:
    with LiveProcess(tmp_path / "data") as broker, broker.wire() as wire:
        create(wire, "warm")  # what the broker imports on first use takes descriptors, too
        wait_until(lambda: can_be_written(wire, "warm"))
        lowest_free = max(int(path.name) for path in Path(f"/proc/{broker.pid}/fd").iterdir()) + 1
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (lowest_free, LIMIT))
        create(wire, "u")
        assert not can_be_written(wire, "u")
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        wait_until(lambda: can_be_written(wire, "u"))


def create(wire: Wire, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    assert wire.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0


def can_be_written(wire: Wire, topic: str) -> bool:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), b"k", b"v")
    data = [PartitionProduceData(index=0, records=bytes(builder.build()))]
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    code: int = wire.ask(request, 9).responses[0].partition_responses[0].error_code
    return code == 0
