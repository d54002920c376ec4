"""Long work of handlers in slices, so that other connections are served between them. Short requests: see `turns`.

Keeps true:  a request with thousands of elements, or hundreds of requests that one event wakes, hold the event loop for
             some milliseconds at a time.
             At most one large request is decoded or handled at a time. The next one waits as long as the previous one
             took, so large requests take at most half of the event loop's time. A connection's next request waits
             until its large request is answered.
How:         `protocol.connection` returns a request of more than `SMALL_REQUEST_ELEMENTS` before its body is decoded,
             and refuses one of more than `felice.request.max.elements`. The session takes a turn of `LargeRequests`,
             decodes the request and calls its handler. The time that the handler awaits is not part of the turn.
             A handler goes through its items with `paced`, `for_each`, `each`, `each_partition` or `each_answer`; if
             the request is small and its answer is large, with `large_answers.each_alone`. A coroutine that waited for
             an event which wakes many takes a turn of `Wakeups`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from felice.env import Clock
from felice.env.begun import begin, ended

T = TypeVar("T")
Row = TypeVar("Row")


class HasPartitions(Protocol):
    """A topic in a request."""

    partitions: list[Any]


class Holdable(Protocol):
    """A connection whose further requests can be delayed."""

    def hold(self) -> None:
        """Delays further requests of this connection until `release`."""

    def release(self) -> None:
        """Ends one `hold`."""


TopicT = TypeVar("TopicT", bound=HasPartitions)

_WORK_S = 0.005
MAX_ITEMS_WITHOUT_PAUSE = 1000
_LOOK_AGAIN_S = 0.02


class _UnderWay:
    """How many loops of `paced` have begun on one event loop."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


# Brokers in one process may have an event loop each, or share one.
_under_way: WeakKeyDictionary[asyncio.AbstractEventLoop, _UnderWay] = WeakKeyDictionary()


async def paced(items: Iterable[T], clock: Clock) -> AsyncIterator[T]:
    """Yields the items, with pauses in which the event loop serves other connections.

    All loops under way share `_WORK_S` seconds of each pass of the event loop.
    """
    # Not looked up again in `finally`: if this generator is garbage-collected together with its event loop, the
    # dictionary has no entry for that event loop any more.
    under_way = _under_way.setdefault(asyncio.get_running_loop(), _UnderWay())
    under_way.count += 1
    try:
        began = clock.monotonic()
        for item in items:
            yield item
            if clock.monotonic() - began >= _WORK_S / under_way.count:
                await asyncio.sleep(0)
                began = clock.monotonic()
    finally:
        under_way.count -= 1


@contextmanager
def held(connection: Holdable) -> Iterator[None]:
    """Delays further requests of the connection while the block runs."""
    connection.hold()
    try:
        yield
    finally:
        connection.release()


async def for_each(items: Collection[T], step: Callable[[T], None], clock: Clock) -> None:
    """Calls `step` with each item: at once for few items, with pauses for thousands."""
    if len(items) <= MAX_ITEMS_WITHOUT_PAUSE:
        for item in items:
            step(item)
    else:
        async for item in paced(items, clock):
            step(item)


async def each(items: Collection[T], row: Callable[[T], Row], clock: Clock) -> list[Row]:
    """One row for each item: at once for few items, with pauses for thousands."""
    if len(items) <= MAX_ITEMS_WITHOUT_PAUSE:
        return [row(item) for item in items]
    return [row(item) async for item in paced(items, clock)]


async def each_partition(
    topics: Sequence[TopicT], row: Callable[[TopicT, Any], Row], clock: Clock
) -> list[tuple[TopicT, list[Row]]]:
    """As `each`, with one row for each partition: every topic with the rows of its `partitions`."""
    pairs = [(topic, partition) for topic in topics for partition in topic.partitions]
    rows = iter(await each(pairs, lambda pair: row(*pair), clock))
    return [(topic, list(islice(rows, len(topic.partitions)))) for topic in topics]


async def each_answer(
    items: Collection[T], call: Callable[[T], Coroutine[Any, Any, Row]], clock: Clock
) -> list[Row]:
    """The answer of a call for each item. All calls begin, as in `each`, before the first answer is awaited."""
    begun = await each(items, lambda item: begin(call(item)), clock)
    return [await ended(one) for one in begun]


class Wakeups:
    """Limits the time that coroutines which one event wakes together may use in one pass of the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When the time of this pass ends, on the monotonic clock; None until the first coroutine of the pass calls.
        self._end_s: float | None = None

    async def turn(self) -> None:
        """Returns at once, or in a later pass of the event loop if others have used the time of this pass."""
        while True:
            now_s = self._clock.monotonic()
            if self._end_s is None:
                self._end_s = now_s + _WORK_S
                # Each pass has its own time: a coroutine that is woken alone, seconds later, must not wait.
                asyncio.get_running_loop().call_soon(self._renew)
            if now_s < self._end_s:
                return
            await asyncio.sleep(0)

    def _renew(self) -> None:
        self._end_s = None


class LargeRequests:
    """The queue of a broker's large requests, in order of arrival."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._free_at = 0.0

    @asynccontextmanager
    async def turn(self, is_full: Callable[[], bool] = lambda: False) -> AsyncIterator[None]:
        """Waits for the caller's turn, and until `is_full` is false. The time spent in the context counts as work."""
        async with self._one_at_a_time:
            await asyncio.sleep(max(0.0, self._free_at - self._clock.monotonic()))
            while is_full():
                await asyncio.sleep(_LOOK_AGAIN_S)
            began = self._clock.monotonic()
            try:
                yield
            finally:
                now = self._clock.monotonic()
                self._free_at = now + (now - began)
