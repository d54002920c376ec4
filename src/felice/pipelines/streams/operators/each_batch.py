"""Sends a table's changes once for each key and batch, as the record cache of Kafka Streams' stores does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import Change, Headers, Record, Step, change_of


class EachBatch:
    """Holds the changes of a batch, and sends one for each key at its end: from the row as it was before the batch to
    the row as it is now, in the order of the keys' last changes.
    """

    def __init__(self, key: Format, sends_old: bool) -> None:
        self._key_bytes, self._sends_old = key.key_bytes, sends_old
        self._held: dict[bytes, Record] = {}

    def step(self) -> Step:
        """Holds the change; nothing follows now."""
        return Step("{hold}(key, value, timestamp, headers)", {"hold": self._hold}, then="if False")

    def begin_batch(self) -> None:
        """Forget what an attempt at this batch has left."""
        self._held.clear()

    def end_batch(self) -> Iterator[Record]:
        """The changes of the batch."""
        held, self._held = self._held, {}
        for record in held.values():
            # A row that came and went within the batch was never sent.
            if record.value.new is not None or record.value.old is not None or not self._sends_old:
                yield record

    def _hold(self, key: Any, change: Change, timestamp: int, headers: Headers) -> None:
        row_key = self._key_bytes(key)
        before = self._held.pop(row_key, None)
        if before is not None:
            change = change_of(change.new, before.value.old)
        self._held[row_key] = Record(key, change, timestamp, headers)
