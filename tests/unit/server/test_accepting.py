"""Clients that connect all at once while the event loop is busy."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
from contextlib import ExitStack
from pathlib import Path

from felice.env import Environment
from felice.server.broker import Broker
from felice.server.process.embedded import embedded_config

_CLIENTS = 500
_SYSTEM_LIMIT = Path("/proc/sys/net/core/somaxconn")


def _connect(port: int, opened: ExitStack) -> socket.socket:
    client = opened.enter_context(socket.socket())
    client.setblocking(False)
    assert client.connect_ex(("127.0.0.1", port)) in (0, errno.EINPROGRESS)
    return client


def test_hundreds_of_clients_connect_while_the_event_loop_does_other_work(tmp_path: Path) -> None:
    """The system would let a client that finds the queue full try again a second later, then after longer pauses."""
    system_limit = int(_SYSTEM_LIMIT.read_text()) if _SYSTEM_LIMIT.exists() else 128
    expected = min(_CLIENTS, system_limit)

    async def connected() -> int:
        broker = Broker(embedded_config(tmp_path, 0, {}), Environment.system())
        await broker.start()
        try:
            with ExitStack() as opened:
                # Without an `await` the broker cannot accept any of them.
                clients = [_connect(broker.listeners[0].port, opened) for _ in range(expected)]
                return len(select.select([], clients, [], 0.5)[1])
        finally:
            await broker.kill()

    assert asyncio.run(connected()) == expected
