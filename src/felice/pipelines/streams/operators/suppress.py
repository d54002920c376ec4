"""Holds a table's changes back, so that of several changes of a key only the last one is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from felice.dataclass import dataclass
from felice.pipelines.streams.record import Record
from felice.pipelines.streams.stores import ChangeBuffer, Clocks


@dataclass(slots=True)
class Suppress:
    """Holds the newest change of each key until stream time is `wait_ms` later than the key's first held change.

    With `until_closed` the wait begins at the end of the key's window instead, and deletions are dropped, because no
    row was sent before them. While changes of more than `max_keys` keys are held, the oldest is sent at once.
    """

    name: str
    clocks: Clocks
    buffer: ChangeBuffer
    wait_ms: int
    max_keys: int | None
    until_closed: bool

    def process(self, record: Record) -> Iterable[Record]:
        """The changes that are due, the oldest first."""
        time = self.clocks.advance(self.name, record.timestamp)
        due = record.key.window.end if self.until_closed else record.timestamp
        self.buffer.put(due, record)
        for held in self._due(time):
            if held.value.new is not None or not self.until_closed:
                yield held

    def _due(self, time: int) -> Iterator[Record]:
        while (oldest := self.buffer.oldest()) is not None and oldest <= time - self.wait_ms:
            yield self.buffer.take()
        while self.max_keys is not None and len(self.buffer) > self.max_keys:
            yield self.buffer.take()
