"""Ends a process when the process that started it has ended for any reason. Runs as a separate process.

    python guard.py PID GRACE_S

Its standard input is a pipe whose other end is open only in the starting process. When that process ends, even by
SIGKILL, the guard reads the end of the stream. (A JVM cannot watch its parent in this way, and only Linux can signal
the death of a parent.) It imports nothing of Felice, so that it is small and starts quickly.
"""

from __future__ import annotations

import os
import signal
import sys
import time

_POLL_S = 0.05


def end(pid: int, grace_s: float) -> None:
    """Asks the process to end, and kills it if it still runs after `grace_s` seconds."""
    try:
        os.kill(pid, signal.SIGTERM)
        # A paused process would not receive the signal.
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
