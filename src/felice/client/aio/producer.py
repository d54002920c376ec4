"""The asyncio producer.

Keeps true:  `send` hands out a future per record, done when the record is acknowledged or given up. When the queue
             is full `send` waits for room instead of raising: in a coroutine waiting costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from felice.client.aio.callbacks import Callbacks
from felice.client.error import KafkaError, KafkaException, failure
from felice.client.group.requests import offsets_of
from felice.client.model import ClusterMetadata, ConsumerGroupMetadata, Message, TopicPartition
from felice.client.options import parse_settings
from felice.client.produce.accumulator import Accumulator, HeldRecord
from felice.client.produce.core import ProducerCore, make_accumulator
from felice.client.produce.reports import dropped_message, reports_of
from felice.client.produce.sender import Delivered
from felice.client.produce.transactor import timed_out
from felice.client.produce.values import Content, HeadersInput, as_bytes, as_headers
from felice.env import Environment


class _LoopInbox:
    """Reports are served where they arise: on the loop."""

    def __init__(self, accumulator: Accumulator) -> None:
        self._accumulator = accumulator
        self._callbacks = Callbacks(_log_raised)
        self.room = asyncio.Event()

    def on_delivered(self, delivered: Delivered) -> None:
        with self._accumulator.lock:
            self._accumulator.release(delivered.batch.record_count, delivered.batch.size_bytes)
        for report, error, message in reports_of(delivered):
            report(error, message)
        self.room.set()

    def on_dropped(self, record: HeldRecord, error: KafkaError) -> None:
        with self._accumulator.lock:
            self._accumulator.release(1, record.size_bytes)
        if record.report is not None:
            record.report(error, dropped_message(record, error))
        self.room.set()

    def tell(self, callback: Callable[..., Any], *arguments: Any) -> None:
        self._callbacks.call(callback, *arguments)


def _log_raised(error: Exception) -> None:
    logging.getLogger("felice.client").error("a callback raised %s: %s", type(error).__name__, error)


class AsyncProducer:
    """`async with Producer({...}) as producer: await producer.send_and_wait("topic", b"value")`."""

    def __init__(self, config: Mapping[str, Any], *, env: Environment | None = None) -> None:
        self._settings = parse_settings("p", config, env)
        for key in ("on_delivery", "delivery.report.only.error"):
            if key in self._settings.explicit:
                raise failure(
                    KafkaError._INVALID_ARG,
                    f'"{key}" is not for the asyncio producer: `send` returns a future',
                )
        self._accumulator = make_accumulator(self._settings)
        self._inbox: _LoopInbox | None = None
        self._core: ProducerCore | None = None

    async def start(self) -> None:
        """Bind to the running loop. `async with` does it."""
        self.start_now()

    def start_now(self) -> None:
        """Bind to the running loop, from a plain function that runs on it."""
        if self._core is None:
            self._inbox = _LoopInbox(self._accumulator)
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
        """Take in a record, waiting for room if need be; the future is done when it was acknowledged.

        `value` and `key` are bytes, strings (sent as UTF-8) or None; `timestamp` is in milliseconds since 1970, 0 for
        now. The future raises `KafkaException` when the record is given up.
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
                    # Whoever aborts has given it up: that nobody asks for it is no fault to be told.
                    future.exception()

        content = as_bytes(key, "key"), as_bytes(value, "value"), as_headers(headers)
        when = timestamp or self._settings.env.clock.now_ms()
        while True:
            try:
                if self._accumulator.append(topic, partition, when, *content, report, loop.time()):
                    core.sender.wake()
                return future
            except BufferError:
                inbox.room.clear()
                core.sender.wake()
                await inbox.room.wait()

    async def send_and_wait(
        self, topic: str, value: Content = None, key: Content = None, **options: Any
    ) -> Message:
        """Take in a record and wait until it is acknowledged. Raises `KafkaException` when it is not."""
        return await (await self.send(topic, value, key, **options))

    async def flush(self) -> None:
        """Wait until everything sent so far was answered for."""
        core, inbox = self._started()
        with self._accumulator.lock:
            self._accumulator.flushing += 1
        try:
            while self._accumulator.record_count:
                inbox.room.clear()
                core.sender.wake()
                await inbox.room.wait()
        finally:
            with self._accumulator.lock:
                self._accumulator.flushing -= 1

    def purge(self, in_queue: bool = True, in_flight: bool = True) -> None:
        """Give up records that wait, or are under way; their futures raise _PURGE_QUEUE or _PURGE_INFLIGHT."""
        self._started()[0].sender.purge(in_queue, in_flight)

    # Transactions. A call that timed out goes on, and may be made again.

    async def init_transactions(self, timeout_s: float | None = None) -> None:
        """Become the one producer of this `transactional.id`; what another left open is aborted. Once, first."""
        await self._started()[0].transactor.init(timeout_s)

    async def begin_transaction(self) -> None:
        """Open a transaction: what is sent from now on belongs to it."""
        await self._started()[0].transactor.begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Sequence[TopicPartition],
        group_metadata: ConsumerGroupMetadata,
        timeout_s: float | None = None,
    ) -> None:
        """Commit these offsets on the consumer's behalf, if and when the transaction commits."""
        chosen = offsets_of(None, offsets) or {}
        await self._started()[0].transactor.send_offsets(chosen, group_metadata, timeout_s)

    async def commit_transaction(self, timeout_s: float | None = None) -> None:
        """Flush and commit. Where the error says `txn_requires_abort`, abort."""
        await self._end("commit_transaction", timeout_s)

    async def abort_transaction(self, timeout_s: float | None = None) -> None:
        """Give up what waits, and abort."""
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
        """`async with producer.transaction(): ...` commits at the end, and aborts when something is raised."""
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
        """Abort if that can be done; what led here is to be told, not that it could not."""
        transaction = self._accumulator.transaction
        if transaction is not None and transaction.may_abort:
            with contextlib.suppress(KafkaException):
                await self.abort_transaction()

    async def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        """Brokers and topics as the cluster reports them now (None: all topics)."""
        return await self._started()[0].metadata(topics)

    async def close(self) -> None:
        """Abort an open transaction, wait for the records under way, close the connections."""
        if self._core is None:
            return
        try:
            await self._give_up()
            await self.flush()
        finally:
            core, self._core = self._core, None
            await core.close()

    def _started(self) -> tuple[ProducerCore, _LoopInbox]:
        if self._core is None or self._inbox is None:
            raise RuntimeError("the producer is not started: use `async with`, or await start()")
        return self._core, self._inbox
