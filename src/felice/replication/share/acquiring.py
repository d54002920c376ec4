"""Plans which records a fetch acquires, from the runs of a window and the batches that were read from the log. Pure.

As in Kafka 4.3, BATCH_OPTIMIZED acquires whole batches, even if that exceeds `max_records` or the room of the window;
RECORD_LIMIT exceeds neither. From `isolation_count` deliveries on, records are acquired in smaller numbers, and never
with others. Kafka computes these numbers from the ranges that it gave to members; here they come from the batches of
the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import IntEnum
from typing import NamedTuple

from felice.dataclass import dataclass
from felice.replication.share.runs import Runs
from felice.replication.share.settings import WindowSettings


class AcquireMode(IntEnum):
    """Kafka's `share.acquire.mode` (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


@dataclass(frozen=True, slots=True)
class LogBatch:
    """First and last offset of a batch of the log; `is_aborted`: its records must not be delivered."""

    first: int
    last: int
    is_aborted: bool = False


@dataclass(frozen=True, slots=True)
class LogRead:
    """What lies in the log from `offset` on. There are no records between the offset and the batches."""

    offset: int
    batches: Sequence[LogBatch]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The limits in a member's request; see ShareFetch."""

    max_records: int
    batch_size: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class AcquiredRange(NamedTuple):
    """Offsets that a member holds, and the number of the delivery, this one included."""

    first: int
    last: int
    deliveries: int


@dataclass(slots=True)
class Plan:
    """Changes of a window: `pieces` in order, each acquired (True) or archived (False), and the new end."""

    end: int
    pieces: list[tuple[int, int, bool]] = field(default_factory=list)
    ranges: list[AcquiredRange] = field(default_factory=list)


def plan(runs: Runs, read: LogRead, wanted: Wanted, settings: WindowSettings) -> Plan:
    """Plans which of the records that were read the member acquires."""
    planning = _Planning(runs, wanted, settings)
    at = max(read.offset, runs.start)
    for batch in read.batches:
        if batch.last < at:
            continue
        if planning.left <= 0:
            break
        if at < batch.first:
            planning.archive(at, batch.first - 1)
        at = max(at, batch.first)
        if batch.is_aborted:
            planning.archive(at, batch.last)
        elif not planning.take(batch, at):
            break
        at = batch.last + 1
    return planning.plan


class _Planning:
    def __init__(self, runs: Runs, wanted: Wanted, settings: WindowSettings) -> None:
        self.plan = Plan(runs.end)
        self.left = wanted.max_records
        self._runs = runs
        self._wanted = wanted
        self._settings = settings

    @property
    def _room(self) -> int:
        """How many more offsets the window may get."""
        return self._settings.max_record_locks - (self.plan.end - self._runs.start + 1)

    def archive(self, first: int, last: int) -> None:
        """Archives free offsets that have no record to deliver."""
        for start, end, _ in self._free(first, last):
            self._add(start, end, False)

    def take(self, batch: LogBatch, first: int) -> bool:
        """Acquires free offsets of a batch from `first` on; False if nothing behind them may be acquired."""
        is_limited = self._wanted.mode is AcquireMode.RECORD_LIMIT
        for start, end, deliveries in self._free(first, batch.last):
            size = end - start + 1
            if is_limited:
                size = min(size, self.left)
            if deliveries >= self._settings.isolation_count:
                if not self.plan.ranges:
                    size = min(size, self._settings.isolated(deliveries, batch.last - batch.first + 1))
                    self._acquire(batch, start, start + size - 1, deliveries)
                return False
            if start > self._runs.end and is_limited:
                size = min(size, self._room)
            if size > 0:
                self._acquire(batch, start, start + size - 1, deliveries)
            if start + size <= end:
                return False
        return True

    def _free(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """The free ranges of these offsets, with their deliveries: in the window, and behind its end if it has room."""
        end = self._runs.end
        for run in self._runs.within(first, min(last, end)):
            if run.is_free:
                yield max(run.first, first), min(run.last, last), run.deliveries
        first = max(first, end + 1)
        if first <= last and self._room > 0:
            yield first, last, 0

    def _acquire(self, batch: LogBatch, first: int, last: int, deliveries: int) -> None:
        self._add(first, last, True)
        self.left -= last - first + 1
        ranges, wanted = self.plan.ranges, self._wanted
        before = ranges[-1] if ranges else None
        is_new_range = (
            before is None
            or before.last + 1 != first
            or before.deliveries != deliveries + 1
            or (
                wanted.mode is AcquireMode.BATCH_OPTIMIZED
                and first == batch.first
                and before.last - before.first + 1 >= wanted.batch_size
            )
        )
        if before is None or is_new_range:
            ranges.append(AcquiredRange(first, last, deliveries + 1))
        else:
            ranges[-1] = AcquiredRange(before.first, last, deliveries + 1)

    def _add(self, first: int, last: int, is_acquired: bool) -> None:
        self.plan.pieces.append((first, last, is_acquired))
        self.plan.end = max(self.plan.end, last)
