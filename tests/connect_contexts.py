"""What tasks may ask of the framework, for tests that call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from felice.pipelines.connect.connector.contexts import Place, TopicPartition
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.storage.offset_records import key_text


class NotedSink:
    """A `SinkTaskContext`. With `tolerates` records are reported, else their errors are raised."""

    def __init__(self, *, tolerates: bool = False) -> None:
        self.configs: Mapping[str, str] = {}
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.tolerates = tolerates
        self.reported: list[tuple[int, str]] = []
        """The offsets of records, and the texts of their errors."""
        self.sought: dict[TopicPartition, int] = {}
        self.timeouts: list[int] = []
        self.commits = 0

    def report(self, record: SinkRecord, error: BaseException) -> None:
        if not self.tolerates:
            raise error
        self.reported.append((record.offset, str(error)))

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.sought.update(offsets)

    def set_timeout(self, milliseconds: int) -> None:
        self.timeouts.append(milliseconds)

    def request_commit(self) -> None:
        self.commits += 1

    def pause(self, partitions: Sequence[TopicPartition]) -> None: ...
    def resume(self, partitions: Sequence[TopicPartition]) -> None: ...


class StoredOffsets:
    """A `SourceTaskContext` with the offsets of a dict, by the texts of their partitions."""

    transaction = None

    def __init__(self, offsets: dict[str, Place]) -> None:
        self._offsets = offsets
        self.configs: Mapping[str, str] = {}

    def offset(self, partition: Place) -> Place | None:
        return self._offsets.get(key_text(partition))

    def offsets(self, partitions: Iterable[Place]) -> list[Place | None]:
        return [self.offset(one) for one in partitions]
