"""Committed offsets of a group, and the owners of partitions in each generation.

A committed offset is never lower than one that was acknowledged before the request, never goes back, and was committed
by some member. In one generation no two members own the same partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Commit:
    """A commit by a member. `acknowledged_s` is None until the coordinator has confirmed it."""

    partition: int
    offset: int
    asked_s: float
    acknowledged_s: float | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset as a client read it; -1 if there is none."""

    partition: int
    offset: int
    asked_s: float
    answered_s: float


@dataclass(frozen=True, slots=True)
class Owned:
    """A partition that a member owned in a generation."""

    generation: int
    member: str
    partition: int


def commit_anomalies(commits: Iterable[Commit], observed: Iterable[CommittedOffset]) -> list[str]:
    """Anomalies among the offsets that were read, given the commits."""
    commits = list(commits)
    faults: list[str] = []
    highest: dict[int, tuple[int, float]] = {}
    for seen in sorted(observed, key=lambda seen: seen.asked_s):
        before = highest.get(seen.partition)
        if before is not None and before[1] <= seen.asked_s and seen.offset < before[0]:
            faults.append(f"back: partition {seen.partition} was committed up to {before[0]}, then {seen}")
        if before is None or seen.offset > before[0]:
            highest[seen.partition] = seen.offset, seen.answered_s
        faults += _against(seen, [commit for commit in commits if commit.partition == seen.partition])
    return faults


def _against(seen: CommittedOffset, commits: list[Commit]) -> list[str]:
    known = [c for c in commits if c.acknowledged_s is not None and c.acknowledged_s <= seen.asked_s]
    last = max(known, key=lambda commit: commit.offset, default=None)
    if last is not None and seen.offset < last.offset:
        return [f"forgotten: {last} was acknowledged, then {seen}"]
    if seen.offset >= 0 and not any(
        c.offset == seen.offset and c.asked_s <= seen.answered_s for c in commits
    ):
        return [f"invented: no member committed {seen}"]
    return []


def ownership_anomalies(owned: Iterable[Owned]) -> list[str]:
    """Partitions that two members owned in one generation."""
    owners: dict[tuple[int, int], str] = {}
    faults = []
    for claim in owned:
        owner = owners.setdefault((claim.generation, claim.partition), claim.member)
        if owner != claim.member:
            faults.append(f"owned twice: {claim}, and by {owner}")
    return faults
