"""Passes a directory from one process of a machine to another one that needs it.

Keeps true: one process at most uses a directory: the process that holds its lock. It releases the lock when another
            process asks and no batch is running.
How:        The process listens at a Unix socket whose name follows from the directory, in a thread. A process that has
            ended holds no lock, and nobody answers at its socket.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TextIO

_log = logging.getLogger(__name__)

GiveUp = Callable[[bytes], bool]
"""Gets the other process's request. If it can, it releases the directory (`Held.release`) and returns True."""
_MOST_BYTES = 1024
_WITHIN_S = 30.0
_YES, _NO = b"1", b"0"


class Held:
    """A directory that this process uses."""

    def __init__(self, path: Path, lock: TextIO, give_up: GiveUp) -> None:
        self.path, self._lock, self._give_up = path, lock, give_up
        self._server = socket.socket(socket.AF_UNIX)
        try:
            address = _address(path)
            Path(address).unlink(missing_ok=True)  # Of a process that has ended: its lock is ours.
            self._server.bind(address)
            self._server.listen()
        except OSError:
            return  # Nobody can ask; other processes use other directories.
        threading.Thread(target=self._answer, name=f"hands over {path}", daemon=True).start()

    def release(self) -> None:
        """Leave the directory to others."""
        with suppress(OSError):  # Wakes the thread up.
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._lock.close()

    def _answer(self) -> None:
        while True:
            try:
                asking, _ = self._server.accept()
            except OSError:
                return
            with asking, suppress(OSError):
                asking.settimeout(_WITHIN_S)
                request = asking.recv(_MOST_BYTES)
                asking.sendall(_YES if self._is_given_up(request) else _NO)

    def _is_given_up(self, request: bytes) -> bool:
        try:
            return self._give_up(request)
        except Exception:  # Otherwise the thread would end, and nobody could ask again.
            _log.warning("could not give up %s", self.path, exc_info=True)
            return False


def hold(directory: Path, request: bytes, give_up: GiveUp) -> Held:
    """The first directory in this one that no process uses, or that another process gives up for the request."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in count():
        path = directory / str(number)
        if (lock := _locked(path)) is None and _ask(path, request):
            lock = _locked(path)
        if lock is not None:
            return Held(path, lock, give_up)
    raise AssertionError("there are always more numbers")


def _locked(path: Path) -> TextIO | None:
    lock = path.with_suffix(".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _ask(path: Path, request: bytes) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_WITHIN_S)
            asking.connect(_address(path))
            asking.sendall(request)
            asking.shutdown(socket.SHUT_WR)
            return asking.recv(1) == _YES
    except OSError:
        return False


def _address(path: Path) -> str:
    """A short path: a socket's may have some 100 bytes only."""
    directory = private_directory(Path(tempfile.gettempdir()))
    return str(directory / hashlib.sha256(str(path).encode()).hexdigest()[:24])


def private_directory(root: Path) -> Path:
    """A directory of this user alone. Raises `PermissionError` if another user has made it."""
    directory = root / f"felice-{os.getuid()}"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = directory.lstat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise PermissionError(
            f"{directory} is not a directory of this user alone; remove it, or name another --local-state"
        )
    return directory
