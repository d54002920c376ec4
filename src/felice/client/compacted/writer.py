"""Writes records to one partition: all records of a write, or none. With a fence, in a transaction.

Keeps true:  With a fence (a transactional id), each write is one transaction. `take_over` gives the fence's newest
             epoch to this writer: from then on the brokers refuse every record and commit of older writers.
             Without a fence, each write is one batch of an idempotent producer, because a broker appends a batch whole.
             An error says whether the records may be in the topic: `OutcomeUnknown` if they may, every other error if
             they are not. Records of a transaction are in the topic only if a commit was asked for, so that what fails
             before it is certain. After an unknown outcome, a writer with a fence refuses to write until `take_over`.
How:         A `ProducerCore` for each epoch. Writes with a fence wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from felice.client.compacted.errors import Fenced, OutcomeUnknown
from felice.client.compacted.follower import tell
from felice.client.compacted.records import Batch
from felice.client.error import KafkaError, KafkaException, error_of, failure
from felice.client.model import Message
from felice.client.net.limits import limited
from felice.client.net.topology import Topology
from felice.client.options import ProducerSettings
from felice.client.produce.accumulator import Accumulator, HeldRecord
from felice.client.produce.core import ProducerCore, make_accumulator
from felice.client.produce.sender import Delivered
from felice.client.produce.transaction import State, Transaction
from felice.protocol.errors import ErrorCode

UNKNOWN_OFFSET = -1

# Responses to the only request for a commit that say that nothing was committed.
_NOT_COMMITTED = (
    KafkaError._FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTION_ABORTABLE,
)
_TO_ABORT = (State.OPEN, State.FAILED, State.ABORTING, State.ABORTED)
_TAKE_OVER = "call take_over() before the next write"
_NOTHING_WRITTEN = "; nothing was written"


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class _Inbox:
    """Passes the result of each batch to the future that waits for it."""

    def __init__(self, accumulator: Accumulator) -> None:
        self._accumulator = accumulator

    def on_delivered(self, delivered: Delivered) -> None:
        batch = delivered.batch
        report = next((report for report in batch.reports if report is not None), None)
        if isinstance(report, _Result):
            report.settle(delivered)
        with self._accumulator.lock:
            self._accumulator.release_batch(batch, acknowledged=delivered.error is None)

    def on_dropped(self, record: HeldRecord, error: KafkaError) -> None:
        raise AssertionError("batches are not held")

    def tell(self, callback: Callable[..., object], *arguments: object) -> None:
        tell(callback, *arguments)


class _Result:
    """The report of a batch's records, also if it is split: a future with the offset of the last one.

    UNKNOWN_OFFSET stands for records that are written, and the broker no longer knows where.
    """

    def __init__(self, record_count: int) -> None:
        self.future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.may_be_written = False
        self._left = record_count

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        raise AssertionError("the inbox settles whole batches")

    def settle(self, delivered: Delivered) -> None:
        """Note the result of the batch, or of a part of it."""
        batch, error = delivered.batch, delivered.error
        self._left -= batch.record_count
        if self.future.done():
            return
        if error is not None:
            self.may_be_written = batch.attempts > 1 or (batch.attempts == 1 and not _is_refusal(error))
            self.future.set_exception(KafkaException(error))
            self.future.exception()  # asyncio must not log an exception that nothing waits for any more
        elif not self._left:
            known = delivered.base_offset >= 0
            last = delivered.base_offset + batch.record_count - 1
            self.future.set_result(last if known else UNKNOWN_OFFSET)


def _is_refusal(error: KafkaError) -> bool:
    """Whether a broker's response says that the batch is not written; after other errors it may be."""
    return error.code() > 0 and not ErrorCode.of(error.code()).retriable


class _Producer:
    """One `ProducerCore`, and the batches that are appended to it."""

    def __init__(
        self, settings: ProducerSettings, topic: str, on_topology: Callable[[Topology], None]
    ) -> None:
        self._topic = topic
        self._accumulator = make_accumulator(settings, _loop_time)
        self.core = ProducerCore(settings, self._accumulator, _Inbox(self._accumulator))
        self._on_topology = on_topology
        self.core.cluster.on_refreshed = self._on_refreshed

    def _on_refreshed(self) -> None:
        # First: the sender must not send to another topic of this name.
        self._on_topology(self.core.cluster.topology)
        self.core.sender.wake()

    async def open(self, timeout_s: float) -> None:
        """Wait until the partition is known."""
        await self.core.open_topic(self._topic, timeout_s)

    def append(self, batch: Batch, *, whole: bool) -> _Result:
        """Queue a batch. Raises `KafkaException` if the queue is full or closed."""
        result = _Result(batch.record_count)
        try:
            self._accumulator.append_batch(
                self._topic, 0, batch.data, batch.record_count, result, whole=whole
            )
        except BufferError:
            raise failure(KafkaError._QUEUE_FULL, "too many records wait to be written") from None
        self.core.sender.wake()
        return result

    def purge(self) -> None:
        """Fail every batch that has no result."""
        self.core.sender.purge(in_queue=True, in_flight=True)

    async def close(self) -> None:
        """Fail what is left, and disconnect."""
        await self.core.close()


class IdempotentWriter:
    """Writes without a fence: each write is one batch. Several writes may run at a time."""

    def __init__(
        self,
        settings: ProducerSettings,
        topic: str,
        timeout_s: float,
        on_topology: Callable[[Topology], None],
    ) -> None:
        self._producer = _Producer(settings, topic, on_topology)
        self._timeout_s = timeout_s

    async def write(self, batches: Sequence[Batch]) -> int:
        """Write one batch; return the offset of its last record, or UNKNOWN_OFFSET. See the module for errors."""
        if len(batches) > 1:
            raise failure(
                KafkaError.MSG_SIZE_TOO_LARGE,
                "without a fence, the records of a write must fit into one batch (message.max.bytes)",
            )
        # Afterwards `delivery.timeout.ms` limits the time: only the producer can stop the batch.
        try:
            async with limited(self._timeout_s, "write: not done"):
                await self._producer.open(self._timeout_s)
        except KafkaException as error:
            raise _not_written(error) from None
        result = self._producer.append(batches[0], whole=True)
        try:
            return await asyncio.shield(result.future)
        except KafkaException as error:
            if result.may_be_written:
                raise _unknown(error, "the records may be written, or appear later") from None
            raise _not_written(error) from None

    async def close(self) -> None:
        """Fail what is left, and disconnect."""
        await self._producer.close()

    def abandon(self) -> None:
        """Fail what is left at once."""
        self._producer.core.sender.close()


class _Attempt:
    """What is known of one write."""

    def __init__(self) -> None:
        self.is_outcome_unknown = False


class FencedWriter:
    """Writes with a fence: each write is one transaction. One write runs at a time; the others wait for it."""

    def __init__(
        self,
        settings: ProducerSettings,
        topic: str,
        timeout_s: float,
        on_topology: Callable[[Topology], None],
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._timeout_s = timeout_s
        self._on_topology = on_topology
        self._lock = asyncio.Lock()
        self._producer: _Producer | None = None
        # Why nothing may be written before the next take-over.
        self._refusal: KafkaError | None = error_of(KafkaError._STATE, _TAKE_OVER)

    async def take_over(self, timeout_s: float) -> None:
        """Fence all older writers. By the return, their transactions are committed or aborted.

        Raises `Fenced` if another writer takes over at the same time and wins, _TIMED_OUT, and errors of rights.
        """
        async with limited(timeout_s, "take_over: not done"), self._lock:
            await self._close_producer()
            producer = _Producer(self._settings, self._topic, self._on_topology)
            try:
                await producer.core.transactor.init(timeout_s)
                await producer.open(timeout_s)
            except KafkaException as error:
                await producer.close()
                raise _named(error) from None
            except BaseException:
                await producer.close()
                raise
            self._producer, self._refusal = producer, None

    async def write(self, batches: Sequence[Batch]) -> int:
        """Write the batches in one transaction; return the offset of the last record, or UNKNOWN_OFFSET.

        See the module for errors.
        """
        attempt = _Attempt()
        try:
            async with limited(self._timeout_s, "write: not done"), self._lock:
                return await self._write(batches, attempt)
        except KafkaException as error:
            if attempt.is_outcome_unknown:
                raise _unknown(error, f"the commit may be carried out; {_TAKE_OVER}") from None
            raise _not_written(_named(error)) from None

    async def _write(self, batches: Sequence[Batch], attempt: _Attempt) -> int:
        if self._refusal is not None:
            raise KafkaException(self._refusal)
        producer = self._producer
        assert producer is not None, "a writer that may write has a producer"
        transactor = producer.core.transactor
        if transactor.transaction.state in _TO_ABORT and not await self._abort(producer):
            what = "the coordinator has not confirmed the abort of an earlier write"
            raise failure(KafkaError._TIMED_OUT, what, retriable=True)
        await transactor.begin()
        try:
            results = [producer.append(batch, whole=False) for batch in batches]
            offsets = await asyncio.gather(*(result.future for result in results))
        except KafkaException:
            await self._abort(producer)
            raise
        except BaseException:
            producer.purge()  # the next write aborts the transaction
            raise
        await self._commit(producer, attempt)
        return UNKNOWN_OFFSET if UNKNOWN_OFFSET in offsets else max(offsets)

    async def _commit(self, producer: _Producer, attempt: _Attempt) -> None:
        transactor = producer.core.transactor
        transaction = transactor.transaction
        try:
            await transactor.start_ending("commit_transaction")
            await transactor.finish_ending("commit_transaction", self._timeout_s)
        except BaseException as error:
            # Before such a state, the commit is still under way, although this call does not wait for it any more.
            has_failed = isinstance(error, KafkaException) and transaction.state in (
                State.FAILED,
                State.FATAL,
            )
            if not has_failed or not self._is_refused(transaction, error):
                attempt.is_outcome_unknown = True
                self._refuse(error)
            raise

    @staticmethod
    def _is_refused(transaction: Transaction, error: BaseException) -> bool:
        """Whether a commit that failed was never asked for, or refused the only time that it was."""
        if not transaction.commit_attempts:
            return True
        known = isinstance(error, KafkaException) and error.code in _NOT_COMMITTED
        return known and transaction.commit_attempts == 1

    def _refuse(self, error: BaseException) -> None:
        reason = error.error.str() if isinstance(error, KafkaException) else "the call did not wait for it"
        self._refusal = error_of(
            KafkaError._STATE, f"the outcome of the last write is unknown ({reason}): {_TAKE_OVER}"
        )

    async def _abort(self, producer: _Producer) -> bool:
        """Abort the transaction; False if the time was over before. The next write continues such an abort.

        Raises the error of a producer that cannot go on, above all if it is fenced.
        """
        producer.purge()
        transactor = producer.core.transactor
        transaction = transactor.transaction
        try:
            if transaction.state in _TO_ABORT:
                await transactor.start_ending("abort_transaction")
                await transactor.finish_ending("abort_transaction", self._timeout_s)
        except KafkaException:
            if transaction.state is not State.FATAL:
                return False
        if transaction.state is State.FATAL and transaction.error is not None:
            raise KafkaException(transaction.error)
        return True

    async def _close_producer(self) -> None:
        self._refusal = error_of(KafkaError._STATE, _TAKE_OVER)
        if self._producer is not None:
            producer, self._producer = self._producer, None
            await producer.close()

    async def close(self) -> None:
        """Fail what is left, and disconnect. An open transaction is aborted by the next take-over, or at its limit."""
        await self._close_producer()

    def abandon(self) -> None:
        """Fail what is left at once."""
        if self._producer is not None:
            self._producer.core.sender.close()


def _unknown(error: KafkaException, hint: str) -> OutcomeUnknown:
    found = error.error
    return OutcomeUnknown(KafkaError(found.code(), f"{found.str()}: {hint}"))


def _not_written(error: KafkaException) -> KafkaException:
    """Say it where the error leaves a doubt: that a time is over, or no broker answers."""
    found = error.error
    if found.code() not in (KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
        return error
    return KafkaException(KafkaError(found.code(), f"{found.str()}{_NOTHING_WRITTEN}", retriable=True))


def _named(error: KafkaException) -> KafkaException:
    """Return `Fenced` in place of the errors that mean it."""
    if error.code in (KafkaError._FENCED, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
        return Fenced(error_of(KafkaError._FENCED, error.error.str()))
    return error
