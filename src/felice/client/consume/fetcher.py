"""Fetches ahead of the application, with at most two requests in flight per broker.

The first request fetches all partitions that have room in the queue. While it waits, a second request, on a connection
of its own, may fetch the partitions that got room, were assigned or were moved by a seek since.

Keeps true:  A partition is fetched in order from its position, and only while its buffered data, and the whole queue,
             are below their limits. A partition without a start offset gets one: the committed offset, otherwise the
             one that `auto.offset.reset` names. An out-of-range offset is reset only after all data fetched before
             it was delivered, and only if the leader reports it.
Leaves:      decoding to `delivery`; the assignment to `subscription`; the choice of a replica to `read_replicas`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias

from felice.client.consume.delivery import Delivery, Fetched
from felice.client.consume.isolation import READ_COMMITTED, visible_batches, whole_batches
from felice.client.consume.offsets import (
    EARLIEST,
    LATEST,
    Found,
    ask_leaders,
    list_offsets,
)
from felice.client.consume.subscription import AssignedPartition, Lease, Subscription
from felice.client.error import KafkaError, KafkaException, error_of, failure, kafka_error
from felice.client.group.requests import CommittedOffset
from felice.client.model import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_TAIL_BASE,
    OffsetAndTimestamp,
    Partition,
    error_message,
)
from felice.client.net.cluster import Cluster
from felice.client.net.limits import limited
from felice.client.net.read_replicas import ReadReplicas
from felice.client.net.requests import fetch_request
from felice.client.net.topology import NO_LEADER
from felice.client.options import ConsumerSettings
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import FetchResponse, PartitionData


class Asked(NamedTuple):
    """A partition of a request, with its lease and its fetch offset at that time."""

    partition: AssignedPartition
    lease: Lease
    offset: int
    is_at_leader: bool

    @property
    def is_stale(self) -> bool:
        """Whether the partition was revoked, moved by a seek, or advanced by another response since the request.

        When the broker of a partition changes, both brokers may be asked. A response lists the aborted transactions
        from the requested offset on, so it cannot be used from a later offset.
        """
        return self.partition.lease is not self.lease or self.partition.fetch_offset != self.offset


class FindCommitted(Protocol):
    """A function that looks up committed offsets of the group."""

    async def __call__(
        self, keys: Sequence[Partition], *, waits_for_all: bool
    ) -> Mapping[Partition, CommittedOffset]:
        """Return the offsets. `waits_for_all` repeats the request until no row has an error, or the time is over."""


_Ask: TypeAlias = Callable[[Cluster, Mapping[Partition, int], int], Awaitable[Found]]

# A broker answers the requests of one connection in order: a second request must not wait behind a long poll.
_LANES = ("fetch", "fetch-2")

# While some partitions are full, the second request waits only this long: a drained partition must soon be fetched.
_BUSY_WAIT_MS = 50
_NEVER = float("inf")


class Fetcher:
    """Runs on the event loop. Call `wake` after every change that may allow a fetch."""

    def __init__(
        self, cluster: Cluster, subscription: Subscription, delivery: Delivery, settings: ConsumerSettings
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._delivery = delivery
        self._settings = settings
        self._log = settings.log("fetch")
        self._loop = asyncio.get_running_loop()
        self._isolation = settings.isolation_level
        self._replicas = ReadReplicas(
            cluster.topology, settings.client_rack, settings.metadata_max_age_ms / 1000
        )
        self._under_way: dict[tuple[int, str], set[Lease]] = {}
        self._resolving: set[AssignedPartition] = set()
        self._complained: set[str] = set()
        self._waking = False
        self._closed = False
        self._retry: asyncio.TimerHandle | None = None
        self.find_committed: FindCommitted | None = None
        """Looks up committed offsets; None without a group."""
        self.starved = False
        """True if a full queue prevents a fetch: the application must call `wake` after it takes messages."""

    def wake(self) -> None:
        """Check soon, on the loop, what can be fetched."""
        if not self._waking and not self._closed:
            self._waking = True
            self._loop.call_soon(self._pump)

    def close(self) -> None:
        """Stop fetching. Does not wait for requests in flight."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()

    def _wake_in(self, seconds: float) -> None:
        if self._retry is None or self._retry.when() <= self._loop.time() or self._retry.cancelled():
            self._retry = self._loop.call_later(seconds, self.wake)

    def _pump(self) -> None:
        self._waking = False
        if self._closed:
            return
        partitions = self._subscription.assigned.values()
        lost = [p for p in partitions if p.fetch_offset is None and p not in self._resolving]
        if lost:
            self._resolving.update(lost)
            self._cluster.spawn(self._resolve(lost))
        for node_id, group in self._by_broker(partitions).items():
            self._fetch_what_is_not_under_way(node_id, group)

    def _fetch_what_is_not_under_way(self, node_id: int, group: list[AssignedPartition]) -> None:
        waiting = [self._under_way.get((node_id, lane), set()) for lane in _LANES]
        left = [partition for partition in group if not any(partition.lease in leases for leases in waiting)]
        free = [lane for lane, leases in zip(_LANES, waiting, strict=True) if not leases]
        if left and free:
            self._under_way[node_id, free[0]] = {partition.lease for partition in left}
            # Capture the leases now: the task starts later, and a partition may be revoked until then.
            leader = self._cluster.topology.leader
            asked = {
                one.key: Asked(one, one.lease, one.fetch_offset, leader(*one.key) == node_id)
                for one in left
                if one.fetch_offset is not None
            }
            self._cluster.spawn(self._fetch(node_id, free[0], asked))

    def _by_broker(self, partitions: Iterable[AssignedPartition]) -> dict[int, list[AssignedPartition]]:
        """Group the partitions that may be fetched now by the broker that serves them."""
        served: dict[int, list[AssignedPartition]] = {}
        now = self._loop.time()
        # Set before the loop: if the application takes messages during it, the application must wake the fetcher.
        self.starved = True
        starved = leaderless = False
        for partition in partitions:
            if not partition.fetchable:
                continue
            if self._is_full(partition):
                starved = True
            elif partition.not_before > now:
                if partition.not_before != _NEVER:
                    self._wake_in(partition.not_before - now)
            else:
                node_id = self._replicas.node_of(partition.key, now)
                leaderless = leaderless or node_id == NO_LEADER
                if node_id != NO_LEADER:
                    served.setdefault(node_id, []).append(partition)
        self.starved = starved
        if leaderless:
            self._report_missing(partitions)
            self._cluster.refresh_soon().add_done_callback(lambda task: self.wake())
        return served

    def _report_missing(self, partitions: Iterable[AssignedPartition]) -> None:
        """Report each assigned topic that does not exist, once."""
        errors = self._cluster.topology.topic_errors
        for topic in {partition.topic for partition in partitions} & errors.keys() - self._complained:
            if errors[topic] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._complained.add(topic)
                self._delivery.put(error_message(error_of(errors[topic], topic), topic))

    def _is_full(self, partition: AssignedPartition) -> bool:
        settings, lease = self._settings, partition.lease
        if lease.put_bytes == lease.taken_bytes:
            return False
        return bool(
            lease.buffered_bytes >= settings.max_partition_fetch_bytes
            or lease.buffered_records >= settings.queued_min_messages
            or self._delivery.buffered_bytes >= settings.queued_max_messages_kbytes * 1024
        )

    async def _fetch(self, node_id: int, lane: str, asked: dict[Partition, Asked]) -> None:
        settings = self._settings
        wait_ms = settings.fetch_wait_max_ms
        if self.starved and lane != _LANES[0]:
            wait_ms = min(wait_ms, _BUSY_WAIT_MS)
        request = fetch_request(
            self._cluster.topology,
            {key: one.offset for key, one in asked.items()},
            max_wait_ms=wait_ms,
            max_bytes=settings.fetch_max_bytes,
            partition_max_bytes=settings.max_partition_fetch_bytes,
            isolation_level=self._isolation,
            min_bytes=settings.fetch_min_bytes,
            rack_id=self._replicas.rack_for(asked, self._loop.time()),
        )
        try:
            timeout_s = self._cluster.timeout_s + wait_ms / 1000
            response = await self._cluster.call(node_id, request, purpose=lane, timeout_s=timeout_s)
            if response.error_code:
                raise KafkaException(error_of(response.error_code))
            self._log.debug("broker %d: fetched from %d partitions", node_id, len(asked))
            self._take(response, asked)
        except KafkaException as error:
            self._on_broken(list(asked.values()), error)
        finally:
            del self._under_way[node_id, lane]
            self.wake()

    def _on_broken(self, group: list[Asked], error: KafkaException) -> None:
        """Back off after a failed request, and refresh the metadata to find the leaders."""
        self._log.debug("fetching from %d partitions failed: %s", len(group), error.error.str())
        until = self._loop.time() + self._settings.fetch_error_backoff_ms / 1000
        for asked in group:
            asked.partition.not_before = until
            if not asked.is_at_leader:
                self._replicas.leave(asked.partition.key, self._loop.time())
        self._cluster.refresh_soon()
        if not error.error.retriable():
            self._delivery.put(error_message(error.error))

    def _take(self, response: FetchResponse, asked: dict[Partition, Asked]) -> None:
        names = self._cluster.topology.names_by_id
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for row in topic.partitions:
                one = asked.get((name, row.partition_index))
                if one is not None and not one.is_stale:
                    self._take_row(one, row)

    def _take_row(self, asked: Asked, row: PartitionData) -> None:
        partition = asked.partition
        if row.error_code and not asked.is_at_leader:
            self._on_error_of_replica(partition, row)
        elif row.error_code:
            self._on_error(partition, row)
        else:
            if not asked.is_at_leader:
                self._replicas.answered(partition.key)
            if row.preferred_read_replica >= 0:
                self._follow(partition, row.preferred_read_replica)
            self._on_records(partition, row)

    def _follow(self, partition: AssignedPartition, node_id: int) -> None:
        if not self._replicas.follow(partition.key, node_id, self._loop.time()):
            self._log.debug(
                "%s-%d: broker %d is not an available replica in the metadata", *partition.key, node_id
            )
            self._cluster.refresh_soon()

    def _on_error_of_replica(self, partition: AssignedPartition, row: PartitionData) -> None:
        """Return to the leader: a replica may lag behind it, so its error says nothing about the partition."""
        self._log.debug("%s-%d: the replica answered with error %d", *partition.key, row.error_code)
        self._replicas.leave(partition.key, self._loop.time())
        self._learn_leader(partition, row)

    def _on_records(self, partition: AssignedPartition, row: PartitionData) -> None:
        partition.high_watermark = row.high_watermark
        partition.log_start_offset = row.log_start_offset
        records = memoryview(row.records) if row.records is not None else memoryview(b"")
        begin = partition.fetch_offset or 0
        try:
            headers = [header for header in whole_batches(records) if header.next_offset > begin]
            aborted = row.aborted_transactions if self._isolation == READ_COMMITTED else None
            visible = list(visible_batches(records, headers, aborted))
        except Exception as error:
            self._delivery.put(Fetched(partition, memoryview(b""), [], begin, kafka_error(error)))
            self._back_off(partition)
            return
        if headers:
            partition.fetch_offset = headers[-1].next_offset
            self._delivery.put(Fetched(partition, records, visible, partition.fetch_offset))
        end = row.last_stable_offset if self._isolation == READ_COMMITTED else row.high_watermark
        self._report_end(partition, end)

    def _report_end(self, partition: AssignedPartition, end: int) -> None:
        offset = partition.fetch_offset
        if not self._settings.enable_partition_eof or offset is None or offset < end:
            return
        if partition.eof_reported_at != offset:
            partition.eof_reported_at = offset
            eof = error_of(KafkaError._PARTITION_EOF)
            self._delivery.put(Fetched(partition, memoryview(b""), [], offset, eof))

    def _on_error(self, partition: AssignedPartition, row: PartitionData) -> None:
        code = row.error_code
        where = f"{partition.topic}-{partition.partition}"
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if partition.lease.buffered_bytes or partition.place.position != partition.fetch_offset:
                self._back_off(partition)
            else:
                self._reset(partition, f"{where}: offset {partition.fetch_offset} is out of range")
            return
        self._learn_leader(partition, row)
        if not ErrorCode.of(code).retriable or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._delivery.put(
                Fetched(partition, memoryview(b""), [], partition.fetch_offset or 0, error_of(code, where))
            )
        self._back_off(partition)

    def _learn_leader(self, partition: AssignedPartition, row: PartitionData) -> None:
        leader, code = row.current_leader, row.error_code
        if leader is not None:
            self._cluster.topology.on_leader_hint(*partition.key, leader.leader_id, leader.leader_epoch)
        if ErrorCode.of(code).refreshes_metadata or code == ErrorCode.UNKNOWN_LEADER_EPOCH:
            self._cluster.refresh_soon()

    def _back_off(self, partition: AssignedPartition) -> None:
        partition.not_before = self._loop.time() + self._settings.fetch_error_backoff_ms / 1000
        self._wake_in(self._settings.fetch_error_backoff_ms / 1000)

    # Finding the start offset

    def _reset(self, partition: AssignedPartition, why: str) -> None:
        policy = self._settings.auto_offset_reset
        if policy == "error":
            error = error_of(KafkaError._AUTO_OFFSET_RESET, why)
            self._delivery.put(Fetched(partition, memoryview(b""), [], partition.fetch_offset or 0, error))
            partition.not_before = _NEVER
            return
        partition.seek(OFFSET_BEGINNING if policy == "earliest" else OFFSET_END)
        self.wake()

    async def _resolve(self, partitions: list[AssignedPartition]) -> None:
        """Look up start offsets. No partition waits for another one; failed lookups are retried."""
        leases = {partition: partition.lease for partition in partitions}
        try:
            async with limited(self._cluster.timeout_s, "start offsets: no answer"):
                await self._resolve_all(partitions, leases)
        except KafkaException as error:
            if not error.error.retriable():
                self._delivery.put(error_message(error.error))
            await asyncio.sleep(self._settings.retry_backoff_max_ms / 1000)
        finally:
            self._release(partitions)

    def _release(self, partitions: Iterable[AssignedPartition]) -> None:
        """The lookup of these partitions is over: they are fetched, or looked up again."""
        self._resolving.difference_update(partitions)
        self.wake()

    async def _release_later(self, partitions: Iterable[AssignedPartition]) -> None:
        await asyncio.sleep(self._settings.retry_backoff_max_ms / 1000)
        self._release(partitions)

    async def _resolve_all(
        self, partitions: list[AssignedPartition], leases: dict[AssignedPartition, Lease]
    ) -> None:
        logical = {p: p.start for p in partitions if _is_of_the_log(p.start)}
        stored = [p for p in partitions if p not in logical]
        unknown: list[AssignedPartition] = []
        if stored and self.find_committed is not None:
            unknown = await self._resolve_committed(stored, leases)
            stored = [p for p in stored if p.fetch_offset is None and p not in unknown]
        for partition in stored:
            if partition.lease is leases[partition]:
                self._no_committed(partition, logical)
        lookups = [self._resolve_logical(logical, leases)]
        if unknown:
            lookups.append(self._release_later(unknown))
        await asyncio.gather(*lookups)

    def _no_committed(self, partition: AssignedPartition, logical: dict[AssignedPartition, int]) -> None:
        policy = self._settings.auto_offset_reset
        if policy == "error":
            why = f"{partition.topic}-{partition.partition} has no committed offset"
            error = error_of(KafkaError._AUTO_OFFSET_RESET, why)
            self._delivery.put(Fetched(partition, memoryview(b""), [], OFFSET_INVALID, error))
            partition.begin_at(0)
            partition.not_before = _NEVER
        else:
            logical[partition] = OFFSET_BEGINNING if policy == "earliest" else OFFSET_END

    async def _resolve_committed(
        self, partitions: list[AssignedPartition], leases: dict[AssignedPartition, Lease]
    ) -> list[AssignedPartition]:
        """Begin at the committed offsets. Returns the partitions whose offset the coordinator cannot tell for now."""
        assert self.find_committed is not None
        found = await self.find_committed([partition.key for partition in partitions], waits_for_all=False)
        failed: KafkaException | None = None
        unknown = []
        for partition in partitions:
            committed = found.get(partition.key)
            if committed is not None and committed.error_code:
                # The offset is unknown, which does not mean "none": a reset would skip or repeat records.
                unknown.append(partition)
                what = f"committed offset of {partition.topic}-{partition.partition}"
                failed = failed or failure(committed.error_code, what)
            elif committed is not None and committed.offset >= 0 and _awaits(partition, leases):
                partition.begin_at(committed.offset)
                partition.committed = committed.offset
        self._release(partition for partition in partitions if partition.fetch_offset is not None)
        if failed is not None and not failed.error.retriable():
            self._delivery.put(error_message(failed.error))
        return unknown

    async def _resolve_logical(
        self, wanted: dict[AssignedPartition, int], leases: dict[AssignedPartition, Lease]
    ) -> None:
        """Look the offsets up at the leaders, all at the same time. Those that have no leader are left out."""
        if not wanted:
            return
        topology = self._cluster.topology
        if unknown := {p.topic for p in wanted if not topology.partition_count(p.topic)}:
            await self._cluster.refresh(sorted(unknown))
        led: dict[int, dict[AssignedPartition, int]] = {}
        missing: dict[AssignedPartition, int] = {}
        for partition, start in wanted.items():
            if topology.partition(*partition.key) is None:
                missing[partition] = start
            else:
                led.setdefault(topology.leader(*partition.key), {})[partition] = start
        leaderless = led.pop(NO_LEADER, {})
        lookups = [self._resolve_at_leader(group, leases) for group in led.values()]
        if leaderless:
            self._cluster.refresh_soon()
            lookups.append(self._release_later(leaderless))
        if missing:
            lookups.append(self._resolve_missing(missing, leases))
        await asyncio.gather(*lookups)

    async def _resolve_at_leader(
        self, wanted: dict[AssignedPartition, int], leases: dict[AssignedPartition, Lease]
    ) -> None:
        found = await self._find_logical({p.key: start for p, start in wanted.items()}, ask_leaders)
        self._begin(wanted, leases, found, tells_of=lambda error: not error.retriable())
        if any(isinstance(answer, KafkaError) for answer in found.values()):
            self._cluster.refresh_soon()
            await asyncio.sleep(self._settings.retry_backoff_max_ms / 1000)
        self._release(wanted)

    async def _resolve_missing(
        self, wanted: dict[AssignedPartition, int], leases: dict[AssignedPartition, Lease]
    ) -> None:
        """Partitions that are not in the metadata: the application is told if they do not appear in time."""
        found = await self._find_logical({p.key: start for p, start in wanted.items()}, list_offsets)
        self._begin(wanted, leases, found, tells_of=lambda error: True)

    def _begin(
        self,
        wanted: dict[AssignedPartition, int],
        leases: dict[AssignedPartition, Lease],
        found: Found,
        tells_of: Callable[[KafkaError], bool],
    ) -> None:
        for partition in wanted:
            answer = found.get(partition.key)
            if isinstance(answer, OffsetAndTimestamp):
                if _awaits(partition, leases):
                    partition.begin_at(answer.offset)
            elif answer is not None and tells_of(answer):
                self._delivery.put(error_message(answer, partition.topic, partition.partition))
        self._release(partition for partition in wanted if partition.fetch_offset is not None)

    async def _find_logical(self, wanted: dict[Partition, int], ask: _Ask) -> Found:
        """Look up the first offset, the end, or an offset N records before the end (not below the first)."""
        times = {key: EARLIEST if start == OFFSET_BEGINNING else LATEST for key, start in wanted.items()}
        found = await ask(self._cluster, times, self._isolation)
        tails = [key for key, start in wanted.items() if start < OFFSET_TAIL_BASE]
        if tails:
            firsts = await ask(self._cluster, dict.fromkeys(tails, EARLIEST), self._isolation)
            for key in tails:
                found[key] = _before_the_end(found[key], firsts[key], OFFSET_TAIL_BASE - wanted[key])
        return found


def _awaits(partition: AssignedPartition, leases: dict[AssignedPartition, Lease]) -> bool:
    """Whether the partition still needs the start offset that was looked up for it."""
    return partition.lease is leases[partition] and partition.fetch_offset is None


def _is_of_the_log(start: int) -> bool:
    return start in (OFFSET_BEGINNING, OFFSET_END) or start < OFFSET_TAIL_BASE


def _before_the_end(
    end: OffsetAndTimestamp | KafkaError, first: OffsetAndTimestamp | KafkaError, records: int
) -> OffsetAndTimestamp | KafkaError:
    if isinstance(end, KafkaError):
        return end
    if isinstance(first, KafkaError):
        return first
    return replace(end, offset=max(first.offset, end.offset - records))
