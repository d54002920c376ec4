"""What the clients of one run did and observed, and the anomalies that the checkers find in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from checkers import history, offsets, reads, transactions
from checkers.history import Called, History, Read, Reported, Written
from checkers.offsets import Commit, CommittedOffset, Owned
from checkers.reads import Keyed, ObservedOffsets
from checkers.transactions import Attempt, TransactionalRead

PLAIN, LEDGER, COPY, KEYED, DELETED = "plain", "ledger", "copy", "keyed", "deleted"


@dataclass(slots=True)
class Sent:
    """A record of a `Writer`.

    `offset` is None until the record is acknowledged. An era is the number of power failures so far: the
    one at the time of sending, and the one at the time of the acknowledgement.
    """

    writer: str
    number: int
    partition: int
    sent_era: int
    offset: int | None = None
    acknowledged_era: int = -1


@dataclass(slots=True)
class Observations:
    """Everything that the clients and the cluster observer recorded during one run."""

    is_lossy: bool
    power_failures: int = 0
    sent: list[Sent] = field(default_factory=list)
    # What threads that share a producer did: in runs of a producer.
    called: list[Called] = field(default_factory=list)
    reports: list[Reported] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    transactional_reads: list[TransactionalRead] = field(default_factory=list)
    views: dict[str, list[Read]] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    observed: list[CommittedOffset] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)
    partition_offsets: list[ObservedOffsets] = field(default_factory=list)
    keyed: list[Keyed] = field(default_factory=list)
    final: dict[str, list[Read]] = field(default_factory=dict)
    final_keyed: list[tuple[str, int]] = field(default_factory=list)
    copied: list[tuple[int, str, int]] | None = None
    # Anomalies that were found during the run, where they occurred.
    reported: list[str] = field(default_factory=list)
    # Called at each acknowledgement. A cluster run checks the replicas at that moment.
    on_acknowledged: Callable[[Sent], None] = lambda sent: None

    def anomalies(self) -> list[str]:
        """Every anomaly: those reported during the run, and those that the checkers find in the recorded
        history.
        """
        return [
            *self.reported,
            *history.report_anomalies(self.called, self.reports),
            *self._plain(),
            *self._transactions(),
            *self._groups(),
            *self._keyed(),
        ]

    def _plain(self) -> list[str]:
        final = self.final.get(PLAIN)
        if final is None:
            return []
        written = [Written(s.writer, s.number, s.partition, self._known_offset(s)) for s in self.sent]
        checked, faults = History(written, final), list[str]()
        if self.is_lossy:
            eras = {(s.writer, s.number, s.partition): s.acknowledged_era for s in self.sent}
            checked, faults = history.forgive_lost_tails(checked, eras, self.power_failures)
        else:
            for seen in self.views.values():
                faults += reads.view_anomalies(seen, final, is_dense=True)
            faults += reads.offset_anomalies(self.partition_offsets)
            faults += reads.acknowledged_offset_anomalies(written, self._offsets_in_order())
        if self.copied is not None:
            faults += transactions.copy_anomalies(final, self.copied)
        return faults + history.anomalies(checked, self._may_be_out_of_order() if self.is_lossy else ())

    def _may_be_out_of_order(self) -> set[tuple[str, int, int]]:
        """The records, by writer, number and partition, that may stand behind later records of their
        writer. After a power failure a partition may have lost its producer state. Then any batch that is
        in flight may be the first to arrive. That concerns the batches that were in flight at the failure,
        and those that the same writer sent to that partition between this failure and the next.
        """
        unsettled: set[tuple[str, int, int]] = set()
        for sent in self.sent:
            last = sent.acknowledged_era if sent.offset is not None else self.power_failures
            for era in range(sent.sent_era + 1, last + 1):
                unsettled.add((sent.writer, sent.partition, era))
        return {
            (sent.writer, sent.number, sent.partition)
            for sent in self.sent
            if sent.sent_era != sent.acknowledged_era
            or (sent.writer, sent.partition, sent.sent_era) in unsettled
        }

    def _known_offset(self, sent: Sent) -> int | None:
        # If the power failed between sending and acknowledgement, the record may have been stored before or
        # after the failure.
        is_sure = not self.is_lossy or sent.sent_era == sent.acknowledged_era
        return sent.offset if is_sure else None

    def _offsets_in_order(self) -> list[ObservedOffsets]:
        return sorted(self.partition_offsets, key=lambda mark: mark.asked_s)

    def _transactions(self) -> list[str]:
        final = self.final.get(LEDGER)
        return [] if final is None else transactions.anomalies(self.attempts, final, self.transactional_reads)

    def _groups(self) -> list[str]:
        return [
            *offsets.commit_anomalies(self.commits, self.observed),
            *offsets.ownership_anomalies(self.owned),
        ]

    def _keyed(self) -> list[str]:
        return reads.keyed_anomalies(self.keyed, self.final_keyed) if self.keyed else []
