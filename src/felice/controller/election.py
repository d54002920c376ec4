"""Leader and in-sync replicas of a partition, as brokers join and leave. Pure.

Keeps true: R2 one leader per partition and leader epoch: each new leader gets the next epoch.
            C2 the last member of an ISR stays in it, alive or not: only it is known to have every committed record.
            No other replica leads, unless the topic allows unclean elections.
Each function returns the partition's next state, or None if nothing changes.
"""

from __future__ import annotations

from collections.abc import Collection

from felice.metadata.image import PartitionImage
from felice.metadata.layout import NO_LEADER, StateNode


def first_state(replicas: tuple[int, ...], alive: Collection[int], controller_epoch: int) -> StateNode:
    """State of a new partition: the first live replica leads, and all live replicas are in sync.

    If no replica is alive, there is no leader, and all replicas count as in sync.
    """
    isr = tuple(replica for replica in replicas if replica in alive)
    return StateNode(isr[0] if isr else NO_LEADER, 0, controller_epoch, isr or replicas)


def elect_after_liveness_change(
    partition: PartitionImage, alive: Collection[int], controller_epoch: int, *, allows_unclean: bool = False
) -> StateNode | None:
    """Removes dead brokers from the ISR, and replaces a leader that cannot lead by the first replica that can."""
    isr = _alive_or_last(partition.isr, alive)
    leader = _leader_of(partition, [replica for replica in isr if replica in alive])
    if leader == NO_LEADER and allows_unclean:
        # Records that only the other replicas had are lost: the topic's owner prefers that to waiting.
        leader = next((replica for replica in partition.replicas if replica in alive), NO_LEADER)
        isr = isr if leader == NO_LEADER else (leader,)
    return _next(partition, leader, isr, controller_epoch)


def step_down(
    partition: PartitionImage, broker_id: int, alive: Collection[int], controller_epoch: int
) -> StateNode | None:
    """Removes `broker_id` from ISR and leadership; None if no other replica can take its place."""
    others = tuple(replica for replica in partition.isr if replica != broker_id and replica in alive)
    if broker_id not in partition.isr or not others:
        return None
    return _next(partition, _leader_of(partition, others), others, controller_epoch)


def fence_previous_incarnation(
    partition: PartitionImage, broker_id: int, alive: Collection[int], controller_epoch: int
) -> StateNode | None:
    """Fences the previous incarnation of `broker_id`: others take over, or it leads in a new epoch.

    A crash may have cost its log the tail. A removed replica joins the ISR again after catching up; if it was the last
    one in sync, only a new epoch lets consumers notice the loss (KIP-320).
    """
    state = step_down(partition, broker_id, alive, controller_epoch)
    if state is None and partition.leader == broker_id:
        isr = _alive_or_last(partition.isr, {*alive, broker_id})
        return StateNode(broker_id, partition.leader_epoch + 1, controller_epoch, isr)
    return state


def above_epoch(
    partition: PartitionImage, state: StateNode | None, known_epoch: int, controller_epoch: int
) -> StateNode | None:
    """`state`, or the current one, in an epoch above `known_epoch`; -1 if any epoch will do.

    An operator restored an older state of the store, and no epoch may have two leaders.
    """
    if partition.leader_epoch > known_epoch or known_epoch < 0:
        return state
    leader, isr = (partition.leader, partition.isr) if state is None else (state.leader, state.isr)
    return StateNode(leader, known_epoch + 1, controller_epoch, isr)


def preferred(partition: PartitionImage, alive: Collection[int], controller_epoch: int) -> StateNode | None:
    """The preferred replica leads, if it is alive and in sync."""
    first = partition.replicas[0]
    if first not in alive or first not in partition.isr:
        return None
    return _next(partition, first, partition.isr, controller_epoch)


def reassigned(
    partition: PartitionImage, replicas: tuple[int, ...], alive: Collection[int], controller_epoch: int
) -> StateNode | None:
    """Reduces the replicas to `replicas`. Removing one raises the leader epoch: a leader with an old image cannot
    take it into the ISR again. The caller makes sure that the ISR keeps a member.
    """
    if all(replica in replicas for replica in partition.replicas):
        return None
    isr = tuple(replica for replica in partition.isr if replica in replicas)
    candidates = [replica for replica in isr if replica in alive]
    leader = partition.leader
    if leader not in candidates:
        leader = next((replica for replica in replicas if replica in candidates), NO_LEADER)
    return StateNode(leader, partition.leader_epoch + 1, controller_epoch, isr)


def _alive_or_last(isr: tuple[int, ...], alive: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in isr if replica in alive) or isr


def _leader_of(partition: PartitionImage, candidates: Collection[int]) -> int:
    if partition.leader in candidates:
        return partition.leader
    return next((replica for replica in partition.replicas if replica in candidates), NO_LEADER)


def _next(
    partition: PartitionImage, leader: int, isr: tuple[int, ...], controller_epoch: int
) -> StateNode | None:
    if leader == partition.leader and isr == partition.isr:
        return None
    epoch = partition.leader_epoch + (leader != partition.leader)
    return StateNode(leader, epoch, controller_epoch, isr)
