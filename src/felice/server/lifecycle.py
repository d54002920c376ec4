"""The states of a broker and the allowed transitions between them.

Keeps true: a broker never goes back to an earlier state. Entering a state that TRANSITIONS does not allow is a
            programming error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

_log = logging.getLogger("felice.server")


class State(Enum):
    """The states of a broker, in the order in which it enters them."""

    NEW = "new"
    LOADING = "loading"
    """The broker opens its metadata store and recovers the log directories. No directory may be marked clean."""
    JOINING = "joining"
    """Every component exists; the broker registers and follows the metadata image."""
    RUNNING = "running"
    LEAVING = "leaving"
    """Leaderships pass to other brokers; requests are still answered."""
    STOPPING = "stopping"
    """No new work is accepted. Also the state of a stopped broker: a broker is never started twice."""


TRANSITIONS: dict[State, frozenset[State]] = {
    State.NEW: frozenset({State.LOADING, State.STOPPING}),
    State.LOADING: frozenset({State.JOINING, State.STOPPING}),
    State.JOINING: frozenset({State.RUNNING, State.LEAVING, State.STOPPING}),
    State.RUNNING: frozenset({State.LEAVING, State.STOPPING}),
    State.LEAVING: frozenset({State.STOPPING}),
    State.STOPPING: frozenset(),
}


class Lifecycle:
    """The state of one broker, and the reason if it cannot go on."""

    def __init__(self) -> None:
        self.state = State.NEW
        self.failure: str | None = None
        self.on_failure: Callable[[], None] | None = None

    @property
    def has_stop_begun(self) -> bool:
        """Whether the broker is LEAVING or STOPPING."""
        return self.state in (State.LEAVING, State.STOPPING)

    @property
    def is_stopping(self) -> bool:
        """Whether waiting requests should end now."""
        return self.state is State.STOPPING

    def enter(self, state: State) -> None:
        """Changes the state. Entering the current state again has no effect."""
        if state is self.state:
            return
        assert state in TRANSITIONS[self.state], (
            f"a broker that is {self.state.value} cannot be {state.value}"
        )
        self.state = state

    def fail(self, reason: str) -> None:
        """Reports that the broker cannot continue, so that the process that runs it stops it."""
        self.failure = reason
        _log.error("the broker cannot continue", extra={"reason": reason})
        if self.on_failure is not None:
            self.on_failure()
