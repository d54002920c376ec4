"""Administration as coroutines: one method per question, answered per item.

Keeps true:  an error that time or another broker cures (no controller yet, coordinator moving, leader changing) is
             retried until the time limit; every other error comes back at once, in the place of that item's result.
             When no broker can be reached the answer is an error at once, not at the end of the time limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from felice.client.admin import acls, configs, features, groups, leadership, log_dirs, topics, transactions
from felice.client.admin.acls import AclBinding, AclBindingFilter
from felice.client.admin.enumerations import (
    ConsumerGroupState,
    ConsumerGroupType,
    ElectionType,
    authorized_operations,
)
from felice.client.admin.model import (
    AbortTransactionSpec,
    ApiVersionRange,
    ConfigResource,
    ConsumerGroupDescription,
    DescribeClusterResult,
    FeatureMetadata,
    FeatureUpdate,
    FencedProducer,
    GroupMetadata,
    ListConsumerGroupsResult,
    NewPartitions,
    NewTopic,
    Node,
    PartitionReassignment,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from felice.client.admin.topics import Results
from felice.client.error import KafkaError, KafkaException, kafka_exception
from felice.client.group.requests import CommittedOffset
from felice.client.model import ClusterMetadata, Partition, TopicPartition
from felice.client.net.cluster import Cluster, backoff_s
from felice.client.options import Settings, parse_settings
from felice.env import Environment
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_cluster import DescribeClusterRequest
from felice.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 60.0

_PASSING = {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}


class Admin:
    """`async with Admin({"bootstrap.servers": ...}) as admin: await admin.create_topics([...])`."""

    def __init__(self, config: Mapping[str, Any] | Settings, *, env: Environment | None = None) -> None:
        self._settings = config if isinstance(config, Settings) else parse_settings("a", config, env)
        self._log: logging.Logger = self._settings.logger()
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """The connections, made when they are first needed."""
        if self._cluster is None:
            self._cluster = Cluster(self._settings, self._log)
        return self._cluster

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            await self._cluster.close()
            self._cluster = None

    async def _retrying(self, ask: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """Ask until it is answered; what passes is asked again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        attempt = 0
        while True:
            try:
                return await ask()
            except KafkaException as error:
                gone = error.code == KafkaError._ALL_BROKERS_DOWN
                if gone or not error.error.retriable() or loop.time() >= deadline:
                    raise
            except OSError as error:
                raise kafka_exception(error) from error
            await asyncio.sleep(backoff_s(attempt, 100, 1000, self._settings.env.random))
            attempt += 1
            if attempt > 1:
                await self.cluster.refresh([])

    async def _each(
        self, items: Mapping[Any, T], ask: Callable[[list[T]], Awaitable[Results]], timeout_s: float
    ) -> Results:
        """Ask about all items, and again about those whose error will pass."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        left = dict(items)
        results: Results = {}
        attempt = 0
        while left:
            asked = list(left.values())
            answers = await self._retrying(lambda asked=asked: ask(asked), deadline - loop.time())  # type: ignore[misc]
            results.update(answers)
            left = {key: item for key, item in left.items() if _passes(answers.get(key))}
            if not left or loop.time() >= deadline:
                break
            await asyncio.sleep(backoff_s(attempt, 100, 1000, self._settings.env.random))
            await self.cluster.refresh([])
            attempt += 1
        return {key: results.get(key) for key in items}

    # Topics

    async def create_topics(
        self, new: Iterable[NewTopic], timeout_s: float = DEFAULT_TIMEOUT_S, validate_only: bool = False
    ) -> Results:
        """None, or the error, by topic."""
        timeout_ms = int(timeout_s * 1000)
        return await self._each(
            {topic.topic: topic for topic in new},
            lambda some: topics.create_topics(self.cluster, some, timeout_ms, validate_only),
            timeout_s,
        )

    async def delete_topics(self, names: Iterable[str], timeout_s: float = DEFAULT_TIMEOUT_S) -> Results:
        """Delete topics and their records. None, or the error, by topic."""
        timeout_ms = int(timeout_s * 1000)
        return await self._each(
            {name: name for name in names},
            lambda some: topics.delete_topics(self.cluster, some, timeout_ms),
            timeout_s,
        )

    async def create_partitions(
        self,
        wanted: Iterable[NewPartitions],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        validate_only: bool = False,
    ) -> Results:
        """Add partitions until a topic has `new_total_count` of them. None, or the error, by topic."""
        timeout_ms = int(timeout_s * 1000)
        return await self._each(
            {topic.topic: topic for topic in wanted},
            lambda some: topics.create_partitions(self.cluster, some, timeout_ms, validate_only),
            timeout_s,
        )

    async def describe_topics(
        self,
        names: Iterable[str],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        include_authorized_operations: bool = False,
    ) -> Results:
        """`TopicDescription`, or the error, by topic."""
        return await self._each(
            {name: name for name in names},
            lambda some: topics.describe_topics(self.cluster, some, include_authorized_operations),
            timeout_s,
        )

    async def metadata(
        self, names: Iterable[str] | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> ClusterMetadata:
        """Brokers and topics (None: all of them)."""
        wanted = None if names is None else list(names)
        await self._retrying(lambda: self.cluster.refresh(wanted), timeout_s)
        return self.cluster.topology.describe(wanted)

    async def describe_cluster(
        self, timeout_s: float = DEFAULT_TIMEOUT_S, include_authorized_operations: bool = False
    ) -> DescribeClusterResult:
        """The brokers and the controller."""
        picture = await self.metadata([], timeout_s)
        nodes = topics.nodes_of(picture)
        bits = OPERATIONS_NOT_REQUESTED
        if include_authorized_operations:
            request = DescribeClusterRequest(include_cluster_authorized_operations=True)
            response = await self._retrying(lambda: self.cluster.call_any(request), timeout_s)
            bits = response.cluster_authorized_operations
        return DescribeClusterResult(
            nodes.get(picture.controller_id),
            [nodes[number] for number in sorted(nodes)],
            picture.cluster_id,
            authorized_operations(bits),
        )

    async def list_offsets(
        self,
        timestamps: Mapping[Partition, int],
        isolation_level: int = 0,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Results:
        """`ListOffsetsResultInfo`, or the error, by partition."""
        return await self._each(
            {partition: partition for partition in timestamps},
            lambda some: topics.list_offsets(
                self.cluster, {partition: timestamps[partition] for partition in some}, isolation_level
            ),
            timeout_s,
        )

    async def delete_records(
        self, offsets: Mapping[Partition, int], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Results:
        """`DeletedRecords`, or the error, by partition; everything before the offset goes."""
        timeout_ms = int(timeout_s * 1000)
        return await self._each(
            {partition: partition for partition in offsets},
            lambda some: topics.delete_records(
                self.cluster, {partition: offsets[partition] for partition in some}, timeout_ms
            ),
            timeout_s,
        )

    # Configs

    async def describe_configs(
        self, resources: Iterable[ConfigResource], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Results:
        """`{name: ConfigEntry}`, or the error, by resource."""
        return await self._each(
            {resource: resource for resource in resources},
            lambda some: configs.describe_configs(self.cluster, some),
            timeout_s,
        )

    async def alter_configs(
        self,
        resources: Iterable[ConfigResource],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        validate_only: bool = False,
    ) -> Results:
        """Replace all configs that are set on each resource. None, or the error, by resource."""
        return await self._each(
            {resource: resource for resource in resources},
            lambda some: configs.alter_configs(self.cluster, some, validate_only),
            timeout_s,
        )

    async def incremental_alter_configs(
        self,
        resources: Iterable[ConfigResource],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        validate_only: bool = False,
    ) -> Results:
        """Make the changes in `incremental_configs`, and no others. None, or the error, by resource."""
        return await self._each(
            {resource: resource for resource in resources},
            lambda some: configs.incremental_alter_configs(self.cluster, some, validate_only),
            timeout_s,
        )

    # Access rules

    async def create_acls(self, rules: Iterable[AclBinding], timeout_s: float = DEFAULT_TIMEOUT_S) -> Results:
        """None, or the error, by rule."""
        return await self._each(
            {rule: rule for rule in rules}, lambda some: acls.create_acls(self.cluster, some), timeout_s
        )

    async def describe_acls(
        self, wanted: AclBindingFilter, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[AclBinding]:
        """The rules that match a filter."""
        return await self._retrying(lambda: acls.describe_acls(self.cluster, wanted), timeout_s)

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Results:
        """The rules that were deleted, or the error, by filter."""
        return await self._each(
            {chosen: chosen for chosen in filters},
            lambda some: acls.delete_acls(self.cluster, some),
            timeout_s,
        )

    # Versions and features

    async def list_api_versions(
        self, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> dict[Node, list[ApiVersionRange] | KafkaException]:
        """What each broker offers, by key, or why it did not say."""
        return await self._retrying(lambda: features.api_versions(self.cluster), timeout_s)

    async def describe_features(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> FeatureMetadata:
        """The levels that brokers support, and those that the cluster has settled on."""
        return await self._retrying(lambda: features.describe_features(self.cluster), timeout_s)

    async def update_features(
        self,
        updates: Iterable[FeatureUpdate],
        validate_only: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Settles on other levels, all of them, or raises the first fault and nothing has changed."""
        wanted, timeout_ms = list(updates), int(timeout_s * 1000)
        await self._retrying(
            lambda: features.update_features(self.cluster, wanted, validate_only, timeout_ms), timeout_s
        )

    # Leaders and replicas

    async def elect_leaders(
        self,
        kind: ElectionType,
        partitions: Iterable[Partition] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Results:
        """None, or why there was no election, by partition; of all partitions only those that needed one."""
        wanted = None if partitions is None else list(partitions)
        timeout_ms = int(timeout_s * 1000)
        return await self._retrying(
            lambda: leadership.elect_leaders(self.cluster, kind, wanted, timeout_ms), timeout_s
        )

    async def alter_partition_reassignments(
        self, wanted: Mapping[Partition, Sequence[int] | None], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Results:
        """Begins to move partitions to other brokers (None: cancels a move); None, or the error, by partition."""
        timeout_ms = int(timeout_s * 1000)
        return await self._each(
            {partition: partition for partition in wanted},
            lambda some: leadership.alter_reassignments(
                self.cluster, {partition: wanted[partition] for partition in some}, timeout_ms
            ),
            timeout_s,
        )

    async def list_partition_reassignments(
        self, partitions: Iterable[Partition] | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> dict[Partition, PartitionReassignment]:
        """The moves under way."""
        wanted = None if partitions is None else list(partitions)
        timeout_ms = int(timeout_s * 1000)
        return await self._retrying(
            lambda: leadership.list_reassignments(self.cluster, wanted, timeout_ms), timeout_s
        )

    # Log directories

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        topics: Iterable[str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Results:
        """`[LogDirDescription]`, or the error, by broker; None asks all, or for all topics."""
        asked = None if brokers is None else list(brokers), None if topics is None else list(topics)
        return await self._retrying(lambda: log_dirs.describe_log_dirs(self.cluster, *asked), timeout_s)

    async def alter_replica_log_dirs(
        self, broker: int, wanted: Mapping[Partition, str], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Results:
        """Begins to move replicas of a broker to other directories of its; None, or the error, by partition."""
        return await self._retrying(
            lambda: log_dirs.alter_replica_log_dirs(self.cluster, broker, wanted), timeout_s
        )

    # Groups

    async def list_consumer_groups(
        self,
        states: Iterable[ConsumerGroupState] = (),
        types: Iterable[ConsumerGroupType] = (),
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> ListConsumerGroupsResult:
        """The groups of all brokers, of these states and types; no states and no types let all through."""
        wanted = list(states), list(types)
        return await self._retrying(lambda: groups.list_groups(self.cluster, *wanted), timeout_s)

    async def describe_consumer_group(
        self,
        group_id: str,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        include_authorized_operations: bool = False,
    ) -> ConsumerGroupDescription:
        """A group with its members; one that does not exist is Dead."""
        return await self._retrying(
            lambda: groups.describe_group(self.cluster, group_id, timeout_s, include_authorized_operations),
            timeout_s,
        )

    async def list_groups(
        self, group_id: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[GroupMetadata]:
        """Groups of every kind with their members' bytes, ordered by name; only `group_id` where it is given."""
        listed = await self.list_consumer_groups(timeout_s=timeout_s)
        names = sorted(row.group_id for row in listed.valid if group_id in (None, row.group_id))
        return [await self._group_metadata(name, timeout_s) for name in names]

    async def _group_metadata(self, group_id: str, timeout_s: float) -> GroupMetadata:
        return await self._retrying(
            lambda: groups.group_metadata(self.cluster, group_id, timeout_s), timeout_s
        )

    async def delete_consumer_group(self, group_id: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Delete a group that has no members, with its offsets."""
        await self._retrying(lambda: groups.delete_group(self.cluster, group_id, timeout_s), timeout_s)

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[tuple[str, str | None]],
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Results:
        """Make members leave, by (member id, instance id). None, or the error, by member."""
        rows = list(members)
        return await self._retrying(
            lambda: groups.remove_members(self.cluster, group_id, rows, timeout_s), timeout_s
        )

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[Partition] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        require_stable: bool = False,
    ) -> list[TopicPartition]:
        """Committed offsets; None asks for all that the group has committed."""
        wanted = None if partitions is None else list(partitions)
        return await self._retrying(
            lambda: groups.list_group_offsets(self.cluster, group_id, wanted, timeout_s, require_stable),
            timeout_s,
        )

    async def alter_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[Partition, CommittedOffset],
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> list[TopicPartition]:
        """Commit for a group that has no members. The partitions, with errors in their place."""
        return await self._retrying(
            lambda: groups.alter_group_offsets(self.cluster, group_id, offsets, timeout_s), timeout_s
        )

    async def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[Partition], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[TopicPartition]:
        """Delete committed offsets. The partitions, with errors in their place."""
        wanted = list(partitions)
        return await self._retrying(
            lambda: groups.delete_group_offsets(self.cluster, group_id, wanted, timeout_s), timeout_s
        )

    # Transactions

    async def list_transactions(
        self,
        states: Iterable[TransactionState] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> dict[int, list[TransactionListing]]:
        """What every broker coordinates, by broker; a pattern is matched with the whole transactional id."""
        wanted = list(states), list(producer_ids), longer_than_ms, pattern
        return await self._retrying(lambda: transactions.list_transactions(self.cluster, *wanted), timeout_s)

    async def describe_transaction(
        self, transactional_id: str, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> TransactionDescription:
        """What the coordinator knows of a transactional id."""
        return await self._retrying(
            lambda: transactions.describe_transaction(self.cluster, transactional_id, timeout_s), timeout_s
        )

    async def describe_producers(
        self,
        partitions: Iterable[Partition],
        broker_id: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Results:
        """`[ProducerState]`, or the error, by partition: as its leader, or the broker named, has them."""
        wanted = {partition: partition for partition in partitions}
        if broker_id is None:
            return await self._each(
                wanted, lambda some: transactions.describe_producers(self.cluster, some, None), timeout_s
            )
        # A broker that has no replica will not come to have one by being asked again.
        return await self._retrying(
            lambda: transactions.describe_producers(self.cluster, wanted, broker_id), timeout_s
        )

    async def abort_transaction(
        self, spec: AbortTransactionSpec, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """Ends a transaction in one partition that its coordinator will not end: what hangs, and nothing else."""
        key = spec.topic_partition.key
        ask = partial(transactions.abort_transactions, self.cluster)
        error = (await self._each({key: spec}, ask, timeout_s))[key]
        if error is not None:
            raise error

    async def fence_producer(
        self, transactional_id: str, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> FencedProducer:
        """Aborts the id's transaction, and refuses its producer from then on; an id that is not there is made."""
        return await self._retrying(
            lambda: transactions.fence_producer(self.cluster, transactional_id, timeout_s), timeout_s
        )


def _passes(result: Any) -> bool:
    return isinstance(result, KafkaException) and result.code in _PASSING
