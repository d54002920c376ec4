"""A simulated TCP connection: its two ends, and the bytes in flight between them.

Keeps true: the bytes of one direction arrive in order, complete and once, or the connection ends. A reader that pauses
            stops its writer once the window between them is full.
How:        each direction is a `Wire`: pieces with a time of arrival. A blocked direction holds its pieces, as TCP does
            by retransmission, until it is unblocked or one side times out.
Leaves:     which directions are blocked or slow, and which machines are up, to `network`.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import zlib
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from felice.env.listening import ProtocolFactory
from felice.testing.simulation.loop import SimLoop
from felice.testing.simulation.process import Process

# The work of a machine's kernel continues while its processes are dead or stopped.
_KERNEL = contextvars.Context()

Trace = Callable[[str], None]


class Carrier(Protocol):
    """The network, as far as connections use it. Machines are named by their hosts."""

    loop: SimLoop
    random: Random
    trace: Trace

    def is_up(self, host: str) -> bool:
        """Whether the machine runs."""
        ...

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether pieces from `source` to `target` are held now."""
        ...

    def delay_s(self, source: str, target: str) -> float:
        """The delay of the next piece, in seconds."""
        ...

    def next_number(self) -> int:
        """A number for a new direction."""
        ...

    def add(self, wire: Wire) -> None:
        """Registers a direction of a connection."""
        ...

    def forget(self, wire: Wire) -> None:
        """Removes a direction in which nothing more can arrive."""
        ...


class _Fin:
    """The end of stream, in order after the bytes."""


_FIN = _Fin()


class Wire:
    """What is in flight from one end of a connection to the other, in order."""

    def __init__(self, network: Carrier, source: SimTransport, target: SimTransport) -> None:
        self.number = network.next_number()
        self.source = source
        self._target = target
        self._network = network
        self._pieces: deque[tuple[float, bytes | _Fin]] = deque()
        self._last_arrival_s = 0.0
        self._is_due = False
        self._has_missed = False

    def put(self, piece: bytes | _Fin) -> None:
        """Sends a piece, which arrives after a delay and never before the pieces sent earlier."""
        network = self._network
        arrival_s = network.loop.time() + network.delay_s(self.source.host, self._target.host)
        self._last_arrival_s = max(self._last_arrival_s, arrival_s)
        self._pieces.append((self._last_arrival_s, piece))
        self.go_on()

    def go_on(self) -> None:
        """Waits for the arrival of the next piece, unless it does already."""
        if not self._is_due and self._pieces:
            self._is_due = True
            self._network.loop.call_at(self._pieces[0][0], self._arrive, context=_KERNEL)

    def clear(self) -> None:
        """Loses everything in flight, for ever."""
        self._pieces.clear()
        self._network.forget(self)

    def _arrive(self) -> None:
        self._is_due = False
        if self._network.is_blocked(self.source.host, self._target.host):
            return  # `unblock` continues
        now = self._network.loop.time()
        while self._pieces and self._pieces[0][0] <= now:
            _, piece = self._pieces.popleft()
            if self._network.is_up(self._target.host):
                self._target.receive(piece)
            else:
                self._has_missed = True
        if not self._pieces and not self.source.is_open:
            self._network.forget(self)
        self.go_on()

    def on_power(self, host: str) -> None:
        """Retransmit what was sent while the machine was down; no process there has the connection, so it is reset."""
        if self._has_missed and self._target.host == host:
            self._has_missed = False
            self._target.reset_other_end()


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: Carrier,
        process: Process,
        address: tuple[str, int],
        peer: tuple[str, int],
        window_bytes: int,
        *,
        is_caller: bool,
    ) -> None:
        super().__init__({"peername": peer, "sockname": address})
        self.host = address[0]
        self.process = process
        self.is_caller = is_caller
        self.is_open = True
        self.other: SimTransport
        self.number = 0
        self._network = network
        self._wire: Wire
        self._window_bytes = window_bytes
        self._unread_bytes = 0
        self._buffer = bytearray()
        self._received: deque[bytes | _Fin] = deque()
        self._protocol: asyncio.BaseProtocol | None = None
        self._is_reading = True
        self._is_closing = False
        self._is_paused_writing = False
        self._high_bytes = 64 * 1024
        self._low_bytes = 16 * 1024

    # Beginning

    def join(self, other: SimTransport) -> None:
        """Connects this end's outgoing direction to the other end."""
        self.other = other
        self._wire = Wire(self._network, self, other)
        self._network.add(self._wire)
        self.number = self._wire.number

    def begin(self, factory: ProtocolFactory) -> None:
        """Create the protocol of an accepted connection, in the context of its process."""
        self._network.loop.call_soon(
            lambda: self.attach(factory()) if self.is_open else None, context=self.process.context.copy()
        )

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Gives the protocol the connection, then the bytes that have arrived."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._feed()

    # Writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends what the window has room for, and buffers the rest; above the high limit it pauses the protocol."""
        if not self.is_open or self._is_closing or not data:
            return
        self._buffer += data
        self._send()
        if len(self._buffer) > self._high_bytes and not self._is_paused_writing:
            self._is_paused_writing = True
            self._protocol.pause_writing()  # type: ignore[union-attr]

    def _send(self) -> None:
        room = self._window_bytes - self._unread_bytes
        # Not in small pieces (RFC 1122): each would be cut again, until single bytes travel.
        if not self._buffer or room < min(len(self._buffer), self._window_bytes // 4):
            return
        data = bytes(self._buffer[:room])
        del self._buffer[:room]
        self._unread_bytes += len(data)
        for piece in self._pieces(data):
            self._wire.put(piece)

    def _pieces(self, data: bytes) -> list[bytes]:
        """Cut data at random places, rarely: a frame may arrive in parts, and its last part never."""
        random = self._network.random
        if len(data) < 2 or random.random() < 0.8:
            return [data]
        at = random.randrange(1, len(data))
        return [data[:at], data[at:]]

    def _on_read(self, size_bytes: int) -> None:
        """Called when the other end has read bytes from the window."""
        if not self.is_open:
            return
        self._unread_bytes -= size_bytes
        self._send()
        if self._is_paused_writing and len(self._buffer) <= self._low_bytes:
            self._is_paused_writing = False
            self._protocol.resume_writing()  # type: ignore[union-attr]
        if self._is_closing and not self._buffer:
            self._finish(None)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for room in the window."""
        return len(self._buffer)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The low and high limits of the buffer, in bytes."""
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Sets the limits with the defaults of asyncio."""
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        self._high_bytes = high
        self._low_bytes = high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        """False: half-closed connections are not simulated."""
        return False

    # Reading

    def receive(self, piece: bytes | _Fin) -> None:
        """Receive a piece at this machine, which is up."""
        if self.is_open:
            self._received.append(piece)
            if len(self._received) == 1:
                self._network.loop.call_soon(self._feed, context=self.process.context.copy())
        elif self.other.is_open:
            self.reset_other_end()

    def reset_other_end(self) -> None:
        """Reset the connection: no process has it any more, and the kernel says so."""
        delay_s = self._network.delay_s(self.host, self.other.host)
        self._network.loop.call_later(delay_s, self.other.reset, context=_KERNEL)

    def _feed(self) -> None:
        while self._received and self._is_reading and self.is_open and self._protocol is not None:
            if self._is_closing:
                self._received.clear()
                return
            piece = self._received.popleft()
            if isinstance(piece, _Fin):
                if not self._protocol.eof_received():  # type: ignore[attr-defined]
                    self.close()
                return
            self._network.trace(f"{self.number} {len(piece)} {zlib.crc32(piece):08x}")
            self._acknowledge(len(piece))
            self._hand_over(piece)

    def _acknowledge(self, size_bytes: int) -> None:
        other = self.other
        self._network.loop.call_soon(other._on_read, size_bytes, context=other.process.context.copy())

    def _hand_over(self, piece: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(piece)
            while view and self.is_open:
                buffer = memoryview(protocol.get_buffer(len(view)))
                size = min(len(buffer), len(view))
                buffer[:size] = view[:size]
                protocol.buffer_updated(size)
                view = view[size:]
        else:
            protocol.data_received(piece)  # type: ignore[union-attr]

    def pause_reading(self) -> None:
        """Keeps arrived bytes until `resume_reading`; the window fills up meanwhile."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Passes on the bytes that have arrived, in the next turn of the loop."""
        if not self._is_reading:
            self._is_reading = True
            self._network.loop.call_soon(self._feed)

    def is_reading(self) -> bool:
        """Whether arriving bytes go to the protocol."""
        return self._is_reading and not self._is_closing

    # Ending

    def is_closing(self) -> bool:
        """Whether the connection is closed or will be after the last bytes are sent."""
        return self._is_closing or not self.is_open

    def close(self) -> None:
        """Close after everything written has been sent."""
        if self._is_closing or not self.is_open:
            return
        self._is_closing = True
        if not self._buffer:
            self._finish(None)

    def abort(self) -> None:
        """Closes at once and drops unsent bytes; the other end sees an end of stream."""
        if self.is_open:
            self._buffer.clear()
            self._is_closing = True
            self._finish(None)

    def reset(self) -> None:
        """End the connection after a reset by the other end or by the network."""
        if self.is_open:
            self._wire.clear()
            self._finish(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def close_by_kernel(self) -> None:
        """Close after the end of the process: what it has written is still sent, then the end of stream."""
        if self.is_open:
            self._buffer.clear()
            self._let_go()
            self._wire.put(_FIN)

    def vanish(self) -> None:
        """End after a power failure: nothing more is sent, and the other end hears nothing."""
        self._let_go()
        self._network.forget(self._wire)

    def _finish(self, error: Exception | None) -> None:
        self._let_go()
        if error is None:
            self._wire.put(_FIN)
        protocol = self._protocol
        if protocol is not None:
            self._network.loop.call_soon(protocol.connection_lost, error, context=self.process.context.copy())

    def _let_go(self) -> None:
        self.is_open = False
        self._is_closing = True
        self._received.clear()

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that receives the bytes."""
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Passes bytes to another protocol from now on."""
        self._protocol = protocol
