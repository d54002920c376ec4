"""Who leads a partition. Pure.

Keeps true: R2 one leader per partition and leader epoch: every election takes the next epoch.
"""

from __future__ import annotations

from collections.abc import Collection

from felice.metadata.image import PartitionImage
from felice.metadata.layout import NO_LEADER, StateNode


def first_state(replicas: tuple[int, ...], alive: Collection[int], controller_epoch: int) -> StateNode:
    """A new partition: the first replica alive leads and all replicas alive are in sync."""
    isr = tuple(replica for replica in replicas if replica in alive)
    return StateNode(isr[0] if isr else NO_LEADER, 0, controller_epoch, isr or replicas)


def elect(partition: PartitionImage, alive: Collection[int], controller_epoch: int) -> StateNode:
    """The next state: the first replica in assignment order that is alive and in sync leads."""
    candidates = [replica for replica in partition.replicas if replica in alive and replica in partition.isr]
    leader = candidates[0] if candidates else NO_LEADER
    isr = tuple(replica for replica in partition.isr if replica in alive) or partition.isr
    return StateNode(leader, partition.leader_epoch + 1, controller_epoch, isr)
