"""The queue of fetched data. The thread that polls decodes each batch when it reaches it.

Keeps true:  Records of a partition are delivered in offset order, each once per fetch position. No record is delivered
             if its partition was revoked, paused or moved by a seek after the fetch.
             An unreadable batch is reported in its place by an error message, and then skipped.
             An error that is still in the queue is not queued again: the same error may repeat for hours while the
             application does not poll.
How:         The event loop appends to a deque and the application takes from it, without a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from felice.client.consume.subscription import AssignedPartition
from felice.client.error import KafkaError, error_of
from felice.client.model import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Message,
    Origin,
    Partition,
    error_message,
)
from felice.client.net.wakeup import Wakeup
from felice.protocol.errors import ApiError
from felice.records.batch import BatchHeader, verify_crc
from felice.records.errors import CorruptBatch
from felice.records.kernels import RecordWrapper
from felice.records.reader import wrap_batch

_WRAPPER = RecordWrapper(Message)


class Fetched:
    """The whole visible batches of one partition from one Fetch response, or an error in their place."""

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
        """True if the partition was revoked, paused or moved since the fetch."""
        return self.lease is not self.partition.lease


def _error_key(item: Fetched | Message) -> object:
    """Equal for errors that tell the application the same; None for everything else."""
    if isinstance(item, Message):
        error, place = item.error(), (item.topic(), item.partition(), item.offset())
        return None if error is None else (error.code(), error.str(), place)
    return None if item.error is None else (item.error.code(), item.error.str(), item.lease, item.next_offset)


class Delivery:
    """The queue between event loop and application, and the application's place in it."""

    def __init__(self, *, check_crcs: bool, on_drained: Callable[[], None] = lambda: None) -> None:
        self.wakeup = Wakeup()
        self._queue: deque[Fetched | Message] = deque()
        # Keys of the errors in the queue: added with the error, removed when the application takes it.
        self._waiting_errors: set[object] = set()
        self._check_crcs = check_crcs
        self.on_drained = on_drained
        self._fetched: Fetched | None = None
        self._headers: Iterator[BatchHeader] = iter(())
        self._messages: Iterator[Message] = iter(())
        self._listeners: list[Callable[[], None]] = []
        # The loop writes the first, the application the second.
        self._put_bytes = 0
        self._taken_bytes = 0
        # Totals of records and bytes put into the queue, by partition.
        self.received: dict[Partition, tuple[int, int]] = {}

    @property
    def buffered_bytes(self) -> int:
        """Bytes in the queue, including the piece in delivery."""
        return self._put_bytes - self._taken_bytes

    # Called by the event loop.

    def listen(self, callback: Callable[[], None]) -> None:
        """Call `callback`, on the loop, after each item put into the queue."""
        self._listeners.append(callback)

    def put(self, item: Fetched | Message) -> None:
        """Append fetched data or an event, and wake waiting threads. Drops an error that is already in the queue."""
        error = _error_key(item)
        if error in self._waiting_errors:
            return
        if error is not None:
            self._waiting_errors.add(error)
        if isinstance(item, Fetched):
            item.lease.put_bytes += len(item.records)
            item.lease.put_records += item.record_count
            self._put_bytes += len(item.records)
            records, size = self.received.get(item.partition.key, (0, 0))
            self.received[item.partition.key] = (records + item.record_count, size + len(item.records))
        self._queue.append(item)
        self.notify()

    def notify(self) -> None:
        """Wake the thread that waits, and call the listeners."""
        self.wakeup.set()
        for callback in self._listeners:
            callback()

    # Called by the application.

    @property
    def empty(self) -> bool:
        """True if nothing is left to deliver."""
        return self._fetched is None and not self._queue

    def take(self) -> Message | None:
        """Return the next message, or None if none is fetched."""
        while True:
            fetched = self._fetched
            if fetched is not None:
                partition = fetched.partition
                position = partition.position
                if fetched.lease is partition.lease and position is not None:
                    for message in self._messages:
                        offset: int = message._record[0]
                        # `take_fetched` may have delivered the rows before the position.
                        if offset >= position:
                            partition.position = offset + 1
                            return message
                    failed = self._next_batch(fetched, position)
                    if failed is not None:
                        return failed
                    continue
                self._done(fetched)
            if not self._queue:
                return None
            item = self._pop()
            if isinstance(item, Message):
                return item
            failed = self._begin(item)
            if failed is not None:
                return failed

    def take_many(self, limit: int) -> list[Message]:
        """Return up to `limit` messages, without waiting."""
        messages: list[Message] = []
        while len(messages) < limit:
            message = self.take()
            if message is None:
                break
            messages.append(message)
            if message.error() is None:
                messages += self._rest_of_batch(limit - len(messages))
        return messages

    def _rest_of_batch(self, limit: int) -> list[Message]:
        """Return up to `limit` messages of the batch whose first message `take` has just returned."""
        fetched = self._fetched
        messages = list(islice(self._messages, limit))
        if not messages or fetched is None or fetched.stale:
            return []
        fetched.partition.position = messages[-1]._record[0] + 1
        return messages

    def take_fetched(self) -> Fetched | Message | None:
        """Return the next piece as fetched (the partition's position says which rows are left), or an event."""
        while True:
            fetched = self._fetched
            if fetched is not None:
                if not fetched.stale:
                    return fetched
                self._done(fetched)
            if not self._queue:
                return None
            item = self._pop()
            if isinstance(item, Message):
                return item
            message = self._begin(item)
            if message is not None:
                return message

    def _pop(self) -> Fetched | Message:
        item = self._queue.popleft()
        self._waiting_errors.discard(_error_key(item))
        return item

    def put_back(self, message: Message) -> None:
        """Return an event to the front of the queue, to be delivered later."""
        if (error := _error_key(message)) is not None:
            self._waiting_errors.add(error)
        self._queue.appendleft(message)

    def finish(self, fetched: Fetched) -> None:
        """Mark the whole piece as delivered."""
        # Control batches and gaps may follow the last record; the position skips them too.
        if not fetched.stale:
            fetched.partition.position = fetched.next_offset
        self._done(fetched)

    def _begin(self, item: Fetched) -> Message | None:
        """Start to deliver a piece, or return the message for its error."""
        if item.stale:
            self._release(item)
            return None
        partition = item.partition
        if item.error is not None:
            self._release(item)
            return error_message(item.error, partition.topic, partition.partition, item.next_offset)
        self._fetched = item
        self._headers = iter(item.headers)
        self._messages = iter(())
        partition.consumed = True
        return None

    def _next_batch(self, fetched: Fetched, position: int) -> Message | None:
        """Open the next batch of the piece, or finish the piece; return a message if the batch is unreadable.

        A batch may begin before the requested offset, and a seek may point inside a batch: `position` is the first
        offset to deliver.
        """
        header = next(self._headers, None)
        partition = fetched.partition
        if header is None:
            self.finish(fetched)
            return None
        kind = TIMESTAMP_LOG_APPEND_TIME if header.is_log_append_time else TIMESTAMP_CREATE_TIME
        epoch = header.leader_epoch if header.leader_epoch >= 0 else None
        origin = Origin(partition.topic, partition.partition, kind, epoch)
        partition.leader_epoch = header.leader_epoch
        try:
            if self._check_crcs and not verify_crc(fetched.records, header):
                raise CorruptBatch("the CRC does not match")
            self._messages = iter(wrap_batch(fetched.records, header, _WRAPPER, position, origin))
        except ApiError as error:
            self._messages = iter(())
            partition.position = header.next_offset
            where = f"batch at {partition.topic}-{partition.partition} offset {header.base_offset}: {error}"
            bad = error_of(KafkaError._BAD_MSG, where)
            return error_message(bad, partition.topic, partition.partition, header.base_offset)
        return None

    def _done(self, fetched: Fetched) -> None:
        self._fetched = None
        self._messages = iter(())
        self._release(fetched)

    def _release(self, item: Fetched) -> None:
        item.lease.taken_bytes += len(item.records)
        item.lease.taken_records += item.record_count
        self._taken_bytes += len(item.records)
        self.on_drained()
