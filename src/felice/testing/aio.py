"""The test broker for coroutines: calls that take time are awaited, and the caller's loop keeps running meanwhile.

The broker runs on a thread and a loop of its own, as `Broker` does; a blocked test cannot stop it.

Keeps true: a cancelled start leaves no broker and no directory that it made. A stop, a kill and a restart that are
            cancelled are carried out first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from felice.client.arguments import takes_lists
from felice.env.forks import Owner
from felice.server.process.embedded import stopping_after
from felice.testing.broker import Broker, Headers, Record, Text
from felice.testing.faults import Faults


@takes_lists
class AsyncBroker:
    """The asynchronous test broker: `async with AsyncBroker() as broker`. Takes the arguments of `Broker`."""

    # The arguments are those of `Broker`, which has their types.
    def __init__(self, *args: Any, **options: Any) -> None:
        self._args = args
        self._options = options
        self._started: Broker | None = None
        self._owner = Owner()

    @property
    def blocking(self) -> Broker:
        """The same broker with its blocking API."""
        self._owner.check("broker")
        if self._started is None:
            raise RuntimeError("the broker was not started: use `async with` or `await broker.start()`")
        return self._started

    @property
    def bootstrap(self) -> str:
        """See `Broker.bootstrap`."""
        return self.blocking.bootstrap

    @property
    def port(self) -> int:
        """See `Broker.port`."""
        return self.blocking.port

    @property
    def data_dir(self) -> Path:
        """See `Broker.data_dir`."""
        return self.blocking.data_dir

    @property
    def faults(self) -> Faults:
        """The faults of this broker; scripting one never blocks."""
        return self.blocking.faults

    async def start(self) -> Self:
        """See `Broker.start`."""
        self._owner.check("broker")
        existed = self._started is not None
        try:
            await _to_the_end(self._start)
        except asyncio.CancelledError:
            # The caller gets no broker from a cancelled start, so nobody else would stop it.
            await _to_the_end(self._end if existed else self._undo)
            raise
        return self

    def _start(self) -> None:
        if self._started is None:
            self._started = Broker(*self._args, **self._options)
        else:
            self._started.start()

    def _undo(self) -> None:
        started, self._started = self._started, None
        if started is not None:
            started.stop()

    def _end(self) -> None:
        """Stops a broker that was started again. Its directory, which is older than this start, stays."""
        self.blocking.kill()

    async def stop(self) -> None:
        """See `Broker.stop`."""
        if self._started is not None and self._owner.is_here:
            await _to_the_end(self._started.stop)

    async def kill(self) -> None:
        """See `Broker.kill`."""
        if self._owner.is_here:
            await _to_the_end(self.blocking.kill)

    async def restart(self) -> None:
        """See `Broker.restart`."""
        await _to_the_end(self.blocking.restart)

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """See `Broker.create_topic`."""
        await asyncio.to_thread(self.blocking.create_topic, name, partitions, configs)

    async def delete_topic(self, name: str) -> None:
        """See `Broker.delete_topic`."""
        await asyncio.to_thread(self.blocking.delete_topic, name)

    async def produce(
        self,
        topic: str,
        value: Text | None,
        *,
        key: Text | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Record:
        """See `Broker.produce`."""
        return await asyncio.to_thread(
            self.blocking.produce,
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )

    async def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """See `Broker.records`."""
        return await asyncio.to_thread(self.blocking.records, topic, partition)

    async def wait_for_records(self, topic: str, count: int, timeout_s: float = 60.0) -> list[Record]:
        """See `Broker.wait_for_records`."""
        return await asyncio.to_thread(self.blocking.wait_for_records, topic, count, timeout_s)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with stopping_after(error):
            await self.stop()


async def _to_the_end(work: Callable[[], None]) -> None:
    """Runs `work` on a thread, and returns when it has ended. A cancellation that comes earlier is raised then."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if (failure := running.exception()) is not None:
            cancelled.add_note(f"It failed, too: {type(failure).__name__}: {failure}")
        raise cancelled
    running.result()
