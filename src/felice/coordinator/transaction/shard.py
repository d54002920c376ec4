"""One partition of `__transaction_state`: its transactional ids, as a pure state machine.

Keeps true:  T3  a decision is in the log before any partition or client sees it, and never changes.
             T4  every partition gets the marker of a decision, however often the coordinator restarts: the id stays
                 decided until all have their marker, and each load of the log sends the markers again.
             While a change is being written to the log, the id does not change further, and a partition that asks
             gets the state before the change.
How:         a transactional id is an immutable value; an event makes the next one and writes it. Committed decisions
             go to the outbox, and the shell calls `complete` when their markers are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Protocol, TypeVar

from felice.coordinator.shard import (
    NEVER_MS,
    NO_PRODUCER_ID,
    AfterWrite,
    Instant,
    Outcome,
    Reply,
    ReplyAfterWrite,
    Sendable,
    Undo,
    Waiter,
)
from felice.coordinator.transaction import ending, initialisation
from felice.coordinator.transaction.initialisation import InitRequest
from felice.coordinator.transaction.metadata import V1, TransactionMetadata
from felice.coordinator.transaction.records import TransactionRecord
from felice.coordinator.transaction.settings import TransactionSettings
from felice.coordinator.transaction.states import PREVIOUS_STATES, TransactionState
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.topic_partition import TopicPartition
from felice.records.batch import NO_PRODUCER_EPOCH

Change = TransactionMetadata | ErrorCode

DECIDE_AGAIN_MS = 1000
"""Pause after which a decision whose write failed is written again."""


A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity that a producer claims."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Initialised:
    """The answer to InitProducerId."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer to EndTxn; in V2 with the identity for the next transaction."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @classmethod
    def by(cls, metadata: TransactionMetadata) -> Ended:
        """The successful end: with the identity for the producer's next transaction (KIP-890)."""
        if metadata.next_producer_id != NO_PRODUCER_ID:
            return cls(ErrorCode.NONE, metadata.next_producer_id, 0)
        return cls(ErrorCode.NONE, metadata.producer_id, metadata.epoch)


class Outbox(Protocol):
    """Receives committed decisions, so that the shell writes their markers."""

    def put(self, transactional_id: str, decided: TransactionMetadata) -> None:
        """A decision is in the log: its markers must be written."""
        ...


@dataclass(slots=True)
class TransactionShard:
    """The state machine of one partition of `__transaction_state`. Implements `coordinator.shard.Shard`."""

    settings: TransactionSettings
    outbox: Outbox
    level: Callable[[], int]
    """The finalized level of the feature transaction.version."""
    transactions: dict[str, TransactionMetadata] = field(default_factory=dict)
    # The state of each id before the change that is being written to the log.
    _changing: dict[str, TransactionMetadata | None] = field(default_factory=dict)
    # The last state that is certainly committed of each id with a later change in the log whose commit timed out.
    # `committed` returns it until a later change is committed, which shows that the log has both.
    _unsure: dict[str, TransactionMetadata | None] = field(default_factory=dict)
    _next_abort_ms: int = NEVER_MS
    _next_removal_ms: int = NEVER_MS
    _decide_again_ms: int = NEVER_MS

    # The log

    def replay(self, record: TransactionRecord, producer_id: int = NO_PRODUCER_ID) -> Undo:
        """Applies a record; returns the function that undoes it."""
        before = self.transactions.get(record.transactional_id)
        self._set(record.transactional_id, record.metadata)
        return lambda: self._set(record.transactional_id, before)

    def _set(self, transactional_id: str, metadata: TransactionMetadata | None) -> None:
        if metadata is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = metadata

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Does nothing: this topic is written without transactions."""

    def on_loaded(self, now: Instant) -> Outcome[TransactionRecord]:
        """Writes every decision again whose markers may be missing; once it is committed, they are sent again."""
        self._next_abort_ms = now.steady_ms + self.settings.abort_interval_ms
        self._next_removal_ms = now.steady_ms + self.settings.removal_interval_ms
        return self._decide_again(self.transactions)

    def on_unloaded(self, error: ErrorCode) -> list[Sendable]:
        """Nothing waits here: every answer waits for the log, and the runtime ends that."""
        return []

    # Time

    def next_deadline_ms(self) -> int:
        """The next check for timed-out transactions, expired ids, or changes of unknown outcome."""
        if not self.transactions:
            return NEVER_MS
        return min(self._next_abort_ms, self._next_removal_ms, self._decide_again_ms)

    def on_time(self, now: Instant) -> Outcome[TransactionRecord]:
        """Aborts timed-out transactions, removes expired ids, and decides unsure ids again, each when it is due."""
        outcome: Outcome[TransactionRecord] = Outcome()
        if self._decide_again_ms <= now.steady_ms:
            self._decide_again_ms = NEVER_MS
            outcome.extend(self._decide_again(self._unsure))
        if self._next_abort_ms <= now.steady_ms:
            self._next_abort_ms = now.steady_ms + self.settings.abort_interval_ms
            outcome.extend(self._abort_timed_out(now))
        if self._next_removal_ms <= now.steady_ms:
            self._next_removal_ms = now.steady_ms + self.settings.removal_interval_ms
            outcome.extend(self._remove_expired(now))
        return outcome

    def _abort_timed_out(self, now: Instant) -> Outcome[TransactionRecord]:
        """Fences the producer: it must not continue the aborted transaction."""
        outcome: Outcome[TransactionRecord] = Outcome()
        for transactional_id, current in self.transactions.items():
            is_over = (
                current.state is TransactionState.ONGOING
                and current.start_ms + current.timeout_ms < now.wall_ms
                and transactional_id not in self._changing
            )
            if is_over:
                self._write(transactional_id, current.fenced(now.wall_ms, self.level()), outcome)
        return outcome

    def _remove_expired(self, now: Instant) -> Outcome[TransactionRecord]:
        outcome: Outcome[TransactionRecord] = Outcome()
        for transactional_id, current in self.transactions.items():
            is_over = (
                current.state in PREVIOUS_STATES[TransactionState.DEAD]
                and current.last_update_ms + self.settings.id_expiration_ms <= now.wall_ms
                and transactional_id not in self._changing
            )
            if is_over:
                self._write(transactional_id, None, outcome)
        return outcome

    def _decide_again(self, transactional_ids: Iterable[str]) -> Outcome[TransactionRecord]:
        outcome: Outcome[TransactionRecord] = Outcome()
        for transactional_id in list(transactional_ids):
            current = self.transactions.get(transactional_id)
            if current is not None and current.state.is_decided and transactional_id not in self._changing:
                self._write(transactional_id, current, outcome)
        return outcome

    # Requests

    def needs_new_producer_id(self, request: InitRequest) -> bool:
        """Whether `initialise` needs a new producer id, which the caller fetches first."""
        current = self.transactions.get(request.transactional_id)
        return initialisation.needs_new_producer_id(current, request)

    def initialise(
        self, request: InitRequest, new_producer_id: int, waiter: Waiter[Initialised], now: Instant
    ) -> Outcome[TransactionRecord]:
        """InitProducerId: gives the next identity, or CONCURRENT_TRANSACTIONS while an earlier transaction must end."""
        if not 0 < request.timeout_ms <= self.settings.max_timeout_ms:
            return Outcome([Reply(waiter, Initialised(ErrorCode.INVALID_TRANSACTION_TIMEOUT))])
        change: Change = ErrorCode.CONCURRENT_TRANSACTIONS
        if request.transactional_id not in self._changing:
            current = self.transactions.get(request.transactional_id)
            change = initialisation.initialise(current, request, new_producer_id, now.wall_ms, self.level())
        if isinstance(change, ErrorCode):
            return Outcome([Reply(waiter, Initialised(change))])
        response = Initialised(ErrorCode.NONE, change.producer_id, change.epoch)
        if change.state.is_decided:
            response = Initialised(ErrorCode.CONCURRENT_TRANSACTIONS)
        return self._answer_when_written(request.transactional_id, change, waiter, response, Initialised)

    def add_partitions(
        self,
        identity: Identity,
        partitions: frozenset[TopicPartition],
        waiter: Waiter[ErrorCode],
        now: Instant,
        client_version: int = V1,
    ) -> Outcome[TransactionRecord]:
        """Answers with an error code."""
        change = self._change_of(
            identity, lambda current: self._added(identity, current, partitions, now, client_version)
        )
        return self._carry_out(identity, change, waiter, ErrorCode.NONE, ErrorCode)

    def _added(
        self,
        identity: Identity,
        current: TransactionMetadata,
        partitions: frozenset[TopicPartition],
        now: Instant,
        client_version: int,
    ) -> Change:
        if current.state.is_decided:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        is_ongoing = current.state is TransactionState.ONGOING
        if is_ongoing and partitions <= current.partitions and identity.transactional_id not in self._unsure:
            return ErrorCode.NONE
        return current.with_partitions(partitions, now.wall_ms, client_version)

    def end(
        self, identity: Identity, commit: bool, waiter: Waiter[Ended], now: Instant
    ) -> Outcome[TransactionRecord]:
        """Answers `Ended` as soon as the decision is committed; the markers follow."""
        before = self._changing.get(identity.transactional_id)
        # A producer that was fenced before the change under way must fail now; retrying cannot succeed.
        change: Change | None = None if before is None else _fault_of(identity, before)
        if change is None:
            change = self._change_of(
                identity, lambda current: ending.end(current, commit=commit, now_ms=now.wall_ms)
            )
        return self._carry_out(identity, change, waiter, Ended(ErrorCode.NONE), Ended)

    def needs_next_producer_id(self, identity: Identity) -> bool:
        """Whether `end_v2` needs a new producer id for the next transaction; the caller fetches it first (KIP-890)."""
        current = self.transactions.get(identity.transactional_id)
        return ending.needs_next_producer_id(current, identity.producer_id, identity.epoch)

    def end_v2(
        self, identity: Identity, commit: bool, next_producer_id: int, waiter: Waiter[Ended], now: Instant
    ) -> Outcome[TransactionRecord]:
        """As `end`, for transaction V2: with the identity for the next transaction."""
        current = self.transactions.get(identity.transactional_id)
        change: Change
        if current is None:
            change = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        elif identity.transactional_id in self._changing:
            # A fenced producer must fail now: the change under way cannot make its epoch current again.
            before = self._changing[identity.transactional_id]
            fault = None if before is None else ending.fault_v2(before, identity.producer_id, identity.epoch)
            change = ErrorCode.CONCURRENT_TRANSACTIONS if fault is None else fault
        else:
            change = ending.end_v2(
                current,
                identity.producer_id,
                identity.epoch,
                commit=commit,
                next_producer_id=next_producer_id,
                now_ms=now.wall_ms,
            )
        if change is ErrorCode.NONE and current is not None:
            return Outcome([Reply(waiter, Ended.by(current))])
        response = Ended(change) if isinstance(change, ErrorCode) else Ended.by(change)
        return self._carry_out(identity, change, waiter, response, Ended)

    def verify(self, identity: Identity, partition: TopicPartition) -> ErrorCode:
        """Whether a partition belongs to the open transaction of this producer (KIP-890)."""
        current = self.committed(identity.transactional_id)
        if current is None or current.producer_id != identity.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if current.epoch != identity.epoch:
            return ErrorCode.PRODUCER_FENCED
        if current.state.is_decided:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        is_there = current.state is TransactionState.ONGOING and partition in current.partitions
        return ErrorCode.NONE if is_there else ErrorCode.TRANSACTION_ABORTABLE

    def committed(self, transactional_id: str) -> TransactionMetadata | None:
        """The state of the id that is certainly committed."""
        for before in (self._unsure, self._changing):
            if transactional_id in before:
                return before[transactional_id]
        return self.transactions.get(transactional_id)

    def complete(
        self, transactional_id: str, decided: TransactionMetadata, now: Instant
    ) -> Outcome[TransactionRecord]:
        """Call when every partition has its marker."""
        outcome: Outcome[TransactionRecord] = Outcome()
        if self.transactions.get(transactional_id) == decided and transactional_id not in self._changing:
            self._write(transactional_id, decided.completed(now.wall_ms), outcome)
        return outcome

    # Changes

    def _change_of(self, identity: Identity, next_of: Callable[[TransactionMetadata], Change]) -> Change:
        """The change that the holder of the current identity asks for."""
        current = self.transactions.get(identity.transactional_id)
        if current is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if identity.transactional_id in self._changing:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        fault = _fault_of(identity, current)
        return next_of(current) if fault is None else fault

    def _carry_out(
        self,
        identity: Identity,
        change: Change,
        waiter: Waiter[A],
        response: A,
        failure: Callable[[ErrorCode], A],
    ) -> Outcome[TransactionRecord]:
        if isinstance(change, ErrorCode):
            return Outcome([Reply(waiter, failure(change))])
        return self._answer_when_written(identity.transactional_id, change, waiter, response, failure)

    def _answer_when_written(
        self,
        transactional_id: str,
        change: TransactionMetadata,
        waiter: Waiter[A],
        response: A,
        failure: Callable[[ErrorCode], A],
    ) -> Outcome[TransactionRecord]:
        outcome: Outcome[TransactionRecord] = Outcome()
        answer: ReplyAfterWrite[TransactionRecord, A] = ReplyAfterWrite(waiter, response, failure)
        self._write(transactional_id, change, outcome, answer)
        return outcome

    def _write(
        self,
        transactional_id: str,
        change: TransactionMetadata | None,
        outcome: Outcome[TransactionRecord],
        answer: AfterWrite[TransactionRecord] | None = None,
    ) -> None:
        self._changing[transactional_id] = self.transactions.get(transactional_id)
        outcome.records.append(TransactionRecord(transactional_id, change))
        outcome.after_write.append(ChangeWritten(self, transactional_id, change, answer))

    def on_change_committed(self, transactional_id: str, change: TransactionMetadata | None) -> None:
        """The change is in the log. A decision goes to the outbox, so that its markers are written."""
        self._changing.pop(transactional_id, None)
        self._unsure.pop(transactional_id, None)
        if change is not None and change.state.is_decided:
            self.outbox.put(transactional_id, change)

    def on_change_failed(self, transactional_id: str, now: Instant) -> None:
        """The change was refused and undone, or its commit timed out: then it is in the log with an unknown outcome."""
        before = self._changing.pop(transactional_id, None)
        if transactional_id in self.transactions:
            self._unsure.setdefault(transactional_id, before)
            self._decide_again_ms = min(self._decide_again_ms, now.steady_ms + DECIDE_AGAIN_MS)


def _fault_of(identity: Identity, current: TransactionMetadata) -> ErrorCode | None:
    """The reason why a producer does not hold the id, or None."""
    if current.is_next(identity.producer_id):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.producer_id != identity.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.epoch != identity.epoch:
        return ErrorCode.PRODUCER_FENCED
    return None


@dataclass(frozen=True, slots=True)
class ChangeWritten:
    """Continues when a change is committed or refused."""

    shard: TransactionShard
    transactional_id: str
    change: TransactionMetadata | None
    answer: AfterWrite[TransactionRecord] | None

    def on_committed(self, now: Instant) -> Outcome[TransactionRecord]:
        """Takes note of the change, then answers the request."""
        self.shard.on_change_committed(self.transactional_id, self.change)
        return Outcome() if self.answer is None else self.answer.on_committed(now)

    def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[TransactionRecord]:
        """The outcome may be unknown: takes note of that, then answers with the error."""
        self.shard.on_change_failed(self.transactional_id, now)
        return Outcome() if self.answer is None else self.answer.on_failed(error, now)
