"""The disk at every moment of its history, and what a crash at that moment may leave.

Keeps true: a moment is a prefix of the journal: all changes that were made before it, and no other.

    disk.journal = []
    start = disk.copy()
    ...                                      # the workload
    for moment in moments(start, disk.journal):
        after = moment.after_power_failure(Random(7))      # a SimDisk to open again
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from random import Random

from felice.dataclass import dataclass
from felice.testing.simulation.disk import SimDisk
from felice.testing.simulation.volume import Change, Volume, Write, torn_write


@dataclass(frozen=True, slots=True)
class Moment:
    """The disk after `count` changes. `last` is the last of them, which a crash may have torn."""

    count: int
    last: Change | None
    _volume: Volume
    _before_last: Volume

    def after_power_failure(self, random: Random) -> SimDisk:
        """The disk after a power failure at this moment; `random` chooses what is left of unsynced data."""
        volume = self._volume.copy()
        volume.cut_power(random)
        return SimDisk(volume=volume)

    def after_kill(self, random: Random | None = None) -> SimDisk:
        """The disk after the process ends at this moment: everything written.

        With `random`, only a part of the last write.
        """
        if random is None or not isinstance(self.last, Write):
            return SimDisk(volume=self._volume.copy())
        volume = self._before_last.copy()
        torn = torn_write(self.last, random)
        if torn.data:
            volume.apply(torn)
        return SimDisk(volume=volume)


def moments(
    start: SimDisk, journal: Sequence[Change], *, at: Collection[int] | None = None
) -> Iterator[Moment]:
    """Every moment from before the first change to after the last; only those in `at`, if given.

    Use each moment before requesting the next.
    """
    volume = start.contents.copy()
    if at is None or 0 in at:
        yield Moment(0, None, volume, volume)
    for count, change in enumerate(journal, 1):
        wanted = at is None or count in at
        before = volume.copy() if wanted else volume
        volume.apply(change)
        if wanted:
            yield Moment(count, change, volume, before)
