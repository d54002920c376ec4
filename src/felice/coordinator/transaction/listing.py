"""DescribeTransactions and ListTransactions: the administrator's view of transactional ids.

`matching_pattern` matches a client's pattern on a thread, a portion of ids at a time: matching is linear, but ids and
patterns of 32 KB still take a tenth of a second each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from felice.coordinator.transaction.metadata import TransactionMetadata
from felice.coordinator.transaction.records import by_topic
from felice.coordinator.transaction.shard import TransactionShard
from felice.coordinator.transaction.states import TransactionState
from felice.dataclass import dataclass
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages import describe_transactions as describing
from felice.protocol.messages import list_transactions as listing
from felice.protocol.patterns import Pattern, PatternError, linear_pattern

# Characters of transactional ids that one call on a thread matches.
_PORTION_CHARACTERS = 64 * 1024

_STATES = {state.title: state for state in TransactionState}


def describe(shard: TransactionShard, transactional_id: str) -> describing.TransactionState:
    """The committed state of a transactional id; an error row if there is none."""
    found = shard.committed(transactional_id)
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
    """The filters of a listing; an empty one matches everything. `passes` does not check the pattern."""

    states: frozenset[TransactionState]
    has_states: bool
    unknown_states: tuple[str, ...]
    producer_ids: frozenset[int]
    longer_than_ms: int
    pattern: Pattern | None

    @classmethod
    def of(cls, request: listing.ListTransactionsRequest) -> Filter:
        """Raises INVALID_REGULAR_EXPRESSION."""
        names = request.state_filters
        return cls(
            states=frozenset(_STATES[name] for name in names if name in _STATES),
            has_states=bool(names),
            unknown_states=tuple(dict.fromkeys(name for name in names if name not in _STATES)),
            producer_ids=frozenset(request.producer_id_filters),
            longer_than_ms=request.duration_filter,
            pattern=_pattern(request.transactional_id_pattern),
        )

    def passes(self, found: TransactionMetadata, now_ms: int) -> bool:
        """Whether an id matches the states, the producer ids and the duration that the request asks for."""
        return (
            (not self.has_states or found.state in self.states)
            and (not self.producer_ids or found.producer_id in self.producer_ids)
            and (self.longer_than_ms < 0 or now_ms - found.start_ms > self.longer_than_ms)
        )


def _pattern(text: str | None) -> Pattern | None:
    try:
        return linear_pattern(text) if text else None
    except PatternError as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None


def passing(shard: TransactionShard, wanted: Filter, now_ms: int) -> Iterator[listing.TransactionState]:
    """The rows of all ids that pass the filter, one by one."""
    for transactional_id, found in shard.transactions.items():
        if wanted.passes(found, now_ms):
            yield listing.TransactionState(
                transactional_id=transactional_id,
                producer_id=found.producer_id,
                transaction_state=found.state.title,
            )


async def matching_pattern(
    rows: Sequence[listing.TransactionState], pattern: Pattern
) -> list[listing.TransactionState]:
    """The rows whose whole id matches the pattern. If the client leaves, matching stops after the current portion."""

    def matched(portion: list[listing.TransactionState]) -> list[listing.TransactionState]:
        return [row for row in portion if pattern.fullmatch(row.transactional_id)]

    loop, found = asyncio.get_running_loop(), []
    for portion in _portions(rows):
        found += await loop.run_in_executor(None, matched, portion)
    return found


def _portions(rows: Sequence[listing.TransactionState]) -> Iterator[list[listing.TransactionState]]:
    portion: list[listing.TransactionState] = []
    characters = 0
    for row in rows:
        portion.append(row)
        characters += len(row.transactional_id)
        if characters >= _PORTION_CHARACTERS:
            yield portion
            portion, characters = [], 0
    if portion:
        yield portion
