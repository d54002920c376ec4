"""A child of a fork leaves the servers, processes and directories of its parent as they are."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from felice.client import Consumer, Producer, aio
from felice.client.admin import AdminClient
from felice.ensemble.node import Node
from felice.env.own_directory import OwnDirectory
from felice.testing import Broker

_LIMIT_S = 120.0

START = """
import asyncio, gc, multiprocessing, os, sys
from felice.env.own_directory import OwnDirectory
from felice.server.process.embedded import EmbeddedBroker
from felice.testing import AsyncBroker, Broker, Cluster, felice_broker

def forked(end):
    pid = os.fork()
    if pid == 0:
        end()
        return False
    assert os.waitpid(pid, 0)[1] == 0
    return True

def works(broker):
    assert broker.data_dir.is_dir()
    broker.produce("orders", "v")
    assert broker.records("orders")
"""

PROGRAMS = {
    "the child ends inside of the with block": """
        with felice_broker() as broker:
            broker.produce("orders", "u")
            forked(sys.exit) or sys.exit(0)
            works(broker)
    """,
    "the child leaves the with block": """
        with Broker() as broker:
            is_parent = forked(lambda: None)
            if is_parent:
                works(broker)
        if not is_parent:
            sys.exit(0)
    """,
    "the child collects the broker": """
        broker = Broker()
        def end():
            global broker
            del broker
            gc.collect()
            sys.exit(0)
        forked(end)
        works(broker)
        broker.stop()
    """,
    "the child stops, kills and restarts": """
        broker = Broker()
        def end():
            broker.stop()
            broker.kill()
            for call in (broker.restart, lambda: broker.produce("orders", "v"), lambda: broker.records("orders")):
                try:
                    call()
                except RuntimeError as error:
                    assert "is a fork" in str(error) or "not running" in str(error), error
                else:
                    raise AssertionError(call)
            sys.exit(0)
        forked(end)
        works(broker)
        broker.stop()
    """,
    "multiprocessing": """
        broker = Broker()
        child = multiprocessing.get_context("fork").Process(target=broker.stop)
        child.start()
        child.join()
        assert child.exitcode == 0
        works(broker)
        broker.stop()
    """,
    "a cluster": """
        with Cluster(brokers=2, topics=["orders"]) as cluster:
            forked(sys.exit) or sys.exit(0)
            cluster.create_topic("payments")
            assert cluster.running == [1, 2]
    """,
    "an embedded broker": """
        directory = OwnDirectory("felice-")
        with EmbeddedBroker(directory.path) as broker:
            forked(sys.exit) or sys.exit(0)
            assert broker.broker.lifecycle.failure is None
            assert (directory.path / "meta.properties").exists()
    """,
    "an asynchronous broker": """
        # A child that lets asyncio close the loop would take the parent's from it: they share its descriptors.
        async def scenario():
            async with AsyncBroker() as broker:
                def end():
                    for coroutine in (broker.stop(), broker.kill()):
                        try:
                            coroutine.send(None)
                        except StopIteration:
                            pass
                        else:
                            os._exit(1)
                    os._exit(0)
                forked(end)
                await broker.produce("orders", "v")
                assert broker.data_dir.is_dir()
        asyncio.run(scenario())
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_child_removes_nothing_and_stops_nothing(name: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(PROGRAMS[name])],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )
    assert run.returncode == 0, run.stderr
    # The parent removed what it had made.
    assert not list(tmp_path.glob("felice-*")), run.stderr


def in_a_child(work: Callable[[], object]) -> None:
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(_LIMIT_S)
    assert child.exitcode == 0


def test_clients_of_the_parent_go_on_after_a_child_closed_its_copies() -> None:
    with Broker(topics=["orders"]) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        producer.produce("orders", b"1")
        assert producer.flush(60) == 0
        assert consumer.poll(60) is not None
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})

        def close_all() -> None:
            for client in (producer, consumer, admin):
                client.close()

        in_a_child(close_all)
        producer.produce("orders", b"2")
        assert producer.flush(60) == 0
        message = consumer.poll(60)
        assert message is not None
        assert message.value() == b"2"
        assert "orders" in admin.list_topics(timeout=60).topics
        consumer.close()


def test_asyncio_clients_of_the_parent_go_on_after_a_child_closed_its_copies() -> None:
    async def scenario(bootstrap: str) -> None:
        consumer_config = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        async with (
            aio.Producer({"bootstrap.servers": bootstrap}) as producer,
            aio.Consumer(consumer_config) as consumer,
        ):
            await producer.send_and_wait("orders", b"1")
            await consumer.subscribe(["orders"])
            assert await consumer.poll(60) is not None

            def close_all() -> None:
                for coroutine in (producer.close(), consumer.close()):
                    with pytest.raises(StopIteration):  # it ends without waiting for anything
                        coroutine.send(None)

            in_a_child(close_all)
            await producer.send_and_wait("orders", b"2")
            message = await consumer.poll(60)
            assert message is not None
            assert message.value() == b"2"

    with Broker(topics=["orders"]) as broker:
        asyncio.run(scenario(broker.bootstrap))


def test_a_child_does_not_end_a_node_of_an_ensemble(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nexec sleep 600\n")
    java.chmod(0o755)
    node = Node(1, "127.0.0.1", 1, tmp_path, java, [])
    node.start()
    try:
        in_a_child(node.stop)
        in_a_child(node.kill)
        assert node.is_running
    finally:
        node.kill()
    assert not node.is_running


def test_a_directory_is_removed_by_its_own_process_only() -> None:
    directory = OwnDirectory("felice-")
    in_a_child(directory.remove)
    assert directory.path.is_dir()
    directory.remove()
    assert not directory.path.exists()
