"""One replica's log on this broker, its high watermark, and the requests that wait for it.

Keeps true: R1 high watermark <= log end offset.
            Every waiting request ends: with a value that it waits for, at its deadline, or with the replica's failure.
Leaves:     what moves the high watermark, and which requests are allowed, to `partition`, which knows the role.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from felice.log.errors import FlushPostponed
from felice.log.log import Log
from felice.metadata.image import PartitionImage
from felice.protocol.errors import ApiError, BrokenInvariant, ErrorCode
from felice.replication.waiters import Waiters


class Listeners(dict[Callable[[], None], None]):
    """Callbacks without duplicates, called in the order in which they were added."""

    def add(self, listener: Callable[[], None]) -> None:
        """Adds a callback; a callback that is there already keeps its place."""
        self[listener] = None

    def discard(self, listener: Callable[[], None]) -> None:
        """Removes a callback, if it is there."""
        self.pop(listener, None)


class Replica:
    """The part of a partition that does not depend on its role. Attribute names are Kafka's."""

    def __init__(self, log: Log, topic_id: UUID, high_watermark: int = 0) -> None:
        self.topic = log.topic
        self.partition = log.partition
        self.topic_id = topic_id
        self.log = log
        # What the latest metadata image says about the partition.
        self.image = PartitionImage(log.partition, ())
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        # Called without arguments each time readers may find more records than before, or an error.
        self.on_advance = Listeners()
        # How often the listeners were called, or would have been if there were any: a reader compares two counts to see
        # whether to read again.
        self.change_count = 0
        # Waiting requests: acks=all for the high watermark, other appends for the disk, DeleteRecords for followers.
        self._committing = Waiters()
        self._syncing = Waiters()
        self._deleting = Waiters()
        self._failure: ApiError | None = None

    @property
    def name(self) -> str:
        """`topic-partition`, for log lines."""
        return self.log.name

    @property
    def leader_id(self) -> int:
        """The broker that leads, by the latest metadata image; -1 if no broker does."""
        return self.image.leader

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the latest metadata image; -1 before the first."""
        return self.image.leader_epoch

    @property
    def replicas(self) -> tuple[int, ...]:
        """The ids of the brokers that have a replica, the preferred leader first."""
        return self.image.replicas

    @property
    def is_open(self) -> bool:
        """False once the partition was deleted, closed, or failed."""
        return self._failure is None

    @property
    def log_start_offset(self) -> int:
        """The first offset that a reader may ask for."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The bound of a read_committed consumer: at most the high watermark, below any open transaction (T1)."""
        return self.log.last_stable_offset(self.high_watermark)

    def wake_readers(self) -> None:
        """Calls the listeners: readers may find more records than before, or an error."""
        self.change_count += 1
        if self.on_advance:
            for wake in list(self.on_advance):
                wake()

    def _advance(self, offset: int) -> None:
        """Raises the high watermark to `offset`; it never falls here."""
        if offset <= self.high_watermark:
            return
        if offset > self.log.log_end_offset:
            self._stop("R1", "the high watermark would pass the log's end", high_watermark=offset)
            return
        self.high_watermark = offset
        if self._committing.entries:
            self._committing.release(offset)
        if self.on_advance:
            self.wake_readers()
        else:
            self.change_count += 1

    def on_flush_postponed(self, error: FlushPostponed) -> None:
        """The disk is full: waiting producers get the error. The records stay, and the next flush tries again."""
        for waiters in (self._committing, self._syncing):
            waiters.fail(error)

    def on_flush_failed(self, error: ApiError) -> None:
        """After a failed sync the content of the disk is unknown: nothing more may be acknowledged."""
        self._fail(error)

    def close(self, reason: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Ends the role: every waiting request gets `reason` as its error. The log stays in its directory."""
        self._fail(ApiError(reason))

    def _stop(self, name: str, what: str, **facts: object) -> BrokenInvariant:
        """Stops this replica until the broker restarts, because an invariant is broken. Waiting and later requests get
        the error. Returns the error, for callers that must raise it.
        """
        facts = {"high_watermark": self.high_watermark, "log_end_offset": self.log.log_end_offset, **facts}
        error = self.log.broken(name, what, leader_epoch=self.leader_epoch, **facts)
        # The log's owner has closed this replica already, if the log has one.
        if self._failure is None:
            self._fail(error)
        return error

    def _fail(self, failure: ApiError) -> None:
        self._failure = self._failure or failure
        self._fail_waiters(failure)
        self.wake_readers()

    def _fail_waiters(self, failure: ApiError) -> None:
        for waiters in (self._committing, self._syncing, self._deleting):
            waiters.fail(failure)
