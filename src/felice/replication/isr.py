"""Writes the leaders' proposals about in-sync sets into the state nodes of partitions.

Keeps true: C1 every write is a compare-and-set on the node's version, which is the partition epoch: after a version
            conflict with the controller or another leader nothing is written. It also checks the topic's id, because
            another topic of the same name could have a node of the same version.
            A replica joins only while its broker is registered as it was when it fetched (KIP-903).
            A proposal whose outcome is unknown stays open until the node shows it.
How:        one shared transaction is under way at a time, and the proposals that are made meanwhile share the next one.
            If a transaction fails, each of its proposals gets a transaction of its own, while later proposals share the
            next one: so none waits for a proposal that the store refuses. After a version conflict the next image
            shows the winner's state, and the leader decides again. A request that the store does not answer, or
            that fails unexpectedly, is repeated as long as the partition still awaits its proposal, because the
            proposal may have been written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from uuid import UUID

from felice.dataclass import dataclass
from felice.metadata import BadVersion, Check, MetadataStore, NoNode, SetData, identity, layout
from felice.metadata.layout import MAX_STATES_PER_TRANSACTION, StateNode
from felice.metadata.store import Node, Operation, SessionExpired, StoreError
from felice.protocol.errors import BrokenInvariant
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


@dataclass(frozen=True, slots=True)
class _Proposed:
    partition: ProposingPartition
    proposal: IsrProposal

    @property
    def path(self) -> str:
        return layout.state_path(self.partition.topic, self.partition.partition)

    @property
    def joining(self) -> dict[str, int]:
        """The nodes of the brokers that join, and the broker epochs under which they fetched."""
        return {layout.broker_path(broker): epoch for broker, epoch in self.proposal.joining.items()}


class IsrWriter:
    """Writes proposals of this broker's leaders, many in one transaction."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()
        self._proposed: list[_Proposed] = []
        self._carrying: asyncio.Task[None] | None = None
        self._is_stopped = False
        # Counts since the start, for the metrics.
        self.shrinks = self.expansions = self.failures = 0

    def propose(self, partition: ProposingPartition, proposal: IsrProposal) -> None:
        """Begins to write a proposal. The partition is called with the outcome, unless a newer state replaces the
        proposal first.
        """
        self._proposed.append(_Proposed(partition, proposal))
        if self._carrying is None or self._carrying.done():
            self._carrying = self._begin(self._carry_proposed())

    def resign(
        self,
        topic: str,
        topic_id: UUID,
        partition: int,
        broker_id: int,
        replicas: tuple[int, ...],
        fallbacks: tuple[int, ...] = (),
        is_needed: Callable[[], bool] = lambda: True,
    ) -> None:
        """Begins to resign from a replica that this broker cannot serve: leadership and ISR membership pass to other
        replicas, to the first of the `fallbacks` if no other replica is in sync.

        Ends without a write if `is_needed` is false: the replica may be back before the store answers.
        """
        self._begin(self._resign(topic, topic_id, partition, broker_id, replicas, fallbacks, is_needed))

    def stop(self) -> None:
        """Cancels all writes and refuses later ones. A write under way may still happen."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()

    async def finish(self) -> None:
        """Returns when no write is under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _carry_proposed(self) -> None:
        while self._proposed:
            batch = self._proposed[:MAX_STATES_PER_TRANSACTION]
            del self._proposed[:MAX_STATES_PER_TRANSACTION]
            error = await self._try(batch)
            if error is not None:
                # Any of them may be the reason.
                is_alone = len(batch) == 1
                for one in batch:
                    self._begin(self._carry_alone(one, error if is_alone else None))

    async def _carry_alone(self, proposed: _Proposed, error: Exception | None) -> None:
        """Writes one proposal; `error` is that of an attempt before."""
        reported: Exception | None = None
        while not self._is_stopped:
            if error is not None:
                self.failures += 1
                _report(
                    "an ISR change was not written; it is tried again",
                    proposed.partition.name,
                    error,
                    reported,
                )
                reported = error
                await asyncio.sleep(_RETRY_S)
            error = await self._try([proposed])
            if error is None:
                return

    async def _try(self, batch: Sequence[_Proposed]) -> Exception | None:
        """Writes the proposals that still matter. Returns the reason if they have to be written again."""
        batch = [one for one in batch if one.partition.awaits(one.proposal)]
        if self._is_stopped or not batch:
            return None
        try:
            outcomes = await self._write(batch)
        except SessionExpired:
            return None  # the cluster elects a leader again once this broker has a new session
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, StoreError):
                # Logged here, because each proposal is written alone next, and the fault may not occur again.
                names = [one.partition.name for one in batch]
                _log.exception(
                    "writing ISR changes failed unexpectedly; each is written alone now",
                    extra={"partitions": names},
                )
            return error
        for one, outcome in zip(batch, outcomes, strict=True):
            self._conclude(one, outcome)
        return None

    def _conclude(self, proposed: _Proposed, outcome: int | WriteOutcome) -> None:
        self._count(proposed.proposal, outcome)
        try:
            if outcome is WriteOutcome.INELIGIBLE:
                proposed.partition.on_proposal_refused(proposed.proposal)
            elif isinstance(outcome, int):
                proposed.partition.on_proposal_committed(proposed.proposal, outcome)
        except BrokenInvariant:
            pass  # it has stopped the partition, and is reported
        except Exception:
            # A fault of one partition must not keep the outcomes of the same transaction from the others.
            _log.exception(
                "the outcome of a change of the in-sync set could not be applied to the partition",
                extra={"partition": proposed.partition.name},
            )

    def _count(self, proposal: IsrProposal, outcome: int | WriteOutcome) -> None:
        if isinstance(outcome, WriteOutcome):
            self.failures += 1
        elif proposal.joining:
            self.expansions += 1
        else:
            self.shrinks += 1

    async def _write(self, batch: Sequence[_Proposed]) -> list[int | WriteOutcome]:
        """Writes those that can be written in one transaction; returns each one's new version, or why it has none.

        Raises `BadVersion` or `NoNode` if one of several lost a race after it was read.
        """
        brokers = list({path: None for one in batch for path in one.joining})
        paths = [*(one.path for one in batch), *brokers]
        nodes = dict(zip(paths, await self._store.get_many(paths), strict=True))
        results = [_judge(one, nodes) for one in batch]
        writes = [one for one, result in zip(batch, results, strict=True) if isinstance(result, SetData)]
        topics = [(one.partition.topic, one.partition.topic_id) for one in writes]
        guards = [Check(path) for path in {path: None for one in writes for path in one.joining}]
        changes = [result for result in results if isinstance(result, SetData)]
        written: Iterable[int | WriteOutcome]
        try:
            written = await self._set_bound(topics, guards, changes) if changes else ()
        except (BadVersion, NoNode) as error:
            if len(changes) > 1:
                raise
            is_newcomers = isinstance(error, NoNode) and error.path in brokers
            written = [WriteOutcome.INELIGIBLE if is_newcomers else WriteOutcome.VERSION_CONFLICT]
        versions = iter(written)
        return [next(versions) if isinstance(result, SetData) else result for result in results]

    async def _set_bound(
        self, topics: Iterable[tuple[str, UUID]], guards: Sequence[Check], changes: Sequence[SetData]
    ) -> list[int]:
        """Returns the new versions. Raises `NoNode` for a topic-id node if the name now belongs to another topic."""
        bound = {identity.bound(*topic).path: topic for topic in topics}
        operations: list[Operation] = [*map(Check, bound), *guards, *changes]
        try:
            outcomes = await self._store.multi(operations)
        except NoNode as error:
            unmarked = bound.get(error.path)
            if unmarked is None or not await identity.adopt(self._store, *unmarked):
                raise
            outcomes = await self._store.multi(operations)
        return [version for version in outcomes[-len(changes) :] if isinstance(version, int)]

    async def _resign(
        self,
        topic: str,
        topic_id: UUID,
        number: int,
        broker_id: int,
        replicas: tuple[int, ...],
        fallbacks: tuple[int, ...],
        is_needed: Callable[[], bool],
    ) -> None:
        path, name = layout.state_path(topic, number), f"{topic}-{number}"
        reported: Exception | None = None
        while not self._is_stopped and is_needed():
            try:
                node = await self._store.exists(path)
                found = _state_of(node)
                # A node that is missing or not readable has no ISR to leave.
                state = without(broker_id, found, replicas, fallbacks) if found is not None else None
                if node is None or state is None or not is_needed():
                    return
                change = SetData(path, layout.encode_state(state), node.version)
                await self._set_bound([(topic, topic_id)], (), [change])
            except (SessionExpired, NoNode):
                return  # the name now belongs to another topic
            except BadVersion:
                continue
            except Exception as error:
                _report("a resignation from a replica was not written", name, error, reported)
                reported = error
                await asyncio.sleep(_RETRY_S)
                continue
            _log.warning("this broker resigned from a replica", extra={"partition": name})
            return


def _report(message: str, partition: str, error: Exception, reported: Exception | None) -> None:
    """Logs why a write failed. Logs nothing if the attempt before, a second ago, failed with the same error."""
    if repr(error) != repr(reported):
        _log.warning(
            message,
            extra={"partition": partition, "reason": str(error)},
            exc_info=None if isinstance(error, StoreError) else error,
        )


def _state_of(node: Node | None) -> StateNode | None:
    """The state in a node; None if there is none or it is not readable: the image reports that."""
    try:
        return layout.decode_state(node.data) if node is not None else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _judge(proposed: _Proposed, nodes: Mapping[str, Node | None]) -> SetData | int | WriteOutcome:
    """The write of a proposal; or its version, if it was written before; or why it cannot be written."""
    proposal, node = proposed.proposal, nodes[proposed.path]
    state = _state_of(node)
    if node is None or state is None:
        return WriteOutcome.VERSION_CONFLICT
    if node.version != proposal.partition_epoch:
        # The version is the next one: perhaps this broker wrote it and lost the answer.
        is_ours = node.version == proposal.partition_epoch + 1 and (state.leader_epoch, state.isr) == (
            proposal.leader_epoch,
            proposal.isr,
        )
        return node.version if is_ours else WriteOutcome.VERSION_CONFLICT
    for path, fetched_under in proposed.joining.items():
        broker = nodes[path]
        if broker is None or fetched_under not in (-1, broker.created_zxid):
            return WriteOutcome.INELIGIBLE
    return SetData(proposed.path, layout.encode_state(replace(state, isr=proposal.isr)), node.version)
