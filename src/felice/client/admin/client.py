"""`AdminClient`, with confluent_kafka's names: calls return at once, and futures receive the results.

Keeps true:  Errors in the arguments themselves are raised at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import overload

from felice.client.admin.acls import AclBinding, AclBindingFilter
from felice.client.admin.arguments import check_partitions, distinct, distinct_rules, given, repeated
from felice.client.admin.client_metrics_futures import ClientMetricsFutures
from felice.client.admin.enumerations import (
    ElectionType,
    IsolationLevel,
    ResourceType,
)
from felice.client.admin.group_futures import GroupFutures
from felice.client.admin.model import (
    ApiVersionRange,
    ConfigEntry,
    ConfigResource,
    DeletedRecords,
    DescribeClusterResult,
    FeatureMetadata,
    FeatureUpdate,
    ListOffsetsResultInfo,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    Node,
    OffsetSpec,
    PartitionReassignment,
    TopicCollection,
    TopicDescription,
)
from felice.client.admin.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter
from felice.client.admin.retries import DEFAULT_TIMEOUT_S
from felice.client.admin.scram import (
    UserScramCredentialAlteration,
    UserScramCredentialsDescription,
    check_alterations,
)
from felice.client.admin.token_futures import TokenFutures
from felice.client.admin.transaction_futures import TransactionFutures
from felice.client.arguments import expect, takes_lists
from felice.client.error import KafkaError, KafkaException, failure
from felice.client.model import ClusterMetadata, Partition, TopicPartition


@takes_lists
class AdminClient(GroupFutures, TransactionFutures, TokenFutures, ClientMetricsFutures):
    """Administration of a cluster: `AdminClient({"bootstrap.servers": "localhost:9092"})`.

    Calls return futures (`concurrent.futures.Future`), most of them a dict of futures by item; `result()` returns the
    value or raises `KafkaException`. Timeouts are in seconds. Wrong arguments raise `ValueError`, `TypeError` or
    `KafkaException` at once. Close the client after use, or use it in a `with` block.

    After `request_timeout` (or `timeout`) a call fails with _TIMED_OUT. `operation_timeout` limits the broker's work,
    and the call as well if `request_timeout` is not given.
    """

    # Topics

    def create_topics(
        self,
        new_topics: list[NewTopic],
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Create topics. A topic's future is done when the controller has created it, or with `validate_only`
        checked it. Timeouts are in seconds.
        """
        names = distinct([topic.topic for topic in new_topics], "topic")
        limit_s = _limit_s(operation_timeout, request_timeout)
        work = self._admin.create_topics(new_topics, limit_s, validate_only, operation_s=operation_timeout)
        return self._many(names, work)

    def delete_topics(
        self,
        topics: list[str],
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> dict[str, Future[None]]:
        """Delete topics and their records. Timeouts are in seconds."""
        names = distinct(topics, "topic")
        limit_s = _limit_s(operation_timeout, request_timeout)
        work = self._admin.delete_topics(names, limit_s, operation_s=operation_timeout)
        return self._many(names, work)

    def create_partitions(
        self,
        new_partitions: list[NewPartitions],
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Add partitions until each topic has its `new_total_count`; with `validate_only` only check the requests."""
        names = distinct([topic.topic for topic in new_partitions], "topic")
        limit_s = _limit_s(operation_timeout, request_timeout)
        work = self._admin.create_partitions(
            new_partitions, limit_s, validate_only, operation_s=operation_timeout
        )
        return self._many(names, work)

    def describe_topics(
        self,
        topics: TopicCollection | Iterable[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> dict[str, Future[TopicDescription]]:
        """Describe topics: futures of `TopicDescription` by name, with partitions, leaders and replicas.

        `include_authorized_operations` adds the operations that the client may do (KIP-430).
        """
        listed = topics.topic_names if isinstance(topics, TopicCollection) else list(topics)
        names = distinct(listed, "topic")
        return self._many(
            names, self._admin.describe_topics(names, request_timeout, include_authorized_operations)
        )

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return brokers and topics (with `topic`: only that one). Blocks, unlike most methods.

        `timeout` is in seconds; with -1, transient errors are retried for 60 s. Raises `KafkaException`, with
        _TRANSPORT after the timeout, and with _ALL_BROKERS_DOWN if no broker can be reached.
        """
        limit_s = timeout if timeout >= 0 else DEFAULT_TIMEOUT_S
        try:
            return self._one(self._admin.metadata(None if topic is None else [topic], limit_s)).result()
        except KafkaException as error:
            if error.code != KafkaError._TIMED_OUT:
                raise
            raise failure(KafkaError._TRANSPORT, f"no metadata in {limit_s:g} s") from None

    def cluster_id(self, timeout: float = DEFAULT_TIMEOUT_S) -> str | None:
        """Return the cluster's id. Blocks."""
        limit_s = timeout if timeout >= 0 else DEFAULT_TIMEOUT_S
        return self._one(self._admin.describe_cluster(limit_s)).result().cluster_id

    def describe_cluster(
        self, *, include_authorized_operations: bool = False, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[DescribeClusterResult]:
        """Describe the cluster: a future of `DescribeClusterResult`, with brokers and controller.

        `include_authorized_operations` adds the operations that the client may do on the cluster (KIP-430).
        """
        return self._one(self._admin.describe_cluster(request_timeout, include_authorized_operations))

    # Offsets and records

    def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Look up offsets by `OffsetSpec`. Futures of `ListOffsetsResultInfo` by partition."""
        expect("isolation_level", isolation_level, IsolationLevel)
        check_partitions(topic_partition_offsets)
        for spec in topic_partition_offsets.values():
            expect("an offset to look up", spec, OffsetSpec)
        timestamps = {tp.key: spec._value for tp, spec in topic_partition_offsets.items()}
        work = self._admin.list_offsets(timestamps, isolation_level.value, request_timeout)
        futures = self._many(timestamps, work)
        return {tp: futures[tp.key] for tp in topic_partition_offsets}

    def delete_records(
        self,
        topic_partition_offsets: list[TopicPartition],
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete the records before the offsets (KIP-107); OFFSET_END deletes all. Futures of `DeletedRecords`."""
        check_partitions(topic_partition_offsets)
        offsets = {tp.key: tp.offset for tp in topic_partition_offsets}
        limit_s = _limit_s(operation_timeout, request_timeout)
        work = self._admin.delete_records(offsets, limit_s, operation_s=operation_timeout)
        futures = self._many(offsets, work)
        return {tp: futures[tp.key] for tp in topic_partition_offsets}

    # Configs

    def describe_configs(
        self, resources: list[ConfigResource], request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Return the configs of each resource. Futures of `{name: ConfigEntry}`."""
        given(resources, "resource")
        return self._many(resources, self._admin.describe_configs(resources, request_timeout))

    def list_config_resources(
        self, restype: ResourceType, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[list[str]]:
        """Return the names of the resources of a type that have configs. A group has them if some were set."""
        return self._one(self._admin.list_config_resources(restype, request_timeout))

    def alter_configs(
        self,
        resources: list[ConfigResource],
        request_timeout: float = DEFAULT_TIMEOUT_S,
        validate_only: bool = False,
    ) -> dict[ConfigResource, Future[None]]:
        """Replace the whole set of configs (`set_config`) of each resource: others fall back to their defaults."""
        given(resources, "resource")
        return self._many(resources, self._admin.alter_configs(resources, request_timeout, validate_only))

    def incremental_alter_configs(
        self,
        resources: list[ConfigResource],
        request_timeout: float = DEFAULT_TIMEOUT_S,
        validate_only: bool = False,
    ) -> dict[ConfigResource, Future[None]]:
        """Apply the changes in each resource's `incremental_configs` (KIP-339); other configs stay as they are."""
        given(resources, "resource")
        work = self._admin.incremental_alter_configs(resources, request_timeout, validate_only)
        return self._many(resources, work)

    # Access rules and users

    def create_acls(
        self, acls: list[AclBinding], *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> dict[AclBinding, Future[None]]:
        """Create access rules. A broker without an authorizer responds with SECURITY_DISABLED."""
        wanted = distinct_rules(acls, AclBinding)
        if not all(rule.is_complete for rule in wanted):
            raise failure(KafkaError._INVALID_ARG, "a rule to create must not have UNKNOWN members")
        return self._many(wanted, self._admin.create_acls(wanted, request_timeout))

    def describe_acls(
        self, acl_binding_filter: AclBindingFilter, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[list[AclBinding]]:
        """Return the access rules that match a filter."""
        expect("acl_binding_filter", acl_binding_filter, AclBindingFilter)
        return self._one(self._admin.describe_acls(acl_binding_filter, request_timeout))

    def delete_acls(
        self, acl_binding_filters: list[AclBindingFilter], *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> dict[AclBindingFilter, Future[list[AclBinding]]]:
        """Delete the access rules that match each filter. A future's result is the list of the deleted rules."""
        wanted = distinct_rules(acl_binding_filters, AclBindingFilter)
        return self._many(wanted, self._admin.delete_acls(wanted, request_timeout))

    def describe_client_quotas(
        self, wanted: ClientQuotaFilter | None = None, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[dict[ClientQuotaEntity, dict[str, float]]]:
        """Return the quotas of users, client ids and addresses that match a filter (KIP-546); all of them without one.

        The future's dict has, for each entity, the value of each quota, such as {"producer_byte_rate": 1048576.0}.
        """
        return self._one(self._admin.describe_client_quotas(wanted or ClientQuotaFilter(), request_timeout))

    def alter_client_quotas(
        self,
        alterations: list[ClientQuotaAlteration],
        *,
        request_timeout: float = DEFAULT_TIMEOUT_S,
        validate_only: bool = False,
    ) -> dict[ClientQuotaEntity, Future[None]]:
        """Set and remove quotas; with `validate_only` only check the changes."""
        entities = [one.entity for one in alterations]
        if twice := repeated(entities):
            raise ValueError(f"the entity {twice[0]!r} is named twice")
        work = self._admin.alter_client_quotas(alterations, request_timeout, validate_only)
        return self._many(entities, work)

    @overload
    def describe_user_scram_credentials(
        self, users: None = None, *, request_timeout: float = ...
    ) -> Future[dict[str, UserScramCredentialsDescription]]:
        """All users."""

    @overload
    def describe_user_scram_credentials(
        self, users: list[str], *, request_timeout: float = ...
    ) -> dict[str, Future[UserScramCredentialsDescription]]:
        """Some users."""

    def describe_user_scram_credentials(
        self, users: list[str] | None = None, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> (
        Future[dict[str, UserScramCredentialsDescription]]
        | dict[str, Future[UserScramCredentialsDescription]]
    ):
        """Return mechanisms and iterations of users: a future each, or for None one future of all users' by name."""
        if users is None:
            return self._one(self._admin.describe_all_scram_users(request_timeout))
        if not all(users):
            raise ValueError("a user must have a name")
        if twice := repeated(users):
            raise ValueError(f"the user {twice[0]!r} is named twice")
        return self._many(users, self._admin.describe_scram_users(users, request_timeout))

    def alter_user_scram_credentials(
        self,
        alterations: list[UserScramCredentialAlteration],
        *,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> dict[str, Future[None]]:
        """Set and delete SCRAM credentials (KIP-554). Either all changes of a user are made, or none.

        The password is not sent: the request has the salted password.
        """
        check_alterations(alterations)
        users = list(dict.fromkeys(one.user for one in alterations))
        return self._many(users, self._admin.alter_scram_users(alterations, request_timeout))

    # Versions and features

    def list_api_versions(
        self, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[dict[Node, list[ApiVersionRange] | KafkaException]]:
        """Return the APIs of every broker: a future of `[ApiVersionRange]`, or a `KafkaException`, by `Node`."""
        return self._one(self._admin.list_api_versions(request_timeout))

    def describe_features(self, *, request_timeout: float = DEFAULT_TIMEOUT_S) -> Future[FeatureMetadata]:
        """Return the supported and the finalized features: a future of `FeatureMetadata`."""
        return self._one(self._admin.describe_features(request_timeout))

    def update_features(
        self,
        updates: Iterable[FeatureUpdate],
        *,
        validate_only: bool = False,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> Future[None]:
        """Change finalized feature levels (KIP-584): all of them, or none."""
        return self._one(self._admin.update_features(updates, validate_only, request_timeout))

    # Leaders and replicas

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> Future[dict[TopicPartition, KafkaError | None]]:
        """Elect leaders (KIP-460). None means all partitions; the result then has only those that needed an election.

        A partition's value is None if it now has the requested leader, otherwise the error.
        """
        expect("election_type", election_type, ElectionType)
        chosen = None if partitions is None else list(partitions)
        check_partitions(chosen or [])
        wanted = None if chosen is None else [found.key for found in chosen]
        limit_s = _limit_s(operation_timeout, request_timeout)

        async def elect() -> dict[TopicPartition, KafkaError | None]:
            results = await self._admin.elect_leaders(
                election_type, wanted, limit_s, operation_s=operation_timeout
            )
            return {
                TopicPartition(*partition): None if result is None else result.error
                for partition, result in results.items()
            }

        return self._one(elect())

    def alter_partition_reassignments(
        self,
        wanted: Mapping[Partition, Sequence[int] | None],
        *,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> dict[Partition, Future[None]]:
        """Start to reassign partitions, by (topic, partition), to brokers (KIP-455); None cancels a reassignment.

        The first broker of a list becomes the preferred leader. A future is done when the reassignment has begun.
        """
        return self._many(wanted, self._admin.alter_partition_reassignments(wanted, request_timeout))

    def list_partition_reassignments(
        self, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[dict[Partition, PartitionReassignment]]:
        """Return the reassignments in progress: a future of `PartitionReassignment` by (topic, partition)."""
        return self._one(self._admin.list_partition_reassignments(None, request_timeout))

    # Log directories

    def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        topics: Iterable[str] | None = None,
        *,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> dict[int, Future[list[LogDirDescription]]]:
        """Describe log directories: futures of `[LogDirDescription]` by broker. None: all brokers, or all topics."""
        end = time.monotonic() + request_timeout
        if brokers is None:
            brokers = [
                node.id for node in self.describe_cluster(request_timeout=request_timeout).result().nodes
            ]
        asked = list(brokers)
        left_s = end - time.monotonic()
        return self._many(asked, self._admin.describe_log_dirs(asked, topics, left_s))

    def alter_replica_log_dirs(
        self, broker: int, wanted: Mapping[Partition, str], *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> dict[Partition, Future[None]]:
        """Start to move a broker's replicas, by (topic, partition), to its other log directories (KIP-113)."""
        return self._many(wanted, self._admin.alter_replica_log_dirs(broker, wanted, request_timeout))


def _limit_s(operation_timeout: float | None, request_timeout: float | None) -> float:
    if request_timeout is not None:
        return request_timeout
    # 0 does not limit the call: the broker begins the work, and answers without waiting for its end.
    return operation_timeout or DEFAULT_TIMEOUT_S
