"""Reads a topic with one partition from its beginning, and follows it.

Keeps true:  `on_record` gets every committed record once, in offset order. `position` is an offset below which every
             record was passed to it; transaction markers and gaps of compaction count as read.
             The first failure ends the following: a record that cannot be read or applied, records that were removed
             before they were read, another topic of this name. No record is passed on after it.
             A broker that does not answer is no failure: the follower connects again.
How:         A `ConsumerCore` with an assigned partition fetches; one task takes from its queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from felice.client.compacted.errors import FollowingStopped
from felice.client.compacted.identity import TopicIdentity
from felice.client.compacted.records import CompactedRecord
from felice.client.consume.core import ConsumerCore
from felice.client.consume.delivery import Delivery
from felice.client.consume.offsets import EARLIEST, LATEST, list_offsets
from felice.client.error import KafkaError, KafkaException, error_of
from felice.client.model import Message, OffsetAndTimestamp, Partition, TopicPartition
from felice.client.net.cluster import backoff_s
from felice.client.options import ConsumerSettings
from felice.env.clock import set_within
from felice.protocol.errors import ErrorCode

_log = logging.getLogger("felice.client.compacted")

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

# Messages that are passed on before other tasks of the loop get their turn.
_AT_ONCE = 200
# Errors after which no later record may be passed on; the others end when a broker answers again.
_FINAL = (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._AUTO_OFFSET_RESET)
_CHECK_S = 1.0

OnRecord = Callable[[CompactedRecord], Awaitable[None] | None]
"""Gets each record. If it returns an awaitable, it gets the next record only when this awaitable is done."""


async def _ask_nothing(callback: Callable[..., object], partitions: object) -> None:
    raise AssertionError("a consumer without a group has no rebalances")


def tell(callback: Callable[..., object], *arguments: object) -> None:
    """Call a callback of the configuration, such as `error_cb`; what it raises is logged."""
    try:
        callback(*arguments)
    except Exception:  # the callback is the application's
        _log.exception("a callback raised")


class Follower:
    """Runs on the event loop from `start` to `stop`."""

    def __init__(self, settings: ConsumerSettings, identity: TopicIdentity, on_record: OnRecord) -> None:
        self._log = settings.log("compacted")
        self._random = settings.env.random
        self._identity = identity
        self._on_record = on_record
        self._partition: Partition = (identity.name, 0)
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._delivery = Delivery(check_crcs=settings.check_crcs, on_drained=self._on_drained)
        self._delivery.listen(self._arrived.set)
        self._core = ConsumerCore(settings, self._delivery, _ask_nothing, tell)
        self._core.cluster.on_refreshed = self._check_identity
        self._progress = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.position = -1
        """The offset below which everything was passed to `on_record`; -1 before the start of the log is known."""
        self.failure: FollowingStopped | None = None
        self.trouble: KafkaError | None = None
        """The last error of a broker since a record arrived, for the errors of calls that waited too long."""
        self.on_failure: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Find the beginning of the log, and begin to follow. Asks until a broker answers."""
        begin = await self._offset(EARLIEST, READ_COMMITTED)
        self._core.assign([TopicPartition(*self._partition, begin)])
        self.position = begin
        self._task = self._loop.create_task(self._follow())

    async def stop(self) -> None:
        """Stop following and close the connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._core.close()

    # Waiting

    async def end(self, isolation_level: int) -> int:
        """Ask the leader for the topic's end: READ_COMMITTED leaves out what is behind an open transaction.

        Asks again until a broker answers; the caller limits the time.
        """
        return await self._offset(LATEST, isolation_level)

    async def _offset(self, which: int, isolation_level: int) -> int:
        cluster, attempt = self._core.cluster, 0
        while True:
            self.check()
            try:
                await cluster.refresh([self._identity.name])
                found = await list_offsets(cluster, {self._partition: which}, isolation_level)
                answer = found[self._partition]
            except KafkaException as error:
                answer = error.error
            self.check()
            if isinstance(answer, OffsetAndTimestamp):
                return answer.offset
            if not answer.retriable():
                raise KafkaException(answer)
            self.trouble = answer
            await asyncio.sleep(backoff_s(attempt, 100, 1000, self._random))
            attempt += 1

    async def wait_position(self, position: int) -> None:
        """Wait until `position` is reached. Raises `FollowingStopped`."""
        while True:
            self.check()
            if self.position >= position:
                return
            await self._progress.wait()

    def check(self) -> None:
        """Raise if the following has ended."""
        if self.failure is not None:
            # A new object: each raise would make the traceback of the same one longer.
            raise FollowingStopped(self.failure.error) from self.failure.__cause__

    def fail(self, reason: str, cause: BaseException | None = None) -> None:
        """End the following: the waiting and all later calls raise."""
        if self.failure is None:
            self.failure = FollowingStopped(error_of(KafkaError._STATE, reason))
            self.failure.__cause__ = cause
            self._log.error("%s", reason)
            self._core.fetcher.close()
            self._tell_waiting()
            self.on_failure()

    def _tell_waiting(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()

    # Following

    def _on_drained(self) -> None:
        if self._core.fetcher.starved:
            self._core.fetcher.wake()

    def _check_identity(self) -> None:
        fault = self._identity.fault(self._core.cluster.topology, self._loop.time())
        if fault is not None:
            self.fail(fault)

    async def _follow(self) -> None:
        while self.failure is None:
            self._arrived.clear()
            if await self._pass_on():
                await asyncio.sleep(0)
            else:
                await set_within(self._arrived, _CHECK_S)

    async def _pass_on(self) -> bool:
        """Pass up to `_AT_ONCE` messages on; False if the queue is empty."""
        for _ in range(_AT_ONCE):
            message = self._delivery.take()
            if message is None or self.failure is not None:
                self._note_position()
                return False
            await self._take(message)
        self._note_position()
        return True

    def _note_position(self) -> None:
        partition = self._core.subscription.assigned[self._partition]
        if self.failure is None and partition.position is not None and partition.position > self.position:
            self.position = partition.position
            self.trouble = None
            self._tell_waiting()

    async def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._on_error(error)
            return
        offset, (_, timestamp) = message.offset(), message.timestamp()
        assert offset is not None
        record = CompactedRecord(message.key(), message.value(), offset, timestamp, message.headers() or [])
        try:
            work = self._on_record(record)
            if work is not None:
                await work
        except Exception as raised:  # the application's: it decides what a record means
            self.fail(
                f"{self._identity.name}: the record at offset {offset} was not applied: "
                f"{type(raised).__name__}: {raised}",
                raised,
            )

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in _FINAL:
            self.fail(f"{self._identity.name} cannot be read any further: {error.str()}")
        elif error.code() != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if self.trouble is None or self.trouble.str() != error.str():
                self._log.warning("%s: %s", self._identity.name, error.str())
            self.trouble = error
