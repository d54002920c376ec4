"""The blocking `Producer`, with confluent_kafka's names.

Keeps true:  `produce` never waits for room: it queues the record or raises (`BufferError` if the queue is full). While
             much waits to be sent, it pauses for 0.2 ms now and then (`turns`). Callbacks run in the thread that
             calls `poll` or `flush`, never in another. `len(producer)` counts the records whose
             report was not served yet.
How:         `produce` appends to the accumulator in the caller's thread; an event loop on its own thread sends.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Never, TypeAlias, TypeVar

from felice.client.error import KafkaError, KafkaException, error_of, failure, kafka_exception
from felice.client.group.requests import offsets_of
from felice.client.model import ClusterMetadata, ConsumerGroupMetadata, Message, TopicPartition
from felice.client.net.loop_thread import LoopThread
from felice.client.net.wakeup import Wakeup
from felice.client.options import parse_settings
from felice.client.produce.accumulator import Accumulator, HeldRecord
from felice.client.produce.batches import Report
from felice.client.produce.core import ProducerCore, make_accumulator
from felice.client.produce.reports import dropped_message, reports_of
from felice.client.produce.sender import Delivered
from felice.client.produce.transactor import timed_out
from felice.client.produce.turns import Turns
from felice.client.produce.values import Content, HeadersInput, as_bytes, as_headers
from felice.protocol.primitives import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

# A batch; or a dropped record with its report and size; or another callback to run.
_Finished: TypeAlias = Delivered | tuple[Report, KafkaError, Message, int] | Callable[[], object]


class _Inbox:
    """Finished batches, passed from the loop's thread to the caller's."""

    def __init__(self, accumulator: Accumulator, only_errors: bool) -> None:
        self.finished: deque[_Finished] = deque()
        self.wakeup = Wakeup()
        self._accumulator = accumulator
        self._only_errors = only_errors

    def on_delivered(self, delivered: Delivered) -> None:
        batch = delivered.batch
        if batch.reports and (delivered.error is not None or not self._only_errors):
            self.finished.append(delivered)
        else:
            with self._accumulator.lock:
                self._accumulator.release_batch(batch, acknowledged=delivered.error is None)
        self._notify()

    def on_dropped(self, record: HeldRecord, error: KafkaError) -> None:
        if record.report is None:
            with self._accumulator.lock:
                self._accumulator.release(1, record.size_bytes)
        else:
            message = dropped_message(record, error)
            self.finished.append((record.report, error, message, record.size_bytes))
        self._notify()

    def tell(self, callback: Callable[..., object], *arguments: object) -> None:
        self.finished.append(partial(callback, *arguments))
        self._notify()

    def _notify(self) -> None:
        self.wakeup.set()


class Producer:
    """`Producer({"bootstrap.servers": "localhost:9092"})`. Call `flush` or `close` before dropping it."""

    def __init__(self, config: Mapping[str, object] | None = None, /, **kwargs: object) -> None:
        settings = parse_settings("p", {**(config or {}), **kwargs})
        self._settings = settings
        self._accumulator = make_accumulator(settings, time.monotonic)
        self._offer = self._accumulator.offers.offer
        self._turns = Turns()
        self._inbox = _Inbox(self._accumulator, settings["delivery.report.only.error"])
        self._default_report: Report | None = settings["on_delivery"]
        self._due: deque[tuple[Report, KafkaError | None, Message]] = deque()
        self._thread = LoopThread("producer")
        self._core: ProducerCore = self._thread.run(
            ProducerCore.start(settings, self._accumulator, self._inbox)
        )
        self._thread.at_end = self._core.close
        self._thread.in_fork = self._accumulator.leave_behind
        self._wake = self._core.sender.wake

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_thread") and self._thread.alive:
            self._thread.post(self._thread.loop.stop)

    def __len__(self) -> int:
        return self._accumulator.record_count

    def __bool__(self) -> bool:
        return True

    def produce(
        self,
        topic: str,
        value: Content = None,
        key: Content = None,
        partition: int = -1,
        callback: Report | None = None,
        on_delivery: Report | None = None,
        timestamp: int = 0,
        headers: HeadersInput = None,
    ) -> None:
        """Queue one record; `poll` or `flush` calls `on_delivery(error, message)` with its report.

        `value` and `key` are bytes, strings (sent as UTF-8) or None. `partition` -1 leaves the choice to the
        partitioner. `timestamp` is in milliseconds since 1970, 0 for now. `headers` are a dict, or pairs of a name and
        bytes, a string or None. `callback` is another name of `on_delivery`.

        Raises `BufferError` if the queue is full (call `poll` and try again), `TypeError` for other types,
        `KafkaException` for a record that is too large, a missing transaction, and a producer that is closed or was
        left behind by a fork.
        """
        when = timestamp or time.time_ns() // 1_000_000
        report = callback or on_delivery or self._default_report
        outcome = 0 if headers is not None else self._offer(topic, partition, when, key, value, report)
        if outcome == 1:
            return  # most records: nothing else is done for them
        if outcome == 2:
            wake = self._accumulator.close_full(topic)
        else:
            content = as_bytes(key, "key"), as_bytes(value, "value"), as_headers(headers)
            wake = self._accumulator.append(topic, partition, when, *content, report)
        if wake:
            self._wake_sender()

    def _wake_sender(self) -> None:
        self._thread.post(self._wake)
        self._turns.give(self._accumulator.size_bytes)

    def produce_batch(
        self,
        topic: str,
        messages: Sequence[dict[str, Any]],
        partition: int = -1,
        callback: Report | None = None,
        on_delivery: Report | None = None,
    ) -> int:
        """Queue many records of one topic; returns how many were queued.

        Each is a dict with any of `value`, `key`, `partition`, `timestamp` (milliseconds), `headers` and `callback`;
        the arguments apply to records without values of their own. A record that is refused gets a `_error`
        (`KafkaError`) in its dict and no report; the records after it are still queued.
        """
        report = callback or on_delivery
        return sum(self._produced(topic, row, partition, report) for row in messages)

    def _produced(self, topic: str, row: dict[str, Any], partition: int, report: Report | None) -> bool:
        row.pop("_error", None)
        try:
            self.produce(
                topic,
                row.get("value"),
                row.get("key"),
                row.get("partition", partition),
                row.get("callback") or report,
                timestamp=row.get("timestamp", 0),
                headers=row.get("headers"),
            )
        except BufferError as error:
            row["_error"] = error_of(KafkaError._QUEUE_FULL, str(error), retriable=True)
        except KafkaException as error:
            row["_error"] = error.error
        return "_error" not in row

    def produce_arrow(
        self,
        topic: str,
        table: pa.Table,
        *,
        key: str | None = "key",
        value: str = "value",
        partition: str | None = "partition",
        timestamp: str | None = "timestamp",
        headers: str | None = "headers",
        timeout: float = 30.0,
    ) -> int:
        """Send the rows of a pyarrow table. The arguments name its columns, some of which may be missing.

        A column that no argument names is refused, because it would be lost: drop it with `table.select` first.

        A row goes to the partition in its `partition` column; otherwise to the partition of its key's hash, as with
        the Java client; otherwise blocks of rows go to the partitions in turn. Returns the number of rows queued. While
        the queue is full it waits, at most `timeout` seconds in all, and then raises `BufferError`.
        """
        from felice.client.produce.arrow import batches_of_table

        count = self._topic_width(topic, timeout)
        names = {
            "key": key,
            "value": value,
            "partition": partition,
            "timestamp": timestamp,
            "headers": headers,
        }
        deadline = time.monotonic() + timeout
        rows = 0
        for number, data, record_count in batches_of_table(table, names, count, self._settings):
            self._append_batch(topic, number, data, record_count, deadline)
            rows += record_count
        return rows

    def _append_batch(
        self, topic: str, partition: int, data: Buffer, record_count: int, deadline: float
    ) -> None:
        while True:
            try:
                self._accumulator.append_batch(topic, partition, data, record_count, self._default_report)
                self._wake_sender()
                return
            except BufferError:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                self.poll(min(left, 0.1))

    def _topic_width(self, topic: str, timeout_s: float) -> int:
        try:
            return self._thread.run(self._core.open_topic(topic, timeout_s))
        except OSError as error:
            raise kafka_exception(error) from error

    def poll(self, timeout: float = -1) -> int:
        """Serve reports; waits up to `timeout` seconds (-1: no limit) for the first. Returns the number served."""
        served = self._serve()
        if served or timeout == 0:
            return served
        deadline = None if timeout < 0 else time.monotonic() + timeout
        while not served and self._wait(deadline):
            served = self._serve()
        return served

    def flush(self, timeout: float = -1) -> int:
        """Send the waiting records and serve all reports; returns the number of records left after `timeout`."""
        deadline = None if timeout < 0 else time.monotonic() + timeout
        with self._accumulator.lock:
            self._accumulator.flushing += 1
        self._thread.post(self._wake)
        try:
            self._serve()
            while self._accumulator.record_count and self._wait(deadline):
                self._serve()
        finally:
            with self._accumulator.lock:
                self._accumulator.flushing -= 1
        self._serve()
        return len(self)

    def _wait(self, deadline: float | None) -> bool:
        """Wait until a batch or callback is finished; False after the deadline."""
        inbox = self._inbox
        if inbox.finished:
            return True
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        if not self._thread.alive:
            raise RuntimeError(self._thread.why_ended())
        # Bounded, so that a keyboard interrupt is noticed, and a missed wake-up costs little.
        inbox.wakeup.wait(0.1 if left is None else min(left, 0.1))
        return True

    def _serve(self) -> int:
        if self._thread.is_left_behind:
            raise RuntimeError(self._thread.why_ended())  # The parent process serves the reports.
        served = 0
        due, finished = self._due, self._inbox.finished
        while due or finished:
            if not due:
                served += self._expand(finished.popleft())
            while due:
                report, error, message = due.popleft()
                served += 1
                report(error, message)
        return served

    def _expand(self, item: _Finished) -> int:
        """Queue the callbacks of one finished item; if one raises, the others stay queued."""
        if isinstance(item, Delivered):
            self._due.extend(reports_of(item))
            with self._accumulator.lock:
                self._accumulator.release_batch(item.batch, acknowledged=item.error is None)
        elif isinstance(item, tuple):
            report, error, message, size = item
            self._due.append((report, error, message))
            with self._accumulator.lock:
                self._accumulator.release(1, size)
        else:
            item()
            return 1
        return 0

    # Transactions. A call that timed out (its error is `retriable`) continues, and may be made again.

    def init_transactions(self, timeout: float = -1) -> None:
        """Get a producer id, fence the id's previous producer, abort its transaction. Once, before all else.

        `timeout` is in seconds; -1 means twice `transaction.timeout.ms`, and `transaction.timeout.ms` in the calls
        below. After it they raise `KafkaException` with _TIMED_OUT.
        """
        self._thread.run(self._core.transactor.init(timeout))

    def begin_transaction(self) -> None:
        """Begin a transaction: records produced from now on belong to it."""
        self._thread.run(self._core.transactor.begin())

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: ConsumerGroupMetadata, timeout: float = -1
    ) -> None:
        """Commit these offsets for the consumer's group when the transaction commits."""
        offsets = offsets_of(None, positions) or {}
        self._thread.run(self._core.transactor.send_offsets(offsets, group_metadata, timeout))

    def commit_transaction(self, timeout: float = -1) -> None:
        """Flush, serving reports, and commit. If the error says `txn_requires_abort`, abort the transaction."""
        self._end_transaction("commit_transaction", timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Drop the waiting records (reported as _PURGE_QUEUE) and abort."""
        self._end_transaction("abort_transaction", timeout)

    def _end_transaction(self, name: str, timeout: float) -> None:
        transactor = self._core.transactor
        limit_s = transactor.time_limit_s(timeout)
        deadline = time.monotonic() + limit_s
        self._thread.run(transactor.start_ending(name))
        if self.flush(limit_s):
            raise timed_out(name, limit_s)
        self._thread.run(transactor.finish_ending(name, max(0.0, deadline - time.monotonic())))

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop the records that wait, or are in flight; their reports say _PURGE_QUEUE or _PURGE_INFLIGHT."""

        async def purge() -> None:
            self._core.sender.purge(in_queue, in_flight)

        future = self._thread.submit(purge())
        if blocking:
            future.result()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the current brokers and topics."""
        picture: ClusterMetadata = self._ask(self._core.metadata(None if topic is None else [topic]), timeout)
        return picture

    def _ask(self, work: Coroutine[object, Never, T], timeout: float) -> T:
        try:
            return self._thread.run(work, timeout if timeout >= 0 else None)
        except TimeoutError:
            raise failure(KafkaError._TIMED_OUT, f"no answer in {timeout} s") from None

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the cluster's id."""
        return self.list_topics("", timeout).cluster_id

    def close(self, timeout: float = -1) -> bool:
        """Flush, then end; True if every record got its result within `timeout` seconds (-1: no limit).

        Records that are not delivered in time are lost, and an open transaction is aborted. In a forked process it
        sends nothing, and returns False if records waited at the fork: the parent process sends them.
        """
        if not self._thread.alive:
            return not len(self)
        left = 0
        try:
            if self._accumulator.transaction is not None and self._accumulator.transaction.may_abort:
                with contextlib.suppress(KafkaException):
                    self.abort_transaction(timeout)
            left = self.flush(timeout)
        finally:
            with self._accumulator.lock:
                self._accumulator.close()
            self._thread.run(self._core.close())
            self._thread.stop()
        return not left

    def _check_open(self) -> None:
        if self._accumulator.closed:
            raise failure(KafkaError._STATE, self._accumulator.why_closed)
