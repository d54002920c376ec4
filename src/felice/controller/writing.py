"""How decisions become writes of the store.

Keeps true: C1 every decision is a compare-and-set: it names the versions that it looked at, and with them the
            controller epoch, so that whoever was replaced writes nothing.
How:        many decisions share a transaction. Where one of them lost a race the others are written alone;
            the loser is told to the caller, who looks again at a newer image.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from felice.controller.duties import Decision, StateChange
from felice.metadata import (
    BadVersion,
    Check,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    StoreUnavailable,
    layout,
)
from felice.metadata.store import Operation
from felice.protocol.errors import ApiError, ErrorCode

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("felice.controller")

# What fits into a transaction of a megabyte, ZooKeeper's limit, with room to spare.
STATES_A_TRANSACTION = 500
# Somebody else was faster: look at the newer image.
LOST_RACE = (BadVersion, NodeExists, NoNode)


class EpochPassed(Exception):
    """The controller epoch that a write was guarded by is over; nothing was written."""


def answering(call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """For what a client asked: the store's faults become errors of the protocol."""

    @wraps(call)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await call(*args, **kwargs)
        except SessionExpired as error:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not in the cluster now") from error
        except StoreUnavailable as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata store: {error}") from error

    return wrapped


async def write_guarded(store: MetadataStore, epoch_version: int, operations: Sequence[Operation]) -> None:
    try:
        await store.multi([Check(layout.CONTROLLER_EPOCH, epoch_version), *operations])
    except (BadVersion, NoNode) as error:
        if error.path == layout.CONTROLLER_EPOCH:
            raise EpochPassed from error
        raise


async def write_decisions(
    store: MetadataStore, epoch_version: int, decisions: Iterable[Decision]
) -> list[Decision]:
    """Writes them; returns those that lost a race. Raises `EpochPassed`, and `StoreError` for the store's faults."""
    lost: list[Decision] = []
    for batch in _batches(decisions):
        if not await _try(store, epoch_version, batch):
            if len(batch) == 1:
                lost += batch
            else:
                lost += [one for one in batch if not await _try(store, epoch_version, [one])]
    return lost


async def _try(store: MetadataStore, epoch_version: int, batch: Sequence[Decision]) -> bool:
    try:
        operations = [operation for one in batch for operation in await _operations(store, one)]
        await write_guarded(store, epoch_version, operations)
    except LOST_RACE as error:
        _log.debug("a decision lost a race", extra={"reason": str(error)})
        return False
    return True


def _batches(decisions: Iterable[Decision]) -> Iterator[list[Decision]]:
    """States many together; an assignment is as long as its topic and goes alone."""
    states: list[Decision] = []
    for decision in decisions:
        if not isinstance(decision, StateChange):
            yield [decision]
            continue
        states.append(decision)
        if len(states) == STATES_A_TRANSACTION:
            yield states
            states = []
    if states:
        yield states


async def _operations(store: MetadataStore, decision: Decision) -> list[Operation]:
    if isinstance(decision, StateChange):
        return await _state_operations(store, decision)
    operations: list[Operation] = [
        SetData(layout.topic_path(decision.topic), layout.encode_topic(decision.node), decision.version)
    ]
    for change in decision.states:
        operations += await _state_operations(store, change)
    return operations


async def _state_operations(store: MetadataStore, change: StateChange) -> list[Operation]:
    path, data = layout.state_path(change.topic, change.partition), layout.encode_state(change.state)
    if change.version >= 0:
        return [SetData(path, data, change.version)]
    # A topic that somebody wrote by hand has no nodes for its partitions.
    parents = (layout.partitions_path(change.topic), layout.partition_path(change.topic, change.partition))
    missing: list[Operation] = [Create(parent) for parent in parents if await store.exists(parent) is None]
    return [*missing, Create(path, data)]
