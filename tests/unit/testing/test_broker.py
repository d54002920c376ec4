"""The test broker: created, restarted, killed and stopped."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import felice.testing
from felice.client.admin import AdminClient
from felice.config import parse_properties
from felice.env.ports import free_ports
from felice.log.clean_shutdown import MARKER_NAME
from felice.protocol.errors import ApiError
from felice.server.startup import StartupError
from felice.testing import AsyncBroker, Broker, felice_broker


def test_a_directory_of_its_own_is_removed_by_stop() -> None:
    with Broker() as broker:
        broker.produce("orders", "v")
        directory = broker.data_dir
        assert (directory / "orders-0").is_dir()
    assert not directory.exists()
    assert not broker.is_running
    with pytest.raises(RuntimeError, match="not running"):
        broker.records("orders")


@pytest.mark.parametrize("make", [Broker, felice_broker])
def test_an_error_of_the_body_is_not_hidden_by_one_of_the_stop(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Broker.stop

    def failing(broker: Broker) -> None:
        stop(broker)
        raise OSError("the disk is gone")

    monkeypatch.setattr(Broker, "stop", failing)
    with pytest.raises(ValueError, match="the cause") as raised, make():
        raise ValueError("the cause")
    assert raised.value.__notes__ == ["The stop failed, too: OSError: the disk is gone"]

    async def scenario() -> None:
        async with felice_broker() if make is felice_broker else AsyncBroker():
            raise KeyError("the cause")

    with pytest.raises(KeyError):
        asyncio.run(scenario())


def test_a_given_directory_stays_for_the_next_broker(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        broker.produce("orders", "v", key="k", headers=[("h", None)], timestamp_ms=5)
    with Broker(tmp_path / "data") as broker:
        [record] = broker.records("orders")
    assert record == ("orders", 0, 0, 5, b"k", b"v", (("h", None),))


def test_a_restart_keeps_records_and_address() -> None:
    with Broker() as broker:
        before = broker.produce("orders", "v")
        bootstrap, directory = broker.bootstrap, broker.data_dir
        broker.restart()
        assert (broker.bootstrap, broker.data_dir) == (bootstrap, directory)
        assert broker.records("orders") == [before]
        assert broker.produce("orders", "w").offset == 1


def test_a_kill_marks_nothing_clean_and_loses_nothing() -> None:
    with Broker() as broker:
        before = [broker.produce("orders", str(number)) for number in range(3)]
        broker.kill()
        assert not (broker.data_dir / MARKER_NAME).exists()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.port), timeout=60)
        broker.restart()
        assert broker.records("orders") == before
        broker.restart()
        assert broker.records("orders") == before


def test_a_kill_cuts_open_connections_at_once() -> None:
    with Broker() as broker, socket.create_connection(("127.0.0.1", broker.port), timeout=60) as connection:
        began = time.monotonic()
        broker.kill()
        assert connection.recv(1) == b""
        assert time.monotonic() - began < 40


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    threads = threading.active_count()
    with pytest.raises(StartupError, match=r"unknown configuration: no\.such\.option$"):
        Broker(properties={"no.such.option": "1"})
    with pytest.raises(ApiError):
        Broker(topics=["not a topic's name"])
    with Broker(tmp_path), pytest.raises(StartupError, match="in use by another broker"):
        Broker(tmp_path)
    assert threading.active_count() == threads


KRAFT_NODE = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
controller.listener.names=CONTROLLER
listeners=CONTROLLER://:0,PLAINTEXT://:0
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.receive.buffer.bytes=102400
share.coordinator.state.topic.replication.factor=1
confluent.balancer.enable=true
"""


@pytest.mark.parametrize("more", [{}, {"num_io_threads": 4, "background_threads": 2}])
def test_options_of_a_file_of_kafka_are_taken_and_those_without_effect_are_logged(
    more: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level("WARNING", "felice.server"),
        Broker(properties=parse_properties(KRAFT_NODE), **more) as broker,
        AdminClient({"bootstrap.servers": broker.bootstrap}) as admin,
    ):
        assert list(admin.list_topics(timeout=60).brokers) == [1]
    (line,) = (text for text in caplog.messages if "of Kafka have no effect" in text)
    assert "controller.quorum.voters" in line and ("background.threads" in line) == bool(more)


def test_a_kraft_node_whose_controller_is_elsewhere_is_refused() -> None:
    settings = parse_properties(KRAFT_NODE.replace("broker,controller", "broker"))
    with pytest.raises(StartupError, match="leaves the metadata to a KRaft controller"):
        Broker(properties=settings)


def test_topics_keys_and_partitions() -> None:
    with felice_broker(topics={"orders": 3}, num_partitions=2) as broker:
        by_key = [broker.produce("orders", "v", key=f"k{number}").partition for number in range(20)]
        assert set(by_key) == {0, 1, 2}
        assert broker.produce("orders", "v", partition=2).partition == 2
        assert [record.partition for record in broker.records("orders", 1)] == [1] * by_key.count(1)
        assert len(broker.records("orders")) == 21
        assert broker.produce("made.by.itself", "v", partition=1).offset == 0
        broker.delete_topic("orders")
        with pytest.raises(ApiError, match="there is no topic orders"):
            broker.records("orders")


def test_waiting_for_records_ends_with_them_or_says_how_many_there_are() -> None:
    with Broker() as broker:
        later = threading.Timer(0.05, broker.produce, ("orders", "v"))
        later.start()
        assert len(broker.wait_for_records("orders", 1)) == 1
        later.join()
        with pytest.raises(TimeoutError, match="orders has 1 records"):
            broker.wait_for_records("orders", 2, timeout_s=0.02)


def test_the_asyncio_api_does_not_block_the_callers_loop() -> None:
    async def scenario() -> None:
        turns = 0

        async def tick() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        async with felice_broker() as broker:
            await broker.create_topic("orders", 2)
            before = await broker.produce("orders", "v", partition=1)
            await broker.kill()
            await broker.restart()
            assert await broker.records("orders") == [before]
            assert await broker.wait_for_records("orders", 1) == [before]
            await broker.delete_topic("orders")
        assert turns > 5
        ticking.cancel()
        with pytest.raises(RuntimeError, match="was not started"):
            _ = AsyncBroker().bootstrap

    asyncio.run(scenario())


def test_a_broker_is_ready_after_well_under_50_ms_of_work() -> None:
    with Broker():
        pass  # the first broker pays for imports and compiled codecs
    took = []
    for _ in range(10):
        # CPU time, because the machine may be busy.
        began = time.process_time()
        with Broker():
            took.append((time.process_time() - began) * 1000)
    assert min(took) < 50, took


def test_importing_the_package_loads_no_broker() -> None:
    program = (
        "import sys, felice.testing\n"
        "assert not any(name.startswith('felice.server') for name in sys.modules)\n"
        "assert 'asyncio' not in sys.modules\n"
    )
    source = str(Path(felice.testing.__file__).parents[2])
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": source})


def test_every_name_of_the_package_can_be_imported() -> None:
    assert all(hasattr(felice.testing, name) for name in dir(felice.testing))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = felice.testing.no_such_name


@pytest.mark.parametrize("port", [0, 1])
def test_the_address_of_given_listeners_is_true_and_stays(port: int) -> None:
    [free] = free_ports(1)
    listener = f"PLAINTEXT://127.0.0.1:{free if port else 0}"
    with Broker(properties={"listeners": listener}, topics=["orders"]) as broker:
        before = broker.bootstrap
        for _ in range(2):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            assert "orders" in admin.list_topics(timeout=60).topics
            admin.close()
            broker.restart()
        assert broker.bootstrap == before


def test_a_timestamp_of_zero_is_a_timestamp() -> None:
    with Broker() as broker:
        assert broker.produce("orders", "v", timestamp_ms=0).timestamp_ms == 0
        assert broker.records("orders")[0].timestamp_ms == 0
