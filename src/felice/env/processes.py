"""Child processes: they inherit one end of a connection and are controlled by signals."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

PYTHON = sys.executable


async def spawn(command: Sequence[str], inherited: socket.socket) -> Process:
    """Starts a child that inherits `inherited` by its number and whose standard output can be read.

    The child has its own session: Ctrl-C reaches only the parent, which then signals the child.
    """
    number = inherited.fileno()
    return await asyncio.create_subprocess_exec(
        *command, pass_fds=(number,), stdout=PIPE, start_new_session=True
    )


def ask_to_end(process: Process) -> None:
    """Sends SIGTERM. Does nothing if the process has ended."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)


def kill(process: Process) -> None:
    """Sends SIGKILL. Does nothing if the process has ended."""
    if process.returncode is None:
        process.kill()
