"""Reassigning partitions to other brokers (KIP-455). Pure.

A reassignment from replicas O to replicas T first has both, T before those that are only in O; when all of T are in
sync, only T remains. A new reassignment replaces the one under way, and cancelling goes back to O.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from felice.controller.election import reassigned
from felice.dataclass import dataclass
from felice.metadata.image import PartitionImage
from felice.metadata.layout import StateNode
from felice.protocol.errors import ApiError, ErrorCode


@dataclass(frozen=True, slots=True)
class Assignment:
    """A partition's replicas, and which of them are being added or removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a reassignment: the next assignment, and the next state if it changes."""

    partition: PartitionImage
    assignment: Assignment
    state: StateNode | None


def begin(
    partition: PartitionImage, target: Sequence[int], alive: Collection[int], controller_epoch: int
) -> Move:
    """The first step towards `target`; raises `ApiError` if it is impossible."""
    if not target or len(set(target)) != len(target):
        raise _invalid("a partition needs at least one replica, and each broker but once")
    dead = sorted(broker for broker in target if broker not in alive and broker not in partition.origin)
    if dead:
        raise _invalid(
            f"the assignment names brokers that are not alive: {dead}; those alive: {sorted(alive)}"
        )
    return _towards(partition, tuple(target), alive, controller_epoch)


def cancel(partition: PartitionImage, alive: Collection[int], controller_epoch: int) -> Move:
    """The step back to the original replicas; raises `ApiError` if it is impossible."""
    if not partition.is_reassigning:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    return _towards(partition, partition.origin, alive, controller_epoch)


def completed(partition: PartitionImage, alive: Collection[int], controller_epoch: int) -> Move | None:
    """The last step of a reassignment whose new replicas are all in sync; None if it is not due."""
    target = partition.target
    if not partition.is_reassigning or not all(replica in partition.isr for replica in target):
        return None
    return Move(partition, Assignment(target), reassigned(partition, target, alive, controller_epoch))


def _towards(
    partition: PartitionImage, target: tuple[int, ...], alive: Collection[int], controller_epoch: int
) -> Move:
    origin = partition.origin
    removing = tuple(replica for replica in origin if replica not in target)
    replicas = (*target, *removing)
    adding = tuple(replica for replica in target if replica not in origin)
    if not any(replica in replicas for replica in partition.isr):
        raise _invalid("no replica that is in sync would be left")
    state = reassigned(partition, replicas, alive, controller_epoch)
    return Move(partition, Assignment(replicas, adding, removing), state)


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
