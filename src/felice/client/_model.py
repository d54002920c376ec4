"""The values of confluent_kafka's module `_model`, for programs that import them from there."""

from __future__ import annotations

from felice.client.admin.enumerations import ConsumerGroupState as ConsumerGroupState
from felice.client.admin.enumerations import ConsumerGroupType as ConsumerGroupType
from felice.client.admin.enumerations import ElectionType as ElectionType
from felice.client.admin.enumerations import IsolationLevel as IsolationLevel
from felice.client.admin.model import ConsumerGroupTopicPartitions as ConsumerGroupTopicPartitions
from felice.client.admin.model import Node as Node
from felice.client.admin.model import TopicCollection as TopicCollection
from felice.client.admin.model import TopicPartitionInfo as TopicPartitionInfo
