"""Writes decisions into the metadata store.

Keeps true: C1 every decision is a compare-and-set. It checks the versions that it was based on; the controller
            epoch, so that a replaced controller writes nothing; and the topic's id, so that a new topic of the same
            name keeps its own state.
How:        many decisions share a transaction. After a version conflict those whose states are still as they were
            share another one; if that fails too, they are written one by one. The conflicting decisions are returned
            to the caller, which decides again on a newer image.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

from felice.controller.duties import Decision, StateChange, TopicChange
from felice.metadata import (
    BadVersion,
    Check,
    ClusterImage,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    StoreError,
    StoreUnavailable,
    identity,
    layout,
)
from felice.metadata.layout import MAX_STATES_PER_TRANSACTION
from felice.metadata.store import Operation
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError, ErrorCode

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("felice.controller")

FOLLOW_TIMEOUT_S = 10.0
# Version conflicts: another writer was first.
LOST_RACE = (BadVersion, NodeExists, NoNode)


class EpochPassed(Exception):
    """The controller epoch that guarded a write is over; nothing was written."""


def answering(call: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[None, None, T]]:
    """Decorates a call made for a client: errors of the store become errors of the protocol."""

    @wraps(call)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await call(*args, **kwargs)
        except SessionExpired as error:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not in the cluster now") from error
        except StoreUnavailable as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata store: {error}") from error
        except StoreError as error:
            # A retry would fail too: the transaction is too large, or this broker may not write the node.
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata store: {error}") from error

    return wrapped


async def write_guarded(store: MetadataStore, epoch_version: int, operations: Sequence[Operation]) -> None:
    """Writes all operations in one transaction. Raises `EpochPassed` if the controller epoch has changed since."""
    try:
        await store.multi([Check(layout.CONTROLLER_EPOCH, epoch_version), *operations])
    except (BadVersion, NoNode) as error:
        if error.path == layout.CONTROLLER_EPOCH:
            raise EpochPassed from error
        raise


async def carry_out(
    store: MetadataStore, watcher: Watcher, image: ClusterImage, decisions: list[Decision]
) -> list[Decision]:
    """Writes decisions based on `image`, and waits for a newer image. Returns the decisions to make again on that one.

    These lost a version conflict, or the controller epoch had changed. Raises `StoreError`.
    """
    version = image.controller_epoch_version
    try:
        lost = await write_decisions(store, version, decisions)
    except EpochPassed:
        await watcher.wait_until(lambda newer: newer.controller_epoch_version != version, FOLLOW_TIMEOUT_S)
        return decisions
    await wait_shown(watcher, image, decisions)
    return lost


async def wait_shown(watcher: Watcher, image: ClusterImage, decisions: Sequence[Decision]) -> None:
    """Waits until the subject of every decision has changed, by this write or by another one."""
    await watcher.wait_until(
        lambda newer: all(_has_changed(newer, image, one) for one in decisions), FOLLOW_TIMEOUT_S
    )


def _has_changed(newer: ClusterImage, older: ClusterImage, decision: Decision) -> bool:
    if isinstance(decision, TopicChange):
        return newer.topics.get(decision.topic) is not older.topics.get(decision.topic)
    was = older.partition(decision.topic, decision.partition)
    return newer.partition(decision.topic, decision.partition) is not was


async def write_decisions(
    store: MetadataStore, epoch_version: int, decisions: Iterable[Decision]
) -> list[Decision]:
    """Writes the decisions; returns those with a version conflict. Raises `EpochPassed`, and `StoreError`."""
    lost: list[Decision] = []
    for batch in _batches(decisions):
        if await _try(store, epoch_version, batch):
            continue
        if len(batch) == 1:
            lost += batch
            continue
        current = await _current(store, batch)
        lost += [one for one in batch if one not in current]
        rest = [one for one in batch if one in current]
        if rest and not await _try(store, epoch_version, rest):
            lost += [one for one in rest if not await _try(store, epoch_version, [one])]
    return lost


async def _current(store: MetadataStore, batch: Sequence[Decision]) -> set[Decision]:
    """The changes of states that still have the versions on which the changes were based."""
    changes = [one for one in batch if isinstance(one, StateChange)]
    nodes = await store.get_many([layout.state_path(one.topic, one.partition) for one in changes])
    versions = [-1 if node is None else node.version for node in nodes]
    return {one for one, version in zip(changes, versions, strict=True) if one.version == version}


async def _try(store: MetadataStore, epoch_version: int, batch: Sequence[Decision]) -> bool:
    try:
        if not await _write_bound(store, epoch_version, batch):
            unmarked = {one.topic: one.topic_id for one in batch}
            adopted = [await identity.adopt(store, *topic) for topic in unmarked.items()]
            return all(adopted) and await _write_bound(store, epoch_version, batch)
    except LOST_RACE as error:
        _log.debug("a decision was not written: another writer was first", extra={"reason": str(error)})
        return False
    return True


async def _write_bound(store: MetadataStore, epoch_version: int, batch: Sequence[Decision]) -> bool:
    """Returns False if a topic does not exist, or was created without a topic-id node."""
    guards = {one.topic: identity.bound(one.topic, one.topic_id) for one in batch}
    try:
        changes = [change for one in batch for change in _states_of(one)]
        assignments: list[Operation] = [
            SetData(layout.topic_path(one.topic), layout.encode_topic(one.node), one.version)
            for one in batch
            if isinstance(one, TopicChange)
        ]
        parents = await _missing_parents(store, changes)
        operations = [*guards.values(), *assignments, *parents, *map(_state_write, changes)]
        await write_guarded(store, epoch_version, operations)
    except NoNode as error:
        if any(error.path == guard.path for guard in guards.values()):
            return False
        raise
    return True


def _batches(decisions: Iterable[Decision]) -> Iterator[list[Decision]]:
    """Many states share a transaction; an assignment grows with its topic and has one of its own."""
    states: list[Decision] = []
    for decision in decisions:
        if not isinstance(decision, StateChange):
            yield [decision]
            continue
        states.append(decision)
        if len(states) == MAX_STATES_PER_TRANSACTION:
            yield states
            states = []
    if states:
        yield states


def _states_of(decision: Decision) -> Sequence[StateChange]:
    return decision.states if isinstance(decision, TopicChange) else (decision,)


async def _missing_parents(store: MetadataStore, changes: Iterable[StateChange]) -> list[Operation]:
    """Nodes to create first: a topic made by hand, or a very large one, has no nodes for its partitions yet."""
    wanted: dict[str, None] = {}
    for change in changes:
        if change.version < 0:
            wanted[layout.partitions_path(change.topic)] = None
            wanted[layout.partition_path(change.topic, change.partition)] = None
    paths = list(wanted)
    found = await store.get_many(paths) if paths else []
    return [Create(path) for path, node in zip(paths, found, strict=True) if node is None]


def _state_write(change: StateChange) -> Operation:
    path, data = layout.state_path(change.topic, change.partition), layout.encode_state(change.state)
    return Create(path, data) if change.version < 0 else SetData(path, data, change.version)
