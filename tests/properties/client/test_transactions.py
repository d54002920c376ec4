"""However responses are lost, late or refused, producer and coordinator agree on the outcome of every transaction."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.client import ConsumerGroupMetadata, KafkaError, KafkaException
from felice.client.error import error_of
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

OFFSETS = CommitOffsets(((("source", 0), CommittedOffset(5)),), ConsumerGroupMetadata("g"))
PARTITIONS = [("t", number) for number in range(3)]
Answer = tuple[int, ProducerIdentity | None]


class Coordinator:
    """The coordinator's state of one transactional id, and its responses; `decided` are the ended transactions."""

    def __init__(self, implicit: bool) -> None:
        self.implicit = implicit
        self.epoch = -1
        self.open = False
        self.members: set[object] = set()
        self.last_committed: bool | None = None
        self.decided: list[tuple[bool, frozenset[object]]] = []

    def answer(self, step: Step, epoch: int) -> Answer:
        match step:
            case InitProducerId(known):
                # The previous epoch means a retry of a request whose response was lost.
                if known is ANONYMOUS or known.epoch == self.epoch:
                    self._end(False)
                    self.epoch += 1
                return 0, ProducerIdentity(7, self.epoch)
            case EndTxn(committed):
                return self._on_end(committed, epoch)
        if epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED, None
        match step:
            case AddPartitions(partitions):
                self.write(*partitions)
            case AddOffsets(group_id):
                self.write(group_id)
            case CommitOffsets(_, group):
                if self.implicit:
                    self.write(group.group_id)
                if group.group_id not in self.members:
                    return ErrorCode.INVALID_TXN_STATE, None
        return 0, None

    def write(self, *what: object) -> None:
        self.open = True
        self.members |= set(what)

    def has(self, step: Step) -> bool:
        """Return True if the step adds nothing new: the coordinator then accepts it."""
        match step:
            case AddPartitions(partitions):
                return self.members >= set(partitions)
            case AddOffsets(group_id):
                return group_id in self.members
            case _:
                return not isinstance(step, CommitOffsets)

    def _on_end(self, committed: bool, epoch: int) -> Answer:
        bumped = ProducerIdentity(7, epoch + 1) if self.implicit else None
        is_retry = epoch == self.epoch - 1 if self.implicit else epoch == self.epoch and not self.open
        if is_retry and self.last_committed is committed:
            return 0, bumped
        if epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED, None
        if not self.open and not (self.implicit and not committed):
            return ErrorCode.INVALID_TXN_STATE, None
        self._end(committed)
        self.epoch += self.implicit
        return 0, bumped

    def _end(self, committed: bool) -> None:
        if self.open:
            self.decided.append((committed, frozenset(self.members)))
        self.open, self.members, self.last_committed = False, set(), committed


class World:
    """A producer, its coordinator, and a network between them that fails for a while in each transaction."""

    def __init__(self, seed: int, implicit: bool) -> None:
        self.dice = random.Random(seed)
        self.coordinator = Coordinator(implicit)
        self.transaction = Transaction("x")
        self.transaction.implicit = implicit
        self.faults = 0

    def settle(self) -> None:
        """Send requests until there is no next step."""
        for _ in range(100):
            step = self.transaction.next_step()
            if step is None:
                return
            self._exchange(step)
        raise AssertionError(f"it never ends: {self.transaction.state}, {step}")

    def _exchange(self, step: Step) -> None:
        chance = self.dice.random() if self.faults > 0 else 1.0
        self.faults -= chance < 0.6
        if chance < 0.2:
            self.transaction.on_failure(step, error_of(KafkaError._TRANSPORT, retriable=True))
        elif chance < 0.3:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
            assert self.transaction.on_response(step, [code]) is AfterResponse.RETRY
        elif chance < 0.4 and not self.coordinator.has(step):
            self.transaction.on_response(step, [ErrorCode.TRANSACTION_ABORTABLE])
        else:
            code, identity = self.coordinator.answer(step, self.transaction.identity.epoch)
            if chance < 0.6:  # the request is done, and its response is lost
                self.transaction.on_failure(step, error_of(KafkaError._TRANSPORT, retriable=True))
            else:
                self.transaction.on_response(step, [code], identity)

    def call(self, name: str) -> None:
        self.transaction.call(name)
        self.transaction.on_drained()
        self.settle()
        assert self.transaction.outcome()

    def one_transaction(self) -> tuple[bool, frozenset[object]]:
        """Return whether the transaction was committed, and its records."""
        self.faults = self.dice.randrange(6)
        self.transaction.call("begin_transaction")
        written: set[object] = set()
        try:
            self._work(written)
            if self.dice.random() < 0.7:
                self.call("commit_transaction")
                return True, frozenset(written)
        except KafkaException as error:
            assert error.error.txn_requires_abort(), error
        self.call("abort_transaction")
        return False, frozenset(written)

    def _work(self, written: set[object]) -> None:
        for partition in self.dice.sample(PARTITIONS, self.dice.randrange(4)):
            self.settle()
            while self.transaction.may_send and not self.transaction.enlist(partition):
                self.settle()
            if self.transaction.may_send:
                self._write(partition)
                written.add(partition)
            if self.dice.random() < 0.1:
                self.transaction.on_record_failed(error_of(KafkaError._MSG_TIMED_OUT), numbered=True)
        if self.dice.random() < 0.5:
            self.transaction.send_offsets(OFFSETS)
            self.settle()
            assert self.transaction.outcome()
            written.add("g")

    def _write(self, partition: object) -> None:
        """The leader's rule: the epoch is the newest, and the partition belongs to the transaction."""
        assert self.transaction.identity.epoch == self.coordinator.epoch
        if self.coordinator.implicit:
            self.coordinator.write(partition)
        assert partition in self.coordinator.members


@pytest.mark.parametrize("implicit", [False, True], ids=["v1", "v2"])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_producer_and_coordinator_agree_on_every_transaction(implicit: bool, seed: int) -> None:
    world = World(seed, implicit)
    world.call("init_transactions")
    for _ in range(6):
        ended_before = len(world.coordinator.decided)
        committed, written = world.one_transaction()
        ended = world.coordinator.decided[ended_before:]
        assert world.transaction.state is State.READY
        assert not world.coordinator.open, "left open"
        assert [kept for kept, _ in ended if kept] == ([True] if committed and written else [])
        if committed and written:
            assert written <= ended[-1][1]
