"""One partition on this broker: its log, its role, and who waits for it.

Keeps true: R1 high watermark <= log end offset; it never falls within one leader epoch.
            Consumers see only what lies below the high watermark (or the last stable offset).
            Where flushing is asked for (`flush.messages`), the high watermark, and with it every
            acknowledgement, waits until the records are on disk; waiting appends share one sync.
How:        with one replica the high watermark is the log end offset, or the flushed offset.
            Appends and role changes happen on the event loop; only the sync runs in a thread.
Leaves:     validation and offsets to the log, waiting for bytes to the fetch handler, which
            registers in `on_advance`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from felice.env import FileSlice
from felice.log.log import AppendInfo, AppendOrigin, Log
from felice.metadata.image import PartitionImage
from felice.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from felice.log.transaction_index import AbortedTransaction

CONSUMER = -1
NO_EPOCH = -1
ACKS_ALL = -1


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the asker's log left the leader's (KIP-595): end of the largest epoch both have."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """What one fetch from one partition gave."""

    records: FileSlice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction] | None
    divergence: Divergence | None = None


class Partition:
    """A replica of one partition. The names are Kafka's."""

    def __init__(self, broker_id: int, log: Log, topic_id: UUID) -> None:
        self.topic = log.topic
        self.partition = log.partition
        self.topic_id = topic_id
        self.log = log
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.high_watermark = log.log_start_offset
        # Called, without argument, each time readers may find more, or an error, than before.
        self.on_advance: set[Callable[[], None]] = set()
        self._broker_id = broker_id
        self._committing: list[tuple[int, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._failure: ApiError | None = None

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.partition} epoch {self.leader_epoch}>"

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self._broker_id and self._failure is None

    @property
    def is_open(self) -> bool:
        """False once it was deleted, closed, or failed."""
        return self._failure is None

    @property
    def is_flushing(self) -> bool:
        return self._flushing is not None

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    def update_role(self, image: PartitionImage) -> None:
        """Takes the role that the controller decided."""
        is_new_term = image.leader_epoch != self.leader_epoch
        self.leader_id = image.leader
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.replicas = image.replicas
        self.isr = image.isr
        if is_new_term and self.is_leader:
            # The epoch begins where the log ends; the leader writes no record of its own.
            self.log.epochs.assign(image.leader_epoch, self.log.log_end_offset)
            self._advance(self.log.log_end_offset)
        if is_new_term:
            self._wake()

    def append(
        self,
        records: memoryview | bytearray | bytes,
        *,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        zstd_allowed: bool = True,
    ) -> AppendInfo:
        """Appends as the leader. `is_acknowledged` says whether the answer may leave at once."""
        self.check_leader(NO_EPOCH)
        if required_acks == ACKS_ALL:
            self._check_in_sync()
        info = self.log.append(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin, zstd_allowed=zstd_allowed
        )
        if self.log.needs_flush:
            self.begin_flush()
        else:
            self._advance(self.log.log_end_offset)
        return info

    def is_acknowledged(self, info: AppendInfo) -> bool:
        return self.high_watermark > info.last_offset

    async def wait_committed(self, offset: int, timeout_s: float) -> None:
        """Until the high watermark has passed `offset`; raises `ApiError` when that fails or takes too long."""
        if self.high_watermark > offset:
            return
        if self._failure is not None:
            raise self._failure
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (offset, future)
        self._committing.append(entry)
        try:
            await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT) from None
        finally:
            if entry in self._committing:
                self._committing.remove(entry)

    def fetch(
        self,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool = False,
        replica_id: int = CONSUMER,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        min_one: bool = True,
    ) -> FetchedRecords:
        """Whole batches from `offset` on, as far as the asker may see."""
        if self.leader_id != self._broker_id or self._failure or current_leader_epoch >= 0:
            self.check_leader(current_leader_epoch)
        log = self.log
        high_watermark = self.high_watermark
        end_offset = log.log_end_offset
        stable = log.last_stable_offset(high_watermark)
        if last_fetched_epoch >= 0 and (divergence := self._divergence(offset, last_fetched_epoch)):
            return FetchedRecords(None, high_watermark, stable, log.log_start_offset, None, divergence)
        if not log.log_start_offset <= offset <= end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside {log.log_start_offset} to {end_offset} of {self.topic}-{self.partition}",
            )
        bound = end_offset if replica_id >= 0 else stable if read_committed else high_watermark
        records = log.read(offset, max_bytes, end_offset=bound, min_one=min_one) if offset < bound else None
        aborted = log.aborted_transactions(offset, bound) if read_committed and records else None
        return FetchedRecords(records, high_watermark, stable, log.log_start_offset, aborted)

    def end_offset_for_epoch(self, epoch: int, current_leader_epoch: int = NO_EPOCH) -> Divergence:
        """The largest epoch not above `epoch` and where it ends; (-1, -1) for one that is yet to come (KIP-279)."""
        self.check_leader(current_leader_epoch)
        found = self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
        return Divergence(found.epoch, found.end_offset)

    def delete_records_before(self, offset: int) -> int:
        """Moves the log start to `offset` (-1: the high watermark); returns the low watermark."""
        self.check_leader(NO_EPOCH)
        if self.log.config.is_compacted and not self.log.config.deletes_old_segments:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, "records of a topic that is only compacted cannot be deleted"
            )
        target = self.high_watermark if offset == -1 else offset
        if not 0 <= target <= self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {target} is not between 0 and {self.high_watermark}"
            )
        self.log.delete_records_before(target)
        return self.log.log_start_offset

    def check_leader(self, current_leader_epoch: int) -> None:
        """Refuses what only the leader of the asker's epoch may answer."""
        if self._failure is not None:
            raise self._failure
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            stale = current_leader_epoch < self.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if stale else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise ApiError(code, f"the leader epoch is {self.leader_epoch}, not {current_leader_epoch}")
        if self.leader_id != self._broker_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def close(self, reason: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Ends the role: everybody who waits is told. The log stays with its directory."""
        self._fail(ApiError(reason))

    def change_log(self, log: Log) -> None:
        """The same records, on disk, in another directory. No flush may be under way."""
        assert not self.is_flushing and log.log_end_offset == self.log.log_end_offset
        self.log = log

    def wake_readers(self) -> None:
        """Something other than an append changed what readers find."""
        self._wake()

    def _check_in_sync(self) -> None:
        needed = min(self.log.config.min_insync_replicas, len(self.replicas))
        if len(self.isr) < needed:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} replicas are in sync where min.insync.replicas asks for {needed}",
            )

    def _divergence(self, offset: int, last_fetched_epoch: int) -> Divergence | None:
        found = self.log.epochs.end_offset_for(last_fetched_epoch, self.log.log_end_offset)
        if found.epoch < 0:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {last_fetched_epoch} is older than the log of {self!r}"
            )
        if found.epoch < last_fetched_epoch or found.end_offset < offset:
            return Divergence(found.epoch, found.end_offset)
        return None

    def _advance(self, offset: int) -> None:
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        if self._committing:
            for wanted, future in self._committing:
                if wanted < offset and not future.done():
                    future.set_result(None)
        if self.on_advance:
            self._wake()

    def _wake(self) -> None:
        for wake in list(self.on_advance):
            wake()

    def begin_flush(self) -> asyncio.Task[None]:
        """Starts bringing the log to disk, or joins the flush under way."""
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())
        return self._flushing

    async def finish_flush(self) -> None:
        """Until no flush is under way, so that the log may be closed."""
        if self._flushing is not None:
            await self._flushing

    async def _flush(self) -> None:
        """Syncs until no acknowledgement waits for it; what comes during a sync shares the next."""
        log, loop = self.log, asyncio.get_running_loop()
        try:
            while True:
                flush = log.begin_flush()
                await loop.run_in_executor(None, flush.run)
                if self._failure is not None:
                    return  # deleted or closed meanwhile: what became of its files is no fault of the disk
                log.end_flush(flush)
                self._advance(flush.end_offset)
                if not log.needs_flush:
                    break
            self._advance(log.log_end_offset)
        except ApiError as error:
            # After a failed sync nobody knows what the disk holds: nothing more may be acknowledged.
            self._fail(error)
        finally:
            self._flushing = None

    def _fail(self, failure: ApiError) -> None:
        self._failure = self._failure or failure
        for _, future in self._committing:
            if not future.done():
                future.set_exception(failure)
        self._wake()
