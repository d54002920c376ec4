"""Memory for received bytes: one small buffer for all connections of a thread, and large buffers for large frames.

Keeps true:  a buffer is not reused while a view of it exists.
             The pool keeps at most `pool_bytes` for reuse, and none after a while without large frames.
How:         reused memory is much cheaper than fresh memory, which the kernel clears page by page and `bytearray`
             clears again (at 1 MiB reuse costs a tenth of fresh pages). So the pool keeps references to the buffers
             that it returned. Callers do not give buffers back: the pool checks which are free when it needs one.
"""

from __future__ import annotations

import mmap

from felice.protocol.kernels import memory_of

SCRATCH_BYTES = 64 * 1024
# Larger frames are rare, and a few of them would fill the pool.
_MAX_POOLED_BYTES = 2 * 1024 * 1024
_MIN_BUFFER_BYTES = 128 * 1024


class FrameMemory:
    """`scratch` is for the next received bytes; `take` returns memory for a frame that does not fit into it.

    A frame of `map_from_bytes` or more that does not fit into the pool gets untouched pages from the kernel. They cost
    more when bytes arrive, but a peer that only announces such a frame costs nothing.
    """

    def __init__(self, *, pool_bytes: int = 0, map_from_bytes: int | None = None) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._pool: list[bytearray] = []
        self._pool_bytes = pool_bytes
        self._map_from_bytes = map_from_bytes
        self._was_used = False

    def take(self, size: int) -> memoryview:
        """Return writable memory of exactly this size. Its content is undefined."""
        if size <= _MAX_POOLED_BYTES and self._pool_bytes:
            self._was_used = True
            buffer = self._reused(size) or self._added(size)
            if buffer is not None:
                return memoryview(buffer)[:size]
        if self._map_from_bytes is not None and size >= self._map_from_bytes:
            # A private mapping costs less than half of a shared one.
            return memoryview(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        return memoryview(memory_of(size))

    def forget_unused(self) -> None:
        """Release the pool if no memory was taken since the last call."""
        if not self._was_used:
            self._pool.clear()
        self._was_used = False

    def _reused(self, size: int) -> bytearray | None:
        for buffer in self._pool:
            if len(buffer) >= size and _is_free(buffer):
                return buffer
        return None

    def _added(self, size: int) -> bytearray | None:
        # The frames of one producer differ slightly in size. With powers of two the next frame fits, too.
        wanted = max(_MIN_BUFFER_BYTES, 1 << (size - 1).bit_length())
        if sum(map(len, self._pool)) + wanted > self._pool_bytes:
            # The free buffers were too small.
            self._pool = [buffer for buffer in self._pool if not _is_free(buffer)]
            if sum(map(len, self._pool)) + wanted > self._pool_bytes:
                return None
        buffer = memory_of(wanted)
        self._pool.append(buffer)
        return buffer


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of the buffer exists: only then can Python resize a bytearray."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
