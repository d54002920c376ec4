"""The memory of delivered batches, kept for the next ones.

Keeps true:  A buffer is reused only when nothing reads it: its batch was sent once, acknowledged, and its reports were
             decoded; and no view of it exists, such as one that waits in a transport. The kept memory has a bound.
Why:         The C library takes the memory of a batch of a megabyte from the kernel, which clears each page of it. For
             records of 1 KB this was a quarter of the producer's processor time.
"""

from __future__ import annotations

from felice.protocol.primitives import Buffer

# Freed memory of smaller buffers stays with the C library.
_LEAST_BYTES = 128 * 1024
_MOST_BYTES = 16 * 1024 * 1024


class SpareBuffers:
    """Buffers of delivered batches, for new batches. The caller must hold the accumulator's lock."""

    __slots__ = ("_buffers", "kept_bytes")

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []
        self.kept_bytes = 0

    def put(self, data: Buffer) -> None:
        """Keep this memory, unless it is small, a view of it exists, or enough is kept already."""
        if not isinstance(data, bytearray) or not self._is_wanted(len(data)):
            return
        try:
            data.pop()  # raises if a view of the buffer exists
        except BufferError:
            return
        self._buffers.append(data)
        self.kept_bytes += len(data)

    def _is_wanted(self, size_bytes: int) -> bool:
        return size_bytes >= _LEAST_BYTES and self.kept_bytes + size_bytes <= _MOST_BYTES

    def take(self, expected_bytes: int) -> bytearray | None:
        """Return memory with arbitrary content for a batch of about this size; None if fresh memory does as well."""
        if expected_bytes < _LEAST_BYTES or not self._buffers:
            return None
        buffer = self._buffers.pop()
        self.kept_bytes -= len(buffer)
        return buffer
