"""Sends the accumulator's batches: finds leaders, pipelines requests, retries, and numbers idempotent batches.

Keeps true:  Every record gets exactly one result: its offset, or the error that ended it. The result comes at the
             latest when `delivery.timeout.ms` is over, also if the record is then held without metadata, waits, or is
             in a request without a response. An exception in this module gives its error to the records that it
             concerns: the batch that cannot be encoded, the batches of a request, or all waiting records. `close` gives
             a result to every record that is left.
             At most `max.in.flight` requests are in flight per broker. A partition's batches are retried in order.
             With idempotence, each batch is written once. Any gap in the sequences makes the partition start again
             in a new epoch (KIP-360). The same records are never sent under two sequences of one epoch.
             In a transaction, nothing is sent to a partition before the transaction includes it. A failed record
             fails the transaction, and the waiting batches are dropped. The coordinator assigns the new epoch.
How:         One coroutine per request. `_pump` runs on the loop whenever there may be something to send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from felice.client.error import KafkaError, error_of, kafka_error
from felice.client.model import Origin, Partition
from felice.client.net.cluster import Cluster, backoff_s
from felice.client.net.connection import Connection
from felice.client.net.requests import LAST_INIT_PRODUCER_ID, produce_request
from felice.client.net.topology import NO_LEADER
from felice.client.net.wire import ByVersion
from felice.client.options import ProducerSettings
from felice.client.produce.accumulator import Accumulator, HeldRecord
from felice.client.produce.batches import ANONYMOUS, PartitionQueue, ProducerBatch, ProducerIdentity
from felice.client.produce.counts import ProducerCounts
from felice.client.produce.transaction import Transaction
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

# With the last batch a request has less than 2 MB: Felice's broker has memory for reuse up to this size.
_REQUEST_TARGET_BYTES = 1 << 20
# Only one request opens a connection: if it fails, later requests would open the next one and overtake it.
_IN_FLIGHT_WHILE_CONNECTING = 1
_LAST_EPOCH = 32_766
# Held records that are appended before the event loop gets its turn.
_HELD_AT_ONCE = 1_000

_RENUMBERING = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


@dataclass(frozen=True, slots=True)
class Delivered:
    """A batch with its result: acknowledged, or failed with `error`. Offset and time are -1 if they are unknown."""

    batch: ProducerBatch
    error: KafkaError | None
    base_offset: int
    log_append_time_ms: int
    origin: Origin


class Sender:
    """Runs on the cluster's loop, where it calls `on_delivered` for every finished batch."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        settings: ProducerSettings,
        on_delivered: Callable[[Delivered], None],
        on_dropped: Callable[[HeldRecord, KafkaError], None],
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._settings = settings
        self._on_delivered = on_delivered
        self._on_dropped = on_dropped
        self._transaction = accumulator.transaction
        # Only for statistics: a window of samples for each topic takes memory.
        self.counts = ProducerCounts() if settings.statistics_interval_ms else None
        self.on_transaction_changed: Callable[[], None] = lambda: None
        self._log = settings.log("sender")
        self._loop = asyncio.get_running_loop()
        self._acks = settings.acks
        self._in_flight: dict[int, int] = {}
        self._paused_until: dict[int, float] = {}
        self._resolving: set[str] = set()
        self._identity: ProducerIdentity | None = None if settings.enable_idempotence else ANONYMOUS
        self._identifying = False
        self._seen_version = -1
        self._timer: asyncio.TimerHandle | None = None
        self._pumping = False
        self._closed = False

    def close(self) -> None:
        """Send nothing more. The records that are left fail with _PURGE_QUEUE and _PURGE_INFLIGHT."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.purge(in_queue=True, in_flight=True)

    def wake(self) -> None:
        """Check soon, on the loop, what can be sent."""
        if not self._pumping and not self._closed:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        if self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._send_what_is_due(self._loop.time())
        except Exception as error:  # the records that wait need a result
            self._log.exception("the sender failed")
            self._fail_everything(kafka_error(error))

    def _send_what_is_due(self, now: float) -> None:
        self._follow_topology()
        if self._transaction is not None:
            self._follow_transaction(self._transaction)
        accumulator = self._accumulator
        with accumulator.lock:
            due = accumulator.close_lingering(now)
            queues = accumulator.queues()
            unknown = sorted(accumulator.waiting_topics - self._resolving)
            expired, late = self._expire(queues, now)
        for batch in expired:
            self._finish(batch, self._too_late())
        for record in late:
            self._drop(record, self._too_late())
        for topic in unknown:
            self._resolving.add(topic)
            self._cluster.spawn(self._resolve(topic))
        if any(queue.ready for queue in queues) and self._identify():
            self._send(queues, now)
        self._schedule(due, bool(queues or accumulator.waiting_topics), now)

    def _schedule(self, due: float | None, waiting: bool, now: float) -> None:
        """Set the timer: for the end of the next linger time, and every 100 ms while batches wait."""
        later = now + 0.1 if waiting else None
        moments = [moment for moment in (due, later) if moment is not None]
        if moments and not self._pumping:
            self._timer = self._loop.call_at(min(moments), self.wake)

    def _follow_topology(self) -> None:
        topology = self._cluster.topology
        if topology.version == self._seen_version:
            return
        self._seen_version = topology.version
        for name, topic in list(self._accumulator.topics.items()):
            if topic.queues:
                self._show_partitions(name)

    def _show_partitions(self, topic: str) -> None:
        """Pass what is known of the topic to the accumulator. A topic that is unknown by now stays as it was."""
        topology = self._cluster.topology
        count = topology.partition_count(topic)
        if count:
            led = [number for number in range(count) if topology.leader(topic, number) != NO_LEADER]
            with self._accumulator.lock:
                self._accumulator.open_topic(topic, count, led)

    async def open_topic(self, topic: str, timeout_s: float) -> None:
        """Wait until the topic's partitions are known, then append its held records."""
        await self._cluster.ready_topic(topic, timeout_s)
        self._show_partitions(topic)
        left = True
        while left:
            misfits, left = self._accumulator.append_held(topic, _HELD_AT_ONCE)
            for record, misfit in misfits:
                self._drop(record, misfit)
            self.wake()
            await asyncio.sleep(0)

    def _follow_transaction(self, transaction: Transaction) -> None:
        """Use the transaction's newest identity; drop the waiting batches, retries too, if it may not send."""
        self._identity = transaction.identity
        if not transaction.may_send:
            self.purge(in_queue=True, in_flight=False)

    async def _resolve(self, topic: str) -> None:
        """Find a topic's partitions, or drop the records held for it. While no broker answers, they may expire."""
        patience_s = self._settings.topic_metadata_propagation_max_ms / 1000
        try:
            await self.open_topic(topic, patience_s)
        except Exception as error:  # after any error these records need a result
            reason = kafka_error(error)
            if reason.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                reason = error_of(KafkaError._UNKNOWN_TOPIC, topic)
            with self._accumulator.lock:
                dropped = self._accumulator.drop_topic(topic)
            for record in dropped:
                self._drop(record, reason)
        finally:
            self._resolving.discard(topic)
            self.wake()

    def _too_late(self) -> KafkaError:
        limit = f"not delivered in {self._settings.delivery_timeout_ms} ms"
        why = self._cluster.why_no_metadata
        return error_of(KafkaError._MSG_TIMED_OUT, limit if why is None else f"{limit}: {why.error.str()}")

    def _expire(
        self, queues: list[PartitionQueue], now: float
    ) -> tuple[list[ProducerBatch], list[HeldRecord]]:
        timeout_s = self._settings.delivery_timeout_ms / 1000
        if not timeout_s:
            return [], []
        expired: list[ProducerBatch] = []
        for queue in queues:
            gone = self._accumulator.expire(queue, now - timeout_s)
            queue.renumber = queue.renumber or any(batch.numbered for batch in gone)
            expired += gone
        return expired, self._accumulator.expire_held(now - timeout_s)

    def purge(self, in_queue: bool, in_flight: bool) -> None:
        """Fail the waiting batches, those in flight, or both, at once; later responses are ignored."""
        with self._accumulator.lock:
            flying = [
                (queue, batch) for queue in self._accumulator.queues() for batch in list(queue.in_flight)
            ]
            batches, held = self._accumulator.purge() if in_queue else ([], [])
        for batch in batches:
            self._finish(batch, error_of(KafkaError._PURGE_QUEUE))
        for record in held:
            self._drop(record, error_of(KafkaError._PURGE_QUEUE))
        for queue, batch in flying if in_flight else []:
            queue.in_flight.remove(batch)
            queue.renumber = queue.renumber or batch.numbered
            self._finish(batch, error_of(KafkaError._PURGE_INFLIGHT))

    # Identity

    def _identify(self) -> bool:
        """True if batches can be numbered (or need no sequence); otherwise requests a producer id."""
        if self._transaction is not None:
            return self._transaction.may_send
        if self._identity is not None:
            return True
        if not self._identifying:
            self._identifying = True
            self._cluster.spawn(self._init_producer_id())
        return False

    async def _init_producer_id(self) -> None:
        attempt = 0
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        try:
            while True:
                try:
                    response = await self._cluster.call_any(
                        ByVersion(InitProducerIdRequest, lambda version: request, LAST_INIT_PRODUCER_ID)
                    )
                    if not response.error_code:
                        self._identity = ProducerIdentity(response.producer_id, response.producer_epoch)
                        return
                    error = error_of(response.error_code, "InitProducerId")
                except Exception as raised:  # after any error the records need a result
                    error = kafka_error(raised)
                if not error.retriable():
                    self._fail_everything(error)
                    return
                await asyncio.sleep(backoff_s(attempt, 100, 1000, self._settings.env.random))
                attempt += 1
                self.wake()
        finally:
            self._identifying = False
            self.wake()

    def _fail_everything(self, error: KafkaError) -> None:
        with self._accumulator.lock:
            batches, held = self._accumulator.purge()
        for batch in batches:
            self._finish(batch, error)
        for record in held:
            self._drop(record, error)

    def _renumber(self, queue: PartitionQueue) -> None:
        """Start a partition again in an epoch that it has not used."""
        identity = self._identity
        if identity is None:
            return
        if queue.identity == identity:
            if self._transaction is not None:
                return  # the coordinator assigns the next epoch after the transaction is aborted
            if identity.epoch >= _LAST_EPOCH:
                self._identity = None
                self._identify()
                return
            identity = self._identity = ProducerIdentity(identity.producer_id, identity.epoch + 1)
        with self._accumulator.lock:
            queue.renumber_all(identity)

    # Requests

    def _send(self, queues: list[PartitionQueue], now: float) -> None:
        by_leader: dict[int, list[PartitionQueue]] = {}
        leaderless = unlisted = False
        for queue in queues:
            if not queue.ready:
                continue
            if self._transaction is not None and not self._transaction.enlist((queue.topic, queue.partition)):
                unlisted = True
                continue
            if queue.renumber and not queue.in_flight:
                self._renumber(queue)
            leader = self._cluster.topology.leader(queue.topic, queue.partition)
            if leader == NO_LEADER:
                leaderless = True
            elif queue.may_send_to(leader) and not queue.renumber:
                by_leader.setdefault(leader, []).append(queue)
        if unlisted:
            self.on_transaction_changed()
        if leaderless:
            self._cluster.refresh_soon().add_done_callback(lambda task: self.wake())
        for leader, group in by_leader.items():
            if self._paused_until.get(leader, 0.0) <= now:
                self._send_to(leader, group)

    def _send_to(self, leader: int, queues: list[PartitionQueue]) -> None:
        connection = self._cluster.open_connection(leader)
        limit = _IN_FLIGHT_WHILE_CONNECTING
        if connection is not None:
            limit = self._settings.max_in_flight_requests_per_connection
        while self._in_flight.get(leader, 0) < limit:
            batches = self._collect(leader, queues)
            if not batches:
                return
            self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
            self._cluster.spawn(self._request(leader, batches, connection))

    def _collect(
        self, leader: int, queues: list[PartitionQueue]
    ) -> list[tuple[PartitionQueue, ProducerBatch]]:
        """Take at most one batch per partition, until the request has its target size."""
        assert self._identity is not None
        batches: list[tuple[PartitionQueue, ProducerBatch]] = []
        size = 0
        for queue in queues:
            if size >= _REQUEST_TARGET_BYTES:
                break
            batch = self._take(queue, leader, self._identity)
            if batch is None:
                continue
            size += len(batch.data)
            batches.append((queue, batch))
        # Next time, partitions with fewer batches in flight come first.
        queues.sort(key=lambda queue: len(queue.in_flight))
        return batches

    def _take(self, queue: PartitionQueue, leader: int, identity: ProducerIdentity) -> ProducerBatch | None:
        """Take the queue's next batch that can be encoded, if it may be sent; those that cannot be encoded fail."""
        while True:
            with self._accumulator.lock:
                if not queue.ready or not queue.may_send_to(leader):
                    return None
                try:
                    return queue.take(identity, leader)
                except Exception as error:  # of a codec, or of the memory
                    batch, reason = queue.ready.popleft(), kafka_error(error)
                    queue.renumber = queue.renumber or batch.numbered
            self._finish(batch, reason)

    async def _request(
        self,
        leader: int,
        batches: list[tuple[PartitionQueue, ProducerBatch]],
        connection: Connection | None,
    ) -> None:
        """Send the batches over `connection`, or over a new one if None.

        If `connection` has closed by now, the request fails like the requests before it. Over a new connection it
        would overtake them.
        """
        try:
            request = self._produce_request(batches)
            connection = connection or await self._cluster.connection(leader)
            self._log.debug("broker %d: sending %d batches", leader, len(batches))
            self._count_sent(leader, [batch for _, batch in batches])
            if self._acks == 0:
                await connection.send_unanswered(request, self._cluster.timeout_s)
                rows: dict[Partition, PartitionProduceResponse] = {}
            else:
                response = await connection.call(request, self._cluster.timeout_s)
                rows = self._rows(response)
                self._throttle(leader, response.throttle_time_ms)
        except Exception as error:  # after any error these batches need a result
            reason = kafka_error(error)
            self._cluster.refresh_soon()
            for queue, batch in batches:
                self._on_failure(queue, batch, reason)
        else:
            for queue, batch in batches:
                self._settle(queue, batch, rows.get((batch.topic, batch.partition)))
        finally:
            self._in_flight[leader] -= 1
            self.wake()

    def _produce_request(self, batches: list[tuple[PartitionQueue, ProducerBatch]]) -> ByVersion:
        transaction = self._transaction
        return produce_request(
            self._cluster.topology,
            {(batch.topic, batch.partition): batch.data for _, batch in batches},
            self._acks,
            self._settings.request_timeout_ms,
            transaction.transactional_id if transaction is not None else None,
            adds_partitions=transaction is not None and transaction.implicit,
        )

    def _count_sent(self, leader: int, batches: list[ProducerBatch]) -> None:
        traffic = self._cluster.traffic_to(leader)
        now = self._loop.time()
        for batch in batches:
            if self.counts is not None:
                self.counts.on_sent(batch)
            if traffic is not None and batch.attempts > 1:
                traffic.retries += 1
            elif traffic is not None:
                traffic.internal_latency_us.add((now - batch.created) * 1e6)

    def _rows(self, response: ProduceResponse) -> dict[Partition, PartitionProduceResponse]:
        names = self._cluster.topology.names_by_id
        return {
            (topic.name or names.get(topic.topic_id, ""), row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }

    def _throttle(self, leader: int, throttle_ms: int) -> None:
        if throttle_ms > 0:
            self._paused_until[leader] = self._loop.time() + throttle_ms / 1000
            self._loop.call_later(throttle_ms / 1000, self.wake)

    # Results

    def _settle(
        self, queue: PartitionQueue, batch: ProducerBatch, row: PartitionProduceResponse | None
    ) -> None:
        try:
            self._on_row(queue, batch, row)
        except Exception as error:  # the batch, and those after it, need a result
            self._log.exception("the result of a batch for %s-%d failed", queue.topic, queue.partition)
            self._on_failure(queue, batch, kafka_error(error))

    def _on_row(
        self, queue: PartitionQueue, batch: ProducerBatch, row: PartitionProduceResponse | None
    ) -> None:
        if batch not in queue.in_flight:
            return  # purged: it has its result already
        if self._acks == 0:
            self._deliver(queue, batch, -1, -1)
        elif row is None:
            missing = f"the reply leaves out {queue.topic}-{queue.partition}"
            self._on_failure(queue, batch, error_of(KafkaError._BAD_MSG, missing, retriable=True))
        elif row.error_code == ErrorCode.NONE:
            self._deliver(queue, batch, row.base_offset, row.log_append_time_ms)
        elif row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # Written by an earlier attempt; the broker no longer remembers the offset.
            self._deliver(queue, batch, -1, -1)
        elif row.error_code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1 and not batch.whole:
            self._give_back(queue, batch, batch.split())
        else:
            leader = row.current_leader
            if leader is not None:
                self._cluster.topology.on_leader_hint(
                    queue.topic, queue.partition, leader.leader_id, leader.leader_epoch
                )
            if ErrorCode.of(row.error_code).refreshes_metadata:
                self._cluster.refresh_soon()
            self._on_failure(queue, batch, error_of(row.error_code, row.error_message))

    def _deliver(self, queue: PartitionQueue, batch: ProducerBatch, offset: int, append_time_ms: int) -> None:
        queue.in_flight.remove(batch)
        if self.counts is not None:
            self.counts.on_delivered(batch)
        self._finish(batch, None, offset, append_time_ms)

    def _give_back(self, queue: PartitionQueue, batch: ProducerBatch, again: list[ProducerBatch]) -> None:
        with self._accumulator.lock:
            queue.in_flight.remove(batch)
            queue.give_back(again)

    def _on_failure(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        if batch not in queue.in_flight:
            return
        has_wrong_number = batch.numbered and error.code() in _RENUMBERING
        renumber = has_wrong_number and self._transaction is None
        came_early = False
        if has_wrong_number:
            with self._accumulator.lock:
                is_first = queue.is_first(batch)
                # No earlier batch is missing, so the broker has lost (or never had) the partition's sequences.
                queue.renumber = queue.renumber or (renumber and is_first)
            # Otherwise an earlier batch is missing so far, which is sent again.
            came_early = not is_first and error.code() == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        now = self._loop.time()
        timeout_s = self._settings.delivery_timeout_ms / 1000
        in_time = not timeout_s or now - batch.created < timeout_s
        may_retry = error.retriable() or renumber or came_early
        if may_retry and batch.attempts <= self._settings.retries and in_time:
            self._give_back(queue, batch, [batch])
            what = f"{queue.topic}-{queue.partition}"
            self._log.debug("%s: batch is sent again: %s", what, error.str())
            leader = self._cluster.topology.leader(queue.topic, queue.partition)
            settings = self._settings
            first, limit = settings.retry_backoff_ms, settings.retry_backoff_max_ms
            wait_s = backoff_s(batch.attempts - 1, first, limit, settings.env.random)
            self._paused_until[leader] = now + wait_s
            self._loop.call_later(wait_s, self.wake)
            return
        queue.in_flight.remove(batch)
        # The batches after this one would leave a gap in the sequences.
        queue.renumber = queue.renumber or batch.numbered
        if not in_time:
            error = error_of(KafkaError._MSG_TIMED_OUT, error.str())
        what = f"{queue.topic}-{queue.partition}"
        self._log.debug("%s: %d records failed: %s", what, batch.record_count, error.str())
        self._finish(batch, error)

    def _drop(self, record: HeldRecord, error: KafkaError) -> None:
        self._fail_transaction(error, numbered=False)
        self._on_dropped(record, error)

    def _fail_transaction(self, error: KafkaError, *, numbered: bool) -> None:
        if self._transaction is not None:
            self._transaction.on_record_failed(error, numbered=numbered)
            self.on_transaction_changed()
            self.wake()

    def _finish(
        self, batch: ProducerBatch, error: KafkaError | None, offset: int = -1, append_time_ms: int = -1
    ) -> None:
        if error is not None:
            self._fail_transaction(error, numbered=batch.numbered)
        origin = Origin(batch.topic, batch.partition, latency_s=self._loop.time() - batch.created)
        self._on_delivered(Delivered(batch, error, offset, append_time_ms, origin))
