"""A gate before a server that keeps its data in memory: closing it is to clients what the death of the server is."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self

from peers.apache_kafka import free_port


class Gate:
    """Passes connections to a port on, until `kill` breaks all of them and refuses new ones. `start` opens it again."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = free_port()
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Opens the gate."""
        listener = socket.create_server(("127.0.0.1", self.port))
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def kill(self) -> None:
        """Closes the gate: what is on its way is lost."""
        listener, self._listener = self._listener, None
        with self._lock:
            for one in (*self._open, *([listener] if listener is not None else [])):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with self._lock:
                if self._listener is not listener:
                    client.close()
                    server.close()
                    return
                self._open |= {client, server}
            for ends in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=ends, daemon=True).start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
