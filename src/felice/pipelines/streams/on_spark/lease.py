"""One machine at a time continues from a copy of a checkpoint (`checkpoint_copy`): it holds a lease beside the copy.

Keeps true: the holder writes a number that grows. Another process takes over after it has seen the same number for
            `TAKEN_OVER_AFTER_S`; by then the holder, which could not write, starts no batch any more: it stops
            `VALID_FOR_S` after its last write. On the machine of the holder, a process takes over from an ended one
            at once.
Leaves:     tasks that run when their driver is cut off from the copy for that long. They compute what the successor's
            tasks compute, because the batch's offsets are in the copy (the brokers fence their transactions).
How:        A thread of the holder writes. The processes of Spark that plan batches read from a file until when the
            lease is valid, by the clock that all processes of a machine share.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from felice.pipelines.streams.on_spark.directory import NAME, CheckpointError
from felice.pipelines.streams.on_spark.places import Place, PlaceError, place_at
from felice.pipelines.streams.on_spark.process_times import start_of_process

FILE = "holder.json"
WRITTEN_EVERY_S = 3.0
VALID_FOR_S = 12.0
TAKEN_OVER_AFTER_S = 15.0
_POLL_S = 0.5
_ABSENT = 4
"""The lease was released if it is absent so often in a row: HDFS has no file for a moment while it is replaced."""


class Lease:
    """The lease of the copy at `address`, for the application whose checkpoint is `directory`."""

    def __init__(self, directory: Path, address: str, application: str) -> None:
        self._directory, self._address, self._application = directory, address, application
        self._token = secrets.token_hex(8)
        self._number = 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, say: Callable[[str], None] = lambda line: None) -> None:
        """Take the lease, if need be from a holder that no longer writes. Raises `CheckpointError` if one does."""
        place = place_at(self._address)
        before = _read(place)
        if before is not None and not _has_ended(before):
            say(f"waiting {TAKEN_OVER_AFTER_S:.0f} s: {_told(before)} may still run {self._application}")
            self._wait_until_silent(place, before)
        self._write(place)
        if (found := _read(place)) is None or found["token"] != self._token:
            raise self._is_used(found)
        self._thread = threading.Thread(target=self._keep, args=(place,), name="keeps the lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """End it, so that the next process need not wait."""
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join()
        self._thread = None
        _valid_until(self._directory).unlink(missing_ok=True)
        place = place_at(self._address)
        with contextlib.suppress(PlaceError):  # The next process waits then.
            if (found := _read(place)) is not None and found["token"] == self._token:
                place.remove(FILE)

    def _wait_until_silent(self, place: Place, before: dict[str, Any]) -> None:
        until, absent = time.monotonic() + TAKEN_OVER_AFTER_S, 0
        while time.monotonic() < until and absent < _ABSENT:
            time.sleep(_POLL_S)
            found = _read(place)
            absent = absent + 1 if found is None else 0
            if found is not None and found != before:
                raise self._is_used(found)

    def _is_used(self, holder: dict[str, Any] | None) -> CheckpointError:
        by = "another process" if holder is None else _told(holder)
        return CheckpointError(
            f"{self._application} is in use by {by}, which holds {self._address}; stop it first"
        )

    def _keep(self, place: Place) -> None:
        while not self._ended.wait(WRITTEN_EVERY_S):
            try:
                found = _read(place)
                if found is not None and found["token"] != self._token:
                    # Another process has taken over. The next batch says so.
                    _valid_until(self._directory).unlink(missing_ok=True)
                    return
                self._write(place)
            except PlaceError:
                continue  # The lease ends if the place stays out of reach.

    def _write(self, place: Place) -> None:
        began = time.monotonic()
        self._number += 1
        holder = {
            "token": self._token,
            "number": self._number,
            "process": [os.getpid(), start_of_process(os.getpid())],
            "host": socket.gethostname(),
        }
        place.put(FILE, self._token, lambda file: file.write(json.dumps(holder).encode()))
        path = _valid_until(self._directory)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{self._token}")
        aside.write_text(str(began + VALID_FOR_S))
        aside.replace(path)


def check_lease(directory: Path) -> None:
    """Raise `CheckpointError` if this machine no longer holds the lease of the checkpoint's copy."""
    try:
        until = float(_valid_until(directory).read_text())
    except FileNotFoundError:
        until = 0.0
    if time.monotonic() >= until:
        raise CheckpointError(
            f"the copy of {directory} could not be written for {VALID_FOR_S:.0f} s, or another process has taken over"
        )


def _valid_until(directory: Path) -> Path:
    return directory / NAME / "lease"


def _read(place: Place) -> dict[str, Any] | None:
    try:
        found = json.loads(place.read(FILE))
    except FileNotFoundError:
        return None
    except ValueError:
        return {"token": ""}
    return found if isinstance(found, dict) and "token" in found else {"token": ""}


def _has_ended(holder: dict[str, Any]) -> bool:
    """Whether the holder was a process of this machine that has ended."""
    process, started = holder.get("process") or (None, None)
    is_here = holder.get("host") == socket.gethostname()
    return is_here and process is not None and start_of_process(process) != started


def _told(holder: dict[str, Any]) -> str:
    return f"process {(holder.get('process') or '?')[0]} on {holder.get('host', '?')}"
