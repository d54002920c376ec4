"""The asyncio consumer.

Keeps true:  Rebalance callbacks run on the loop and may be coroutines; the rebalance waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from felice.client.aio.callbacks import Callbacks
from felice.client.arguments import takes_lists
from felice.client.consume.arguments import message_limit, whole_number
from felice.client.consume.arrow import ArrowDelivery
from felice.client.consume.core import ConsumerCore
from felice.client.consume.delivery import Delivery
from felice.client.error import KafkaError, KafkaException, error_of
from felice.client.group.requests import offsets_of
from felice.client.model import ClusterMetadata, ConsumerGroupMetadata, Message, TopicPartition, error_message
from felice.client.options import ConsumerSettings
from felice.env import Environment
from felice.env.clock import set_within
from felice.env.forks import Owner

if TYPE_CHECKING:
    import pyarrow as pa

# How long `close` waits for coroutine callbacks, such as those with the results of the last commits.
_CALLBACK_LIMIT_S = 5.0


@takes_lists
class AsyncConsumer:
    """`async with Consumer({...}) as consumer: await consumer.subscribe(["topic"]); async for message in consumer`."""

    def __init__(self, config: Mapping[str, object], *, env: Environment | None = None) -> None:
        self._settings = ConsumerSettings.parse(config, env)
        self._core: ConsumerCore | None = None
        self._owner = Owner()
        self._changed = asyncio.Event()
        self._callbacks = Callbacks(self._on_raised)
        self._delivery = Delivery(check_crcs=self._settings.check_crcs, on_drained=self._on_drained)

    async def start(self) -> None:
        """Bind the consumer to the running loop. `async with` calls it."""
        self.start_now()

    def start_now(self) -> None:
        """Bind the consumer to the running loop, from a plain function that runs on it."""
        if self._core is None:
            self._delivery.listen(self._changed.set)
            self._owner = Owner()
            self._core = ConsumerCore(
                self._settings, self._delivery, self._callbacks.call_and_wait, self._callbacks.call
            )

    async def __aenter__(self) -> AsyncConsumer:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def core(self) -> ConsumerCore:
        """The consumer's core. Raises `RuntimeError` before `start`."""
        if self._core is None:
            raise RuntimeError("the consumer is not started: use `async with`, or await start()")
        return self._core

    def _on_raised(self, error: Exception) -> None:
        """Deliver a callback's exception as an error event of `poll`; the rebalance continues."""
        reason = f"a callback raised {type(error).__name__}: {error}"
        self._delivery.put(error_message(error_of(KafkaError._APPLICATION, reason)))

    def _on_drained(self) -> None:
        if self.core.fetcher.starved:
            self.core.fetcher.wake()

    async def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Callable[[list[TopicPartition]], object] | None = None,
        on_revoke: Callable[[list[TopicPartition]], object] | None = None,
        on_lost: Callable[[list[TopicPartition]], object] | None = None,
    ) -> None:
        """Join the group for these topics; a name that begins with ^ is a regular expression.

        Callbacks get the list of partitions, and may be coroutine functions.
        """
        given = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        await self.core.subscribe(topics, {kind: given[kind] for kind in given if given[kind] is not None})

    async def unsubscribe(self) -> None:
        """Leave the group and end the subscription."""
        await self.core.unsubscribe()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Consume exactly these partitions, each from its offset or from the group's committed offset."""
        self.core.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions without offsets. Passed to `assign`, each begins at its committed offset."""
        return [TopicPartition(*key) for key in self.core.subscription.assigned]

    def seek(self, partition: TopicPartition) -> None:
        """Continue an assigned partition at this offset."""
        self.core.seek(partition)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching these partitions until `resume`."""
        self.core.pause(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Resume paused partitions."""
        self.core.resume(partitions)

    async def poll(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message or error event; None after `timeout_s` without one."""
        messages = await self.consume(1, timeout_s)
        return messages[0] if messages else None

    async def consume(self, limit: int, timeout_s: float | None = None) -> list[Message]:
        """Return up to `limit` messages as soon as there is one; none after `timeout_s`."""
        most = whole_number(limit, "limit")
        return await self._gathered(lambda: self._delivery.gather(most) > 0, timeout_s)

    async def consume_all(self, limit: int, timeout_s: float | None = None) -> list[Message]:
        """Return `limit` messages; fewer after `timeout_s`. If the call is cancelled, the next call returns them."""
        most = message_limit(limit)
        return await self._gathered(lambda: self._delivery.gather(most) >= most, timeout_s)

    async def consume_converted(
        self, limit: int, timeout_s: float | None, convert: Callable[[Message], Awaitable[None]]
    ) -> list[Message]:
        """Like `consume_all`, and convert each message in its place.

        The first failure ends the list: the messages before it are returned, and the next call comes to it again. If
        there are none, the failure is raised, and its message counts as handed out. What remains, and everything if
        the call is cancelled, comes with the next call.
        """
        most, delivery = message_limit(limit), self._delivery
        try:
            await self._until(lambda: delivery.gather(most) >= most, timeout_s)
            while True:
                gathering, messages = delivery.start_taking(), delivery.gathered
                delivery.stop_taking()
                converted, failed = await _convert_each(messages, convert)
                if delivery.start_taking() is gathering:
                    break
                delivery.gather(most)  # Another call came in between and got these messages.
        except BaseException:
            delivery.give_back()
            raise
        if failed is None:
            return delivery.hand_over()
        ready = delivery.hand_over_first(max(1, converted))
        if not converted:
            raise failed
        return ready

    async def _gathered(self, enough: Callable[[], bool], timeout_s: float | None) -> list[Message]:
        try:
            await self._until(enough, timeout_s)
        except BaseException:
            self._delivery.give_back()
            raise
        return self._delivery.hand_over()

    async def consume_arrow(
        self, max_rows: int = 1_000_000, timeout_s: float = 1.0, *, with_headers: bool = False
    ) -> pa.Table:
        """Return a pyarrow table of up to `max_rows` rows; fewer after `timeout_s`."""
        rows = whole_number(max_rows, "max_rows")
        taking = ArrowDelivery(
            self._delivery, with_headers=with_headers, check_crcs=self._settings.check_crcs
        )
        try:
            await self._until(lambda: taking.take(rows, 1 << 30), timeout_s)
            return taking.table()
        except BaseException:
            self._delivery.give_back()
            raise

    async def _until(self, enough: Callable[[], bool], timeout_s: float | None) -> None:
        """Call `enough` after each arrival, until it returns True or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        self.core.last_poll = loop.time()
        self._changed.clear()
        while not enough():
            self.core.last_poll = loop.time()
            left = 1.0 if deadline is None else min(1.0, deadline - loop.time())
            if left <= 0:
                return
            if await set_within(self._changed, left):
                self._changed.clear()

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            message = await self.poll()
            if message is None:
                continue
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            yield message

    async def commit(
        self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None
    ) -> list[TopicPartition]:
        """Commit the message's offset + 1, these offsets, or the changed positions. Returns the committed offsets."""
        return await self.core.commit(offsets_of(message, offsets))

    # Queries raise `KafkaException` after `timeout_s`: mostly with _TIMED_OUT. The default is `request.timeout.ms`.

    async def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float | None = None
    ) -> list[TopicPartition]:
        """Return the group's committed offsets; OFFSET_INVALID for a partition without one."""
        return await self.core.committed(partitions, timeout_s)

    async def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout_s: float | None = None
    ) -> list[TopicPartition]:
        """Return for each partition the first offset at or after the time (in ms) given as its offset."""
        return await self.core.offsets_for_times(partitions, timeout_s)

    async def watermarks(self, partition: TopicPartition, timeout_s: float | None = None) -> tuple[int, int]:
        """Return log start offset and high watermark."""
        return await self.core.watermarks(partition, timeout_s)

    async def metadata(
        self,
        topics: Sequence[str] | None = None,
        timeout_s: float | None = None,
        code: int = KafkaError._TRANSPORT,
    ) -> ClusterMetadata:
        """Return the current brokers and topics (None: all topics). After `timeout_s` it raises `code`."""
        return await self.core.metadata(topics, timeout_s, code)

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """Return the argument for `send_offsets_to_transaction`."""
        return self.core.group_metadata()

    async def close(self) -> None:
        """Commit (if commits are automatic), wait for commits on their way, revoke the partitions, leave the group.

        Does nothing in a process that was forked from the consumer's, which has the same connections.
        """
        if self._core is not None and self._owner.is_here:
            await self._core.close()
            self._core = None
            await self._callbacks.finish(_CALLBACK_LIMIT_S)


async def _convert_each(
    messages: list[Message], convert: Callable[[Message], Awaitable[None]]
) -> tuple[int, Exception | None]:
    """Convert messages until one fails; return how many could be converted, and the failure."""
    for index, message in enumerate(messages):
        try:
            await convert(message)
        except Exception as error:
            return index, error
    return len(messages), None
