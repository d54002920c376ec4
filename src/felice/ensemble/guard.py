"""Ends a process when the one that started it is gone, however that went: run as a process of its own.

    python guard.py PID GRACE_S

Its standard input is a pipe whose other end only the starter has: the end of the stream is the starter's end, which
nothing can keep from being noticed, not even SIGKILL. (A JVM cannot look after itself like that, and asking the
kernel to tell of a parent's death is Linux's alone.) Imports nothing of Felice, so that it is small and starts quickly.
"""

from __future__ import annotations

import os
import signal
import sys
import time

_POLL_S = 0.05


def end(pid: int, grace_s: float) -> None:
    """Asks the process to end, and kills it if it is still there after `grace_s`."""
    try:
        os.kill(pid, signal.SIGTERM)
        # One that stands still would not hear of it.
        os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline:
            time.sleep(_POLL_S)
            os.kill(pid, 0)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end(int(sys.argv[1]), float(sys.argv[2]))
