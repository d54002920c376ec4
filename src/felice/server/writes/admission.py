"""The first write of a transaction to a partition: after its coordinator agreed, and in the order of the requests.

Keeps true:  T5  a transaction writes to a partition only after its coordinator agreed, so that the partition receives
                 the marker that ends the transaction. It does not write if that marker arrived while the
                 coordinator's answer was under way.
             A producer's request waits behind earlier requests of this producer. Other producers do not wait.
How:         with transaction V2 this broker asks the coordinator to add the partition. With earlier clients it asks
             whether the client added it (KIP-890, part 1). Neither is needed where the transaction is open already.
             `channel` sends AddPartitionsToTxn to the coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Never, Protocol, TypeVar

from felice.config import BrokerConfig
from felice.coordinator.transaction.coordinator import TransactionCoordinator
from felice.coordinator.transaction.records import by_topic
from felice.coordinator.transaction.shard import Identity
from felice.dataclass import dataclass
from felice.env import Clock
from felice.metadata.watcher import Watcher
from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from felice.protocol.topic_partition import TopicPartition
from felice.records.batch import NO_PRODUCER_EPOCH
from felice.replication.partition import Partition
from felice.replication.peers import Peers, PeerUnavailable
from felice.server.configs.settings import Settings
from felice.server.writes.partition_additions import add_partitions

T = TypeVar("T")
VERSION_BETWEEN_BROKERS = 5

PartitionErrors = Mapping[TopicPartition, ErrorCode]


class CoordinatorChannel(Protocol):
    """The way to the brokers that coordinate transactional ids; raises `ApiError` where one cannot be reached."""

    async def add_partitions(
        self, transactional_id: str, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        """Adds partitions to the transaction of `transactional_id`, or verifies them (`verify_only`)."""


class TransactionCoordinators:
    """Asks the broker that coordinates a transactional id, this one or another."""

    def __init__(
        self,
        broker_id: int,
        here: TransactionCoordinator,
        peers: Peers,
        watcher: Watcher,
        settings: Settings,
        clock: Clock,
        check_session: Callable[[], None],
    ) -> None:
        self._broker_id = broker_id
        self._here = here
        self._peers = peers
        self._watcher = watcher
        self._settings = settings
        self._clock = clock
        self._check_session = check_session

    async def add_partitions(
        self, transactional_id: str, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        """Asks the coordinator in this process, or sends the request to its broker."""
        coordinator = self._here.leader_of(transactional_id)
        if coordinator == self._broker_id:
            image = self._watcher.image
            return await add_partitions(
                request, self._here, image, VERSION_BETWEEN_BROKERS, self._clock, self._check_session
            )
        timeout_s = self._settings.config.replica_socket_timeout_ms / 1000
        try:
            response: AddPartitionsToTxnResponse = await self._peers.call(
                coordinator, API.ADD_PARTITIONS_TO_TXN, request, timeout_s, lane="coordinators"
            )
        except PeerUnavailable as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        return response


@dataclass(frozen=True, slots=True)
class Flow:
    """What follows from the version of a client's request.

    `adds`: the broker adds the partitions to the transaction, because the client does not (transaction V2).
    `knows_abortable`: the client understands TRANSACTION_ABORTABLE.
    """

    adds: bool
    knows_abortable: bool


class QueuedWrite:
    """A request that waits behind earlier requests of its producer, and then for the coordinator.

    `async with queued as refusals` waits for both; `refusals` has the partitions that the coordinator refused. The
    producer's next request follows when the block ends.
    """

    def __init__(
        self,
        before: asyncio.Future[None] | None,
        refusals: Callable[[], Awaitable[PartitionErrors]],
        end: Callable[[], None],
    ) -> None:
        self._before = before
        self._refusals = refusals
        self._end = end

    def run(self, work: Coroutine[object, Never, T]) -> asyncio.Task[T]:
        """Starts the coroutine that writes. If it is cancelled before it begins, the next request follows, too."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._end())
        return task

    async def __aenter__(self) -> PartitionErrors:
        if self._before is not None:
            await asyncio.wait([self._before])
        return await self._refusals()

    async def __aexit__(self, *_: object) -> None:
        self._end()


class Admission:
    """Lets a transaction write to partitions once its coordinator agreed, one request of each producer at a time."""

    def __init__(self, channel: CoordinatorChannel, clock: Clock, config: Callable[[], BrokerConfig]) -> None:
        self._channel = channel
        self._clock = clock
        self._config = config
        # By producer id: the end of the producer's newest request that waits for the coordinator or for an earlier
        # request of the same producer.
        self._last: dict[int, asyncio.Future[None]] = {}

    def enter(self, who: Identity, partitions: Sequence[Partition], flow: Flow) -> QueuedWrite | None:
        """Returns None if the transaction may write to the partitions now, otherwise the request's place in the queue.

        The caller calls `QueuedWrite.run` before it handles the producer's next request.
        """
        must_ask = flow.adds or self._config().transaction_partition_verification_enable
        missing = must_ask and any(not _is_open(partition, who) for partition in partitions)
        before = self._last.get(who.producer_id)
        if not missing and before is None:
            return None
        asked = partitions if must_ask else ()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last[who.producer_id] = ended
        return QueuedWrite(
            before,
            refusals=lambda: self._ask(who, asked, flow),
            end=lambda: self._end(who.producer_id, ended),
        )

    def _end(self, producer_id: int, ended: asyncio.Future[None]) -> None:
        if not ended.done():
            ended.set_result(None)
        if self._last.get(producer_id) is ended:
            del self._last[producer_id]

    async def _ask(self, who: Identity, partitions: Sequence[Partition], flow: Flow) -> PartitionErrors:
        """Asks the coordinator, and with V2 waits a little if it is still ending the producer's last transaction.

        An agreement for a partition is void once a marker arrived there: the coordinator may have agreed before it
        sent the marker, and no marker would end what is written now.
        """
        config = self._config()
        deadline = self._clock.monotonic() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        # A partition that has seen a later epoch knows without the coordinator that the producer is fenced.
        refusals = {
            _where(partition): ErrorCode.INVALID_PRODUCER_EPOCH
            for partition in partitions
            if _last_epoch(partition, who) > who.epoch
        }
        agreed: dict[TopicPartition, int] = {}
        while True:
            seen = {_where(partition): _markers_seen(partition, who) for partition in partitions}
            missing = [
                _where(partition)
                for partition in partitions
                if not _is_open(partition, who) and _where(partition) not in refusals
                if agreed.get(_where(partition)) != seen[_where(partition)]
            ]
            if not missing:
                return refusals
            refused = await self._ask_once(who, missing, flow)
            is_concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in refused.values()
            if flow.adds and is_concurrent and self._clock.monotonic() < deadline:
                await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)
            else:
                refusals |= refused
                agreed |= {where: seen[where] for where in missing}

    async def _ask_once(self, who: Identity, wanted: Sequence[TopicPartition], flow: Flow) -> PartitionErrors:
        asked = AddPartitionsToTxnTransaction(
            transactional_id=who.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            verify_only=not flow.adds,
            topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in by_topic(wanted).items()
            ],
        )
        try:
            request = AddPartitionsToTxnRequest(transactions=[asked])
            response = await self._channel.add_partitions(who.transactional_id, request)
        except ApiError as error:
            return dict.fromkeys(wanted, ErrorCode(error.code))
        if response.error_code != ErrorCode.NONE:
            return dict.fromkeys(wanted, ErrorCode(response.error_code))
        return {
            TopicPartition(topic.name, row.partition_index): _as_write_error(row.partition_error_code, flow)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for row in topic.results_by_partition
            if row.partition_error_code != ErrorCode.NONE
        }


class Agreement:
    """The partitions to which a transaction may write, because its coordinator agreed.

    After `watch_markers` the agreement is void for a partition where a marker arrives: no further marker would end what
    the transaction wrote there after it. A caller that writes in several steps of the event loop must watch.
    """

    __slots__ = ("_markers", "_partitions", "_refusals", "_who")

    def __init__(
        self,
        who: Identity | None = None,
        partitions: Mapping[TopicPartition, Partition] = MappingProxyType({}),
        refusals: PartitionErrors = MappingProxyType({}),
    ) -> None:
        self._who = who
        self._partitions = partitions
        self._refusals = refusals
        self._markers: Mapping[TopicPartition, int] | None = None

    def watch_markers(self) -> None:
        """Notes the markers that the partitions have seen."""
        self._markers = {where: self._markers_at(where) for where in self._partitions}

    def verdict(self, where: TopicPartition) -> ErrorCode:
        """NONE, or why the transaction may not write to the partition.

        NOT_LEADER_OR_FOLLOWER for a partition that was not here when the coordinator was asked.
        """
        if where in self._refusals:
            return self._refusals[where]
        if where not in self._partitions:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._markers is not None and self._markers_at(where) != self._markers[where]:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def _markers_at(self, where: TopicPartition) -> int:
        assert self._who is not None
        return _markers_seen(self._partitions[where], self._who)


def _where(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _markers_seen(partition: Partition, who: Identity) -> int:
    state = partition.log.producers.get(who.producer_id)
    return 0 if state is None else state.markers_seen


def _last_epoch(partition: Partition, who: Identity) -> int:
    state = partition.log.producers.get(who.producer_id)
    return NO_PRODUCER_EPOCH if state is None else state.epoch


def _is_open(partition: Partition, who: Identity) -> bool:
    """Whether the transaction has written to the partition; then its coordinator knows the partition."""
    state = partition.log.producers.get(who.producer_id)
    return state is not None and state.has_open_transaction and state.epoch == who.epoch


def _as_write_error(code: int, flow: Flow) -> ErrorCode:
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not flow.knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode(code)
