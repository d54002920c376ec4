"""One process runs an application: locks on its checkpoint and, on this machine, on its name and cluster.

Keeps true: the operating system holds the locks (flock), so they end with the process, also by kill -9.
            Spark's Java may outlive a killed driver for a moment. Its process id is in the lock file, and the
            next process that takes the lock waits until that Java has ended.
            The locks do not reach other machines. A process that runs a checkpoint with a copy also holds a
            `lease`, which keeps other machines from running it.
Not detected: two checkpoints of one application on two machines.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO

from felice.pipelines.streams.on_spark.checkpoint_copy import check_address, copy_of
from felice.pipelines.streams.on_spark.directory import Checkpoint, CheckpointError
from felice.pipelines.streams.on_spark.lease import Lease
from felice.pipelines.streams.on_spark.process_times import start_of_process

JAVA_ENDS_WITHIN_S = 60.0
_POLL_S = 0.1


class RunLock:
    """Held while an application runs, or while a command changes its checkpoint."""

    def __init__(
        self, checkpoint: Checkpoint, application: str, cluster: str | None = None, *, pulls: bool = True
    ) -> None:
        self._paths = [checkpoint.directory / "lock"]
        if cluster is not None:
            self._paths.append(_machine_path(application, cluster))
        self._checkpoint, self._application = checkpoint, application
        self._files: list[IO[str]] = []
        self._lease: Lease | None = None
        self._pulls = pulls

    @property
    def epoch(self) -> int:
        """The epoch of the lease. The checkpoint must have a copy."""
        assert self._lease is not None, "only a checkpoint with a copy has a lease"
        return self._lease.epoch

    def __enter__(self) -> RunLock:
        """Take both locks."""
        return self.take()

    def take(self, say: Callable[[str], None] = lambda line: None) -> RunLock:
        """Take both locks, until `release`. Raises `CheckpointError` that names the holder.

        If the checkpoint has a copy, the directory then has the files of the copy (unless the lock was made with
        `pulls=False`), and no other machine may use the copy.
        """
        try:
            for path in self._paths:
                self._take(path)
            if copy := copy_of(self._checkpoint, self._application):
                check_address(self._checkpoint)
                self._lease = Lease(copy.directory, copy.address, self._application, copy.latest_epoch)
                self._lease.take(say)
                # Before the directory becomes a checkpoint: it is one with this copy.
                self._checkpoint.keep_copy_address()
                if self._pulls and copy.pull():
                    # From now on, what earlier holders still write does not count.
                    copy.push(self._lease.epoch)
        except BaseException:
            self.release()
            raise
        self.note_java(None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release both."""
        self.release()

    def release(self) -> None:
        """Release both locks, if they are held."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        for file in self._files:
            file.close()
        self._files.clear()

    def note_java(self, process_id: int | None) -> None:
        """Write the process that holds the lock, and the process id of its Java, into the lock file."""
        java = None if process_id is None else [process_id, start_of_process(process_id)]
        holder = {"process": os.getpid(), "host": socket.gethostname(), "java": java}
        for file in self._files:
            file.seek(0)
            file.truncate()
            file.write(json.dumps(holder))
            file.flush()

    def _take(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
        self._files.append(file)
        file.seek(0)
        holder = _holder(file.read())
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(
                f"{self._application} is in use by process {holder.get('process', '?')} on {holder.get('host', '?')} "
                f"({path} is locked); stop it first, for instance with: felice streams stop {self._application}"
            ) from None
        _wait_for_end_of(holder)


def is_running(checkpoint: Checkpoint) -> bool:
    """Whether a process holds the lock of a checkpoint."""
    try:
        file = (checkpoint.directory / "lock").open("a+")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def holder_of(checkpoint: Checkpoint) -> str:
    """The process that holds the lock, or held it last, in words."""
    try:
        holder = _holder((checkpoint.directory / "lock").read_text())
    except FileNotFoundError:
        return ""
    return f"process {holder['process']} on {holder['host']}" if holder else ""


def _machine_path(application: str, cluster: str) -> Path:
    name = hashlib.sha256(f"{application}\n{cluster}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"felice-streams-{os.getuid()}" / f"{name}.lock"


def _holder(text: str) -> dict[str, object]:
    try:
        found: dict[str, object] = json.loads(text)
    except ValueError:
        return {}
    return found


def _wait_for_end_of(holder: dict[str, object]) -> None:
    java = holder.get("java")
    if not isinstance(java, list) or holder.get("host") != socket.gethostname():
        return
    process_id, started = java
    until = time.monotonic() + JAVA_ENDS_WITHIN_S
    while started is not None and start_of_process(process_id) == started:
        if time.monotonic() > until:
            raise CheckpointError(
                f"process {process_id}, Spark's Java of the run before, has not ended; end it first: "
                f"kill -9 {process_id}"
            )
        time.sleep(_POLL_S)
