"""The segments of one log, oldest first. The last is the active one, the only one that takes appends.

Keeps true: base offsets increase strictly, and `bases` has them in the order of the segments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from felice.log import retention
from felice.log.segment import Segment


class Segments(Sequence[Segment]):
    """The segments of one log, never empty. See the module."""

    __slots__ = ("_segments", "active", "bases")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)
        self._on_change()

    def _on_change(self) -> None:
        self.bases = [segment.base_offset for segment in self._segments]
        self.active = self._segments[-1]

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def end_offset(self) -> int:
        """The log end offset."""
        return self.active.next_offset

    def holding(self, offset: int) -> Segment:
        """The segment that holds `offset`, or the one with the next records after it."""
        # The log start may lie below the first segment: a follower's first batch can begin far above it.
        number = bisect_right(self.bases, offset) - 1
        if number < 0:
            number = 0
        last = len(self._segments) - 1
        while number < last and self._segments[number].next_offset <= offset:
            number += 1
        return self._segments[number]

    def since(self, offset: int) -> list[Segment]:
        """Segments from the one whose range includes `offset`; all segments if the log begins above it."""
        return self._segments[max(bisect_right(self.bases, offset) - 1, 0) :]

    def reaching(self, offset: int) -> list[Segment]:
        """Same as `since`, but includes the segment that ends at `offset`."""
        return self._segments[max(bisect_left(self.bases, offset) - 1, 0) :]

    def above(self, offset: int) -> list[Segment]:
        """Segments that hold only offsets above `offset`."""
        return self._segments[bisect_right(self.bases, offset) :]

    def facts(self) -> list[retention.SegmentFacts]:
        """The facts that retention needs."""
        ends = [*self.bases[1:], self.end_offset]
        return [
            retention.SegmentFacts(
                segment.base_offset,
                end,
                segment.size_bytes,
                segment.largest_timestamp_or_mtime,
                segment is self.active,
            )
            for segment, end in zip(self._segments, ends, strict=True)
        ]

    def roll_to(self, segment: Segment) -> None:
        """Makes `segment` the active one. It replaces an active segment that has no batch."""
        if self.active.size_bytes == 0:
            self._segments.pop()
        self._segments.append(segment)
        self._on_change()

    def drop_oldest(self, count: int) -> None:
        """Removes the `count` oldest segments. At least one must remain."""
        del self._segments[:count]
        self._on_change()

    def contains_run(self, run: Sequence[Segment]) -> bool:
        """Whether all segments of `run` are still here, side by side."""
        first = max(bisect_right(self.bases, run[0].base_offset) - 1, 0)
        return list(map(id, self._segments[first : first + len(run)])) == list(map(id, run))

    def replace(self, run: Sequence[Segment], segment: Segment) -> None:
        """Replaces a run by one segment. `contains_run` must be true of the run."""
        first = bisect_right(self.bases, run[0].base_offset) - 1
        self._segments[first : first + len(run)] = [segment]
        self._on_change()
