"""Executes the steps that `transaction` decides: sends requests to coordinators, backs off, and lets callers wait.

Keeps true:  One request of the transaction is in flight at a time: responses arrive in the order of requests.
             A caller that times out stops nothing: the work continues, and the call may be made again. A request
             without a response is repeated to the current coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from felice.client.error import KafkaError, failure, kafka_error
from felice.client.group.requests import CommittedOffset
from felice.client.model import ConsumerGroupMetadata, Partition
from felice.client.net.cluster import Cluster, backoff_s
from felice.client.net.connection import Connection
from felice.client.net.limits import limited
from felice.client.net.requests import LAST_INIT_PRODUCER_ID, ProducerFields, by_topic
from felice.client.net.wire import BrokerVersions, ByVersion
from felice.client.options import ProducerSettings
from felice.client.produce.batches import ANONYMOUS, ProducerIdentity
from felice.client.produce.sender import Sender
from felice.client.produce.transaction import (
    AddOffsets,
    AddPartitions,
    AfterResponse,
    CommitOffsets,
    EndTxn,
    InitProducerId,
    State,
    Step,
    Transaction,
)
from felice.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from felice.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from felice.protocol.messages.find_coordinator import GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE
from felice.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

_PURPOSE = "transactions"
_FEATURE = "transaction.version"
_IMPLICIT_LEVEL = 2
_RESUMING_INIT = 3
"""The first version of InitProducerId with which a known producer gets a new epoch (KIP-360)."""
_LAST_EXPLICIT_ADD = 3
_MEMBER_OFFSETS = 3
_LAST_EXPLICIT = {EndTxnRequest: 4, TxnOffsetCommitRequest: 4}
# The coordinator completes a transaction in the background, mostly in milliseconds; the next transaction waits for it.
_BACKOFF_FIRST_MS, _BACKOFF_LIMIT_MS = 20, 500
_CALL_AGAIN = "; call it again"


_Response: TypeAlias = (
    InitProducerIdResponse
    | AddPartitionsToTxnResponse
    | AddOffsetsToTxnResponse
    | TxnOffsetCommitResponse
    | EndTxnResponse
)


class Transactor:
    """Runs on the cluster's loop, beside the sender."""

    def __init__(
        self, cluster: Cluster, sender: Sender, transaction: Transaction, settings: ProducerSettings
    ) -> None:
        self.transaction = transaction
        self._cluster = cluster
        self._sender = sender
        self._timeout_ms = settings.transaction_timeout_ms
        self._random = settings.env.random
        self._log = settings.log("transactions")
        self._driver: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        sender.on_transaction_changed = self.wake

    # Called by the application

    async def init(self, timeout_s: float | None) -> None:
        """Get a producer id, and fence the previous producer with this transactional id."""
        # The transaction of a previous producer with this id may have to time out first.
        await self._call("init_transactions", timeout_s, 2 * self._timeout_ms)

    async def begin(self) -> None:
        """Begin a transaction."""
        self.transaction.call("begin_transaction")

    async def send_offsets(
        self,
        offsets: Mapping[Partition, CommittedOffset],
        group: ConsumerGroupMetadata,
        timeout_s: float | None,
    ) -> None:
        """Commit the group's offsets as part of the transaction."""
        if not isinstance(group, ConsumerGroupMetadata):
            raise TypeError(f"expected consumer_group_metadata(), got {type(group).__name__}")
        if not group.group_id:
            raise failure(KafkaError._INVALID_ARG, 'the consumer has no "group.id"')
        self.transaction.call("send_offsets_to_transaction")
        if offsets:
            self.transaction.send_offsets(CommitOffsets(tuple(offsets.items()), group))
            await self._outcome("send_offsets_to_transaction", timeout_s, self._timeout_ms)

    async def start_ending(self, name: str) -> None:
        """Refuse new records from now on. Call `finish_ending` when every record has its result."""
        self.transaction.call(name)
        self._sender.wake()

    async def finish_ending(self, name: str, timeout_s: float | None) -> None:
        """Commit or abort, and wait for the coordinator's response."""
        if self.transaction.state in (State.COMMITTING, State.ABORTING) or self.transaction.is_epoch_in_doubt:
            self.transaction.on_drained()
        await self._outcome(name, timeout_s, self._timeout_ms)

    def time_limit_s(self, timeout_s: float | None) -> float:
        """Return the time limit of a call; the default if it is None or negative."""
        return self._timeout_ms / 1000 if timeout_s is None or timeout_s < 0 else timeout_s

    async def _call(self, name: str, timeout_s: float | None, default_ms: int) -> None:
        self.transaction.call(name)
        await self._outcome(name, timeout_s, default_ms)

    async def _outcome(self, name: str, timeout_s: float | None, default_ms: int) -> None:
        self.wake()
        limit_s = default_ms / 1000 if timeout_s is None or timeout_s < 0 else timeout_s
        async with limited(limit_s, f"{name}: not done", hint=_CALL_AGAIN):
            while not self.transaction.outcome():
                await self._changed.wait()

    # Requests to the coordinators

    def wake(self) -> None:
        """Check for a next step, and wake the callers that wait for a result."""
        if self._driver is None or self._driver.done():
            self._driver = self._cluster.spawn(self._drive())
        self._notify_callers()

    def _notify_callers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _drive(self) -> None:
        attempt = 0
        while (step := self.transaction.next_step()) is not None:
            what_next = await self._take(step)
            self._log.debug("%s: %s, then %s", step, self.transaction.state.name, what_next.name)
            self._sender.wake()
            self._notify_callers()
            if what_next is AfterResponse.GO_ON:
                attempt = 0
                continue
            if what_next is AfterResponse.FIND:
                self._cluster.forget_coordinator(*self._coordinator_of(step))
            await asyncio.sleep(backoff_s(attempt, _BACKOFF_FIRST_MS, _BACKOFF_LIMIT_MS, self._random))
            attempt += 1
        self._notify_callers()

    async def _take(self, step: Step) -> AfterResponse:
        try:
            node_id = await self._cluster.coordinator(
                self._coordinator_of(step)[0], self._cluster.timeout_s, self._coordinator_of(step)[1]
            )
            connection = await self._cluster.connection(node_id, _PURPOSE)
            answer = await connection.call(self._request(step), self._cluster.timeout_s)
        except Exception as error:  # after any error the waiting callers need a result
            return self.transaction.on_failure(step, kafka_error(error))
        return self._on_answer(step, answer, connection)

    def _on_answer(self, step: Step, answer: _Response, connection: Connection) -> AfterResponse:
        if isinstance(answer, InitProducerIdResponse) and not answer.error_code:
            self.transaction.implicit = _is_implicit(connection.versions)
        identity = None
        if isinstance(answer, InitProducerIdResponse | EndTxnResponse) and answer.producer_id >= 0:
            identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        return self.transaction.on_response(step, _codes(answer), identity)

    def _coordinator_of(self, step: Step) -> tuple[str, int]:
        if isinstance(step, CommitOffsets):
            return step.group.group_id, GROUP_KEY_TYPE
        return self.transaction.transactional_id, TRANSACTION_KEY_TYPE

    # Requests

    def _request(self, step: Step) -> object:
        match step:
            case InitProducerId(known):
                return self._init_request(known)
            case AddPartitions(partitions):
                return self._add_partitions_request(partitions)
            case AddOffsets(group_id):
                return AddOffsetsToTxnRequest(**self._producer(), group_id=group_id)
            case CommitOffsets(offsets, group):
                return self._commit_request(dict(offsets), group)
            case EndTxn(committed):
                request = EndTxnRequest(**self._producer(), committed=committed)
                return self._versioned(EndTxnRequest, lambda version: request)

    def _producer(self) -> ProducerFields:
        identity = self.transaction.identity
        return {
            "transactional_id": self.transaction.transactional_id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
        }

    def _init_request(self, known: ProducerIdentity) -> ByVersion:
        def build(version: int) -> InitProducerIdRequest:
            if known is not ANONYMOUS and version < _RESUMING_INIT:
                raise failure(
                    KafkaError._UNSUPPORTED_FEATURE,
                    "the broker is too old to go on after this failure (KIP-360): make a new producer",
                )
            return InitProducerIdRequest(
                transactional_id=self.transaction.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=known.producer_id,
                producer_epoch=known.epoch,
            )

        return ByVersion(InitProducerIdRequest, build, LAST_INIT_PRODUCER_ID)

    def _add_partitions_request(self, partitions: tuple[Partition, ...]) -> ByVersion:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transaction.transactional_id,
            v3_and_below_producer_id=self.transaction.identity.producer_id,
            v3_and_below_producer_epoch=self.transaction.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                for topic, numbers in by_topic(partitions).items()
            ],
        )
        return ByVersion(AddPartitionsToTxnRequest, lambda version: request, _LAST_EXPLICIT_ADD)

    def _commit_request(
        self, offsets: Mapping[Partition, CommittedOffset], group: ConsumerGroupMetadata
    ) -> ByVersion:
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[_offset_row(number, offsets[topic, number]) for number in numbers],
            )
            for topic, numbers in by_topic(offsets).items()
        ]

        def build(version: int) -> TxnOffsetCommitRequest:
            if version < _MEMBER_OFFSETS and group.generation_id >= 0:
                raise failure(
                    KafkaError._UNSUPPORTED_FEATURE,
                    "the broker is too old to check who commits offsets in a transaction (KIP-447)",
                )
            return TxnOffsetCommitRequest(
                **self._producer(),
                group_id=group.group_id,
                generation_id=group.generation_id,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
                topics=topics,
            )

        return self._versioned(TxnOffsetCommitRequest, build)

    def _versioned(self, request_type: type, build: Callable[[int], object]) -> ByVersion:
        """Limit the version to this transaction's kind: V1 and V2 requests must not mix in one transaction."""
        last_explicit = _LAST_EXPLICIT[request_type]
        if not self.transaction.implicit:
            return ByVersion(request_type, build, last_explicit)

        def checked(version: int) -> object:
            if version <= last_explicit:
                what = f"the cluster's {_FEATURE} is below {_IMPLICIT_LEVEL} again; create a new producer"
                raise failure(KafkaError._UNSUPPORTED_FEATURE, what)
            return build(version)

        return ByVersion(request_type, checked)


def timed_out(name: str, limit_s: float) -> Exception:
    """The error of a call that reached its time limit; the call may be made again."""
    return failure(KafkaError._TIMED_OUT, f"{name}: not done in {limit_s:g} s{_CALL_AGAIN}", retriable=True)


def _is_implicit(versions: BrokerVersions) -> bool:
    level = versions.features.get(_FEATURE, 0)
    return level >= _IMPLICIT_LEVEL and versions.supports(EndTxnRequest, _LAST_EXPLICIT[EndTxnRequest] + 1)


def _offset_row(number: int, offset: CommittedOffset) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _codes(answer: _Response) -> Iterable[int]:
    match answer:
        case AddPartitionsToTxnResponse():
            rows = [
                row for topic in answer.results_by_topic_v3_and_below for row in topic.results_by_partition
            ]
            return [row.partition_error_code for row in rows]
        case TxnOffsetCommitResponse():
            return [row.error_code for topic in answer.topics for row in topic.partitions]
        case _:
            return [answer.error_code]
