"""Receives the rest of a large response in one wait without the interpreter's lock.

Keeps true:  The loop waits for bytes at most `_LIMIT_MS`, and `_IDLE_MS` if none come. Then it serves its timers and
             its other sockets. An application's own loop does not wait at all.
Why:         A thread that computes gives the interpreter's lock away only every 5 ms (`sys.getswitchinterval`). The
             loop needed it twice for each megabyte, so a response stayed incomplete while the program was busy.
"""

from __future__ import annotations

import os
import select

from felice.client.net.loop_thread import runs_here
from felice.client.net.low_water import LEAST_BYTES
from felice.client.net.outbox import HasFileno
from felice.env.kernels import receive
from felice.protocol.connection import FrameReader

_IDLE_MS = 2
_LIMIT_MS = 5
_is_supported = hasattr(os, "readv") and hasattr(select, "poll")


class RestReceiver:
    """For one connection. `sock` is its socket if the bytes come as they are, without TLS."""

    def __init__(self, sock: HasFileno | None = None) -> None:
        self._socket = sock if _is_supported and runs_here() else None

    def is_wanted(self, reader: FrameReader) -> bool:
        """True if much of a frame is missing, and the loop may wait for it."""
        return self._socket is not None and reader.missing_bytes >= LEAST_BYTES

    def receive(self, reader: FrameReader) -> int:
        """Receive more of the frame, and return the number of bytes. Raises OSError."""
        assert self._socket is not None
        return receive(self._socket.fileno(), reader.get_buffer(), _IDLE_MS, _LIMIT_MS)
