"""Writing many proposals of one moment: few transactions, and none depends on another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from felice.metadata import Create, SetData, StoreUnavailable, identity, layout
from felice.metadata.layout import MAX_STATES_PER_TRANSACTION, BrokerNode, StateNode, TopicNode
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.metadata.store import NotAllowed, Operation
from felice.replication.isr import IsrWriter
from felice.replication.leader import IsrProposal
from waiting import let_run

TOPIC_ID = UUID(int=5)


@dataclass
class Leading:
    """A partition that waits for the outcome of its proposal."""

    partition: int
    topic: str = "t"
    topic_id: UUID = TOPIC_ID
    committed: list[int] = field(default_factory=list)
    refused: int = 0
    is_faulty: bool = False

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def awaits(self, proposal: IsrProposal) -> bool:
        return not self.committed and not self.refused

    def on_proposal_committed(self, proposal: IsrProposal, partition_epoch: int) -> None:
        self.committed.append(partition_epoch)
        if self.is_faulty:
            raise RuntimeError("a fault")

    def on_proposal_refused(self, proposal: IsrProposal) -> None:
        self.refused += 1


class ObservedStore:
    """A store that counts its transactions; `before` runs before the first one."""

    def __init__(self, store: MemoryStore) -> None:
        self.writes: list[int] = []
        self.before: Callable[[], Awaitable[object]] | None = None
        self.loses_the_answer = False
        self.denied = ""
        self.faults = 0
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def multi(self, operations: Sequence[Operation]) -> Any:
        self.writes.append(sum(isinstance(one, SetData) for one in operations))
        act, self.before = self.before, None
        if act is not None:
            await act()
        if any(one.path == self.denied for one in operations):
            raise NotAllowed(self.denied, "not yours")
        answer = await self._store.multi(operations)
        if self.faults:
            self.faults -= 1
            raise RuntimeError("a fault")
        if self.loses_the_answer:
            self.loses_the_answer = False
            raise StoreUnavailable("/", "lost")
        return answer


def _run(scenario: Callable[[ObservedStore, IsrWriter, list[Leading]], Awaitable[None]], count: int) -> None:
    async def run() -> None:
        store = MemoryEnsemble().connect()
        topic = TopicNode(TOPIC_ID, dict.fromkeys(range(count), (1, 2, 3)), {}, {})
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        await store.multi([Create(layout.topic_path("t"), layout.encode_topic(topic))])
        await store.multi([*identity.made("t", TOPIC_ID), Create(layout.partitions_path("t"))])
        state = layout.encode_state(StateNode(1, 0, 9, (1,)))
        for number in range(count):
            await store.multi(
                [Create(layout.partition_path("t", number)), Create(layout.state_path("t", number), state)]
            )
        broker = layout.encode_broker(BrokerNode((), {}, None, 0))
        for number in (2, 3):
            await store.create(layout.broker_path(number), broker, ephemeral=True)
        observed = ObservedStore(store)
        writer = IsrWriter(observed)  # type: ignore[arg-type]
        await scenario(observed, writer, [Leading(number) for number in range(count)])

    asyncio.run(asyncio.wait_for(run(), 60))


def _joining(broker_id: int, epoch: int = -1) -> IsrProposal:
    return IsrProposal((1, broker_id), 0, 0, {broker_id: epoch})


async def _isr_of(store: ObservedStore, partition: int) -> tuple[int, ...]:
    return layout.decode_state((await store.get(layout.state_path("t", partition))).data).isr


def test_the_return_of_a_broker_to_many_partitions_is_few_transactions() -> None:
    count = 2 * MAX_STATES_PER_TRANSACTION + 1

    async def scenario(store: ObservedStore, writer: IsrWriter, leading: list[Leading]) -> None:
        for one in leading:
            writer.propose(one, _joining(2))
        await writer.finish()
        assert store.writes == [MAX_STATES_PER_TRANSACTION, MAX_STATES_PER_TRANSACTION, 1]
        assert all(one.committed == [1] for one in leading)
        assert {await _isr_of(store, number) for number in range(count)} == {(1, 2)}
        assert (writer.expansions, writer.failures) == (count, 0)

    _run(scenario, count)


def test_proposals_made_during_a_transaction_share_the_next_one() -> None:
    async def scenario(store: ObservedStore, writer: IsrWriter, leading: list[Leading]) -> None:
        async def more() -> None:
            for one in leading[1:]:
                writer.propose(one, _joining(2))

        store.before = more
        writer.propose(leading[0], _joining(2))
        await writer.finish()
        assert store.writes == [1, 3]
        assert all(one.committed == [1] for one in leading)

    _run(scenario, 4)


def test_a_proposal_that_lost_a_race_does_not_hold_up_the_others() -> None:
    state = layout.encode_state(StateNode(1, 0, 10, (1, 3)))

    async def scenario(store: ObservedStore, writer: IsrWriter, leading: list[Leading]) -> None:
        # Another writer is faster after the nodes were read.
        store.before = lambda: store.set(layout.state_path("t", 1), state)
        for one in leading:
            writer.propose(one, _joining(2))
        await writer.finish()
        assert [one.committed for one in leading] == [[1], [], [1]]
        assert [await _isr_of(store, number) for number in range(3)] == [(1, 2), (1, 3), (1, 2)]
        assert (writer.expansions, writer.failures) == (2, 1)

    _run(scenario, 3)


@pytest.mark.parametrize("together", [1, 2])
def test_a_proposal_that_the_store_denies_does_not_hold_up_later_ones(together: int) -> None:
    async def scenario(store: ObservedStore, writer: IsrWriter, leading: list[Leading]) -> None:
        store.denied = layout.state_path("t", 0)
        for one in leading[:together]:
            writer.propose(one, _joining(2))
        await let_run()
        assert writer.failures == 1
        for one in leading[together:]:
            writer.propose(one, _joining(2))
        await let_run()
        assert [one.committed for one in leading] == [[], [1], [1]]
        writer.stop()
        await writer.finish()

    _run(scenario, 3)


def test_a_fault_of_one_partition_does_not_keep_the_outcome_from_the_others() -> None:
    async def scenario(store: ObservedStore, writer: IsrWriter, leading: list[Leading]) -> None:
        leading[0].is_faulty = True
        for one, broker_id in zip(leading, (2, 7, 2), strict=True):
            writer.propose(one, _joining(broker_id))
        await writer.finish()
        assert [one.committed for one in leading] == [[1], [], [1]]
        assert [one.refused for one in leading] == [0, 1, 0]

    _run(scenario, 3)


@pytest.mark.parametrize("together", [1, 2])
def test_a_proposal_whose_write_failed_unexpectedly_is_logged_and_written_again(
    together: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays open meanwhile: the fault may have come after the write."""
    monkeypatch.setattr("felice.replication.isr._RETRY_S", 0)

    async def scenario(store: ObservedStore, writer: IsrWriter, leading: list[Leading]) -> None:
        store.faults = 2
        for one in leading:
            writer.propose(one, _joining(2))
        await writer.finish()
        assert [(one.committed, one.refused) for one in leading] == [([1], 0)] * together

    _run(scenario, together)
    assert "a fault" in caplog.text and "Traceback" in caplog.text


def test_a_proposal_that_cannot_be_written_leaves_the_transaction_to_the_others() -> None:
    async def scenario(store: ObservedStore, writer: IsrWriter, leading: list[Leading]) -> None:
        await store.set(layout.state_path("t", 0), b"not JSON", 0)
        await store.set(layout.state_path("t", 1), layout.encode_state(StateNode(3, 1, 9, (3,))), 0)
        proposals = [_joining(2), _joining(2), _joining(2, epoch=77), _joining(7), _joining(2), _joining(3)]
        for one, proposal in zip(leading, proposals, strict=True):
            writer.propose(one, proposal)
        store.writes.clear()
        await writer.finish()
        assert store.writes == [2]
        assert [one.committed for one in leading] == [[], [], [], [], [1], [1]]
        # These brokers are not registered, or not as they were.
        assert [one.refused for one in leading] == [0, 0, 1, 1, 0, 0]
        assert (writer.expansions, writer.failures) == (2, 4)

    _run(scenario, 6)


def test_a_broker_that_leaves_while_it_joins_holds_up_only_its_own_proposals() -> None:
    async def scenario(store: ObservedStore, writer: IsrWriter, leading: list[Leading]) -> None:
        store.before = lambda: store.delete(layout.broker_path(2))
        for one, broker_id in zip(leading, (2, 3, 2), strict=True):
            writer.propose(one, _joining(broker_id))
        await writer.finish()
        assert [one.committed for one in leading] == [[], [1], []]
        assert [one.refused for one in leading] == [1, 0, 1]

    _run(scenario, 3)


def test_proposals_whose_common_answer_was_lost_are_found_in_the_nodes() -> None:
    async def scenario(store: ObservedStore, writer: IsrWriter, leading: list[Leading]) -> None:
        store.loses_the_answer = True
        for one in leading:
            writer.propose(one, _joining(2))
        await writer.finish()
        assert store.writes == [3]
        assert [one.committed for one in leading] == [[1], [1], [1]]
        assert (writer.expansions, writer.failures) == (3, 0)

    _run(scenario, 3)


def test_a_proposal_that_no_longer_matters_is_not_written() -> None:
    async def scenario(store: ObservedStore, writer: IsrWriter, leading: list[Leading]) -> None:
        for one in leading:
            writer.propose(one, _joining(2))
        leading[1].refused = 1
        await writer.finish()
        assert store.writes == [2]
        assert await _isr_of(store, 1) == (1,)

    _run(scenario, 3)


def test_a_lost_race_of_one_proposal_alone_says_why() -> None:
    async def scenario(store: ObservedStore, writer: IsrWriter, leading: list[Leading]) -> None:
        store.before = lambda: store.delete(layout.state_path("t", 0))
        writer.propose(leading[0], _joining(2))
        await writer.finish()
        assert (leading[0].committed, leading[0].refused, writer.failures) == ([], 0, 1)
        store.before = lambda: store.delete(layout.broker_path(2))
        writer.propose(leading[1], _joining(2))
        await writer.finish()
        assert (leading[1].committed, leading[1].refused, writer.failures) == ([], 1, 2)

    _run(scenario, 2)
