"""Limits how much work of TLS handshakes one turn of the event loop does.

Keeps true: however many clients begin handshakes at once, one turn of the event loop does at most `_STEPS_IN_ONE_TURN`
            steps of handshakes. Between these turns all other connections are served.
How:        OpenSSL continues a handshake only when bytes arrive. A socket whose handshake is in progress reports that
            nothing has arrived while the steps of this turn are used up. The bytes stay in the kernel, so the event
            loop finds the socket readable again in its next turn.
Leaves:     the number of handshakes in progress, and the time that one may take, to `listening`.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

# The step that answers a client's first message signs with the private key, which takes 1 to 2 ms with RSA.
_STEPS_IN_ONE_TURN: Final = 4


class HandshakeSteps:
    """Counts the steps of handshakes in this turn of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = _STEPS_IN_ONE_TURN

    def take(self) -> bool:
        """Counts one step. False if this turn has no steps left."""
        if not self._left:
            return False
        if self._left == _STEPS_IN_ONE_TURN:
            # The loop calls this in its next turn, before it reads from any socket.
            self._loop.call_soon(self._renew)
        self._left -= 1
        return True

    def _renew(self) -> None:
        self._left = _STEPS_IN_ONE_TURN


class HandshakeSocket(socket.socket):
    """An accepted connection. Until `end_handshake` it receives bytes only if this turn has a step left."""

    def __init__(self, accepted: socket.socket, steps: HandshakeSteps) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self.setblocking(False)
        self._steps: HandshakeSteps | None = steps

    def recv_into(self, *args: Any) -> int:
        """Called by asyncio when the socket is readable. Raises `BlockingIOError` if there is no step left."""
        if self._steps is not None and not self._steps.take():
            raise BlockingIOError
        return super().recv_into(*args)

    def end_handshake(self) -> None:
        """Lets the connection receive without limit: its handshake is complete."""
        self._steps = None
