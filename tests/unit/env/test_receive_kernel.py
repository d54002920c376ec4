"""Receiving in one call that waits: the compiled function and its twin."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from felice.env.kernels import plain
from waiting import LIMIT_S

_kernels = pytest.importorskip("felice.env.kernels._kernels", reason="the extension was not built")

Receive = Callable[[int, bytearray | memoryview, int, int], int]
LONG_MS = int(LIMIT_S * 1000)


@pytest.fixture(params=[plain.receive, _kernels.receive], ids=["plain", "compiled"])
def receive(request: pytest.FixtureRequest) -> Receive:
    found: Receive = request.param
    return found


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A socket that receives without blocking, and its peer."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as ours:
        ours.connect(server.getsockname())
        ours.setblocking(False)
        peer, _ = server.accept()
        with peer:
            yield ours, peer


Ends = tuple[socket.socket, socket.socket]


def test_a_buffer_is_filled_from_what_comes_in_parts_while_the_call_waits(
    receive: Receive, ends: Ends
) -> None:
    ours, peer = ends
    data = bytes(range(256)) * 8192
    go_on = threading.Event()

    def send() -> None:
        peer.sendall(data[:1000])
        go_on.wait(0.02)
        peer.sendall(data[1000:] + b"next")

    # The peer needs the interpreter's lock while the call waits.
    thread = threading.Thread(target=send)
    thread.start()
    buffer = bytearray(len(data) + 10)
    assert receive(ours.fileno(), memoryview(buffer)[5:-5], LONG_MS, LONG_MS) == len(data)
    thread.join()
    assert buffer == bytes(5) + data + bytes(5)
    ours.settimeout(LIMIT_S)
    assert ours.recv(100) == b"next"


def test_the_call_ends_when_nothing_comes(receive: Receive, ends: Ends) -> None:
    ours, peer = ends
    assert receive(ours.fileno(), bytearray(10), 1, LONG_MS) == 0
    peer.sendall(b"abc")
    buffer = bytearray(10)
    assert receive(ours.fileno(), buffer, 20, LONG_MS) == 3
    assert buffer == b"abc" + bytes(7)


def test_the_call_ends_at_its_limit_though_bytes_come(receive: Receive, ends: Ends) -> None:
    ours, peer = ends
    is_over = threading.Event()

    def drip() -> None:
        while not is_over.wait(0.001):
            peer.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    size = 1 << 20
    assert receive(ours.fileno(), bytearray(size), LONG_MS, 20) < size
    is_over.set()
    thread.join()


def test_the_limit_holds_though_each_read_finds_bytes(monkeypatch: pytest.MonkeyPatch, ends: Ends) -> None:
    monkeypatch.setattr(os, "readv", lambda descriptor, buffers: 1)
    assert plain.receive(ends[0].fileno(), bytearray(10), LONG_MS, 0) == 1


def test_the_limit_holds_when_nothing_comes(receive: Receive, ends: Ends) -> None:
    assert receive(ends[0].fileno(), bytearray(10), 100 * LONG_MS, 5) == 0


def test_the_end_of_the_stream_ends_the_call(receive: Receive, ends: Ends) -> None:
    ours, peer = ends
    peer.sendall(b"abc")
    peer.close()
    assert receive(ours.fileno(), bytearray(10), LONG_MS, LONG_MS) == 3
    assert receive(ours.fileno(), bytearray(10), LONG_MS, LONG_MS) == 0


def test_a_reset_is_an_error(receive: Receive, ends: Ends) -> None:
    ours, peer = ends
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    with pytest.raises(ConnectionResetError):
        receive(ours.fileno(), bytearray(10), LONG_MS, LONG_MS)


def test_a_closed_descriptor_is_an_error(receive: Receive) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        receive(-1, bytearray(10), LONG_MS, LONG_MS)


def test_an_empty_buffer_needs_no_byte(receive: Receive, ends: Ends) -> None:
    assert receive(ends[0].fileno(), bytearray(), LONG_MS, LONG_MS) == 0


def test_memory_that_cannot_be_written_is_refused(ends: Ends) -> None:
    fixed: bytes = b"0123456789"
    with pytest.raises((BufferError, TypeError)):
        _kernels.receive(ends[0].fileno(), fixed, 1, 1)


SCRIPT = """
import sys, types
if sys.argv[1] == "old":
    sys.modules["felice.env.kernels._kernels"] = types.ModuleType("_kernels")
from felice.env import kernels
print(kernels.IMPLEMENTATION)
"""


@pytest.mark.parametrize(
    ("argument", "pure", "found", "warned"),
    [("", "0", "compiled", False), ("", "1", "plain", False), ("old", "0", "plain", True)],
)
def test_the_implementation_is_chosen(
    tmp_path: Path, argument: str, pure: str, found: str, warned: bool
) -> None:
    command = [sys.executable, "-c", SCRIPT, argument]
    environment = {**os.environ, "FELICE_PURE": pure}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == found
    assert ("RuntimeWarning: the compiled receiver" in done.stderr) is warned
