"""Lines of text in bytes that are read piece by piece."""

from __future__ import annotations

CHUNK_BYTES = 1 << 20
"""So much is read at a time."""
MAX_LINE_BYTES = 1 << 26


def complete_lines(data: bytes, most: int) -> list[bytes]:
    """The first lines whose ends are there, with these ends. A last carriage return may be the first half of one."""
    lines = data.splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    return lines[:most]


def text_of(line: bytes) -> str:
    """A line without its end."""
    return line[: -2 if line.endswith(b"\r\n") else -1].decode(errors="replace")
