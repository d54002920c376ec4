"""Processes as children: they inherit one end of a connection and are told by signals."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

PYTHON = sys.executable


async def spawn(command: Sequence[str], inherited: socket.socket) -> Process:
    """A child that has `inherited` open by its number, whose standard output is read here.

    It is in a session of its own: Ctrl-C is for its parent, who tells it in turn.
    """
    number = inherited.fileno()
    return await asyncio.create_subprocess_exec(
        *command, pass_fds=(number,), stdout=PIPE, start_new_session=True
    )


def ask_to_end(process: Process) -> None:
    """As a person would: SIGTERM. One that has ended is left alone."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)


def kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
