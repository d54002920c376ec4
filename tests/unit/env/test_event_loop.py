"""A broker's loop reads from a few ready sockets at a time, and from each of them in its turn."""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys
from collections import Counter
from pathlib import Path

import pytest

from felice.env import event_loop
from felice.server.process.embedded import EmbeddedBroker

_SOCKETS = 4 * event_loop.SOCKETS_IN_ONE_PASS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has epoll")


async def _reads_in_passes(passes: int) -> list[list[int]]:
    """The sockets that were read in each pass of the loop. Each socket is ready again as soon as it is read."""
    loop = asyncio.get_running_loop()
    pairs = [socket.socketpair() for _ in range(_SOCKETS)]
    reads: list[list[int]] = [[]]

    def read(number: int) -> None:
        near, far = pairs[number]
        near.recv(1)
        far.send(b"x")
        reads[-1].append(number)

    for number, (near, far) in enumerate(pairs):
        far.send(b"x")
        loop.add_reader(near.fileno(), read, number)
    for _ in range(passes):
        await asyncio.sleep(0)
        reads.append([])
    for near, far in pairs:
        loop.remove_reader(near.fileno())
        near.close()
        far.close()
    return reads


def test_a_pass_reads_from_few_sockets() -> None:
    reads = event_loop.run(_reads_in_passes(12))
    assert max(map(len, reads)) == event_loop.SOCKETS_IN_ONE_PASS


def test_no_socket_waits_for_sockets_that_are_ready_again() -> None:
    reads = event_loop.run(_reads_in_passes(12))
    counts = Counter(number for read in reads for number in read)
    assert len(counts) == _SOCKETS
    assert max(counts.values()) - min(counts.values()) <= 1


def test_an_idle_loop_sleeps_even_if_a_socket_without_reader_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes: list[object] = []
    select = selectors.EpollSelector.select

    def counted(selector: selectors.EpollSelector, timeout: float | None = None) -> object:
        passes.append(timeout)
        return select(selector, timeout)

    async def idle() -> None:
        near, far = socket.socketpair()
        with near, far:
            far.send(b"x")
            loop = asyncio.get_running_loop()
            loop.add_reader(near.fileno(), lambda: None)
            loop.remove_reader(near.fileno())
            passes.clear()
            await asyncio.sleep(0.2)

    monkeypatch.setattr(selectors.EpollSelector, "select", counted)
    event_loop.run(idle())
    assert len(passes) < 10


def test_a_broker_runs_on_such_a_loop(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        reads = broker.run(_reads_in_passes(12))
    assert max(map(len, reads)) <= event_loop.SOCKETS_IN_ONE_PASS
