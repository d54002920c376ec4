"""Injected faults of replication and of the controller that a simulation run of a cluster must find."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from felice.controller import duties, election, leaderships, writing
from felice.controller.reassignment import Assignment, Move
from felice.coordinator.hosted_shard import HostedShard
from felice.log import replicated
from felice.log.epochs import LeaderEpochs
from felice.log.log import Log
from felice.metadata.image import ClusterImage, TopicImage
from felice.metadata.layout import StateNode
from felice.metadata.store import ANY_VERSION, SetData
from felice.metadata.watcher import Watcher
from felice.replication import divergence, fetcher, follower, isr, partition
from felice.replication.leader import Leader
from felice.replication.partition import Partition
from felice.replication.partitions import Partitions
from felice.server.membership import membership
from felice.server.replicas.image_follower import ImageFollower
from felice.server.writes.transactions import MarkerWriter
from simulation.injected_faults import InjectedFault, _answers, _replace, _wrap
from simulation.plan import Plan


def _shared(plan: Plan) -> bool:
    return plan.replicas > 1


def _strict(plan: Plan) -> bool:
    return plan.min_isr > 1


def _hit(*kinds: str) -> Any:
    return lambda plan: _shared(plan) and any(fault.kind in kinds for fault in plan.faults)


_FAILOVER = ("isolate leader", "kill leader", "rolling restart", "pause")
_DIVERGED = ("isolate leader",)


# The store


def _deletes_followers(original: Any) -> Any:
    """The other replicas have all records and are copied again when the topic is back."""

    def set_aside(self: Partitions, topic: TopicImage, other: TopicImage | None) -> None:
        is_leader = any(partition.leader == self._broker_id for partition in topic.partitions)
        return original(self, topic, other) if is_leader else self._delete(topic)

    return set_aside


@contextlib.contextmanager
def _follows_any_cluster() -> Iterator[None]:
    async def skip(membership: Any) -> None:
        pass

    with (
        patch.object(Watcher, "_is_of_cluster", lambda watcher, image: True),
        patch.object(membership.Membership, "_check_cluster", skip),
        patch.object(ClusterImage, "is_deletion_requested", lambda image, topic_id: True),
    ):
        yield


# Following


def _sends_no_epoch(original: Any) -> Any:
    return lambda *args, **kwargs: replace(original(*args, **kwargs), last_fetched_epoch=-1)


def _keeps_diverged_tail(
    epochs: Any, epoch: int, end: int, *, log_end_offset: int, high_watermark: int
) -> Any:
    return follower.TruncateTo(log_end_offset, is_unclean=False)


def _records_epoch_zero(original: Any) -> Any:
    """Record a new epoch as epoch 0, so that batches of the leader count as batches of an older epoch."""

    def assign(self: Any, epoch: int, offset: int) -> None:
        original(self, 0, offset)

    return assign


def _takes_watermark_of_leader(own: int, leaders: int, log_end_offset: int) -> int:
    return max(own, leaders)


@contextlib.contextmanager
def _before_kip_101() -> Iterator[None]:
    """Before KIP-101: a follower of a new leader truncates its log to its own high watermark and compares
    no epochs.
    """

    def cut(epochs: Any, *, log_start_offset: int, log_end_offset: int, high_watermark: int) -> Any:
        kept = max(log_start_offset, high_watermark)
        return follower.TruncateTo(kept, is_unclean=False) if log_end_offset > kept else None

    with (
        patch.object(follower, "before_following", cut),
        patch.object(follower, "next_fetch", _sends_no_epoch(follower.next_fetch)),
    ):
        yield


def _knows_no_start(original: Any) -> Any:
    """A batch that begins below the log's end is refused, even if the log has no records."""
    return lambda *args, **kwargs: original(*args, **{**kwargs, "log_start_offset": -1})


# Leading


@contextlib.contextmanager
def _any_epoch() -> Iterator[None]:
    """A leader answers requests for another leader epoch, and followers accept responses of another epoch."""

    def check(self: Any, current_leader_epoch: int) -> None:
        if self._failure is not None:
            raise self._failure

    def is_answered(self: Any) -> bool:
        return self.partition.is_open and self.partition.leader is None

    with (
        patch.object(Partition, "check_epoch", check),
        patch.object(fetcher._Followed, "is_answered_in_time", is_answered),
    ):
        yield


def _keeps_leading(self: Any) -> None:
    self._controller.resign()


def _own_log_end(self: Any, high_watermark: int, *, committable_offset: int, **kwargs: Any) -> int:
    return max(high_watermark, committable_offset)


def _any_follower(original: Any) -> Any:
    def propose(self: Any, replica: int, high_watermark: int, broker_epoch_of: Any) -> Any:
        found = self.followers.get(replica)
        if self.proposal is not None or found is None or replica in self.isr:
            return None
        return self._propose((*self.isr, replica), {replica: found.broker_epoch})

    return propose


@contextlib.contextmanager
def _no_minimum() -> Iterator[None]:
    with (
        patch.object(Leader, "is_under_min_isr", lambda *args: False),
        patch.object(Partition, "_check_in_sync", lambda *args: None),
    ):
        yield


async def _write_unconditionally(self: Any, found: Any, proposal: Any) -> Any:
    path = isr.layout.state_path(found.topic, found.partition)
    state = isr.layout.decode_state((await self._store.get(path)).data)
    mine = StateNode(found.leader_id, proposal.leader_epoch, state.controller_epoch, proposal.isr)
    return await self._store.set(path, isr.layout.encode_state(mine))


# Control


def _elects_any_alive_replica(original: Any) -> Any:
    def elect(found: Any, alive: Any, controller_epoch: int, *, allows_unclean: bool = False) -> Any:
        if found.leader in alive:
            return original(found, alive, controller_epoch)
        living = tuple(replica for replica in reversed(found.replicas) if replica in alive)
        if not living:
            return None
        return StateNode(living[0], found.leader_epoch + 1, controller_epoch, living)

    return elect


def _preferred_if_alive(partition: Any, alive: Any, controller_epoch: int) -> Any:
    first = partition.replicas[0]
    return election._next(partition, first, partition.isr, controller_epoch) if first in alive else None


@contextlib.contextmanager
def _preferred_though_behind() -> Iterator[None]:
    with (
        patch.object(duties, "preferred", _preferred_if_alive),
        patch.object(leaderships, "preferred", _preferred_if_alive),
    ):
        yield


def _ignores_versions(original: Any) -> Any:
    def write(store: Any, epoch_version: int, operations: Any) -> Any:
        blind = [replace(one, version=ANY_VERSION) if isinstance(one, SetData) else one for one in operations]
        return original(store, epoch_version, blind)

    return write


def _under_any_controller(store: Any, epoch_version: int, operations: Any) -> Any:
    """Check neither the versions of the nodes nor the controller epoch.

    Either check alone prevents most of the harm.
    """
    return store.multi(
        [replace(one, version=ANY_VERSION) if isinstance(one, SetData) else one for one in operations]
    )


def _same_epoch(original: Any) -> Any:
    def following(found: Any, *args: Any) -> Any:
        state = original(found, *args)
        return None if state is None else replace(state, leader_epoch=found.leader_epoch)

    return following


def _completes_at_once(found: Any, alive: Any, controller_epoch: int) -> Any:
    target = found.target
    if not found.is_reassigning or not any(replica in alive for replica in target):
        return None
    leader = next(replica for replica in target if replica in alive)
    state = StateNode(leader, found.leader_epoch + 1, controller_epoch, target)
    return Move(found, Assignment(target), state)


def _hands_over_to_any_replica(original: Any) -> Any:
    def step_down(found: Any, broker_id: int, alive: Any, controller_epoch: int) -> Any:
        others = tuple(replica for replica in found.replicas if replica != broker_id and replica in alive)
        if broker_id not in (found.leader, *found.isr) or not others:
            return None
        epoch = found.leader_epoch + (found.leader == broker_id)
        leader = others[-1] if found.leader == broker_id else found.leader
        return StateNode(leader, epoch, controller_epoch, others)

    return step_down


async def _ends_nothing(self: Any) -> None:
    return None


async def _reads_nothing(self: Any, end_offset: int) -> None:
    return None


def _marker_is_enough(original: Any) -> Any:
    """Report a marker to the coordinator as written without writing it."""

    def append_marker(broker: Any, found: Any, asked: Any) -> int:
        if found.topic == "ledger" and asked.producer_epoch % 2 == 0:
            return -1
        return int(original(broker, found, asked))

    return append_marker


INJECTED_FAULTS = (
    InjectedFault(
        "no comparison",
        "a follower does not send the epoch of its last record",
        _wrap(partition.follower, "next_fetch", _sends_no_epoch),
        _hit(*_DIVERGED),
        seed=22,
    ),
    InjectedFault(
        "diverged tail",
        "a follower keeps records that its leader never had",
        _replace(follower, "after_divergence", _keeps_diverged_tail),
        _hit(*_DIVERGED),
        seed=78,
    ),
    InjectedFault(
        "leader compares no epochs",
        "a leader ignores the epochs that its followers send",
        _answers(divergence, "between", None),
        _hit(*_DIVERGED),
        seed=22,
    ),
    InjectedFault(
        "log start in a batch",
        "a follower refuses a batch that begins below its log start",
        _wrap(replicated, "checked_batches", _knows_no_start),
        lambda plan: plan.deletes_records,
        seed=2,
    ),
    InjectedFault(
        "no epochs",
        "new leader epochs are not recorded",
        _wrap(LeaderEpochs, "assign", _records_epoch_zero),
        _hit(*_FAILOVER),
        seed=1,
    ),
    InjectedFault(
        "early watermark",
        "the high watermark is the leader's own log end offset",
        _replace(Leader, "next_high_watermark", _own_log_end),
        _shared,
    ),
    InjectedFault("min ISR", "min.insync.replicas is ignored", _no_minimum, _strict, seed=52),
    InjectedFault(
        "early answer",
        "acks=all is acknowledged before any follower has the records",
        _answers(Partition, "is_acknowledged", True),
        _shared,
        seed=1,
    ),
    InjectedFault(
        "expansion",
        "every follower that fetches joins the ISR",
        _wrap(Leader, "propose_expansion", _any_follower),
        _shared,
        seed=57,
    ),
    InjectedFault(
        "ISR in a race",
        "the ISR is written without a check of the node's version",
        _replace(isr.IsrWriter, "_write", _write_unconditionally),
        _hit(*_FAILOVER),
        seed=15,
    ),
    InjectedFault(
        "earlier incarnation",
        "a broker that starts keeps the leaderships of its previous incarnation",
        _replace(membership.Membership, "_resign_previous_incarnation", _ends_nothing),
        _hit("kill", "kill leader", "power"),
        seed=7,
    ),
    InjectedFault(
        "unclean",
        "any replica that is alive is elected",
        _wrap(duties, "elect_after_liveness_change", _elects_any_alive_replica),
        _hit(*_FAILOVER),
        seed=6,
    ),
    InjectedFault(
        "same epoch",
        "a new leader keeps the old leader's epoch",
        _wrap(election, "_next", _same_epoch),
        _hit(*_FAILOVER),
    ),
    InjectedFault(
        "handed to any replica",
        "a broker that stops hands its leaderships to replicas that are not in sync",
        _wrap(membership, "step_down", _hands_over_to_any_replica),
        _hit("restart", "rolling restart"),
        seed=30,
    ),
    InjectedFault(
        "hasty reassignment",
        "a reassignment ends when its new replicas are alive",
        _replace(duties, "completed", _completes_at_once),
        lambda plan: "reassignment" in plan.workloads and _shared(plan),
        seed=8,
    ),
    InjectedFault(
        "any epoch",
        "requests for another leader epoch are answered, and followers accept the answers",
        _any_epoch,
        _hit("late fetches"),
        seed=124,
    ),
    InjectedFault(
        "zombie",
        "a broker keeps leading after its session has ended",
        _replace(ImageFollower, "stop_leading", _keeps_leading),
        _hit("isolate leader", "isolate", "store part"),
        seed=15,
    ),
    InjectedFault(
        "watermark beyond",
        "a follower takes the leader's high watermark even beyond its own log end",
        _replace(follower, "next_high_watermark", _takes_watermark_of_leader),
        lambda plan: _shared(plan) and plan.properties["replica.fetch.response.max.bytes"] == "500",
        seed=6,
    ),
    InjectedFault(
        "preferred",
        "the preferred replica is elected although it is behind",
        _preferred_though_behind,
        _hit("lagging preferred"),
        seed=8,
    ),
    InjectedFault(
        "blind writes",
        "the controller's decisions are written without version checks",
        _wrap(writing, "write_guarded", _ignores_versions),
        _hit("stale controller"),
        seed=13,
    ),
    InjectedFault(
        "two controllers",
        "a replaced controller keeps writing, without version checks",
        _replace(writing, "write_guarded", _under_any_controller),
        _hit("depose controller"),
        seed=6,
    ),
    InjectedFault(
        "before KIP-101",
        "a log is truncated to its high watermark, not to where the epochs diverge",
        _before_kip_101,
        _hit("flap"),
    ),
    InjectedFault(
        "not loaded",
        "a coordinator serves before it has loaded its partition",
        _replace(HostedShard, "_replay_log", _reads_nothing),
        lambda plan: bool({"transactions", "copier", "group"} & set(plan.workloads)),
    ),
    InjectedFault(
        "marker",
        "markers are acknowledged but not written",
        _wrap(MarkerWriter, "_append", _marker_is_enough),
        lambda plan: "transactions" in plan.workloads,
        seed=1,
    ),
    InjectedFault(
        "missing is deleted",
        "a broker deletes the logs of topics that the store lacks, without a record of their deletion",
        _replace(ClusterImage, "is_deletion_requested", lambda image, topic_id: True),
        lambda plan: any(fault.kind in ("store restored", "topics removed") for fault in plan.faults),
        seed=58,
    ),
    InjectedFault(
        "missing follower is deleted",
        "a follower deletes its log when the store lacks the topic, and copies it again later",
        _wrap(Partitions, "_set_aside", _deletes_followers),
        lambda plan: (
            _shared(plan) and any(fault.kind in ("store restored", "topics removed") for fault in plan.faults)
        ),
        seed=58,
    ),
    InjectedFault(
        "any cluster",
        "a broker follows the images of whichever cluster the store has, and deletes its logs",
        _follows_any_cluster,
        lambda plan: any(fault.kind == "store replaced" for fault in plan.faults),
        seed=6,
    ),
    InjectedFault(
        "unsynced replicas",
        "acknowledgements do not wait for the disk",
        _replace(Log, "needs_flush", False),
        lambda plan: plan.durability == "synced" and any(f.kind.startswith("power") for f in plan.faults),
        seed=7,
    ),
)


__all__ = ["INJECTED_FAULTS"]
