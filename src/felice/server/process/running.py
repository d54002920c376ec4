"""Runs brokers until a signal stops them, or until a broker cannot continue."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from felice.config import BrokerConfig
from felice.env import Environment, event_loop
from felice.env.descriptors import raise_limit
from felice.env.malloc import keep_freed_memory
from felice.env.service_manager import ServiceManager
from felice.server.broker import Broker
from felice.server.startup import BrokerFailed

if TYPE_CHECKING:
    from felice.server.membership.store_sources import StoreSource
    from felice.server.process.companion import Companion
    from felice.server.process.local_cluster import LocalCluster
    from felice.server.process.process_group import ProcessGroup


def run(
    config: BrokerConfig,
    *,
    on_ready: Callable[[Broker], None] | None = None,
    store_source: StoreSource | None = None,
    env: Environment | None = None,
    companion: Companion | None = None,
) -> None:
    """Runs a broker until SIGTERM or SIGINT. Raises `StartupError`, or `BrokerFailed` if the broker had to stop.

    `env` is the real machine by default. `companion` runs from `on_ready` until the broker stops.
    """
    broker = Broker(config, env or Environment.system(), store_source=store_source)

    async def start() -> list[Broker]:
        await broker.start()
        return [broker]

    manager = ServiceManager()
    event_loop.run(
        _serve(
            start,
            broker.stop,
            lambda: on_ready(broker) if on_ready is not None else None,
            manager,
            companion,
        )
    )


def run_cluster(
    cluster: LocalCluster, *, on_ready: Callable[[], None], companion: Companion | None = None
) -> None:
    """Runs all brokers of a cluster until a signal, as `run` does."""

    async def start() -> list[Broker]:
        await cluster.start()
        return list(cluster.brokers.values())

    event_loop.run(_serve(start, cluster.stop, on_ready, ServiceManager(), companion))


def run_processes(
    group: ProcessGroup, *, on_ready: Callable[[], None], companion: Companion | None = None
) -> None:
    """Runs the broker processes of a group until a signal, as `run` does."""

    async def start() -> list[Broker]:
        await group.start()
        return []

    event_loop.run(_serve(start, group.stop, on_ready, ServiceManager(), companion))


async def _serve(
    start: Callable[[], Awaitable[list[Broker]]],
    stop: Callable[[], Awaitable[None]],
    on_ready: Callable[[], None],
    manager: ServiceManager,
    companion: Companion | None = None,
) -> None:
    raise_limit()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_serving() -> None:
        loop.call_soon_threadsafe(stopping.set)

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stopping.set)
    brokers = await _started(start, stopping)
    if brokers is None:
        return
    for broker in brokers:
        broker.lifecycle.on_failure = stop_serving
        if broker.lifecycle.failure is not None:
            stopping.set()
    keep_freed_memory()
    # The objects that exist now stay, so the garbage collector need not visit them again.
    gc.freeze()
    on_ready()
    manager.ready("serving")
    if companion is not None:
        companion.start()
    await stopping.wait()
    manager.stopping()
    if companion is not None:
        await companion.stop()
    await stop()
    manager.stopped()
    for broker in brokers:
        if broker.lifecycle.failure is not None:
            raise BrokerFailed(broker.lifecycle.failure)


async def _started(
    start: Callable[[], Awaitable[list[Broker]]], stopping: asyncio.Event
) -> list[Broker] | None:
    """Returns the result of `start`, or None if a signal came first.

    A start may wait long for ZooKeeper, or for the session of the previous incarnation to expire.
    """
    starting = asyncio.ensure_future(start())
    asked = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    return None if starting.cancelled() else starting.result()
