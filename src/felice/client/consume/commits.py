"""The commits of one consumer: they reach the coordinator in the order in which they were begun, one after the other.

Keeps true:  No commit overtakes an earlier one, so an older offset never replaces a newer one. Commits that nobody
             awaits and that wait for their turn are sent as one request: an application may begin commits faster than
             the coordinator answers. Each of them gets its own result.
Leaves:      what to commit, and the request, to `core`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from felice.client.error import KafkaError, KafkaException, error_of
from felice.client.group.requests import CommittedOffset
from felice.client.model import Partition, TopicPartition
from felice.client.net.limits import limited, without_limit

Offsets: TypeAlias = Mapping[Partition, CommittedOffset]
Report: TypeAlias = Callable[[KafkaError | None, list[TopicPartition]], object]

_LATE = "commit(): no answer"


class _Turn:
    """A place in the order of the commits. Entering it waits until the commits before are over."""

    def __init__(self, before: asyncio.Future[None] | None) -> None:
        self._before = before
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> None:
        if self._before is not None:
            await asyncio.wait([self._before])

    async def __aexit__(self, *exc: object) -> None:
        self.end()

    def end(self, *_: object) -> None:
        """Let the next commit begin, as soon as those before this one are over."""
        if self.over.done():
            return
        if self._before is None or self._before.done():
            self._before = None
            self.over.set_result(None)
        else:
            self._before.add_done_callback(self.end)


class _Group:
    """Commits that will be one request. `each` has their offsets, if somebody wants their results."""

    def __init__(self) -> None:
        self.offsets: dict[Partition, CommittedOffset] = {}
        self.each: list[Offsets] = []


class Commits:
    """Sends commits with `send`, which returns the error code of each partition."""

    def __init__(
        self,
        send: Callable[[Offsets], Awaitable[Mapping[Partition, int]]],
        limit_s: float,
        report: Report | None,
    ) -> None:
        self._send = send
        self._limit_s = limit_s
        self._report = report
        self._last: asyncio.Future[None] | None = None
        self._waiting: _Group | None = None
        # In the order in which they were begun.
        self._tasks: dict[asyncio.Task[None], None] = {}

    def _next_turn(self) -> _Turn:
        turn = _Turn(self._last)
        self._last = turn.over
        return turn

    async def run(self, offsets: Offsets, limit_s: float) -> list[TopicPartition]:
        """Commit these offsets; returns each partition with its error. Raises after `limit_s`."""
        self._waiting = None  # later commits come after this one
        turn = self._next_turn()
        try:
            async with limited(limit_s, _LATE), turn:
                return _rows(offsets, await self._send(offsets))
        finally:
            turn.end()

    def begin(self, offsets: Offsets) -> None:
        """Begin to commit these offsets; `report` gets the result."""
        group = self._waiting
        if group is None:
            group = self._waiting = _Group()
            turn = self._next_turn()
            work = self._run_group(group, turn)
            task = asyncio.get_running_loop().create_task(work, context=without_limit())
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))
            task.add_done_callback(turn.end)
        group.offsets.update(offsets)
        if self._report is not None:
            group.each.append(offsets)

    async def _run_group(self, group: _Group, turn: _Turn) -> None:
        codes: Mapping[Partition, int] = {}
        error: KafkaError | None = None
        try:
            async with turn:
                if self._waiting is group:
                    self._waiting = None
                async with limited(self._limit_s, _LATE):
                    codes = await self._send(group.offsets)
        except KafkaException as raised:
            error = raised.error
        except asyncio.CancelledError:
            error = error_of(KafkaError._TIMED_OUT, "the consumer gives up its partitions")
            raise
        finally:
            if self._waiting is group:
                self._waiting = None
            self._tell(group, codes, error)

    def _tell(self, group: _Group, codes: Mapping[Partition, int], error: KafkaError | None) -> None:
        if self._report is None:
            return
        for offsets in group.each:
            rows = [TopicPartition(*key, row.offset) for key, row in offsets.items()]
            if error is None:
                rows = _rows(offsets, codes)
            self._report(error or failure_of_all(rows), rows)

    async def wait(self) -> None:
        """Wait for the commits that were begun, each of which has a time limit."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def finish(self, limit_s: float) -> None:
        """Wait a short time for the commits that were begun, and cancel the others: they may be wrong later."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit_s)
            left = list(self._tasks)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)


def _rows(offsets: Offsets, codes: Mapping[Partition, int]) -> list[TopicPartition]:
    """The partitions that the coordinator named, each with its error."""
    return [row_of(key, row, codes[key]) for key, row in offsets.items() if key in codes]


def row_of(key: Partition, row: CommittedOffset, code: int) -> TopicPartition:
    """Return a partition with its offset, the offset's epoch and metadata, and the error of this code."""
    error = error_of(code) if code else None
    return TopicPartition(*key, row.offset, row.metadata or None, row.leader_epoch, error)


def failure_of_all(rows: list[TopicPartition]) -> KafkaError | None:
    """Return the first error if no partition was committed."""
    errors = [row.error for row in rows if row.error is not None]
    return errors[0] if errors and len(errors) == len(rows) else None
