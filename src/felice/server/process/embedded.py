"""A broker or a cluster on a thread of the caller's process: for tests, demo and benchmarks.

    with EmbeddedBroker("data") as broker:
        Producer({"bootstrap.servers": broker.bootstrap})

It is the complete broker on real sockets, bound to 127.0.0.1, with the settings of Kafka's development configuration
(the first rebalance of a group does not wait for more members).
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Never, Self, TypeVar

from felice.config import BROKER_OPTIONS, BrokerConfig, directory_text
from felice.config.kafka_only import is_kafkas
from felice.env import Environment, event_loop
from felice.env.forks import Owner
from felice.server.broker import Broker
from felice.server.handlers.table import Handle
from felice.server.process.local_cluster import LocalCluster, known_config, local_settings
from felice.server.startup import StartupError

HOST = "127.0.0.1"
_STOP_TIMEOUT_S = 60.0

T = TypeVar("T")


@contextmanager
def stopping_after(error: BaseException | None) -> Iterator[None]:
    """The context of a stop at the end of a `with`. `error` is that of its body, or None.

    The body's error must reach the caller, because it is the likely cause: an error of the stop becomes its note.
    """
    try:
        yield
    except Exception as of_stop:
        if error is None:
            raise
        error.add_note(f"The stop failed, too: {type(of_stop).__name__}: {of_stop}")


class ServerThread(ABC):
    """A server with its own event loop and thread. It serves from the end of the constructor until `stop`."""

    def __init__(self, name: str) -> None:
        self._is_killed = False
        self._is_given_up = False
        self._owner = Owner()
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        try:
            self._started.wait()
        except BaseException:
            # Ctrl-C, or a time limit of the test: the caller gets no object that it could stop.
            self._give_up()
            raise
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    @abstractmethod
    async def _open(self) -> None:
        """Starts the server on the thread's loop. The constructor raises the errors of this method."""

    @abstractmethod
    async def _close(self, *, killed: bool) -> None: ...

    def stop(self) -> None:
        """Stops cleanly, and returns when the thread has ended. A second call does nothing.

        Nor does a call in a forked process, which has no such thread. Raises the error of a stop that failed, and
        `TimeoutError` if the thread still runs after a minute.
        """
        if not self._owner.is_here or not self._thread.is_alive():
            return
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(
                f"{self._thread.name} still runs {_STOP_TIMEOUT_S:g} seconds after it was told to stop; "
                "its data directory stays locked"
            )
        if self._failure is not None:
            raise self._failure

    def kill(self) -> None:
        """Stops like a killed process: drops connections; the next start on this directory recovers the logs."""
        self._is_killed = True
        self.stop()

    def _give_up(self) -> None:
        """Ends a start that nobody waits for, or the server that it started, and waits for that."""
        self._is_given_up = True  # for a thread that has no loop yet
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._interrupt)
        self._thread.join(_STOP_TIMEOUT_S)

    def _interrupt(self) -> None:
        if self._started.is_set():
            self._stopping.set()
        elif self._serving is not None:
            self._serving.cancel()

    def run(self, work: Coroutine[object, Never, T]) -> T:
        """Runs a coroutine on the thread's loop, where it may use the state of the broker, and returns its result."""
        if not self._owner.is_here:
            work.close()
            self._owner.check(
                "server"
            )  # raises; the thread that would run the coroutine is in the other process
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with stopping_after(error):
            self.stop()

    def _run(self) -> None:
        try:
            event_loop.run(self._serve())
        except BaseException as error:  # the caller's thread raises it
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._serving = asyncio.current_task()
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._is_given_up:
            return
        await self._open()
        self._started.set()
        await self._stopping.wait()
        await self._close(killed=self._is_killed)


class EmbeddedBroker(ServerThread):
    """A broker on a thread. The constructor starts it or raises `StartupError`; `stop` or the end of `with` stops it.

    Overrides are broker options by attribute (`num_partitions=3`) or, in `properties`, by name
    (`{"num.partitions": "3"}`). Options of Kafka that have no effect here are logged. Port 0 selects a free port.
    """

    def __init__(
        self,
        data_dir: str | Path,
        port: int = 0,
        *,
        properties: Mapping[str, str] | None = None,
        env: Environment | None = None,
        handlers: Mapping[int, Handle] | None = None,
        **overrides: object,
    ) -> None:
        config = embedded_config(data_dir, port, {**(properties or {}), **named(overrides)})
        self.broker = Broker(config, env or Environment.system(), handlers)
        super().__init__("felice-broker")

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.broker.port()

    @property
    def bootstrap(self) -> str:
        """The address as `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    async def _open(self) -> None:
        await self.broker.start()

    async def _close(self, *, killed: bool) -> None:
        await (self.broker.kill() if killed else self.broker.stop())


class EmbeddedCluster(ServerThread):
    """`broker_count` brokers on one thread, with ids from 1, in these racks. Options as for `EmbeddedBroker`."""

    def __init__(
        self,
        data_dir: str | Path,
        broker_count: int = 3,
        port: int = 0,
        *,
        properties: Mapping[str, str] | None = None,
        env: Environment | None = None,
        racks: Sequence[str] = (),
        **overrides: object,
    ) -> None:
        settings = {**(properties or {}), **named(overrides)}
        self.cluster = LocalCluster(data_dir, broker_count, HOST, port, settings, env, racks)
        super().__init__("felice-cluster")

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, running or not, as `bootstrap.servers`."""
        return ",".join(f"{HOST}:{port}" for port in self.cluster.ports.values())

    async def _open(self) -> None:
        await self.cluster.start()

    async def _close(self, *, killed: bool) -> None:
        await (self.cluster.kill() if killed else self.cluster.stop())


def embedded_config(data_dir: str | Path, port: int, properties: Mapping[str, str]) -> BrokerConfig:
    """Returns the configuration of a broker on 127.0.0.1. Raises `StartupError` for unknown names."""
    listener = f"PLAINTEXT://{HOST}:{port}"
    return known_config(
        {"listeners": listener, "log.dirs": directory_text(Path(data_dir)), **local_settings(1), **properties}
    )


def named(overrides: Mapping[str, object]) -> dict[str, str]:
    """Converts option attributes to option names. Raises `StartupError` for an unknown attribute."""
    names = {option.attribute: option for option in BROKER_OPTIONS.values()}
    named = {}
    for attribute, value in overrides.items():
        option = names.get(attribute)
        if option is None and is_kafkas(attribute.replace("_", ".")):
            named[attribute.replace("_", ".")] = str(value)
            continue
        if option is None:
            near = get_close_matches(attribute, names, 1)
            raise StartupError(
                f"unknown configuration: {attribute}{f' (did you mean {near[0]}?)' if near else ''}"
            )
        named[option.name] = value if isinstance(value, str) else option.format(value) or ""
    return named
