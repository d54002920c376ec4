"""What a process made stays its own when it forks: the child must not remove or stop it.

A child of `os.fork`, or of `multiprocessing` with its method fork, has copies of all objects of its parent and runs
their finalizers. A server's thread, a process and a directory exist once, and belong to the parent.
"""

from __future__ import annotations

import os


class Owner:
    """The process that created this object."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process; False in a process that it forked."""
        return os.getpid() == self._pid

    def check(self, thing: str) -> None:
        """Raises RuntimeError in a process that the owner forked; `thing` is what it cannot use."""
        if not self.is_here:
            raise RuntimeError(
                f"this {thing} belongs to process {self._pid}, of which this process is a fork"
            )
