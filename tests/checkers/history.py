"""A history of writes and reads, and its checker.

A writer numbers its records per partition. An acknowledged record must be read exactly once, at its acknowledged
offset, in the writer's order. A record that was never acknowledged may be there once, or not at all. The checker sees
histories only: it knows nothing of the broker under test. If several threads share a producer, each thread is a
writer: its records must be in each partition in the order of its calls. A record that `produce` accepted has exactly
one report.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Written(NamedTuple):
    """One record as its writer knows it; `offset` is None until it is acknowledged."""

    writer: str
    number: int
    partition: int
    offset: int | None


class Read(NamedTuple):
    """One record as a reader saw it."""

    writer: str
    number: int
    partition: int
    offset: int


class Called(NamedTuple):
    """A call of `produce` by one thread, which ended; it raised unless it is accepted."""

    thread: str
    number: int
    is_accepted: bool


class Reported(NamedTuple):
    """A delivery report; `offset` is None if the record failed. `is_its_own`: its message is that of the record."""

    thread: str
    number: int
    partition: int
    offset: int | None
    is_its_own: bool = True


@dataclass(slots=True)
class History:
    """What writers did, and what one reader saw."""

    written: list[Written] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    """One pass over each partition, from the beginning to the end."""

    @property
    def acknowledged(self) -> list[Written]:
        return [record for record in self.written if record.offset is not None]


def anomalies(history: History, may_be_late: Collection[tuple[str, int, int]] = ()) -> list[str]:
    """Every anomaly in the history, as text; empty for a good history.

    `may_be_late` names records, by writer, number and partition, that may stand behind later ones. After a power
    failure a partition may have lost what it knew of a producer. The next batch to arrive then starts a new epoch, and
    a batch that was in flight before it is written in that epoch too (KIP-360).
    """
    return [
        *_lost(history),
        *_moved(history),
        *_duplicated(history),
        *_invented(history),
        *_out_of_order(history, may_be_late),
        *_offsets_not_rising(history),
    ]


def report_anomalies(called: Sequence[Called], reports: Sequence[Reported]) -> list[str]:
    """Every accepted record without exactly one report, and every report without an accepted record."""
    counts = Counter((report.thread, report.number) for report in reports)
    accepted = {(call.thread, call.number) for call in called if call.is_accepted}
    return [
        *(
            f"reported {counts[key]} times: record {key[1]} of {key[0]}"
            for key in sorted(accepted)
            if counts[key] != 1
        ),
        *(
            f"reported without being accepted: record {key[1]} of {key[0]}"
            for key in sorted(counts.keys() - accepted)
        ),
        *(
            f"report with another record's message: record {report.number} of {report.thread}"
            for report in reports
            if not report.is_its_own
        ),
    ]


def _name(writer: str, number: int, partition: int) -> str:
    return f"record {number} of {writer} in partition {partition}"


def _lost(history: History) -> list[str]:
    found = {(read.writer, read.number, read.partition) for read in history.read}
    return [
        f"lost: {_name(*record[:3])} was acknowledged at offset {record.offset} and is not there"
        for record in history.acknowledged
        if record[:3] not in found
    ]


def _moved(history: History) -> list[str]:
    offsets = {(read.writer, read.number, read.partition): read.offset for read in history.read}
    return [
        f"moved: {_name(*record[:3])} was acknowledged at offset {record.offset} and stands at {offsets[record[:3]]}"
        for record in history.acknowledged
        if record[:3] in offsets and offsets[record[:3]] != record.offset
    ]


def _duplicated(history: History) -> list[str]:
    counts = Counter((read.writer, read.number, read.partition) for read in history.read)
    return [f"duplicated: {_name(*key)} stands {count} times" for key, count in counts.items() if count > 1]


def _invented(history: History) -> list[str]:
    known = {record[:3] for record in history.written}
    return [
        f"invented: {_name(*read[:3])} was never written"
        for read in history.read
        if tuple(read[:3]) not in known
    ]


def _out_of_order(history: History, may_be_late: Collection[tuple[str, int, int]]) -> list[str]:
    last: dict[tuple[str, int], int] = {}
    faults = []
    for read in history.read:
        if tuple(read[:3]) in may_be_late:
            continue
        key = (read.writer, read.partition)
        if read.number < last.get(key, -1):
            faults.append(f"out of order: {_name(*read[:3])} stands after number {last[key]}")
        last[key] = read.number
    return faults


def _offsets_not_rising(history: History) -> list[str]:
    last: dict[int, int] = defaultdict(lambda: -1)
    faults = []
    for read in history.read:
        if read.offset <= last[read.partition]:
            faults.append(
                f"offset {read.offset} of partition {read.partition} comes after {last[read.partition]}"
            )
        last[read.partition] = read.offset
    return faults


def forgive_lost_tails(
    history: History, eras: dict[tuple[str, int, int], int], power_failures: int
) -> tuple[History, list[str]]:
    """The history of a log that is not synced before it acknowledges, without the records that it may have lost.

    A power failure may take the end of such a log, never a part before it. `eras` says for each acknowledged record
    how many of all `power_failures` came before its acknowledgement. Returns the history without the forgiven
    acknowledgements, and the anomalies: a lost record with a lower offset than one that is there.
    """
    there = {(read.writer, read.number, read.partition): read.offset for read in history.read}
    by_era: dict[tuple[int, int], list[Written]] = defaultdict(list)
    for record in history.acknowledged:
        by_era[record.partition, eras[record[:3]]].append(record)
    forgiven: set[tuple[str, int, int]] = set()
    faults = []
    for (_, era), records in sorted(by_era.items()):
        records.sort(key=lambda record: record.offset or 0)
        gone = [record for record in records if there.get(record[:3]) != record.offset]
        kept = [record for record in records if there.get(record[:3]) == record.offset]
        if gone and kept and (gone[0].offset or 0) < (kept[-1].offset or 0):
            faults.append(
                f"hole: {_name(*gone[0][:3])} at offset {gone[0].offset} is gone, and offset {kept[-1].offset} is there"
            )
        if era < power_failures:
            forgiven.update(record[:3] for record in gone)
    written = [
        record._replace(offset=None) if record[:3] in forgiven else record for record in history.written
    ]
    return History(written, history.read), faults
