"""Which offsets of a source may be committed: those whose records, and all before them, are in their topics.

Keeps true:  the offset of a partition of the source never passes a record that is not in its topic.
Leaves:      where offsets are kept to an `OffsetStore`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.storage.offset_records import key_text

OFFSET_TYPES = (str, bool, int, float, type(None))


class OffsetStore(Protocol):
    """Keeps the offsets of one connector."""

    def read(self, partitions: Sequence[Place]) -> list[Place | None]:
        """The committed offsets of these partitions, or None, in the same order. Raises `ConnectError`."""

    def write(self, offsets: Sequence[tuple[Place, Place | None]]) -> None:
        """Commits offsets: all are kept when it returns. None is a reset. Raises `ConnectError`."""


def check_place(place: Place, what: str) -> None:
    """Raises `ConnectError` unless the members of a partition or offset are simple, as in Kafka's `OffsetUtils`."""
    for name, value in place.items():
        if not isinstance(name, str):
            raise ConnectError(f"the {what} of a record has a key that is no text: {name!r}")
        if not isinstance(value, OFFSET_TYPES):
            raise ConnectError(
                f"the {what} of a record may hold texts, numbers, true, false and null; "
                f"{name} has a {type(value).__name__}"
            )


class Submitted:
    """The records on their way to topics."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[_Sent]] = {}
        self._committable: dict[str, tuple[Place, Place]] = {}
        # A source mostly gives the same object with all records of a partition: its text is made once.
        self._last: tuple[Place, str] | None = None

    def submit(self, record: SourceRecord) -> _Sent:
        """Counts a record as on its way. Give the result to `acknowledged`."""
        partition = record.source_partition
        if self._last is None or self._last[0] is not partition:
            self._last = partition, key_text(partition)
        sent = _Sent(self._last[1], partition, record.source_offset)
        self._waiting.setdefault(sent.key, deque()).append(sent)
        return sent

    def acknowledged(self, sent: _Sent) -> None:
        """The record is in its topic, or was dropped."""
        sent.is_done = True
        queue = self._waiting[sent.key]
        if queue[0] is not sent:
            return
        while queue and queue[0].is_done:
            last = queue.popleft()
            self._committable[last.key] = (last.partition, last.offset)
        if not queue:
            del self._waiting[sent.key]

    def take(self) -> dict[str, tuple[Place, Place]]:
        """The offsets that may be committed since the last call, by the text of their partition."""
        offsets, self._committable = self._committable, {}
        return offsets

    @property
    def count(self) -> int:
        """The records that are still on their way, or wait for one before them."""
        return sum(map(len, self._waiting.values()))


class _Sent:
    __slots__ = ("is_done", "key", "offset", "partition")

    def __init__(self, key: str, partition: Place, offset: Place) -> None:
        self.key, self.partition, self.offset = key, partition, offset
        self.is_done = False
