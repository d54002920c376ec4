"""A proxy before a broker that stops answering, in each way in which networks and brokers do.

Keeps true:  Requests and responses pass unchanged and in order until the `Fault` in force applies to a request of a
             connection. From then on that connection stays as the fault left it: a new fault does not repair it.
How:         The broker must advertise the proxy's address, so that its clients come back to the proxy: `behind`
             starts such a broker. One thread runs the event loop of all proxies.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from felice.env.ports import free_ports
from felice.protocol.api import API
from felice.testing import Broker

SILENT = "silent"
"""Requests are received, and never answered."""
DEAF = "deaf"
"""Nothing is received any more: the connection is open, and the sender's buffers fill."""
TRUNCATED = "truncated"
"""The response stops in its middle, and the connection stays open."""
CUT = "cut"
"""The connection is closed instead of an answer."""
HALF_CLOSED = "half-closed"
"""The proxy closes its direction of the connection, and goes on receiving."""
SLOW = "slow"
"""Each response comes `seconds` later."""
REFUSED = "refused"
"""New connections are closed at once."""
KINDS = (SILENT, DEAF, TRUNCATED, CUT, HALF_CLOSED, SLOW)

_FAMILY_KEY = struct.Struct(">hhi")


@dataclass(frozen=True)
class Fault:
    """What happens to a request: to all, to those of one API (`api`), to those of all APIs except some (`but`), or to
    those after the first `after` of all.

    `after` counts the requests that applied so far on all connections. With the default the fault applies at once.
    """

    kind: str
    api: str | None = None
    but: tuple[str, ...] = ()
    after: int = 0
    seconds: float = 0.0


@dataclass(eq=False)
class _Link:
    """One connection of a client, and its connection to the broker."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    # The faults of the requests whose responses have not come yet, by correlation id.
    due: dict[int, Fault] = field(default_factory=dict)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    def close(self) -> None:
        for writer in (self.client, self.broker):
            if writer.transport is not None:
                writer.transport.abort()


class Proxy:
    """`with Proxy(port_of_the_broker) as proxy: proxy.fault = Fault(SILENT)`; `repair` ends a fault.

    `requests` counts the requests that arrived, by the name of their API.
    """

    def __init__(self, target_port: int, port: int | None = None) -> None:
        self.port = port or free_ports(1)[0]
        self.requests: Counter[str] = Counter()
        self.connections = 0
        self.fault: Fault | None = None
        self._target = target_port
        self._applied = 0
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def bootstrap(self) -> str:
        """The address, for `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        self._cut_links()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def set(self, fault: Fault) -> None:
        """Put a fault in force, also for open connections."""
        self._applied = 0
        self.fault = fault

    def repair(self) -> None:
        """End the fault. Connections that it has damaged are cut, as if the broker had restarted."""
        self.fault = None
        self.cut()

    def cut(self) -> None:
        """Close all connections now."""

        async def cut() -> None:
            self._cut_links()

        self._run(cut())

    def _cut_links(self) -> None:
        for link in [*self._links]:
            link.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        if self.fault is not None and self.fault.kind == REFUSED:
            writer.transport.abort()
            return
        try:
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, to_broker)
        self._links.add(link)
        answers = asyncio.create_task(self._pass_responses(link, from_broker))
        try:
            await self._pass_requests(link, reader)
        except (OSError, asyncio.IncompleteReadError):
            link.close()
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            link.close()
            self._links.discard(link)

    async def _pass_requests(self, link: _Link, reader: asyncio.StreamReader) -> None:
        while True:
            frame = await _frame(reader)
            key, _, correlation = _FAMILY_KEY.unpack_from(frame, 4)
            name = _name(key)
            self.requests[name] += 1
            fault = self._fault_of(name)
            if fault is None or fault.kind in (TRUNCATED, SLOW):
                if fault is not None:
                    link.due[correlation] = fault
                link.broker.write(frame)
                await link.broker.drain()
            elif fault.kind == CUT:
                link.close()
            elif fault.kind == DEAF:
                link.stopped.set()
                await asyncio.Event().wait()
            elif fault.kind == HALF_CLOSED:
                link.client.write_eof()
            else:
                link.stopped.set()

    def _fault_of(self, name: str) -> Fault | None:
        fault = self.fault
        if fault is None or fault.api not in (None, name) or name in fault.but:
            return None
        self._applied += 1
        return fault if self._applied > fault.after else None

    async def _pass_responses(self, link: _Link, from_broker: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(from_broker)
                (correlation,) = struct.unpack_from(">i", frame, 4)
                fault = link.due.pop(correlation, None)
                if link.stopped.is_set():
                    continue
                if fault is not None and fault.kind == TRUNCATED:
                    link.client.write(frame[: max(5, len(frame) // 2)])
                    link.stopped.set()
                    continue
                if fault is not None:
                    await asyncio.sleep(fault.seconds)
                link.client.write(frame)
                await link.client.drain()
        link.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


def _name(key: int) -> str:
    api = API.by_key.get(key)
    return str(key) if api is None else api.name


@contextlib.contextmanager
def behind(**broker: Any) -> Iterator[tuple[Broker, Proxy]]:
    """A broker that advertises the address of the proxy before it. Keywords as for `felice.testing.Broker`."""
    (port,) = free_ports(1)
    properties = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        **broker.pop("properties", {}),
    }
    with Broker(properties=properties, **broker) as running, Proxy(running.port, port) as proxy:
        yield running, proxy


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """The address of a listener whose system accepts connections, and nobody reads them: as a paused broker."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
