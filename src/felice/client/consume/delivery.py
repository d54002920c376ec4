"""Fetched data on its way to the application: batches are decoded when they are asked for, in the asking thread.

Keeps true:  records of a partition are delivered in offset order, each once per fetch position, and none of a
             partition that was lost, paused or moved after the data was fetched.
             A batch that cannot be read is reported in its place, as an error message, and stepped over.
How:         the loop appends to a deque, the application takes from it; the only lock is for waiting.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from felice.client.consume.subscription import AssignedPartition
from felice.client.error import KafkaError, error_of
from felice.client.model import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Message,
    Origin,
    Partition,
    error_message,
    message_of,
)
from felice.protocol.errors import ApiError
from felice.records.batch import BatchHeader, verify_crc
from felice.records.errors import CorruptBatch
from felice.records.reader import read_batch


class Fetched:
    """Whole batches of one partition from one reply, those a reader may see; or an error in their place."""

    __slots__ = ("error", "headers", "lease", "next_offset", "partition", "record_count", "records")

    def __init__(
        self,
        partition: AssignedPartition,
        records: memoryview,
        headers: list[BatchHeader],
        next_offset: int,
        error: KafkaError | None = None,
    ) -> None:
        self.partition = partition
        self.lease = partition.lease
        self.records = records
        self.headers = headers
        self.next_offset = next_offset
        self.record_count = sum(header.record_count for header in headers)
        self.error = error

    @property
    def stale(self) -> bool:
        return self.lease is not self.partition.lease


class Delivery:
    """The queue between loop and application, and the application's place in it."""

    def __init__(self, *, check_crcs: bool, on_drained: Callable[[], None] = lambda: None) -> None:
        self.changed = threading.Condition()
        self._queue: deque[Fetched | Message] = deque()
        self._check_crcs = check_crcs
        self.on_drained = on_drained
        self._fetched: Fetched | None = None
        self._headers: Iterator[BatchHeader] = iter(())
        self._records: Iterator[Any] = iter(())
        self._origin = Origin("", -1)
        self._listeners: list[Callable[[], None]] = []
        # Each is written by one side only.
        self._put_bytes = 0
        self._taken_bytes = 0
        # Records and bytes that were ever put in, by partition.
        self.received: dict[Partition, tuple[int, int]] = {}

    @property
    def buffered_bytes(self) -> int:
        return self._put_bytes - self._taken_bytes

    # The loop's side.

    def listen(self, callback: Callable[[], None]) -> None:
        """Call back, on the loop, whenever something was put in."""
        self._listeners.append(callback)

    def put(self, item: Fetched | Message) -> None:
        if isinstance(item, Fetched):
            item.lease.put_bytes += len(item.records)
            item.lease.put_records += item.record_count
            self._put_bytes += len(item.records)
            records, size = self.received.get(item.partition.key, (0, 0))
            self.received[item.partition.key] = (records + item.record_count, size + len(item.records))
        self._queue.append(item)
        self.notify()

    def notify(self) -> None:
        with self.changed:
            self.changed.notify_all()
        for callback in self._listeners:
            callback()

    # The application's side.

    @property
    def empty(self) -> bool:
        return self._fetched is None and not self._queue

    def take(self) -> Message | None:
        """The next message, None if nothing is here."""
        while True:
            fetched = self._fetched
            if fetched is not None:
                partition = fetched.partition
                position = partition.position
                if fetched.lease is partition.lease and position is not None:
                    for record in self._records:
                        # Batches begin before the offset asked for, and seeks land inside them.
                        if record[0] >= position:
                            partition.position = record[0] + 1
                            return message_of(self._origin, record)
                    failed = self._next_batch(fetched)
                    if failed is not None:
                        return failed
                    continue
                self._done(fetched)
            if not self._queue:
                return None
            item = self._queue.popleft()
            if isinstance(item, Message):
                return item
            message = self._begin(item)
            if message is not None:
                return message

    def take_many(self, limit: int) -> list[Message]:
        """Up to `limit` messages that are here."""
        messages: list[Message] = []
        while len(messages) < limit:
            message = self.take()
            if message is None:
                break
            messages.append(message)
        return messages

    def take_fetched(self) -> Fetched | Message | None:
        """The next piece as it was fetched, of which the partition's position says what is left; or an event."""
        while True:
            fetched = self._fetched
            if fetched is not None:
                if not fetched.stale:
                    return fetched
                self._done(fetched)
            if not self._queue:
                return None
            item = self._queue.popleft()
            if isinstance(item, Message):
                return item
            message = self._begin(item)
            if message is not None:
                return message

    def put_back(self, message: Message) -> None:
        """An event that was taken and is not to be told yet."""
        self._queue.appendleft(message)

    def finish(self, fetched: Fetched) -> None:
        """Everything of the piece was delivered."""
        # Behind the last record may lie markers and gaps; they are passed too.
        if not fetched.stale:
            fetched.partition.position = fetched.next_offset
        self._done(fetched)

    def _begin(self, item: Fetched) -> Message | None:
        """Take up a piece, or give the message for the error in it."""
        if item.stale:
            self._release(item)
            return None
        partition = item.partition
        if item.error is not None:
            self._release(item)
            return error_message(item.error, partition.topic, partition.partition, item.next_offset)
        self._fetched = item
        self._headers = iter(item.headers)
        self._records = iter(())
        partition.consumed = True
        return None

    def _next_batch(self, fetched: Fetched) -> Message | None:
        """Open the next batch of the piece, or end the piece."""
        header = next(self._headers, None)
        partition = fetched.partition
        if header is None:
            self.finish(fetched)
            return None
        kind = TIMESTAMP_LOG_APPEND_TIME if header.is_log_append_time else TIMESTAMP_CREATE_TIME
        epoch = header.leader_epoch if header.leader_epoch >= 0 else None
        self._origin = Origin(partition.topic, partition.partition, kind, epoch)
        partition.leader_epoch = header.leader_epoch
        try:
            if self._check_crcs and not verify_crc(fetched.records, header):
                raise CorruptBatch("the CRC does not match")
            self._records = iter(read_batch(fetched.records, header))
        except ApiError as error:
            self._records = iter(())
            partition.position = header.next_offset
            where = f"batch at {partition.topic}-{partition.partition} offset {header.base_offset}: {error}"
            bad = error_of(KafkaError._BAD_MSG, where)
            return error_message(bad, partition.topic, partition.partition, header.base_offset)
        return None

    def _done(self, fetched: Fetched) -> None:
        self._fetched = None
        self._records = iter(())
        self._release(fetched)

    def _release(self, item: Fetched) -> None:
        item.lease.taken_bytes += len(item.records)
        item.lease.taken_records += item.record_count
        self._taken_bytes += len(item.records)
        self.on_drained()
