"""A start that is cancelled, interrupted or fails leaves no broker running, and no directory that it made."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from felice.config import BrokerConfig
from felice.env import Environment
from felice.protocol.errors import ApiError
from felice.server.broker import Broker as Server
from felice.server.process.embedded import EmbeddedBroker, ServerThread
from felice.server.process.local_cluster import LocalCluster
from felice.server.startup import StartupError
from felice.testing import AsyncBroker, Broker, Cluster, felice_broker

# From before the thread exists to after the broker is ready.
DELAYS_S = (0.0, 0.001, 0.01, 0.03, 0.1)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing may be left here, and no thread of a server."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    # Other tests' clients may still run, and a test that failed must not fail those after it.
    before = threading.enumerate()
    yield place
    assert not list(place.glob("felice-*"))
    begun = [thread.name for thread in threading.enumerate() if thread not in before]
    assert not [name for name in begun if name.startswith("felice-")]


@pytest.mark.parametrize("delay_s", DELAYS_S)
@pytest.mark.parametrize("make", [AsyncBroker, felice_broker])
def test_a_cancelled_start(make: Callable[[], AsyncBroker | felice_broker], delay_s: float) -> None:
    async def scenario() -> None:
        with pytest.raises((TimeoutError, EndedInTimeError)):
            async with asyncio.timeout(delay_s), make():
                raise EndedInTimeError

    asyncio.run(scenario())


class EndedInTimeError(Exception):
    pass


@pytest.fixture
def slow_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that takes longer than the limits below. In a process that has started others, it may take only 5 ms."""
    start = AsyncBroker._start

    def slow(broker: AsyncBroker) -> None:
        time.sleep(0.3)
        start(broker)

    monkeypatch.setattr(AsyncBroker, "_start", slow)


@pytest.mark.usefixtures("slow_start")
def test_wait_for_around_a_start() -> None:
    async def scenario() -> None:
        broker = AsyncBroker(topics=["orders"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(broker.start(), 0.01)
        await broker.stop()  # of a broker that was not started: does nothing
        with pytest.raises(RuntimeError, match="not started"):
            _ = broker.bootstrap
        async with broker:  # it can be started again
            await broker.produce("orders", "v")

    asyncio.run(scenario())


@pytest.mark.usefixtures("slow_start")
def test_a_second_cancellation_waits_for_the_clean_up_of_the_first() -> None:
    async def scenario() -> None:
        starting = asyncio.create_task(AsyncBroker().start())
        while not starting.done():
            await asyncio.sleep(0.01)
            starting.cancel()
        assert starting.cancelled()

    asyncio.run(scenario())


def test_a_cancelled_start_after_a_kill_keeps_the_records() -> None:
    async def scenario() -> None:
        async with AsyncBroker() as broker:
            await broker.produce("orders", "v")
            await broker.kill()
            starting = asyncio.create_task(broker.start())
            await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            assert not broker.blocking.is_running
            await broker.start()
            assert [record.value for record in await broker.records("orders")] == [b"v"]

    asyncio.run(scenario())


def test_a_cancelled_stop_stops() -> None:
    async def scenario() -> None:
        broker = await AsyncBroker().start()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(broker.stop(), 0.0001)
        assert not broker.blocking.is_running

    asyncio.run(scenario())


@pytest.mark.parametrize("make", [Broker, lambda: Cluster(brokers=2)])
@pytest.mark.parametrize("is_ready", [False, True])
def test_an_interrupted_constructor(
    make: Callable[[], object], is_ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = threading.Event.wait

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        """As Ctrl-C does, or pytest-timeout."""
        if threading.current_thread() is threading.main_thread() and timeout is None:
            monkeypatch.setattr(threading.Event, "wait", wait)
            if is_ready:
                wait(event)
            raise KeyboardInterrupt
        return wait(event, timeout)

    begin = ServerThread.__init__

    def begin_interrupted(server: ServerThread, name: str) -> None:
        # Thread.start waits for an event, too.
        started = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            started(thread)
            monkeypatch.setattr(threading.Thread, "start", started)
            monkeypatch.setattr(threading.Event, "wait", interrupted)

        monkeypatch.setattr(threading.Thread, "start", start)
        begin(server, name)

    monkeypatch.setattr(ServerThread, "__init__", begin_interrupted)
    with pytest.raises(KeyboardInterrupt):
        make()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Broker(topics=["no name"]), ApiError),
        (lambda: Broker(properties={"no.such": "1"}), StartupError),
        (lambda: Cluster(brokers=2, topics=["no name"]), ApiError),
        (lambda: Cluster(brokers=2, properties={"no.such": "1"}), StartupError),
        (lambda: Cluster(brokers=0), StartupError),
    ],
)
def test_a_start_that_fails(make: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


@pytest.mark.parametrize("delay_s", DELAYS_S)
def test_a_cancelled_start_on_the_loop_of_the_caller(tmp_path: Path, delay_s: float) -> None:
    properties = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}

    async def scenario() -> None:
        config, _ = BrokerConfig.parse(properties)
        for server in (
            Server(config, Environment.system()),
            LocalCluster(tmp_path / "cluster", 2, "127.0.0.1", 0, {}),
        ):
            try:
                await asyncio.wait_for(server.start(), delay_s)
            except TimeoutError:
                assert asyncio.all_tasks() == {asyncio.current_task()}
            else:
                await server.stop()

    asyncio.run(scenario())
    # Nothing holds the directory: another broker can have it.
    with EmbeddedBroker(tmp_path / "data"):
        pass


def test_a_relative_directory_is_the_one_that_it_was_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    with Broker("data") as broker:
        os.chdir(second)
        broker.create_topic("orders")
        broker.produce("orders", "v")
        broker.restart()
        assert [record.value for record in broker.records("orders")] == [b"v"]
    os.chdir(first)
    with Cluster(2, "cluster") as cluster:
        os.chdir(second)
        cluster.create_topic("orders")
        cluster.kill_broker(1)
        cluster.start_broker(1)
    os.chdir(first)
    embedded = EmbeddedBroker("embedded", properties={"log.retention.check.interval.ms": "1"})
    os.chdir(second)
    embedded.stop()
    assert sorted(path.name for path in first.iterdir()) == ["cluster", "data", "embedded"]
    assert not list(second.iterdir())
