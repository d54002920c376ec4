"""Splits long work of handlers into slices, so that other connections are served between them.

`paced`, `each` and `each_partition` split the work of one request; `Wakeups` splits that of many requests which one
event wakes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from felice.env import Clock

T = TypeVar("T")
Row = TypeVar("Row")
Answer = TypeVar("Answer")


class HasPartitions(Protocol):
    """A topic in a request."""

    partitions: list[Any]


TopicT = TypeVar("TopicT", bound=HasPartitions)

_WORK_S = 0.005
MAX_ITEMS_WITHOUT_PAUSE = 1000


async def paced(items: Iterable[T], clock: Clock) -> AsyncIterator[T]:
    """Yields the items. After `_WORK_S` seconds of work on them it lets the event loop serve other connections."""
    began = clock.monotonic()
    for item in items:
        yield item
        if clock.monotonic() - began >= _WORK_S:
            await asyncio.sleep(0)
            began = clock.monotonic()


def each(
    items: Collection[T], row: Callable[[T], Row], answer: Callable[[list[Row]], Answer], clock: Clock
) -> Answer | Awaitable[Answer]:
    """Builds a response with one row per item: at once for few items, with pauses for thousands."""
    if len(items) <= MAX_ITEMS_WITHOUT_PAUSE:
        return answer([row(item) for item in items])
    return _each_paced(items, row, answer, clock)


def each_partition(
    topics: Sequence[TopicT],
    row: Callable[[TopicT, Any], Row],
    answer: Callable[[list[tuple[TopicT, list[Row]]]], Answer],
    clock: Clock,
) -> Answer | Awaitable[Answer]:
    """As `each`, with one row per partition: `answer` gets every topic with the rows of its `partitions`."""

    def regrouped(rows: list[Row]) -> Answer:
        left = iter(rows)
        return answer([(topic, list(islice(left, len(topic.partitions)))) for topic in topics])

    pairs = [(topic, partition) for topic in topics for partition in topic.partitions]
    return each(pairs, lambda pair: row(*pair), regrouped, clock)


async def _each_paced(
    items: Iterable[T], row: Callable[[T], Row], answer: Callable[[list[Row]], Answer], clock: Clock
) -> Answer:
    return answer([row(item) async for item in paced(items, clock)])


class Wakeups:
    """The time that coroutines which are woken together may use in one pass of the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end_s: float | None = None
        self._is_renewed_next = False

    async def turn(self) -> None:
        """Returns at once, or in a later pass of the event loop if others have used the time of this pass."""
        while True:
            now_s = self._clock.monotonic()
            if self._end_s is None:
                self._end_s = now_s + _WORK_S
            if now_s < self._end_s:
                return
            if not self._is_renewed_next:
                self._is_renewed_next = True
                asyncio.get_running_loop().call_soon(self._renew)
            await asyncio.sleep(0)

    def _renew(self) -> None:
        self._end_s, self._is_renewed_next = None, False
