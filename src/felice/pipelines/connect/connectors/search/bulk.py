"""Bulk requests: threads that send what waits, several requests at a time.

Keeps true:  an operation counts as done only when the server took it, when it has a newer version, or when its refusal
             is handed to the task. `flush` returns when that holds for all that was added.
             A part of a request that a busy server did not take is sent again alone.
             At most `max.buffered.records` operations wait: `add` holds the task back.
Threads:     `add`, `flush` and `refusals` are the task's. The threads share only what `_changed` guards.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from felice.pipelines.connect.connectors.http_attempts import first_words
from felice.pipelines.connect.connectors.search.documents import Operation
from felice.pipelines.connect.connectors.search.server import Refused, Server
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import SinkRecord

_CONFLICT, _TOO_LARGE, _NOT_FOUND = 409, 413, 404
_BUSY = frozenset((429, 502, 503, 504))
_MALFORMED = (
    "mapper_parsing_exception",
    "document_parsing_exception",
    "illegal_argument_exception",
    "action_request_validation_exception",
    "strict_dynamic_mapping_exception",
)

_STOP_S = 1.0

Refusal = tuple[SinkRecord, str, bool]
"""A record, why the server refused it, and whether its document is at fault."""


class Bulk:
    """Sends operations."""

    def __init__(self, server: Server, options: Mapping[str, Any], *, keeps_order: bool) -> None:
        self._server = server
        self._records: int = options["batch.size"]
        self._bytes: int = options["bulk.size.bytes"]
        self._linger_s: float = options["linger.ms"] / 1000
        self._most_waiting: int = options["max.buffered.records"]
        self._timeout_s: float = options["flush.timeout.ms"] / 1000
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Operation, float]] = deque()
        """Operations with the times at which they were added."""
        self._waiting_bytes = 0
        self._unfinished = 0
        self._is_flushing = False
        self._is_closed = False
        self._error: ConnectError | None = None
        self._refusals: list[Refusal] = []
        count = 1 if keeps_order else options["max.in.flight.requests"]
        self._threads = [
            threading.Thread(target=self._run, name=f"bulk-{one}", daemon=True) for one in range(count)
        ]
        for one in self._threads:
            one.start()

    def add(self, operations: Sequence[Operation]) -> None:
        """Takes operations, when there is room. Raises the error at which a request failed for good."""
        for one in operations:
            with self._changed:
                while self._unfinished >= self._most_waiting and self._error is None:
                    self._changed.wait()
                self._raise_error()
                self._waiting.append((one, time.monotonic()))
                self._waiting_bytes += len(one.data)
                self._unfinished += 1
                if self._is_full or len(self._waiting) == 1:
                    self._changed.notify()

    def flush(self) -> None:
        """Returns when all that was added is done. Raises `ConnectError`, also after `flush.timeout.ms`."""
        with self._changed:
            self._is_flushing = True
            self._changed.notify_all()
            try:
                ended = self._changed.wait_for(
                    lambda: not self._unfinished or self._error is not None, self._timeout_s
                )
            finally:
                self._is_flushing = False
            self._raise_error()
            if not ended:
                raise ConnectError(
                    f"{self._unfinished} records were not written in {self._timeout_s:g} s (flush.timeout.ms)"
                )

    def refusals(self) -> list[Refusal]:
        """What the server refused since the last call."""
        with self._changed:
            found, self._refusals = self._refusals, []
        return found

    def close(self) -> None:
        """Ends the threads. What waits is not sent; an answer that is due is not awaited for long."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for one in self._threads:
            one.join(_STOP_S)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    # The threads

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= self._records or 0 <= self._bytes <= self._waiting_bytes

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            error: ConnectError | None = None
            refusals: list[Refusal] = []
            try:
                refusals = self._send(batch)
            except ConnectError as failure:
                error = failure
            except Exception as failure:
                error = ConnectError(f"a bulk request failed: {failure!r}")
            with self._changed:
                self._error = self._error or error
                self._refusals += refusals
                self._unfinished -= len(batch)
                self._changed.notify_all()

    def _take(self) -> list[Operation] | None:
        """The operations of the next request, when it is full or old enough; None at the end."""
        with self._changed:
            while True:
                if self._is_closed or self._error is not None:
                    return None
                if self._waiting:
                    rest_s = self._waiting[0][1] + self._linger_s - time.monotonic()
                    if self._is_full or self._is_flushing or rest_s <= 0:
                        return self._batch()
                    self._changed.wait(rest_s)
                else:
                    self._changed.wait()

    def _batch(self) -> list[Operation]:
        batch: list[Operation] = []
        size = 0
        while self._waiting and len(batch) < self._records:
            length = len(self._waiting[0][0].data)
            if batch and 0 <= self._bytes < size + length:
                break
            batch.append(self._waiting.popleft()[0])
            size += length
        self._waiting_bytes -= size
        if self._waiting:
            self._changed.notify_all()  # one might wake only the task, which waits for the end of a flush
        return batch

    def _send(self, batch: list[Operation]) -> list[Refusal]:
        refusals: list[Refusal] = []
        failures = 0
        while batch:
            try:
                answer = self._server.send(
                    "POST", "/_bulk", b"".join(one.data for one in batch), "application/x-ndjson"
                )
            except Refused as error:
                if error.status != _TOO_LARGE:
                    raise
                if len(batch) == 1:
                    return [*refusals, (batch[0].record, str(error), True)]
                half = len(batch) // 2
                return refusals + self._send(batch[:half]) + self._send(batch[half:])
            batch, why = _outcome(batch, answer, refusals)
            if batch:
                self._server.wait(failures, f"the server takes {len(batch)} records not yet: {why}")
                failures += 1
        return refusals


def _outcome(batch: Sequence[Operation], answer: Any, refusals: list[Refusal]) -> tuple[list[Operation], str]:
    """The operations to send again, and why. Adds to `refusals`. Raises `ConnectError` for another kind of answer."""
    again: list[Operation] = []
    why = ""
    try:
        if not answer["errors"]:
            return [], ""
        items = [next(iter(one.values())) for one in answer["items"]]
        for operation, item in zip(batch, items, strict=True):
            status = item["status"]
            if status < 300 or (status == _NOT_FOUND and "error" not in item):
                continue
            error = item.get("error") or {}
            text = first_words(f"{error.get('type')}: {error.get('reason')}")
            cause = error.get("caused_by")
            if isinstance(cause, dict):
                text = first_words(f"{text}: {cause.get('reason')}")
            if status == _CONFLICT and operation.ignores_conflict:
                continue
            if status in _BUSY:
                again.append(operation)
                why = text
            else:
                refusals.append((operation.record, text, any(one in text for one in _MALFORMED)))
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise ConnectError(f"the server answers a bulk request in an unknown form: {error!r}") from None
    return again, why
