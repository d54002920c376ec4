"""The asyncio producer.

Keeps true:  `send` returns a future per record, done when the record is acknowledged or failed. If the queue is full,
             `send` waits for room instead of raising, because waiting in a coroutine costs nothing. While it waits,
             batches are sent at once, without their linger time. `close` refuses records that are sent from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

from felice.client.aio.callbacks import Callbacks
from felice.client.arguments import takes_lists
from felice.client.error import KafkaError, KafkaException, failure
from felice.client.group.requests import offsets_of
from felice.client.model import ClusterMetadata, ConsumerGroupMetadata, Message, TopicPartition
from felice.client.options import ProducerSettings
from felice.client.produce.accumulator import Accumulator, HeldRecord
from felice.client.produce.core import ProducerCore, make_accumulator
from felice.client.produce.reports import dropped_message, reports_of
from felice.client.produce.sender import Delivered
from felice.client.produce.transactor import timed_out
from felice.client.produce.values import Content, HeadersInput, as_bytes, as_headers
from felice.env import Environment
from felice.env.forks import Owner

_log = logging.getLogger("felice.client")

# The timestamp that stands for the current time.
_NOW = 0


class _LoopInbox:
    """Serves delivery reports on the loop, where they arise."""

    def __init__(self, accumulator: Accumulator) -> None:
        self._accumulator = accumulator
        self._callbacks = Callbacks(_log_raised)
        self.room = asyncio.Event()

    def on_delivered(self, delivered: Delivered) -> None:
        reports = reports_of(delivered)
        with self._accumulator.lock:
            self._accumulator.release_batch(delivered.batch, acknowledged=delivered.error is None)
        for report, error, message in reports:
            self._callbacks.call(report, error, message)
        self.room.set()

    def on_dropped(self, record: HeldRecord, error: KafkaError) -> None:
        with self._accumulator.lock:
            self._accumulator.release(1, record.size_bytes)
        if record.report is not None:
            self._callbacks.call(record.report, error, dropped_message(record, error))
        self.room.set()

    def tell(self, callback: Callable[..., object], *arguments: object) -> None:
        self._callbacks.call(callback, *arguments)


async def _more_room(core: ProducerCore, inbox: _LoopInbox) -> None:
    inbox.room.clear()
    core.sender.wake()
    await inbox.room.wait()


def _log_raised(error: Exception) -> None:
    _log.error("a callback raised %s: %s", type(error).__name__, error)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


@takes_lists
class AsyncProducer:
    """`async with Producer({...}) as producer: await producer.send_and_wait("topic", b"value")`."""

    def __init__(self, config: Mapping[str, object], *, env: Environment | None = None) -> None:
        self._settings = ProducerSettings.parse(config, env)
        for key in ("on_delivery", "delivery.report.only.error"):
            if key in self._settings.explicit:
                raise failure(
                    KafkaError._INVALID_ARG,
                    f'"{key}" is not for the asyncio producer: `send` returns a future',
                )
        self._accumulator = make_accumulator(self._settings, _loop_time)
        self._inbox: _LoopInbox | None = None
        self._core: ProducerCore | None = None
        self._owner = Owner()

    async def start(self) -> None:
        """Bind the producer to the running loop. `async with` calls it."""
        self.start_now()

    def start_now(self) -> None:
        """Bind the producer to the running loop, from a plain function that runs on it."""
        if self._core is None:
            if self._accumulator.closed:  # by an earlier `close`
                self._accumulator = make_accumulator(self._settings, _loop_time)
            self._inbox = _LoopInbox(self._accumulator)
            self._owner = Owner()
            self._core = ProducerCore(self._settings, self._accumulator, self._inbox)

    async def __aenter__(self) -> AsyncProducer:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __len__(self) -> int:
        return self._accumulator.record_count

    def __bool__(self) -> bool:
        return True

    async def send(
        self,
        topic: str,
        value: Content = None,
        key: Content = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: HeadersInput = None,
    ) -> asyncio.Future[Message]:
        """Queue a record, waiting for room if necessary; the future is done when the record is acknowledged.

        `value` and `key` are bytes, strings (sent as UTF-8) or None; `timestamp` is in milliseconds since 1970, 0 for
        now. The future raises `KafkaException` if the record fails. `send` itself raises the errors of
        `felice.client.Producer.produce`, except `BufferError`.
        """
        core, inbox = self._started()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Message] = loop.create_future()

        def report(error: KafkaError | None, message: Message) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(message)
            else:
                future.set_exception(KafkaException(error))
                if error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
                    # An abort drops records on purpose: asyncio must not log an exception that nobody retrieved.
                    future.exception()

        content = as_bytes(key, "key"), as_bytes(value, "value"), as_headers(headers)
        when = timestamp if timestamp is not _NOW else self._settings.env.clock.now_ms()
        while True:
            try:
                if self._accumulator.append(topic, partition, when, *content, report):
                    core.sender.wake()
                return future
            except BufferError:
                with self._without_linger():
                    await _more_room(core, inbox)

    async def send_and_wait(
        self,
        topic: str,
        value: Content = None,
        key: Content = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: HeadersInput = None,
    ) -> Message:
        """Queue a record and wait until it is acknowledged. Raises `KafkaException` if it fails."""
        return await (await self.send(topic, value, key, partition, timestamp, headers))

    async def flush(self) -> None:
        """Wait until no record is left without its result. Also waits for records that other tasks send meanwhile."""
        core, inbox = self._started()
        with self._without_linger():
            while self._accumulator.record_count:
                await _more_room(core, inbox)

    @contextlib.contextmanager
    def _without_linger(self) -> Iterator[None]:
        """Send the waiting records at once: something waits for their results."""
        with self._accumulator.lock:
            self._accumulator.flushing += 1
        try:
            yield
        finally:
            with self._accumulator.lock:
                self._accumulator.flushing -= 1

    def purge(self, in_queue: bool = True, in_flight: bool = True) -> None:
        """Drop the records that wait, or are in flight; their futures raise _PURGE_QUEUE or _PURGE_INFLIGHT."""
        self._started()[0].sender.purge(in_queue, in_flight)

    # Transactions. A call that timed out continues, and may be made again.

    async def init_transactions(self, timeout_s: float | None = None) -> None:
        """Get a producer id, fence the id's previous producer, abort its transaction. Once, before all else.

        `timeout_s` None means twice `transaction.timeout.ms`, and `transaction.timeout.ms` in the calls below. After
        it they raise `KafkaException` with _TIMED_OUT.
        """
        await self._started()[0].transactor.init(timeout_s)

    async def begin_transaction(self) -> None:
        """Begin a transaction: records sent from now on belong to it."""
        await self._started()[0].transactor.begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Sequence[TopicPartition],
        group_metadata: ConsumerGroupMetadata,
        timeout_s: float | None = None,
    ) -> None:
        """Commit these offsets for the consumer's group when the transaction commits."""
        chosen = offsets_of(None, offsets) or {}
        await self._started()[0].transactor.send_offsets(chosen, group_metadata, timeout_s)

    async def commit_transaction(self, timeout_s: float | None = None) -> None:
        """Flush and commit. If the error says `txn_requires_abort`, abort the transaction."""
        await self._end("commit_transaction", timeout_s)

    async def abort_transaction(self, timeout_s: float | None = None) -> None:
        """Drop the waiting records and abort."""
        await self._end("abort_transaction", timeout_s)

    async def _end(self, name: str, timeout_s: float | None) -> None:
        transactor = self._started()[0].transactor
        loop = asyncio.get_running_loop()
        limit_s = transactor.time_limit_s(timeout_s)
        deadline = loop.time() + limit_s
        await transactor.start_ending(name)
        try:
            async with asyncio.timeout_at(deadline):
                await self.flush()
        except TimeoutError:
            raise timed_out(name, limit_s) from None
        await transactor.finish_ending(name, max(0.0, deadline - loop.time()))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """`async with producer.transaction(): ...` commits at the end, and aborts after an exception."""
        await self.begin_transaction()
        try:
            yield
        except BaseException:
            await self._give_up()
            raise
        try:
            await self.commit_transaction()
        except KafkaException as error:
            if error.error.txn_requires_abort():
                await self.abort_transaction()
            raise

    async def _give_up(self) -> None:
        """Abort if possible; a failed abort must not hide the original error."""
        transaction = self._accumulator.transaction
        if transaction is not None and transaction.may_abort:
            with contextlib.suppress(KafkaException):
                await self.abort_transaction()

    async def metadata(
        self,
        topics: Iterable[str] | None = None,
        timeout_s: float | None = None,
        code: int = KafkaError._TRANSPORT,
    ) -> ClusterMetadata:
        """Return the current brokers and topics (None: all topics).

        After `timeout_s` (`request.timeout.ms` if it is None or negative) it raises `KafkaException` with `code`.
        """
        return await self._started()[0].metadata(topics, timeout_s, code)

    async def close(self) -> None:
        """Refuse further records, abort an open transaction, wait for the records in flight, and disconnect.

        Does nothing in a process that was forked from the producer's, which has the same connections.
        """
        core, inbox = self._core, self._inbox
        if core is None or inbox is None or not self._owner.is_here:
            return
        with self._accumulator.lock:
            self._accumulator.close()
        try:
            await self._give_up()
            if self._core is core:  # another task may close it meanwhile
                await self.flush()
        finally:
            if self._core is core:
                self._core = None
                await core.close()
            inbox.room.set()  # tasks that wait for room learn that the producer is closed

    def check_started(self) -> None:
        """Raise `RuntimeError` before `start` and after `close`."""
        self._started()

    def _started(self) -> tuple[ProducerCore, _LoopInbox]:
        if self._core is None or self._inbox is None:
            raise RuntimeError("the producer is not started: use `async with`, or await start()")
        return self._core, self._inbox
