"""DescribeTransactions and ListTransactions: transactional ids as an administrator sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from felice.coordinator.transaction.metadata import TransactionMetadata
from felice.coordinator.transaction.records import by_topic
from felice.coordinator.transaction.shard import TransactionShard
from felice.coordinator.transaction.states import TransactionState
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages import describe_transactions as describing
from felice.protocol.messages import list_transactions as listing

_STATES = {state.title: state for state in TransactionState}


def describe(shard: TransactionShard, transactional_id: str) -> describing.TransactionState:
    found = shard.settled(transactional_id)
    if found is None:
        return describing.TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    return describing.TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.title,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[
            describing.TopicData(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(found.partitions).items()
        ],
    )


@dataclass(frozen=True, slots=True)
class Filter:
    """What a listing lets through; an empty part lets everything through."""

    states: frozenset[TransactionState]
    has_states: bool
    unknown_states: tuple[str, ...]
    producer_ids: frozenset[int]
    longer_than_ms: int
    pattern: re.Pattern[str] | None

    @classmethod
    def of(cls, request: listing.ListTransactionsRequest) -> Filter:
        """Raises INVALID_REGULAR_EXPRESSION."""
        names = request.state_filters
        try:
            pattern = (
                re.compile(request.transactional_id_pattern) if request.transactional_id_pattern else None
            )
        except re.error as error:
            raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
        return cls(
            states=frozenset(_STATES[name] for name in names if name in _STATES),
            has_states=bool(names),
            unknown_states=tuple(dict.fromkeys(name for name in names if name not in _STATES)),
            producer_ids=frozenset(request.producer_id_filters),
            longer_than_ms=request.duration_filter,
            pattern=pattern,
        )

    def passes(self, transactional_id: str, found: TransactionMetadata, now_ms: int) -> bool:
        return (
            (not self.has_states or found.state in self.states)
            and (not self.producer_ids or found.producer_id in self.producer_ids)
            and (self.longer_than_ms < 0 or now_ms - found.start_ms > self.longer_than_ms)
            and (self.pattern is None or self.pattern.fullmatch(transactional_id) is not None)
        )


def matching(shard: TransactionShard, wanted: Filter, now_ms: int) -> Iterator[listing.TransactionState]:
    for transactional_id, found in shard.transactions.items():
        if wanted.passes(transactional_id, found, now_ms):
            yield listing.TransactionState(
                transactional_id=transactional_id,
                producer_id=found.producer_id,
                transaction_state=found.state.title,
            )
