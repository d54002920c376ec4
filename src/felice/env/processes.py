"""Child processes: they inherit one end of a connection and are controlled by signals."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

from felice.env.service_manager import NOTIFY_SOCKET

PYTHON = sys.executable


async def spawn(command: Sequence[str], inherited: socket.socket) -> Process:
    """Starts a child that inherits `inherited` by its number and whose standard output can be read.

    The child has its own session: Ctrl-C reaches only the parent, which then signals the child.
    """
    number = inherited.fileno()
    # Only the parent is the service: systemd hears from it when all children are ready.
    variables = {name: value for name, value in os.environ.items() if name != NOTIFY_SOCKET}
    return await asyncio.create_subprocess_exec(
        *command, pass_fds=(number,), stdout=PIPE, start_new_session=True, env=variables
    )


def ask_to_end(process: Process) -> None:
    """Sends SIGTERM. Does nothing if the process has ended."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)


def kill(process: Process) -> None:
    """Sends SIGKILL. Does nothing if the process has ended."""
    if process.returncode is None:
        process.kill()
