"""For tests that interrupt a program."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """The `preexec_fn` of a program that a test interrupts.

    A run of the tests in the background of a script ignores SIGINT, and so would the processes that it starts.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
