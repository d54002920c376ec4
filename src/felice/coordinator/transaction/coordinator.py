"""The transaction coordinator of this broker: requests about transactional ids in, answers out, and markers to the
leaders of partitions.

Keeps true:  every call is answered, with Kafka's error if the id is not coordinated here, not loaded yet, or cannot be
             written. An answer shows only state that is in the log.
How:         finds the id's shard in the runtime and lets it decide; a task for each decision writes the markers and
             reports back to the shard.
Leaves:      differences between request versions, in fields and error codes, to the handlers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from felice.config import BrokerConfig
from felice.controller.features import TRANSACTION_VERSION
from felice.coordinator.hosted_shard import HostedShard
from felice.coordinator.runtime import CoordinatorRuntime, PartitionSource
from felice.coordinator.shard import Instant, Outcome, Waiter
from felice.coordinator.transaction import listing
from felice.coordinator.transaction.initialisation import InitRequest
from felice.coordinator.transaction.markers import MarkerChannel, MarkerSender
from felice.coordinator.transaction.metadata import V1, TransactionMetadata
from felice.coordinator.transaction.records import TransactionRecord, TransactionRecordCodec
from felice.coordinator.transaction.settings import TransactionSettings
from felice.coordinator.transaction.shard import Ended, Identity, Initialised, TransactionShard
from felice.env import Environment
from felice.metadata.image import ClusterImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.describe_transactions import TransactionState
from felice.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from felice.protocol.patterns import Pattern
from felice.protocol.topic_partition import TopicPartition
from felice.records.batch import NO_PRODUCER_ID

TRANSACTION_TOPIC = "__transaction_state"
NO_NODE = -1
WRITE_TIMEOUT_MS = 5000
"""Timeout of writing a change to the log. Fixed here; Kafka uses the transaction's timeout or request.timeout.ms."""

_log = logging.getLogger("felice.coordinator")

Event = Callable[[TransactionShard, Waiter[Ended], Instant], Outcome[TransactionRecord]]
Hosted = HostedShard[TransactionShard, TransactionRecord]


class TransactionCoordinator:
    """`image` returns the current cluster; `create_topic` begins to create an internal topic if it is missing."""

    def __init__(
        self,
        config: BrokerConfig,
        env: Environment,
        partitions: PartitionSource,
        image: Callable[[], ClusterImage],
        create_topic: Callable[[str], object],
        next_producer_id: Callable[[], Awaitable[int]],
        channel: MarkerChannel,
    ) -> None:
        self._config = config
        self._image = image
        self._clock = env.clock
        self._create_topic = create_topic
        self._next_producer_id = next_producer_id
        self._sender = MarkerSender(image, channel)
        self._writing: set[asyncio.Task[None]] = set()
        self._one_pattern = asyncio.Lock()
        settings = TransactionSettings.of(config)

        def level() -> int:
            return image().features.get(TRANSACTION_VERSION, 0)

        self._runtime: CoordinatorRuntime[TransactionShard, TransactionRecord] = CoordinatorRuntime(
            topic=TRANSACTION_TOPIC,
            partition_count=self._partition_count,
            new_shard=lambda: TransactionShard(settings, self, level),
            codec=TransactionRecordCodec(level),
            partitions=partitions,
            clock=env.clock,
            write_timeout_ms=WRITE_TIMEOUT_MS,
        )

    # Start and stop

    def start(self) -> None:
        """Also continues to write the markers of decisions from before the last stop."""
        self._runtime.start()

    def stop(self) -> None:
        """Answers every waiting request with COORDINATOR_NOT_AVAILABLE, and writes no more markers."""
        self._runtime.stop()
        for task in self._writing:
            task.cancel()

    def on_image(self) -> None:
        """The cluster changed: loads and closes shards by leadership."""
        self._runtime.follow_roles()

    def shards(self) -> list[TransactionShard]:
        """The transactional ids that this broker coordinates, for metrics: callers must not change them."""
        return [hosted.shard for hosted in self._runtime.loaded()]

    def _partition_count(self) -> int:
        topic = self._image().topics.get(TRANSACTION_TOPIC)
        return self._config.transaction_state_log_num_partitions if topic is None else len(topic.partitions)

    def leader_of(self, transactional_id: str) -> int:
        """The broker that coordinates an id; `NO_NODE` while the topic is being created or has no leader."""
        topic = self._image().topics.get(TRANSACTION_TOPIC)
        if topic is None:
            self._create_topic(TRANSACTION_TOPIC)
            return NO_NODE
        partition = topic.partition(self._runtime.partition_for(transactional_id))
        return NO_NODE if partition is None else partition.leader

    # Requests

    async def initialise(self, request: InitRequest) -> Initialised:
        """InitProducerId for a transactional id. Returns when the identity is in the log."""
        new_producer_id = NO_PRODUCER_ID

        def event(
            shard: TransactionShard, waiter: Waiter[Initialised], now: Instant
        ) -> Outcome[TransactionRecord]:
            return shard.initialise(request, new_producer_id, waiter, now)

        try:
            if self._runtime.hosted(request.transactional_id).shard.needs_new_producer_id(request):
                new_producer_id = await self._next_producer_id()
            # If another call came first meanwhile, this producer id is never used.
            return await self._runtime.call(request.transactional_id, event)
        except ApiError as error:
            return Initialised(ErrorCode(error.code))

    async def add_partitions(
        self, identity: Identity, partitions: frozenset[TopicPartition], client_version: int = V1
    ) -> ErrorCode:
        """AddPartitionsToTxn: adds partitions to the transaction, which begins with the first of them."""

        def event(
            shard: TransactionShard, waiter: Waiter[ErrorCode], now: Instant
        ) -> Outcome[TransactionRecord]:
            return shard.add_partitions(identity, partitions, waiter, now, client_version)

        try:
            return await self._runtime.call(identity.transactional_id, event)
        except ApiError as error:
            return ErrorCode(error.code)

    async def end(self, identity: Identity, commit: bool) -> Ended:
        """EndTxn: returns when the decision is in the log. The markers are written afterwards."""
        return await self._end(identity, lambda shard, waiter, now: shard.end(identity, commit, waiter, now))

    async def end_v2(self, identity: Identity, commit: bool) -> Ended:
        """As `end`, in the flow that raises the epoch with every end."""
        next_producer_id = NO_PRODUCER_ID
        try:
            if self._runtime.hosted(identity.transactional_id).shard.needs_next_producer_id(identity):
                next_producer_id = await self._next_producer_id()
        except ApiError as error:
            return Ended(ErrorCode(error.code))
        return await self._end(
            identity, lambda shard, waiter, now: shard.end_v2(identity, commit, next_producer_id, waiter, now)
        )

    async def _end(self, identity: Identity, event: Event) -> Ended:
        try:
            return await self._runtime.call(identity.transactional_id, event)
        except ApiError as error:
            return Ended(ErrorCode(error.code))

    def verify(self, identity: Identity, partition: TopicPartition) -> ErrorCode:
        """Whether the partition belongs to this producer's open transaction."""
        try:
            return self._runtime.hosted(identity.transactional_id).shard.verify(identity, partition)
        except ApiError as error:
            return ErrorCode(error.code)

    def describe(self, transactional_id: str) -> TransactionState:
        """One transactional id of a DescribeTransactions request."""
        try:
            return listing.describe(self._runtime.hosted(transactional_id).shard, transactional_id)
        except ApiError as error:
            return TransactionState(transactional_id=transactional_id, error_code=error.code)

    async def list(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        """Lists only the ids that this broker coordinates: a client asks every broker."""
        if request.transactional_id_pattern:
            return await self._list_by_pattern(request)
        return self._listed(request)[0]

    def _listed(self, request: ListTransactionsRequest) -> tuple[ListTransactionsResponse, Pattern | None]:
        try:
            wanted = listing.Filter.of(request)
            found = [
                row
                for hosted in self._runtime.all_loaded()
                for row in listing.passing(hosted.shard, wanted, self._clock.now_ms())
            ]
        except ApiError as error:
            return ListTransactionsResponse(error_code=error.code), None
        response = ListTransactionsResponse(
            unknown_state_filters=[*wanted.unknown_states], transaction_states=found
        )
        return response, wanted.pattern

    async def _list_by_pattern(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        """One request at a time: costly patterns share a thread, and a waiting request holds no compiled pattern."""
        async with self._one_pattern:
            response, pattern = self._listed(request)
            if pattern is not None:
                found = await listing.matching_pattern(response.transaction_states, pattern)
                response.transaction_states = found
        return response

    # Decisions

    def put(self, transactional_id: str, decided: TransactionMetadata) -> None:
        """Receives a decision that a shard has in its log: a task begins to write the markers (`Outbox`)."""
        with contextlib.suppress(ApiError):  # closed meanwhile: the next coordinator writes the markers
            hosted = self._runtime.hosted(transactional_id)
            task = asyncio.get_running_loop().create_task(
                self._write_markers(transactional_id, decided, hosted)
            )
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _write_markers(
        self, transactional_id: str, decided: TransactionMetadata, hosted: Hosted
    ) -> None:
        try:
            is_complete = await self._sender.send(decided, hosted.leader_epoch, lambda: not hosted.is_closed)
            if is_complete and not hosted.is_closed:
                hosted.run(lambda now: hosted.shard.complete(transactional_id, decided, now))
        except ApiError as error:
            _log.error(
                "the markers of a transaction cannot be written",
                extra={"transactional_id": transactional_id, "reason": str(error)},
            )
