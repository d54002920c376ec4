"""Faults of a simulated disk: which operation on which paths fails, when, and how often."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

from felice.dataclass import dataclass

# The names of operations, as faults and hooks use them.
OPERATIONS = (
    "open",
    "create",
    "read",
    "write",
    "truncate",
    "sync",
    "list",
    "mkdir",
    "rename",
    "remove",
    "sync_dir",
    "lock",
)


@dataclass(slots=True)
class DiskFault:
    """An operation that fails.

    `remaining` is how many times it will still fail, None for always; `fired` counts failures.
    """

    operation: str
    errno: int
    path: str
    after: int
    remaining: int | None
    fired: int = 0

    def strikes(self, operation: str, path: Path) -> bool:
        """Whether this operation fails; counts it."""
        if self.operation not in (operation, "*") or not fnmatchcase(str(path), self.path):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.remaining == 0:
            return False
        if self.remaining is not None:
            self.remaining -= 1
        self.fired += 1
        return True


def disk_error(number: int, path: Path) -> OSError:
    """The error that the operating system raises for this errno."""
    return OSError(number, os.strerror(number), str(path))
