"""Administration as coroutines: one method per operation, with a result or an error per item.

How:         `group_calls`, `transaction_calls`, `tokens` and `client_metrics` have parts of `Admin`. `retries` repeats
             requests. The other modules of this package build the requests and read the responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from felice.client.admin import (
    acls,
    configs,
    features,
    leadership,
    log_dirs,
    quotas,
    scram,
    topics,
)
from felice.client.admin.acls import AclBinding, AclBindingFilter
from felice.client.admin.client_metrics import ClientMetricsCalls
from felice.client.admin.enumerations import (
    ElectionType,
    ResourceType,
    authorized_operations,
)
from felice.client.admin.group_calls import GroupCalls
from felice.client.admin.model import (
    ApiVersionRange,
    ConfigResource,
    DescribeClusterResult,
    FeatureMetadata,
    FeatureUpdate,
    NewPartitions,
    NewTopic,
    Node,
    PartitionReassignment,
)
from felice.client.admin.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter
from felice.client.admin.results import Results, WorkTime
from felice.client.admin.retries import DEFAULT_TIMEOUT_S, by_itself, with_values
from felice.client.admin.scram import UserScramCredentialAlteration, UserScramCredentialsDescription
from felice.client.admin.tokens import TokenCalls
from felice.client.admin.transaction_calls import TransactionCalls
from felice.client.arguments import takes_lists
from felice.client.error import KafkaException
from felice.client.model import ClusterMetadata, Partition
from felice.client.net.limits import limited
from felice.protocol.messages.describe_cluster import DescribeClusterRequest
from felice.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED


@takes_lists
class Admin(GroupCalls, TransactionCalls, TokenCalls, ClientMetricsCalls):
    """`async with Admin({"bootstrap.servers": ...}) as admin: await admin.create_topics([...])`."""

    # Topics

    async def create_topics(
        self,
        new: Iterable[NewTopic],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        validate_only: bool = False,
        *,
        operation_s: float | None = None,
    ) -> Results:
        """Create topics. Returns None or the error by topic."""
        work = WorkTime(timeout_s, operation_s)
        return await self._each(
            {topic.topic: topic for topic in new}, timeout_s, topics.create_topics, work, validate_only
        )

    async def delete_topics(
        self, names: Iterable[str], timeout_s: float = DEFAULT_TIMEOUT_S, *, operation_s: float | None = None
    ) -> Results:
        """Delete topics and their records. Returns None or the error by topic."""
        work = WorkTime(timeout_s, operation_s)
        return await self._each(by_itself(names), timeout_s, topics.delete_topics, work)

    async def create_partitions(
        self,
        wanted: Iterable[NewPartitions],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        validate_only: bool = False,
        *,
        operation_s: float | None = None,
    ) -> Results:
        """Add partitions up to each topic's `new_total_count`. Returns None or the error by topic."""
        work = WorkTime(timeout_s, operation_s)
        return await self._each(
            {topic.topic: topic for topic in wanted}, timeout_s, topics.create_partitions, work, validate_only
        )

    async def describe_topics(
        self,
        names: Iterable[str],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        include_authorized_operations: bool = False,
    ) -> Results:
        """Return `TopicDescription` or the error by topic."""
        return await self._each(
            by_itself(names), timeout_s, topics.describe_topics, include_authorized_operations
        )

    async def metadata(
        self, names: Iterable[str] | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> ClusterMetadata:
        """Return brokers and topics (None: all topics; an empty name stands for no topic)."""
        wanted = None if names is None else [name for name in names if name]
        await self._retrying(lambda: self.cluster.refresh(wanted), timeout_s)
        return self.cluster.topology.describe(wanted)

    async def describe_cluster(
        self, timeout_s: float = DEFAULT_TIMEOUT_S, include_authorized_operations: bool = False
    ) -> DescribeClusterResult:
        """Return the brokers and the controller."""
        bits = OPERATIONS_NOT_REQUESTED
        async with limited(timeout_s):
            picture = await self.metadata([], timeout_s)
            if include_authorized_operations:
                request = DescribeClusterRequest(include_cluster_authorized_operations=True)
                response = await self._retrying(lambda: self.cluster.call_any(request), timeout_s)
                bits = response.cluster_authorized_operations
        nodes = topics.nodes_of(picture)
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
        """Return `ListOffsetsResultInfo` or the error by partition."""
        return await self._each(with_values(timestamps), timeout_s, topics.list_offsets, isolation_level)

    async def delete_records(
        self,
        offsets: Mapping[Partition, int],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        operation_s: float | None = None,
    ) -> Results:
        """Delete all records before the given offsets. Returns `DeletedRecords` or the error by partition."""
        work = WorkTime(timeout_s, operation_s)
        return await self._each(with_values(offsets), timeout_s, topics.delete_records, work)

    # Configs

    async def describe_configs(
        self, resources: Iterable[ConfigResource], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Results:
        """Return `{name: ConfigEntry}` or the error by resource."""
        return await self._each(by_itself(resources), timeout_s, configs.describe_configs)

    async def alter_configs(
        self,
        resources: Iterable[ConfigResource],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        validate_only: bool = False,
    ) -> Results:
        """Replace the whole set of configs of each resource. Returns None or the error by resource."""
        return await self._each(by_itself(resources), timeout_s, configs.alter_configs, validate_only)

    async def incremental_alter_configs(
        self,
        resources: Iterable[ConfigResource],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        validate_only: bool = False,
    ) -> Results:
        """Apply the changes in `incremental_configs`, no others. Returns None or the error by resource."""
        return await self._each(
            by_itself(resources), timeout_s, configs.incremental_alter_configs, validate_only
        )

    async def list_config_resources(
        self, restype: ResourceType, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[str]:
        """Return the names of the resources of a type that have configs. A group has them if some were set."""
        return await self._ask(timeout_s, configs.list_config_resources, restype)

    # Access rules

    async def create_acls(self, rules: Iterable[AclBinding], timeout_s: float = DEFAULT_TIMEOUT_S) -> Results:
        """Create access rules. Returns None or the error by rule."""
        return await self._each(by_itself(rules), timeout_s, acls.create_acls)

    async def describe_acls(
        self, wanted: AclBindingFilter, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[AclBinding]:
        """Return the access rules that match a filter."""
        return await self._ask(timeout_s, acls.describe_acls, wanted)

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Results:
        """Delete matching access rules. Returns the deleted rules or the error by filter."""
        return await self._each(by_itself(filters), timeout_s, acls.delete_acls)

    # Quotas

    async def describe_client_quotas(
        self, wanted: ClientQuotaFilter, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Return the quotas of users, client ids and addresses that match a filter."""
        return await self._ask(timeout_s, quotas.describe_client_quotas, wanted)

    async def alter_client_quotas(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        validate_only: bool = False,
    ) -> Results:
        """Set and remove quotas. Returns None or the error by entity."""
        return await self._each(
            {one.entity: one for one in alterations},
            timeout_s,
            quotas.alter_client_quotas,
            validate_only=validate_only,
        )

    # Users

    async def describe_all_scram_users(
        self, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> dict[str, UserScramCredentialsDescription]:
        """Return the SCRAM credentials of all users that have some. Raises the first error."""
        found = await self._ask(timeout_s, scram.describe_users, None)
        described = {}
        for user, row in found.items():
            if isinstance(row, KafkaException):
                raise row
            described[user] = row
        return described

    async def describe_scram_users(
        self, users: Sequence[str], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> dict[str, UserScramCredentialsDescription | KafkaException]:
        """Return the SCRAM credentials of these users, or the error by user."""
        return await self._ask(timeout_s, scram.describe_users, users)

    async def alter_scram_users(
        self, alterations: Iterable[UserScramCredentialAlteration], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Results:
        """Set and delete SCRAM credentials. Returns None or the error by user."""
        by_user: dict[str, list[UserScramCredentialAlteration]] = {}
        for one in alterations:
            by_user.setdefault(one.user, []).append(one)
        return await self._ask(timeout_s, scram.alter_users, by_user)

    # Versions and features

    async def list_api_versions(
        self, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> dict[Node, list[ApiVersionRange] | KafkaException]:
        """Return the API versions of each broker, or its error."""
        return await self._ask(timeout_s, features.api_versions)

    async def describe_features(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> FeatureMetadata:
        """Return the levels that brokers support, and the finalized levels of the cluster."""
        return await self._ask(timeout_s, features.describe_features)

    async def update_features(
        self,
        updates: Iterable[FeatureUpdate],
        validate_only: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Change finalized levels: all of them; or raises the first error and changes none."""
        wanted, timeout_ms = list(updates), int(timeout_s * 1000)
        await self._ask(timeout_s, features.update_features, wanted, validate_only, timeout_ms)

    # Leaders and replicas

    async def elect_leaders(
        self,
        kind: ElectionType,
        partitions: Iterable[Partition] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        operation_s: float | None = None,
    ) -> Results:
        """Elect leaders. Returns None or the error by partition; of all, only those that needed an election."""
        wanted = None if partitions is None else list(partitions)
        work = WorkTime(timeout_s, operation_s)
        return await self._ask(timeout_s, leadership.elect_leaders, kind, wanted, work)

    async def alter_partition_reassignments(
        self, wanted: Mapping[Partition, Sequence[int] | None], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Results:
        """Start to reassign partitions (None cancels a reassignment). Returns None or the error by partition."""
        timeout_ms = int(timeout_s * 1000)
        return await self._each(with_values(wanted), timeout_s, leadership.alter_reassignments, timeout_ms)

    async def list_partition_reassignments(
        self, partitions: Iterable[Partition] | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> dict[Partition, PartitionReassignment]:
        """Return the reassignments in progress."""
        wanted = None if partitions is None else list(partitions)
        timeout_ms = int(timeout_s * 1000)
        return await self._ask(timeout_s, leadership.list_reassignments, wanted, timeout_ms)

    # Log directories

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        topics: Iterable[str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Results:
        """Return `[LogDirDescription]` or the error by broker; None means all brokers or all topics."""
        names = None if topics is None else list(topics)
        async with limited(timeout_s):
            if brokers is None:
                brokers = [node.id for node in (await self.describe_cluster(timeout_s)).nodes]
            return await self._each(by_itself(brokers), timeout_s, log_dirs.describe_log_dirs, names)

    async def alter_replica_log_dirs(
        self, broker: int, wanted: Mapping[Partition, str], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Results:
        """Start to move replicas to other directories of one broker. Returns None or the error by partition."""
        return await self._ask(timeout_s, log_dirs.alter_replica_log_dirs, broker, wanted)
