"""The behaviour of a broker when its disk fails, and when it stops."""

from __future__ import annotations

import asyncio
import errno
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from conformance.transaction_calls import WireProducer, fetch_row, until_settled, visible
from conformance.wire import Wire
from felice.env import Environment, SystemClock, SystemDisk, SystemNetwork
from felice.env.disk import DiskLocked
from felice.log.directory import LogDirectory
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.records.builder import BatchBuilder
from felice.server.broker import Broker
from felice.server.process.embedded import EmbeddedBroker, embedded_config
from felice.server.startup import StartupError
from waiting import let_run, wait_until

STORAGE_ERROR = 56


class FailingDisk(SystemDisk):
    """A disk on which one act on one kind of file fails, once the test says so."""

    def __init__(self, suffix: str, act: str, code: int) -> None:
        self.is_failing = False
        self._suffix, self._act, self._code = suffix, act, code

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> Any:
        file = super().open(path, create=create, read_only=read_only)
        return _FailingFile(self, file) if path.name.endswith(self._suffix) else file

    def check(self, act: str) -> None:
        if self.is_failing and act == self._act:
            raise OSError(self._code, "it failed")


class _FailingFile:
    def __init__(self, disk: FailingDisk, file: Any) -> None:
        self._disk, self._file = disk, file

    def __getattr__(self, name: str) -> Any:
        if name in ("sync", "append", "pwrite"):
            self._disk.check("sync" if name == "sync" else "write")
        return getattr(self._file, name)


def environment(disk: SystemDisk) -> Environment:
    return Environment(SystemClock(), disk, SystemNetwork(), random.Random(1))


def create(wire: Wire, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return int(wire.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code)


def produce(wire: Wire, topic: str) -> int:
    builder = BatchBuilder()
    builder.append(SystemClock().now_ms(), b"k", b"v")
    data = [PartitionProduceData(index=0, records=bytes(builder.build()))]
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return int(wire.ask(request, 9).responses[0].partition_responses[0].error_code)


def test_a_full_disk_refuses_appends_and_takes_them_when_there_is_room(tmp_path: Path) -> None:
    disk = FailingDisk(".log", "write", errno.ENOSPC)
    with EmbeddedBroker(tmp_path / "data", env=environment(disk)) as broker, Wire(broker.bootstrap) as wire:
        assert create(wire, "a") == 0
        assert produce(wire, "a") == 0
        disk.is_failing = True
        assert produce(wire, "a") == STORAGE_ERROR
        disk.is_failing = False
        assert produce(wire, "a") == 0
        assert broker.broker.services.partitions.find("a", 0).log_end_offset == 2
        assert broker.broker.lifecycle.failure is None


def test_a_disk_that_cannot_sync_takes_its_directory_and_the_broker_with_it(tmp_path: Path) -> None:
    disk = FailingDisk(".log", "sync", errno.EIO)
    with (
        EmbeddedBroker(tmp_path / "data", env=environment(disk), log_flush_interval_messages=1) as broker,
        Wire(broker.bootstrap) as wire,
    ):
        assert create(wire, "a") == 0
        assert produce(wire, "a") == 0
        disk.is_failing = True
        assert produce(wire, "a") == STORAGE_ERROR
        disk.is_failing = False
        # What the disk holds is not known any more: no way back but a restart.
        assert produce(wire, "a") == STORAGE_ERROR
        assert broker.broker.lifecycle.failure is not None
        assert "all log directories are offline" in broker.broker.lifecycle.failure
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_end_txn_that_cannot_be_written_gets_an_error_and_may_be_retried(
    tmp_path: Path,
) -> None:
    """90: NOT_COORDINATOR, never UNKNOWN_SERVER_ERROR, whose outcome nobody knows."""
    disk = FailingDisk(".log", "write", errno.ENOSPC)
    with EmbeddedBroker(tmp_path / "data", env=environment(disk)) as broker, Wire(broker.bootstrap) as wire:
        assert create(wire, "a") == 0
        producer = WireProducer(wire, "t").begin_life()
        producer.write("a", b"v")
        disk.is_failing = True
        assert producer.end(True) == ErrorCode.NOT_COORDINATOR
        assert visible(fetch_row(wire, "a")) == []
        disk.is_failing = False
        assert until_settled(lambda: producer.end(True)) == 0
        wait_until(lambda: visible(fetch_row(wire, "a")) == [b"v"])


class SlowDisk(FailingDisk):
    """A disk that takes its time to sync."""

    def check(self, act: str) -> None:
        if self.is_failing and act == self._act:
            time.sleep(0.4)


def test_a_stop_waits_for_a_flush_under_way_and_is_clean(tmp_path: Path) -> None:
    disk = SlowDisk(".log", "sync", 0)
    settings = {"log.flush.interval.ms": "1", "log.flush.scheduler.interval.ms": "20"}
    with (
        EmbeddedBroker(tmp_path / "data", env=environment(disk), properties=settings) as broker,
        Wire(broker.bootstrap) as wire,
    ):
        assert create(wire, "a") == 0
        disk.is_failing = True
        log = broker.broker.services.partitions.find("a", 0).log
        wait_until(lambda: produce(wire, "a") == 0 and log.is_flushing)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("act", ["write", "sync"])
def test_metadata_that_cannot_be_written_is_refused_and_reads_go_on(tmp_path: Path, act: str) -> None:
    disk = FailingDisk("journal", act, errno.ENOSPC)
    with EmbeddedBroker(tmp_path / "data", env=environment(disk)) as broker, Wire(broker.bootstrap) as wire:
        assert create(wire, "a") == 0
        disk.is_failing = True
        assert create(wire, "b") == STORAGE_ERROR
        answer = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="c")]), 9)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert wire.ask(InitProducerIdRequest(transactional_id=None), 4).error_code == 15
        assert [topic.name for topic in wire.ask(MetadataRequest(topics=None), 9).topics] == ["a"]
        assert produce(wire, "a") == 0
        disk.is_failing = False
        # After a failed write there may be room again; after a failed sync nobody can say what was kept.
        assert create(wire, "b") == (0 if act == "write" else STORAGE_ERROR)


_PROGRAM = """
import sys
from felice.server.process.running import run
from felice.server.process.embedded import embedded_config
run(embedded_config(sys.argv[1], 0, {}), on_ready=lambda broker: print(broker.port(), flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process, Wire(f"127.0.0.1:{process.stdout.readline().strip()}") as wire:
        assert create(wire, "a") == 0
        process.send_signal(number)
        assert process.wait(60) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_start_that_waits_for_its_ensemble(tmp_path: Path, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        properties = {
            "zookeeper.connect": f"127.0.0.1:{silent.getsockname()[1]}",
            "zookeeper.connection.timeout.ms": "120000",
        }
        program = _PROGRAM.replace("{}", repr(properties))
        process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "data")])
        with process:
            silent.settimeout(60)
            waiting, _ = silent.accept()
            with waiting:
                process.send_signal(number)
                assert process.wait(60) == 0


def test_a_cancelled_start_releases_its_directory_when_recovery_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or another broker could begin with files that a thread still writes."""
    began, goes_on = threading.Event(), threading.Event()
    load = LogDirectory.load

    def slow(directory: LogDirectory, *args: Any) -> None:
        began.set()
        assert goes_on.wait(60)
        load(directory, *args)

    monkeypatch.setattr(LogDirectory, "load", slow)
    disk = SystemDisk()

    async def scenario() -> None:
        broker = Broker(embedded_config(tmp_path, 0, {}), environment(disk))
        starting = asyncio.create_task(broker.start())
        await asyncio.to_thread(began.wait, 60)
        starting.cancel()
        await let_run()
        assert not starting.done()
        with pytest.raises(DiskLocked):
            disk.lock(tmp_path / ".lock")
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        disk.lock(tmp_path / ".lock").release()

    asyncio.run(scenario())


def test_after_a_kill_acknowledged_topics_and_records_are_there(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process, Wire(f"127.0.0.1:{process.stdout.readline().strip()}") as wire:
        assert create(wire, "a") == 0
        assert [produce(wire, "a") for _ in range(5)] == [0] * 5
        process.kill()
    with EmbeddedBroker(tmp_path / "data") as broker, Wire(broker.bootstrap) as wire:
        assert broker.broker.services.partitions.find("a", 0).log_end_offset == 5
        assert produce(wire, "a") == 0


@pytest.mark.parametrize("passes", [1, 3, 10, 30, 60, 100, 200])
@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_a_broker_that_is_stopped_while_it_starts_releases_everything(
    tmp_path: Path, passes: int, ends: str
) -> None:
    async def scenario() -> None:
        config = embedded_config(tmp_path / "data", 0, {})
        broker = Broker(config, Environment.system())
        starting = asyncio.ensure_future(broker.start())
        for _ in range(passes):
            await asyncio.sleep(0)
        was_ready = starting.done()
        await getattr(broker, ends)()
        if was_ready:
            await starting
        else:
            with pytest.raises(StartupError, match="stopped before it was ready"):
                await starting
        assert broker.lifecycle.is_stopping
        again = Broker(config, Environment.system())
        await again.start()
        await again.stop()

    asyncio.run(scenario())
