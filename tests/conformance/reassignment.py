"""Reassigns a partition of a cluster with a plain request."""

from conformance.wire import Wire
from felice.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from felice.testing import Cluster


def wire_to(cluster: Cluster, broker_id: int) -> Wire:
    return Wire(f"127.0.0.1:{cluster.port(broker_id)}")


def move(cluster: Cluster, topic: str, index: int, replicas: list[int]) -> None:
    """Waits until every broker knows that the partition is on these brokers only, and all of them are in sync."""
    row = ReassignablePartition(partition_index=index, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[row])])
    with wire_to(cluster, cluster.running[0]) as wire:
        response = wire.ask(request)
    assert (response.error_code, response.responses[0].partitions[0].error_code) == (0, 0), response

    def is_there(broker_id: int) -> bool:
        partition = cluster._running.cluster.brokers[broker_id].image.partition(topic, index)
        if partition is None:
            return False
        return list(partition.replicas) == replicas and set(partition.isr) == set(replicas)

    cluster.wait_until(lambda found: all(map(is_there, found.running)), 120)
