"""The blocking `Producer`, with confluent_kafka's names.

Keeps true:  `produce` never waits for room: it queues the record or raises (`BufferError` if the queue is full). While
             much waits to be sent, it pauses for 0.2 ms now and then (`turns`). Callbacks run in the thread that
             calls `poll`, `flush` or `close`, never in another. Each record gets exactly one report, also if
             callbacks raise: these calls raise the first exception at their end (`serving`). Records that are left
             when `close` ends are reported as purged. `len(producer)` counts the records whose report was not served
             yet.
How:         `produce` appends to the accumulator in the caller's thread; an event loop on its own thread sends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Any

from felice.client.arguments import takes_lists
from felice.client.error import KafkaError, KafkaException, error_of, failure, kafka_exception
from felice.client.group.requests import offsets_of
from felice.client.model import ClusterMetadata, ConsumerGroupMetadata, TopicPartition
from felice.client.net.loop_thread import LoopThread
from felice.client.options import ProducerSettings
from felice.client.produce.batches import Report
from felice.client.produce.core import ProducerCore, make_accumulator
from felice.client.produce.serving import FirstError, ServedInbox
from felice.client.produce.transactor import timed_out
from felice.client.produce.turns import Turns
from felice.client.produce.values import Content, HeadersInput, as_bytes, as_headers
from felice.protocol.primitives import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

# The timestamp that stands for the current time.
_NOW = 0


@takes_lists
class Producer:
    """`Producer({"bootstrap.servers": "localhost:9092"})`. Call `flush` or `close` before dropping it."""

    def __init__(self, config: Mapping[str, object] | None = None, /, **kwargs: object) -> None:
        settings = ProducerSettings.parse({**(config or {}), **kwargs})
        self._settings = settings
        self._accumulator = make_accumulator(settings, time.monotonic)
        self._offer = self._accumulator.offers.offer
        self._turns = Turns()
        self._inbox = ServedInbox(self._accumulator, settings.delivery_report_only_error)
        self._default_report = settings.on_delivery
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
        `KafkaException` for a record that is too large, a missing transaction, and a producer that was left behind by a
        fork, `RuntimeError` after `close`.
        """
        when = timestamp
        if timestamp is _NOW:
            when = time_ns() // 1_000_000
        report = callback or on_delivery or self._default_report
        outcome = 0
        if headers is None and partition >= -1:
            outcome = self._offer(topic, partition, when, key, value, report)
        if outcome == 1:
            return  # most records: nothing else is done for them
        if outcome == 2:
            wake = self._accumulator.close_full(topic)
        else:
            key, value = as_bytes(key, "key"), as_bytes(value, "value")
            checked = None if headers is None else as_headers(headers)
            wake = self._accumulator.append(topic, partition, when, key, value, checked, report)
        if wake:
            self._wake_sender()
        if outcome == 0 and self._accumulator.is_catching_up(topic):
            self._turns.let_catch_up()

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
        self._accumulator.check_not_closed()
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
        the Java client; otherwise blocks of rows go to the partitions with a leader in turn. A row that cannot be a
        record is refused before any row is queued. Returns the number of rows queued. While the queue is full it serves
        reports and waits, at most `timeout` seconds in all, and then raises `BufferError`. An exception of a callback
        is raised at the end, as by `poll`.
        """
        from felice.client.produce.arrow import batches_of_table

        deadline = time.monotonic() + timeout
        count, led = self._open_topic(topic, timeout)
        names = {
            "key": key,
            "value": value,
            "partition": partition,
            "timestamp": timestamp,
            "headers": headers,
        }
        rows = 0
        with FirstError() as errors:
            for number, data, record_count in batches_of_table(table, names, count, led, self._settings):
                self._append_batch(topic, number, data, record_count, deadline, errors)
                rows += record_count
        return rows

    def _append_batch(
        self,
        topic: str,
        partition: int,
        data: Buffer,
        record_count: int,
        deadline: float,
        errors: FirstError,
    ) -> None:
        while True:
            try:
                self._accumulator.append_batch(topic, partition, data, record_count, self._default_report)
                self._wake_sender()
                return
            except BufferError:
                self._serve(errors)
                if not self._wait(deadline):
                    raise

    def _open_topic(self, topic: str, timeout_s: float) -> tuple[int, Sequence[int]]:
        try:
            return self._thread.run(self._core.open_topic(topic, timeout_s))
        except OSError as error:
            raise kafka_exception(error) from error

    def poll(self, timeout: float = -1) -> int:
        """Serve reports; waits up to `timeout` seconds (-1: no limit) for the first. Returns the number served.

        If callbacks raise, the remaining reports are still served, then the first exception is raised.
        """
        self._accumulator.check_not_closed()
        with FirstError() as errors:
            served = self._serve(errors)
            if not served and timeout != 0:
                deadline = None if timeout < 0 else time.monotonic() + timeout
                while not served and self._wait(deadline):
                    served = self._serve(errors)
        return served

    def flush(self, timeout: float = -1) -> int:
        """Send the waiting records and serve all reports; returns the number of records left after `timeout`.

        If callbacks raise, the remaining reports are still served, then the first exception is raised.
        """
        self._accumulator.check_not_closed()
        with FirstError() as errors:
            return self._flush(timeout, errors)

    def _flush(self, timeout: float, errors: FirstError) -> int:
        deadline = None if timeout < 0 else time.monotonic() + timeout
        with self._accumulator.lock:
            self._accumulator.flushing += 1
        self._thread.post(self._wake)
        try:
            self._serve(errors)
            while self._accumulator.record_count and self._wait(deadline):
                self._serve(errors)
        finally:
            with self._accumulator.lock:
                self._accumulator.flushing -= 1
        self._serve(errors)
        return len(self)

    def _wait(self, deadline: float | None) -> bool:
        """Wait until a batch or callback is finished; False after the deadline."""
        inbox = self._inbox
        if not inbox.empty:
            return True
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        if not self._thread.alive:
            raise RuntimeError(self._thread.why_ended())
        # Bounded, so that a keyboard interrupt is noticed, and a missed wake-up costs little.
        inbox.wakeup.wait(0.1 if left is None else min(left, 0.1))
        return True

    def _serve(self, errors: FirstError) -> int:
        if self._thread.is_left_behind:
            raise RuntimeError(self._thread.why_ended())  # The parent process serves the reports.
        return self._inbox.serve(errors)

    # Transactions. A call that timed out (its error is `retriable`) continues, and may be made again.

    def init_transactions(self, timeout: float = -1) -> None:
        """Get a producer id, fence the id's previous producer, abort its transaction. Once, before all else.

        `timeout` is in seconds; -1 means twice `transaction.timeout.ms`, and `transaction.timeout.ms` in the calls
        below. After it they raise `KafkaException` with _TIMED_OUT.
        """
        self._accumulator.check_not_closed()
        self._thread.run(self._core.transactor.init(timeout))

    def begin_transaction(self) -> None:
        """Begin a transaction: records produced from now on belong to it."""
        self._accumulator.check_not_closed()
        self._thread.run(self._core.transactor.begin())

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: ConsumerGroupMetadata, timeout: float = -1
    ) -> None:
        """Commit these offsets for the consumer's group when the transaction commits."""
        self._accumulator.check_not_closed()
        offsets = offsets_of(None, positions) or {}
        self._thread.run(self._core.transactor.send_offsets(offsets, group_metadata, timeout))

    def commit_transaction(self, timeout: float = -1) -> None:
        """Flush, serving reports, and commit. If the error says `txn_requires_abort`, abort the transaction."""
        self._accumulator.check_not_closed()
        with FirstError() as errors:
            self._end_transaction("commit_transaction", timeout, errors)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Drop the waiting records (reported as _PURGE_QUEUE) and abort."""
        self._accumulator.check_not_closed()
        with FirstError() as errors:
            self._end_transaction("abort_transaction", timeout, errors)

    def _end_transaction(self, name: str, timeout: float, errors: FirstError) -> None:
        transactor = self._core.transactor
        limit_s = transactor.time_limit_s(timeout)
        deadline = time.monotonic() + limit_s
        self._thread.run(transactor.start_ending(name))
        if self._flush(limit_s, errors):
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
        """Return the current brokers and topics; _TRANSPORT after `timeout` seconds (-1: `request.timeout.ms`)."""
        names = None if topic is None else [topic]
        picture: ClusterMetadata = self._thread.run(self._core.metadata(names, timeout))
        return picture

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the cluster's id; _TIMED_OUT after `timeout` seconds (-1: `request.timeout.ms`)."""
        picture: ClusterMetadata = self._thread.run(self._core.metadata([], timeout, KafkaError._TIMED_OUT))
        return picture.cluster_id

    def close(self, timeout: float = -1) -> bool:
        """Flush, then end; True if every record got its result within `timeout` seconds (-1: no limit).

        Records that are not delivered in time are reported as purged, and an open transaction is aborted. If callbacks
        raise, all is still done, then the first exception is raised. In a forked process it sends nothing, and returns
        False if records waited at the fork: the parent process sends them.
        """
        if not self._thread.alive:
            return not len(self)
        with FirstError() as errors:
            try:
                left = self._finish_records(timeout, errors)
            finally:
                with self._accumulator.lock:
                    self._accumulator.close()
                self._thread.run(self._core.close())
                self._thread.stop()
                self._serve(errors)
        return not left

    def _check_open(self) -> None:
        self._accumulator.check_not_closed()
        if self._accumulator.closed:  # left behind by a fork
            raise failure(KafkaError._STATE, self._accumulator.why_closed)

    def _finish_records(self, timeout: float, errors: FirstError) -> int:
        """Abort an open transaction and flush; returns the number of records left."""
        if self._accumulator.transaction is not None and self._accumulator.transaction.may_abort:
            with contextlib.suppress(KafkaException):
                self._end_transaction("abort_transaction", timeout, errors)
        return self._flush(timeout, errors)
