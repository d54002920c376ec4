"""Writing the ISR into the store: version conflicts, lost answers, joining brokers that leave, and resigning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from felice.metadata import Create, Delete, StoreUnavailable, identity, layout
from felice.metadata.layout import BrokerNode, Endpoint, StateNode, TopicNode
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.metadata.store import Operation
from felice.protocol.errors import ErrorCode
from felice.replication import isr
from felice.replication.isr import IsrWriter
from felice.replication.leader import IsrProposal
from felice.replication.partition import Partition
from waiting import LIMIT_S

from .test_partition import lead, make

TOPIC_ID, OTHER_ID = UUID(int=5), UUID(int=6)
PATH = layout.state_path("t", 0)


class UnsureStore:
    """A store that reports a failure, before or after it wrote, or has a fault."""

    def __init__(self, store: MemoryStore, failures: list[str]) -> None:
        self._store = store
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def multi(self, operations: Any) -> Any:
        failure = self._failures.pop(0) if self._failures else ""
        if failure == "fault":
            raise RuntimeError("a fault")
        outcome = await self._store.multi(operations) if failure != "before" else None
        if failure:
            raise StoreUnavailable("/", "lost")
        return outcome


def made(topic_id: UUID, state: StateNode) -> list[Operation]:
    topic = TopicNode(topic_id, {0: (1, 2, 3)}, {}, {})
    return [
        Create(layout.topic_path("t"), layout.encode_topic(topic)),
        *identity.made("t", topic_id),
        Create(layout.partitions_path("t")),
        Create(layout.partition_path("t", 0)),
        Create(PATH, layout.encode_state(state)),
    ]


def unmade(topic_id: UUID) -> list[Operation]:
    return [Delete(operation.path) for operation in reversed(made(topic_id, StateNode(1, 0, 9, (1,))))]


async def store_with(state: StateNode, *brokers: int) -> MemoryStore:
    store = MemoryEnsemble().connect()
    await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
    await store.multi(made(TOPIC_ID, state))
    node = layout.encode_broker(
        BrokerNode((Endpoint("PLAINTEXT", "h", 1),), {"PLAINTEXT": "PLAINTEXT"}, None, 0)
    )
    for broker_id in brokers:
        await store.create(layout.broker_path(broker_id), node, ephemeral=True)
    return store


def leading(tmp_path: Path, *in_sync: int) -> tuple[Partition, IsrProposal]:
    partition = make(tmp_path)
    lead(partition, 0, replicas=(1, 2, 3), isr=in_sync, partition_epoch=0)
    assert partition.leader is not None
    # No replica has fetched for a long time.
    proposal = partition.leader.propose_shrinkage(
        0, log_end_offset=5, lag_time_max_ms=0, broker_epoch_of=lambda broker: None, now_ms=2**62
    )
    assert proposal is not None
    return partition, proposal


def run(scenario: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr, "_RETRY_S", 0.001)
    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))  # type: ignore[arg-type]


async def state_of(store: Any) -> tuple[StateNode, int]:
    node = await store.get(PATH)
    return layout.decode_state(node.data), node.version


@pytest.mark.parametrize("failures", [[], ["before"], ["after"], ["before", "before", "after"]])
def test_a_change_is_made_once_even_if_messages_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: list[str]
) -> None:
    unsure = len(failures)

    async def scenario() -> None:
        store = UnsureStore(await store_with(StateNode(1, 0, 9, (1, 2, 3))), list(failures))
        partition, proposal = leading(tmp_path, 1, 2, 3)
        writer = IsrWriter(store)  # type: ignore[arg-type]
        writer.propose(partition, proposal)
        await writer.finish()
        # The write keeps the controller epoch in the node.
        assert await state_of(store) == (StateNode(1, 0, 9, (1,)), 1)
        assert (partition.isr, partition.partition_epoch) == ((1,), 1)
        assert (writer.shrinks, writer.expansions, writer.failures) == (1, 0, unsure)

    run(scenario, monkeypatch)


def test_a_proposal_of_a_deleted_partition_does_not_change_a_new_one_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    successor = StateNode(1, 0, 9, (1, 4, 5))

    async def scenario() -> None:
        store = await store_with(StateNode(1, 0, 9, (1, 2, 3)))
        partition, proposal = leading(tmp_path, 1, 2, 3)
        writer = IsrWriter(UnsureStore(store, ["before"]))  # type: ignore[arg-type]
        writer.propose(partition, proposal)
        await asyncio.sleep(0)
        await store.delete(PATH)
        await store.create(PATH, layout.encode_state(successor))
        partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await writer.finish()
        assert await state_of(store) == (successor, 0)

    run(scenario, monkeypatch)


def test_a_version_conflict_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store = await store_with(StateNode(1, 0, 9, (1, 2, 3)))
        await store.set(PATH, layout.encode_state(StateNode(1, 0, 10, (1, 2))))
        partition, proposal = leading(tmp_path, 1, 2, 3)
        writer = IsrWriter(store)
        writer.propose(partition, proposal)
        await writer.finish()
        assert await state_of(store) == (StateNode(1, 0, 10, (1, 2)), 1)
        # The proposal is still open: only the image shows the outcome.
        assert partition.leader is not None
        assert partition.leader.proposal is proposal
        assert partition.isr == (1, 2, 3)
        assert (writer.shrinks, writer.failures) == (0, 1)

    run(scenario, monkeypatch)


@pytest.mark.parametrize("alive", [(), (2,)])
def test_a_replica_joins_only_while_its_registration_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: tuple[int, ...]
) -> None:
    async def scenario() -> None:
        store = await store_with(StateNode(1, 0, 9, (1,)), *alive)
        partition = make(tmp_path)
        lead(partition, 0, replicas=(1, 2), isr=(1,), partition_epoch=0)
        assert partition.leader is not None
        partition.on_follower_fetch(
            2, 0, log_start_offset=0, broker_epoch=999, current_leader_epoch=0, last_fetched_epoch=-1
        )
        # As far as this leader knows, the broker is registered as it was when it fetched.
        proposal = partition.leader.propose_expansion(2, 0, lambda broker: 999)
        assert proposal is not None
        writer = IsrWriter(store)
        writer.propose(partition, proposal)
        await writer.finish()
        assert (await state_of(store))[0].isr == (1,)
        assert partition.leader.proposal is None
        assert partition.leader.maximal_isr == (1,)

    run(scenario, monkeypatch)


def test_a_resignation_is_repeated_until_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = UnsureStore(await store_with(StateNode(1, 0, 9, (1, 2))), ["before", "fault", "after"])
        writer = IsrWriter(store)  # type: ignore[arg-type]
        writer.resign("t", TOPIC_ID, 0, 1, (1, 2))
        await writer.finish()
        assert await state_of(store) == (StateNode(2, 1, 9, (2,)), 1)

    run(scenario, monkeypatch)


def test_a_resignation_from_a_replica_that_is_back_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log may be open again when the store answers."""

    async def scenario(failures: list[str], needed: list[bool]) -> None:
        store = UnsureStore(await store_with(StateNode(1, 0, 9, (1, 2))), failures)
        writer = IsrWriter(store)  # type: ignore[arg-type]
        writer.resign("t", TOPIC_ID, 0, 1, (1, 2), is_needed=lambda: needed.pop(0))
        await writer.finish()
        assert await state_of(store) == (StateNode(1, 0, 9, (1, 2)), 0)

    run(lambda: scenario(["before"], [True, True, False]), monkeypatch)
    run(lambda: scenario([], [True, False]), monkeypatch)


@pytest.mark.parametrize("data", [b"not JSON", b"{}", b"[]", b"1"])
def test_a_replica_with_an_unreadable_state_is_not_resigned_from(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    async def scenario() -> None:
        store = await store_with(StateNode(1, 0, 9, (1, 2)))
        await store.set(PATH, data)
        writer = IsrWriter(store)
        writer.resign("t", TOPIC_ID, 0, 1, (1, 2))
        await writer.finish()
        assert (await store.get(PATH)).data == data

    run(scenario, monkeypatch)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("act", ["propose", "resign"])
def test_the_reason_of_repeated_attempts_is_logged_once_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, act: str
) -> None:
    async def scenario() -> None:
        failures = ["fault", "fault", "before", "before", "fault"]
        store = UnsureStore(await store_with(StateNode(1, 0, 9, (1, 2, 3))), failures)
        writer = IsrWriter(store)  # type: ignore[arg-type]
        if act == "propose":
            proposes(tmp_path, writer)
        else:
            resigns(tmp_path, writer)
        await writer.finish()
        assert not failures

    run(scenario, monkeypatch)
    reasons = [vars(line)["reason"] for line in caplog.records if "not written" in line.message]
    assert reasons == ["a fault", "/: lost", "a fault"]
    assert caplog.text.count("Traceback") == 2


class Outrunning:
    """Between the read and the write another topic takes the name; its state has the same version."""

    def __init__(self, store: MemoryStore, successor: StateNode) -> None:
        self._store = store
        self._successor = successor
        self.replaced = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def multi(self, operations: Any) -> Any:
        if not self.replaced:
            self.replaced += 1
            await self._store.multi([*unmade(TOPIC_ID), *made(OTHER_ID, self._successor)])
        return await self._store.multi(operations)


def proposes(tmp_path: Path, writer: IsrWriter) -> None:
    writer.propose(*leading(tmp_path, 1, 2, 3))


def resigns(tmp_path: Path, writer: IsrWriter) -> None:
    writer.resign("t", TOPIC_ID, 0, 1, (1, 2, 3))


@pytest.mark.parametrize("act", [proposes, resigns])
def test_a_new_topic_of_the_same_name_keeps_its_own_isr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path, IsrWriter], None]
) -> None:
    successor = StateNode(1, 0, 9, (1, 2, 3))

    async def scenario() -> None:
        store = Outrunning(await store_with(StateNode(1, 0, 9, (1, 2, 3))), successor)
        writer = IsrWriter(store)  # type: ignore[arg-type]
        act(tmp_path, writer)
        await writer.finish()
        assert store.replaced == 1
        assert await state_of(store) == (successor, 0)

    run(scenario, monkeypatch)


@pytest.mark.parametrize("act", [proposes, resigns])
def test_a_topic_created_without_an_id_node_gets_one_with_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path, IsrWriter], None]
) -> None:
    async def scenario() -> None:
        store = await store_with(StateNode(1, 0, 9, (1, 2, 3)))
        await store.multi(identity.unmade("t", TOPIC_ID))
        writer = IsrWriter(store)
        act(tmp_path, writer)
        await writer.finish()
        assert (await state_of(store))[1] == 1
        assert await store.exists(layout.topic_id_path("t", TOPIC_ID)) is not None

    run(scenario, monkeypatch)


def test_the_last_isr_member_resigns_only_for_a_fallback_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = await store_with(StateNode(1, 0, 9, (1,)))
        writer = IsrWriter(store)
        writer.resign("t", TOPIC_ID, 0, 1, (1, 2, 3))
        await writer.finish()
        assert await state_of(store) == (StateNode(1, 0, 9, (1,)), 0)
        writer.resign("t", TOPIC_ID, 0, 1, (1, 2, 3), fallbacks=(3, 2))
        await writer.finish()
        assert await state_of(store) == (StateNode(3, 1, 9, (3,)), 1)

    run(scenario, monkeypatch)


class Shrinking:
    """Another broker writes the in-sync set between the read and the write."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def multi(self, operations: Any) -> Any:
        self.writes += 1
        if self.writes == 1:
            await self._store.set(PATH, layout.encode_state(StateNode(1, 0, 9, (1, 3))))
        return await self._store.multi(operations)


def test_a_resignation_after_a_version_conflict_uses_the_new_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = Shrinking(await store_with(StateNode(1, 0, 9, (1, 2))))
        writer = IsrWriter(store)  # type: ignore[arg-type]
        writer.resign("t", TOPIC_ID, 0, 1, (1, 2, 3))
        await writer.finish()
        assert await state_of(store) == (StateNode(3, 1, 9, (3,)), 2)

    run(scenario, monkeypatch)


@pytest.mark.parametrize("act", [proposes, resigns])
def test_a_store_that_does_not_answer_is_asked_again_after_a_pause(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    act: Callable[[Path, IsrWriter], None],
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(isr, "_RETRY_S", 0.15)
        store = UnsureStore(await store_with(StateNode(1, 0, 9, (1, 2, 3))), ["before"])
        writer = IsrWriter(store)  # type: ignore[arg-type]
        began = asyncio.get_running_loop().time()
        act(tmp_path, writer)
        await writer.finish()
        assert asyncio.get_running_loop().time() - began >= 0.14
        assert (await state_of(store))[1] == 1

    run(scenario, monkeypatch)
    [reason] = [row.__dict__["reason"] for row in caplog.records if "reason" in row.__dict__]
    assert "lost" in reason


def test_nothing_is_written_after_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        before = StateNode(1, 0, 9, (1, 2, 3))
        store = await store_with(before)
        for act in (proposes, resigns):
            path = tmp_path / act.__name__
            path.mkdir()
            writer = IsrWriter(store)
            act(path, writer)
            writer.stop()
            await writer.finish()
            writer._begin(writer._resign("t", TOPIC_ID, 0, 1, (1, 2, 3), (), lambda: True))
            await writer.finish()
        assert await state_of(store) == (before, 0)

    run(scenario, monkeypatch)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_write_whose_answer_was_lost_counts_only_if_the_node_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    async def scenario() -> None:
        store = await store_with(StateNode(1, 0, 9, (1, 2, 3)))
        partition, proposal = leading(tmp_path, 1, 2, 3)
        # The same in-sync set in another leader epoch is not this proposal.
        await store.set(PATH, layout.encode_state(StateNode(1, 0 if is_ours else 1, 9, proposal.isr)))
        writer = IsrWriter(store)
        writer.propose(partition, proposal)
        await writer.finish()
        assert (writer.shrinks, writer.failures) == ((1, 0) if is_ours else (0, 1))
        assert partition.isr == (proposal.isr if is_ours else (1, 2, 3))

    run(scenario, monkeypatch)


def test_a_partition_without_a_state_node_has_nothing_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = await store_with(StateNode(1, 0, 9, (1, 2, 3)))
        await store.delete(PATH)
        writer = IsrWriter(store)
        resigns(tmp_path, writer)
        proposes(tmp_path, writer)
        await writer.finish()
        assert await store.exists(PATH) is None
        assert writer.failures == 1

    run(scenario, monkeypatch)


def test_a_replica_that_joins_is_an_expansion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store = await store_with(StateNode(1, 0, 9, (1,)), 2)
        node = await store.exists(layout.broker_path(2))
        assert node is not None
        registered = node.created_zxid
        partition = make(tmp_path)
        lead(partition, 0, replicas=(1, 2), isr=(1,), partition_epoch=0)
        assert partition.leader is not None
        partition.on_follower_fetch(
            2, 0, log_start_offset=0, broker_epoch=registered, current_leader_epoch=0, last_fetched_epoch=-1
        )
        proposal = partition.leader.propose_expansion(2, 0, lambda broker: registered)
        assert proposal is not None
        writer = IsrWriter(store)
        writer.propose(partition, proposal)
        await writer.finish()
        assert (await state_of(store))[0].isr == partition.isr == (1, 2)
        assert (writer.shrinks, writer.expansions, writer.failures) == (0, 1, 0)

    run(scenario, monkeypatch)
