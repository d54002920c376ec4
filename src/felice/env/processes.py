"""Child processes: they inherit one end of a connection and are controlled by signals."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence

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


async def spawn_linked(command_of: Callable[[int], Sequence[str]]) -> tuple[Process, socket.socket]:
    """Starts a child, as `spawn` does, that can see when the connection returned here is closed (`end_with`).

    `command_of` gets the number by which the child inherits its end. Raises `OSError`.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            return await spawn(command_of(theirs.fileno()), theirs), ours
    except BaseException:
        ours.close()
        raise


def end_with(descriptor: int) -> None:
    """Lets this process end as SIGTERM would, when the other end of an inherited connection is closed.

    Needs a running event loop. The parent holds the other end, and dies with it.
    """
    connection = socket.socket(fileno=descriptor)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        try:
            if connection.recv(1_024):
                return
        except BlockingIOError:
            return
        except OSError:  # the parent was killed
            pass
        loop.remove_reader(connection)
        connection.close()
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(connection, on_readable)


def ask_to_end(process: Process) -> None:
    """Sends SIGTERM. Does nothing if the process has ended."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)


def kill(process: Process) -> None:
    """Sends SIGKILL. Does nothing if the process has ended."""
    if process.returncode is None:
        process.kill()
