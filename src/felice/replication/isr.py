"""Writes the leaders' proposals about in-sync sets into the state nodes of partitions.

Keeps true: C1 every write is a compare-and-set on the node's version, which is the partition epoch: after a version
            conflict with the controller or another leader nothing is written. It also checks the topic's id, because
            another topic of the same name could have a node of the same version.
            A replica joins only while its broker is registered as it was when it fetched (KIP-903).
            A proposal whose outcome is unknown stays open until the node shows it.
How:        one task for each proposal. After a version conflict the next image brings the winner's state, and the
            leader decides again. A request that the store does not answer is repeated while the proposal matters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from enum import Enum
from uuid import UUID

from felice.metadata import BadVersion, Check, MetadataStore, NoNode, SetData, identity, layout
from felice.metadata.store import Operation, SessionExpired, StoreError
from felice.replication.dependencies import ProposingPartition
from felice.replication.leader import IsrProposal, without

_log = logging.getLogger("felice.replication")

_RETRY_S = 1.0


class WriteOutcome(Enum):
    """Why a proposal was not written."""

    VERSION_CONFLICT = "version conflict"
    """Another writer was first: the next image shows its state."""
    INELIGIBLE = "ineligible"
    """A joining replica's broker is no longer registered as it was when it fetched."""


class IsrWriter:
    """Writes proposals of this broker's leaders, each in a task of its own."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        # Counts since the start, for the metrics.
        self.shrinks = self.expansions = self.failures = 0

    def propose(self, partition: ProposingPartition, proposal: IsrProposal) -> None:
        """Begins to write a proposal. The partition is called with the outcome, unless a newer state replaces the
        proposal first.
        """
        self._begin(self._carry(partition, proposal))

    def resign(
        self,
        topic: str,
        topic_id: UUID,
        partition: int,
        broker_id: int,
        replicas: tuple[int, ...],
        fallbacks: tuple[int, ...] = (),
    ) -> None:
        """Begins to resign from a replica that this broker cannot serve: leadership and ISR membership pass to other
        replicas, to the first of the `fallbacks` if no other replica is in sync.
        """
        self._begin(self._resign(topic, topic_id, partition, broker_id, replicas, fallbacks))

    def stop(self) -> None:
        """Cancels all writes and refuses later ones. A write under way may still happen."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()

    async def finish(self) -> None:
        """Returns when no write is under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, partition: ProposingPartition, proposal: IsrProposal) -> None:
        name = partition.name
        while not self._is_stopped and partition.awaits(proposal):
            try:
                outcome = await self._write(partition, proposal)
            except SessionExpired:
                return  # the cluster elects a leader again once this broker has a new session
            except StoreError as error:
                self.failures += 1
                _log.warning(
                    "the in-sync set is not written", extra={"partition": name, "reason": str(error)}
                )
                await asyncio.sleep(_RETRY_S)
                continue
            self._count(proposal, outcome)
            if outcome is WriteOutcome.INELIGIBLE:
                partition.on_proposal_refused(proposal)
            elif isinstance(outcome, int):
                partition.on_proposal_committed(proposal, outcome)
            return

    def _count(self, proposal: IsrProposal, outcome: int | WriteOutcome) -> None:
        if isinstance(outcome, WriteOutcome):
            self.failures += 1
        elif proposal.joining:
            self.expansions += 1
        else:
            self.shrinks += 1

    async def _write(self, partition: ProposingPartition, proposal: IsrProposal) -> int | WriteOutcome:
        path = layout.state_path(partition.topic, partition.partition)
        node = await self._store.exists(path)
        if node is None:
            return WriteOutcome.VERSION_CONFLICT
        state = layout.decode_state(node.data)
        if node.version != proposal.partition_epoch:
            # The version is the next one: perhaps this broker wrote it and lost the answer.
            is_ours = node.version == proposal.partition_epoch + 1 and (state.leader_epoch, state.isr) == (
                proposal.leader_epoch,
                proposal.isr,
            )
            return node.version if is_ours else WriteOutcome.VERSION_CONFLICT
        guards = await self._guards(proposal)
        if guards is None:
            return WriteOutcome.INELIGIBLE
        change = SetData(path, layout.encode_state(replace(state, isr=proposal.isr)), node.version)
        try:
            return await self._set_bound(partition.topic, partition.topic_id, guards, change)
        except BadVersion:
            return WriteOutcome.VERSION_CONFLICT
        except NoNode as error:
            is_newcomers = any(error.path == guard.path for guard in guards)
            return WriteOutcome.INELIGIBLE if is_newcomers else WriteOutcome.VERSION_CONFLICT

    async def _set_bound(
        self, topic: str, topic_id: UUID, guards: Sequence[Operation], change: SetData
    ) -> int:
        """Returns the new version. Raises `NoNode` for the topic-id node if the name now belongs to another topic."""
        bound = identity.bound(topic, topic_id)
        try:
            outcomes = await self._store.multi([bound, *guards, change])
        except NoNode as error:
            if error.path != bound.path or not await identity.adopt(self._store, topic, topic_id):
                raise
            outcomes = await self._store.multi([bound, *guards, change])
        written = outcomes[-1]
        assert isinstance(written, int)
        return written

    async def _guards(self, proposal: IsrProposal) -> list[Operation] | None:
        guards: list[Operation] = []
        for broker_id, fetched_under in proposal.joining.items():
            path = layout.broker_path(broker_id)
            node = await self._store.exists(path)
            if node is None or fetched_under not in (-1, node.created_zxid):
                return None
            guards.append(Check(path))
        return guards

    async def _resign(
        self,
        topic: str,
        topic_id: UUID,
        number: int,
        broker_id: int,
        replicas: tuple[int, ...],
        fallbacks: tuple[int, ...],
    ) -> None:
        path = layout.state_path(topic, number)
        while not self._is_stopped:
            try:
                node = await self._store.exists(path)
                if node is None:
                    return
                state = without(broker_id, layout.decode_state(node.data), replicas, fallbacks)
                if state is None:
                    return
                change = SetData(path, layout.encode_state(state), node.version)
                await self._set_bound(topic, topic_id, (), change)
            except (SessionExpired, NoNode):
                return  # the name now belongs to another topic
            except BadVersion:
                continue
            except StoreError as error:
                _log.warning("a replica is not given up", extra={"path": path, "reason": str(error)})
                await asyncio.sleep(_RETRY_S)
                continue
            _log.warning("a replica was given up", extra={"partition": f"{topic}-{number}"})
            return
