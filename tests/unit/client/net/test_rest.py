"""A large response: how its rest is received, and what else the loop does meanwhile."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from felice.client.error import KafkaError, KafkaException
from felice.client.net import rest
from felice.client.net.connection import Connection
from felice.client.net.loop_thread import LoopThread
from felice.client.security import PLAIN_TEXT, Security
from felice.protocol.frames import encode_response
from felice.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from waiting import LIMIT_S, wait_until

DATA = bytes(range(256)) * 8192
FETCH, VERSION = 1, 12
LONG_MS = int(LIMIT_S * 1000)


def response() -> bytes:
    row = PartitionData(partition_index=0, records=DATA, aborted_transactions=[])
    message = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])
    return encode_response(FETCH, VERSION, 0, message)


class Exchange:
    """A connection on a loop of the client, and its peer, which the test plays."""

    def __init__(self, server: socket.socket) -> None:
        self.reads = 0
        self.thread = LoopThread("felice-test")
        ours = socket.create_connection(server.getsockname())
        ours.setblocking(False)
        self.peer, _ = server.accept()
        self.connection: Connection = self.thread.run(self._open(ours))

    async def _open(self, ours: socket.socket) -> Connection:
        exchange = self

        class Counting(Connection):
            def buffer_updated(self, nbytes: int) -> None:
                exchange.reads += 1
                super().buffer_updated(nbytes)

        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Counting("broker:1", "test"), sock=ours)
        connection.versions.ranges[FETCH] = (VERSION, VERSION)
        return connection

    def call(self, timeout_s: float = LIMIT_S) -> Future[Any]:
        """Send a request, and wait until the peer has it."""
        future: Future[Any] = self.thread.submit(self.connection.call(FetchRequest(), timeout_s))
        assert self.peer.recv(1000)
        return future

    def close(self) -> None:
        self.thread.run(self._close())
        self.thread.stop()
        self.peer.close()

    async def _close(self) -> None:
        self.connection.close()
        await asyncio.sleep(0)


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = Exchange(server)
        yield made
        made.close()


def wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop wait for the rest for as long as it takes on a machine under load."""
    monkeypatch.setattr(rest, "_IDLE_MS", LONG_MS)
    monkeypatch.setattr(rest, "_LIMIT_MS", LONG_MS)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `wait_long`."""
    wait_long(monkeypatch)


def records(found: FetchResponse) -> bytes:
    return bytes(found.responses[0].partitions[0].records or b"")


def failing(call: Future[Any]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        call.result(LIMIT_S)
    error: KafkaError = caught.value.args[0]
    return error


@pytest.mark.usefixtures("patient")
def test_a_large_response_takes_one_event_of_the_loop(exchange: Exchange) -> None:
    call = exchange.call()
    exchange.peer.sendall(response())
    assert records(call.result(LIMIT_S)) == DATA
    assert exchange.reads == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a low-water mark")
def test_the_wait_ends_with_the_last_bytes(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a low-water mark above the size of these bytes the loop would sleep until the limit."""
    whole = response()
    call = exchange.call()
    exchange.peer.sendall(whole[:500_000])
    wait_until(lambda: exchange.connection._low_water._mark > 1)
    wait_long(monkeypatch)
    exchange.peer.sendall(whole[500_000:1_600_000])
    time.sleep(0.05)
    exchange.peer.sendall(whole[1_600_000:])
    assert records(call.result(LIMIT_S / 2)) == DATA


@pytest.mark.parametrize("stopped_at", [3, 4, 100, 70_000, len(DATA) - 100_000, len(DATA)])
def test_a_response_that_stops_on_its_way_is_taken_up_again(exchange: Exchange, stopped_at: int) -> None:
    whole = response()
    call = exchange.call()
    exchange.peer.sendall(whole[:stopped_at])
    wait_until(lambda: exchange.reads)
    # The loop does not wait for the rest alone.
    exchange.thread.run(asyncio.sleep(0.02), LIMIT_S)
    assert not call.done()
    exchange.peer.sendall(whole[stopped_at:])
    assert records(call.result(LIMIT_S)) == DATA


def test_a_request_times_out_while_its_response_is_on_its_way(exchange: Exchange) -> None:
    call = exchange.call(timeout_s=0.05)
    exchange.peer.sendall(response()[:-1])
    assert failing(call).code() == KafkaError._TIMED_OUT


def test_a_connection_can_be_closed_while_a_response_is_on_its_way(exchange: Exchange) -> None:
    call = exchange.call()
    exchange.peer.sendall(response()[:-1])
    wait_until(lambda: exchange.reads)
    exchange.thread.post(exchange.connection.close)
    assert "closed by the client" in failing(call).str()


@pytest.mark.usefixtures("patient")
def test_the_end_of_the_stream_inside_a_response_fails_its_request(exchange: Exchange) -> None:
    call = exchange.call()
    exchange.peer.sendall(response()[:-1])
    exchange.peer.close()
    assert "the broker closed the connection" in failing(call).str()


def test_an_error_inside_a_response_fails_its_request(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    monkeypatch.setattr(rest, "receive", broken)
    call = exchange.call()
    exchange.peer.sendall(response()[:1000])
    error = failing(call)
    assert error.code() == KafkaError._TRANSPORT and error.retriable()
    assert "broker:1: " in error.str() and "Connection reset by peer" in error.str()
    assert exchange.connection.closed


def calls_of_receive(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []

    def receive(descriptor: int, buffer: memoryview, idle_ms: int, limit_ms: int) -> int:
        assert idle_ms <= limit_ms <= 5, "timers and other sockets wait meanwhile"
        sizes.append(len(buffer))
        return 0

    monkeypatch.setattr(rest, "receive", receive)
    return sizes


@pytest.mark.parametrize(("missing_bytes", "is_received"), [(128 * 1024, True), (128 * 1024 - 1, False)])
def test_a_small_rest_is_left_to_the_transport(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch, missing_bytes: int, is_received: bool
) -> None:
    sizes = calls_of_receive(monkeypatch)
    exchange.call(timeout_s=2)
    exchange.peer.sendall((missing_bytes + 10).to_bytes(4, "big") + bytes(10))
    wait_until(lambda: exchange.reads)
    exchange.thread.run(asyncio.sleep(0), LIMIT_S)
    assert sizes == [missing_bytes] * is_received


class FakeSocket:
    """Takes every option."""

    def setsockopt(self, level: int, option: int, value: int) -> None: ...

    def fileno(self) -> int:
        return -1


class WithSocket(asyncio.Transport):
    """A transport that has a socket."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return FakeSocket() if name == "socket" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None: ...


LARGE_SIZE = (1 << 20).to_bytes(4, "big")


async def received(data: bytes, security: Security = PLAIN_TEXT) -> Connection:
    """A connection that has received this."""
    connection = Connection("broker:1", "test", security=security)
    connection.connection_made(WithSocket())
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))
    return connection


def test_a_broken_connection_receives_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = calls_of_receive(monkeypatch)
    response_to_no_request = (4).to_bytes(4, "big") + (5).to_bytes(4, "big")
    thread = LoopThread("felice-test")
    connection = thread.run(received(response_to_no_request + LARGE_SIZE))
    thread.stop()
    assert connection.closed
    assert sizes == []


@pytest.mark.parametrize(
    ("security", "run", "waits"),
    [
        (PLAIN_TEXT, "of the client", True),
        (Security(ssl.create_default_context(), None), "of the client", False),
        (PLAIN_TEXT, "of the application", False),
    ],
)
def test_neither_tls_nor_a_loop_of_the_application_waits(
    monkeypatch: pytest.MonkeyPatch, security: Security, run: str, waits: bool
) -> None:
    sizes = calls_of_receive(monkeypatch)

    loops: dict[str, Callable[[Any], Any]] = {"of the application": asyncio.run}
    thread = LoopThread("felice-test")
    loops["of the client"] = thread.run
    loops[run](received(LARGE_SIZE, security))
    thread.stop()
    assert sizes == [1 << 20] * waits
