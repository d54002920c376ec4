"""A whole broker in this process: how it starts, refuses to start, changes while it runs, and stops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.wire import Wire
from felice.env.ports import free_ports
from felice.metadata.layout import broker_config_path
from felice.protocol.errors import ErrorCode
from felice.protocol.messages import describe_producers, find_coordinator, offset_fetch
from felice.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from felice.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from felice.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from felice.protocol.messages.describe_groups import DescribeGroupsRequest
from felice.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.protocol.primitives import ZERO_UUID
from felice.records.builder import BatchBuilder
from felice.server import broker as broker_module
from felice.server.process.embedded import EmbeddedBroker
from felice.server.startup import StartupError
from waiting import wait_until

TOPIC, BROKER = 2, 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def wire(broker: EmbeddedBroker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as connection:
        yield connection


def create(wire: Wire, name: str, partitions: int = 1, **configs: str) -> None:
    wanted = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=wanted)
    [result] = wire.ask(CreateTopicsRequest(topics=[topic])).topics
    assert result.error_code == 0, result.error_message


def produce(wire: Wire, topic: str, value: bytes = b"v", acks: int = -1) -> Any:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), b"k", value)
    data = [PartitionProduceData(index=0, records=bytes(builder.build()))]
    request = ProduceRequest(
        acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return wire.ask(request, 9).responses[0].partition_responses[0]


def fetch(wire: Wire, topic: str, offset: int, *, max_wait_ms: int = 0, min_bytes: int = 1) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    return wire.ask(request, 12).responses[0].partitions[0]


def alter(wire: Wire, kind: int, name: str, **configs: str) -> Any:
    changes = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    return wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0]


# Starting and stopping


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(StartupError, match=f"{port}.*in use"):
            EmbeddedBroker(tmp_path / "data", port)
        assert not (tmp_path / "data").exists()  # no cluster has begun
    with EmbeddedBroker(tmp_path / "data", port) as broker:  # and nothing was left locked or half done
        assert broker.port == port


def broker_whose_stop_fails(directory: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedBroker:
    broker = EmbeddedBroker(directory / "data")
    stop = broker.broker.stop

    async def failing() -> None:
        await stop()
        raise OSError("the disk is gone")

    monkeypatch.setattr(broker.broker, "stop", failing)
    return broker


def test_a_stop_raises_its_error_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = broker_whose_stop_fails(tmp_path, monkeypatch)
    with pytest.raises(OSError, match="the disk is gone"):
        broker.stop()
    broker.stop()


def test_an_error_of_a_with_block_is_not_hidden_by_one_of_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = broker_whose_stop_fails(tmp_path, monkeypatch)
    with pytest.raises(ValueError, match="the cause") as raised, broker:
        raise ValueError("the cause")
    assert raised.value.__notes__ == ["The stop failed, too: OSError: the disk is gone"]


def test_a_stop_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = EmbeddedBroker(tmp_path / "data")
    stop, may_stop = broker.broker.stop, asyncio.Event()

    async def late() -> None:
        await may_stop.wait()
        await stop()

    monkeypatch.setattr(broker.broker, "stop", late)
    with monkeypatch.context() as patched:
        patched.setattr("felice.server.process.embedded._STOP_TIMEOUT_S", 0.0)
        with pytest.raises(TimeoutError, match="felice-broker still runs"):
            broker.stop()
    broker._loop.call_soon_threadsafe(may_stop.set)
    broker.stop()


def test_a_directory_in_use_is_named(tmp_path: Path, broker: EmbeddedBroker) -> None:
    with pytest.raises(StartupError, match=r"data is in use by another broker"):
        EmbeddedBroker(tmp_path / "data")


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match=r"file/data cannot be used: not a directory"):
        EmbeddedBroker(tmp_path / "file" / "data")


def test_a_damaged_store_is_refused_with_file_and_position(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data"):
        pass
    journal = tmp_path / "data" / "metadata" / "journal"
    damaged = bytearray(journal.read_bytes())
    damaged[12] ^= 1
    journal.write_bytes(damaged)
    with pytest.raises(StartupError, match="journal is damaged at byte 0"):
        EmbeddedBroker(tmp_path / "data")


def test_another_nodes_directory_is_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data"):
        pass
    with pytest.raises(StartupError, match="data"):
        EmbeddedBroker(tmp_path / "data", node_id=5)


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="no_such_option"):
        EmbeddedBroker(tmp_path / "data", no_such_option=1)


def test_topics_ids_configuration_and_records_survive_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as first, Wire(first.bootstrap) as wire:
        create(wire, "a", 3, retention_ms="12345")
        produce(wire, "a", b"one")
        before = wire.ask(MetadataRequest(topics=None))
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with EmbeddedBroker(tmp_path / "data") as second, Wire(second.bootstrap) as wire:
        after = wire.ask(MetadataRequest(topics=None))
        assert after.cluster_id == before.cluster_id
        assert [(t.name, t.topic_id) for t in after.topics] == [(t.name, t.topic_id) for t in before.topics]
        # A consumer must be able to notice that the log may have lost its tail (KIP-320).
        epochs = [p.leader_epoch for p in after.topics[0].partitions]
        assert epochs == [p.leader_epoch + 1 for p in before.topics[0].partitions]
        assert second.broker.image.topic_configs["a"] == {"retention.ms": "12345"}
        assert fetch(wire, "a", 0).high_watermark == 1


def test_files_of_a_topic_that_the_store_does_not_know_are_set_aside(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data"):
        pass
    (tmp_path / "data" / "ghost-0").mkdir()
    with EmbeddedBroker(tmp_path / "data") as broker, Wire(broker.bootstrap) as wire:
        assert not (tmp_path / "data" / "ghost-0").exists()
        assert list((tmp_path / "data").glob("ghost-0.*-stray"))
        create(wire, "ghost")


def test_log_directories_without_their_store_are_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data"):
        pass
    (tmp_path / "data" / "metadata").rename(tmp_path / "elsewhere")
    with pytest.raises(StartupError, match="cluster"):
        EmbeddedBroker(tmp_path / "data")


def test_a_stop_answers_waiting_requests_quickly(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker, Wire(broker.bootstrap) as wire:
        create(wire, "a")
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(
            max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="a", partitions=[partition])]
        )
        wire.send(request, 12)
        (listener,) = broker.broker.listeners
        wait_until(lambda: any(not session.is_idle for session in listener.sessions))
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 40
        assert wire.receive(request, 12).responses[0].partitions[0].error_code == 0
        assert wire.is_closed_by_peer()


# Fetching


def test_a_fetch_waits_for_records_and_no_longer(broker: EmbeddedBroker, wire: Wire) -> None:
    create(wire, "a")
    began = time.monotonic()
    assert fetch(wire, "a", 0, max_wait_ms=200).records == b""
    assert 0.19 <= time.monotonic() - began < 40
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="a", partitions=[partition])]
    )
    wire.send(request, 12)
    with Wire(broker.bootstrap) as producer:
        produce(producer, "a")
    began = time.monotonic()
    assert wire.receive(request, 12).responses[0].partitions[0].high_watermark == 1
    assert time.monotonic() - began < 40
    assert not any(found.on_advance for found in broker.broker.services.partitions)


def test_a_waiting_fetch_is_answered_when_its_topic_is_deleted(broker: EmbeddedBroker, wire: Wire) -> None:
    create(wire, "a")
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="a", partitions=[partition])]
    )
    wire.send(request, 12)
    with Wire(broker.bootstrap) as admin:
        admin.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")]))
    assert wire.receive(request, 12).responses[0].partitions[0].error_code == 3


# Configuration


def test_a_topics_configuration_changes_at_once(broker: EmbeddedBroker, wire: Wire) -> None:
    create(wire, "a")
    assert produce(wire, "a", bytes(5000)).error_code == 0
    assert alter(wire, TOPIC, "a", max_message_bytes="1000").error_code == 0
    assert produce(wire, "a", bytes(5000)).error_code == 10
    assert alter(wire, TOPIC, "a", max_message_bytes="-7").error_code == 40


def test_a_brokers_defaults_change_at_once_and_outlive_it(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker, Wire(broker.bootstrap) as wire:
        create(wire, "a")
        assert alter(wire, BROKER, "", message_max_bytes="1000").error_code == 0
        assert produce(wire, "a", bytes(5000)).error_code == 10
        assert alter(wire, BROKER, "0", num_partitions="3").error_code == 42
    with EmbeddedBroker(tmp_path / "data") as broker, Wire(broker.bootstrap) as wire:
        assert produce(wire, "a", bytes(5000)).error_code == 10
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name="")
        [described] = wire.ask(DescribeConfigsRequest(resources=[resource])).results
        assert [(config.name, config.value) for config in described.configs] == [
            ("message.max.bytes", "1000")
        ]


def test_recovery_threads_may_change_for_the_stop_and_the_next_start(tmp_path: Path) -> None:
    def threads(broker: EmbeddedBroker) -> list[int]:
        return [directory.recovery_threads for directory in broker.broker.directories]

    with EmbeddedBroker(tmp_path / "data") as broker, Wire(broker.bootstrap) as wire:
        assert threads(broker) == [2]
        assert alter(wire, BROKER, "", num_recovery_threads_per_data_dir="3").error_code == 0
        assert threads(broker) == [3]
    with EmbeddedBroker(tmp_path / "data") as broker:
        assert threads(broker) == [3]


def test_setting_an_option_without_effect_is_warned_of(
    broker: EmbeddedBroker, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    assert alter(wire, BROKER, "", retention_ms="5", max_connections="600").error_code == 0
    [record] = [found for found in caplog.records if "no effect" in found.message]
    told = vars(record)
    assert (told["levelname"], told["option"], told["broker"]) == ("WARNING", "retention.ms", "all")
    assert told["did_you_mean"] == "log.retention.ms"


@pytest.mark.parametrize("resource", ["", "0"])
def test_no_dynamic_value_shuts_its_owner_out(tmp_path: Path, resource: str) -> None:
    locks = [
        {"max.connections": "0"},
        {"max.connections": "-1"},
        {"max.connection.creation.rate": "0"},
        {"listener.name.plaintext.max.connections": "0"},
        {"listener.name.plaintext.max.connection.creation.rate": "0"},
        {"max.connections.per.ip": "0"},
        {"max.connections.per.ip.overrides": "127.0.0.1:0"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:5"},
        {"num.io.threads": "0"},
        {"num.network.threads": "0"},
        {"num.replica.fetchers": "0"},
    ]
    with EmbeddedBroker(tmp_path / "data") as broker, Wire(broker.bootstrap) as wire:
        for lock in locks:
            assert alter_to(wire, resource, lock) == ErrorCode.INVALID_REQUEST, lock
        # Two limits that are right alone: one for all brokers, one for this broker.
        other = "0" if resource == "" else ""
        assert alter_to(wire, other, {"max.connections.per.ip.overrides": "10.0.0.1:5"}) == 0
        with Wire(broker.bootstrap) as again:
            again.ask(MetadataRequest(topics=[]))
            assert alter_to(again, resource, {"max.connections": "1"}) == 0
            assert alter_to(again, resource, {}) == 0


def test_a_stored_value_that_would_shut_all_clients_out_does_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = {"max.connections": "0", "num.replica.fetchers": "3"}
    with EmbeddedBroker(tmp_path / "data") as broker:
        admin = broker.broker.services.changes.cluster
        broker.run(admin.change_config(broker_config_path("0"), lambda old: stored))
    with EmbeddedBroker(tmp_path / "data") as broker:
        with Wire(broker.bootstrap) as wire, Wire(broker.bootstrap) as second:
            second.ask(MetadataRequest(topics=[]))
            assert broker.broker.config.num_replica_fetchers == 3
            assert alter_to(wire, "0", {}) == 0
        [told] = {record.undo for record in caplog.records if "cannot be used" in record.message}  # type: ignore[attr-defined]
        assert "--delete-config max.connections" in told


def alter_to(wire: Wire, resource: str, configs: dict[str, str]) -> int:
    named = {name.replace(".", "_"): text for name, text in configs.items()}
    return alter(wire, BROKER, resource, **named).error_code


def test_one_address_may_have_so_many_connections(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", max_connections_per_ip=1) as broker:
        with Wire(broker.bootstrap) as first:
            first.ask(MetadataRequest(topics=[]))
            with Wire(broker.bootstrap) as second:
                assert second.is_closed_by_peer()
        wait_until(lambda: broker.broker.services.flow.connections.count == 0)
        with Wire(broker.bootstrap) as again:
            again.ask(MetadataRequest(topics=[]))


# Chores


def test_old_segments_go_by_retention(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": "50", "log.segment.delete.delay.ms": "0"}
    with EmbeddedBroker(tmp_path / "data", properties=settings) as broker, Wire(broker.bootstrap) as wire:
        create(wire, "a", segment_bytes=str(1 << 20), retention_bytes="1")
        for _ in range(3):
            assert produce(wire, "a", bytes(900_000)).error_code == 0
        wait_until(lambda: fetch(wire, "a", 3).log_start_offset >= 2)
        assert fetch(wire, "a", 0).error_code == 1


def test_records_reach_the_disk_by_time_and_checkpoints_follow(tmp_path: Path) -> None:
    settings = {
        "log.flush.interval.ms": "10",
        "log.flush.scheduler.interval.ms": "20",
        "log.flush.offset.checkpoint.interval.ms": "30",
        "replica.high.watermark.checkpoint.interval.ms": "30",
    }
    with EmbeddedBroker(tmp_path / "data", properties=settings) as broker, Wire(broker.bootstrap) as wire:
        create(wire, "a")
        produce(wire, "a")
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            path = tmp_path / "data" / name
            wait_until(lambda path=path: path.exists() and "a 0 1" in path.read_text())  # type: ignore[misc]


def test_with_flush_messages_an_acknowledged_record_is_on_disk(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker, Wire(broker.bootstrap) as wire:
        create(wire, "a", flush_messages="1")
        for acks in (1, -1):
            offset = produce(wire, "a", acks=acks).base_offset
            assert broker.broker.services.partitions.find("a", 0).log.recovery_point > offset


# Odds and ends


def test_a_deleted_topics_files_go(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker, Wire(broker.bootstrap) as wire:
        create(wire, "a")
        produce(wire, "a")
        [result] = wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")])).responses
        assert (result.error_code, result.name) == (0, "a")
        assert result.topic_id != ZERO_UUID
        assert not (tmp_path / "data" / "a-0").exists()
        create(wire, "a")
        assert produce(wire, "a").base_offset == 0


def test_an_empty_transactional_id_is_refused(wire: Wire) -> None:
    assert wire.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=0), 4).error_code == 42
    assert wire.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id >= 0


def test_topics_are_described_page_by_page(wire: Wire) -> None:
    for name, count in (("a", 3), ("b", 4), ("c", 1)):
        create(wire, name, count)
    seen: list[tuple[str, int]] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="c"), TopicRequest(name="a"), TopicRequest(name="b")],
            response_partition_limit=2,
            cursor=cursor,
        )
        page = wire.ask(request)
        seen += [(topic.name, row.partition_index) for topic in page.topics for row in topic.partitions]
        cursor, pages = page.next_cursor, pages + 1
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2), ("b", 3), ("c", 0)]
    assert pages == 4


def test_many_clients_may_ask_for_the_same_new_topic_at_once(broker: EmbeddedBroker) -> None:
    wires = [Wire(broker.bootstrap) for _ in range(8)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    for wire in wires:
        wire.send(request, 9)
    for wire in wires:
        wire.receive(request, 9)
    with contextlib.ExitStack() as opened:
        for wire in wires:
            opened.enter_context(wire)
        wait_until(lambda: wires[0].ask(request, 9).topics[0].error_code == 0)
        assert all(len(wire.ask(request, 9).topics[0].partitions) == 1 for wire in wires)


# Requests that no well-behaved client sends


def is_alive(wire: Wire) -> bool:
    return bool(wire.ask(MetadataRequest(topics=[])).brokers)


def test_a_number_of_thousands_of_digits_is_an_invalid_config(wire: Wire) -> None:
    digits = CreatableTopicConfig(name="retention.ms", value="9" * 5000)
    topic = CreatableTopic(name="digits", num_partitions=1, replication_factor=1, configs=[digits])
    [result] = wire.ask(CreateTopicsRequest(topics=[topic])).topics
    assert result.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("version", [4, 7])
def test_a_config_key_of_32_kb_is_refused_in_the_answer(wire: Wire, version: int) -> None:
    config = CreatableTopicConfig(name="k" * 32_000, value="1")
    topic = CreatableTopic(name="keys", num_partitions=1, replication_factor=1, configs=[config])
    [result] = wire.ask(CreateTopicsRequest(topics=[topic]), version).topics
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert len(result.error_message) <= 4096
    change = AlterableConfig(name="k" * 32_000, config_operation=0, value="1")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="n" * 32_000, configs=[change])
    [answer] = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), min(version, 1)).responses
    assert answer.error_code != 0
    assert is_alive(wire)


@pytest.mark.parametrize("magic", [0, 1, 99])
def test_a_transactional_batch_of_another_format_is_refused_in_the_answer(wire: Wire, magic: int) -> None:
    create(wire, "t")
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), b"k", b"v")
    batch = bytearray(builder.build())
    batch[16], batch[22] = magic, batch[22] | 0x10
    data = [PartitionProduceData(index=0, records=bytes(batch))]
    request = ProduceRequest(
        transactional_id="tx",
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=data)],
    )
    [topic] = wire.ask(request, 9).responses
    assert topic.partition_responses[0].error_code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert is_alive(wire)


def test_one_metadata_request_creates_a_bounded_number_of_topics(tmp_path: Path) -> None:
    properties = {"felice.auto.create.topics.max.at.once": "3"}
    with EmbeddedBroker(tmp_path / "data", properties=properties) as broker, Wire(broker.bootstrap) as wire:
        names = [f"auto-{index}" for index in range(7)]
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])

        def existing() -> int:
            return len(wire.ask(MetadataRequest(topics=None)).topics)

        wire.ask(asked)
        wait_until(lambda: existing() == 3)
        wait_until(lambda: all(row.error_code == 0 for row in wire.ask(asked).topics))
        assert existing() == 7


def test_a_request_of_too_many_elements_closes_its_connection_and_no_other(
    broker: EmbeddedBroker, wire: Wire
) -> None:
    with Wire(broker.bootstrap) as greedy:
        greedy.send(DescribeGroupsRequest(groups=[""] * 1_000_000), 4)
        assert greedy.is_closed_by_peer()
    assert is_alive(wire)


def test_records_of_many_partitions_are_deleted_in_one_request(wire: Wire) -> None:
    create(wire, "a", partitions=2)
    create(wire, "b")
    produce(wire, "a")
    topics = [
        DeleteRecordsTopic(name="b", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]),
        DeleteRecordsTopic(
            name="a",
            partitions=[DeleteRecordsPartition(partition_index=index, offset=-1) for index in (1, 0, 7)],
        ),
    ]
    first, second = wire.ask(DeleteRecordsRequest(topics=topics, timeout_ms=10_000)).topics
    assert [(row.partition_index, row.low_watermark, row.error_code) for row in first.partitions] == [
        (0, 0, 0)
    ]
    assert [(row.partition_index, row.low_watermark, row.error_code) for row in second.partitions] == [
        (1, 0, 0),
        (0, 1, 0),
        (7, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_an_item_requested_a_thousand_times_is_in_the_response_once(wire: Wire) -> None:
    """A broker has hundreds of configurations, a group thousands of members: answers must not multiply."""
    create(wire, "t")
    own = DescribeConfigsResource(resource_type=BROKER, resource_name="0")
    assert len(wire.ask(DescribeConfigsRequest(resources=[own] * 1000)).results) == 1
    assert len(wire.ask(DescribeGroupsRequest(groups=["g"] * 1000)).groups) == 1
    partitions = describe_producers.TopicRequest(name="t", partition_indexes=[0] * 500)
    asked = describe_producers.DescribeProducersRequest(topics=[partitions, partitions])
    [topic] = wire.ask(asked).topics
    assert [row.partition_index for row in topic.partitions] == [0]
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
    assert len(wire.ask(offset_fetch.OffsetFetchRequest(groups=[group] * 1000)).groups) == 1


def test_a_request_for_thousands_of_groups_is_answered_whole_and_in_order(wire: Wire) -> None:
    names = [f"group-{index}" for index in range(3000)]
    finding = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=names)
    assert [row.key for row in wire.ask(finding).coordinators] == names
    wait_until(lambda: wire.ask(finding).coordinators[0].error_code == 0)
    assert [row.group_id for row in wire.ask(DescribeGroupsRequest(groups=names)).groups] == names
    asked = [offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    assert [row.group_id for row in wire.ask(offset_fetch.OffsetFetchRequest(groups=asked)).groups] == names


def test_a_stop_closes_the_connection_of_a_client_that_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "_DRAIN_TIMEOUT_S", 0.1)
    with EmbeddedBroker(tmp_path / "data") as broker, Wire(broker.bootstrap) as wire:
        create(wire, "a")
        for _ in range(10):
            produce(wire, "a", bytes(900_000))
        with Wire(broker.bootstrap) as silent:
            partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)
            topics = [FetchTopic(topic="a", partitions=[partition])]
            silent.send(FetchRequest(min_bytes=1, max_bytes=50_000_000, topics=topics), 12)
            (listener,) = broker.broker.listeners
            wait_until(lambda: any(session.unsent_bytes for session in listener.sessions))
            broker.stop()
            gc.collect()  # a socket that nothing closed makes its collection a warning, and so an error


def test_connections_accepted_while_the_broker_stops_are_closed(tmp_path: Path) -> None:
    for number in range(5):
        broker = EmbeddedBroker(tmp_path / str(number))
        host, _, port = broker.bootstrap.rpartition(":")
        stopping = threading.Thread(target=broker.stop)
        clients = []
        stopping.start()
        for _ in range(200):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex((host, int(port)))
            clients.append(client)
        stopping.join()
        for client in clients:
            client.close()
        # An accepted socket that nothing closed makes its collection a warning, and so an error.
        gc.collect()
