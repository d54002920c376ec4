"""Runs a program of Python as a fork of the prepared process (`prepared`); without that process, in the usual way.

Keeps true: to the process that started it, this one is the program: it ends when the program ends, with its exit code,
            passes SIGTERM on, and takes the program with it when it is killed.
How:        It runs without the packages of the environment (`python -I -S`), so it is there within some hundredths of
            a second. It sends its arguments, environment, directory and standard streams through a Unix socket.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

ANSWERS_WITHIN_S = 5
"""Spark's Java waits ten seconds for some programs, so the usual start must be early enough."""
SIGNALS = signal.SIGINT, signal.SIGTERM
"""The program ignores or blocks these signals if this process was started so."""
TAKEN, REFUSED = b"+", b"-"
LENGTH_SIZE, PID_SIZE, CODE_SIZE = 4, 4, 2


def main() -> None:
    """The arguments are the path of the socket, those of Python that come first in the usual way, and the program's."""
    path, first, *arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as connection:
        program = _fork(connection, path, arguments)
        if program is not None:
            signal.signal(signal.SIGTERM, lambda *_: _terminate(program))
            _end_as(connection, program)
    os.execv(sys.executable, [sys.executable, *first.split(), *arguments])


def _fork(connection: socket.socket, path: str, arguments: list[str]) -> int | None:
    """The id of the process; None if the prepared process is not there, or not like what is asked for."""
    request = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "ignored": [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN],
    }
    body = json.dumps(request).encode()
    connection.settimeout(ANSWERS_WITHIN_S)
    try:
        connection.connect(path)
        if connection.recv(1) != TAKEN:
            return None
        # The limit was for a process that does not answer. From here on the program may run.
        connection.settimeout(None)
        socket.send_fds(connection, [len(body).to_bytes(LENGTH_SIZE, "big")], [0, 1, 2])
        connection.sendall(body)
        if connection.recv(1) != TAKEN:
            return None
        return int.from_bytes(connection.recv(PID_SIZE, socket.MSG_WAITALL), "big") or None
    except OSError:
        return None


def _wait_for(program: int) -> None:
    try:
        process = os.pidfd_open(program)
    except OSError:
        return
    select.select([process], [], [])


def _terminate(program: int) -> None:
    # If it has ended, its exit code is on the way.
    with suppress(ProcessLookupError):
        os.kill(program, signal.SIGTERM)


def _end_as(connection: socket.socket, program: int) -> None:
    """End with the exit code of the program, or with 128 and the number of the signal that ended it.

    If the prepared process has ended, nothing tells the code: then it is 1 when the program has ended.
    """
    code = connection.recv(CODE_SIZE, socket.MSG_WAITALL)
    if len(code) < CODE_SIZE:
        _wait_for(program)
    status = int.from_bytes(code, "big", signed=True) if len(code) == CODE_SIZE else 1
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
