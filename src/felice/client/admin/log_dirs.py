"""Log directories of brokers: their contents, and moving replicas between them.

Each broker knows only its own directories. A broker that does not exist gives an error as its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from felice.client.admin.model import LogDirDescription, ReplicaInLogDir
from felice.client.admin.results import Results, from_each, no_broker, outcome
from felice.client.error import KafkaException
from felice.client.model import Partition
from felice.client.net.cluster import Cluster
from felice.client.net.requests import by_topic
from felice.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from felice.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)


async def describe_log_dirs(
    cluster: Cluster, brokers: Iterable[int], topics: Iterable[str] | None
) -> Results:
    """Return `[LogDirDescription]` or the error by broker. None means all topics."""
    names = None if topics is None else list(topics)
    await cluster.refresh([] if names is None else names)
    request = DescribeLogDirsRequest(topics=None if names is None else _partitions(cluster, names))

    async def ask(node_id: int, _: list[int]) -> Results:
        if node_id not in cluster.topology.brokers:
            raise no_broker(node_id)
        response = await cluster.call(node_id, request)
        rows = [_description(row) for row in response.results]
        return {node_id: outcome(response.error_code, None, f"log directories of broker {node_id}", rows)}

    return await from_each({node_id: [node_id] for node_id in brokers}, ask)


def _partitions(cluster: Cluster, names: list[str]) -> list[DescribableLogDirTopic]:
    picture = cluster.topology.describe(names)
    return [
        DescribableLogDirTopic(topic=name, partitions=sorted(picture.topics[name].partitions))
        for name in names
    ]


def _description(row: DescribeLogDirsResult) -> LogDirDescription:
    error = outcome(row.error_code, None, row.log_dir)
    replicas = [
        ReplicaInLogDir(
            topic.name,
            replica.partition_index,
            replica.partition_size,
            replica.offset_lag,
            replica.is_future_key,
        )
        for topic in row.topics
        for replica in topic.partitions
    ]
    failed = error.error if isinstance(error, KafkaException) else None
    return LogDirDescription(
        row.log_dir, failed, replicas, row.total_bytes, row.usable_bytes, list(row.stray_logs)
    )


async def alter_replica_log_dirs(cluster: Cluster, node_id: int, wanted: Mapping[Partition, str]) -> Results:
    """Start to move replicas of one broker. Returns None or the error by partition."""
    await cluster.refresh([])
    if node_id not in cluster.topology.brokers:
        return dict.fromkeys(wanted, no_broker(node_id))
    dirs = [
        AlterReplicaLogDir(
            path=path,
            topics=[
                AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                for topic, numbers in by_topic(found for found in wanted if wanted[found] == path).items()
            ],
        )
        for path in dict.fromkeys(wanted.values())
    ]
    response = await cluster.call(node_id, AlterReplicaLogDirsRequest(dirs=dirs))
    return {
        (topic.topic_name, row.partition_index): outcome(
            row.error_code, None, f"{topic.topic_name}-{row.partition_index}"
        )
        for topic in response.results
        for row in topic.partitions
    }
