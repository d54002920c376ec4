"""Which offsets of a source may be committed: those whose records, and all before them, are in their topics.

Keeps true:  the offset of a partition of the source never passes a record that is not in its topic.
Leaves:      where offsets are kept to an `OffsetStore`.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import SourceRecord

OFFSET_TYPES = (str, bool, int, float, type(None))


class OffsetStore(Protocol):
    """Keeps the offsets of one connector."""

    def read(self, partitions: Sequence[Place]) -> list[Place | None]:
        """The committed offsets of these partitions, or None, in the same order. Raises `ConnectError`."""

    def write(self, offsets: Sequence[tuple[Place, Place | None]]) -> None:
        """Commits offsets: all are kept when it returns. None is a reset. Raises `ConnectError`."""


def key_text(partition: Place) -> str:
    """A partition of a source as a text, the same for partitions with the same members."""
    return json.dumps(partition, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


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
    """The records on their way to topics. `acknowledged` may be called from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Sent]] = {}
        self._committable: dict[str, tuple[Place, Place]] = {}

    def submit(self, record: SourceRecord) -> _Sent:
        """Counts a record as on its way. Give the result to `acknowledged`. Raises `ConnectError` for a bad offset."""
        check_place(record.source_partition, "partition")
        check_place(record.source_offset, "offset")
        sent = _Sent(key_text(record.source_partition), record.source_partition, record.source_offset)
        with self._lock:
            self._waiting.setdefault(sent.key, deque()).append(sent)
        return sent

    def acknowledged(self, sent: _Sent) -> None:
        """The record is in its topic, or was dropped."""
        with self._lock:
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
        with self._lock:
            offsets, self._committable = self._committable, {}
            return offsets

    @property
    def count(self) -> int:
        """The records that are still on their way, or wait for one before them."""
        with self._lock:
            return sum(map(len, self._waiting.values()))


class _Sent:
    __slots__ = ("is_done", "key", "offset", "partition")

    def __init__(self, key: str, partition: Place, offset: Place) -> None:
        self.key, self.partition, self.offset = key, partition, offset
        self.is_done = False


class OffsetReader:
    """Reads committed offsets for a source task or connector."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    def offset(self, partition: Place) -> Place | None:
        """The committed offset of a partition, or None."""
        return self._store.read([partition])[0]

    def offsets(self, partitions: Iterable[Place]) -> list[Place | None]:
        """The committed offsets of partitions, in the same order."""
        return self._store.read(list(partitions))


class MemoryOffsets:
    """Offsets in memory: of tests, and of a worker whose offsets nobody needs later."""

    def __init__(self) -> None:
        self._offsets: dict[str, Mapping[str, Any]] = {}

    def read(self, partitions: Sequence[Place]) -> list[Place | None]:
        """The offsets, or None."""
        return [self._offsets.get(key_text(one)) for one in partitions]

    def write(self, offsets: Sequence[tuple[Place, Place | None]]) -> None:
        """Keeps the offsets."""
        for partition, offset in offsets:
            if offset is None:
                self._offsets.pop(key_text(partition), None)
            else:
                self._offsets[key_text(partition)] = dict(offset)
