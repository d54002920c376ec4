"""The queue of fetched data. The thread that polls decodes each batch when it reaches it.

Keeps true:  Records of a partition are delivered in offset order, each once per fetch position. No record is delivered
             if its partition was revoked, paused or moved by a seek after the fetch.
             An unreadable batch is reported in its place by an error message, and then skipped.
             An error that is still in the queue is not queued again: the same error may repeat for hours while the
             application does not poll.
             What a call gathers stays here until `hand_over` returns it. If the call ends otherwise (an exception, a
             signal, a cancellation), or another call comes first, `give_back` puts everything back in its place.
How:         The event loop appends to a deque and the application takes from it, without a lock. A signal handler of
             the application may raise between two instructions: each step leaves a state that `give_back` can undo.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from operator import length_hint

from felice.client.consume.subscription import AssignedPartition, Gathering
from felice.client.error import KafkaError, error_of, failure
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

    __slots__ = (
        "error",
        "headers",
        "is_released",
        "lease",
        "next_offset",
        "partition",
        "record_count",
        "records",
    )

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
        self.is_released = False

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
        # The call that gathers, what it took from the queue, and its messages in one list, which is handed over as it
        # is: a copy costs time for each record. A run is the messages of one piece, and where it begins.
        self._gathering: Gathering | None = None
        self._is_taking = False
        self._touched: list[Fetched | Message] = []
        self._gathered: list[Message] = []
        self._runs: list[tuple[Fetched | None, int]] = []
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
        """True if nothing is left to take."""
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
            if self._gathering is not None and not self._is_taking:
                self.give_back()
            if not self._queue:
                return None
            item = self._pop()
            if isinstance(item, Message):
                return item
            failed = self._begin(item)
            if failed is not None:
                return failed

    def take_at_once(self, limit: int) -> list[Message] | None:
        """Return `limit` messages if the batch in delivery has them: the usual case. Otherwise None; call `gather`."""
        fetched = self._fetched
        if fetched is None or limit <= 0 or self._gathering is not None or fetched.stale:
            return None
        if length_hint(self._messages) < limit:
            return None
        partition = fetched.partition
        # Until the position moves, `give_back` can undo this.
        messages = list(islice(self._messages, limit))
        if len(messages) == limit and messages[0]._record[0] >= (partition.position or 0):
            partition.position = messages[-1]._record[0] + 1
            return messages
        self._messages = chain(messages, self._messages)
        return None

    def take_many(self, limit: int) -> list[Message]:
        """Return up to `limit` messages, without waiting."""
        self.gather(limit)
        return self.hand_over()

    def gather(self, limit: int) -> int:
        """Take messages until `limit` are gathered, without waiting; return how many are."""
        self.start_taking()
        gathered = self._gathered
        while len(gathered) < limit:
            message = self.take()
            if message is None:
                break
            is_error = message.error() is not None
            self._runs.append((None if is_error else self._fetched, len(gathered)))
            gathered.append(message)
            if not is_error:
                self._take_rest_of_batch(limit)
        self._is_taking = False
        return len(gathered)

    def _take_rest_of_batch(self, limit: int) -> None:
        """Gather more of the batch whose first message `take` has just returned, until `limit` are gathered."""
        fetched = self._fetched
        if fetched is None or fetched.stale:
            return
        gathered = self._gathered
        gathered.extend(islice(self._messages, limit - len(gathered)))
        self._advance(fetched, gathered[-1]._record[0] + 1)

    def start_taking(self) -> Gathering:
        """Gather what is taken from now on, until `stop_taking`. Returns the gathering to which it belongs."""
        gathering = self._gathering
        if gathering is None:
            gathering = Gathering()
            if self._fetched is not None:
                self._touched.append(self._fetched)
                self._fetched.partition.hold(gathering)
            self._gathering = gathering
        self._is_taking = True
        return gathering

    def stop_taking(self) -> None:
        """Let other calls take again; they give back first what is gathered."""
        self._is_taking = False

    def hand_over(self) -> list[Message]:
        """Return the gathered messages: they count as handed out. Leaves out what was revoked or moved meanwhile."""
        messages = self._gathered
        if any(fetched is not None and fetched.stale for fetched, _ in self._runs):
            messages = [
                message for message, fetched in self._with_pieces() if fetched is None or not fetched.stale
            ]
        # No calls from here on: a signal handler can raise only before or after all of it.
        gathering = self._gathering
        if gathering is not None:
            gathering.closed = True
        self._gathering = None
        self._is_taking = False
        self._runs = []
        self._touched = []
        self._gathered = []
        return messages

    def _with_pieces(self) -> Iterator[tuple[Message, Fetched | None]]:
        """The gathered messages, each with its piece: None for an error or event."""
        bounds = [*(start for _, start in self._runs), len(self._gathered)]
        for (fetched, start), end in zip(self._runs, bounds[1:], strict=True):
            for message in self._gathered[start:end]:
                yield message, fetched

    @property
    def gathered(self) -> list[Message]:
        """The messages that are gathered, and not handed out yet."""
        return list(self._gathered)

    def hand_over_first(self, count: int) -> list[Message]:
        """Return the first of the gathered messages, as `hand_over` does, and give back the others."""
        fresh = [
            message
            for message, fetched in islice(self._with_pieces(), count)
            if fetched is None or not fetched.stale
        ]
        self.give_back()
        # The queue is as it was before, so these are the same messages again.
        self.take_many(len(fresh))
        return fresh

    def untake(self, message: Message) -> None:
        """Put the message back that `take` has just returned."""
        fetched = self._fetched
        if fetched is not None and not fetched.stale:
            fetched.partition.position = message._record[0]
            self.give_back()

    def give_back(self) -> None:
        """Put everything gathered back in its place, for the next call."""
        fetched, self._fetched = self._fetched, None
        self._messages = iter(())
        if self._gathering is None:
            if fetched is not None:
                self._queue.appendleft(fetched)
            return
        for item in self._touched:
            if isinstance(item, Fetched) and not item.stale:
                item.partition.give_back()
            self._take_on_again(item)
        self._queue.extendleft(reversed(self._touched))
        self._gathering = None
        self._is_taking = False
        self._runs = []
        self._touched = []
        self._gathered = []

    def take_fetched(self) -> Fetched | Message | None:
        """Return the next piece as fetched (the partition's position says which rows are left), or an event."""
        while True:
            fetched = self._fetched
            if fetched is not None:
                if not fetched.stale:
                    return fetched
                self._done(fetched)
            if self._gathering is not None and not self._is_taking:
                self.give_back()
            if not self._queue:
                return None
            item = self._pop()
            if isinstance(item, Message):
                return item
            message = self._begin(item)
            if message is not None:
                return message

    def _pop(self) -> Fetched | Message:
        item = self._queue[0]
        if self._gathering is not None:
            self._touched.append(item)
        self._queue.popleft()
        self._waiting_errors.discard(_error_key(item))
        return item

    def put_back(self, message: Message) -> None:
        """Return the event that was taken last to the front of the queue, to be delivered later."""
        if self._touched and self._touched[-1] is message:
            self._touched.pop()
        self._take_on_again(message)
        self._queue.appendleft(message)

    def _take_on_again(self, item: Fetched | Message) -> None:
        """Count an item that returns to the queue."""
        if (error := _error_key(item)) is not None:
            self._waiting_errors.add(error)
        if isinstance(item, Fetched) and item.is_released:
            size = len(item.records)
            item.is_released = False
            item.lease.taken_bytes -= size
            item.lease.taken_records -= item.record_count
            self._taken_bytes -= size

    def finish(self, fetched: Fetched) -> None:
        """Mark the whole piece as delivered."""
        # Control batches and gaps may follow the last record; the position skips them too.
        self._advance(fetched, fetched.next_offset)
        self._done(fetched)

    def _advance(self, fetched: Fetched, offset: int) -> None:
        """Move the position on, unless the piece is stale.

        K1: the position goes back only for a seek. A seek marks what was fetched before it as stale.
        """
        if fetched.stale:
            return
        partition = fetched.partition
        if offset < (partition.position or 0):
            position = partition.position
            # The application may resume the partition, with or without a seek.
            partition.pause()
            raise failure(
                KafkaError._INCONSISTENT,
                f"invariant K1 is broken: the position of {partition.topic}-{partition.partition} would go back "
                f"from {position} to {offset}; the partition is paused",
            )
        partition.position = offset

    def _begin(self, item: Fetched) -> Message | None:
        """Start to deliver a piece, or return the message for its error."""
        if item.stale:
            self._release(item)
            return None
        partition = item.partition
        if item.error is not None:
            self._release(item)
            return error_message(item.error, partition.topic, partition.partition, item.next_offset)
        if self._gathering is not None:
            partition.hold(self._gathering)
        self._headers = iter(item.headers)
        self._messages = iter(())
        self._fetched = item
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
            self._advance(fetched, max(position, header.next_offset))
            where = f"batch at {partition.topic}-{partition.partition} offset {header.base_offset}: {error}"
            bad = error_of(KafkaError._BAD_MSG, where)
            return error_message(bad, partition.topic, partition.partition, header.base_offset)
        return None

    def _done(self, fetched: Fetched) -> None:
        self._fetched = None
        self._messages = iter(())
        self._release(fetched)

    def _release(self, item: Fetched) -> None:
        if not item.is_released:
            size = len(item.records)
            item.is_released = True
            item.lease.taken_bytes += size
            item.lease.taken_records += item.record_count
            self._taken_bytes += size
        self.on_drained()
