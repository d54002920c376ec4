"""Cuts the bytes of a client into frames, before `h2` reads them; pure.

Keeps true: of a frame that is not complete at most `MOST_BYTES` are kept, and a header block, which may come in many
            frames, has at most `most_block_bytes`. What is larger is refused when its first bytes say so.
How:        `h2` tells nothing of many frames, such as a CONTINUATION, or one for a stream that has ended. To count
            these, and to stop between two frames, their heads are read here, too.
"""

from __future__ import annotations

from typing import Final

from felice.dataclass import dataclass
from felice.web.http2.switching import PREFACE

MOST_BYTES: Final = 16_384
"""The largest frame, without its head, that a server takes unless it announces another size."""
HEAD_BYTES: Final = 9
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
PREFACE_KIND: Final = -1
"""The `kind` of the preface, which is not a frame."""
_END_STREAM, _END_HEADERS = 0x1, 0x4


class FrameTooLarge(Exception):
    """A frame has more bytes than the server announced."""


class BlockTooLarge(Exception):
    """A header block has too many bytes, or too many frames."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, or the preface. `data` has all its received bytes."""

    kind: int
    flags: int
    stream: int
    data: bytes

    @property
    def size(self) -> int:
        """Without its head."""
        return len(self.data) - HEAD_BYTES

    @property
    def ends_stream(self) -> bool:
        """Whether the request ends with it."""
        return bool(self.flags & _END_STREAM)


class Frames:
    """The frames of one client."""

    def __init__(self, most_block_bytes: int) -> None:
        self._most_block_bytes = most_block_bytes
        self._bytes = bytearray()
        self._at = 0
        self._has_preface = False
        self._block_bytes = 0
        self.is_in_block = False
        """Whether a header block has begun and not ended."""
        self.count = 0
        """How many frames were complete. A header block counts as one."""

    def add(self, data: bytes) -> None:
        """Takes bytes."""
        if self._at:
            del self._bytes[: self._at]
            self._at = 0
        self._bytes += data

    @property
    def is_partial(self) -> bool:
        """Whether a frame or a header block has begun and not ended, when all others were taken."""
        return self.is_in_block or len(self._bytes) > self._at

    @property
    def is_partial_head(self) -> bool:
        """Whether what waits for its end begins a request."""
        if self.is_in_block or not self._has_preface:
            return True
        return len(self._bytes) - self._at > 3 and self._bytes[self._at + 3] == HEADERS

    def next(self) -> Frame | None:
        """The next frame; None until more bytes come. Raises `FrameTooLarge` and `BlockTooLarge`."""
        if not self._has_preface:
            return self._preface()
        at, left = self._at, len(self._bytes) - self._at
        if left < HEAD_BYTES:
            return None
        size = int.from_bytes(self._bytes[at : at + 3], "big")
        kind, flags = self._bytes[at + 3], self._bytes[at + 4]
        if size > MOST_BYTES:
            raise FrameTooLarge(f"a frame has {size:,} bytes, and the most is {MOST_BYTES:,}")
        self._check_block(kind, size)
        if left < HEAD_BYTES + size:
            return None
        self._at += HEAD_BYTES + size
        if kind in (HEADERS, CONTINUATION):
            self.is_in_block = not flags & _END_HEADERS
            # An empty frame costs, too.
            self._block_bytes = self._block_bytes + size + HEAD_BYTES if self.is_in_block else 0
        self.count += not self.is_in_block
        stream = int.from_bytes(self._bytes[at + 5 : at + 9], "big") & 0x7FFFFFFF
        return Frame(kind, flags, stream, bytes(self._bytes[at : self._at]))

    def _preface(self) -> Frame | None:
        if len(self._bytes) < len(PREFACE):
            return None
        self._has_preface, self._at = True, len(PREFACE)
        return Frame(PREFACE_KIND, 0, 0, bytes(self._bytes[: self._at]))

    def _check_block(self, kind: int, size: int) -> None:
        if kind in (HEADERS, CONTINUATION) and self._block_bytes + size > self._most_block_bytes:
            raise BlockTooLarge(f"the head of a request has over {self._most_block_bytes:,} bytes")
