"""Clients that mean no good, for every server of HTTP: none of them may keep others from an answer.

with strangers(port, "half a request", 200):
    assert get(port, "/ready") == 200
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# For a machine under heavy load; the answer itself takes milliseconds.
LIMIT_S = 60.0
PAUSE_S = 0.02

Begin = Callable[[socket.socket, str], None]


def _say_nothing(connection: socket.socket, path: str) -> None:
    """Connects, and no more."""


def _half_a_request(connection: socket.socket, path: str) -> None:
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: stranger\r\nX-Half: ".encode())


def _request_without_reading(connection: socket.socket, path: str) -> None:
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: stranger\r\n\r\n".encode())


def _keep_alive(connection: socket.socket, path: str) -> None:
    connection.sendall(b"HEAD / HTTP/1.1\r\nHost: stranger\r\nConnection: keep-alive\r\n\r\n")


def _half_a_body(connection: socket.socket, path: str) -> None:
    _no_body(connection, path)
    connection.sendall(b"x" * 5000)


def _no_body(connection: socket.socket, path: str) -> None:
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10000\r\n\r\n".encode())


def _body_without_end(connection: socket.socket, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.sendall(head.encode() + b"4\r\nhalf\r\n")


def _large_head(connection: socket.socket, path: str) -> None:
    connection.sendall(b"GET / HTTP/1.1\r\nX-Large: " + b"x" * 8000)


KINDS: dict[str, Begin] = {
    "silence": _say_nothing,
    "half a request": _half_a_request,
    "one byte at a time": _say_nothing,
    "half a body": _half_a_body,
    "a body without an end": _body_without_end,
    "one byte of a body at a time": _no_body,
    "a large page that is not read": _request_without_reading,
    "keep-alive": _keep_alive,
    "a large head": _large_head,
}


@contextmanager
def strangers(
    port: int, kind: str, count: int, path: str = "/metrics", *, pause_s: float = PAUSE_S
) -> Iterator[list[socket.socket]]:
    """`count` connections of one kind. Those that the server closes are opened again until the block ends.

    Every `pause_s` the connections are looked at, and those that send bytes one by one send the next.
    """
    done = threading.Event()
    opened = [_opened(port, kind, path) for _ in range(count)]

    def go_on() -> None:
        request = f"GET {path} HTTP/1.1\r\nX-Slow: ".encode() + b"x" * 4000
        trickle = {"one byte at a time": request, "one byte of a body at a time": b"x"}.get(kind, b"")
        sent = 0
        while not done.wait(pause_s):
            for index, connection in enumerate(opened):
                if trickle:
                    with suppress(OSError):
                        connection.send(trickle[sent % len(trickle) :][:1])
                if _is_closed(connection, reads=kind != "a large page that is not read"):
                    connection.close()
                    with suppress(OSError):
                        opened[index] = _opened(port, kind, path)
            sent += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield opened
    finally:
        done.set()
        thread.join()
        for connection in opened:
            connection.close()


def _opened(port: int, kind: str, path: str) -> socket.socket:
    connection = socket.socket()
    # A page that is not read must not fit into the system's buffers.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(LIMIT_S)
    connection.connect(("127.0.0.1", port))
    with suppress(OSError):
        KINDS[kind](connection, path)
    connection.setblocking(False)
    return connection


def _is_closed(connection: socket.socket, *, reads: bool) -> bool:
    flags = 0 if reads else socket.MSG_PEEK
    try:
        return connection.recv(4096, flags) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def get(port: int, path: str) -> tuple[int, bytes]:
    """The status and the body of an answer. Fails if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def slowest_answer_s(port: int, path: str, times: int = 20) -> float:
    """How long the slowest of several answers took. Fails if one is missing."""
    slowest = 0.0
    for _ in range(times):
        began = time.monotonic()
        assert get(port, path)[0] == 200
        slowest = max(slowest, time.monotonic() - began)
    return slowest
