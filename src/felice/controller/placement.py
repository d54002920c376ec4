"""Chooses the brokers that hold a new partition's replicas. Pure.

Kafka's round robin: the first replicas go round the brokers from a start; the other replicas of a partition
follow at a shift that grows by one in each round, so that one broker's partitions do not all share the same
second broker. If every broker names its rack, the brokers are ordered so that racks alternate, and a
rack gets a second replica of a partition only when each rack has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest


class PlacementError(ValueError):
    """An impossible assignment; the text is for the client."""


def place_replicas(
    racks: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    start_index: int,
    start_shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Replicas of `partition_count` partitions from `first_partition` on; the first of each is the preferred leader.

    `racks` has the rack of each live broker.
    """
    assert 0 < replication_factor <= len(racks)
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    is_rack_aware = len(known) == len(racks)
    brokers = alternating(known) if is_rack_aware else sorted(racks)
    count = len(brokers)
    shift = start_shift
    placed = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start_index) % count
        if is_rack_aware:
            placed[partition] = _over_racks(brokers, known, first, shift, replication_factor)
        else:
            others = (_follower_index(first, shift, index, count) for index in range(replication_factor - 1))
            placed[partition] = (brokers[first], *(brokers[index] for index in others))
    return placed


def alternating(racks: Mapping[int, str]) -> list[int]:
    """The brokers in an order that takes one of each rack in turn."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for turn in turns for broker in turn if broker is not None]


def _over_racks(
    brokers: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    count, rack_count = len(brokers), len(set(racks.values()))
    chosen = [brokers[first]]
    follower = 0
    while len(chosen) < replication_factor:
        # From the second round on, brokers that were passed over because of their rack are considered.
        broker = brokers[_follower_index(first, shift * rack_count, follower, count)]
        follower += 1
        used = {racks[replica] for replica in chosen}
        if broker not in chosen and (racks[broker] not in used or len(used) == rack_count):
            chosen.append(broker)
    return tuple(chosen)


def _follower_index(first: int, shift: int, follower: int, count: int) -> int:
    return (first + 1 + (shift + follower) % (count - 1)) % count


def check_assignment(
    assignment: Mapping[int, Sequence[int]], live_brokers: Sequence[int], *, first_partition: int = 0
) -> None:
    """Checks a manual assignment: replicas by partition, which must be consecutive from `first_partition` on.

    Raises `PlacementError` for gaps, and for replicas that are missing, unequal in number, repeated, or not alive.
    """
    expected = list(range(first_partition, first_partition + len(assignment)))
    if not assignment or sorted(assignment) != expected:
        raise PlacementError(f"partitions must be consecutive from {first_partition}")
    sizes = {len(replicas) for replicas in assignment.values()}
    if 0 in sizes:
        raise PlacementError("a partition needs at least one replica")
    if len(sizes) > 1:
        raise PlacementError("all partitions must have the same number of replicas")
    for partition, replicas in sorted(assignment.items()):
        if len(set(replicas)) != len(replicas):
            raise PlacementError(f"partition {partition} names a broker twice: {list(replicas)}")
        unknown = [broker for broker in replicas if broker not in live_brokers]
        if unknown:
            raise PlacementError(f"partition {partition} names brokers that are not alive: {unknown}")
