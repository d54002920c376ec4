"""The values of confluent_kafka's module `_model`, for programs that import them from there."""

from __future__ import annotations

from felice.client.admin.enumerations import (
    ConsumerGroupState,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
)
from felice.client.admin.model import (
    ConsumerGroupTopicPartitions,
    Node,
    TopicCollection,
    TopicPartitionInfo,
)

__all__ = [
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "ElectionType",
    "IsolationLevel",
    "Node",
    "TopicCollection",
    "TopicPartitionInfo",
]
