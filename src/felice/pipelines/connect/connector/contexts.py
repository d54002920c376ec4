"""What the framework offers to a connector and to its tasks while they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from felice.pipelines.connect.model.record import SinkRecord, SourceRecord

TopicPartition = tuple[str, int]
"""A topic and the number of its partition."""
Place = Mapping[str, Any]
"""A partition of a source, or an offset there: what JSON can hold, with names as keys."""


class ConnectorContext(Protocol):
    """What a connector may ask of the framework."""

    def request_task_reconfiguration(self) -> None:
        """Asks for the tasks' configurations again, because the source or the target changed."""

    def fail(self, error: BaseException) -> None:
        """Sets the connector to FAILED with this error as its trace."""


class SourceConnectorContext(ConnectorContext, Protocol):
    """What a source connector may ask of the framework."""

    def offset(self, partition: Place) -> Place | None:
        """The last committed offset of a partition of the source, or None."""


class SourceTaskContext(Protocol):
    """What a source task may ask of the framework."""

    @property
    def configs(self) -> Mapping[str, str]:
        """The task's configuration, with the newest values of config providers."""

    def offset(self, partition: Place) -> Place | None:
        """The last committed offset of a partition of the source, or None."""

    def offsets(self, partitions: Iterable[Place]) -> list[Place | None]:
        """The last committed offsets of partitions of the source, in the same order."""

    @property
    def transaction(self) -> TransactionContext | None:
        """Only with `transaction.boundary=connector`: where the task says how its transactions end."""


class TransactionContext(Protocol):
    """Where a source task ends transactions (KIP-618). A record here is one that `poll` returned or will return."""

    def commit(self, record: SourceRecord | None = None) -> None:
        """Commits after this record, or after the batch of the next `poll`."""

    def abort(self, record: SourceRecord | None = None) -> None:
        """Aborts at this record, or the batch of the next `poll`."""


class SinkTaskContext(Protocol):
    """What a sink task may ask of the framework."""

    @property
    def configs(self) -> Mapping[str, str]:
        """The task's configuration, with the newest values of config providers."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the task reads now."""

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Reads on at these offsets, for a task that keeps its offsets in the target system."""

    def set_timeout(self, milliseconds: int) -> None:
        """The wait before the next `put`, for a task that raised `RetriableError`."""

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads no more of these partitions until `resume`."""

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads these partitions again."""

    def request_commit(self) -> None:
        """Asks for a commit of offsets before the next regular one."""

    def report(self, record: SinkRecord, error: BaseException) -> None:
        """Hands over a record that the target system refuses: to the dead-letter topic, or to the task's failure.

        Raises `ConnectError` if the connector's configuration tolerates no errors.
        """
