"""What readers saw during a run, compared with the log at the end.

A reader moves forward without a gap, and the records that it saw are still there, unchanged. The log start offset and
the high watermark of a partition never go back. A compacted topic keeps the last value of every key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from checkers.history import Read, Written


@dataclass(frozen=True, slots=True)
class ObservedOffsets:
    """Log start offset and high watermark of a partition, with the times of the request and the answer."""

    partition: int
    low: int
    high: int
    asked_s: float
    answered_s: float


def view_anomalies(seen: Iterable[Read], final: Iterable[Read], *, is_dense: bool) -> list[str]:
    """Anomalies in what one reader saw, in its order. `is_dense`: every offset holds a record for this reader."""
    log = {(read.partition, read.offset): read for read in final}
    last: dict[int, int] = {}
    faults = []
    for read in seen:
        before = last.get(read.partition)
        if before is not None and read.offset <= before:
            faults.append(f"back: {read} was read after offset {before}")
        if before is not None and is_dense and read.offset > before + 1:
            faults.append(f"gap: {read} was read after offset {before}")
        last[read.partition] = read.offset
        stands = log.get((read.partition, read.offset))
        if stands != read:
            faults.append(f"changed: {read} was read, and {stands} stands there")
    return faults


def offset_anomalies(marks: Iterable[ObservedOffsets]) -> list[str]:
    """Offsets that went back between two requests; compares only requests of which one was answered before the other
    was sent.
    """
    faults = []
    latest: dict[int, ObservedOffsets] = {}
    for mark in sorted(marks, key=lambda mark: mark.asked_s):
        before = latest.get(mark.partition)
        if before is not None and before.answered_s <= mark.asked_s:
            if mark.high < before.high:
                faults.append(f"high watermark back: {before}, then {mark}")
            if mark.low < before.low:
                faults.append(f"log start back: {before}, then {mark}")
        if mark.low > mark.high:
            faults.append(f"log start above high watermark: {mark}")
        latest[mark.partition] = mark
    return faults


def acknowledged_offset_anomalies(written: Iterable[Written], marks: Iterable[ObservedOffsets]) -> list[str]:
    """Acknowledged records that are not below the partition's last high watermark."""
    highs = {mark.partition: mark.high for mark in marks}
    return [
        f"high watermark {highs[record.partition]} of partition {record.partition} is not above {record}"
        for record in written
        if record.offset is not None and record.offset >= highs.get(record.partition, 1 << 62)
    ]


@dataclass(slots=True)
class Keyed:
    """One record of a key, numbered by its only writer."""

    key: str
    number: int
    is_tombstone: bool
    is_acknowledged: bool = False


def keyed_anomalies(written: Iterable[Keyed], final: Iterable[tuple[str, int]]) -> list[str]:
    """Anomalies of a compacted topic. `final` is key and number of every record that is still there, in log order."""
    known = {(record.key, record.number): record for record in written}
    last_acknowledged: dict[str, Keyed] = {}
    for record in known.values():
        if record.is_acknowledged:
            last_acknowledged[record.key] = record
    faults, last = [], dict[str, int]()
    for key, number in final:
        if (key, number) not in known:
            faults.append(f"invented: {key} = {number}")
        if number <= last.get(key, -1):
            faults.append(f"out of order: {key} = {number} after {last[key]}")
        last[key] = number
    for key, wanted in last_acknowledged.items():
        there = last.get(key)
        if there is None and not wanted.is_tombstone and not _deleted_later(known, wanted):
            faults.append(f"lost: {key} = {wanted.number} was acknowledged, and the key is gone")
        if there is not None and there < wanted.number and not wanted.is_tombstone:
            faults.append(f"old: {key} = {there} stands where {wanted.number} was acknowledged")
        if there is not None and there < wanted.number and wanted.is_tombstone:
            faults.append(
                f"risen: {key} = {there} stands, and its tombstone {wanted.number} was acknowledged"
            )
    return faults


def _deleted_later(known: dict[tuple[str, int], Keyed], wanted: Keyed) -> bool:
    """Whether a later tombstone may have been written without an acknowledgement."""
    return any(
        record.key == wanted.key and record.number > wanted.number and record.is_tombstone
        for record in known.values()
    )
