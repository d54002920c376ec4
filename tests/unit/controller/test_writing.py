"""Writing many decisions: what a version conflict of some of them costs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from felice.controller.duties import Decision, StateChange
from felice.controller.writing import write_decisions
from felice.metadata import Create, identity, layout
from felice.metadata.layout import StateNode, TopicNode
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.metadata.store import Operation

TOPIC_ID = UUID(int=5)


class CountingStore:
    """A store that counts its transactions."""

    def __init__(self, store: MemoryStore) -> None:
        self.transactions = 0
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def multi(self, operations: Sequence[Operation]) -> Any:
        self.transactions += 1
        return await self._store.multi(operations)


async def _store_with(partitions: int) -> MemoryStore:
    store = MemoryEnsemble().connect()
    topic = TopicNode(TOPIC_ID, dict.fromkeys(range(partitions), (1, 2)), {}, {})
    await store.multi([*(Create(path) for path in layout.PERSISTENT_PATHS), Create(layout.CONTROLLER_EPOCH)])
    await store.multi([Create(layout.topic_path("t"), layout.encode_topic(topic))])
    await store.multi([*identity.made("t", TOPIC_ID), Create(layout.partitions_path("t"))])
    for number in range(partitions):
        state = layout.encode_state(StateNode(1, 0, 1, (1, 2)))
        paths = layout.partition_path("t", number), layout.state_path("t", number)
        await store.multi([Create(paths[0]), Create(paths[1], state)])
    return store


@pytest.mark.parametrize("are_deleted", [False, True])
@pytest.mark.parametrize(("changed", "transactions"), [(0, 1), (1, 2), (20, 2), (40, 1)])
def test_decisions_about_states_that_another_controller_changed_cost_no_transaction_each(
    changed: int, transactions: int, are_deleted: bool
) -> None:
    """Two controllers decide the same when many brokers stop at once, or one has deleted states of a topic."""

    async def scenario() -> None:
        store = await _store_with(40)
        decisions: list[Decision] = [
            StateChange("t", TOPIC_ID, number, StateNode(2, 1, 1, (2,)), 0) for number in range(40)
        ]
        for number in range(changed):
            path = layout.state_path("t", number)
            if are_deleted:
                await store.delete(path)
            else:
                await store.set(path, layout.encode_state(StateNode(2, 1, 1, (2,))))
        counting = CountingStore(store)
        lost = await write_decisions(counting, 0, decisions)  # type: ignore[arg-type]
        assert lost == decisions[:changed]
        assert counting.transactions == transactions
        nodes = await store.get_many([layout.state_path("t", number) for number in range(40)])
        versions = [None if node is None else node.version for node in nodes]
        gone: list[int | None] = [None] * changed if are_deleted else []
        assert versions == gone + [1] * (40 - len(gone))

    asyncio.run(scenario())


def test_a_decision_about_an_earlier_topic_of_the_name_does_not_keep_the_others_from_being_written() -> None:
    """The states of the new topic have the same versions, so reading them does not show which decision is outdated."""

    async def scenario() -> None:
        store = await _store_with(3)
        decisions: list[Decision] = [
            StateChange("t", TOPIC_ID, number, StateNode(2, 1, 1, (2,)), 0) for number in (0, 2)
        ]
        outdated = StateChange("t", UUID(int=4), 1, StateNode(2, 1, 1, (2,)), 0)
        assert await write_decisions(store, 0, [*decisions, outdated]) == [outdated]
        versions = [(await store.get(layout.state_path("t", number))).version for number in range(3)]
        assert versions == [1, 0, 1]

    asyncio.run(scenario())
