"""Lines of text in bytes that are read piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from felice.pipelines.connect.model.errors import ConnectError

CHUNK_BYTES = 1 << 20
"""So much is read at a time."""
MAX_LINE_BYTES = 1 << 26


class Lines:
    """The lines that were read and not taken yet, with their ends, and the beginning of the next one."""

    def __init__(self) -> None:
        self._whole: list[bytes] = []
        self._taken = 0
        self._rest = b""

    def add(self, data: bytes, name: str) -> None:
        """Adds what was read. Raises `ConnectError` for a line that is too long; `name` says of which file."""
        lines = (self._rest + data).splitlines(keepends=True)
        # A last carriage return may be the first half of a line's end.
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        if len(self._rest) > MAX_LINE_BYTES:
            raise ConnectError(f"a line of {name} has more than {MAX_LINE_BYTES:,} bytes")
        self._whole = [*self._whole[self._taken :], *lines]
        self._taken = 0

    def take(self, most: int) -> list[bytes]:
        """The next lines, at most so many."""
        lines = self._whole[self._taken : self._taken + most]
        self._taken += len(lines)
        return lines

    @property
    def count(self) -> int:
        """The lines that were not taken."""
        return len(self._whole) - self._taken

    def clear(self) -> None:
        """Forgets everything."""
        self._whole, self._taken, self._rest = [], 0, b""


def ends_of(lines: Sequence[bytes], position: int) -> list[int]:
    """The position after each line, in bytes; `position` is the one before the first."""
    return list(accumulate(map(len, lines), initial=position))[1:]


def texts_of(lines: Sequence[bytes]) -> list[str]:
    """Lines without their ends. Bytes that are not UTF-8 become the replacement character."""
    whole = b"".join(lines)
    if b"\r" not in whole:
        return whole.decode(errors="replace").split("\n")[:-1]
    return [line[: -2 if line.endswith(b"\r\n") else -1].decode(errors="replace") for line in lines]
