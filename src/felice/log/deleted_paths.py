"""Renamed files of deleted segments and partitions, until their delay (file.delete.delay.ms) is over."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from felice.env import Disk


def split(deleted: list[tuple[int, Path]], now_ms: int) -> tuple[list[Path], list[tuple[int, Path]]]:
    """Returns the paths that are due, and the others with their due times (ms since 1970)."""
    due = [path for due_ms, path in deleted if due_ms <= now_ms]
    return due, [(due_ms, path) for due_ms, path in deleted if due_ms > now_ms]


def remove(disk: Disk, paths: Iterable[Path]) -> None:
    """Deletes files and directories. Blocks; may run on any thread. Raises OSError."""
    for path in paths:
        if disk.is_dir(path):
            disk.remove_tree(path)
        else:
            # Reopening a log may have removed the file first.
            with suppress(FileNotFoundError):
                disk.remove(path)
