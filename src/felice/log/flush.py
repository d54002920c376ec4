"""One flush of a partition: everything that must reach the disk before the recovery point moves.

Keeps true: when `run` has ended without error, every batch below `end_offset` is on
            disk, with the epochs and producer snapshots that a recovery from there
            needs, and the names of their files. If the disk had no room for snapshots
            or epochs, nothing is lost: `shortage` is set, and `snapshots` are those
            still to be written.

`run` blocks, so the server calls it on a thread. It touches nothing that the event
loop changes meanwhile. `Durability.begin_flush` creates a flush, and
`Durability.end_flush` takes the result.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from felice.dataclass import dataclass
from felice.env import Disk, File
from felice.log import failed_sync
from felice.log.errors import is_shortage


@dataclass(slots=True)
class Flush:
    """One flush. `error` and `shortage` are set by `run`."""

    end_offset: int
    truncations: int
    files: list[File]
    snapshots: list[tuple[Path, bytes]]
    write_epochs: Callable[[], None] | None
    disk: Disk
    directory: Path
    names_changed: bool
    # Sync the parent directory too, for the name of the log's own directory.
    with_parent: bool
    error: OSError | None = None
    shortage: OSError | None = None

    def run(self) -> None:
        """Writes and syncs everything. Blocks; sets `error` or `shortage` instead of raising OSError."""
        try:
            failed_sync.sync(self.disk, self.directory.parent, self.files)
            writes_files = self.write_epochs is not None or bool(self.snapshots)
            self._write_snapshots_and_epochs()
            if writes_files or self.names_changed:
                # One sync for all names, including the files that were written before room ran out.
                self.disk.sync_dir(self.directory)
            if self.with_parent:
                self.disk.sync_dir(self.directory.parent)
        except OSError as error:
            self.error = error

    def _write_snapshots_and_epochs(self) -> None:
        try:
            while self.snapshots:
                self.disk.write_atomic(*self.snapshots[0], sync_name=False)
                del self.snapshots[0]
            if self.write_epochs is not None:
                self.write_epochs()
        except OSError as error:
            if not is_shortage(error):
                raise
            self.shortage = error
