"""One partition on this broker: its log, its role, and the requests that wait for it.

Keeps true: R1 high watermark <= log end offset; it never falls within one leader epoch.
            Consumers see only records below the high watermark (or the last stable offset).
            R3 acks=all is answered when every in-sync replica has the record, and never while fewer replicas than
            min.insync.replicas are in sync.
            With `flush.messages` the leader's own log counts only as far as it is on disk; waiting appends share one
            sync.
How:        while the broker leads, a `Leader` decides; while it follows, `follower` decides and the log is the only
            state. Everything but the sync happens on the event loop.
Leaves:     validation and offsets to the log; waiting for bytes to the fetch handler, which registers in
            `on_advance`; fetching to `fetcher`; writing the ISR to `isr`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from felice.env import Buffer
from felice.log.answers import AppendInfo, AppendOrigin
from felice.log.log import Log
from felice.log.replicated import OverlappingBatch
from felice.metadata.image import PartitionImage
from felice.protocol.errors import ApiError, BrokenInvariant, ErrorCode
from felice.records.batch import BatchHeader
from felice.records.validate import Verdict
from felice.replication import divergence, follower, truncation
from felice.replication.dependencies import PartitionDependencies
from felice.replication.divergence import Divergence
from felice.replication.fetched import FetchedRecords
from felice.replication.flushing import LogFlusher
from felice.replication.follower import FetchPosition
from felice.replication.leader import FollowerProgress, IsrProposal, Leader, SessionLiveness
from felice.replication.refusals import Refusals
from felice.replication.replica import Replica
from felice.replication.waiters import Waiters

_log = logging.getLogger("felice.replication")

CONSUMER = -1
NO_EPOCH = -1
ACKS_ALL = -1


class Partition(Replica):
    """A replica of one partition. Attribute names are Kafka's."""

    def __init__(
        self,
        broker_id: int,
        log: Log,
        topic_id: UUID,
        dependencies: PartitionDependencies,
        high_watermark: int = 0,
    ) -> None:
        super().__init__(log, topic_id, high_watermark)
        self.flusher = LogFlusher(self)
        # The leader's high watermark, as this broker last heard of it as a follower.
        self.leader_high_watermark = 0
        self.leader: Leader | None = None
        self.traffic = dependencies.traffic.of(log.topic)
        self._broker_id = broker_id
        self._dependencies = dependencies
        # How far this broker's log counts towards the high watermark: to its end, or to the end of what is on disk.
        self._durable_offset = log.log_end_offset
        self._refusals = Refusals()

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.partition} epoch {self.leader_epoch}>"

    @property
    def partition_epoch(self) -> int:
        """The version of the partition's state node. A leader knows of its own writes before the image shows them."""
        return self.leader.partition_epoch if self.leader else self.image.partition_epoch

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync replicas. A leader knows of its own changes before the image shows them."""
        return self.leader.isr if self.leader else self.image.isr

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition and can serve it."""
        return self.leader is not None and self._failure is None

    # Role

    def update_role(self, image: PartitionImage) -> None:
        """Takes the role that the metadata image gives; an image older than the current role is ignored.

        A leader epoch has one leader. If an image of the current epoch lacks its leader, the session of that broker has
        ended. Such an image counts even if it does not yet show changes that this broker made.
        """
        is_new_term = image.leader_epoch != self.leader_epoch or image.leader != self.leader_id
        is_older = image.partition_epoch < self.partition_epoch and not is_new_term
        if is_older or image.leader_epoch < self.leader_epoch:
            return
        if image.leader_epoch == self.leader_epoch and min(image.leader, self.leader_id) >= 0 and is_new_term:
            raise self._stop(
                "R2", "a leader epoch has two leaders", leader=self.leader_id, other_leader=image.leader
            )
        self.image = image
        if not is_new_term and self.leader is not None:
            self.leader.follow(image)
            self._recount()
            # A follower that left the ISR must fetch this partition again, to rejoin: it is no longer idle.
            self.wake_readers()
        elif is_new_term and image.leader == self._broker_id:
            self._lead(image)
        elif is_new_term:
            self._follow()
        if is_new_term:
            self.wake_readers()

    def _lead(self, image: PartitionImage) -> None:
        if image.leader_epoch < self.log.epochs.latest:
            # Batches of two leaders would have one epoch, and followers could not tell them apart.
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"leader epoch {image.leader_epoch} is before epoch {self.log.epochs.latest} of the log",
            )
        # The ISR may have a broker without a replica here: the first ISR change removes it.
        if self._broker_id not in image.isr:
            raise self._isr_broken(image.isr)
        end_offset = self.log.log_end_offset
        # The epoch begins at the log's end; the leader writes no record for it.
        self.log.epochs.assign(image.leader_epoch, end_offset)
        began = self.log.epochs.entries[-1].start_offset if self.log.epochs.entries else end_offset
        self.leader = Leader(
            self._broker_id, image, epoch_start_offset=began, now_ms=self._dependencies.monotonic_ms()
        )
        if self.log.needs_flush:
            self.flusher.begin()
        else:
            self._durable_offset = end_offset
        self._recount()

    def _isr_broken(self, isr: Sequence[int]) -> BrokenInvariant:
        """R4: this broker leads only as a member of the ISR, and proposes only brokers that have a replica."""
        return self._stop(
            "R4",
            "the in-sync replicas lack the leader, or have a broker without a replica",
            isr=tuple(isr),
            leader=self._broker_id,
            replicas=self.image.replicas,
        )

    def _follow(self) -> None:
        self.leader = None
        if self.image.leader >= 0 and self._failure is None:
            truncation.before_following(self.log, self.high_watermark)
            self._limit_watermarks()
        self._fail_waiters(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def check_leader(self, current_leader_epoch: int) -> None:
        """Refuses a request that only the leader of the given epoch may answer."""
        self.check_epoch(current_leader_epoch)
        if self.leader is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuses a request that not even a follower of the given epoch may answer."""
        if self._failure is not None:
            raise self._failure
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            stale = current_leader_epoch < self.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if stale else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise ApiError(code, f"the leader epoch is {self.leader_epoch}, not {current_leader_epoch}")

    def _leading(self) -> Leader:
        self.check_leader(NO_EPOCH)
        assert self.leader is not None
        return self.leader

    @property
    def known_high_watermark(self) -> int:
        """The leader's high watermark, as far as this broker knows it."""
        return max(self.high_watermark, self.leader_high_watermark if self.leader is None else 0)

    # Writing, as the leader

    def append(
        self,
        records: Buffer,
        *,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        zstd_allowed: bool = True,
        transaction_version: int = 0,
        header: BatchHeader | None = None,
        verdict: Verdict | None = None,
    ) -> AppendInfo:
        """Appends as the leader; the arguments are those of `Log.append`. Raises `ApiError`.

        While `is_acknowledged` of the result is false, the producer must not be answered: await `wait_acknowledged`.
        """
        traffic = self.traffic
        traffic.produce_requests += 1
        leader = self.leader
        if leader is None or self._failure is not None:
            leader = self._leading()
        try:
            if required_acks == ACKS_ALL:
                self._check_in_sync(leader, len(leader.isr), ErrorCode.NOT_ENOUGH_REPLICAS)
            info = self.log.append(
                records,
                leader_epoch=leader.epoch,
                now_ms=now_ms,
                origin=origin,
                zstd_allowed=zstd_allowed,
                transaction_version=transaction_version,
                header=header,
                verdict=verdict,
            )
        except ApiError as error:
            traffic.on_failed_append(len(records), error.code)
            self._refusals.check(records, error)
            raise
        traffic.bytes_in += len(records)
        traffic.messages_in += info.last_offset - info.base_offset + 1
        if self._refusals.refused:
            self._refusals.forget(records)
        log = self.log
        if log.needs_flush:
            self.flusher.begin()
        else:
            self.on_durable(log.log_end_offset)
        if self.high_watermark < log.log_end_offset:
            # Followers read beyond the high watermark, and need not wait for the leader's disk.
            self.wake_readers()
        return info

    def is_acknowledged(self, info: AppendInfo, required_acks: int = ACKS_ALL) -> bool:
        """Whether the producer may be answered: all in-sync replicas have the records, or this broker has them."""
        mark = self.high_watermark if required_acks == ACKS_ALL else self._durable_offset
        return mark > info.last_offset

    async def wait_acknowledged(self, info: AppendInfo, required_acks: int, timeout_s: float) -> None:
        """Returns when the producer may be answered; raises `ApiError` if the write failed for it."""
        if required_acks != ACKS_ALL:
            if not self.is_acknowledged(info, required_acks):
                await self._wait_beyond(self._syncing, info.last_offset, timeout_s)
            return
        await self.wait_committed(info.last_offset, timeout_s)
        leader = self._leading()
        self._check_in_sync(leader, len(leader.maximal_isr), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    async def wait_committed(self, offset: int, timeout_s: float) -> None:
        """Returns when the high watermark has passed `offset`; raises `ApiError` if that fails or takes too long."""
        if self.high_watermark <= offset:
            await self._wait_beyond(self._committing, offset, timeout_s)

    async def _wait_beyond(self, waiters: Waiters, offset: int, timeout_s: float) -> None:
        self.check_leader(NO_EPOCH)
        await waiters.wait_beyond(offset, timeout_s)

    def _check_in_sync(self, leader: Leader, in_sync: int, code: ErrorCode) -> None:
        needed = min(self.log.config.min_insync_replicas, len(leader.replicas))
        if in_sync < needed:
            raise ApiError(
                code, f"{in_sync} replicas are in sync where min.insync.replicas asks for {needed}"
            )

    # Reading

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
        from_any_replica: bool = False,
    ) -> FetchedRecords:
        """Whole batches from `offset` on, as far as the consumer or follower may see. Raises `ApiError`.

        With `last_fetched_epoch` the result may be a divergence instead (KIP-595). `from_any_replica`: a consumer may
        read although this broker does not lead (KIP-392).
        """
        self.traffic.fetch_requests += 1
        if from_any_replica and replica_id < 0:
            self.check_epoch(current_leader_epoch)
        else:
            self.check_leader(current_leader_epoch)
        log = self.log
        high_watermark = self.high_watermark
        end_offset = log.log_end_offset
        stable = log.last_stable_offset(high_watermark)
        if last_fetched_epoch >= 0 and (parted := divergence.between(log, offset, last_fetched_epoch)):
            return FetchedRecords(None, high_watermark, stable, log.log_start_offset, None, parted)
        if not log.log_start_offset <= offset <= end_offset:
            if self.leader_id < 0:
                # Another replica may have more records. OFFSET_OUT_OF_RANGE would make a consumer reset its position.
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"no leader of {self!r} is known")
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside {log.log_start_offset} to {end_offset} of {self.topic}-{self.partition}",
            )
        if not log.log_start_offset <= stable <= high_watermark <= end_offset:
            raise self._watermarks_contradict(stable)
        bound = end_offset if replica_id >= 0 else stable if read_committed else high_watermark
        records = log.read(offset, max_bytes, end_offset=bound, min_one=min_one) if offset < bound else None
        aborted = log.aborted_transactions(offset, bound) if read_committed and records else None
        return FetchedRecords(records, high_watermark, stable, log.log_start_offset, aborted)

    def _watermarks_contradict(self, stable: int) -> BrokenInvariant:
        start_offset = self.log.log_start_offset
        if self.high_watermark > self.log.log_end_offset:
            return self._stop("R1", "the high watermark is above the log's end")
        if start_offset > self.high_watermark:
            return self._stop(
                "L9", "records above the high watermark were deleted", log_start_offset=start_offset
            )
        return self._stop(
            "T1", "the last stable offset is above the high watermark", last_stable_offset=stable
        )

    def end_offset_for_epoch(self, epoch: int, current_leader_epoch: int = NO_EPOCH) -> Divergence:
        """The largest epoch not above `epoch`, and its end; (-1, -1) for an epoch that has not begun (KIP-279)."""
        self.check_leader(current_leader_epoch)
        found = self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
        return Divergence(found.epoch, found.end_offset)

    def check_latest_is_known(self) -> None:
        """Raises until the followers' first fetches have shown a new leader what its predecessor had committed."""
        if not self._leading().may_show_latest(self.high_watermark):
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "the new leader's high watermark is not yet known")

    # Deleting records

    def delete_records_before(self, offset: int) -> int:
        """Moves the log start to `offset` (-1: to the high watermark); returns the log start."""
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
        self.wake_readers()
        return self.log.log_start_offset

    @property
    def low_watermark(self) -> int:
        """Records below this offset are on no live replica any more."""
        return self._leading().low_watermark(self.log.log_start_offset, self._dependencies.broker_epoch_of)

    async def wait_deleted(self, offset: int, timeout_s: float) -> int:
        """Returns the low watermark, once the logs of all live replicas begin at `offset` or above."""
        if self.low_watermark < offset:
            await self._wait_beyond(self._deleting, offset - 1, timeout_s)
        return self.low_watermark

    # Followers of this leader

    def on_follower_fetch(
        self,
        replica_id: int,
        offset: int,
        *,
        log_start_offset: int,
        broker_epoch: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
    ) -> None:
        """A follower has everything below `offset`: the high watermark may rise, and the ISR may grow.

        If the follower's log diverged from this one, nothing is noted: `fetch` answers where they parted.
        """
        self.check_leader(current_leader_epoch)
        leader = self._leading()
        leader.check_follower(replica_id, current_leader_epoch)
        if not self.log.log_start_offset <= offset <= self.log.log_end_offset:
            return
        if last_fetched_epoch >= 0 and divergence.between(self.log, offset, last_fetched_epoch):
            return
        leader.on_follower_fetch(
            replica_id,
            offset,
            log_start_offset=log_start_offset,
            log_end_offset=self.log.log_end_offset,
            broker_epoch=broker_epoch,
            current_leader_epoch=current_leader_epoch,
            registered_epoch=self._dependencies.broker_epoch_of(replica_id),
            now_ms=self._dependencies.monotonic_ms(),
        )
        if replica_id in leader.isr and offset < self.high_watermark:
            self.shrink_isr()
        self._propose(
            leader.propose_expansion(replica_id, self.high_watermark, self._dependencies.broker_epoch_of)
        )
        self._recount()
        self._release_deleting()

    def begin_idle(self, replica_id: int, offset: int, liveness: SessionLiveness) -> FollowerProgress | None:
        """From now on the follower's fetches from `offset` may be noted by their session's liveness alone.

        Returns None unless each such fetch would find and change nothing until `on_advance` calls.
        """
        leader = self.leader
        if leader is None or self._failure is not None or offset != self.log.log_end_offset:
            return None
        return leader.begin_idle(replica_id, offset, self.high_watermark, liveness)

    def _release_deleting(self) -> None:
        if self._deleting:
            self._deleting.release(self.low_watermark)

    def shrink_isr(self) -> None:
        """Removes ISR members that have not kept up. Call it periodically."""
        if not self.is_leader or self.leader is None or self.leader.is_alone:
            return
        dependencies = self._dependencies
        self._propose(
            self.leader.propose_shrinkage(
                self.high_watermark,
                log_end_offset=self.log.log_end_offset,
                lag_time_max_ms=dependencies.lag_time_max_ms(),
                broker_epoch_of=dependencies.broker_epoch_of,
                now_ms=dependencies.monotonic_ms(),
            )
        )
        self._recount()
        # Deleting records no longer waits for a replica that died.
        self._release_deleting()

    def _propose(self, proposal: IsrProposal | None) -> None:
        if proposal is None:
            return
        if self._broker_id not in proposal.isr or not set(proposal.isr) <= set(self.image.replicas):
            self._isr_broken(proposal.isr)  # Not raised: callers go on with other partitions.
            return
        self._dependencies.propose(self, proposal)

    def awaits(self, proposal: IsrProposal) -> bool:
        """Whether the outcome still matters. A deleted partition proposes nothing: another of its name may have a
        state node of the same version.
        """
        return self.is_open and self.leader is not None and self.leader.proposal is proposal

    def on_proposal_committed(self, proposal: IsrProposal, partition_epoch: int) -> None:
        """The proposal was written and is version `partition_epoch` of the state node: it is the ISR from now on."""
        if self.leader is not None and self.leader.on_proposal_committed(proposal, partition_epoch):
            _log.info(
                "in-sync replicas changed",
                extra={"partition": self.log.name, "isr": list(self.leader.isr), "epoch": partition_epoch},
            )
            self.shrink_isr()
            self.wake_readers()

    def on_proposal_refused(self, proposal: IsrProposal) -> None:
        """The proposal was certainly not written: the current ISR stays."""
        if self.leader is not None:
            self.leader.on_proposal_refused(proposal)

    # Following

    def next_fetch(self) -> FetchPosition:
        """The fields of this follower's next fetch: it continues at the log's end."""
        return follower.next_fetch(
            self.log.epochs,
            log_start_offset=self.log.log_start_offset,
            log_end_offset=self.log.log_end_offset,
            leader_epoch=self.leader_epoch,
        )

    def _check_follows(self) -> None:
        """R2: a leader's log takes records from no other leader, and is never truncated."""
        if self.leader is not None:
            raise self._stop("R2", "a leader was given the answer of another leader", leader=self._broker_id)

    def append_as_follower(
        self, records: Buffer, *, high_watermark: int, log_start_offset: int, now_ms: int
    ) -> bool:
        """Appends the batches that the leader of the current epoch sent. Returns False if none could be appended."""
        self._check_follows()
        self.leader_high_watermark = high_watermark
        end_offset = self.log.log_end_offset
        if records:
            try:
                self._append_from_leader(records, log_start_offset, now_ms)
            except ApiError:
                # A log that failed to begin with a batch around its start ends below it now.
                self._limit_watermarks()
                raise
            self.traffic.replication_bytes_in += len(records)
        self._advance(
            follower.next_high_watermark(self.high_watermark, high_watermark, self.log.log_end_offset)
        )
        start = min(log_start_offset, self.high_watermark)
        if start > self.log.log_start_offset:
            self.log.delete_records_before(start)
            # Consumers may wait here with an offset that was deleted (KIP-392).
            self.wake_readers()
        return not records or self.log.log_end_offset > end_offset

    def _append_from_leader(self, records: Buffer, leader_start_offset: int, now_ms: int) -> None:
        origin = AppendOrigin.REPLICATION
        try:
            self.log.append(records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin)
        except OverlappingBatch as error:
            truncation.after_overlap(self.log, self.high_watermark, error.base_offset, leader_start_offset)
            self.log.append(records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin)
            self._limit_watermarks()

    def follow_divergence(self, epoch: int, end_offset: int) -> None:
        """Truncates where the leader says that its log parted from this one: `epoch` ended there at `end_offset`."""
        self._check_follows()
        truncation.after_divergence(self.log, self.high_watermark, epoch, end_offset)
        self._limit_watermarks()

    def follow_out_of_range(self, leader_start_offset: int, leader_end_offset: int) -> bool:
        """The leader's log covers the given offsets. Returns whether this log had to change to continue there."""
        self._check_follows()
        has_changed = truncation.after_out_of_range(
            self.log, self.high_watermark, leader_start_offset, leader_end_offset
        )
        self._limit_watermarks()
        return has_changed

    def _limit_watermarks(self) -> None:
        """After a truncation the watermarks may lie outside the log, and so may the offsets of waiting readers."""
        end_offset = self.log.log_end_offset
        self.high_watermark = min(max(self.high_watermark, self.log.log_start_offset), end_offset)
        self._durable_offset = min(self._durable_offset, end_offset)
        self.wake_readers()

    # Watermarks

    def on_durable(self, offset: int) -> None:
        """Records below `offset` count as durable on this broker: appends that wait for its disk are answered."""
        if offset > self._durable_offset:
            self._durable_offset = offset
            if self._syncing.entries:
                self._syncing.release(offset)
        self._recount()

    def _recount(self) -> None:
        """Computes the high watermark again, after a change of anything that it depends on."""
        leader = self.leader
        if leader is None:
            return
        if not leader.followers:
            # Inlined `is_alone`: every append to a topic without replicas passes here.
            self._advance(self._durable_offset)
            return
        if self.high_watermark < leader.high_watermark:
            self._stop("R1", "the high watermark fell within a leader epoch", before=leader.high_watermark)
            return
        moved = leader.next_high_watermark(
            self.high_watermark,
            committable_offset=self._durable_offset,
            log_end_offset=self.log.log_end_offset,
            min_insync_replicas=self.log.config.min_insync_replicas,
            lag_time_max_ms=self._dependencies.lag_time_max_ms(),
            broker_epoch_of=self._dependencies.broker_epoch_of,
            now_ms=self._dependencies.monotonic_ms(),
        )
        if moved > self.high_watermark:
            if not leader.is_held_by_all(moved):
                self._stop(
                    "R1", "the high watermark would pass the log's end of an in-sync replica", moved=moved
                )
                return
            self._advance(moved)
        leader.high_watermark = self.high_watermark

    def on_config_change(self) -> None:
        """min.insync.replicas may have changed."""
        self._recount()

    # The disk

    def change_log(self, log: Log) -> None:
        """Serves the same records from another log directory. No flush may run."""
        assert not self.flusher.is_running and log.log_end_offset == self.log.log_end_offset
        self.log = log
