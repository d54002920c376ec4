"""Which brokers hold a new partition's replicas. Pure.

Kafka's rack-unaware round robin: the first replicas go round the brokers from a start;
the other replicas of a partition follow at a shift that grows by one each time round, so
that one broker's partitions do not all share the same second broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class PlacementError(ValueError):
    """An assignment that cannot be; the text is for the client."""


def place_replicas(
    broker_ids: Sequence[int],
    partition_count: int,
    replication_factor: int,
    *,
    start_index: int,
    start_shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Replicas of `partition_count` partitions from `first_partition` on; the first is preferred as leader."""
    assert 0 < replication_factor <= len(broker_ids)
    count = len(broker_ids)
    shift = start_shift
    placed = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start_index) % count
        others = (
            _follower_index(first, shift, follower, count) for follower in range(replication_factor - 1)
        )
        placed[partition] = (broker_ids[first], *(broker_ids[index] for index in others))
    return placed


def _follower_index(first: int, shift: int, follower: int, count: int) -> int:
    return (first + 1 + (shift + follower) % (count - 1)) % count


def check_assignment(
    assignment: Mapping[int, Sequence[int]], live_brokers: Sequence[int], *, first_partition: int = 0
) -> None:
    """Refuses an assignment made by hand that has gaps, repeats or strangers in it."""
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
