"""From offsets in a source's partition to offsets in its mirror, by the offset syncs that the mirror wrote. Pure.

Keeps true:  a translated offset never lies after the mirror of the next record that a group has to read: no record is
             skipped. It may lie before it, so that a group reads some records twice.
             It is exact where a sync is, and one record after the last sync at other places.
             A partition has few syncs in memory: at most two for each power of two of the distance to the newest.
Source:      Kafka's `OffsetSyncStore`, which keeps one for each power of two.
"""

from __future__ import annotations

from bisect import bisect_right

from felice.dataclass import dataclass
from felice.pipelines.connect.connector.contexts import TopicPartition


@dataclass(frozen=True, slots=True)
class Sync:
    """The record at `upstream` in the source's partition is at `downstream` in the mirror."""

    upstream: int
    downstream: int


class Translation:
    """The offset syncs of partitions, in the order in which they were written."""

    def __init__(self) -> None:
        self._syncs: dict[TopicPartition, list[Sync]] = {}

    def add(self, partition: TopicPartition, sync: Sync) -> None:
        """Notes a sync.

        If the mirror's offset is lower than before, the mirror was deleted and created again, and older syncs are
        forgotten. If only the source's offset is lower, records are mirrored again, and syncs from there on are.
        """
        known = self._syncs.get(partition, [])
        if known and sync.downstream < known[-1].downstream:
            known = []
        known = [one for one in known if one.upstream < sync.upstream]
        self._syncs[partition] = _thinned([*known, sync])

    def downstream(self, partition: TopicPartition, upstream: int) -> int | None:
        """The offset from which a group reads on that would read `upstream` next. None if no sync is so old."""
        known = self._syncs.get(partition, [])
        at = bisect_right(known, upstream, key=lambda one: one.upstream) - 1
        if at < 0:
            return None
        last = known[at]
        return last.downstream + (last.upstream != upstream)


def _thinned(syncs: list[Sync]) -> list[Sync]:
    """The first and the last sync of each distance to the newest, rounded to powers of two."""
    newest = syncs[-1].upstream
    kept: dict[int, tuple[Sync, Sync]] = {}
    for one in syncs:
        distance = (newest - one.upstream).bit_length()
        kept[distance] = (kept[distance][0] if distance in kept else one, one)
    return [one for pair in kept.values() for one in dict.fromkeys(pair)]
