"""Who leads a partition, and who is in sync with it, as brokers come and go. Pure.

Keeps true: R2 one leader per partition and leader epoch: whoever comes to lead takes the next epoch.
            C2 the last member of an ISR stays in it, alive or not: only it is known to have every
            committed record. Nobody else leads, unless the topic allows unclean elections.
Each function answers the partition's next state, or None where nothing is to change.
"""

from __future__ import annotations

from collections.abc import Collection

from felice.metadata.image import PartitionImage
from felice.metadata.layout import NO_LEADER, StateNode


def first_state(replicas: tuple[int, ...], alive: Collection[int], controller_epoch: int) -> StateNode:
    """A new partition: the first replica alive leads and all replicas alive are in sync."""
    isr = tuple(replica for replica in replicas if replica in alive)
    return StateNode(isr[0] if isr else NO_LEADER, 0, controller_epoch, isr or replicas)


def settled(
    partition: PartitionImage, alive: Collection[int], controller_epoch: int, *, allows_unclean: bool = False
) -> StateNode | None:
    """The dead leave the ISR; a leader that cannot lead is replaced by the first replica that can."""
    isr = _alive_or_last(partition.isr, alive)
    leader = _leader_of(partition, [replica for replica in isr if replica in alive])
    if leader == NO_LEADER and allows_unclean:
        # What only the others had is lost: the topic's owner prefers that to waiting.
        leader = next((replica for replica in partition.replicas if replica in alive), NO_LEADER)
        isr = isr if leader == NO_LEADER else (leader,)
    return _next(partition, leader, isr, controller_epoch)


def stepped_down(
    partition: PartitionImage, broker_id: int, alive: Collection[int], controller_epoch: int
) -> StateNode | None:
    """`broker_id` leaves the ISR, and the leadership if it has it; nothing changes if nobody can take its place."""
    others = tuple(replica for replica in partition.isr if replica != broker_id and replica in alive)
    if broker_id not in partition.isr or not others:
        return None
    return _next(partition, _leader_of(partition, others), others, controller_epoch)


def restarted(
    partition: PartitionImage, broker_id: int, alive: Collection[int], controller_epoch: int
) -> StateNode | None:
    """What `broker_id`'s earlier life was given ends: others take over, or it leads on in a new epoch.

    A crash may have cost its log the tail. Out of the ISR it comes back when it has caught up; where it
    was the last that was in sync, only a new epoch lets consumers notice (KIP-320).
    """
    state = stepped_down(partition, broker_id, alive, controller_epoch)
    if state is None and partition.leader == broker_id:
        isr = _alive_or_last(partition.isr, {*alive, broker_id})
        return StateNode(broker_id, partition.leader_epoch + 1, controller_epoch, isr)
    return state


def preferred(partition: PartitionImage, alive: Collection[int], controller_epoch: int) -> StateNode | None:
    """The first replica leads, if it is alive and in sync."""
    first = partition.replicas[0]
    if first not in alive or first not in partition.isr:
        return None
    return _next(partition, first, partition.isr, controller_epoch)


def reassigned(
    partition: PartitionImage, replicas: tuple[int, ...], alive: Collection[int], controller_epoch: int
) -> StateNode | None:
    """Only `replicas` remain. One that leaves costs an epoch, so that a leader that knows no better cannot
    take it into the ISR again. The caller sees to it that the ISR keeps a member.
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
