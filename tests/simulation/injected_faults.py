"""Bugs that a story must find: each breaks one rule of the running code, as a mistake in it would.

A bug names which stories can meet it (`meets`) and a seed that is known to find it; where other changes have moved
the stories since, the next seeds are tried.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from felice.client.error import KafkaError
from felice.client.produce import sender
from felice.controller import cluster_admin
from felice.coordinator.group import commits, rebalance
from felice.coordinator.group.shard import GroupShard
from felice.coordinator.hosted_shard import HostedShard
from felice.coordinator.shard import NO_PRODUCER_ID, Outcome
from felice.coordinator.transaction import initialisation
from felice.coordinator.transaction.shard import TransactionShard
from felice.log import recovery
from felice.log.cleaner_batches import BatchCleaner
from felice.log.errors import CorruptLog
from felice.log.log import AppendInfo, Log
from felice.log.producers import ProducerState, ProducerStates
from felice.protocol.errors import ErrorCode
from felice.replication.partition import Partition
from felice.server.transactions import MarkerWriter
from felice.testing.simulation.disk import SimDisk, SimFile
from simulation.plan import Plan


@dataclass(frozen=True, slots=True)
class InjectedFault:
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


def _begins_again(plan: Plan) -> bool:
    """Producers begin anew after the broker did."""
    ends = [fault.time_s for fault in plan.faults if fault.kind in _ENDS_OF_BROKERS]
    return plan.durability != "lossy" and any(
        fault.kind == "kill client" and fault.time_s > min(ends, default=plan.length_s)
        for fault in plan.faults
    )


def _and(*tests: Callable[[Plan], bool]) -> Callable[[Plan], bool]:
    return lambda plan: all(test(plan) for test in tests)


def _replace(target: Any, name: str, new: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(target, name, new)


def _answers(target: Any, name: str, value: Any) -> Callable[[], AbstractContextManager[Any]]:
    return _replace(target, name, lambda *args, **kwargs: value)


def _wrap(target: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], AbstractContextManager[Any]]:
    """`make` gets what is there and gives what is to stand there instead."""
    return lambda: patch.object(target, name, make(getattr(target, name)))


# Producers


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


async def _first_block(self: Any) -> cluster_admin.ProducerIdBlock:
    return cluster_admin.ProducerIdBlock(self._broker_id, 0, cluster_admin.PRODUCER_ID_BLOCK_SIZE - 1)


# The log


def _every(count: int, original: Any, instead: Callable[..., Any]) -> Any:
    """Every so manieth call does something else."""
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


def _one_less(original: Any) -> Any:
    def batches(file: Any, first_offset: int) -> Iterator[Any]:
        held = None
        for header in original(file, first_offset):
            if held is not None:
                yield held
            held = header
        if held is not None:
            raise CorruptLog(file.path, held.position, "planted")

    return batches


def _points_run_ahead(original: Any) -> Any:
    def end_flush(log: Log, flush: Any) -> None:
        original(log, flush)
        log.durability.recovery_point = log.log_end_offset + 1

    return end_flush


def _sees_everything(original: Any) -> Any:
    """As a follower would."""
    return lambda *args, **kwargs: original(*args, **{**kwargs, "replica_id": 7})


def _not_for(names: str, original: Any) -> Any:
    """Does nothing for paths like this."""

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


def _takes_over_without_abort(original: Any) -> Any:
    def initialise(current: Any, requested: Any, new_producer_id: int, now_ms: int) -> Any:
        if current is not None and current.state is initialisation.TransactionState.ONGOING:
            return current.initialised(
                current.producer_id, current.epoch + 1, requested.timeout_ms, now_ms, last_epoch=current.epoch
            )
        return original(current, requested, new_producer_id, now_ms)

    return initialise


def _nobody_is_fenced(original: Any) -> Any:
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


def _counts_at_once(original: Any) -> Any:
    return lambda shard, record, producer_id=NO_PRODUCER_ID: original(shard, record)


def _stable_or_not(original: Any) -> Any:
    def fetch_one(offsets: Any, group: str, topic: str, partition: int, stable: bool, topic_id: Any) -> Any:
        return original(offsets, group, topic, partition, False, topic_id)

    return fetch_one


# The client


def _lost_is_delivered(original: Any) -> Any:
    def on_failure(self: Any, queue: Any, batch: Any, error: KafkaError) -> None:
        if batch in queue.in_flight and error.code() == KafkaError._TRANSPORT:
            self._deliver(queue, batch, -1, -1)
        else:
            original(self, queue, batch, error)

    return on_failure


INJECTED_FAULTS = (
    InjectedFault("window", "a batch that comes again is not recognised", _no_window, _any, seed=25),
    InjectedFault("sequences", "sequences are not looked at", _no_sequences, _any, seed=7),
    InjectedFault(
        "producer ids",
        "the block of producer ids is not written down, and given again after a restart",
        _replace(cluster_admin.ClusterAdmin, "_try_allocate", _first_block),
        _begins_again,
        seed=226,
    ),
    InjectedFault(
        "stale snapshot",
        "producers are as the last snapshot says, without the batches after it",
        _answers(recovery, "_replay", None),
        _any,
        seed=12,
    ),
    InjectedFault(
        "lost append",
        "an append is acknowledged and not done, now and then",
        _wrap(Log, "_append_valid", lambda original: _every(29, original, _append_nothing)),
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
        "new segments' names are not brought to disk",
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
        "recovery cuts the last whole batch, too",
        _wrap(recovery, "verified_batches", _one_less),
        _any,
        seed=0,
    ),
    InjectedFault(
        "torn batches",
        "recovery does not look at the CRCs of batches",
        _answers(recovery, "verify_crc", True),
        _tears,
        seed=102,
    ),
    InjectedFault(
        "recovery point",
        "the recovery point is one beyond the log's end",
        _wrap(Log, "end_flush", _points_run_ahead),
        _any,
        seed=2,
    ),
    InjectedFault(
        "head of segment",
        "a read that begins with a segment begins one too late",
        _wrap(Log, "read", _skip_head_of_segment),
        _any,
        seed=5,
    ),
    InjectedFault(
        "high watermark",
        "consumers read up to the log's end",
        _wrap(Partition, "fetch", _sees_everything),
        _synced,
        seed=25,
    ),
    InjectedFault(
        "last stable offset",
        "readers of committed records see up to the high watermark",
        _replace(Log, "last_stable_offset", lambda self, high_watermark: high_watermark),
        _having("transactions"),
        seed=13,
    ),
    InjectedFault(
        "aborted list",
        "readers are not told what was aborted",
        _answers(Log, "aborted_transactions", []),
        _having("transactions"),
        seed=13,
    ),
    InjectedFault(
        "first aborted",
        "readers are told of the first aborted transaction only",
        _wrap(Log, "aborted_transactions", lambda original: lambda *args: original(*args)[:1]),
        _having("transactions"),
        seed=20,
    ),
    InjectedFault(
        "transaction index",
        "the transaction index is not made again by recovery",
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
        "decided transactions are not told again after a restart",
        _answers(TransactionShard, "_decide_again", Outcome()),
        _having("transactions", "copier"),
        seed=29,
    ),
    InjectedFault(
        "transactions in memory",
        "the state of transactions is not written",
        _wrap(HostedShard, "_append", _in_memory_only("__transaction_state")),
        _having("transactions", "copier"),
        seed=6,
    ),
    InjectedFault(
        "takeover",
        "a new producer of an id leaves the old one's transaction open",
        _wrap(initialisation, "initialise", _takes_over_without_abort),
        _having("transactions", "copier"),
        seed=13,
    ),
    InjectedFault(
        "fence",
        "a new producer of an id gets the old one's epoch",
        _wrap(initialisation, "initialise", _nobody_is_fenced),
        lambda plan: "transactions" in plan.workloads and plan.seed % 4 == 1,
        seed=141,
    ),
    InjectedFault(
        "wrong marker",
        "one partition hears the opposite of the decision",
        _wrap(MarkerWriter, "_append", _last_marker_aborts),
        _having("transactions"),
        seed=13,
    ),
    InjectedFault(
        "offsets at once",
        "offsets of a transaction count before it is committed",
        _wrap(GroupShard, "replay", _counts_at_once),
        _having("copier"),
        seed=103,
    ),
    InjectedFault(
        "unstable offsets",
        "offsets are told while a transaction is about to change them",
        _wrap(commits, "_fetch_one", _stable_or_not),
        _having("copier"),
        seed=3,
    ),
    InjectedFault(
        "generation",
        "anybody commits, whatever the generation",
        lambda: _unchecked_commits(),
        _having("copier", "group"),
        seed=31,
    ),
    InjectedFault(
        "offsets in memory",
        "committed offsets are not written",
        _wrap(HostedShard, "_append", _in_memory_only("__consumer_offsets")),
        _having("group", "copier"),
        seed=2,
    ),
    InjectedFault(
        "sessions",
        "members that fell silent stay",
        _answers(rebalance, "on_time", None),
        _having("group", "copier"),
        seed=2,
    ),
    InjectedFault(
        "cleaner",
        "the cleaner drops every batch that it may",
        _answers(BatchCleaner, "_clean_data", None),
        _having("keyed"),
        seed=42,
    ),
    InjectedFault(
        "overtaking",
        "the client's requests overtake one whose attempt to connect failed",
        _replace(sender, "_IN_FLIGHT_WHILE_CONNECTING", 5),
        _tears,
        seed=436,
    ),
    InjectedFault(
        "client's answer",
        "the client takes a lost connection for an answer",
        _wrap(sender.Sender, "_on_failure", _lost_is_delivered),
        _any,
        seed=12,
    ),
)


@contextlib.contextmanager
def _unchecked_commits() -> Iterator[None]:
    with (
        patch.object(commits, "check_commit", lambda *args: ErrorCode.NONE),
        patch.object(commits, "check_transactional_commit", lambda *args: ErrorCode.NONE),
    ):
        yield


__all__ = ["INJECTED_FAULTS", "InjectedFault"]
