"""One machine at a time continues from a copy of a checkpoint (`checkpoint_copy`): it holds a lease beside the copy.

Keeps true: the holder writes a number that grows. Another process takes over when it has seen no other number for
            `TAKEN_OVER_AFTER_S`. By then the holder, which could not write, is no longer valid: its lease ends
            `VALID_FOR_S` after the beginning of its last write, for good.
            Each holder has a greater epoch than those before it, and copies of older epochs do not count.
Leaves:     tasks of the old driver, which may go on after it has lost the lease. The brokers fence their transactions.
            The copy had the offsets of their batch before they began, so the new driver's tasks write the same state.
How:        A thread of the holder writes. The processes of Spark that plan batches read from a file until when the
            lease is valid, by a clock that all processes of a machine share, and that does not stand still.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from felice.pipelines.streams.on_spark.directory import NAME, CheckpointError, write_aside
from felice.pipelines.streams.on_spark.places import Place, PlaceError, place_at
from felice.pipelines.streams.on_spark.process_times import id_of_machine, start_of_process

FILE = "holder.json"
SUFFIX = ".checkpoint"
"""The suffix of the file names of copies."""
WRITTEN_EVERY_S = 3.0
VALID_FOR_S = 12.0
TAKEN_OVER_AFTER_S = 15.0
ENDS_WITHIN_S = 5.0
_POLL_S = 0.5


def now() -> float:
    """Seconds of a clock that goes on while the machine sleeps, where the system has one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    """The lease of the copy at `address`, for the application whose checkpoint is `directory`.

    `latest_epoch` tells the greatest epoch of the copies that are there.
    """

    def __init__(
        self, directory: Path, address: str, application: str, latest_epoch: Callable[[], int]
    ) -> None:
        self._directory, self._address, self._application = directory, address, application
        self._latest_epoch = latest_epoch
        self._token = secrets.token_hex(8)
        self._number, self._epoch = 0, 0
        self._until = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def epoch(self) -> int:
        """The number of this holder; that of each later one is greater."""
        return self._epoch

    def take(self, say: Callable[[str], None] = lambda line: None) -> None:
        """Take the lease, if need be from a holder that no longer writes. Raises `CheckpointError` if one does."""
        place = place_at(self._address)
        before = _read(place)
        if not _is_free(place, before):
            who = "another process" if before is None else _told(before)
            say(f"waiting {TAKEN_OVER_AFTER_S:.0f} s: {who} may still run {self._application}")
            before = self._silent_holder(place, before)
        self._epoch = max(0 if before is None else int(before.get("epoch", 0)), self._latest_epoch()) + 1
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
        self._thread.join(ENDS_WITHIN_S)
        is_stuck, self._thread = self._thread.is_alive(), None
        _file(self._directory).unlink(missing_ok=True)
        if is_stuck or now() >= self._until:
            return  # The place does not answer, or another process has taken over.
        place = place_at(self._address)
        try:
            if (found := _read(place)) is not None and found["token"] == self._token:
                self._put(place, is_released=True)
        except (PlaceError, OSError):
            return  # The next process waits.

    def _silent_holder(self, place: Place, before: dict[str, Any] | None) -> dict[str, Any] | None:
        """The last holder, after it has written nothing for `TAKEN_OVER_AFTER_S`, or has released the lease."""
        until = now() + TAKEN_OVER_AFTER_S
        while now() < until:
            time.sleep(_POLL_S)
            # HDFS has no file for a moment while it is replaced.
            if (found := _read(place)) is None or found == before:
                continue
            if not found.get("is_released"):
                raise self._is_used(found)
            return found
        return before

    def _is_used(self, holder: dict[str, Any] | None) -> CheckpointError:
        by = "another process" if holder is None else _told(holder)
        return CheckpointError(
            f"{self._application} is in use by {by}, which holds {self._address}; stop it first"
        )

    def _keep(self, place: Place) -> None:
        why = ""
        while not self._ended.wait(WRITTEN_EVERY_S):
            try:
                began, found = now(), _read(place)
                if found is not None and found["token"] != self._token:
                    why = f"{_told(found)} has taken over"
                    break
                if now() >= self._until:
                    break
                self._write(place, began)
            except (PlaceError, OSError) as error:
                why = str(error)
                if now() >= self._until:
                    break
        else:
            return
        # It stays lost: another process may have taken over, and even have ended.
        write_aside(_file(self._directory), f"0 {why or 'the process that held it did not run'}")

    def _write(self, place: Place, began: float | None = None) -> None:
        began = now() if began is None else began
        self._put(place)
        self._until = began + VALID_FOR_S
        write_aside(_file(self._directory), f"{self._until} {self._epoch}")

    def _put(self, place: Place, *, is_released: bool = False) -> None:
        self._number += 1
        holder = {
            "token": self._token,
            "epoch": self._epoch,
            "number": self._number,
            "process": [os.getpid(), start_of_process(os.getpid())],
            "machine": id_of_machine(),
            "host": socket.gethostname(),
            "is_released": is_released,
        }
        place.put(FILE, self._token, lambda file: file.write(json.dumps(holder).encode()))


def holder_of_copy(address: str) -> str:
    """The process that holds the lease of the copy at an address, or held it last without releasing it, in words."""
    found = _read(place_at(address))
    return "" if found is None or found.get("is_released") else _told(found)


def valid_epoch(directory: Path) -> int:
    """The epoch in which this machine holds the lease of a checkpoint's copy. Raises `CheckpointError` without one."""
    try:
        until, _, about = _file(directory).read_text().partition(" ")
    except FileNotFoundError:
        until, about = "0", "it was released"
    if now() < float(until):
        return int(about)
    why = f": {about}" if until == "0" else ""
    raise CheckpointError(
        f"the lease on the copy of {directory} has ended{why}; start the application again, on one machine only"
    )


def _file(directory: Path) -> Path:
    return directory / NAME / "lease"


def _read(place: Place) -> dict[str, Any] | None:
    try:
        found = json.loads(place.read(FILE))
    except FileNotFoundError:
        return None
    except ValueError:
        return {"token": ""}
    return found if isinstance(found, dict) and "token" in found else {"token": ""}


def _is_free(place: Place, holder: dict[str, Any] | None) -> bool:
    """Whether no process can hold the lease."""
    if holder is None:
        # The holder's file may have been absent because it was being replaced.
        names = place.names()
        return not (
            FILE in names or any(one.endswith(SUFFIX) or one.startswith(f".{FILE}.") for one in names)
        )
    if holder.get("is_released"):
        return True
    process, started = holder.get("process") or (None, None)
    is_here = holder.get("machine") == id_of_machine()
    return is_here and process is not None and start_of_process(process) != started


def _told(holder: dict[str, Any]) -> str:
    return f"process {(holder.get('process') or '?')[0]} on {holder.get('host', '?')}"
