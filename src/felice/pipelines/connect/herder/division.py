"""How connectors and tasks are divided among workers, and the texts by which workers agree on it. Pure.

Keeps true:  what a worker runs is given to no other worker before it has said that it runs it no more: what shall move
             is first taken away, and given out in the next round.
             What nobody runs since a worker was lost waits for its return for a time, then it is given out.
             Numbers of connectors, and of tasks, differ by one at most among workers, when nothing has to move.
Source:      the aims are those of Kafka's incremental cooperative rebalancing (KIP-415); the texts are ours, so that
             a group has workers of one kind only: a group of Kafka's workers refuses ours, and the other way round.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, TypeVar

from felice.dataclass import dataclass
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.tasks import TaskId

PROTOCOL_TYPE, PROTOCOL = "connect", "felice"
_VERSION = 1

T = TypeVar("T", str, TaskId)


@dataclass(frozen=True, slots=True)
class Work:
    """Connectors and tasks."""

    connectors: frozenset[str] = frozenset()
    tasks: frozenset[TaskId] = frozenset()

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "connectors": sorted(self.connectors),
            "tasks": sorted([task.connector, task.number] for task in self.tasks),
        }

    @staticmethod
    def of(found: Mapping[str, Any]) -> Work:
        """From JSON. Raises `DataError`."""
        try:
            connectors = frozenset(str(name) for name in found["connectors"])
            tasks = frozenset(TaskId(str(name), int(number)) for name, number in found["tasks"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"no connectors and tasks: {error}") from None
        return Work(connectors, tasks)

    def __or__(self, other: Work) -> Work:
        return Work(self.connectors | other.connectors, self.tasks | other.tasks)

    def __sub__(self, other: Work) -> Work:
        return Work(self.connectors - other.connectors, self.tasks - other.tasks)

    def __and__(self, other: Work) -> Work:
        return Work(self.connectors & other.connectors, self.tasks & other.tasks)

    def __bool__(self) -> bool:
        return bool(self.connectors or self.tasks)


@dataclass(frozen=True, slots=True)
class Member:
    """A worker in the group: its address, and what it runs or may run."""

    url: str
    runs: Work

    def encode(self) -> bytes:
        """The metadata of a member of the group."""
        return _encode({"version": _VERSION, "url": self.url, **self.runs.document()})

    @staticmethod
    def decode(data: bytes) -> Member:
        """Reads the metadata of a member. Raises `DataError`."""
        found = _decode(data)
        if not isinstance(url := found.get("url"), str):
            raise DataError("a worker needs an address")
        return Member(url, Work.of(found))


@dataclass(frozen=True, slots=True)
class Division:
    """What all workers are told: who leads, and the work of each by its address.

    `wait_s` is the time after which the group shall divide again, because something waits for a lost worker.
    """

    leader: str
    work: Mapping[str, Work] = field(default_factory=dict)
    wait_s: float = 0.0
    error: str | None = None

    def encode(self) -> bytes:
        """The assignment of a member of the group."""
        return _encode(
            {
                "version": _VERSION,
                "leader": self.leader,
                "work": {url: one.document() for url, one in self.work.items()},
                "wait_s": self.wait_s,
                "error": self.error,
            }
        )

    @staticmethod
    def decode(data: bytes) -> Division:
        """Reads an assignment. Raises `DataError`."""
        found = _decode(data)
        leader, work, wait_s, error = (found.get(name) for name in ("leader", "work", "wait_s", "error"))
        if (
            not isinstance(leader, str)
            or not isinstance(work, dict)
            or not isinstance(wait_s, (int, float))
            or not isinstance(error, str | None)
        ):
            raise DataError("a division needs leader, work and wait_s")
        return Division(leader, {url: Work.of(one) for url, one in work.items()}, wait_s, error)

    def owner_of_connector(self, name: str) -> str | None:
        """The address of the worker that has a connector."""
        return next((url for url, one in self.work.items() if name in one.connectors), None)

    def owner_of_task(self, task: TaskId) -> str | None:
        """The address of the worker that has a task."""
        return next((url for url, one in self.work.items() if task in one.tasks), None)


class Divider:
    """Divides, at the leader of the group. It remembers what was given out, to know what a lost worker had."""

    def __init__(self, delay_s: float) -> None:
        """`delay_s` is how long the work of a lost worker waits."""
        self._delay_s = delay_s
        self._given = Work()
        self._members = self._expected = 0
        self._wait_until_s: float | None = None

    def divide(self, leader: str, members: Iterable[Member], everything: Work, now_s: float) -> Division:
        """The work of each member."""
        members = sorted(members, key=lambda member: member.url)
        if len({member.url for member in members}) < len(members):
            urls = ", ".join(member.url for member in members)
            return Division(leader, error=f"two workers of the group have one address: {urls}")
        claimed = Work()
        kept: dict[str, Work] = {}
        for member in members:
            # Of two that run the same, which a partition of the network can cause, the second stops it.
            kept[member.url] = (member.runs & everything) - claimed
            claimed |= member.runs
        waiting = self._waiting(everything, claimed, len(members), now_s)
        free = everything - claimed - waiting
        connectors = _shared({url: one.connectors for url, one in kept.items()}, free.connectors, str)
        tasks = _shared({url: one.tasks for url, one in kept.items()}, free.tasks, _order)
        work = {url: Work(connectors[url], tasks[url]) for url in kept}
        self._given = waiting
        for one in work.values():
            self._given |= one
        self._members = len(members)
        wait_s = 0.0 if self._wait_until_s is None else max(0.1, self._wait_until_s - now_s)
        return Division(leader, work, wait_s)

    def _waiting(self, everything: Work, claimed: Work, members: int, now_s: float) -> Work:
        """What waits for a lost worker."""
        lost = (self._given & everything) - claimed
        if not lost:
            self._wait_until_s = None
            return Work()
        if self._wait_until_s is None:
            if members >= self._members:  # No worker is lost: the work was taken away in order to move.
                return Work()
            self._wait_until_s, self._expected = now_s + self._delay_s, self._members
        if now_s >= self._wait_until_s or members >= self._expected:
            self._wait_until_s = None
            return Work()
        return lost


def _order(task: TaskId) -> tuple[str, int]:
    return task.connector, task.number


def _shared(kept: Mapping[str, frozenset[T]], free: frozenset[T], order: Any) -> dict[str, frozenset[T]]:
    """What each member has afterwards: at most its share of what it has, and of what is free."""
    found = {url: sorted(one, key=order) for url, one in kept.items()}
    total = sum(map(len, found.values())) + len(free)
    share, rest = divmod(total, len(found)) if found else (0, 0)
    # The largest keep one more than the others.
    for place, url in enumerate(sorted(found, key=lambda url: (-len(found[url]), url))):
        del found[url][share + (place < rest) :]
    for one in sorted(free, key=order):
        least = min(found, key=lambda url: (len(found[url]), url))
        found[least].append(one)
    return {url: frozenset(one) for url, one in found.items()}


def _decode(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise DataError("it is not JSON") from None
    if not isinstance(found, dict):
        raise DataError("it is not a JSON object")
    return found


def _encode(members: Mapping[str, Any]) -> bytes:
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()
