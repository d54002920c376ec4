"""Administration of a cluster. `AdminClient` has confluent_kafka's face; `felice.client.aio.Admin` is beneath.

The names of confluent_kafka.admin that concern topics, configs, groups, offsets and records are here, and what it lacks
(transactions, leaders, log directories, versions) by the names of Java's Admin. ACLs, SCRAM users and quotas are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felice.client.admin.model import (
    AbortTransactionSpec,
    AlterConfigOpType,
    ApiVersionRange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    DeletedRecords,
    DescribeClusterResult,
    ElectionType,
    FeatureMetadata,
    FeatureUpdate,
    FencedProducer,
    IsolationLevel,
    ListConsumerGroupsResult,
    ListOffsetsResultInfo,
    LogDirDescription,
    MemberAssignment,
    MemberDescription,
    NewPartitions,
    NewTopic,
    Node,
    OffsetSpec,
    PartitionReassignment,
    ProducerState,
    ReplicaInLogDir,
    ResourceType,
    TopicCollection,
    TopicDescription,
    TopicPartitionInfo,
    TransactionDescription,
    TransactionListing,
    TransactionState,
    UpgradeType,
)
from felice.client.errors import KafkaError, KafkaException
from felice.client.model import (
    BrokerMetadata,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
)

if TYPE_CHECKING:
    from felice.client.admin.client import AdminClient


def __getattr__(name: str) -> Any:
    # The client stands on aio_admin, which stands on the values in this package.
    if name == "AdminClient":
        from felice.client.admin.client import AdminClient

        return AdminClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AbortTransactionSpec",
    "AdminClient",
    "AlterConfigOpType",
    "ApiVersionRange",
    "BrokerMetadata",
    "ClusterMetadata",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "DeletedRecords",
    "DescribeClusterResult",
    "ElectionType",
    "FeatureMetadata",
    "FeatureUpdate",
    "FencedProducer",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "ListConsumerGroupsResult",
    "ListOffsetsResultInfo",
    "LogDirDescription",
    "MemberAssignment",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OffsetSpec",
    "PartitionMetadata",
    "PartitionReassignment",
    "ProducerState",
    "ReplicaInLogDir",
    "ResourceType",
    "TopicCollection",
    "TopicDescription",
    "TopicMetadata",
    "TopicPartition",
    "TopicPartitionInfo",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UpgradeType",
]
