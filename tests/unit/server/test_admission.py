"""The first writes of transactions: who is asked, who waits, and for how long."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from felice.config import BrokerConfig
from felice.coordinator.transaction.shard import Identity
from felice.env import Environment
from felice.log.producers import ProducerState, ProducerStates
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from felice.protocol.topic_partition import TopicPartition
from felice.records.batch import BatchHeader
from felice.records.builder import build_control
from felice.records.control import ControlType, EndTransactionMarker
from felice.replication.partition import Partition
from felice.server.writes.admission import Admission, Agreement, Flow, PartitionErrors, QueuedWrite
from waiting import until

A, B = Identity("a", 7, 0), Identity("b", 8, 0)
V2, OLD, OLDEST = Flow(True, True), Flow(False, True), Flow(False, False)
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


class Place:
    """A partition, as far as admission looks at it."""

    def __init__(self, index: int) -> None:
        self.topic, self.partition = "t", index
        self.log = self.producers = self
        self.open: dict[int, ProducerState] = {}

    def get(self, producer_id: int) -> ProducerState | None:
        return self.open.get(producer_id)

    def begin(self, who: Identity) -> None:
        self.open[who.producer_id] = ProducerState(who.producer_id, who.epoch, current_txn_first_offset=0)

    def end(self, who: Identity) -> None:
        """A marker of the flow in which it has the transaction's own epoch."""
        marker = EndTransactionMarker(ControlType.ABORT, 0)
        header = BatchHeader.parse(
            build_control(marker, producer_id=who.producer_id, producer_epoch=who.epoch, timestamp_ms=0)
        )
        states = ProducerStates(1000)
        if who.producer_id in self.open:
            states.restore([self.open[who.producer_id].entry()], 1, 0)
        states.complete(header, marker, 1, 0)
        self.open[who.producer_id] = next(iter(states))


@dataclass
class Coordinator:
    """Answers each request with the next of its codes, and with the last for ever."""

    codes: list[ErrorCode] = field(default_factory=lambda: [ErrorCode.NONE])
    asked: list[AddPartitionsToTxnRequest] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def add_partitions(
        self, transactional_id: str, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        self.asked.append(request)
        (asked,) = request.transactions
        assert asked.transactional_id == transactional_id
        if self.gate is not None:
            await self.gate.wait()
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        if code == ErrorCode.BROKER_NOT_AVAILABLE:
            raise ApiError(code)
        topics = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        one = AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)
        return AddPartitionsToTxnResponse(results_by_transaction=[one])


class World:
    def __init__(self, *codes: ErrorCode, verifies: bool = True, patience_ms: int = 100) -> None:
        self.coordinator = Coordinator(list(codes) or [ErrorCode.NONE])
        config, _ = BrokerConfig.parse({})
        config = dataclasses.replace(
            config,
            transaction_partition_verification_enable=verifies,
            add_partitions_to_txn_retry_backoff_ms=1,
            add_partitions_to_txn_retry_backoff_max_ms=patience_ms,
        )
        self.admission = Admission(self.coordinator, Environment.system().clock, lambda: config)
        self.places = [Place(index) for index in range(3)]
        self.written: list[str] = []

    def enter(
        self, who: Identity, flow: Flow, name: str, *indexes: int, then: Callable[[], Any] | None = None
    ) -> Awaitable[PartitionErrors] | PartitionErrors:
        def write(refusals: PartitionErrors) -> PartitionErrors | Awaitable[PartitionErrors]:
            self.written.append(name)
            for index in indexes:
                if TopicPartition("t", index) not in refusals:
                    self.places[index].begin(who)
            return refusals if then is None else cast("Awaitable[PartitionErrors]", then())

        partitions = [cast(Partition, self.places[index]) for index in indexes]
        queued = self.admission.enter(who, partitions, flow)
        return write({}) if queued is None else queued.run(self._write_in_turn(queued, write))

    async def _write_in_turn(
        self,
        queued: QueuedWrite,
        write: Callable[[PartitionErrors], PartitionErrors | Awaitable[PartitionErrors]],
    ) -> PartitionErrors:
        async with queued as refusals:
            answer = write(refusals)
        return await answer if isinstance(answer, Awaitable) else answer


async def settle(answer: Awaitable[PartitionErrors] | PartitionErrors) -> dict[int, ErrorCode]:
    refusals = await answer if isinstance(answer, Awaitable) else answer
    return {where.partition: code for where, code in refusals.items()}


async def test_all_partitions_are_added_in_one_request_and_once() -> None:
    world = World()
    assert await settle(world.enter(A, V2, "first", 0, 2)) == {}
    (asked,) = world.coordinator.asked[0].transactions
    assert (asked.producer_id, asked.producer_epoch, asked.verify_only) == (7, 0, False)
    assert [(topic.name, topic.partitions) for topic in asked.topics] == [("t", [0, 2])]
    assert world.enter(A, V2, "second", 0, 2) == {}
    assert await settle(world.enter(A, V2, "third", 1, 2)) == {}
    assert [topic.partitions for topic in world.coordinator.asked[1].transactions[0].topics] == [[1]]
    assert len(world.coordinator.asked) == 2


async def test_older_clients_are_verified_unless_that_is_switched_off() -> None:
    world = World(ErrorCode.TRANSACTION_ABORTABLE)
    assert await settle(world.enter(A, OLD, "a", 0)) == {0: ErrorCode.TRANSACTION_ABORTABLE}
    assert await settle(world.enter(A, OLDEST, "b", 0)) == {0: ErrorCode.INVALID_TXN_STATE}
    assert all(asked.transactions[0].verify_only for asked in world.coordinator.asked)
    lax = World(verifies=False)
    assert lax.enter(A, OLD, "a", 0) == {}
    assert await settle(lax.enter(A, V2, "b", 1)) == {}
    assert len(lax.coordinator.asked) == 1


async def test_while_the_transaction_before_is_ended_v2_asks_again() -> None:
    world = World(BUSY, BUSY, ErrorCode.NONE)
    assert await settle(world.enter(A, V2, "a", 0)) == {}
    assert len(world.coordinator.asked) == 3


async def test_it_asks_again_only_so_long_and_older_clients_do_it_themselves() -> None:
    world = World(BUSY, patience_ms=5)
    assert await settle(world.enter(A, V2, "a", 0)) == {0: BUSY}
    assert len(world.coordinator.asked) > 1
    old = World(BUSY)
    assert await settle(old.enter(A, OLD, "a", 0)) == {0: BUSY}
    assert len(old.coordinator.asked) == 1


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.BROKER_NOT_AVAILABLE),
    ],
)
async def test_what_the_coordinator_refuses_is_refused(said: ErrorCode, heard: ErrorCode) -> None:
    world = World(said)
    assert await settle(world.enter(A, V2, "a", 0, 1)) == {0: heard, 1: heard}


async def test_a_producers_requests_keep_their_order_and_others_do_not_wait() -> None:
    world = World()
    world.places[1].begin(A)
    world.places[2].begin(B)
    world.coordinator.gate = asyncio.Event()
    answers = [world.enter(A, V2, "adds", 0, 1), world.enter(A, V2, "behind", 1)]
    assert world.enter(B, V2, "another's", 2) == {}
    await until(lambda: world.coordinator.asked)
    answers.append(world.enter(A, V2, "last", 0))
    assert world.written == ["another's"]
    world.coordinator.gate.set()
    for answer in answers:
        assert await settle(answer) == {}
    assert world.written == ["another's", "adds", "behind", "last"]
    assert world.enter(A, V2, "at once", 0) == {}


async def test_a_request_that_is_given_up_lets_the_next_one_pass() -> None:
    world = World()
    world.coordinator.gate = asyncio.Event()
    begun = asyncio.ensure_future(cast("Awaitable[PartitionErrors]", world.enter(A, V2, "begun", 0)))
    await until(lambda: world.coordinator.asked)
    waiting = asyncio.ensure_future(cast("Awaitable[PartitionErrors]", world.enter(A, V2, "waiting", 0)))
    never_begun = asyncio.ensure_future(
        cast("Awaitable[PartitionErrors]", world.enter(A, V2, "not begun", 0))
    )
    last = world.enter(A, V2, "last", 0)
    begun.cancel()
    waiting.cancel()
    never_begun.cancel()
    world.coordinator.gate.set()
    assert await settle(last) == {}
    assert world.written == ["last"]


async def test_the_next_request_need_not_wait_until_this_one_is_replicated() -> None:
    world = World()
    replicated: asyncio.Future[PartitionErrors] = asyncio.get_running_loop().create_future()
    first = asyncio.ensure_future(
        cast("Awaitable[PartitionErrors]", world.enter(A, V2, "first", 0, then=lambda: replicated))
    )
    second = world.enter(A, V2, "second", 0)
    assert await settle(second) == {}
    assert not first.done()
    replicated.set_result({})
    await first


async def test_an_answer_from_before_the_end_of_the_transaction_admits_nothing() -> None:
    """The marker overtakes it where the coordinator is another broker: what came behind it would stay open for ever."""
    world = World(ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)
    world.coordinator.gate = asyncio.Event()
    late = world.enter(A, OLD, "late", 0)
    await until(lambda: world.coordinator.asked)
    world.places[0].end(A)
    world.coordinator.gate.set()
    assert await settle(late) == {0: ErrorCode.TRANSACTION_ABORTABLE}
    assert len(world.coordinator.asked) == 2


async def test_a_transaction_that_ends_while_another_partition_is_asked_for_is_asked_for_everywhere() -> None:
    world = World(ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)
    world.places[0].begin(A)
    world.coordinator.gate = asyncio.Event()
    late = world.enter(A, OLD, "late", 0, 1)
    await until(lambda: world.coordinator.asked)
    world.places[0].end(A)
    world.coordinator.gate.set()
    assert await settle(late) == {0: ErrorCode.TRANSACTION_ABORTABLE}
    asked = [one.transactions[0].topics[0].partitions for one in world.coordinator.asked]
    assert asked == [[1], [0]]


def test_an_agreement_is_void_where_a_marker_arrives_between_two_steps_of_a_write() -> None:
    world = World()
    ended, going_on, refused, elsewhere = (TopicPartition("t", index) for index in range(4))
    for place in world.places:
        place.begin(A)
    partitions = {
        where: cast(Partition, world.places[where.partition]) for where in (ended, going_on, refused)
    }
    agreement = Agreement(A, partitions, {refused: ErrorCode.INVALID_PRODUCER_EPOCH})
    agreement.watch_markers()
    world.places[0].end(A)
    assert agreement.verdict(ended) == ErrorCode.INVALID_TXN_STATE
    assert agreement.verdict(going_on) == ErrorCode.NONE
    assert agreement.verdict(refused) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert agreement.verdict(elsewhere) == ErrorCode.NOT_LEADER_OR_FOLLOWER
