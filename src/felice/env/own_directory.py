"""A temporary directory that its process removes, and no process that was forked from it."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from felice.env.forks import Owner


class OwnDirectory:
    """A new temporary directory. `remove`, or the end of this object or of the process, removes it.

    Only the process that created it removes it.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix)).absolute()
        self._finalizer = weakref.finalize(self, _remove, self.path, Owner())

    def remove(self) -> None:
        """Removes the directory with all its files. A second call does nothing."""
        self._finalizer()


def _remove(path: Path, owner: Owner) -> None:
    if owner.is_here:
        shutil.rmtree(path, ignore_errors=True)
