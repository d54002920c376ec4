"""The state of a share group in one partition, as a value, and how a change is laid over it.

Keeps true:  batches rise without overlaps, neighbours of equal state and deliveries are one batch, and none begins
             before the start offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple, TypeAlias
from uuid import UUID

from felice.dataclass import dataclass
from felice.replication.share.states import StateBatch, joined

NO_OFFSET = -1
NO_EPOCH = -1
NO_COUNT = -1

Batches: TypeAlias = tuple[StateBatch, ...]

_first, _last = itemgetter(0), itemgetter(1)


class ShareKey(NamedTuple):
    """A share group and a partition of a topic."""

    group_id: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class ShareUpdate:
    """The content of an update record. A start offset of -1 keeps the old one."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    done_count: int
    batches: Batches = ()


@dataclass(frozen=True, slots=True)
class ShareState:
    """The state after a snapshot and its updates. If it has no start offset, the leader of the partition chooses one.

    `state_epoch` rises when the offset is altered from outside, `leader_epoch` when a leader reads the state: both
    fence writers that know an older one. `updates` counts the updates since the snapshot.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int = 0
    start_offset: int = NO_OFFSET
    done_count: int = NO_COUNT
    created_ms: int = -1
    written_ms: int = -1
    batches: Batches = ()
    updates: int = 0

    def updated(self, update: ShareUpdate) -> ShareState:
        """The state after an update."""
        start = self.start_offset if update.start_offset == NO_OFFSET else update.start_offset
        return replace(
            self,
            leader_epoch=update.leader_epoch,
            start_offset=start,
            done_count=update.done_count,
            batches=without(laid_over(self.batches, update.batches), start),
            updates=self.updates + 1,
        )

    def as_snapshot(self, now_ms: int) -> ShareState:
        """The next snapshot, which says all of this state."""
        return replace(self, snapshot_epoch=self.snapshot_epoch + 1, written_ms=now_ms, updates=0)


# Batches


def combined(batches: Sequence[StateBatch]) -> Batches:
    """Batches in any order as rising ones without overlaps; a later one counts where two overlap."""
    if all(before.last < after.first for before, after in pairwise(batches)):
        return joined(batches)
    middle = len(batches) // 2
    return laid_over(combined(batches[:middle]), combined(batches[middle:]))


def laid_over(old: Batches, new: Batches) -> Batches:
    """Both rise; where they overlap, the new ones count. Costs as much as the old batches between the new ones."""
    if not new:
        return old
    # One more at each end, which may join a new one.
    low = max(0, bisect_left(old, new[0].first, key=_last) - 1)
    high = bisect_right(old, new[-1].last, key=_first) + 1
    return (*old[:low], *joined(_merged(old[low:high], new)), *old[high:])


def _merged(old: Batches, new: Batches) -> Iterable[StateBatch]:
    olds = iter(old)
    rest = next(olds, None)
    for batch in new:
        while rest is not None and rest.last < batch.first:
            yield rest
            rest = next(olds, None)
        if rest is not None and rest.first < batch.first:
            yield StateBatch(rest.first, batch.first - 1, *rest[2:])
        while rest is not None and rest.last <= batch.last:
            rest = next(olds, None)
        if rest is not None and rest.first <= batch.last:
            rest = StateBatch(batch.last + 1, *rest[1:])
        yield batch
    if rest is not None:
        yield rest
    yield from olds


def without(batches: Batches, start: int) -> Batches:
    """The batches from the start offset on."""
    index = bisect_left(batches, start, key=_last)
    kept = batches[index:]
    if kept and kept[0].first < start:
        return (StateBatch(start, *kept[0][1:]), *kept[1:])
    return kept
