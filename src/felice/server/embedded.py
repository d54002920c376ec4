"""A broker inside the caller's process, on a thread of its own: for tests, the demo and benchmarks.

    with EmbeddedBroker("data") as broker:
        Producer({"bootstrap.servers": broker.bootstrap})

It is the whole broker on real sockets, bound to 127.0.0.1, with the settings of Kafka's
development configuration (a first rebalance does not wait for more members).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from felice.config import BROKER_OPTIONS, BrokerConfig
from felice.env import Environment
from felice.server.broker import Broker
from felice.server.handlers.table import Handle
from felice.server.startup import StartupError

HOST = "127.0.0.1"
DEVELOPMENT_SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
_STOP_TIMEOUT_S = 30.0

T = TypeVar("T")


class EmbeddedBroker:
    """Starts when made (or raises `StartupError`), stops with `stop` or at the end of `with`.

    Overrides are broker options by their attribute (`num_partitions=3`) or, in `properties`,
    by their name (`{"num.partitions": "3"}`). Port 0 takes a free port.
    """

    def __init__(
        self,
        data_dir: str | Path,
        port: int = 0,
        *,
        properties: Mapping[str, str] | None = None,
        env: Environment | None = None,
        handlers: Mapping[int, Handle] | None = None,
        **overrides: Any,
    ) -> None:
        config = embedded_config(data_dir, port, {**(properties or {}), **_named(overrides)})
        self.broker: Broker
        self._config = config
        self._env = env or Environment.system()
        self._handlers = handlers
        self._is_killed = False
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="felice-broker", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    @property
    def port(self) -> int:
        return self.broker.port()

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def stop(self) -> None:
        """Stops cleanly; a second call does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(_STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Stops as a killed process would: connections are cut, and the next start on this directory recovers."""
        self._is_killed = True
        self.stop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns that runs on the broker's own loop, where its state may be touched."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # told to the caller's thread, which raises it
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.broker = Broker(self._config, self._env, self._handlers)
        await self.broker.start()
        self._started.set()
        await self._stopping.wait()
        await (self.broker.kill() if self._is_killed else self.broker.stop())


def embedded_config(data_dir: str | Path, port: int, properties: Mapping[str, str]) -> BrokerConfig:
    """The configuration of a broker for one machine: unknown names are refused."""
    listener = f"PLAINTEXT://{HOST}:{port}"
    settings = {"listeners": listener, "log.dirs": str(data_dir), **DEVELOPMENT_SETTINGS, **properties}
    config, unknown = BrokerConfig.parse(settings)
    if unknown:
        raise StartupError(f"unknown configuration: {', '.join(sorted(unknown))}")
    return config


def _named(overrides: Mapping[str, Any]) -> dict[str, str]:
    names = {option.attribute: option for option in BROKER_OPTIONS.values()}
    named = {}
    for attribute, value in overrides.items():
        option = names.get(attribute)
        if option is None:
            raise StartupError(f"unknown configuration: {attribute}")
        named[option.name] = value if isinstance(value, str) else option.format(value) or ""
    return named
