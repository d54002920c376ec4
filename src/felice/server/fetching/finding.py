"""Finds the partitions that a request reads, if the client may read their topics.

Keeps true: a client without permission gets the same error for the name of any topic, whether it exists or not.
            Permission is checked when a partition is read: while a request waits, another may add partitions to its
            session. The ACLs are at least as new as the request.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol, TypeAlias
from uuid import UUID

from felice.metadata import ClusterImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.replication.partition import Partition
from felice.replication.partitions import Partitions
from felice.security.acl import Operation, ResourceType

# A topic as the request names it: by name or by id.
TopicRef: TypeAlias = str | UUID

# The errors of partitions that do not exist, or that the client may not read.
NOT_FOUND = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
# Kafka does not count fetches with these errors as failed.
_NOT_COUNTED = (
    *NOT_FOUND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_OUT_OF_RANGE,
)


class Named(Hashable, Protocol):
    """The part of a request about one partition."""

    @property
    def topic(self) -> TopicRef:
        """The topic."""
        ...

    @property
    def partition(self) -> int:
        """The number of the partition."""
        ...


class Metadata(Protocol):
    """Knows the cluster; `Watcher` is one."""

    image: ClusterImage


class Access(Protocol):
    """Permissions of the client of one request."""

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the client has a permission that its request needs."""
        ...


class PartitionFinder:
    """The partitions that the client of one request may read."""

    __slots__ = ("_access", "_may_read", "_partitions", "metadata")

    def __init__(self, partitions: Partitions, metadata: Metadata, access: Access | None) -> None:
        """`access` is None if the client may read all topics. A request has one `access`, to limit its log lines."""
        self.metadata = metadata
        self._partitions = partitions
        self._access = access
        # Whether the client may read each topic; decided when its first partition is read.
        self._may_read: dict[TopicRef, bool] = {}

    def find(self, asked: Named) -> Partition:
        """The partition. Raises the `ApiError` that tells the client why it is not here."""
        topic = asked.topic
        # Not `name_of`, to save a call for each partition.
        name = topic if isinstance(topic, str) else self.metadata.image.topic_names.get(topic, "")
        if self._access is not None and not self._allows(self._access, topic, name):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if not name and not isinstance(topic, str):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self._partitions.find(name, asked.partition)

    def _allows(self, access: Access, topic: TopicRef, name: str) -> bool:
        may_read = self._may_read.get(topic)
        if may_read is None:
            if not name and not isinstance(topic, str):
                # UNKNOWN_TOPIC_ID reveals nothing. Not stored: the id may become known later.
                return True
            may_read = self._may_read[topic] = access.allows(Operation.READ, ResourceType.TOPIC, name)
        return may_read

    def name_of(self, topic: TopicRef) -> str:
        """The topic's name; empty for an unknown topic id."""
        return topic if isinstance(topic, str) else self.metadata.image.topic_names.get(topic, "")

    def count_failure(self, asked: Named, code: int) -> None:
        """Counts a partition that was not read, unless clients expect the error, as Kafka does."""
        if code not in _NOT_COUNTED:
            found = self._partitions.get(self.name_of(asked.topic), asked.partition)
            if found is not None:
                found.traffic.failed_fetch_requests += 1
