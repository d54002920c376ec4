"""What a host runs: plans, which are data, in files that the driver writes and all processes read.

Keeps true: a plan never changes; a change is another plan with the next number. Each batch names its plan, so a batch
            that runs again runs with the same Apps. A plan is complete and durable before its number is known.
            An App that was dropped and put again is another *incarnation*, with no positions and no state.
            A failure is a file, too: which App, in which batch, and the positions before that batch. It is written
            before the batch runs again, so that every later run of the batch leaves the App out.
Where:      `plans/N.json`, `apps/DIGEST` (pickled topologies) and `failures/N.json` in a directory that driver and
            workers share.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, field
from functools import cached_property
from pathlib import Path
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.spark.offsets import Checkpoint as Document
from felice.pipelines.spark.options import Subscription
from felice.pipelines.streams.on_spark.directory import (
    CheckpointError,
    Description,
    description_in,
    write_durably,
)
from felice.pipelines.streams.topology import Topology, TopologyError

FORMAT = 1
NEVER = -1


@dataclass(frozen=True, slots=True)
class Entry:
    """An App in a plan."""

    name: str
    incarnation: str
    """Names its positions and its state: the App's name, and the plan with which it came."""
    digest: str
    """Of the pickled topology; the name of its file."""
    levels: tuple[tuple[int, ...], ...]
    """The parts with state, by the number of such parts before them: the stage of the query that runs them."""
    subscription: tuple[str, str]
    """The option of a source that names its topics, and its value."""
    writes: tuple[str, ...]
    """The topics that it writes, without those that it chooses for each record."""
    is_clocked: bool
    """Whether it has timers of the wall clock."""
    starts: Document
    """The first offsets of topics that do not begin at their start."""
    description: Description
    """The stores, as later versions of the App must have them."""
    is_paused: bool = False
    is_detached: bool = False
    """Whether it was dropped, and its state is kept for when it is put again."""
    cleared: int = NEVER
    """Failures up to this number no longer count."""

    def reads(self, topic: str) -> bool:
        """Whether it reads the topic."""
        option, value = self.subscription
        if option == "subscribePattern":
            return Subscription(pattern=value).matches(topic)
        return topic in value.split(",")

    @property
    def pattern(self) -> str:
        """A pattern that finds the names of its topics."""
        option, value = self.subscription
        if option == "subscribePattern":
            return value
        return f"^(?:{'|'.join(map(re.escape, value.split(',')))})$"

    @property
    def parts(self) -> int:
        """How many numbers its parts take."""
        return 1 + max((number for level in self.levels for number in level), default=0)

    def directory_of(self, part: int, store: str) -> str:
        """The name of a store among those of all Apps."""
        return f"{self.incarnation}|{self.description.directory_of(part)}|{store}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A batch in which an App failed."""

    number: int
    """Later failures have greater ones. An App can fail twice in a batch: if it was resumed before Spark planned it."""
    incarnation: str
    batch: int
    error: str
    positions: Document
    """Those before the batch."""
    is_overdue: bool = False
    """Whether the App did not return in time."""


class HostPlan:
    """The Apps that a host has. It never changes."""

    def __init__(self, number: int = 0, entries: tuple[Entry, ...] = ()) -> None:
        self.number, self.entries = number, entries

    @cached_property
    def by_incarnation(self) -> dict[str, Entry]:
        """The entries."""
        return {one.incarnation: one for one in self.entries}

    @cached_property
    def bases(self) -> dict[str, int]:
        """What is added to the number of an App's part: parts of all Apps have different numbers in a batch."""
        found, base = {}, 0
        for one in self.entries:
            found[one.incarnation] = base
            base += one.parts
        return found

    @property
    def levels(self) -> int:
        """How many stages the plan needs."""
        return max((len(one.levels) for one in self.entries), default=0)

    def find(self, name: str) -> Entry | None:
        """The App with this name, also a detached one."""
        return next((one for one in self.entries if one.name == name), None)

    def named(self, name: str) -> Entry:
        """The App with this name. Raises `KeyError`."""
        found = self.find(name)
        if found is None or found.is_detached:
            raise KeyError(name)
        return found

    def following(self, name: str, entry: Entry | None) -> HostPlan:
        """The next plan: with this entry for a name, or without it."""
        kept = [one for one in self.entries if one.name != name]
        place = next((at for at, one in enumerate(self.entries) if one.name == name), len(kept))
        if entry is not None:
            kept.insert(place, entry)
        return HostPlan(self.number + 1, tuple(kept))

    def running(self, batch: int, failures: Iterable[Failure]) -> list[Entry]:
        """The Apps that take part in a batch."""
        failed = self.failed(failures, batch)
        return [
            one for one in self.entries if not (one.is_paused or one.is_detached or one.incarnation in failed)
        ]

    def failed(self, failures: Iterable[Failure], batch: int | None = None) -> dict[str, Failure]:
        """The failures that count in a batch, or now, by incarnation."""
        found: dict[str, Failure] = {}
        for one in failures:
            entry = self.by_incarnation.get(one.incarnation)
            if entry is not None and one.number > entry.cleared and (batch is None or one.batch <= batch):
                found[one.incarnation] = one
        return found


def levels_of(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """The numbers of the parts with state, by how many parts with state come before them."""
    parts = topology.parts()
    writers = {one.topic: part.number for part in parts for one in part.sinks if one.is_repartition}
    levels: dict[int, int] = {}
    for part in parts:  # Each after those that it reads a repartition of.
        if part.is_placed:
            before = [levels.get(writers[one.topic], NEVER) for one in part.sources if one.is_repartition]
            levels[part.number] = 1 + max(before, default=NEVER)
    depth = 1 + max(levels.values(), default=NEVER)
    return tuple(tuple(number for number, at in levels.items() if at == level) for level in range(depth))


def written_topics(topology: Topology) -> tuple[str, ...]:
    """The topics that the nodes of an App write."""
    sinks = [one for part in topology.parts() for one in part.sinks if not one.is_repartition]
    return tuple(sorted({one.topic for one in sinks}))


def check_hosted(name: str, topology: Topology) -> None:
    """Raise `TopologyError` for an App that a host cannot run."""
    if topology.frames() or topology.has_frame_of_results():
        raise TopologyError(
            f"{name} reads or makes DataFrames, which a host cannot do; run it with felice run"
        )


_Seen = tuple[str, int, int]
"""A file of a failure: its name, inode and time of change. The last two differ if another file gets the name."""


@dataclass(slots=True)
class ReadFailures:
    """The failures that a caller of `PlanFiles.failures` has read, so that its next call reads only new files."""

    known: Mapping[_Seen, Failure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanFiles:
    """The files of plans, Apps and failures in a directory."""

    directory: Path

    def latest_number(self) -> int:
        """The number of the newest plan; 0 before the first."""
        return max(self._numbers(), default=0)

    def plan(self, number: int) -> HostPlan:
        """A plan. Raises `CheckpointError` if it is not there."""
        if number == 0:
            return HostPlan()
        path = self._plan_path(number)
        try:
            found = json.loads(path.read_text())
        except (FileNotFoundError, ValueError) as error:
            raise CheckpointError(f"plan {number} of the host cannot be read ({path}): {error}") from None
        if found["format"] != FORMAT:
            raise CheckpointError(f"{path} was written by another release of Felice; use that release")
        return HostPlan(number, tuple(map(_entry_in, found["entries"])))

    def write(self, plan: HostPlan) -> None:
        """Write a plan durably. From now on it is the newest."""
        document = {"format": FORMAT, "entries": [asdict(one) for one in plan.entries]}
        write_durably(self._plan_path(plan.number), json.dumps(document))

    def write_app(self, pickled: bytes) -> str:
        """Write a topology durably; returns its digest."""
        digest = hashlib.sha256(pickled).hexdigest()[:32]
        path = self._app_path(digest)
        if not path.exists():
            write_durably(path, pickled)
        return digest

    def app(self, digest: str) -> bytes:
        """A pickled topology."""
        return self._app_path(digest).read_bytes()

    def failures(self, read: ReadFailures | None = None) -> list[Failure]:
        """All failures, the oldest first. A file in `read` is not read again, unless it has changed since."""
        read, found = read or ReadFailures(), dict[_Seen, Failure]()
        try:
            paths = [path for path in (self.directory / "failures").iterdir() if path.suffix == ".json"]
        except FileNotFoundError:
            paths = []
        for path in paths:
            if path.name.startswith("."):
                continue
            with suppress(FileNotFoundError):  # The file was removed meanwhile.
                status = path.stat()
                seen = (path.name, status.st_ino, status.st_mtime_ns)
                found[seen] = read.known.get(seen) or Failure(**json.loads(path.read_text()))
        read.known = found
        return sorted(found.values(), key=lambda one: one.number)

    def write_failure(self, failure: Failure) -> None:
        """Write a failure durably."""
        write_durably(self._failure_path(failure), json.dumps(asdict(failure)))

    def next_failure(self, plan: HostPlan) -> int:
        """The number of the next failure. `plan` is the newest; files of failures that it cleared may be gone."""
        numbers = [one.number for one in self.failures()] + [one.cleared for one in plan.entries]
        return 1 + max(numbers, default=0)

    def remove_older(self, number: int, batch: int) -> None:
        """Remove plans before a number, the Apps that only they have, and failures before a batch that no longer
        count.
        """
        numbers = sorted(self._numbers())
        plans = [self.plan(one) for one in numbers if one >= number]
        if not plans:
            return
        failures = self.failures()
        counting = [one for plan in plans for one in plan.failed(failures).values()]
        for failure in failures:
            if failure not in counting and failure.batch < batch:
                self._failure_path(failure).unlink(missing_ok=True)
        for one in numbers:
            if one < number:
                self._plan_path(one).unlink(missing_ok=True)
        used = {entry.digest for plan in plans for entry in plan.entries}
        for path in (self.directory / "apps").glob("*"):
            if path.name not in used:
                path.unlink(missing_ok=True)

    def _numbers(self) -> Iterable[int]:
        try:
            names = [path.stem for path in (self.directory / "plans").iterdir()]
        except FileNotFoundError:
            return []
        return [int(name) for name in names if name.isdigit()]

    def _plan_path(self, number: int) -> Path:
        return self.directory / "plans" / f"{number}.json"

    def _failure_path(self, failure: Failure) -> Path:
        return self.directory / "failures" / f"{failure.number}.json"

    def _app_path(self, digest: str) -> Path:
        return self.directory / "apps" / digest


def _entry_in(found: Mapping[str, Any]) -> Entry:
    return Entry(
        **{
            **found,
            "levels": tuple(map(tuple, found["levels"])),
            "subscription": tuple(found["subscription"]),
            "writes": tuple(found["writes"]),
            "description": description_in(found["description"]),
        }
    )


@dataclass(frozen=True, slots=True)
class KnownApp:
    """What is known of the state of an App of a host, for the rules of `changes`."""

    path: Path
    found: Description | None = None
    batches: tuple[int, int] = field(default=(NEVER, NEVER))

    def description(self) -> Description | None:
        """The App as it is in the plan."""
        return self.found

    def last_batches(self) -> tuple[int, int]:
        """The last batches that the host has planned and done."""
        return self.batches
