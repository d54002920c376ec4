"""The blocking `Consumer`, with confluent_kafka's names.

Keeps true:  Callbacks (rebalance, commit, error) run in the thread that calls `poll`, `consume` or `close`, never in
             another. For automatic commits, a delivered message counts as processed.
How:         An event loop on its own thread fetches, and keeps the consumer in its group. `poll` takes fetched data and
             decodes it in the caller's thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Never, ParamSpec, TypeVar

from felice.client.arguments import expect, takes_lists
from felice.client.consume.arguments import message_limit, whole_number
from felice.client.consume.arrow import ArrowDelivery
from felice.client.consume.core import ConsumerCore
from felice.client.consume.delivery import Delivery
from felice.client.consume.fetcher import Fetcher
from felice.client.error import KafkaError, failure, kafka_exception
from felice.client.group.requests import offsets_of, stored_offsets
from felice.client.model import (
    ClusterMetadata,
    ConsumerGroupMetadata,
    Message,
    TopicPartition,
)
from felice.client.net.loop_thread import LoopThread
from felice.client.options import ConsumerSettings

if TYPE_CHECKING:
    import pyarrow as pa

P = ParamSpec("P")

T = TypeVar("T")

RebalanceCallback = Callable[["Consumer", list[TopicPartition]], object]

_TICK_S = 0.1


class _Notices:
    """Callbacks that wait until the application's thread runs them."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self.waiting: deque[Callable[[], object]] = deque()
        self.delivery: Delivery | None = None

    def add(self, notice: Callable[[], object]) -> None:
        self.waiting.append(notice)
        if self.delivery is not None:
            self.delivery.notify()

    def tell(self, callback: Callable[..., object], *arguments: object) -> None:
        self.add(lambda: callback(*arguments))

    async def ask(
        self, callback: Callable[[list[TopicPartition]], object], partitions: list[TopicPartition]
    ) -> None:
        """Let the application's thread run a callback, and wait until it has returned.

        That thread then waits until the effects of the callback, such as an assignment, are in force.
        """
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        async def finish() -> None:
            if not done.done():
                done.set_result(None)
            # Let the task that awaited `done` run first.
            await asyncio.sleep(0)

        def notice() -> None:
            try:
                callback(partitions)
            finally:
                self._thread.run(finish())

        self.add(notice)
        await done


def _wake_if_starved(thread: LoopThread, fetcher: Fetcher) -> Callable[[], None]:
    def drained() -> None:
        if fetcher.starved:
            thread.post(fetcher.wake)

    return drained


@takes_lists
class Consumer:
    """`Consumer({"bootstrap.servers": "localhost:9092", "group.id": "g"})`. Close it after use."""

    def __init__(self, config: Mapping[str, object] | None = None, /, **kwargs: object) -> None:
        settings = ConsumerSettings.parse({**(config or {}), **kwargs})
        self._settings = settings
        self._thread = LoopThread("consumer")
        self._notices = _Notices(self._thread)
        self._delivery = Delivery(check_crcs=settings.check_crcs)
        self._notices.delivery = self._delivery
        self._core: ConsumerCore = self._thread.run(
            ConsumerCore.start(settings, self._delivery, self._notices.ask, self._notices.tell)
        )
        self._thread.at_end = self._core.abandon
        # Holds no reference to this object: a consumer without references must be collected.
        self._delivery.on_drained = _wake_if_starved(self._thread, self._core.fetcher)
        # For `poll`, which runs for each message.
        self._waiting = self._notices.waiting
        self._closed = False

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_thread") and self._thread.alive:
            self._thread.post(self._thread.loop.stop)

    def _run(self, work: Coroutine[object, Never, T]) -> T:
        """Run on the loop and wait; meanwhile, run the application's callbacks in this thread.

        The core ends each coroutine at its time limit.
        """
        self._check_open(work)
        return self._pump(self._thread.submit(work))

    def _check_open(self, work: Coroutine[object, Never, object] | None = None) -> None:
        if self._closed:
            if work is not None:
                work.close()
            raise RuntimeError("Consumer closed")
        if not self._thread.alive:
            if work is not None:
                work.close()
            raise RuntimeError(self._thread.why_ended())

    def _pump(self, future: concurrent.futures.Future[T]) -> T:
        while True:
            try:
                return future.result(0 if self._notices.waiting else _TICK_S)
            except concurrent.futures.TimeoutError:
                if future.done():
                    raise failure(KafkaError._TIMED_OUT) from None
            except OSError as error:
                raise kafka_exception(error) from error
            self._serve()

    def _serve(self) -> None:
        waiting = self._notices.waiting
        while waiting:
            waiting.popleft()()

    def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function on the loop's thread and wait for its result."""

        async def call() -> T:
            return function(*args, **kwargs)

        work = call()
        self._check_open(work)
        return self._thread.run(work)

    # Consuming

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message or error event; None if there is none within `timeout` seconds (-1: no limit)."""
        self._core.last_poll = time.monotonic()
        if self._waiting:
            self._serve()
        if self._closed or self._thread.ended:
            self._check_open()
        message = self._delivery.take()
        if message is not None or timeout == 0:
            return message
        return self._wait_for_message(None if timeout < 0 else time.monotonic() + timeout)

    def _wait_for_message(self, deadline: float | None) -> Message | None:
        while self._wait(deadline):
            self._serve()
            message = self._delivery.take()
            if message is not None:
                return message
        return None

    def _wait(self, deadline: float | None) -> bool:
        """Wait until something may be in the queue; False after the deadline."""
        self._check_open()
        delivery = self._delivery
        self._core.last_poll = time.monotonic()
        if not delivery.empty or self._notices.waiting:
            return True
        left = _TICK_S if deadline is None else min(_TICK_S, deadline - time.monotonic())
        if left <= 0:
            return False
        delivery.wakeup.wait(left)
        return True

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages`; fewer after `timeout`."""
        limit = message_limit(num_messages)
        if self._closed or self._thread.ended:
            self._check_open()
        self._core.last_poll = now = time.monotonic()
        deadline = None if timeout < 0 else now + timeout
        if self._waiting:
            self._serve()
        delivery = self._delivery
        try:
            messages = delivery.take_at_once(limit)
            if messages is not None:
                return messages
            while delivery.gather(limit) < limit and self._wait(deadline):
                self._serve()
        except BaseException:
            delivery.give_back()
            raise
        return delivery.hand_over()

    def consume_arrow(
        self,
        max_rows: int = 1_000_000,
        timeout: float = 1.0,
        *,
        max_bytes: int = 1 << 30,
        with_headers: bool = False,
    ) -> pa.Table:
        """Return a pyarrow table of up to `max_rows` rows or about `max_bytes`; fewer after `timeout`.

        Columns: key, value, topic, partition, offset, timestamp, timestampType, and headers if requested, which is null
        for a record without headers. Raises
        `KafkaException` for an error event or an unreadable batch, after the rows before it were returned.
        """
        rows, size_bytes = whole_number(max_rows, "max_rows"), whole_number(max_bytes, "max_bytes")
        self._check_open()
        taking = ArrowDelivery(
            self._delivery, with_headers=with_headers, check_crcs=self._settings.check_crcs
        )
        deadline = None if timeout < 0 else time.monotonic() + timeout
        self._core.last_poll = time.monotonic()
        self._serve()
        try:
            while not taking.take(rows, size_bytes) and self._wait(deadline):
                self._serve()
            return taking.table()
        except BaseException:
            self._delivery.give_back()
            raise

    # Subscription and assignment

    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group for these topics; a name that begins with ^ is a regular expression.

        Each callback gets this consumer and a list of `TopicPartition`. Raises `KafkaException` without a topic,
        without `group.id`, or for a pattern that is not a regular expression.
        """
        given = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        for kind, callback in given.items():
            if callback is not None and not callable(callback):
                raise TypeError(f"{kind}: expected a callable, not {type(callback).__name__}")
        callbacks = {kind: self._bound(callback) for kind, callback in given.items() if callback is not None}
        self._run(self._core.subscribe(topics, callbacks))

    def _bound(self, callback: RebalanceCallback) -> Callable[[list[TopicPartition]], object]:
        return lambda partitions: callback(self, partitions)

    def unsubscribe(self) -> None:
        """Leave the group and end the subscription; nothing is assigned afterwards."""
        self._run(self._core.unsubscribe())

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Consume exactly these partitions, each from its offset or from the group's committed offset."""
        self._call(self._core.assign, list(partitions))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment. Raises `KafkaException` with _CONFLICT for one that is assigned."""
        self._call(self._core.incremental_assign, list(partitions))

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment. Raises `KafkaException` for one that is not assigned."""
        self._call(self._core.incremental_unassign, list(partitions))

    def unassign(self) -> None:
        """Drop the assignment. With automatic commits, what was handed out is committed."""
        self._call(self._core.assign, [])

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        self._check_open()
        return self._core.assignment()

    def seek(self, partition: TopicPartition) -> None:
        """Continue a partition at this offset (or a logical one such as OFFSET_END). Raises if it is not assigned."""
        self._call(self._core.seek, partition)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching these partitions until `resume`. Ignores partitions that are not assigned."""
        self._call(self._core.pause, list(partitions))

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume paused partitions."""
        self._call(self._core.resume, list(partitions))

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last delivered message; OFFSET_INVALID before the first."""
        self._check_open()
        return self._core.position(partitions)

    # Commits

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the message's offset + 1, these offsets, or the stored offsets.

        An asynchronous commit returns None at once, and `on_commit` gets its result; `close` waits for it. Otherwise
        the call returns the partitions, with an error per partition, and raises `KafkaException` if none could be
        committed, with _TIMED_OUT after `request.timeout.ms`; `on_commit` is not called.
        """
        chosen = offsets_of(message, offsets)
        if not asynchronous:
            rows: list[TopicPartition] = self._run(self._core.commit(chosen))
            return rows
        self._check_open()
        self._core.check_group("committing")
        self._thread.post(self._core.commit_later, chosen)
        return None

    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store offsets for the next commit without offsets; needs `enable.auto.offset.store` off.

        Raises `ValueError` without arguments and with both.
        """
        self._check_open()
        self._core.store_offsets(stored_offsets(message, offsets))

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the group's committed offsets (OFFSET_INVALID if there is none), with an error per partition.

        Raises `KafkaException` with _TIMED_OUT after `timeout` seconds; here and below, -1 means `request.timeout.ms`.
        """
        rows: list[TopicPartition] = self._run(self._core.committed(partitions, timeout))
        return rows

    # Queries

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return log start offset and high watermark.

        After `timeout` it raises `KafkaException` with _TIMED_OUT, before any broker answered with _ALL_BROKERS_DOWN.
        """
        self._check_open()
        expect("partition", partition, TopicPartition)
        if cached:
            return self._core.cached_watermarks(partition)
        ends: tuple[int, int] = self._run(self._core.watermarks(partition, timeout))
        return ends

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return for each partition the first offset at or after the time (in ms) given as its offset.

        OFFSET_END means that no record is that recent. A partition that cannot be looked up carries an error. After
        `timeout` it raises as `get_watermark_offsets` does, unless other partitions were looked up.
        """
        rows: list[TopicPartition] = self._run(self._core.offsets_for_times(partitions, timeout))
        return rows

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the current brokers and topics (with `topic`: only that one); _TRANSPORT after `timeout`."""
        expect("topic", topic, str, NoneType)
        names = None if topic is None else [topic]
        picture: ClusterMetadata = self._run(self._core.metadata(names, timeout))
        return picture

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the cluster's id; _TIMED_OUT after `timeout`."""
        picture: ClusterMetadata = self._run(self._core.metadata([], timeout, KafkaError._TIMED_OUT))
        return picture.cluster_id

    def memberid(self) -> str | None:
        """Return the member id from the group coordinator; None outside a group."""
        self._check_open()
        return self._core.member_id or None

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """Return the argument for `Producer.send_offsets_to_transaction`."""
        self._check_open()
        return self._core.group_metadata()

    def close(self) -> None:
        """Commit (if commits are automatic), wait for commits on their way, revoke the partitions, leave the group.

        It waits at most 5 seconds for each of the coordinator's answers, beside the application's callbacks.
        """
        if self._closed or not self._thread.alive:
            return
        future, raised = self._thread.submit(self._core.close()), None
        try:
            while not future.done() or self._waiting:
                try:
                    self._serve()
                    self._pump(future)
                except Exception as error:
                    # A callback raised: leave the group anyway, and raise its exception afterwards.
                    raised = raised or error
        finally:
            self._closed = True
            self._thread.stop()
        if raised is not None:
            raise raised
