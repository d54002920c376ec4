"""A compacted topic with one partition as a mapping: reads it to its end, follows it, and writes to it with a fence.

Keeps true:  `on_record` gets every committed record once, in offset order, and `mapping` has the newest value of each
             key among the records that were read.
             `write` writes all records or none. With a fence, an older writer cannot add a record after `take_over` of
             a newer one returned, however long it was paused and whichever responses it lost. `wait_end` after
             `take_over` therefore reads everything that older writers wrote.
             A failure of the following (see `FollowingStopped`) is raised by every later call.
Leaves:      fetching to `follower`, transactions to `writer`, the topic's creation and checks to `preparation`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Generic, Never, TypeVar, cast

from felice.client.compacted.errors import OutcomeUnknown
from felice.client.compacted.follower import READ_COMMITTED, READ_UNCOMMITTED, Follower, OnRecord
from felice.client.compacted.identity import TopicIdentity
from felice.client.compacted.preparation import Preparation, TopicPlan, not_ready
from felice.client.compacted.records import BYTES, CompactedRecord, Conversion, K, V, encode
from felice.client.compacted.writer import UNKNOWN_OFFSET, FencedWriter, IdempotentWriter
from felice.client.error import KafkaError, KafkaException, failure
from felice.client.net.topology import Topology
from felice.client.options import AdminSettings, ConsumerSettings, ProducerSettings
from felice.env import Environment
from felice.records.compression import Codec

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 60.0
_TELL_AFTER_S = 5.0
"""A start that takes longer says in the log what it waits for."""
_CONNECTING = {"allow.auto.create.topics": False}
_READING: dict[str, object] = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "group.id": None,
    "enable.auto.commit": False,
    "check.crcs": True,
}

_WRITING: dict[str, object] = {"linger.ms": 0, "enable.idempotence": True, "transactional.id": None}


_DECIDED = {"message.timeout.ms", "delivery.timeout.ms", *_CONNECTING, *_READING, *_WRITING}


def _check(config: Mapping[str, object]) -> None:
    """Refuse the keys that a compacted topic decides itself, or takes as arguments."""
    for name in config:
        if name in _DECIDED:
            raise failure(
                KafkaError._INVALID_ARG, f'"{name}" is not for the configuration of a compacted topic'
            )


def _nothing(record: CompactedRecord) -> None:
    """What `on_record` is by default."""


class CompactedTopic(Generic[K, V]):
    """`topic = CompactedTopic(config, "name", fence="id"); await topic.start(); await topic.take_over()`.

    `config` has the settings of a client, also those of producers and consumers, except for the few that are decided
    here (`_DECIDED`).
    `fence` is a transactional id: all writers of the topic must have the same one. Without it, writers do not fence
    each other. `write_timeout_s` limits each write. `on_record` runs on the event loop; if it
    is a coroutine, it is awaited before the next record. Without `keep`, `mapping`
    stays empty. `replication_factor` and `topic_configs` apply to a topic that is created.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        name: str,
        *,
        fence: str | None = None,
        on_record: OnRecord = _nothing,
        conversion: Conversion[K, V] | None = None,
        keep: bool = True,
        replication_factor: int = 3,
        topic_configs: Mapping[str, str] | None = None,
        write_timeout_s: float = 10.0,
        env: Environment | None = None,
    ) -> None:
        plan = TopicPlan(name, replication_factor, topic_configs or {})
        plan.check()
        _check(config)
        self.name = name
        self.mapping: dict[K, V] = {}
        """The newest value of each key. Change it only with `write`."""
        self._fence = fence
        self._on_record = on_record
        self._conversion = cast("Conversion[K, V]", BYTES if conversion is None else conversion)
        self._keep = keep
        self._plan = plan
        self._write_timeout_s = write_timeout_s
        self._admin_settings = AdminSettings.parse(config, env)
        self._reader_settings = ConsumerSettings.parse({**config, **_CONNECTING, **_READING}, env)
        self._writer_settings = self._writing(config, env)
        self._log = self._reader_settings.log("compacted")
        self._follower: Follower | None = None
        self._writer: IdempotentWriter | FencedWriter | None = None
        # As the writer's connections see it.
        self._identity: TopicIdentity | None = None
        # The offset after the last record that this object wrote.
        self._written = 0

    def _writing(self, config: Mapping[str, object], env: Environment | None) -> ProducerSettings:
        limit_ms = max(1, int(self._write_timeout_s * 1000))
        # By this name: `delivery.timeout.ms` may not be shorter than `request.timeout.ms`.
        wanted: dict[str, object] = {**config, **_CONNECTING, **_WRITING, "message.timeout.ms": limit_ms}
        if self._fence is not None:
            # A transaction of a dead writer blocks readers until its limit, or until the next take-over.
            wanted = {"transaction.timeout.ms": limit_ms + 5_000, **wanted, "transactional.id": self._fence}
        return ProducerSettings.parse(wanted, env)

    # Start and stop

    async def start(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Create the topic if it is missing, read it from its beginning to its end, and begin to follow it.

        Raises `UnfitTopic`, `FollowingStopped`, and `KafkaException`: _TIMED_OUT with the last reason if brokers do not
        answer in time, and at once what a retry cannot resolve. After an error, `start` may be called again.
        """
        if self._follower is not None:
            raise failure(KafkaError._STATE, f"topic {self.name!r} is followed already")
        deadline = asyncio.get_running_loop().time() + timeout_s
        self.mapping.clear()
        try:
            topic_id = await self._prepare(timeout_s)
            self._identity = TopicIdentity(self.name, topic_id)
            identity = TopicIdentity(self.name, topic_id)
            self._follower = Follower(self._reader_settings, identity, self._apply)
            self._follower.on_failure = self._on_failure
            self._writer = self._make_writer()
            async with self._until(deadline, "was not read to its end"):
                await self._follower.start()
                await self._follower.wait_position(await self._follower.end(READ_COMMITTED))
        except BaseException:
            await self.stop()
            raise

    async def _prepare(self, timeout_s: float) -> uuid.UUID:
        preparation = Preparation(self._admin_settings, self._plan)
        told = asyncio.get_running_loop().call_later(_TELL_AFTER_S, preparation.tell_why, timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                return await preparation.ready()
        except TimeoutError:
            raise not_ready(self._plan, timeout_s, preparation.reason) from None
        finally:
            told.cancel()

    def _make_writer(self) -> IdempotentWriter | FencedWriter:
        kind = IdempotentWriter if self._fence is None else FencedWriter
        return kind(self._writer_settings, self.name, self._write_timeout_s, self._on_topology)

    async def stop(self) -> None:
        """Stop following, fail the writes that have no result, and disconnect. `mapping` stays as it is."""
        follower, self._follower = self._follower, None
        writer, self._writer = self._writer, None
        if follower is not None:
            await follower.stop()
        if writer is not None:
            await writer.close()

    # Reading

    def _apply(self, record: CompactedRecord) -> Awaitable[None] | None:
        if self._keep:
            self._store(record)
        return self._on_record(record)

    def _store(self, record: CompactedRecord) -> None:
        if record.key is None:
            self._log.warning("%s: the record at offset %d has no key; skipped", self.name, record.offset)
            return
        key = self._conversion.key_from_bytes(record.key)
        if record.value is None:
            self.mapping.pop(key, None)
        else:
            self.mapping[key] = self._conversion.value_from_bytes(record.value)

    @property
    def position(self) -> int:
        """The offset below which every record was read."""
        return self._running()[0].position

    async def wait_read(self, offset: int, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Wait until the record at `offset`, and all before it, were read. Raises _TIMED_OUT, `FollowingStopped`."""
        follower, _ = self._running()
        deadline = asyncio.get_running_loop().time() + timeout_s
        async with self._until(deadline, f"offset {offset} was not read"):
            await follower.wait_position(offset + 1)

    async def wait_end(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> int:
        """Ask for the topic's end, and wait until everything before it was read; return that end.

        Waits for the end of transactions that are open there, too: records after them are not read before.
        """
        follower, _ = self._running()
        deadline = asyncio.get_running_loop().time() + timeout_s
        async with self._until(deadline, "no broker told its end"):
            end = max(self._written, await follower.end(READ_UNCOMMITTED))
        async with self._until(deadline, f"its end at offset {end} was not read"):
            await follower.wait_position(end)
        return end

    @asynccontextmanager
    async def _until(self, deadline: float, what: str) -> AsyncIterator[None]:
        """End the block at the deadline: it raises `what` with the position and the last error of a broker."""
        follower, _ = self._running()
        try:
            async with asyncio.timeout_at(deadline) as timer:
                yield
        except TimeoutError:
            if not timer.expired():
                raise
            trouble = f": {follower.trouble.str()}" if follower.trouble is not None else ""
            raise failure(
                KafkaError._TIMED_OUT,
                f"topic {self.name!r}: {what} in time; read up to {follower.position}{trouble}",
                retriable=True,
            ) from None

    # Writing

    async def take_over(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Fence all older writers with this fence. `wait_end` afterwards reads everything that they wrote.

        Raises `Fenced` if another writer took over meanwhile, and `KafkaException`. May be called again.
        """
        _, writer = self._running()
        if not isinstance(writer, FencedWriter):
            raise failure(KafkaError._STATE, f"topic {self.name!r} has no fence to take over")
        await self._checked(writer.take_over(timeout_s))

    async def write(self, records: Sequence[tuple[K, V | None]]) -> int:
        """Write all records, or none; return an offset: when it is read (`wait_read`), all of them are.

        A value of None deletes its key. Mostly the offset is that of the last record. Raises `Fenced`,
        `OutcomeUnknown` and `FollowingStopped`; after any other `KafkaException` nothing is written. A write that is
        cancelled may be written.
        """
        follower, writer = self._running()
        settings = self._writer_settings
        batches = encode(
            [self._encoded(key, value) for key, value in records],
            settings.env.clock.now_ms(),
            settings.message_max_bytes,
            codec=Codec(settings.compression_type),
            level=settings.level,
            transactional=self._fence is not None,
        )
        offset = await self._checked(writer.write(batches))
        if offset == UNKNOWN_OFFSET:
            # They are written, so they are below the end.
            offset = await follower.end(READ_UNCOMMITTED) - 1
        self._written = max(self._written, offset + 1)
        return offset

    def _encoded(self, key: K, value: V | None) -> tuple[bytes, bytes | None]:
        conversion = self._conversion
        return conversion.key_to_bytes(key), None if value is None else conversion.value_to_bytes(value)

    async def _checked(self, call: Coroutine[object, Never, T]) -> T:
        """Await a call of the writer. If the following has failed meanwhile, that explains why nothing was written."""
        try:
            return await call
        except OutcomeUnknown:
            raise
        except KafkaException:
            self._running()
            raise

    def _running(self) -> tuple[Follower, IdempotentWriter | FencedWriter]:
        if self._follower is None or self._writer is None:
            raise failure(KafkaError._STATE, f"topic {self.name!r} is not followed: await start()")
        self._follower.check()
        return self._follower, self._writer

    def _on_topology(self, topology: Topology) -> None:
        """Check the topic after the writer's refresh of its metadata, before it sends anything."""
        follower, identity = self._follower, self._identity
        if follower is not None and identity is not None:
            fault = identity.fault(topology, asyncio.get_running_loop().time())
            if fault is not None:
                follower.fail(fault)

    def _on_failure(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
