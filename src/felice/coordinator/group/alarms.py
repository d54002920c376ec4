"""The next time to look at each group, the earliest first."""

from __future__ import annotations

from dataclasses import field
from heapq import heappop, heappush

from felice.coordinator.shard import NEVER_MS
from felice.dataclass import dataclass


@dataclass(slots=True)
class Alarms:
    """A replaced time stays in the heap until it is due, and is then skipped."""

    _times: dict[str, int] = field(default_factory=dict)
    _heap: list[tuple[int, str]] = field(default_factory=list)

    def set(self, group_id: str, time_ms: int) -> None:
        """Sets the group's next alarm, in steady milliseconds, unless an earlier alarm is set."""
        if time_ms < self._times.get(group_id, NEVER_MS):
            self._times[group_id] = time_ms
            heappush(self._heap, (time_ms, group_id))

    def next_ms(self) -> int:
        """The earliest alarm of all groups, `NEVER_MS` if there is none."""
        while self._heap:
            time_ms, group_id = self._heap[0]
            if self._times.get(group_id) == time_ms:
                return time_ms
            heappop(self._heap)
        return NEVER_MS

    def take_due(self, now_ms: int) -> list[str]:
        """Removes and returns the groups whose alarm is at or before `now_ms`, the earliest first."""
        due = []
        while self.next_ms() <= now_ms:
            _, group_id = heappop(self._heap)
            del self._times[group_id]
            due.append(group_id)
        return due
