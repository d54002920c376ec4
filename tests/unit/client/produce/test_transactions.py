"""The rules of a producer's transaction, step by step: the next request, and the effect of each response."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from felice.client import ConsumerGroupMetadata, KafkaError, KafkaException
from felice.client.error import error_of, failure
from felice.client.group.requests import CommittedOffset
from felice.client.produce.batches import ANONYMOUS, ProducerIdentity
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
from felice.protocol.errors import ErrorCode

FIRST = ProducerIdentity(7, 0)
BUMPED = ProducerIdentity(7, 1)
P0, P1 = ("t", 0), ("t", 1)
OFFSETS = CommitOffsets(((("source", 0), CommittedOffset(5)),), ConsumerGroupMetadata("g", 3, "m"))
NONE = [int(ErrorCode.NONE)]
CALLS = (
    "init_transactions",
    "begin_transaction",
    "send_offsets_to_transaction",
    "commit_transaction",
    "abort_transaction",
)


def answered(
    transaction: Transaction, expected: Step, *codes: int, identity: ProducerIdentity | None = None
) -> AfterResponse:
    """Check that this is the next step, and apply a response to it."""
    assert transaction.next_step() == expected
    return transaction.on_response(expected, codes or NONE, identity)


def ready(*, implicit: bool = False) -> Transaction:
    transaction = Transaction("x")
    transaction.call("init_transactions")
    transaction.implicit = implicit
    answered(transaction, InitProducerId(), identity=FIRST)
    assert transaction.outcome()
    return transaction


def opened(*, implicit: bool = False) -> Transaction:
    transaction = ready(implicit=implicit)
    transaction.call("begin_transaction")
    return transaction


def writing(*, implicit: bool = False) -> Transaction:
    """A transaction with records for one partition."""
    transaction = opened(implicit=implicit)
    if not transaction.enlist(P0):
        answered(transaction, AddPartitions((P0,)))
    assert transaction.enlist(P0)
    return transaction


def ending(transaction: Transaction, name: str) -> Transaction:
    transaction.call(name)
    assert transaction.next_step() is None  # until every record has its result
    transaction.on_drained()
    return transaction


def committing() -> Transaction:
    return ending(writing(), "commit_transaction")


def aborting() -> Transaction:
    return ending(writing(), "abort_transaction")


def raised(transaction: Transaction) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        transaction.outcome()
    return caught.value.error


def test_what_will_be_written_to_is_added_before_it_is_written_to() -> None:
    transaction = opened()
    assert not transaction.enlist(P0) and not transaction.enlist(P1)
    answered(transaction, AddPartitions((P0, P1)))
    assert transaction.enlist(P0) and transaction.enlist(P1)
    assert not transaction.enlist(("other", 0))
    answered(transaction, AddPartitions((("other", 0),)))
    answered(ending(transaction, "commit_transaction"), EndTxn(True))
    assert transaction.outcome() and transaction.state is State.READY


def test_the_next_transaction_adds_its_partitions_again() -> None:
    transaction = committing()
    answered(transaction, EndTxn(True))
    transaction.outcome()
    transaction.call("begin_transaction")
    assert not transaction.enlist(P0)


def test_offsets_go_to_the_group_after_the_group_was_added_once() -> None:
    transaction = opened()
    transaction.send_offsets(OFFSETS)
    answered(transaction, AddOffsets("g"))
    assert not transaction.outcome()
    answered(transaction, OFFSETS)
    assert transaction.outcome()
    transaction.send_offsets(OFFSETS)
    answered(transaction, OFFSETS)
    answered(ending(transaction, "commit_transaction"), EndTxn(True))


def test_an_empty_transaction_ends_without_a_request() -> None:
    for name in ("commit_transaction", "abort_transaction"):
        transaction = ending(opened(), name)
        assert transaction.next_step() is None
        assert transaction.outcome() and transaction.state is State.READY


def test_transaction_v2_adds_nothing_and_takes_its_next_epoch_from_the_end() -> None:
    transaction = writing(implicit=True)
    transaction.send_offsets(OFFSETS)
    answered(transaction, OFFSETS)
    answered(ending(transaction, "commit_transaction"), EndTxn(True), identity=BUMPED)
    assert transaction.outcome() and transaction.identity == BUMPED


def test_transaction_v2_needs_no_further_epoch_after_a_record_was_lost() -> None:
    transaction = writing(implicit=True)
    transaction.on_record_failed(error_of(KafkaError._MSG_TIMED_OUT), numbered=True)
    answered(ending(transaction, "abort_transaction"), EndTxn(False), identity=BUMPED)
    assert transaction.next_step() is None and transaction.outcome()


# Which calls are legal in which state


LEGAL = {
    State.NEW: {"init_transactions"},
    State.INITIALIZING: {"init_transactions"},
    State.INITIALIZED: {"init_transactions"},
    State.READY: {"begin_transaction"},
    State.OPEN: {"send_offsets_to_transaction", "commit_transaction", "abort_transaction"},
    State.COMMITTING: {"commit_transaction"},
    State.COMMITTED: {"commit_transaction"},
    State.FAILED: {"abort_transaction"},
    State.ABORTING: {"abort_transaction"},
    State.ABORTED: {"abort_transaction"},
    State.FATAL: set(),
}


def failed_with(error: KafkaError) -> Transaction:
    transaction = writing()
    transaction.on_record_failed(error, numbered=True)
    return transaction


def in_state(state: State) -> Transaction:
    def over(transaction: Transaction) -> Transaction:
        transaction.on_response(transaction.next_step() or EndTxn(True), NONE)
        return transaction

    def initializing() -> Transaction:
        transaction = Transaction("x")
        transaction.call("init_transactions")
        return transaction

    def aborted() -> Transaction:
        transaction = over(aborting())
        assert transaction.next_step() is None
        return transaction

    make: dict[State, Callable[[], Transaction]] = {
        State.NEW: lambda: Transaction("x"),
        State.INITIALIZING: initializing,
        State.INITIALIZED: lambda: over(initializing()),
        State.READY: ready,
        State.OPEN: opened,
        State.COMMITTING: committing,
        State.COMMITTED: lambda: over(committing()),
        State.FAILED: lambda: failed_with(error_of(KafkaError._MSG_TIMED_OUT)),
        State.ABORTING: aborting,
        State.ABORTED: aborted,
        State.FATAL: lambda: failed_with(error_of(ErrorCode.PRODUCER_FENCED)),
    }
    transaction = make[state]()
    assert transaction.state is state
    return transaction


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_legal_in_its_states_and_refused_with_the_reason_in_all_others(
    state: State, name: str
) -> None:
    transaction = in_state(state)
    if name in LEGAL[state]:
        transaction.call(name)
        return
    with pytest.raises(KafkaException) as caught:
        transaction.call(name)
    error = caught.value.error
    if state is State.FATAL:
        assert error.fatal() and error == KafkaError._FENCED
    elif state is State.FAILED:
        assert error.txn_requires_abort() and error == KafkaError._MSG_TIMED_OUT
    else:
        assert error == KafkaError._STATE and name in error.str() and state.value in error.str()


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_records_are_accepted_only_while_a_transaction_is_open(state: State) -> None:
    refused = in_state(state).refusal()
    assert (refused is None) == (state is State.OPEN)
    assert refused is None or (refused == KafkaError._STATE and state.value in refused.str())
    assert refused is None or refused.txn_requires_abort() == (state is State.FAILED)


def test_the_outcome_of_a_call_that_timed_out_is_taken_by_calling_again() -> None:
    transaction = in_state(State.COMMITTED)
    transaction.call("commit_transaction")
    assert transaction.outcome() and transaction.state is State.READY


def test_other_offsets_are_refused_while_a_commit_is_in_flight() -> None:
    transaction = opened()
    transaction.send_offsets(OFFSETS)
    transaction.send_offsets(OFFSETS)
    with pytest.raises(KafkaException, match="other offsets"):
        transaction.send_offsets(CommitOffsets((), OFFSETS.group))


# The effect of errors

PASSING = (
    (ErrorCode.CONCURRENT_TRANSACTIONS, AfterResponse.RETRY),
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, AfterResponse.RETRY),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, AfterResponse.RETRY),
    (ErrorCode.NOT_COORDINATOR, AfterResponse.FIND),
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, AfterResponse.FIND),
    (ErrorCode.REQUEST_TIMED_OUT, AfterResponse.FIND),
)


@pytest.mark.parametrize(("code", "what_next"), PASSING)
def test_transient_errors_repeat_the_request(code: ErrorCode, what_next: AfterResponse) -> None:
    transaction = committing()
    assert answered(transaction, EndTxn(True), code) is what_next
    assert answered(transaction, EndTxn(True)) is AfterResponse.GO_ON
    assert transaction.outcome()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # of offsets: the partition was consumed, and is gone
    ],
)
def test_errors_of_the_transaction_require_an_abort_and_do_not_affect_the_next_transaction(
    code: ErrorCode,
) -> None:
    transaction = opened()
    transaction.send_offsets(OFFSETS)
    answered(transaction, AddOffsets("g"))
    answered(transaction, OFFSETS, ErrorCode.NONE, code)
    error = raised(transaction)
    assert error == code and error.txn_requires_abort() and not error.fatal()
    answered(ending(transaction, "abort_transaction"), EndTxn(False))
    assert transaction.next_step() is None and transaction.outcome()
    transaction.call("begin_transaction")


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_errors_of_the_producer_are_fatal(code: ErrorCode) -> None:
    transaction = committing()
    answered(transaction, EndTxn(True), code)
    error = raised(transaction)
    fenced = code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert error.fatal() and error == (KafkaError._FENCED if fenced else code)
    assert transaction.next_step() is None and not transaction.may_send


def test_the_root_error_takes_precedence_over_its_consequences() -> None:
    transaction = opened()
    transaction.enlist(P0)
    transaction.enlist(P1)
    codes = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    answered(transaction, AddPartitions((P0, P1)), *codes)
    assert raised(transaction) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert ending(transaction, "abort_transaction").next_step() is None  # nothing was added


def test_a_topic_that_is_not_known_yet_is_asked_for_again_with_those_that_had_to_wait_for_it() -> None:
    transaction = opened()
    transaction.enlist(P0)
    transaction.enlist(P1)
    codes = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED)
    assert answered(transaction, AddPartitions((P0, P1)), *codes) is AfterResponse.RETRY
    assert answered(transaction, AddPartitions((P0, P1))) is AfterResponse.GO_ON
    assert transaction.state is State.OPEN


def test_an_abort_does_not_wait_for_a_topic_that_was_deleted() -> None:
    transaction = opened()
    transaction.enlist(P0)
    assert (
        answered(transaction, AddPartitions((P0,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        is AfterResponse.RETRY
    )
    ending(transaction, "abort_transaction")
    assert (
        answered(transaction, AddPartitions((P0,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        is AfterResponse.GO_ON
    )
    assert transaction.next_step() is None and transaction.outcome()


def test_a_lost_record_needs_a_new_epoch_and_an_unsent_record_does_not() -> None:
    for numbered in (True, False):
        transaction = writing()
        transaction.on_record_failed(error_of(KafkaError._MSG_TIMED_OUT), numbered=numbered)
        assert not transaction.may_send
        answered(ending(transaction, "abort_transaction"), EndTxn(False))
        if numbered:
            answered(transaction, InitProducerId(FIRST), identity=BUMPED)
        assert transaction.next_step() is None and transaction.outcome()
        assert transaction.identity == (BUMPED if numbered else FIRST)


def test_a_record_purged_by_the_abort_needs_a_new_epoch_too() -> None:
    transaction = writing()
    transaction.call("abort_transaction")
    transaction.on_record_failed(error_of(KafkaError._PURGE_QUEUE), numbered=True)
    transaction.on_drained()
    answered(transaction, EndTxn(False))
    answered(transaction, InitProducerId(FIRST), identity=BUMPED)


def test_an_old_epoch_can_be_aborted_but_a_fenced_producer_is_fatal() -> None:
    assert failed_with(error_of(ErrorCode.INVALID_PRODUCER_EPOCH)).state is State.FAILED
    assert failed_with(error_of(ErrorCode.PRODUCER_FENCED)).state is State.FATAL


def with_old_epoch() -> Transaction:
    """A transaction whose record was refused with an old epoch by the leader, and which then commits."""
    transaction = writing()
    transaction.on_record_failed(error_of(ErrorCode.INVALID_PRODUCER_EPOCH), numbered=True)
    transaction.call("commit_transaction")
    assert transaction.next_step() is None, "what is under way must be answered for first"
    assert not transaction.outcome()
    transaction.on_drained()
    return transaction


def test_commit_after_an_old_epoch_is_fatal_if_another_producer_has_the_id() -> None:
    transaction = with_old_epoch()
    answered(transaction, EndTxn(False), ErrorCode.PRODUCER_FENCED)
    error = raised(transaction)
    assert error == KafkaError._FENCED and error.fatal()


def test_commit_after_an_old_epoch_otherwise_requires_an_abort_that_is_done_already() -> None:
    transaction = with_old_epoch()
    answered(transaction, EndTxn(False))
    error = raised(transaction)
    assert error == ErrorCode.INVALID_PRODUCER_EPOCH and error.txn_requires_abort()
    transaction.call("abort_transaction")
    transaction.on_drained()
    answered(transaction, InitProducerId(FIRST), identity=BUMPED)
    assert transaction.next_step() is None and transaction.outcome()


def test_a_producer_that_the_coordinator_forgot_is_made_known_again_without_an_abort() -> None:
    transaction = committing()
    answered(transaction, EndTxn(True), ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert raised(transaction).txn_requires_abort()
    answered(ending(transaction, "abort_transaction"), InitProducerId(FIRST), identity=BUMPED)
    assert transaction.next_step() is None and transaction.outcome()


@pytest.mark.parametrize("answer", [ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_an_addition_in_doubt_is_made_sure_of_before_the_abort(answer: ErrorCode) -> None:
    transaction = opened()
    transaction.enlist(P0)
    step = transaction.next_step()
    assert step is not None
    assert transaction.on_failure(step, error_of(KafkaError._TRANSPORT, retriable=True)) is AfterResponse.FIND
    ending(transaction, "abort_transaction")
    answered(transaction, AddPartitions((P0,)), answer)
    if answer is ErrorCode.NONE:
        answered(transaction, EndTxn(False))
    assert transaction.next_step() is None and transaction.outcome()


def test_a_group_in_doubt_is_not_forgotten_for_partitions_that_come_later() -> None:
    transaction = opened()
    transaction.send_offsets(OFFSETS)
    transaction.on_failure(AddOffsets("g") if transaction.next_step() else OFFSETS, lost())
    transaction.enlist(P0)
    answered(transaction, AddOffsets("g"))
    answered(transaction, AddPartitions((P0,)))


def lost() -> KafkaError:
    return failure(KafkaError._TIMED_OUT, retriable=True).error


def test_an_abort_that_cannot_be_is_the_end_and_not_a_loop() -> None:
    transaction = aborting()
    answered(transaction, EndTxn(False), ErrorCode.TRANSACTION_ABORTABLE)
    assert raised(transaction).fatal() and transaction.next_step() is None


def test_a_broker_without_the_feature_is_fatal_to_the_producer() -> None:
    transaction = Transaction("x")
    transaction.call("init_transactions")
    transaction.on_failure(InitProducerId(), error_of(KafkaError._UNSUPPORTED_FEATURE, "too old"))
    assert raised(transaction).fatal() and transaction.identity == ANONYMOUS


def test_requests_for_a_commit_are_counted_in_each_transaction() -> None:
    transaction = committing()
    for attempt in (1, 2):
        assert transaction.next_step() == EndTxn(True)
        assert transaction.commit_attempts == attempt
        transaction.on_failure(EndTxn(True), error_of(KafkaError._TRANSPORT, retriable=True))
    answered(transaction, EndTxn(True))
    assert transaction.commit_attempts == 3 and transaction.outcome()
    transaction.call("begin_transaction")
    assert transaction.commit_attempts == 0


def test_an_abort_is_no_request_for_a_commit() -> None:
    transaction = ending(writing(), "abort_transaction")
    answered(transaction, EndTxn(False))
    assert transaction.commit_attempts == 0
