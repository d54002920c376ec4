"""Transactions as their producers knew them, and what read_committed consumers saw of them.

The records of a transaction are all there or none: all if the commit was acknowledged, none if the transaction was
aborted or no commit was requested, and none before the request. An exactly-once copy holds every record of its source
once, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from checkers.history import Read


class Outcome(Enum):
    """What the producer knows about the end of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"  # a commit was requested and not answered


@dataclass(slots=True)
class Attempt:
    """One transaction. `commit_asked_s` is the time of the commit request, None if there was none."""

    name: str
    records: list[tuple[int, int]] = field(default_factory=list)
    """Partition and number of every record written, acknowledged or not."""
    outcome: Outcome = Outcome.ABORTED
    commit_asked_s: float | None = None


@dataclass(frozen=True, slots=True)
class TransactionalRead:
    """A record that a read_committed consumer saw, and when."""

    time_s: float
    read: Read


def anomalies(
    attempts: Iterable[Attempt], final: Iterable[Read], seen: Iterable[TransactionalRead]
) -> list[str]:
    """Anomalies of transactions.

    `final` is one pass over the topic after the run; `seen` is what consumers saw during it.
    """
    by_name = {attempt.name: attempt for attempt in attempts}
    found = Counter((read.writer, read.partition, read.number) for read in final)
    return [
        *(fault for attempt in by_name.values() for fault in _atomic(attempt, found)),
        *(f"duplicated: {key} of a transaction stands {n} times" for key, n in found.items() if n > 1),
        *(fault for seen_read in seen for fault in _seen(by_name, seen_read)),
    ]


def _atomic(attempt: Attempt, found: Counter[tuple[str, int, int]]) -> list[str]:
    there = [record for record in attempt.records if found[(attempt.name, *record)]]
    if attempt.outcome is Outcome.COMMITTED and len(there) < len(attempt.records):
        missing = sorted(set(attempt.records).difference(there))
        return [f"lost: {attempt.name} was committed and lacks {missing}"]
    if attempt.outcome is Outcome.ABORTED and there:
        return [f"aborted: {attempt.name} was not committed and {there} of it are there"]
    if there and len(there) < len(attempt.records):
        return [f"torn: of {attempt.name} there is {there} and not all of {attempt.records}"]
    return []


def _seen(by_name: Mapping[str, Attempt], seen_read: TransactionalRead) -> list[str]:
    attempt = by_name.get(seen_read.read.writer)
    if attempt is None:
        return [f"invented: no transaction wrote {seen_read.read}"]
    if attempt.outcome is Outcome.ABORTED:
        return [
            f"aborted: {seen_read.read} was seen at {seen_read.time_s:.3f} s, and {attempt.name} was not committed"
        ]
    if attempt.commit_asked_s is None or seen_read.time_s < attempt.commit_asked_s:
        return [
            f"open: {seen_read.read} was seen at {seen_read.time_s:.3f} s, before {attempt.name} was to be committed"
        ]
    return []


def copy_anomalies(source: Iterable[Read], copied: Iterable[tuple[int, str, int]]) -> list[str]:
    """Anomalies of a copy.

    `copied` lists partition, writer and number of each copied record, in the order of the copy.
    """
    wanted: dict[int, list[tuple[str, int]]] = {}
    for read in source:
        wanted.setdefault(read.partition, []).append((read.writer, read.number))
    got: dict[int, list[tuple[str, int]]] = {}
    for partition, writer, number in copied:
        got.setdefault(partition, []).append((writer, number))
    faults = []
    for partition in sorted(wanted.keys() | got.keys()):
        there, copy = wanted.get(partition, []), got.get(partition, [])
        faults += [f"copied {n} times: {key} of {partition}" for key, n in Counter(copy).items() if n > 1]
        faults += [f"not copied: {key} of {partition}" for key in there if key not in set(copy)]
        faults += [f"copied from nowhere: {key} of {partition}" for key in copy if key not in set(there)]
        if not faults and there != copy:
            faults.append(f"copied out of order: partition {partition}")
    return faults
