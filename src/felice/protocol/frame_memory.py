"""Where received bytes go: one small buffer for all connections of a thread, and large ones for large frames.

Keeps true:  memory that is handed out is nobody else's for as long as anybody has a view of it.
             No more than `pool_bytes` are kept for reuse, and none after a while in which no large frame came.
How:         memory used before costs a fraction of fresh memory, which the kernel clears page by page and
             `bytearray` clears again (at 1 MiB a tenth of what fresh pages cost). So the pool keeps a hold of
             the buffers it gave out. Nobody gives one back: that it is free is asked when the next is wanted.
"""

from __future__ import annotations

import mmap

SCRATCH_BYTES = 64 * 1024
# Larger frames are rare, and a few of them would fill the pool.
_MAX_POOLED_BYTES = 2 * 1024 * 1024
_MIN_BUFFER_BYTES = 128 * 1024


class FrameMemory:
    """`scratch` for what is received next, and `take` for a frame that does not fit it.

    A frame of `map_from_bytes` or more, where the pool has no place for it, gets untouched pages from the kernel:
    dear once bytes come for them, but a peer who only announces such a frame costs nothing.
    """

    def __init__(self, *, pool_bytes: int = 0, map_from_bytes: int | None = None) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._pool: list[bytearray] = []
        self._pool_bytes = pool_bytes
        self._map_from_bytes = map_from_bytes
        self._was_used = False

    def take(self, size: int) -> memoryview:
        """Writable memory of exactly this size, with any content."""
        if size <= _MAX_POOLED_BYTES and self._pool_bytes:
            self._was_used = True
            buffer = self._reused(size) or self._added(size)
            if buffer is not None:
                return memoryview(buffer)[:size]
        if self._map_from_bytes is not None and size >= self._map_from_bytes:
            # Private: pages that are shared with nobody cost less than half as much.
            return memoryview(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        return memoryview(bytearray(size))

    def forget_unused(self) -> None:
        """Lets the pool go if nothing was taken since the last call."""
        if not self._was_used:
            self._pool.clear()
        self._was_used = False

    def _reused(self, size: int) -> bytearray | None:
        for buffer in self._pool:
            if len(buffer) >= size and _is_free(buffer):
                return buffer
        return None

    def _added(self, size: int) -> bytearray | None:
        # Frames of one producer differ a little: by powers of two, the next one fits as well.
        wanted = max(_MIN_BUFFER_BYTES, 1 << (size - 1).bit_length())
        if sum(map(len, self._pool)) + wanted > self._pool_bytes:
            # Those that are free were too small.
            self._pool = [buffer for buffer in self._pool if not _is_free(buffer)]
            if sum(map(len, self._pool)) + wanted > self._pool_bytes:
                return None
        buffer = bytearray(wanted)
        self._pool.append(buffer)
        return buffer


def _is_free(buffer: bytearray) -> bool:
    """Whether nobody has a view of it: Python lets a bytearray change its size only then."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
