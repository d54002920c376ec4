"""Runs the persistent queries of a server on Spark: each as an application with a streaming query of its own.

Keeps true: an application that fails keeps its checkpoint, and starts again after a pause, which doubles up to
            `LONGEST_PAUSE_S`. The others run on.
            The checkpoint of a query that was terminated is deleted after the query has ended.
How:        one thread starts, follows and stops all of them. Spark itself starts with the first query.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felice.dataclass import dataclass
from felice.pipelines.sql.server.persistent import ERROR, RUNNING, QueryState
from felice.pipelines.streams.app import App

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from felice.pipelines.streams.on_spark.running import Running

_log = logging.getLogger("felice.sql")

LONGEST_PAUSE_S = 60.0
POLL_S = 0.2


@dataclass(slots=True)
class _Wanted:
    """A query that should run, and how it went."""

    app: App
    description: str
    failures: int = 0
    """In a row, without a finished batch."""
    starts_at: float = 0.0
    reason: str | None = None
    """Why it failed, until it has finished a batch again."""


class SparkQueries:
    """`PersistentQueries` on Spark. `options` are those of `felice run` (`query_of`)."""

    def __init__(
        self, name: str, bootstrap: str, master: str, checkpoints: Path, options: Mapping[str, Any]
    ) -> None:
        self._name, self._bootstrap, self._master = name, bootstrap, master
        self._checkpoints, self._options = checkpoints, dict(options)
        self._lock = threading.Lock()
        self._wanted: dict[str, _Wanted] = {}
        self._known: frozenset[str] | None = None
        self._running: dict[str, tuple[_Wanted, Running]] = {}
        self._session: SparkSession | None = None
        self._changed, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="persistent-queries", daemon=True)

    def start(self) -> None:
        """Begin to run what is wanted."""
        self._thread.start()

    def stop(self) -> None:
        """End all queries after their batches, and Spark."""
        self._ends.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._session is not None:
            self._session.stop()

    def want(self, apps: Mapping[str, App], known: frozenset[str] | None) -> None:
        """Run exactly these applications."""
        with self._lock:
            for id, app in apps.items():
                description = app.topology.describe()
                before = self._wanted.get(id)
                if before is None or before.description != description:
                    self._wanted[id] = _Wanted(app, description)
            for id in self._wanted.keys() - apps.keys():
                del self._wanted[id]
            self._known = known
        self._changed.set()

    def states(self) -> Mapping[str, QueryState]:
        """The state of each application that is wanted."""
        with self._lock:
            return {
                id: QueryState(RUNNING) if one.reason is None else QueryState(ERROR, one.reason)
                for id, one in self._wanted.items()
            }

    def running(self) -> frozenset[str]:
        """The applications that have not ended."""
        with self._lock:
            return frozenset(self._running)

    # The thread

    def _run(self) -> None:
        while not self._ends.is_set() or self._running:
            try:
                self._turn()
            except Exception:
                _log.exception("the persistent queries cannot be followed")
                time.sleep(1.0)
            self._changed.wait(POLL_S)
            self._changed.clear()

    def _turn(self) -> None:
        with self._lock:
            wanted = {} if self._ends.is_set() else dict(self._wanted)
            known = self._known
        for id, (one, running) in list(self._running.items()):
            if wanted.get(id) is not one:
                running.ask_to_stop()
            running.step()
            if running.has_finished_batch and one.reason is not None:
                with self._lock:
                    one.failures, one.reason = 0, None
            if running.is_over:
                with self._lock:
                    del self._running[id]
                self._ended(id, one, running)
        for id, one in wanted.items():
            if id not in self._running and time.monotonic() >= one.starts_at:
                self._start(id, one)
        if known is not None and not self._ends.is_set():
            self._forget(known)

    def _ended(self, id: str, one: _Wanted, running: Running) -> None:
        reason = running.end()
        if reason is not None and not running.is_stopping:
            self._failed(id, one, reason)

    def _failed(self, id: str, one: _Wanted, reason: str) -> None:
        pause_s = min(LONGEST_PAUSE_S, 2.0**one.failures)
        with self._lock:
            one.failures += 1
            one.reason, one.starts_at = reason, time.monotonic() + pause_s
        _log.error(
            "a persistent query failed", extra={"query": id, "reason": reason, "starts_again_in_s": pause_s}
        )

    def _start(self, id: str, one: _Wanted) -> None:
        from felice.pipelines.streams.on_spark.directory import checkpoint_of
        from felice.pipelines.streams.on_spark.lock import RunLock
        from felice.pipelines.streams.on_spark.program import query_of
        from felice.pipelines.streams.on_spark.running import Claim, Running

        lock = None
        try:
            found = checkpoint_of(id, self._checkpoints / id)
            lock = RunLock(found, id, self._bootstrap).take(_log.info)
            claim = Claim(one.app, found, lock)
            query = query_of(claim, self._spark(), self._bootstrap, **self._options)
            say: Callable[[str], None] = lambda line: _log.info("%s: %s", id, line)  # noqa: E731
            with self._lock:
                self._running[id] = one, Running(claim, query, say)
        except Exception as error:
            if lock is not None:
                lock.release()
            self._failed(id, one, str(error) or type(error).__name__)

    def _spark(self) -> SparkSession:
        if self._session is None:
            from felice.pipelines.streams.on_spark.runner import session_for_applications

            self._session = session_for_applications(self._name, self._master)
        return self._session

    def _forget(self, known: frozenset[str]) -> None:
        """Delete the checkpoints of queries that are gone."""
        if self._checkpoints.is_dir():
            for path in self._checkpoints.iterdir():
                if path.name not in known and path.name not in self._running:
                    shutil.rmtree(path, ignore_errors=True)
