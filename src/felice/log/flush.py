"""One flush of a partition: what must reach the disk before the recovery point moves.

Keeps true: when `run` has ended without error, every batch below `end_offset` is on
            disk, with the epochs and producer snapshots that a recovery from there
            needs, and the names of their files.

`run` blocks, so a server calls it on a thread; it touches nothing that the event
loop changes meanwhile. `Log.begin_flush` makes it and `Log.end_flush` takes it back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from felice.env import Disk, File


@dataclass(slots=True)
class Flush:
    end_offset: int
    truncations: int
    files: list[File]
    snapshots: list[tuple[Path, bytes]]
    write_epochs: Callable[[], None] | None
    disk: Disk
    directory: Path
    names_changed: bool
    error: OSError | None = None

    def run(self) -> None:
        try:
            for file in self.files:
                file.sync()
            for path, data in self.snapshots:
                self.disk.write_atomic(path, data)
            if self.write_epochs is not None:
                self.write_epochs()
            if self.names_changed:
                self.disk.sync_dir(self.directory)
                self.disk.sync_dir(self.directory.parent)
        except OSError as error:
            self.error = error
