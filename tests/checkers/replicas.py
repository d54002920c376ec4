"""The replicas of a cluster's partitions, compared with each other, with the acknowledgements, and with the store.

For clusters without unclean elections:
- A committed batch is the same bytes on every replica, for ever. Every leader of a newer epoch has it, no replica shows
  other bytes below its own high watermark, and no high watermark goes back within an incarnation of its broker.
- A high watermark is never above its own log's end.
- An epoch has one leader, in one incarnation.
- In the store, leader epochs and controller epochs do not go back. A new leader has a new epoch and was in the ISR
  before. Only a leader adds a replica to its ISR.
- A broker whose session has ended leads nothing.
- A replica serves its log start: with the batch around it. Replicas are compared from the largest log start on: what
  is below was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Batch(NamedTuple):
    """The identity of a batch: two batches with the same values are the same bytes."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    checksum: int


class Seen(NamedTuple):
    """One replica at one moment.

    `batches` start no later than where the previous observation of this replica ended.
    """

    at_s: float
    partition: str
    broker: int
    incarnation: int
    leader_epoch: int
    is_leader: bool
    log_end: int
    high_watermark: int
    batches: tuple[Batch, ...]
    log_start: int = 0


class State(NamedTuple):
    """A partition's state as it was written to the store.

    `writer` is the broker that wrote it, 0 for other writers.
    """

    at_s: float
    partition: str
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int = 0
    writer: int = 0


@dataclass(slots=True)
class _PartitionHistory:
    """What was committed in a partition, and the leader of each epoch."""

    committed: dict[int, Batch] = field(default_factory=dict)
    start: int = 0  # the largest log start that was observed
    known_to: int = 0  # the end of the last committed batch; a high watermark may lie inside the next one
    end: int = 0
    end_epoch: int = -1  # the epoch in which `end` was observed
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)
    high_watermarks: dict[tuple[int, int], int] = field(default_factory=dict)


class Replicas:
    """Checks replicas, one observation after the other."""

    def __init__(self) -> None:
        self.anomalies: list[str] = []
        self._partitions: dict[str, _PartitionHistory] = {}

    def check(self, seen: Seen) -> None:
        """Check one observation against all earlier ones."""
        history = self._partitions.setdefault(seen.partition, _PartitionHistory())
        who = (
            f"broker {seen.broker} (incarnation {seen.incarnation}) at {seen.at_s:.3f} s in {seen.partition}"
        )
        self._check_epoch(history, seen, who)
        self._check_watermark_of(history, seen, who)
        self._check_batches(history, seen, who)

    def check_high_watermark(
        self, at_s: float, partition: str, broker: int, high_watermark: int, log_end: int
    ) -> None:
        """Check a high watermark when it moves: it must not be above the log's end."""
        if high_watermark > log_end:
            who = f"broker {broker} at {at_s:.3f} s in {partition}"
            self._fault(f"watermark {high_watermark} above the log's end {log_end}: {who}")

    def report_zombie(
        self, at_s: float, partition: str, broker: int, leader_epoch: int, ended_s: float
    ) -> None:
        """Report a leader whose session has timed out: it must stop leading before the store ends the session."""
        self._fault(
            f"zombie: broker {broker} leads {partition} in epoch {leader_epoch} at {at_s:.3f} s; "
            f"its session ended at {ended_s:.3f} s"
        )

    def _fault(self, text: str) -> None:
        if len(self.anomalies) < 20:
            self.anomalies.append(text)

    def _check_epoch(self, history: _PartitionHistory, seen: Seen, who: str) -> None:
        if not seen.is_leader:
            return
        me = (seen.broker, seen.incarnation)
        first = history.leaders.setdefault(seen.leader_epoch, me)
        if first != me:
            self._fault(
                f"two leaders: {who} leads epoch {seen.leader_epoch}, broker {first[0]} (incarnation {first[1]}) led it"
            )
        is_latest = seen.leader_epoch >= max(history.leaders)
        if is_latest and seen.leader_epoch >= history.end_epoch and seen.log_end < history.end:
            self._fault(
                f"lost: {who} leads epoch {seen.leader_epoch} and ends at {seen.log_end}; "
                f"{history.end} was committed in epoch {history.end_epoch}"
            )

    def _check_watermark_of(self, history: _PartitionHistory, seen: Seen, who: str) -> None:
        self.check_high_watermark(seen.at_s, seen.partition, seen.broker, seen.high_watermark, seen.log_end)
        before = history.high_watermarks.get((seen.broker, seen.incarnation), 0)
        if seen.high_watermark < before:
            self._fault(f"watermark back: {who} had {before}, and has {seen.high_watermark}")
        history.high_watermarks[seen.broker, seen.incarnation] = seen.high_watermark

    def _check_batches(self, history: _PartitionHistory, seen: Seen, who: str) -> None:
        history.start = max(history.start, seen.log_start)
        for batch in seen.batches:
            known = history.committed.get(batch.base_offset)
            if batch.last_offset >= seen.high_watermark or (
                known is None and batch.last_offset < history.start
            ):
                continue
            if known is None:
                if batch.base_offset < history.known_to:
                    self._fault(f"changed: {who} has {batch} where other batches were committed")
                    continue
                history.committed[batch.base_offset] = batch
                history.known_to = batch.last_offset + 1
            elif known != batch:
                self._fault(f"changed: {who} has {batch}, and {known} was committed")
        if seen.high_watermark > history.end:
            history.end, history.end_epoch = seen.high_watermark, seen.leader_epoch


def state_anomalies(states: Iterable[State]) -> list[str]:
    """Anomalies among the states of all partitions, in the order in which they were written."""
    faults: list[str] = []
    last: dict[str, State] = {}
    for state in states:
        before = last.get(state.partition)
        last[state.partition] = state
        if before is None:
            continue
        step = f"{before} became {state}"
        if state.leader_epoch < before.leader_epoch:
            faults.append(f"epoch back: {step}")
        if state.leader != before.leader and state.leader_epoch == before.leader_epoch:
            faults.append(f"two leaders of one epoch: {step}")
        if state.leader >= 0 and state.leader not in before.isr and state.leader != before.leader:
            faults.append(f"elected out of sync: {step}")
        if state.controller_epoch < before.controller_epoch:
            faults.append(f"controller epoch back: {step}")
        if not state.isr:
            faults.append(f"nobody in sync: {step}")
        is_by_leader = state.writer == state.leader and state.leader_epoch == before.leader_epoch
        if not is_by_leader and (joined := sorted(set(state.isr) - set(before.isr))):
            faults.append(f"in sync, though no leader said so: {joined}, {step}")
    return faults


def copies_anomalies(ends: Mapping[str, Mapping[int, tuple[int, int]]]) -> list[str]:
    """Partitions whose replicas differ in log end offset or high watermark after recovery."""
    return [
        f"replicas of {partition} differ at rest: {dict(found)}"
        for partition, found in ends.items()
        if len({offset for both in found.values() for offset in both}) > 1
    ]


def starts_anomalies(starts: Mapping[str, Mapping[int, tuple[int, Batch | None]]]) -> list[str]:
    """Replicas whose first batch, where they have any, does not hold their log start or a later offset."""
    return [
        f"broker {broker} serves {first} of {partition} at its log start {start}"
        for partition, found in starts.items()
        for broker, (start, first) in found.items()
        if first is not None and first.last_offset < start
    ]
