"""Reads the partitions of one request, then reads changed partitions again until the response has enough bytes.

Keeps true: the rows together have at most `max_bytes` of records, but the first partition with records returns at
            least one whole batch, however small the limits are (KIP-74).
            A request with thousands of partitions, or hundreds of requests that one append wakes, hold the event loop
            for some milliseconds at a time.
Leaves:     reading a partition, and making its row, to the `Reader` of the API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from felice.env import Clock
from felice.protocol.errors import ApiError
from felice.replication.partition import Partition
from felice.server.fetching.fetch_alarm import FetchAlarm
from felice.server.fetching.finding import Named, PartitionFinder
from felice.server.flow.pace import Wakeups, for_each


class Asked(Named, Protocol):
    """The part of a request about one partition, with the bytes that the client takes of it."""

    @property
    def max_bytes(self) -> int:
        """The most bytes of records, unless the first batch is larger."""
        ...


class Row(Protocol):
    """The row of a response about one partition."""

    records: Any
    """A slice of a file, or empty."""


A = TypeVar("A", bound=Asked)
R = TypeVar("R", bound=Row)
A_contra = TypeVar("A_contra", bound=Asked, contravariant=True)


class Reader(Protocol[A_contra, R]):
    """Makes the rows of one response."""

    def row(self, asked: A_contra, partition: Partition, max_bytes: int, min_one: bool) -> R:
        """Reads a partition. Raises `ApiError`. `min_one`: at least one whole batch, even if it is larger."""
        ...

    def refusal(self, asked: A_contra, error: ApiError) -> R:
        """The row of a partition that was not read."""
        ...

    def demands_answer(self, asked: A_contra, row: R) -> bool:
        """Whether the response must be sent because of this row, however few bytes it has."""
        ...


class PartitionReads(Generic[A, R]):
    """The partitions of one request, as they were read last."""

    __slots__ = (
        "_asked",
        "_clock",
        "_finder",
        "_is_over",
        "_is_urgent",
        "_max_bytes",
        "_min_bytes",
        "_reader",
        "_size_bytes",
        "read_at",
        "rows",
    )

    def __init__(
        self,
        asked: Sequence[A],
        finder: PartitionFinder,
        reader: Reader[A, R],
        is_over: Callable[[], bool],
        clock: Clock,
        *,
        min_bytes: int,
        max_bytes: int,
    ) -> None:
        """`is_over` tells whether the response must be sent for a reason that is not in the rows."""
        # In the order of the response.
        self.rows: dict[A, R] = {}
        # Each partition that was found, and how often it had changed when it was read.
        self.read_at: dict[A, tuple[Partition, int]] = {}
        self._asked = asked
        self._finder = finder
        self._reader = reader
        self._is_over = is_over
        self._clock = clock
        self._min_bytes, self._max_bytes = min_bytes, max_bytes
        self._size_bytes = 0
        self._is_urgent = False

    async def read_all(self) -> None:
        """Reads every partition: at once for few, with pauses for thousands."""
        await for_each(self._asked, self._read, self._clock)

    def is_enough(self) -> bool:
        """Whether the response must be sent now."""
        return self._is_urgent or self._size_bytes >= self._min_bytes or self._is_over()

    async def wait(self, alarm: FetchAlarm[A], wakeups: Wakeups, max_wait_ms: int) -> None:
        """Reads again each partition that changes, until there are enough bytes or `max_wait_ms` are over.

        Call it after `read_all`. The caller may wake the alarm, too, for example when a session gets a partition.
        """
        deadline = asyncio.get_running_loop().time() + max_wait_ms / 1000

        def watch(asked: A) -> None:
            partition, change_count = self.read_at[asked]
            alarm.watch(asked, partition, change_count)

        try:
            # A partition that was not found has an error, so the request would not wait.
            await for_each(list(self.read_at), watch, self._clock)
            await alarm.follow(self._read, self.is_enough, deadline, wakeups.turn, self._clock)
        finally:
            alarm.close()

    def _read(self, asked: A) -> None:
        before = self.rows.get(asked)
        if before is not None and before.records:
            self._size_bytes -= before.records.size_bytes
        try:
            partition = self._finder.find(asked)
            self.read_at[asked] = partition, partition.change_count
            max_bytes = max(0, min(asked.max_bytes, self._max_bytes - self._size_bytes))
            row = self._reader.row(asked, partition, max_bytes, self._size_bytes == 0)
        except ApiError as error:
            row = self._reader.refusal(asked, error)
        self.rows[asked] = row
        if row.records:
            self._size_bytes += row.records.size_bytes
        self._is_urgent = self._is_urgent or self._reader.demands_answer(asked, row)
