"""The consumer's part of the statistics: positions, lag and fetched records by partition, and the group's state."""

from __future__ import annotations

from felice.client.consume.delivery import Delivery
from felice.client.consume.subscription import AssignedPartition, Subscription
from felice.client.group.consumer_group import GroupMembership
from felice.client.model import OFFSET_INVALID, Partition
from felice.client.net.cluster import Cluster
from felice.client.net.statistics import Document, partition_row


def describe_consumer(
    document: Document,
    cluster: Cluster,
    subscription: Subscription,
    delivery: Delivery,
    membership: GroupMembership | None,
) -> None:
    """Add the fetched totals, the assigned partitions and the group's state to the document."""
    document |= {
        "rxmsgs": sum(records for records, _ in delivery.received.values()),
        "rxmsg_bytes": sum(size for _, size in delivery.received.values()),
    }
    for partition in subscription.assigned.values():
        row = partition_row(document, cluster, partition.topic, partition.partition)
        row |= _partition(partition, delivery.received.get(partition.key, (0, 0)))
    if membership is not None:
        document["cgrp"] = _group(membership, subscription.assigned)


def _partition(partition: AssignedPartition, received: tuple[int, int]) -> Document:
    end = partition.high_watermark
    position = _known(partition.place.position)
    stored = partition.stored[0] if partition.stored is not None else position
    return {
        "fetch_state": "active" if partition.fetchable else "stopped" if partition.paused else "offset-query",
        "fetchq_cnt": partition.lease.buffered_records,
        "fetchq_size": partition.lease.buffered_bytes,
        "next_offset": _known(partition.fetch_offset),
        "app_offset": position,
        "stored_offset": stored,
        "committed_offset": _known(partition.committed),
        "lo_offset": _known(partition.log_start_offset),
        "hi_offset": _known(end),
        "consumer_lag": _lag(end, partition.committed if partition.committed is not None else position),
        "consumer_lag_stored": _lag(end, stored),
        "leader_epoch": partition.leader_epoch,
        "rxmsgs": received[0],
        "rxbytes": received[1],
        "msgs": received[0],
    }


def _known(offset: int | None) -> int:
    return OFFSET_INVALID if offset is None or offset < 0 else offset


def _lag(end: int, offset: int) -> int:
    """Records between the offset and the high watermark; -1 if either is unknown."""
    return max(0, end - offset) if end >= 0 and offset >= 0 else -1


def _group(membership: GroupMembership, assigned: dict[Partition, AssignedPartition]) -> Document:
    return {
        "state": "up" if membership.member.joined else "wait-coord",
        "join_state": "steady" if membership.stable else "wait-join",
        "rebalance_cnt": membership.rebalance_count,
        "rebalance_reason": membership.last_reason,
        "rebalance_age": membership.rebalance_age_ms,
        "assignment_size": len(assigned),
    }
