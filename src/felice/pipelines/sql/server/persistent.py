"""Persistent queries that run, as the server sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from felice.dataclass import dataclass
from felice.pipelines.streams.app import App

RUNNING, PAUSED, ERROR = "RUNNING", "PAUSED", "ERROR"


@dataclass(frozen=True, slots=True)
class QueryState:
    """RUNNING, or ERROR with the reason. A query that is started counts as running."""

    name: str
    reason: str | None = None
    behind: int | None = None
    """How many records of its topics it had not read, when last reported."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many records it left out since the server began to run it, by reason: skipped, late, null, time."""


class PersistentQueries(Protocol):
    """Runs applications. Its functions return at once."""

    def want(self, apps: Mapping[str, App], known: frozenset[str] | None) -> None:
        """Run exactly these applications, by query id. Those of `known` that are not among them keep their state and
        positions; the state of all others is deleted. With None nothing is deleted.
        """

    def states(self) -> Mapping[str, QueryState]:
        """The state of each application that is wanted."""

    def others_have_ended(self) -> bool:
        """Whether all applications that are no longer wanted have ended and write nothing more, and the state of
        unknown applications is deleted.
        """
