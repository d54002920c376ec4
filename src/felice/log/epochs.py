"""Which leader epoch wrote which offsets: `leader-epoch-checkpoint`.

Keeps true: epochs and start offsets both increase from entry to entry, so that an
            epoch ends where the next one starts (KIP-101, KIP-279).

The file is text: a version (0), the number of entries, then `epoch start_offset`
a line. A flush of the log writes it before the recovery point moves. After a crash
the entries above the recovery point are rebuilt from the batches, each of which
carries its epoch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from felice.dataclass import dataclass
from felice.env import Disk
from felice.log.captured_file import CapturedFile

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """The first offset of one leader epoch."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class EpochEndOffset:
    """The result of OffsetForLeaderEpoch: (-1, -1) if the epoch is unknown."""

    epoch: int = UNDEFINED_EPOCH
    end_offset: int = UNDEFINED_OFFSET


def parse(text: str) -> list[EpochEntry]:
    """Parses the file's text. Raises ValueError if it is damaged."""
    lines = text.split("\n")
    if lines[0] != "0" or len(lines) < 2:
        raise ValueError(f"version {lines[0]!r} is not 0")
    entries = [_entry(line) for line in lines[2:] if line]
    if len(entries) != int(lines[1]):
        raise ValueError(f"{lines[1]} entries announced, {len(entries)} found")
    for last, entry in pairwise(entries):
        if entry.epoch <= last.epoch or entry.start_offset <= last.start_offset:
            raise ValueError(f"{entry} does not lie above {last}")
    return entries


def _entry(line: str) -> EpochEntry:
    epoch, start_offset = line.split()
    return EpochEntry(int(epoch), int(start_offset))


def format_entries(entries: list[EpochEntry]) -> str:
    """The file's text for these entries."""
    return "".join([f"0\n{len(entries)}\n", *(f"{epoch} {start}\n" for epoch, start in entries)])


class LeaderEpochs:
    """The epoch history of one partition."""

    __slots__ = ("_changed", "_file", "entries")

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._file = CapturedFile(disk, directory, FILE_NAME)
        self.entries: list[EpochEntry] = []
        self._changed = False

    def begin(self) -> None:
        """Starts the history of a new log. It has no epochs, which needs no file on disk."""
        self._file.assume_on_disk(format_entries([]).encode("ascii"))

    def load(self, *, is_on_disk: bool = False) -> None:
        """Reads the file. Raises ValueError if it is damaged. `is_on_disk`: a clean stop wrote and synced it."""
        data = self._file.read()
        if data is not None:
            self.entries = parse(data.decode("ascii"))
        if is_on_disk:
            self._file.assume_on_disk(data or format_entries([]).encode("ascii"))

    # -- questions -------------------------------------------------------------------------------------

    @property
    def latest(self) -> int:
        """The epoch that wrote last, -1 if none did."""
        return self.entries[-1].epoch if self.entries else UNDEFINED_EPOCH

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`, -1 if unknown."""
        found = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset) - 1
        return self.entries[found].epoch if found >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """The largest known epoch not above `epoch`, and the offset where it ended."""
        if epoch == UNDEFINED_EPOCH or not self.entries:
            return EpochEndOffset()
        if epoch == self.latest:
            return EpochEndOffset(epoch, log_end_offset)
        higher = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if higher == len(self.entries):
            return EpochEndOffset()
        # An epoch older than the history ended where the history begins.
        known = self.entries[higher - 1].epoch if higher else epoch
        return EpochEndOffset(known, self.entries[higher].start_offset)

    # -- changes ---------------------------------------------------------------------------------------

    def assign(self, epoch: int, start_offset: int) -> None:
        """`epoch` writes from `start_offset` on. Called for every batch; nearly always nothing changes."""
        if epoch < 0:
            return
        if self.entries:
            last = self.entries[-1]
            if last.epoch == epoch and last.start_offset <= start_offset:
                return
            while self.entries and (
                self.entries[-1].epoch >= epoch or self.entries[-1].start_offset >= start_offset
            ):
                self.entries.pop()
        self.entries.append(EpochEntry(epoch, start_offset))
        self._changed = True

    def truncate_from_end(self, offset: int) -> None:
        """Removes epochs that began at or after `offset`."""
        kept = bisect_left(self.entries, offset, key=lambda entry: entry.start_offset)
        if kept < len(self.entries):
            del self.entries[kept:]
            self._changed = True

    def truncate_from_start(self, offset: int) -> None:
        """The log now begins at `offset`; so does the epoch that wrote this offset. Removes older epochs."""
        floor = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset) - 1
        if floor >= 0 and (floor > 0 or self.entries[0].start_offset < offset):
            self.entries[: floor + 1] = [EpochEntry(self.entries[floor].epoch, offset)]
            self._changed = True

    def copy_from(self, other: LeaderEpochs) -> None:
        """Takes the history of another copy of the same log, including epochs that wrote nothing."""
        self.entries = list(other.entries)
        self._changed = True

    def clear(self) -> None:
        """Forgets the history, as for an empty log."""
        self._changed = self._changed or bool(self.entries)
        self.entries.clear()

    # -- the file --------------------------------------------------------------------------------------

    def capture(self, *, sync_name: bool = True) -> Callable[[], None] | None:
        """Takes the history as of now; None if the file has it already. The result writes it; may raise OSError.

        The result may run on any thread. Without `sync_name` the caller syncs the directory.
        """
        if not self._changed:
            return None
        self._changed = False
        write = self._file.capture(format_entries(self.entries).encode("ascii"), sync_name=sync_name)

        def write_or_try_again() -> None:
            try:
                write()
            except OSError:
                self._changed = True
                raise

        return write_or_try_again

    def flush(self) -> None:
        """Writes the history, and syncs it, if the file does not have it. Raises OSError."""
        if (write := self.capture()) is not None:
            write()
