"""The table of APIs: key, request, response, versions.

Keeps true:  each API has one row. `versions` is the range that the declarations can encode; `advertised` is the range
             that a broker offers. For two APIs the ranges differ; comments give the reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from felice.dataclass import dataclass
from felice.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from felice.protocol.schema import Versions, schema_of

API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True)
class Api:
    """One API. `flexible_from` is None if it has no flexible version."""

    key: int
    name: str
    request: type[object]
    response: type[object]
    versions: Versions
    advertised: Versions
    flexible_from: int | None
    # Precomputed ranges, because every request and response looks them up.
    accepted: range
    """The versions that a broker accepts if it offers this API."""
    flexible: range
    """The versions that have compact types and tagged fields."""

    def accepts(self, version: int) -> bool:
        """Whether a broker that offers this API accepts requests of this version."""
        return version in self.accepted

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact types and tagged fields."""
        return version in self.flexible

    def request_header_version(self, version: int) -> int:
        """Returns 2 (with a tag buffer) for flexible versions, otherwise 1."""
        return 2 if self.is_flexible(version) else 1

    def refusal(self, error_code: int) -> object:
        """A response with this top-level error and no rows. Raises TypeError if the response has no such field."""
        response: Callable[..., object] = self.response
        return response(error_code=error_code)

    def response_header_version(self, version: int) -> int:
        """Returns 1 (with a tag buffer) for flexible versions, otherwise 0.

        It is always 0 for ApiVersions: otherwise a client could not read a response in version 0.
        """
        return 1 if version in self.flexible and self.key != API_VERSIONS_KEY else 0


Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class TypedApi(Api, Generic[Q, A]):
    """An API with the types of its request and response, so that a call of it has a typed result."""

    request: type[Q]
    response: type[A]


def _api(request: type[Q], response: type[A], advertised: str | None = None) -> TypedApi[Q, A]:
    schema = schema_of(request)
    flexible = schema.flexible
    offered = schema.versions if advertised is None else Versions.parse(advertised)
    accepted = schema.versions & offered
    return TypedApi(
        key=schema.api_key,
        name=schema.name.removesuffix("Request"),
        request=request,
        response=response,
        versions=schema.versions,
        advertised=offered,
        flexible_from=flexible.min if flexible.min <= flexible.max else None,
        accepted=range(accepted.min, accepted.max + 1),
        flexible=range(flexible.min, flexible.max + 1),
    )


class API:
    """Every API by name, and by key in `by_key`."""

    # KAFKA-18659: librdkafka before 2.11.1 sends uncompressed unless Produce v0 is offered.
    PRODUCE = _api(produce.ProduceRequest, produce.ProduceResponse, advertised="0-13")
    FETCH = _api(fetch.FetchRequest, fetch.FetchResponse)
    LIST_OFFSETS = _api(list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse)
    METADATA = _api(metadata.MetadataRequest, metadata.MetadataResponse)
    OFFSET_COMMIT = _api(offset_commit.OffsetCommitRequest, offset_commit.OffsetCommitResponse)
    OFFSET_FETCH = _api(offset_fetch.OffsetFetchRequest, offset_fetch.OffsetFetchResponse)
    FIND_COORDINATOR = _api(find_coordinator.FindCoordinatorRequest, find_coordinator.FindCoordinatorResponse)
    JOIN_GROUP = _api(join_group.JoinGroupRequest, join_group.JoinGroupResponse)
    HEARTBEAT = _api(heartbeat.HeartbeatRequest, heartbeat.HeartbeatResponse)
    LEAVE_GROUP = _api(leave_group.LeaveGroupRequest, leave_group.LeaveGroupResponse)
    SYNC_GROUP = _api(sync_group.SyncGroupRequest, sync_group.SyncGroupResponse)
    DESCRIBE_GROUPS = _api(describe_groups.DescribeGroupsRequest, describe_groups.DescribeGroupsResponse)
    LIST_GROUPS = _api(list_groups.ListGroupsRequest, list_groups.ListGroupsResponse)
    SASL_HANDSHAKE = _api(sasl_handshake.SaslHandshakeRequest, sasl_handshake.SaslHandshakeResponse)
    API_VERSIONS = _api(api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse)
    CREATE_TOPICS = _api(create_topics.CreateTopicsRequest, create_topics.CreateTopicsResponse)
    DELETE_TOPICS = _api(delete_topics.DeleteTopicsRequest, delete_topics.DeleteTopicsResponse)
    DELETE_RECORDS = _api(delete_records.DeleteRecordsRequest, delete_records.DeleteRecordsResponse)
    # Version 6 is unstable in Kafka 4.3.
    INIT_PRODUCER_ID = _api(
        init_producer_id.InitProducerIdRequest, init_producer_id.InitProducerIdResponse, advertised="0-5"
    )
    OFFSET_FOR_LEADER_EPOCH = _api(
        offset_for_leader_epoch.OffsetForLeaderEpochRequest,
        offset_for_leader_epoch.OffsetForLeaderEpochResponse,
    )
    ADD_PARTITIONS_TO_TXN = _api(
        add_partitions_to_txn.AddPartitionsToTxnRequest, add_partitions_to_txn.AddPartitionsToTxnResponse
    )
    ADD_OFFSETS_TO_TXN = _api(
        add_offsets_to_txn.AddOffsetsToTxnRequest, add_offsets_to_txn.AddOffsetsToTxnResponse
    )
    END_TXN = _api(end_txn.EndTxnRequest, end_txn.EndTxnResponse)
    WRITE_TXN_MARKERS = _api(
        write_txn_markers.WriteTxnMarkersRequest, write_txn_markers.WriteTxnMarkersResponse
    )
    TXN_OFFSET_COMMIT = _api(
        txn_offset_commit.TxnOffsetCommitRequest, txn_offset_commit.TxnOffsetCommitResponse
    )
    DESCRIBE_PRODUCERS = _api(
        describe_producers.DescribeProducersRequest, describe_producers.DescribeProducersResponse
    )
    DESCRIBE_TRANSACTIONS = _api(
        describe_transactions.DescribeTransactionsRequest, describe_transactions.DescribeTransactionsResponse
    )
    LIST_TRANSACTIONS = _api(
        list_transactions.ListTransactionsRequest, list_transactions.ListTransactionsResponse
    )
    DESCRIBE_CONFIGS = _api(describe_configs.DescribeConfigsRequest, describe_configs.DescribeConfigsResponse)
    ALTER_CONFIGS = _api(alter_configs.AlterConfigsRequest, alter_configs.AlterConfigsResponse)
    ALTER_REPLICA_LOG_DIRS = _api(
        alter_replica_log_dirs.AlterReplicaLogDirsRequest, alter_replica_log_dirs.AlterReplicaLogDirsResponse
    )
    DESCRIBE_LOG_DIRS = _api(
        describe_log_dirs.DescribeLogDirsRequest, describe_log_dirs.DescribeLogDirsResponse
    )
    SASL_AUTHENTICATE = _api(
        sasl_authenticate.SaslAuthenticateRequest, sasl_authenticate.SaslAuthenticateResponse
    )
    CREATE_PARTITIONS = _api(
        create_partitions.CreatePartitionsRequest, create_partitions.CreatePartitionsResponse
    )
    DELETE_GROUPS = _api(delete_groups.DeleteGroupsRequest, delete_groups.DeleteGroupsResponse)
    INCREMENTAL_ALTER_CONFIGS = _api(
        incremental_alter_configs.IncrementalAlterConfigsRequest,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
    )
    OFFSET_DELETE = _api(offset_delete.OffsetDeleteRequest, offset_delete.OffsetDeleteResponse)
    DESCRIBE_USER_SCRAM_CREDENTIALS = _api(
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
        describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
    )
    ALTER_USER_SCRAM_CREDENTIALS = _api(
        alter_user_scram_credentials.AlterUserScramCredentialsRequest,
        alter_user_scram_credentials.AlterUserScramCredentialsResponse,
    )
    CREATE_DELEGATION_TOKEN = _api(
        create_delegation_token.CreateDelegationTokenRequest,
        create_delegation_token.CreateDelegationTokenResponse,
    )
    RENEW_DELEGATION_TOKEN = _api(
        renew_delegation_token.RenewDelegationTokenRequest,
        renew_delegation_token.RenewDelegationTokenResponse,
    )
    EXPIRE_DELEGATION_TOKEN = _api(
        expire_delegation_token.ExpireDelegationTokenRequest,
        expire_delegation_token.ExpireDelegationTokenResponse,
    )
    DESCRIBE_DELEGATION_TOKEN = _api(
        describe_delegation_token.DescribeDelegationTokenRequest,
        describe_delegation_token.DescribeDelegationTokenResponse,
    )
    GET_TELEMETRY_SUBSCRIPTIONS = _api(
        get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest,
        get_telemetry_subscriptions.GetTelemetrySubscriptionsResponse,
    )
    PUSH_TELEMETRY = _api(push_telemetry.PushTelemetryRequest, push_telemetry.PushTelemetryResponse)
    UPDATE_FEATURES = _api(update_features.UpdateFeaturesRequest, update_features.UpdateFeaturesResponse)
    DESCRIBE_ACLS = _api(describe_acls.DescribeAclsRequest, describe_acls.DescribeAclsResponse)
    CREATE_ACLS = _api(create_acls.CreateAclsRequest, create_acls.CreateAclsResponse)
    DELETE_ACLS = _api(delete_acls.DeleteAclsRequest, delete_acls.DeleteAclsResponse)
    DESCRIBE_CLIENT_QUOTAS = _api(
        describe_client_quotas.DescribeClientQuotasRequest,
        describe_client_quotas.DescribeClientQuotasResponse,
    )
    ALTER_CLIENT_QUOTAS = _api(
        alter_client_quotas.AlterClientQuotasRequest, alter_client_quotas.AlterClientQuotasResponse
    )
    DESCRIBE_CLUSTER = _api(describe_cluster.DescribeClusterRequest, describe_cluster.DescribeClusterResponse)
    ELECT_LEADERS = _api(elect_leaders.ElectLeadersRequest, elect_leaders.ElectLeadersResponse)
    ALTER_PARTITION_REASSIGNMENTS = _api(
        alter_partition_reassignments.AlterPartitionReassignmentsRequest,
        alter_partition_reassignments.AlterPartitionReassignmentsResponse,
    )
    LIST_PARTITION_REASSIGNMENTS = _api(
        list_partition_reassignments.ListPartitionReassignmentsRequest,
        list_partition_reassignments.ListPartitionReassignmentsResponse,
    )
    LIST_CONFIG_RESOURCES = _api(
        list_config_resources.ListConfigResourcesRequest, list_config_resources.ListConfigResourcesResponse
    )
    DESCRIBE_TOPIC_PARTITIONS = _api(
        describe_topic_partitions.DescribeTopicPartitionsRequest,
        describe_topic_partitions.DescribeTopicPartitionsResponse,
    )

    by_key: ClassVar[dict[int, Api]] = {}


API.by_key.update({row.key: row for row in vars(API).values() if isinstance(row, Api)})
