"""Where each App of a host reads on, and what it reads in a batch.

Keeps true: each offset of a topic is read by an App in one batch, and in no other, also if the App was paused, or
            failed in a batch that ran again without it.
How:        Spark keeps a document for each batch: its number, its plan, and the positions of each App at its end. An
            App that was left out of a batch has, from then on, the positions that its failure names.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.spark.offsets import Offsets, Partition, from_checkpoint, to_checkpoint
from felice.pipelines.spark.planning import OffsetRange, count_new
from felice.pipelines.streams.on_spark.host.plans import Failure, HostPlan

CATCHING_UP = 4
"""With several Apps, one that is far behind gets this fraction of a batch's records: the others wait for the batch."""
Spans = dict[Partition, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Positions:
    """The end of a batch."""

    batch: int = -1
    plan: int = 0
    time_ms: int = 0
    """The wall clock, for the timers of Apps."""
    levels: tuple[int, ...] = ()
    """The first batch in which the stage with this number had state: its files begin there."""
    apps: Mapping[str, Offsets] = field(default_factory=dict)
    """By incarnation."""

    def document(self) -> dict[str, Any]:
        """What Spark keeps. Equal positions have equal texts."""
        apps = {name: to_checkpoint(self.apps[name]) for name in sorted(self.apps)}
        return {
            "batch": self.batch,
            "plan": self.plan,
            "time": self.time_ms,
            "levels": list(self.levels),
            "apps": apps,
        }

    @staticmethod
    def of(document: Mapping[str, Any]) -> Positions:
        """The inverse of `document`."""
        apps = {name: from_checkpoint(found) for name, found in document["apps"].items()}
        return Positions(
            document["batch"], document["plan"], document["time"], tuple(document["levels"]), apps
        )

    def corrected(self, plan: HostPlan, failures: Iterable[Failure]) -> Positions:
        """Those that were reached: Apps that failed in this batch are where they were before. `plan` is the batch's."""
        back = {
            name: from_checkpoint(failure.positions)
            for name, failure in plan.failed(failures, self.batch).items()
            if failure.batch == self.batch
        }
        return replace(self, apps={**self.apps, **back}) if back else self


def first_batches(before: Positions, levels: int) -> tuple[int, ...]:
    """`Positions.levels` of the batch after this one, whose plan needs so many levels."""
    missing = max(0, levels - len(before.levels))
    return before.levels + (before.batch + 1,) * missing


def spans(start: Offsets, end: Offsets, first: Offsets) -> Spans:
    """What an App reads between two positions. `first` has the first offsets of partitions that are new to it."""
    found = {key: (start.get(key, first.get(key, 0)), until) for key, until in end.items()}
    return {key: (begin, until) for key, (begin, until) in found.items() if until > begin}


def segments(wanted: Collection[Spans]) -> list[OffsetRange]:
    """The ranges that several Apps read, divided where one of them begins or ends: each range is read once."""
    edges: dict[Partition, set[int]] = {}
    for one in wanted:
        for key, (begin, until) in one.items():
            edges.setdefault(key, set()).update((begin, until))
    return [
        OffsetRange(*key, begin, until)
        for key in sorted(edges)
        for begin, until in pairwise(sorted(edges[key]))
        if any(one[key][0] <= begin and until <= one[key][1] for one in wanted if key in one)
    ]


def shares(limit: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """How many records each App may take of a batch of about `limit` records.

    Those that want little get it all. The others share the rest equally, and none gets more than a part of the batch.
    """
    most = limit if len(wanted) == 1 else max(1, limit // CATCHING_UP)
    left, found = limit, {}
    for number, name in enumerate(sorted(wanted, key=lambda name: (wanted[name], name))):
        share = max(1, left // (len(wanted) - number))
        found[name] = min(wanted[name], share, most)
        left = max(0, left - found[name])
    return found


Cut = Callable[[str, int, Offsets, Offsets], Offsets]
"""(incarnation, limit, begin, end) -> where a batch of that many records ends"""


def ends_within(
    limit: int, begins: Mapping[str, Offsets], ends: Mapping[str, Offsets], cut: Cut
) -> dict[str, Offsets]:
    """Where each App's part of a batch ends."""
    wanted = {name: count_new(begins[name], ends[name]) for name in ends}
    share = shares(limit, {name: count for name, count in wanted.items() if count})
    return {
        name: end if share.get(name, 0) >= wanted[name] else cut(name, share[name], begins[name], end)
        for name, end in ends.items()
    }


class MissingTopics:
    """Topics that Apps read, and that are missing in the metadata of the brokers.

    A broker that has just started may not know all topics yet. So a topic counts as deleted only after it was
    missing for `limit_s`: if an App forgot its positions too early, it would read the topic again from the start.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: dict[str, float] = {}

    def awaited(self, read: Iterable[str], known: Collection[str], now: float) -> set[str]:
        """The topics that are missing for less than the limit. Apps keep positions in them. `now` is in seconds."""
        missing = set(read).difference(known)
        self._since = {topic: self._since.get(topic, now) for topic in missing}
        return {topic for topic, since in self._since.items() if now - since < self._limit_s}


def lost(begin: Offsets, ends: Offsets) -> list[str]:
    """What is wrong with positions behind the ends of their topics."""
    return [
        f"partition {key[1]} of topic {key[0]} went back from offset {at} to {ends[key]}"
        for key, at in sorted(begin.items())
        if key in ends and at > ends[key]
    ]
