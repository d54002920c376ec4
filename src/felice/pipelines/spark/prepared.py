"""A process that has imported what Spark's programs of Python need. It forks itself for each of them.

Keeps true: a program finds the arguments, environment, directory, standard streams and signals that it was started
            with. What a process reads only when it starts, such as PYTHONHASHSEED, is the same, or the program is
            started in the usual way. The process ends with the one that started it, whose end closes its standard
            input, and it forks only if it has one thread after
            its imports.
How:        `ask_for_fork` asks for a fork. Without this process each program imports PySpark and Felice by itself: one
            to two seconds, in which Spark waits, and 40 MiB.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.spark.ask_for_fork import CODE_SIZE, LENGTH_SIZE, PID_SIZE, REFUSED, SIGNALS, TAKEN

ONE_THREAD = {"OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""In this environment the libraries that are imported start no thread: Spark sets the first for its workers, too, and
the second is for a memory pool that is not used.
"""
_READ_AT_START = ("LANG", "LC_", "LD_", "MALLOC_", "GLIBC_", "ARROW_", "MKL_", "OPENBLAS_", *ONE_THREAD)
_REQUEST_WITHIN_S = 5
_DAEMON = "pyspark.daemon"
_print_exc = traceback.print_exc
_LONGEST_PATH = 100
_THREADS = Path("/proc/self/task")
_NAME = Path("/proc/self/comm")
"""The name of a process in lists of processes."""
# The other process may not find Felice by its own search path.
_START = f"""
import json, sys
usual_path, sys.path[:] = sys.path[:], json.loads(sys.argv.pop(1))
from {__name__} import main
main(usual_path)
"""


def start(path: Path, modules: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the process, which imports the modules and takes requests at the socket `path`.

    It ends when the standard input of the result is closed, at the latest when this process ends.
    """
    own = {**os.environ, **ONE_THREAD, "PYTHONUNBUFFERED": "YES", **environment}
    program = [sys.executable, "-P", "-c", _START, json.dumps(sys.path), str(path), *modules]
    return subprocess.Popen(program, env=own, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def is_possible(path: Path) -> bool:
    """Whether the system tells the threads of a process, as Linux does, and the path is short enough for a socket."""
    return _THREADS.exists() and len(os.fsencode(path)) <= _LONGEST_PATH


def has_one_thread() -> bool:
    """False also where the system does not tell."""
    return _THREADS.exists() and len(list(_THREADS.iterdir())) == 1


def main(usual_path: list[str]) -> None:
    """The arguments of the process are the path of the socket, and the modules. `usual_path` is the search path of a
    Python of this environment that is started in the usual way.
    """
    path, *modules = sys.argv[1:]
    driver = os.getppid()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        # The driver ends this process by closing its standard input, not by a Ctrl-C that the terminal sends to all.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for name in modules:
            import_module(name)
        if not has_one_thread():
            return
        # Forks share the memory of objects that the search for cycles does not touch.
        gc.collect()
        gc.freeze()
        program = _Forks(server).next_program()
    if program is not None:
        _become(program, usual_path)
    elif os.getppid() != driver:
        # The driver was killed, and could not remove its directory.
        shutil.rmtree(Path(path).parent, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Program:
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    ignored: list[int]
    blocked: list[int]
    streams: list[int]

    @property
    def can_be_forked(self) -> bool:
        return self.arguments[0] == "-m" and all(
            os.environ.get(name) == value
            for name, value in self.environment.items()
            if _is_read_at_start(name)
        )

    def close_streams(self) -> None:
        for stream in self.streams:
            os.close(stream)


def _is_read_at_start(name: str) -> bool:
    """Variables such as PYTHON_WORKER_FACTORY_PORT are Spark's, not Python's. The search path is set later, and every
    program may be unbuffered, as Spark's are.
    """
    if name in ("PYTHONPATH", "PYTHONUNBUFFERED") or name.startswith("PYTHON_"):
        return False
    return name.startswith(("PYTHON", *_READ_AT_START))


def _read(connection: socket.socket) -> _Program:
    """Raises `OSError` if the process that asks ends before its request is complete."""
    length, streams, _, _ = socket.recv_fds(connection, LENGTH_SIZE, 3)
    size = int.from_bytes(length, "big")
    body = b""
    while len(body) < size and (piece := connection.recv(size - len(body))):
        body += piece
    if not body or len(body) < size:
        for stream in streams:
            os.close(stream)
        raise ConnectionError("the request is not complete")
    return _Program(streams=streams, **json.loads(body))


class _Forks:
    """The connections of the programs that run. Each is open until its program has ended."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._running: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def next_program(self) -> _Program | None:
        """Returns in each fork, with its program; in this process only when its standard input is closed, with None."""
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for readable in (self._server, self._woken, sys.stdin):
            self._selector.register(readable, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    return None
                if key.fileobj is self._server:
                    if (program := self._take()) is not None:
                        return program
                elif key.fileobj == self._woken:
                    os.read(self._woken, 4096)
                    self._report_ends()
                elif key.data in self._running:
                    # The process that asked was killed, so its program must be killed. It may ignore other signals.
                    self._selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)

    def _take(self) -> _Program | None:
        """Answer a request. Returns its program in the fork, and None in this process."""
        connection, _ = self._server.accept()
        connection.settimeout(_REQUEST_WITHIN_S)
        try:
            connection.sendall(TAKEN)
            program = _read(connection)
        except OSError:
            connection.close()
            return None
        pid = os.fork() if program.can_be_forked else None
        if pid == 0:
            connection.close()
            self._leave()
            return program
        program.close_streams()
        if pid is None:
            _answer(connection, REFUSED)
            connection.close()
        else:
            self._running[pid] = connection
            self._selector.register(connection, selectors.EVENT_READ, pid)
            _answer(connection, TAKEN + pid.to_bytes(PID_SIZE, "big"))
        return None

    def _report_ends(self) -> None:
        for pid in list(self._running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            connection = self._running.pop(pid)
            if connection in self._selector.get_map():
                self._selector.unregister(connection)
            _answer(connection, os.waitstatus_to_exitcode(status).to_bytes(CODE_SIZE, "big", signed=True))
            connection.close()

    def _leave(self) -> None:
        """In a fork: let go of what belongs to the process that forked it."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for used in (self._server, *self._running.values()):
            used.close()
        for pipe in (self._woken, self._wake):
            os.close(pipe)


def _answer(connection: socket.socket, data: bytes) -> None:
    """To a process that has ended, nothing."""
    with suppress(OSError):
        connection.sendall(data)


def _become(program: _Program, usual_path: list[str]) -> None:
    """Run the program in this process."""
    for number, stream in enumerate(program.streams):
        os.dup2(stream, number)
    program.close_streams()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in set(SIGNALS) - set(program.ignored):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, program.blocked)
    own = {str(Path(entry).absolute()) for entry in _paths(os.environ)}
    without_own = [entry for entry in usual_path if entry not in own]
    sys.path[:] = [program.directory, *_paths(program.environment), *without_own]
    os.environ.clear()
    os.environ.update(program.environment)
    os.chdir(program.directory)
    time.tzset()
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()  # Python seeds its own generator in each fork. numpy does not.
    _, module, *arguments = program.arguments
    with suppress(OSError):
        _NAME.write_text(module)
    sys.argv = [module, *arguments]
    if module == _DAEMON:
        traceback.print_exc = _print_unless_java_has_gone
    sys.modules.pop(module, None)  # `runpy` warns of a module that is both imported and run.
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _print_unless_java_has_gone(*arguments: Any, **options: Any) -> None:
    """In place of `traceback.print_exc`, which PySpark's daemon calls before it ends a worker.

    Java closes the sockets of workers that still write when it ends, or when it needs no more of a task.
    """
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        _print_exc(*arguments, **options)


def _paths(environment: Mapping[str, str]) -> list[str]:
    return [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
