"""Lets the kernel collect large parts of a response before it wakes the event loop (SO_RCVLOWAT).

Keeps true:  The loop is woken when as much has arrived as was expected, or the connection ends, or the kernel has no
             room for more. A frame that is nearly complete never waits for bytes of the next one.
How:         A wake-up costs two system calls, and up to twice the interpreter's switch interval (5 ms) while another
             thread is busy. Without this, one comes for each 64 to 200 KB.
"""

from __future__ import annotations

import contextlib
import socket
import sys

MOST_BYTES = 1 << 20
LEAST_BYTES = 128 * 1024
# Only on Linux is it certain that a full receive buffer wakes the reader even below the mark.
_IS_SUPPORTED = sys.platform == "linux"


class LowWater:
    """The low-water mark of one socket; None for a socket means that there is nothing to set."""

    def __init__(self, sock: socket.socket | None = None) -> None:
        self._socket = sock if _IS_SUPPORTED else None
        self._mark = 1

    def lower(self) -> bool:
        """Let the bytes that have arrived wake the loop, however few. Returns False if they do so already."""
        was_raised = self._mark > 1
        self.expect(0)
        return was_raised

    def expect(self, missing_bytes: int) -> None:
        """`missing_bytes` of a frame are still to come; 0 if no frame is incomplete."""
        mark = min(missing_bytes, MOST_BYTES) if missing_bytes >= LEAST_BYTES else 1
        if mark != self._mark and self._socket is not None:
            self._mark = mark
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)
            except OSError:
                self._give_up()

    def _give_up(self) -> None:
        """The mark only saves wake-ups: a system that refuses it, or a closed socket, must not end the connection."""
        sock, self._socket, self._mark = self._socket, None, 1
        with contextlib.suppress(OSError):
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
