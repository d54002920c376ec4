"""`_kernels` in plain Python."""

from __future__ import annotations

import os
import select
import time


def receive(descriptor: int, buffer: bytearray | memoryview, idle_ms: int, limit_ms: int) -> int:
    """Receive from a non-blocking socket until the buffer is full, and return the number of bytes.

    It ends earlier at the end of the stream, after `idle_ms` without bytes, and after `limit_ms`. Raises OSError.
    """
    rest = memoryview(buffer)
    size = len(rest)
    end = time.monotonic() + limit_ms / 1000
    while rest:
        try:
            count = os.readv(descriptor, [rest])
            rest = rest[count:]
            is_over = count == 0
        except BlockingIOError:
            is_over = not _has_bytes(descriptor, idle_ms, end)
        if is_over or time.monotonic() >= end:
            break
    return size - len(rest)


def _has_bytes(descriptor: int, idle_ms: int, end: float) -> bool:
    """Wait for bytes, or the end of the stream; False after `idle_ms` and at `end`."""
    left_ms = max(0.0, (end - time.monotonic()) * 1000)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(min(idle_ms, left_ms)))
