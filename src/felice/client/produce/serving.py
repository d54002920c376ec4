"""Results on their way from the sender to the application's thread, and the calls of its callbacks there. Pure.

Keeps true:  Each record with a callback gets exactly one report, also if callbacks raise: after an exception the
             remaining callbacks are still called, and the caller raises the first exception at its end. Only what is
             no `Exception`, such as a `KeyboardInterrupt`, ends the calls at once; the next call serves the rest.
             Reports are served in the order in which the records got their results. Several threads may serve.
Leaves:      waiting, and raising the exception, to `confluent.producer`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Self, TypeAlias

from felice.client.error import KafkaError
from felice.client.model import Message
from felice.client.net.wakeup import Wakeup
from felice.client.produce.accumulator import Accumulator, HeldRecord
from felice.client.produce.batches import Report
from felice.client.produce.reports import dropped_message, reports_of
from felice.client.produce.sender import Delivered

_Call: TypeAlias = Callable[[], object]

_log = logging.getLogger("felice.client")


class FirstError:
    """Keeps the first exception of several calls; the end of its `with` block raises it. The others are logged.

    If something else ends the block, the first one is logged, too.
    """

    def __init__(self) -> None:
        self._first: BaseException | None = None

    def add(self, error: BaseException) -> None:
        """Keep the exception, or log it if there is one already."""
        if self._first is None:
            self._first = error
        else:
            _log_raised(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, other: BaseException | None, trace: object) -> None:
        error, self._first = self._first, None
        if error is None:
            return
        if other is None:
            raise error
        _log_raised(error)


def _log_raised(error: BaseException) -> None:
    _log.error("a callback raised %s: %s", type(error).__name__, error)


class ServedInbox:
    """Receives results on the loop; `serve` calls the callbacks in the application's thread."""

    def __init__(self, accumulator: Accumulator, only_errors: bool) -> None:
        self.wakeup = Wakeup()
        self._accumulator = accumulator
        self._only_errors = only_errors
        # Finished batches, and calls that are ready.
        self._finished: deque[Delivered | _Call] = deque()
        # The reports of the batches that were taken from `_finished`: before all of the others.
        self._due: deque[tuple[Report, KafkaError | None, Message]] = deque()

    @property
    def empty(self) -> bool:
        """True if no callback waits to be called."""
        return not self._finished and not self._due

    # Called on the loop.

    def on_delivered(self, delivered: Delivered) -> None:
        """Queue the reports of a finished batch."""
        batch = delivered.batch
        if batch.reports and (delivered.error is not None or not self._only_errors):
            self._finished.append(delivered)
        else:
            self._release(delivered)
        self.wakeup.set()

    def on_dropped(self, record: HeldRecord, error: KafkaError) -> None:
        """Queue the report of a record that was never in a batch."""
        if record.report is None:
            self._release_dropped(record)
        else:
            self._finished.append(partial(self._report_dropped, record, error))
        self.wakeup.set()

    def tell(self, callback: Callable[..., object], *arguments: object) -> None:
        """Queue another callback of the application."""
        self._finished.append(partial(callback, *arguments))
        self.wakeup.set()

    # Called in the application's thread.

    def serve(self, errors: FirstError) -> int:
        """Call all callbacks that wait; returns their number. Their exceptions go to `errors`."""
        served, due = 0, self._due
        while True:
            # Another thread may take the last report at any moment.
            try:
                report, error, message = due.popleft()
            except IndexError:
                called = self._take_finished(errors)
                if called is None:
                    return served
                served += called
                continue
            served += 1
            try:
                report(error, message)
            except Exception as raised:  # the callback is the application's
                errors.add(raised)

    def _take_finished(self, errors: FirstError) -> int | None:
        """Make the next batch's reports due, or make the next call. Returns the number of calls, None if none waits."""
        try:
            item = self._finished.popleft()
        except IndexError:
            return None
        if isinstance(item, Delivered):
            self._due.extend(reports_of(item))
            self._release(item)
            return 0
        try:
            item()
        except Exception as raised:  # the callback is the application's
            errors.add(raised)
        return 1

    def _report_dropped(self, record: HeldRecord, error: KafkaError) -> None:
        self._release_dropped(record)
        if record.report is not None:
            record.report(error, dropped_message(record, error))

    def _release_dropped(self, record: HeldRecord) -> None:
        with self._accumulator.lock:
            self._accumulator.release(1, record.size_bytes)

    def _release(self, delivered: Delivered) -> None:
        with self._accumulator.lock:
            self._accumulator.release_batch(delivered.batch, acknowledged=delivered.error is None)
