"""Injected faults that a simulation run must find: each replaces one rule of the running code, as a mistake would.

An injected fault says which plans can reach the wrong code (`applies_to`), and names a seed that is known to find it.
Where later changes have altered that seed's run, the search tries the next seeds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from felice.client.error import KafkaError, KafkaException
from felice.client.net.cluster import Cluster
from felice.client.net.connection import Connection
from felice.client.produce import sender
from felice.controller import producer_id_blocks
from felice.coordinator.group.classic import commit_checks, rebalance
from felice.coordinator.group.offsets import commits
from felice.coordinator.group.shard import GroupShard
from felice.coordinator.hosted_shard import HostedShard
from felice.coordinator.shard import NO_PRODUCER_ID, Outcome
from felice.coordinator.transaction import initialisation
from felice.coordinator.transaction.shard import TransactionShard
from felice.log import recovery
from felice.log.answers import AppendInfo
from felice.log.cleaner_batches import BatchCleaner
from felice.log.errors import CorruptLog
from felice.log.log import Log
from felice.log.producers import ProducerState, ProducerStates
from felice.metadata.layout import ProducerIdBlock
from felice.protocol.errors import ErrorCode
from felice.replication.partition import Partition
from felice.server.writes.transactions import MarkerWriter
from felice.testing.simulation.disk import SimDisk
from felice.testing.simulation.open_files import SimFile
from simulation.plan import Plan


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """`inject` patches the code for as long as its context lasts. `seed` is tried first."""

    name: str
    description: str
    inject: Callable[[], AbstractContextManager[Any]]
    applies_to: Callable[[Plan], bool]
    seed: int = 0


_ENDS_OF_BROKERS = ("kill", "power", "power at operation", "restart")


def _any(plan: Plan) -> bool:
    return plan.durability != "lossy"


def _having(*roles: str) -> Callable[[Plan], bool]:
    return lambda plan: any(role in plan.workloads for role in roles)


def _synced(plan: Plan) -> bool:
    return plan.durability == "synced" and any(fault.kind.startswith("power") for fault in plan.faults)


def _tears(plan: Plan) -> bool:
    return plan.durability == "lossy" and any(fault.kind.startswith("power") for fault in plan.faults)


def _restarts_producers(plan: Plan) -> bool:
    """A broker and then a client start again, so that producer ids are requested after a restart."""
    ends = [fault.time_s for fault in plan.faults if fault.kind in _ENDS_OF_BROKERS]
    return plan.durability != "lossy" and any(
        fault.kind == "kill client" and fault.time_s > min(ends, default=plan.length_s)
        for fault in plan.faults
    )


def _replace(target: Any, name: str, new: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(target, name, new)


def _answers(target: Any, name: str, value: Any) -> Callable[[], AbstractContextManager[Any]]:
    return _replace(target, name, lambda *args, **kwargs: value)


def _wrap(target: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], AbstractContextManager[Any]]:
    """Replace an attribute by what `make` returns for the original."""
    return lambda: patch.object(target, name, make(getattr(target, name)))


# Producers


@contextlib.contextmanager
def _impatient_connections() -> Iterator[None]:
    """Several requests wait for a connection; all but the first try again when the attempt that they share fails."""
    original = Cluster._open

    async def open_again(cluster: Cluster, node: Any) -> Connection:
        waited = node.connecting is not None
        try:
            return await original(cluster, node)
        except KafkaException:
            if not waited:
                raise
            return await original(cluster, node)

    with (
        patch.object(sender, "_IN_FLIGHT_WHILE_CONNECTING", 5),
        patch.object(Cluster, "_open", open_again),
    ):
        yield


@contextlib.contextmanager
def _no_window() -> Iterator[None]:
    with (
        patch.object(ProducerState, "duplicate_of", lambda *args: None),
        patch.object(ProducerState, "has_forgotten", lambda *args: False),
    ):
        yield


@contextlib.contextmanager
def _no_sequences() -> Iterator[None]:
    with _no_window(), patch.object(ProducerStates, "_check_sequence", lambda *args: None):
        yield


async def _first_block(self: Any) -> ProducerIdBlock:
    return ProducerIdBlock(self._broker_id, 0, producer_id_blocks.BLOCK_SIZE - 1)


# The log


def _every_nth(count: int, original: Any, instead: Callable[..., Any]) -> Any:
    """Every `count`-th call does something else."""
    calls = 0

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return (instead if calls % count == 0 else original)(*args, **kwargs)

    return stand_in


def _append_nothing(log: Log, valid: Any, *args: Any) -> AppendInfo:
    end = log.log_end_offset
    return AppendInfo(end, end + valid.header.last_offset_delta, -1, log.log_start_offset)


def _skip_head_of_segment(original: Any) -> Any:
    def read(log: Log, offset: int, *args: Any, **kwargs: Any) -> Any:
        is_head = offset > log.log_start_offset and offset in log.segments.bases
        if is_head and offset + 1 < kwargs["end_offset"]:
            return original(log, offset + 1, *args, **kwargs)
        return original(log, offset, *args, **kwargs)

    return read


def _drop_last_batch(original: Any) -> Any:
    def batches(file: Any, first_offset: int) -> Iterator[Any]:
        held = None
        for header in original(file, first_offset):
            if held is not None:
                yield held
            held = header
        if held is not None:
            raise CorruptLog(file.path, held.position, "injected")

    return batches


def _recovery_point_too_high(original: Any) -> Any:
    def end_flush(log: Log, flush: Any) -> None:
        original(log, flush)
        log.durability.recovery_point = log.log_end_offset + 1

    return end_flush


def _sees_everything(original: Any) -> Any:
    """Fetch as a follower does, beyond the high watermark."""
    return lambda *args, **kwargs: original(*args, **{**kwargs, "replica_id": 7})


def _not_for(names: str, original: Any) -> Any:
    """Skip the sync of paths that contain `names`."""

    def sync(self: Any, path: Path | None = None) -> None:
        where = self.path if path is None else path
        if names not in str(where):
            original(self, *(() if path is None else (path,)))

    return sync


# Coordinators


def _in_memory_only(topic: str) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def append(shard: Any, batch: Any) -> int:
            if shard.partition.topic == topic:
                return int(shard.partition.log_end_offset) - 1
            return int(original(shard, batch))

        return append

    return make


def _initialises_without_abort(original: Any) -> Any:
    def initialise(current: Any, requested: Any, new_producer_id: int, now_ms: int) -> Any:
        if current is not None and current.state is initialisation.TransactionState.ONGOING:
            return current.initialised(
                current.producer_id, current.epoch + 1, requested.timeout_ms, now_ms, last_epoch=current.epoch
            )
        return original(current, requested, new_producer_id, now_ms)

    return initialise


def _fences_no_producer(original: Any) -> Any:
    def initialise(current: Any, requested: Any, new_producer_id: int, now_ms: int) -> Any:
        change = original(current, requested, new_producer_id, now_ms)
        if current is not None and not isinstance(change, ErrorCode) and not change.state.is_decided:
            return current.initialised(
                current.producer_id, current.epoch, requested.timeout_ms, now_ms, last_epoch=NO_PRODUCER_ID
            )
        return change

    return initialise


def _last_marker_aborts(original: Any) -> Any:
    def append_marker(broker: Any, partition: Any, asked: Any) -> Any:
        if partition.topic == "ledger" and partition.partition == 0 and asked.producer_epoch % 2 == 0:
            asked.transaction_result = False
        return original(broker, partition, asked)

    return append_marker


def _applies_at_once(original: Any) -> Any:
    return lambda shard, record, producer_id=NO_PRODUCER_ID: original(shard, record)


def _ignores_pending_transactions(original: Any) -> Any:
    def fetch_one(offsets: Any, group: str, topic: str, partition: int, stable: bool, topic_id: Any) -> Any:
        return original(offsets, group, topic, partition, False, topic_id)

    return fetch_one


# The client


def _reports_lost_as_delivered(original: Any) -> Any:
    def on_failure(self: Any, queue: Any, batch: Any, error: KafkaError) -> None:
        if batch in queue.in_flight and error.code() == KafkaError._TRANSPORT:
            self._deliver(queue, batch, -1, -1)
        else:
            original(self, queue, batch, error)

    return on_failure


INJECTED_FAULTS = (
    InjectedFault(
        "window", "a batch that is sent again is not recognised as a duplicate", _no_window, _any, seed=25
    ),
    InjectedFault("sequences", "sequence numbers are not checked", _no_sequences, _any, seed=7),
    InjectedFault(
        "producer ids",
        "the block of producer ids is not stored, and is handed out again after a restart",
        _replace(producer_id_blocks.ProducerIdBlocks, "_try_allocate", _first_block),
        _restarts_producers,
        seed=226,
    ),
    InjectedFault(
        "stale snapshot",
        "recovery takes producer state from the last snapshot, without the batches after it",
        _answers(recovery, "_replay", None),
        _any,
        seed=12,
    ),
    InjectedFault(
        "lost append",
        "every 29th append is acknowledged but not done",
        _wrap(Log, "_append_valid", lambda original: _every_nth(29, original, _append_nothing)),
        _any,
        seed=0,
    ),
    InjectedFault(
        "early answer",
        "an acknowledgement does not wait for the disk",
        _replace(Log, "needs_flush", False),
        _synced,
        seed=25,
    ),
    InjectedFault(
        "unsynced names",
        "the names of new segments are not synced",
        _wrap(SimDisk, "sync_dir", lambda original: _not_for("/data/", original)),
        _synced,
        seed=12,
    ),
    InjectedFault(
        "unsynced logs",
        "a sync of a log does nothing",
        _wrap(SimFile, "sync", lambda original: _not_for(".log", original)),
        _synced,
        seed=25,
    ),
    InjectedFault(
        "unsynced store",
        "a sync of the metadata store's journal does nothing",
        _wrap(SimFile, "sync", lambda original: _not_for("journal", original)),
        _synced,
        seed=31,
    ),
    InjectedFault(
        "cut too far",
        "recovery also removes the last complete batch",
        _wrap(recovery, "verified_batches", _drop_last_batch),
        _any,
        seed=0,
    ),
    InjectedFault(
        "torn batches",
        "recovery does not check the CRCs of batches",
        _answers(recovery, "verify_crc", True),
        _tears,
        seed=228,
    ),
    InjectedFault(
        "recovery point",
        "the recovery point is one beyond the log's end",
        _wrap(Log, "end_flush", _recovery_point_too_high),
        _any,
        seed=2,
    ),
    InjectedFault(
        "head of segment",
        "a read that starts at a segment's first offset starts one offset too late",
        _wrap(Log, "read", _skip_head_of_segment),
        _any,
        seed=5,
    ),
    InjectedFault(
        "high watermark",
        "consumers read up to the log end offset",
        _wrap(Partition, "fetch", _sees_everything),
        _synced,
        seed=25,
    ),
    InjectedFault(
        "last stable offset",
        "read_committed consumers read up to the high watermark",
        _replace(Log, "last_stable_offset", lambda self, high_watermark: high_watermark),
        _having("transactions"),
        seed=13,
    ),
    InjectedFault(
        "aborted list",
        "fetch responses do not list aborted transactions",
        _answers(Log, "aborted_transactions", []),
        _having("transactions"),
        seed=13,
    ),
    InjectedFault(
        "first aborted",
        "fetch responses list only the first aborted transaction",
        _wrap(Log, "aborted_transactions", lambda original: lambda *args: original(*args)[:1]),
        _having("transactions"),
        seed=20,
    ),
    InjectedFault(
        "transaction index",
        "recovery does not rebuild the transaction index",
        _wrap(
            recovery,
            "_replay",
            lambda original: lambda *args, writes_index: original(*args, writes_index=False),
        ),
        _having("transactions"),
        seed=12,
    ),
    InjectedFault(
        "markers after restart",
        "markers of decided transactions are not sent again after a restart",
        _answers(TransactionShard, "_decide_again", Outcome()),
        _having("transactions", "copier"),
        seed=59,
    ),
    InjectedFault(
        "transactions in memory",
        "the state of transactions is not written to the log",
        _wrap(HostedShard, "_append", _in_memory_only("__transaction_state")),
        _having("transactions", "copier"),
        seed=5,
    ),
    InjectedFault(
        "takeover",
        "a new producer with the same transactional id leaves the open transaction of the old one as it is",
        _wrap(initialisation, "initialise", _initialises_without_abort),
        _having("transactions", "copier"),
        seed=13,
    ),
    InjectedFault(
        "fence",
        "a new producer with the same transactional id gets the epoch of the old one",
        _wrap(initialisation, "initialise", _fences_no_producer),
        lambda plan: "transactions" in plan.workloads and plan.seed % 4 == 1,
        seed=141,
    ),
    InjectedFault(
        "wrong marker",
        "one partition gets an abort marker for a committed transaction",
        _wrap(MarkerWriter, "_append", _last_marker_aborts),
        _having("transactions"),
        seed=13,
    ),
    InjectedFault(
        "offsets at once",
        "offsets of a transaction apply before it is committed",
        _wrap(GroupShard, "replay", _applies_at_once),
        _having("copier"),
        seed=36,
    ),
    InjectedFault(
        "unstable offsets",
        "offsets are returned while an open transaction may change them, although stable ones were requested",
        _wrap(commits, "_fetch_one", _ignores_pending_transactions),
        _having("copier"),
        seed=3,
    ),
    InjectedFault(
        "generation",
        "commits are accepted from any member of any generation",
        lambda: _unchecked_commits(),
        _having("copier", "group"),
        seed=31,
    ),
    InjectedFault(
        "offsets in memory",
        "committed offsets are not written to the log",
        _wrap(HostedShard, "_append", _in_memory_only("__consumer_offsets")),
        _having("group", "copier"),
        seed=2,
    ),
    InjectedFault(
        "sessions",
        "members whose session has expired stay in the group",
        _answers(rebalance, "on_time", None),
        _having("group", "copier"),
        seed=2,
    ),
    InjectedFault(
        "cleaner",
        "the cleaner drops every batch that it may remove",
        _answers(BatchCleaner, "_clean_data", None),
        _having("keyed"),
        seed=42,
    ),
    InjectedFault(
        "overtaking",
        "client requests overtake a request whose connection attempt failed",
        _impatient_connections,
        _tears,
        seed=436,
    ),
    InjectedFault(
        "client's answer",
        "the client reports the batches of a lost connection as delivered",
        _wrap(sender.Sender, "_on_failure", _reports_lost_as_delivered),
        _any,
        seed=12,
    ),
)


@contextlib.contextmanager
def _unchecked_commits() -> Iterator[None]:
    with (
        patch.object(commit_checks, "check_commit", lambda *args: ErrorCode.NONE),
        patch.object(commit_checks, "check_transactional_commit", lambda *args: ErrorCode.NONE),
    ):
        yield


__all__ = ["INJECTED_FAULTS", "InjectedFault"]
