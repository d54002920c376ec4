"""A producer's transaction: which calls are allowed, which request comes next, what its answer changes. Pure.

Keeps true:  a record is written only inside an open transaction, to a partition that the coordinator has added to it.
             A transaction in which anything failed cannot be committed, only aborted. A fenced producer does nothing
             more. A call that timed out or was interrupted continues and may be made again; no other call is allowed
             before its outcome was returned.
             A request that may have reached the coordinator without an answer is repeated before an abort: aborting a
             transaction that never began is an error, and one that did begin must not stay open.
How:         calls of the application move the state; `next_step` says what to ask; `on_response` takes the answer.
Leaves:      requests, waiting and finding coordinators to `transactor`, records to `sender`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TypeAlias

from felice.client.error import KafkaError, KafkaException, error_of, failure
from felice.client.group.requests import CommittedOffset
from felice.client.model import ConsumerGroupMetadata, Partition
from felice.client.produce.batches import ANONYMOUS, ProducerIdentity
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode


class State(Enum):
    """In INITIALIZED, COMMITTED and ABORTED the call has ended, but no caller has got its outcome."""

    NEW = "init_transactions was not called yet"
    INITIALIZING = "init_transactions is under way"
    INITIALIZED = "init_transactions has ended, but its result was not returned; call it again to get it"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    COMMITTING = "commit_transaction is under way"
    COMMITTED = "commit_transaction has ended, but its result was not returned; call it again to get it"
    FAILED = "the transaction failed and must be aborted"
    ABORTING = "abort_transaction is under way"
    ABORTED = "abort_transaction has ended, but its result was not returned; call it again to get it"
    FATAL = "the producer cannot go on"


# Where a call goes from each state in which it is legal.
_CALLS: dict[str, dict[State, State]] = {
    "init_transactions": {
        State.NEW: State.INITIALIZING,
        State.INITIALIZING: State.INITIALIZING,
        State.INITIALIZED: State.INITIALIZED,
    },
    "begin_transaction": {State.READY: State.OPEN},
    "send_offsets_to_transaction": {State.OPEN: State.OPEN},
    "commit_transaction": {
        State.OPEN: State.COMMITTING,
        State.COMMITTING: State.COMMITTING,
        State.COMMITTED: State.COMMITTED,
    },
    "abort_transaction": {
        State.OPEN: State.ABORTING,
        State.FAILED: State.ABORTING,
        State.ABORTING: State.ABORTING,
        State.ABORTED: State.ABORTED,
    },
}
_UNDER_WAY = {State.INITIALIZING, State.COMMITTING, State.ABORTING}
_OUTCOMES = {State.INITIALIZED, State.COMMITTED, State.ABORTED}


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """Requests a producer id, or a new epoch for the identity `known` (KIP-360); ANONYMOUS at first."""

    known: ProducerIdentity = ANONYMOUS


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Adds partitions to the transaction (only before transaction V2)."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class AddOffsets:
    """Adds a group's offsets to the transaction (only before transaction V2)."""

    group_id: str


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Commits a group's offsets as part of the transaction."""

    offsets: tuple[tuple[Partition, CommittedOffset], ...]
    group: ConsumerGroupMetadata


@dataclass(frozen=True, slots=True)
class EndTxn:
    """Commits or aborts the transaction."""

    committed: bool


Step: TypeAlias = InitProducerId | AddPartitions | AddOffsets | CommitOffsets | EndTxn


class AfterResponse(Enum):
    """The next step after a response."""

    GO_ON = "continue with `next_step`"
    RETRY = "repeat the request after a backoff"
    FIND = "find the coordinator, then repeat the request"


class _Severity(Enum):
    ABORT = "the transaction must be aborted"
    UNMAPPED = "the transaction must be aborted, but the coordinator no longer knows the producer"
    FATAL = "the producer cannot go on"


_FIND = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
# For the coordinator's error codes that are not retried. A code that is in no table is fatal, because the state of
# the transaction is then unknown.
_SEVERITY = {
    ErrorCode.TRANSACTION_ABORTABLE: _Severity.ABORT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _Severity.ABORT,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _Severity.ABORT,
    ErrorCode.OPERATION_NOT_ATTEMPTED: _Severity.ABORT,
    # KIP-447: the consumer has lost its place in the group.
    ErrorCode.UNKNOWN_MEMBER_ID: _Severity.ABORT,
    ErrorCode.ILLEGAL_GENERATION: _Severity.ABORT,
    ErrorCode.FENCED_INSTANCE_ID: _Severity.ABORT,
    ErrorCode.REBALANCE_IN_PROGRESS: _Severity.ABORT,
    ErrorCode.GROUP_ID_NOT_FOUND: _Severity.ABORT,
    ErrorCode.INVALID_GROUP_ID: _Severity.ABORT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _Severity.ABORT,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: _Severity.ABORT,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: _Severity.UNMAPPED,
    ErrorCode.UNKNOWN_PRODUCER_ID: _Severity.UNMAPPED,
}
# Offsets of a partition that does not exist: it was consumed, so it has been deleted since, and will not come back.
_NOWHERE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
# Of a batch. Every other failure leaves a gap in the numbering, which a new epoch closes.
_FATAL_FOR_RECORDS = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,
)


class Transaction:
    """The state of one transactional producer, from its first call to its last."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = State.NEW
        self.identity = ANONYMOUS
        self.error: KafkaError | None = None
        self.implicit = False
        """True with KIP-890 part 2 (transaction V2): writes add partitions implicitly, every end gives a new epoch."""
        self._begin()

    def _begin(self) -> None:
        self._partitions: dict[Partition, bool] = {}
        self._groups: dict[str, bool] = {}
        self._offsets: CommitOffsets | None = None
        self._begun = False
        self._in_doubt: AddPartitions | AddOffsets | None = None
        self._drained = False
        self._ended = False
        self._needs_epoch = False
        self._unmapped = False
        self._epoch_in_doubt = False
        self.commit_attempts = 0
        """How often `next_step` asked for the commit: after the first time, a refusal may concern a repetition of a
        commit that was carried out and whose response was lost."""

    # Calls of the application

    def call(self, name: str) -> None:
        """Start a call, or continue it if it is repeated; raises if the state does not allow it."""
        if self.state is State.FATAL:
            raise self._raised()
        target = _CALLS[name].get(self.state)
        if name == "commit_transaction" and self.is_epoch_in_doubt:
            self._drained = False
            return
        if target is None and self.state is State.FAILED:
            raise self._raised()
        if target is None:
            raise failure(KafkaError._STATE, f"{name}: {self.state.value}")
        if target is not self.state:
            if target in (State.OPEN, State.INITIALIZING):
                self._begin()
            self._drained = False
            self.state = target

    def send_offsets(self, commit: CommitOffsets) -> None:
        """Note offsets for `next_step` to commit; a repeated call with these offsets waits for the same commit."""
        self.call("send_offsets_to_transaction")
        if self._offsets is not None and self._offsets != commit:
            raise failure(
                KafkaError._PREV_IN_PROGRESS, "send_offsets_to_transaction: other offsets are under way"
            )
        self._offsets = commit

    def outcome(self) -> bool:
        """Return True if the current call is done; raises if it failed. The next call is then allowed."""
        if self.is_epoch_in_doubt:
            return False
        if self.state in (State.FAILED, State.FATAL):
            raise self._raised()
        if self.state in _OUTCOMES:
            self.state = State.READY
        return self.state not in _UNDER_WAY and self._offsets is None

    def _raised(self) -> KafkaException:
        assert self.error is not None
        return KafkaException(self.error)

    # Records

    @property
    def may_send(self) -> bool:
        """True while records of the transaction may be sent."""
        return self.state in (State.OPEN, State.COMMITTING)

    @property
    def may_abort(self) -> bool:
        """True if a transaction is open or failed that the application has not ended yet."""
        return self.state in (State.OPEN, State.FAILED)

    @property
    def is_epoch_in_doubt(self) -> bool:
        """True if a partition's leader refused the producer epoch for a reason that is not known yet.

        If another producer has the transactional id now, the error is fatal. Otherwise the transaction can be aborted.
        A commit asks the coordinator.
        """
        return self.state is State.FAILED and self._epoch_in_doubt

    def refusal(self) -> KafkaError | None:
        """Return why records are refused now, or None. Other threads read it, too."""
        state = self.state
        if state is State.OPEN:
            return None
        reason = f"{state.value}: {self.error.str()}" if self.error is not None else state.value
        text = error_of(KafkaError._STATE, reason).str()
        return KafkaError(KafkaError._STATE, text, txn_requires_abort=state is State.FAILED)

    def enlist(self, partition: Partition) -> bool:
        """Add a partition that has waiting records; True if they may be sent now."""
        if self.implicit:
            self._begun = True
            return True
        return self._partitions.setdefault(partition, False)

    def on_record_failed(self, error: KafkaError, *, numbered: bool) -> None:
        """Fail the transaction: a record was not written, or it is unknown whether it was."""
        if error.code() in _FATAL_FOR_RECORDS:
            self._fail_for_good(error)
            return
        self._needs_epoch = self._needs_epoch or numbered
        if error.code() == ErrorCode.INVALID_PRODUCER_EPOCH and self.may_send:
            self._epoch_in_doubt = True
        if self.may_send:
            self._fail(error)

    def on_drained(self) -> None:
        """Note that every record of the transaction has its result, and no more are accepted."""
        self._drained = True

    # Steps

    def next_step(self) -> Step | None:
        """Return the next request to a coordinator; None if there is none, or if records must finish first."""
        if self.state is State.INITIALIZING:
            return InitProducerId()
        if self.is_epoch_in_doubt:
            return self._epoch_check_step() if self._drained else None
        if self.state is State.ABORTING:
            return self._abort_step() if self._drained else None
        if not self.may_send:
            return None
        step = self._adding_step() or self._offsets
        if step is None and self.state is State.COMMITTING and self._drained:
            step = EndTxn(True) if self._begun else None
            if step is None:
                self._finish()
        self._note(step)
        return step

    def _adding_step(self) -> Step | None:
        """Return the next addition: without transaction V2, partitions and groups are added before any write."""
        if isinstance(self._in_doubt, AddOffsets):
            return self._in_doubt
        wanted = tuple(partition for partition, added in self._partitions.items() if not added)
        if wanted:
            return AddPartitions(wanted)
        if self._offsets is None or self.implicit or self._offsets.group.group_id in self._groups:
            return None
        return AddOffsets(self._offsets.group.group_id)

    def _note(self, step: Step | None) -> None:
        if isinstance(step, AddPartitions | AddOffsets):
            self._in_doubt = step
        if isinstance(step, CommitOffsets):
            self._begun = True
        if isinstance(step, EndTxn):
            self.commit_attempts += 1

    def _abort_step(self) -> Step | None:
        if not self._ended and not self._unmapped:
            if self._begun:
                return EndTxn(False)
            if self._in_doubt is not None:
                return self._in_doubt
        if self._unmapped or (self._needs_epoch and not self.implicit):
            return InitProducerId(self.identity)
        self._finish()
        return None

    def _epoch_check_step(self) -> Step:
        """Return the step that settles a refused epoch: the coordinator refuses a fenced producer, else it aborts."""
        return EndTxn(False) if self._begun else InitProducerId(self.identity)

    def _finish(self) -> None:
        self.state = State.COMMITTED if self.state is State.COMMITTING else State.ABORTED
        self.error = None

    # Responses

    def on_response(
        self, step: Step, codes: Iterable[int], identity: ProducerIdentity | None = None
    ) -> AfterResponse:
        """Apply the error codes of a response, and the identity in it."""
        worst = _worst(codes)
        if worst == ErrorCode.NONE:
            self._on_success(step, identity)
            return AfterResponse.GO_ON
        if self._may_ignore(step, worst):
            self._in_doubt = None
            return AfterResponse.GO_ON
        if worst in _FIND:
            return AfterResponse.FIND
        if ErrorCode.of(worst).retriable and not (isinstance(step, CommitOffsets) and worst == _NOWHERE):
            return AfterResponse.RETRY
        self._on_error(step, worst)
        return AfterResponse.GO_ON

    def _may_ignore(self, step: Step, code: int) -> bool:
        """True if an abort may ignore the code: a deleted topic has no readers, so its addition does not matter."""
        is_gone = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return is_gone and self.state is State.ABORTING and isinstance(step, AddPartitions)

    def on_failure(self, step: Step, error: KafkaError) -> AfterResponse:
        """Apply the failure of a request without a response."""
        if error.retriable():
            return AfterResponse.FIND
        self._fail_for_good(error)
        return AfterResponse.GO_ON

    def _on_success(self, step: Step, identity: ProducerIdentity | None) -> None:
        if identity is not None:
            self.identity = identity
        match step:
            case InitProducerId():
                self._needs_epoch = self._unmapped = self._epoch_in_doubt = False
                self._ended = True
                if self.state is State.INITIALIZING:
                    self.state = State.INITIALIZED
            case AddPartitions(partitions):
                self._begun, self._in_doubt = True, None
                self._partitions.update(dict.fromkeys(partitions, True))
            case AddOffsets(group_id):
                self._begun, self._in_doubt = True, None
                self._groups[group_id] = True
            case CommitOffsets():
                self._offsets = None
            case EndTxn():
                self._ended = True
                self._epoch_in_doubt = False
                if self.state is State.COMMITTING:
                    self._finish()

    def _on_error(self, step: Step, code: int) -> None:
        error = error_of(code, type(step).__name__)
        if isinstance(step, AddPartitions | AddOffsets):
            self._in_doubt = None
        severity = _SEVERITY.get(ErrorCode.of(code), _Severity.FATAL)
        if isinstance(step, InitProducerId) or (step == EndTxn(False) and severity is _Severity.ABORT):
            severity = _Severity.FATAL  # there is nothing left to fall back on
        if severity is _Severity.FATAL:
            self._fail_for_good(error)
            return
        self._epoch_in_doubt = False
        self._unmapped = self._unmapped or severity is _Severity.UNMAPPED
        self._fail(error)

    def _fail(self, error: KafkaError) -> None:
        if self.state is State.ABORTING:
            return  # it is being aborted already
        self._offsets = None
        self.error = KafkaError(error.code(), error.str(), txn_requires_abort=True)
        self.state = State.FAILED

    def _fail_for_good(self, error: KafkaError) -> None:
        if self.state is State.FATAL:
            return
        code = KafkaError._FENCED if error.code() in _FENCED else error.code()
        self._offsets = None
        self.error = KafkaError(code, error.str(), fatal=True)
        self.state = State.FATAL


def _worst(codes: Iterable[int]) -> int:
    """The code that decides: one that cannot be retried, else one that can, else none."""
    failed = [code for code in codes if code]
    told = [code for code in failed if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    lasting = [code for code in told if code not in _FIND and not ErrorCode.of(code).retriable]
    return (lasting or told or failed or [int(ErrorCode.NONE)])[0]
