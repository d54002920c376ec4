"""Runs the persistent queries of a server on Spark: all of them in one host (`docs/decisions/0027`).

Keeps true: a query that fails stops alone, and goes on at its failure after a pause, which doubles up to
            `LONGEST_PAUSE_S`. State and positions of a query that was terminated are gone.
How:        one thread makes the host have what is wanted, and looks at it. Spark itself starts with the first query.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from felice.dataclass import dataclass
from felice.pipelines.sql.server.persistent import ERROR, RUNNING, QueryState
from felice.pipelines.streams.app import App

if TYPE_CHECKING:
    from felice.pipelines.streams.on_spark.host.host import Host, HostedState

_log = logging.getLogger("felice.sql")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 600.0
"""A query that fails again costs the others a start of Spark's query, so it is tried less and less often."""
_FINE_AFTER_S = 20.0
"""A query that has run for so long since it went on counts as running, and its failures are forgotten."""
POLL_S = 0.3


@dataclass(slots=True)
class _Wanted:
    """A query that should run, and how it went."""

    app: App
    is_put: bool = False
    failures: int = 0
    """In a row."""
    tried_at: float = 0.0
    reason: str | None = None
    """Why it failed, or could not be started."""
    behind: int | None = None
    is_overdue: bool = False
    """Whether the query failed because a function did not return in time."""
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def pause_s(self) -> float:
        """How long it waits after its last failure."""
        if self.is_overdue and self.failures:
            return LONGEST_PAUSE_S  # The others wait for as long as it takes.
        return 0.0 if not self.failures else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self.failures - 1))


class SparkQueries:
    """`PersistentQueries` in a host. `client` has properties of a client, such as its login."""

    def __init__(
        self, name: str, bootstrap: str, master: str, checkpoint: Path, client: Mapping[str, object]
    ) -> None:
        self._name, self._bootstrap, self._master = name, bootstrap, master
        self._checkpoint, self._client = checkpoint, dict(client)
        self._lock = threading.Lock()
        self._wanted: dict[str, _Wanted] = {}
        self._known: frozenset[str] | None = None
        self._wish = 0
        """The number of the last change that ends, or may end, applications that the host has."""
        self._done = -1
        """The number of the last change that was carried out."""
        self._host: Host | None = None
        self._host_reason: str | None = None
        """Why the host cannot start."""
        self._host_at = 0.0
        self._changed, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="persistent-queries", daemon=True)

    def start(self) -> None:
        """Begin to run what is wanted."""
        self._thread.start()

    def stop(self) -> None:
        """End all queries after their batch."""
        self._ends.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()

    def want(self, apps: Mapping[str, App], known: frozenset[str] | None) -> None:
        """Run exactly these applications."""
        with self._lock:
            ends_some = self._may_end_some(apps, known)
            for id, app in apps.items():
                before = self._wanted.get(id)
                if before is None or before.app is not app:
                    self._wanted[id] = _Wanted(app)
            for id in self._wanted.keys() - apps.keys():
                del self._wanted[id]
            self._known = known
            self._wish += ends_some
        self._changed.set()

    def _may_end_some(self, apps: Mapping[str, App], known: frozenset[str] | None) -> bool:
        """Whether a change ends applications, or may end some that the host has. An added application ends no other
        one, so nothing has to wait until the host has it.
        """
        if self._wish == 0 or any(apps.get(id) is not one.app for id, one in self._wanted.items()):
            return True
        if known is None or self._known is None:
            return known is not self._known
        return not self._known <= known

    def states(self) -> Mapping[str, QueryState]:
        """The state of each application that is wanted."""
        with self._lock:
            host = self._host
            of_all = self._host_reason or (host.trouble if host is not None else None)
            wanted = {id: (one.reason or of_all, one) for id, one in self._wanted.items()}
        return {
            id: QueryState(RUNNING if reason is None else ERROR, reason, one.behind, one.left_out)
            for id, (reason, one) in wanted.items()
        }

    def others_have_ended(self) -> bool:
        """Whether the host runs only the applications that were last wanted, even in its running batch."""
        with self._lock:
            return self._done == self._wish

    # The thread

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                with self._lock:
                    wish = self._wish
                if self._turn():
                    with self._lock:
                        self._done = wish
            except Exception:
                _log.exception("the persistent queries cannot be followed")
                self._ends.wait(1.0)
            self._changed.wait(POLL_S)
            self._changed.clear()
        self._stop_host()

    def _turn(self) -> bool:
        """Make the host run what is wanted. Returns whether the host does, and no batch of an older plan is running."""
        with self._lock:
            wanted, known = dict(self._wanted), self._known
        if known is None and not wanted:
            self._stop_host()
            return True
        if self._host is None and not wanted and not self._checkpoint.is_dir():
            return True  # Nothing to run, and nothing to forget: Spark need not start.
        host = self._started_host()
        if host is None:
            return False
        found = host.states()
        if host.failure is not None:
            return False  # It is no failure of the queries.
        self._forget(host, found, wanted, known)
        for id, one in wanted.items():
            state = found.get(id)
            one.behind = None if state is None else state.behind
            one.left_out = {} if state is None else state.left_out
            if not one.is_put or state is None:
                self._put(host, id, one)
            elif state.error is not None:
                self._failed(host, id, one, state)
            elif state.state.value == "paused":
                if self._resumed(host, id, one):
                    self._note(one, None)
            elif one.failures and time.monotonic() - one.tried_at > _FINE_AFTER_S:
                self._note(one, None, failures=0)
        # A batch of an older plan still writes, and its producers make topics that are gone. The host reads files for
        # the answer, so it is asked only while something is to end.
        return self._done == self._wish or host.runs_newest_plan()

    def _forget(
        self,
        host: Host,
        found: Mapping[str, HostedState],
        wanted: Mapping[str, _Wanted],
        known: frozenset[str] | None,
    ) -> None:
        """Pause and drop what is no longer wanted."""
        for id, state in found.items():
            if known is not None and id not in known:
                host.drop(id)
            elif id not in wanted and state.state.value == "running":
                host.pause(id)

    def _put(self, host: Host, id: str, one: _Wanted) -> None:
        if time.monotonic() - one.tried_at < one.pause_s:
            return
        try:
            host.put(one.app)
        except Exception as error:
            self._note(one, str(error) or type(error).__name__, failures=one.failures + 1)
            _log.error("a persistent query cannot start", extra={"query": id, "reason": one.reason})
        else:
            one.is_put = True
            self._note(one, None)

    def _failed(self, host: Host, id: str, one: _Wanted, state: HostedState) -> None:
        """Note a failure when it is new, and go on after the pause."""
        if one.reason is None or not one.failures:
            one.is_overdue = state.is_overdue
            self._note(one, state.error, failures=one.failures + 1)
            _log.error(
                "a persistent query failed",
                extra={"query": id, "reason": one.reason, "goes_on_in_s": one.pause_s},
            )
        elif time.monotonic() - one.tried_at >= one.pause_s:
            one.is_overdue = state.is_overdue
            self._note(one, state.error, failures=one.failures + 1)
            self._resumed(host, id, one)

    def _resumed(self, host: Host, id: str, one: _Wanted) -> bool:
        try:
            host.resume(id)
        except Exception as error:  # A topic that it writes is missing, or no broker answers.
            self._note(one, str(error) or type(error).__name__)
            return False
        return True

    def _note(self, one: _Wanted, reason: str | None, *, failures: int | None = None) -> None:
        with self._lock:
            one.reason, one.tried_at = reason, time.monotonic()
            if failures is not None:
                one.failures = failures

    def _started_host(self) -> Host | None:
        if self._host is not None and self._host.failure is None:
            return self._host
        if time.monotonic() < self._host_at:
            return None
        from felice.pipelines.streams.on_spark.host.host import Host

        self._host_at = time.monotonic() + FIRST_PAUSE_S
        if self._host is not None:
            self._host_reason = self._host.failure
            _log.error("the persistent queries have ended", extra={"reason": self._host_reason})
        try:
            self._stop_host()
            made = Host(
                self._bootstrap, self._checkpoint, client=self._client, master=self._master, name=self._name
            )
            made.start()
        except Exception as error:
            self._host_reason = str(error) or type(error).__name__
            _log.error("the persistent queries cannot start", extra={"reason": self._host_reason})
            return None
        self._host, self._host_reason = made, None
        return made

    def _stop_host(self) -> None:
        if self._host is not None:
            host, self._host = self._host, None
            host.stop()
