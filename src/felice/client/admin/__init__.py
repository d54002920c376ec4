"""Administration of a cluster. `AdminClient` has confluent_kafka's face; `felice.client.aio.Admin` is beneath.

The names of confluent_kafka.admin that concern topics, configs, groups, offsets and records are here. ACLs, SCRAM
users and quotas are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felice.client.admin.model import (
    AlterConfigOpType,
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
    ReplicaInLogDir,
    ResourceType,
    TopicCollection,
    TopicDescription,
    TopicPartitionInfo,
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
    "AdminClient",
    "AlterConfigOpType",
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
    "ReplicaInLogDir",
    "ResourceType",
    "TopicCollection",
    "TopicDescription",
    "TopicMetadata",
    "TopicPartition",
    "TopicPartitionInfo",
    "UpgradeType",
]
