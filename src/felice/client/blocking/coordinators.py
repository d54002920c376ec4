"""Transactions and committed offsets through a `BlockingClient`: requests to coordinators.

Keeps true:  A request without a response, or without a coordinator, is repeated within the client's
             `retry_timeout_ms`, which is the limit of each call. That is safe, because no request in this module does
             harm if it arrives twice.
How:         Transactions use the explicit flow (AddPartitionsToTxn, EndTxn up to version 4), which all brokers know.
             The producer epoch then stays the same from begin to end. Any process that knows the producer can end its
             transaction, and the coordinator responds with NONE if the transaction has already ended that way.
Leaves:      the choice of what is committed, and when, to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from felice.client.blocking.client import BlockingClient
from felice.client.blocking.limits import TimeLimit
from felice.client.error import KafkaError, KafkaException, failure
from felice.client.group.requests import (
    CommittedOffset,
    commit_results,
    fetched_offsets,
    offset_commit_request,
    offset_fetch_request,
)
from felice.client.model import BrokerMetadata, Partition
from felice.client.net.requests import LAST_INIT_PRODUCER_ID, ProducerFields, by_topic
from felice.client.net.wire import ByVersion
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from felice.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from felice.protocol.messages.end_txn import EndTxnRequest
from felice.protocol.messages.find_coordinator import (
    GROUP_KEY_TYPE,
    TRANSACTION_KEY_TYPE,
    Coordinator,
    FindCoordinatorRequest,
)
from felice.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from felice.protocol.messages.list_groups import ListGroupsRequest
from felice.protocol.messages.list_transactions import ListTransactionsRequest
from felice.protocol.messages.offset_commit import OffsetCommitResponse
from felice.protocol.messages.offset_fetch import OffsetFetchResponse
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

P = ParamSpec("P")
R = TypeVar("R")

Address = tuple[str, int]
ResponseT = TypeVar("ResponseT")

_LAST_EXPLICIT_ADD = 3
_LAST_EXPLICIT_END = 4
_LAST_EXPLICIT_OFFSETS = 4
_LAST_SINGLE_FIND = 3
_BACKOFF_S = 0.02
_BACKOFF_LIMIT_S = 0.5

_MOVED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)
ONGOING = "Ongoing"


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """The identity of a transaction's producer at its coordinator."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """A transaction as its coordinator reports it."""

    producer: TransactionalProducer
    state: str


def _limited(
    method: Callable[Concatenate[BlockingCoordinators, P], R],
) -> Callable[Concatenate[BlockingCoordinators, P], R]:
    """End the method at the client's `retry_timeout_ms`, however many requests it sends."""

    @wraps(method)
    def run(self: BlockingCoordinators, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._client.limited():
            return method(self, *args, **kwargs)

    return run


class BlockingCoordinators:
    """Sends requests to the coordinators of transactional ids and groups, and caches their addresses."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._limit = client.limit
        self._where: dict[tuple[int, str], Address] = {}

    # Transactions

    @_limited
    def begin(self, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
        """Return a producer with a new epoch. This aborts an open transaction of the id and fences older producers."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        versioned = ByVersion(InitProducerIdRequest, lambda version: request, LAST_INIT_PRODUCER_ID)
        answer = self._ask(TRANSACTION_KEY_TYPE, transactional_id, versioned, _codes_of_init)
        return TransactionalProducer(transactional_id, answer.producer_id, answer.producer_epoch)

    @_limited
    def add_partitions(self, producer: TransactionalProducer, partitions: Iterable[Partition]) -> None:
        """Add partitions to the producer's transaction."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                for topic, numbers in by_topic(partitions).items()
            ],
        )
        versioned = ByVersion(AddPartitionsToTxnRequest, lambda version: request, _LAST_EXPLICIT_ADD)
        self._ask(TRANSACTION_KEY_TYPE, producer.transactional_id, versioned, _codes_of_partitions)

    @_limited
    def add_offsets(
        self, producer: TransactionalProducer, group_id: str, offsets: Mapping[Partition, CommittedOffset]
    ) -> None:
        """Add offsets that the group commits when the producer's transaction commits."""
        added = AddOffsetsToTxnRequest(**_named(producer), group_id=group_id)
        self._ask(TRANSACTION_KEY_TYPE, producer.transactional_id, added, lambda a: [a.error_code])
        request = TxnOffsetCommitRequest(
            **_named(producer),
            group_id=group_id,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=_offset_rows(offsets),
        )
        versioned = ByVersion(TxnOffsetCommitRequest, lambda version: request, _LAST_EXPLICIT_OFFSETS)
        self._ask(GROUP_KEY_TYPE, group_id, versioned, lambda a: commit_results(a).values(), _refused_topic)

    @_limited
    def end(self, producers: Iterable[TransactionalProducer], *, committed: bool) -> dict[str, int]:
        """End transactions; returns error codes by id. NONE also if a transaction had already ended that way."""
        left = {producer.transactional_id: producer for producer in producers}
        codes: dict[str, int] = {}
        patience = _Patience(self._limit)
        while left:
            told = self._end_once(left, committed)
            codes |= told
            left = {name: producer for name, producer in left.items() if _is_open(told.get(name))}
            if left and not patience.wait():
                unsettled = ", ".join(sorted(left))
                raise failure(KafkaError._TIMED_OUT, f"transactions do not end: {unsettled}")
        return codes

    def _end_once(self, producers: Mapping[str, TransactionalProducer], committed: bool) -> dict[str, int]:
        """Try once; transactions whose coordinator could not be reached are absent."""
        codes: dict[str, int] = {}
        try:
            where = self._locate(TRANSACTION_KEY_TYPE, producers)
        except KafkaException as error:
            if not error.error.retriable():
                raise
            return codes
        addresses = sorted(set(where.values()))
        for number, address in enumerate(addresses):
            names = [name for name, found in where.items() if found == address]
            requests = [_end_request(producers[name], committed) for name in names]
            try:
                with self._limit.share(len(addresses) - number):
                    answers = self._client.ask_all(address, requests)
            except KafkaException as error:
                if not error.error.retriable():
                    raise
                answers = []
            codes |= {name: answer.error_code for name, answer in zip(names, answers, strict=False)}
        for name in producers:
            if name not in codes or codes[name] in _MOVED:
                self._where.pop((TRANSACTION_KEY_TYPE, name), None)
        return codes

    @_limited
    def describe(self, transactional_ids: Iterable[str]) -> dict[str, DescribedTransaction]:
        """Return transactions by id; an id that its coordinator does not know is absent."""
        found: dict[str, DescribedTransaction] = {}
        for transactional_id in transactional_ids:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            answer = self._ask(TRANSACTION_KEY_TYPE, transactional_id, request, _codes_of_described)
            for row in answer.transaction_states:
                if not row.error_code:
                    producer = TransactionalProducer(
                        row.transactional_id, row.producer_id, row.producer_epoch
                    )
                    found[row.transactional_id] = DescribedTransaction(producer, row.transaction_state)
        return found

    @_limited
    def list_open(self, prefix: str) -> list[str]:
        """Return the ids of open transactions that begin with `prefix`, from every broker that responds."""
        found: set[str] = set()
        brokers = self._client.metadata([]).brokers.values()
        for number, broker in enumerate(brokers):
            request = ListTransactionsRequest(state_filters=[ONGOING])
            try:
                with self._limit.share(len(brokers) - number):
                    answer = self._client.ask((broker.host, broker.port), request)
                _check_listed(broker, answer.error_code)
            except KafkaException as error:
                if not error.error.retriable():
                    raise
                continue  # Its coordinators have moved to other brokers, or will.
            found |= {row.transactional_id for row in answer.transaction_states}
        return sorted(name for name in found if name.startswith(prefix))

    # Offsets of groups

    @_limited
    def commit_offsets(self, group_id: str, offsets: Mapping[Partition, CommittedOffset]) -> None:
        """Commit offsets as a consumer outside the group's membership."""
        request = offset_commit_request(group_id, offsets)
        self._ask(GROUP_KEY_TYPE, group_id, request, lambda a: commit_results(a).values(), _refused_topic)

    @_limited
    def committed(self, group_id: str) -> dict[Partition, CommittedOffset]:
        """Return all committed offsets of the group; waits for open transactions that would change them."""
        request = offset_fetch_request(group_id, None, require_stable=True)
        answer = self._ask(GROUP_KEY_TYPE, group_id, request, _codes_of_fetched)
        return {key: row for key, row in fetched_offsets(answer)[1].items() if row.offset >= 0}

    @_limited
    def list_groups(self, prefix: str) -> list[str]:
        """Return the ids of groups that begin with `prefix`, from all brokers."""
        found: set[str] = set()
        for broker in self._client.metadata([]).brokers.values():
            answer = self._client.ask((broker.host, broker.port), ListGroupsRequest())
            _check_listed(broker, answer.error_code)
            found |= {row.group_id for row in answer.groups}
        return sorted(name for name in found if name.startswith(prefix))

    # Finding coordinators

    def _ask(
        self,
        key_type: int,
        key: str,
        request: object,
        codes_of: Callable[[R], Iterable[int]],
        refused: Callable[[R, int], str] = lambda answer, code: "",
    ) -> R:
        """Ask the coordinator of a key. An error names the key, followed by the text of `refused`."""
        patience = _Patience(self._limit)
        reason: KafkaException | None = None
        while True:
            try:
                address = self._locate(key_type, [key])[key]
                answer: R = self._client.ask(address, request)
            except KafkaException as error:
                self._where.pop((key_type, key), None)
                if not error.error.retriable():
                    raise
                if reason is None or not self._limit.is_over:
                    reason = error
                if not patience.wait():
                    # The last attempt may have had a moment only: the one before it tells why.
                    raise reason from None
                continue
            code = _worst(codes_of(answer))
            if code == ErrorCode.NONE:
                return answer
            if code in _MOVED:
                self._where.pop((key_type, key), None)
            reason = failure(code, key + refused(answer, code))
            if not _is_open(code) or not patience.wait():
                raise reason

    def _locate(self, key_type: int, keys: Iterable[str]) -> dict[str, Address]:
        wanted = list(keys)
        unknown = [key for key in wanted if (key_type, key) not in self._where]
        if unknown:
            self._find(key_type, unknown)
        return {key: self._where[key_type, key] for key in wanted}

    def _find(self, key_type: int, keys: list[str]) -> None:
        """Look up several coordinators in one request if the broker supports it, otherwise one by one."""
        versioned = ByVersion(
            FindCoordinatorRequest,
            lambda version: (
                FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
                if version > _LAST_SINGLE_FIND
                else FindCoordinatorRequest(key_type=key_type, key=keys[0])
            ),
        )
        answer = self._client.ask_any(versioned)
        rows = answer.coordinators or [
            Coordinator(
                key=keys[0],
                node_id=answer.node_id,
                host=answer.host,
                port=answer.port,
                error_code=answer.error_code,
            )
        ]
        for row in rows:
            if row.error_code:
                raise failure(row.error_code, row.key)
            self._where[key_type, row.key] = (row.host, row.port)
        if rest := [key for key in keys if (key_type, key) not in self._where]:
            self._find(key_type, rest)


class _Patience:
    """Waits between attempts, longer each time, until the time limit of the call."""

    def __init__(self, limit: TimeLimit) -> None:
        self._limit = limit
        self._pause_s = _BACKOFF_S

    def wait(self) -> bool:
        self._limit.pause(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _BACKOFF_LIMIT_S)
        return not self._limit.is_over


def _check_listed(broker: BrokerMetadata, code: int) -> None:
    """Raise if a broker's list of what it coordinates may be incomplete."""
    if code:
        raise failure(code, f"broker {broker.id}")


def _is_open(code: int | None) -> bool:
    """True if the same request may get another response later."""
    return code is None or (code != ErrorCode.NONE and (code in _MOVED or ErrorCode.of(code).retriable))


def _refused_topic(answer: OffsetCommitResponse, code: int) -> str:
    """The first topic whose offset was refused with this code. An error that may pass concerns the whole group."""
    refused = (topic for (topic, _), found in commit_results(answer).items() if found == code)
    return "" if _is_open(code) else f", topic {next(refused)}"


def _worst(codes: Iterable[int]) -> int:
    failed = [code for code in codes if code != ErrorCode.NONE]
    lasting = [code for code in failed if not _is_open(code)]
    return (lasting or failed or [int(ErrorCode.NONE)])[0]


def _named(producer: TransactionalProducer) -> ProducerFields:
    return {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }


def _end_request(producer: TransactionalProducer, committed: bool) -> ByVersion:
    request = EndTxnRequest(**_named(producer), committed=committed)
    return ByVersion(EndTxnRequest, lambda version: request, _LAST_EXPLICIT_END)


def _offset_rows(offsets: Mapping[Partition, CommittedOffset]) -> list[TxnOffsetCommitRequestTopic]:
    return [
        TxnOffsetCommitRequestTopic(
            name=topic,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offsets[topic, number].offset,
                    committed_leader_epoch=-1,
                    committed_metadata=offsets[topic, number].metadata,
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(offsets).items()
    ]


def _codes_of_init(answer: InitProducerIdResponse) -> Iterable[int]:
    return [answer.error_code]


def _codes_of_partitions(answer: AddPartitionsToTxnResponse) -> Iterable[int]:
    for topic in answer.results_by_topic_v3_and_below:
        for row in topic.results_by_partition:
            yield row.partition_error_code


def _codes_of_described(answer: DescribeTransactionsResponse) -> Iterable[int]:
    absent = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    return [row.error_code for row in answer.transaction_states if row.error_code != absent]


def _codes_of_fetched(answer: OffsetFetchResponse) -> Iterable[int]:
    group_code, offsets = fetched_offsets(answer)
    return [group_code, *(row.error_code for row in offsets.values())]
