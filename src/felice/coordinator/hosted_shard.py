"""One shard on this broker: its state machine, its partition's log, and the calls in between.

Keeps true:  a shard sees its events one at a time, and its records reach the log in the order of its events.
             No answer shows a change before the change, and all changes before it, are committed.
             A refused write leaves neither a record nor a trace in the shard's state.
             A shard answers only when everything that it replayed is committed: a new leader's log may end with records
             that no client has seen, and that another leader may truncate.
How:         the records of all events of one turn of the event loop are applied at once and appended together when
             the turn is over: one append serves a burst of commits. Continuations run as the high watermark passes.
             One timer follows the shard's earliest deadline.
Leaves:      which partitions have a shard here to `runtime`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any, Generic, TypeVar

from felice.coordinator.shard import (
    NEVER_MS,
    NO_PRODUCER_ID,
    AfterWrite,
    BeginWork,
    Instant,
    Outcome,
    RecordCodec,
    Sendable,
    Shard,
    TransactionalProducer,
    Undo,
    Work,
)
from felice.dataclass import dataclass
from felice.env import Clock
from felice.log.answers import AppendOrigin
from felice.protocol.errors import ApiError, BrokenInvariant, ErrorCode
from felice.protocol.primitives import MalformedMessage, UnencodableMessage
from felice.records.batch import BatchHeader, iter_batches
from felice.records.builder import BatchBuilder, build_control
from felice.records.control import ControlType, EndTransactionMarker, end_transaction_marker
from felice.records.reader import read_batch
from felice.replication.partition import ACKS_ALL, Partition

R = TypeVar("R")
S = TypeVar("S", bound=Shard[Any])

_log = logging.getLogger("felice.coordinator")

LOAD_CHUNK_BYTES = 64 * 1024
"""Bytes of the log that are replayed in one turn of the loop: some 10 ms of offset commits."""
BATCH_ROOM_BYTES = 512
"""Reserved in a batch for its header and the lengths inside its records."""
RECORD_ROOM_BYTES = 32

# The errors of a refused append, translated for clients that do not know of the internal topic.
_CALLERS_ERROR = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
}

Encoded = tuple[bytes, bytes | None]

_WORKERS = ThreadPoolExecutor(1, "coordinator")
"""One thread for all computations, so that many groups do not take threads from disks and large requests."""


@dataclass(slots=True)
class _Write(Generic[R]):
    """The records of one event, and its continuation."""

    encoded: list[Encoded]
    undo: list[Undo]
    after: list[AfterWrite[R]] = field(default_factory=list)
    producer: TransactionalProducer | None = None

    @property
    def size_bytes(self) -> int:
        return sum(map(_encoded_size, self.encoded))


class HostedShard(Generic[S, R]):
    """One shard while this broker leads its partition, in one leader epoch. `S` is the shard, `R` its records."""

    def __init__(
        self, shard: S, codec: RecordCodec[R], partition: Partition, clock: Clock, write_timeout_ms: int
    ) -> None:
        self.shard = shard
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.is_loaded = False
        self._codec = codec
        self._clock = clock
        self._write_timeout_ms = write_timeout_ms
        self.is_closed = False
        self._loading: asyncio.Task[None] | None = None
        # The offset of the last record that was written here.
        self._written_offset = -1
        self._pending: list[_Write[R]] = []
        self._in_flight: deque[tuple[int, list[_Write[R]]]] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS

    def now(self) -> Instant:
        """The time of an event that happens now."""
        return Instant(self._clock.now_ms(), int(self._clock.monotonic() * 1000))

    # Loading

    @property
    def is_log_empty(self) -> bool:
        """Whether the partition has no records, so that there is nothing to load."""
        return self.partition.log_start_offset == self.partition.log_end_offset

    def begin_loading(self, turn: asyncio.Lock, on_failed: Callable[[], None]) -> None:
        """Loads the log once it holds the lock `turn`: one log is read at a time. Calls `on_failed` if that fails."""
        self._loading = asyncio.get_running_loop().create_task(self._load(turn, on_failed))

    async def _load(self, turn: asyncio.Lock, on_failed: Callable[[], None]) -> None:
        end_offset = self.partition.log_end_offset
        try:
            async with turn:
                await self._replay_log(end_offset)
            await self._wait_load_committed(end_offset)
        except ApiError as error:
            # Another broker leads now, or the disk failed: not an error of this code.
            _log.warning(
                "a coordinator's shard could not be loaded",
                extra={"partition": self.partition.name, "reason": error.message},
            )
            on_failed()
        except Exception:
            _log.exception(
                "a coordinator's shard could not be loaded", extra={"partition": self.partition.name}
            )
            on_failed()
        else:
            with contextlib.suppress(ApiError):  # the shard is loaded again
                self.finish_loading()

    async def _replay_log(self, end_offset: int) -> None:
        """Replays the whole log, in chunks."""
        offset = self.partition.log_start_offset
        while offset < end_offset:
            chunk = self.partition.log.read_bytes(offset, LOAD_CHUNK_BYTES, end_offset=end_offset)
            reached = self._replay_chunk(chunk, offset)
            if reached == offset:
                break  # compaction may have removed the end
            offset = reached
            await asyncio.sleep(0)

    async def _wait_load_committed(self, end_offset: int) -> None:
        is_reported = False
        while self.partition.high_watermark < end_offset:
            try:
                await self.partition.wait_committed(end_offset - 1, self._write_timeout_ms / 1000)
            except ApiError as error:
                if error.code != ErrorCode.REQUEST_TIMED_OUT:
                    raise
                if not is_reported:
                    _log.warning(
                        "a coordinator waits until its log is committed",
                        extra={"partition": self.partition.name},
                    )
                is_reported = True

    def finish_loading(self) -> None:
        """The whole log was replayed: requests may arrive, and deadlines count."""
        self.is_loaded = True
        self.run(self.shard.on_loaded)

    def _replay_chunk(self, chunk: bytes, offset: int) -> int:
        for header in iter_batches(chunk):
            if header.is_control:
                self._replay_marker(chunk, header)
            else:
                self._replay_batch(chunk, header)
            offset = max(offset, header.next_offset)
        return offset

    def _replay_batch(self, chunk: bytes, header: BatchHeader) -> None:
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for stored in read_batch(chunk, header):
            try:
                record = self._codec.decode(
                    bytes(stored.key or b""), None if stored.value is None else bytes(stored.value)
                )
            except MalformedMessage as error:
                _log.warning(
                    "a record of a coordinator's log is skipped: it cannot be read",
                    extra={"partition": self.partition.name, "offset": stored.offset, "reason": str(error)},
                )
                continue
            if record is not None:
                self.shard.replay(record, producer_id)

    def _replay_marker(self, chunk: bytes, header: BatchHeader) -> None:
        for stored in read_batch(chunk, header):
            marker = end_transaction_marker(stored)
            if marker is not None:
                self.shard.replay_marker(header.producer_id, marker.control_type is ControlType.COMMIT)

    # Events

    def run(self, event: Callable[[Instant], Outcome[R]]) -> None:
        """Runs one event, and what follows from it; raises UNKNOWN_SERVER_ERROR if that fails unexpectedly."""
        try:
            self._carry_out(event(self.now()))
        except Exception as fault:
            self._give_up(fault)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from fault
        self.follow_deadlines()

    def _give_up(self, fault: Exception) -> None:
        """After an unexpected exception the state may be half changed: loads the shard again from its log."""
        facts = _broken_facts(fault)
        _log.error(
            "a coordinator's shard failed; it is loaded again",
            extra={"partition": self.partition.name, **facts},
            exc_info=None if facts else fault,
        )
        self.close(ErrorCode.NOT_COORDINATOR)

    def _carry_out(self, outcome: Outcome[R]) -> None:
        for reply in outcome.replies:
            reply.send()
        if outcome.records or outcome.after_write:
            after = [*outcome.after_write, *map(BeginWork, outcome.work)]
            self._write(outcome.records, after, outcome.producer)
        else:
            for work in outcome.work:
                self._begin(work)

    # Work in threads

    def _begin(self, work: Work[R]) -> None:
        future = asyncio.get_running_loop().run_in_executor(_WORKERS, work.run)
        future.add_done_callback(lambda done: self._on_done(work, done))

    def _on_done(self, work: Work[R], done: asyncio.Future[None]) -> None:
        """Drops the result if the shard was unloaded. The new coordinator computes it again if it needs it."""
        if self.is_closed or done.cancelled():
            return
        fault = done.exception()
        assert fault is None or isinstance(fault, Exception), "the interpreter is ending"
        if fault is not None:
            _log.error(
                "a computation of a coordinator's shard failed",
                extra={"partition": self.partition.name, "work": work.name},
                exc_info=fault,
            )
        with contextlib.suppress(ApiError):  # the shard is loaded again
            self.run(lambda now: work.on_done(now, fault))

    def _write(
        self, records: list[R], after: list[AfterWrite[R]], producer: TransactionalProducer | None
    ) -> None:
        try:
            encoded = [self._codec.encode(record) for record in records]
        except UnencodableMessage as error:
            # For example a name that fits into a request but, with other fields, not into a record.
            _log.warning(
                "a coordinator's record cannot be encoded",
                extra={"partition": self.partition.name, "reason": str(error)},
            )
            self._fail([_Write([], [], after)], ErrorCode.INVALID_REQUEST)
            return
        limit = self._batch_limit_bytes
        if any(_encoded_size(entry) > limit for entry in encoded):
            _log.warning(
                "a coordinator's record is too large",
                extra={"partition": self.partition.name, "bytes": max(map(_encoded_size, encoded))},
            )
            self._fail([_Write([], [], after)], ErrorCode.MESSAGE_TOO_LARGE)
        elif not records and not self._pending and self._is_all_committed:
            self._complete([_Write([], [], after)])
        else:
            producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
            undo = [self.shard.replay(record, producer_id) for record in records]
            if not self._pending:
                asyncio.get_running_loop().call_soon(self._flush)
            # If the records of one event need several batches, its continuation waits for the last.
            self._pending += _split(encoded, undo, producer, limit)
            self._pending[-1].after = after

    @property
    def _is_all_committed(self) -> bool:
        """False also if a write that timed out is in the state, but may still be lost with the leadership."""
        return not self._in_flight and self.partition.high_watermark > self._written_offset

    @property
    def _batch_limit_bytes(self) -> int:
        return self.partition.log.config.max_message_bytes - BATCH_ROOM_BYTES

    # Writing

    def _flush(self) -> None:
        writes, self._pending = self._pending, []
        try:
            self._append_all(writes)
            self._complete_committed()
        except Exception as fault:
            self._pending = writes + self._pending
            self._give_up(fault)
        self.follow_deadlines()

    def _append_all(self, writes: list[_Write[R]]) -> None:
        batches = list(_batches(writes, self._batch_limit_bytes))
        for position, batch in enumerate(batches):
            try:
                last_offset = self._append(batch)
            except BrokenInvariant:
                raise  # it may be in the log: nothing can be undone
            except ApiError as error:
                if batch[0].producer is not None:
                    # Fails only this producer's writes: no other write depends on the commits of a fenced producer.
                    self._undo(batch)
                    self._fail(batch, error.code)
                    continue
                refused = [write for later in batches[position:] for write in later]
                self._undo(refused)
                self._fail(refused, error.code)
                break
            self._in_flight.append((last_offset, batch))

    def _append(self, batch: list[_Write[R]]) -> int:
        """Returns the last offset; if there are only continuations, that of the last earlier record."""
        if self.is_closed or self.partition.leader_epoch != self.leader_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        now_ms = self._clock.now_ms()
        builder = _builder_for(batch[0].producer)
        for write in batch:
            for key, value in write.encoded:
                builder.append(now_ms, key, value)
        if builder.record_count:
            info = self.partition.append(
                builder.build(), required_acks=ACKS_ALL, now_ms=now_ms, origin=AppendOrigin.COORDINATOR
            )
            self._note_written(info.last_offset)
        return self._written_offset

    def _note_written(self, offset: int) -> None:
        """Checks L1 for this shard: each record has a higher offset than the record before it."""
        if offset <= self._written_offset:
            raise BrokenInvariant(
                "L1",
                "a new record of the shard has no higher offset than an earlier record",
                offset=offset,
                earlier=self._written_offset,
            )
        self._written_offset = offset

    def _complete_committed(self) -> None:
        if self._in_flight and self.partition.leader_epoch != self.leader_epoch:
            # Another leader may have replaced the records.
            raise BrokenInvariant(
                "C7",
                "a shard acts outside its leader epoch",
                epoch=self.leader_epoch,
                current=self.partition.leader_epoch,
            )
        while self._in_flight and self._in_flight[0][0] < self.partition.high_watermark:
            self._complete(self._in_flight.popleft()[1])
        if self._in_flight and self._committing is None:
            self._committing = asyncio.get_running_loop().create_task(self._wait_committed())

    async def _wait_committed(self) -> None:
        try:
            while self._in_flight:
                await self._wait_for_oldest()
                self._complete_committed()
                self.follow_deadlines()
        except Exception as fault:
            self._give_up(fault)
        finally:
            self._committing = None

    async def _wait_for_oldest(self) -> None:
        offset, batch = self._in_flight[0]
        try:
            await self.partition.wait_committed(offset, self._write_timeout_ms / 1000)
        except ApiError as error:
            # It is in the log and may still be committed. The client must ask, or repeat the request.
            if self._in_flight and self._in_flight[0][1] is batch:
                self._in_flight.popleft()
                self._fail(batch, error.code)

    def _complete(self, writes: list[_Write[R]]) -> None:
        now = self.now()
        for write in writes:
            for after in write.after:
                self._carry_out(after.on_committed(now))

    def _fail(self, writes: list[_Write[R]], error: ErrorCode) -> None:
        callers_error = _CALLERS_ERROR.get(error, error)
        now = self.now()
        for write in writes:
            for after in write.after:
                self._carry_out(after.on_failed(callers_error, now))

    @staticmethod
    def _undo(writes: list[_Write[R]]) -> None:
        for write in reversed(writes):
            for undo in reversed(write.undo):
                undo()

    # Markers

    def end_transaction(
        self, marker: EndTransactionMarker, producer: TransactionalProducer, transaction_version: int = 0
    ) -> int:
        """Writes the marker of a producer's transaction behind all earlier records; returns its offset."""
        self._flush()
        if self.is_closed or self.partition.leader_epoch != self.leader_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        now_ms = self._clock.now_ms()
        info = self.partition.append(
            build_control(
                marker,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                timestamp_ms=now_ms,
            ),
            required_acks=ACKS_ALL,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=transaction_version,
        )
        try:
            self._note_written(info.last_offset)
        except BrokenInvariant as fault:
            self._give_up(fault)
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from fault
        self.shard.replay_marker(producer.producer_id, marker.control_type is ControlType.COMMIT)
        return info.last_offset

    # Time

    def follow_deadlines(self) -> None:
        """Sets the timer to the shard's earliest deadline."""
        deadline_ms = self.shard.next_deadline_ms()
        if self.is_closed or not self.is_loaded or deadline_ms >= self._timer_ms:
            return  # a timer that fires early does no harm
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(deadline_ms - self.now().steady_ms, 0)
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        with contextlib.suppress(ApiError):
            self.run(self.shard.on_time)

    # Closing

    def close(self, error: ErrorCode) -> None:
        """This broker is no longer the coordinator: every waiting request gets `error`."""
        if self.is_closed:
            return
        self.is_closed = True
        for ended in (self._timer, self._committing, self._loading):
            if ended is not None:
                ended.cancel()
        waiting = [write for _, batch in self._in_flight for write in batch] + self._pending
        self._in_flight.clear()
        self._pending = []
        now = self.now()
        for after in [after for write in waiting for after in write.after]:
            self._answer(lambda after=after: after.on_failed(error, now).replies)  # type: ignore[misc]
        self._answer(lambda: self.shard.on_unloaded(error))

    def _answer(self, replies: Callable[[], Sequence[Sendable]]) -> None:
        """Sends replies; an exception over a half-changed state must not leave the other requests waiting."""
        try:
            for reply in replies():
                reply.send()
        except Exception:
            _log.exception("a request could not be answered", extra={"partition": self.partition.name})


def _broken_facts(fault: Exception) -> dict[str, str]:
    return {"invariant": fault.name, "reason": str(fault)} if isinstance(fault, BrokenInvariant) else {}


def _encoded_size(encoded: Encoded) -> int:
    key, value = encoded
    return len(key) + len(value or b"") + RECORD_ROOM_BYTES


def _builder_for(producer: TransactionalProducer | None) -> BatchBuilder:
    if producer is None:
        return BatchBuilder()
    return BatchBuilder(producer_id=producer.producer_id, producer_epoch=producer.epoch, transactional=True)


def _split(
    encoded: list[Encoded], undo: list[Undo], producer: TransactionalProducer | None, limit: int
) -> Iterator[_Write[R]]:
    """Pieces that fit into a batch each; one empty piece if there are no records."""
    piece: _Write[R] = _Write([], [], producer=producer)
    size = 0
    for entry, back in zip(encoded, undo, strict=True):
        if piece.encoded and size + _encoded_size(entry) > limit:
            yield piece
            piece, size = _Write([], [], producer=producer), 0
        piece.encoded.append(entry)
        piece.undo.append(back)
        size += _encoded_size(entry)
    yield piece


def _batches(writes: list[_Write[R]], limit: int) -> Iterator[list[_Write[R]]]:
    """Whole writes together, as many as fit into one batch; a batch has one producer, or none."""
    batch: list[_Write[R]] = []
    size = 0
    for write in writes:
        if batch and (size + write.size_bytes > limit or write.producer != batch[0].producer):
            yield batch
            batch, size = [], 0
        batch.append(write)
        size += write.size_bytes
    if batch:
        yield batch
