"""The table of APIs: key, request, response, versions.

Keeps true:  each API has one row. `versions` is the range that the declarations can encode; `advertised` is the range
             that a broker offers. For two APIs the ranges differ; comments give the reasons.
How:         a row states the versions that its messages declare, so that ApiVersions is answered before the messages
             are imported. Their module is imported when the first of them is needed: most processes send and receive
             a few of the APIs, and the import of all would take a tenth of the time of a start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from felice.protocol.schema import Versions, schema_of

if TYPE_CHECKING:
    from felice.protocol.messages import (
        add_offsets_to_txn,
        add_partitions_to_txn,
        alter_client_quotas,
        alter_configs,
        alter_partition_reassignments,
        alter_replica_log_dirs,
        alter_share_group_offsets,
        alter_user_scram_credentials,
        api_versions,
        consumer_group_describe,
        consumer_group_heartbeat,
        create_acls,
        create_delegation_token,
        create_partitions,
        create_topics,
        delete_acls,
        delete_groups,
        delete_records,
        delete_share_group_offsets,
        delete_share_group_state,
        delete_topics,
        describe_acls,
        describe_client_quotas,
        describe_cluster,
        describe_configs,
        describe_delegation_token,
        describe_groups,
        describe_log_dirs,
        describe_producers,
        describe_share_group_offsets,
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
        initialize_share_group_state,
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
        read_share_group_state,
        read_share_group_state_summary,
        renew_delegation_token,
        sasl_authenticate,
        sasl_handshake,
        share_acknowledge,
        share_fetch,
        share_group_describe,
        share_group_heartbeat,
        streams_group_describe,
        streams_group_heartbeat,
        sync_group,
        txn_offset_commit,
        update_features,
        write_share_group_state,
        write_txn_markers,
    )

API_VERSIONS_KEY = 18

Q = TypeVar("Q")
A = TypeVar("A")


class Api:
    """One API: its key, name and versions, and the classes of its messages."""

    def __init__(
        self, key: int, name: str, versions: str, *, flexible: str = "none", advertised: str | None = None
    ) -> None:
        self.key = key
        self.name = name
        self.versions = Versions.parse(versions)
        self.advertised = Versions.parse(advertised or versions)
        flexibles = Versions.parse(flexible)
        # Precomputed ranges, because every request and response looks them up.
        accepted = self.versions & self.advertised
        self.accepted = range(accepted.min, accepted.max + 1)
        """The versions that a broker accepts if it offers this API."""
        self.flexible = range(flexibles.min, flexibles.max + 1)
        """The versions that have compact types and tagged fields."""

    def __repr__(self) -> str:
        return f"Api({self.name})"

    @cached_property
    def request(self) -> type[Any]:
        """The class of its requests."""
        return self._message("Request")

    @cached_property
    def response(self) -> type[Any]:
        """The class of its responses."""
        return self._message("Response")

    @property
    def module(self) -> str:
        """The name of the modules of its messages and of its handler: `end_txn` for EndTxn."""
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name)[1:]

    def _message(self, suffix: str) -> type[Any]:
        messages = import_module(f"felice.protocol.messages.{self.module}")
        found: type[Any] = getattr(messages, self.name + suffix)
        return found

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact types and tagged fields."""
        return version in self.flexible

    def request_header_version(self, version: int) -> int:
        """Returns 2 (with a tag buffer) for flexible versions, otherwise 1."""
        return 2 if self.is_flexible(version) else 1

    def has_error(self, version: int) -> bool:
        """Whether responses of this version have one error for the whole response, as `refusal` needs it."""
        fields = schema_of(self.response).fields
        return any(field.name == "error_code" and version in field.versions for field in fields)

    def refusal(self, error_code: int) -> object:
        """A response with this top-level error and no rows. Raises TypeError if the response has no such field."""
        response: Callable[..., object] = self.response
        return response(error_code=error_code)

    def response_header_version(self, version: int) -> int:
        """Returns 1 (with a tag buffer) for flexible versions, otherwise 0.

        It is always 0 for ApiVersions: otherwise a client could not read a response in version 0.
        """
        return 1 if version in self.flexible and self.key != API_VERSIONS_KEY else 0


class TypedApi(Api, Generic[Q, A]):
    """An API with the types of its request and response, so that a call of it has a typed result."""

    if TYPE_CHECKING:
        request: type[Q]
        response: type[A]


class API:
    """Every API by name, and by key in `by_key`."""

    # KAFKA-18659: librdkafka before 2.11.1 sends uncompressed unless Produce v0 is offered.
    PRODUCE: TypedApi[produce.ProduceRequest, produce.ProduceResponse] = TypedApi(
        0, "Produce", "3-13", flexible="9+", advertised="0-13"
    )
    FETCH: TypedApi[fetch.FetchRequest, fetch.FetchResponse] = TypedApi(1, "Fetch", "4-18", flexible="12+")
    LIST_OFFSETS: TypedApi[list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse] = TypedApi(
        2, "ListOffsets", "1-11", flexible="6+"
    )
    METADATA: TypedApi[metadata.MetadataRequest, metadata.MetadataResponse] = TypedApi(
        3, "Metadata", "0-13", flexible="9+"
    )
    OFFSET_COMMIT: TypedApi[offset_commit.OffsetCommitRequest, offset_commit.OffsetCommitResponse] = TypedApi(
        8, "OffsetCommit", "2-10", flexible="8+"
    )
    OFFSET_FETCH: TypedApi[offset_fetch.OffsetFetchRequest, offset_fetch.OffsetFetchResponse] = TypedApi(
        9, "OffsetFetch", "1-10", flexible="6+"
    )
    FIND_COORDINATOR: TypedApi[
        find_coordinator.FindCoordinatorRequest, find_coordinator.FindCoordinatorResponse
    ] = TypedApi(10, "FindCoordinator", "0-6", flexible="3+")
    JOIN_GROUP: TypedApi[join_group.JoinGroupRequest, join_group.JoinGroupResponse] = TypedApi(
        11, "JoinGroup", "0-9", flexible="6+"
    )
    HEARTBEAT: TypedApi[heartbeat.HeartbeatRequest, heartbeat.HeartbeatResponse] = TypedApi(
        12, "Heartbeat", "0-4", flexible="4+"
    )
    LEAVE_GROUP: TypedApi[leave_group.LeaveGroupRequest, leave_group.LeaveGroupResponse] = TypedApi(
        13, "LeaveGroup", "0-5", flexible="4+"
    )
    SYNC_GROUP: TypedApi[sync_group.SyncGroupRequest, sync_group.SyncGroupResponse] = TypedApi(
        14, "SyncGroup", "0-5", flexible="4+"
    )
    DESCRIBE_GROUPS: TypedApi[
        describe_groups.DescribeGroupsRequest, describe_groups.DescribeGroupsResponse
    ] = TypedApi(15, "DescribeGroups", "0-6", flexible="5+")
    LIST_GROUPS: TypedApi[list_groups.ListGroupsRequest, list_groups.ListGroupsResponse] = TypedApi(
        16, "ListGroups", "0-5", flexible="3+"
    )
    SASL_HANDSHAKE: TypedApi[sasl_handshake.SaslHandshakeRequest, sasl_handshake.SaslHandshakeResponse] = (
        TypedApi(17, "SaslHandshake", "0-1")
    )
    API_VERSIONS: TypedApi[api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse] = TypedApi(
        18, "ApiVersions", "0-4", flexible="3+"
    )
    CREATE_TOPICS: TypedApi[create_topics.CreateTopicsRequest, create_topics.CreateTopicsResponse] = TypedApi(
        19, "CreateTopics", "2-7", flexible="5+"
    )
    DELETE_TOPICS: TypedApi[delete_topics.DeleteTopicsRequest, delete_topics.DeleteTopicsResponse] = TypedApi(
        20, "DeleteTopics", "1-6", flexible="4+"
    )
    DELETE_RECORDS: TypedApi[delete_records.DeleteRecordsRequest, delete_records.DeleteRecordsResponse] = (
        TypedApi(21, "DeleteRecords", "0-2", flexible="2+")
    )
    # Version 6 is unstable in Kafka 4.3.
    INIT_PRODUCER_ID: TypedApi[
        init_producer_id.InitProducerIdRequest, init_producer_id.InitProducerIdResponse
    ] = TypedApi(22, "InitProducerId", "0-6", flexible="2+", advertised="0-5")
    OFFSET_FOR_LEADER_EPOCH: TypedApi[
        offset_for_leader_epoch.OffsetForLeaderEpochRequest,
        offset_for_leader_epoch.OffsetForLeaderEpochResponse,
    ] = TypedApi(23, "OffsetForLeaderEpoch", "2-4", flexible="4+")
    ADD_PARTITIONS_TO_TXN: TypedApi[
        add_partitions_to_txn.AddPartitionsToTxnRequest, add_partitions_to_txn.AddPartitionsToTxnResponse
    ] = TypedApi(24, "AddPartitionsToTxn", "0-5", flexible="3+")
    ADD_OFFSETS_TO_TXN: TypedApi[
        add_offsets_to_txn.AddOffsetsToTxnRequest, add_offsets_to_txn.AddOffsetsToTxnResponse
    ] = TypedApi(25, "AddOffsetsToTxn", "0-4", flexible="3+")
    END_TXN: TypedApi[end_txn.EndTxnRequest, end_txn.EndTxnResponse] = TypedApi(
        26, "EndTxn", "0-5", flexible="3+"
    )
    WRITE_TXN_MARKERS: TypedApi[
        write_txn_markers.WriteTxnMarkersRequest, write_txn_markers.WriteTxnMarkersResponse
    ] = TypedApi(27, "WriteTxnMarkers", "1-2", flexible="1+")
    TXN_OFFSET_COMMIT: TypedApi[
        txn_offset_commit.TxnOffsetCommitRequest, txn_offset_commit.TxnOffsetCommitResponse
    ] = TypedApi(28, "TxnOffsetCommit", "0-5", flexible="3+")
    DESCRIBE_PRODUCERS: TypedApi[
        describe_producers.DescribeProducersRequest, describe_producers.DescribeProducersResponse
    ] = TypedApi(61, "DescribeProducers", "0", flexible="0+")
    DESCRIBE_TRANSACTIONS: TypedApi[
        describe_transactions.DescribeTransactionsRequest, describe_transactions.DescribeTransactionsResponse
    ] = TypedApi(65, "DescribeTransactions", "0", flexible="0+")
    LIST_TRANSACTIONS: TypedApi[
        list_transactions.ListTransactionsRequest, list_transactions.ListTransactionsResponse
    ] = TypedApi(66, "ListTransactions", "0-2", flexible="0+")
    DESCRIBE_CONFIGS: TypedApi[
        describe_configs.DescribeConfigsRequest, describe_configs.DescribeConfigsResponse
    ] = TypedApi(32, "DescribeConfigs", "1-4", flexible="4+")
    ALTER_CONFIGS: TypedApi[alter_configs.AlterConfigsRequest, alter_configs.AlterConfigsResponse] = TypedApi(
        33, "AlterConfigs", "0-2", flexible="2+"
    )
    ALTER_REPLICA_LOG_DIRS: TypedApi[
        alter_replica_log_dirs.AlterReplicaLogDirsRequest, alter_replica_log_dirs.AlterReplicaLogDirsResponse
    ] = TypedApi(34, "AlterReplicaLogDirs", "1-2", flexible="2+")
    DESCRIBE_LOG_DIRS: TypedApi[
        describe_log_dirs.DescribeLogDirsRequest, describe_log_dirs.DescribeLogDirsResponse
    ] = TypedApi(35, "DescribeLogDirs", "1-5", flexible="2+")
    SASL_AUTHENTICATE: TypedApi[
        sasl_authenticate.SaslAuthenticateRequest, sasl_authenticate.SaslAuthenticateResponse
    ] = TypedApi(36, "SaslAuthenticate", "0-2", flexible="2+")
    CREATE_PARTITIONS: TypedApi[
        create_partitions.CreatePartitionsRequest, create_partitions.CreatePartitionsResponse
    ] = TypedApi(37, "CreatePartitions", "0-3", flexible="2+")
    DELETE_GROUPS: TypedApi[delete_groups.DeleteGroupsRequest, delete_groups.DeleteGroupsResponse] = TypedApi(
        42, "DeleteGroups", "0-2", flexible="2+"
    )
    INCREMENTAL_ALTER_CONFIGS: TypedApi[
        incremental_alter_configs.IncrementalAlterConfigsRequest,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
    ] = TypedApi(44, "IncrementalAlterConfigs", "0-1", flexible="1+")
    OFFSET_DELETE: TypedApi[offset_delete.OffsetDeleteRequest, offset_delete.OffsetDeleteResponse] = TypedApi(
        47, "OffsetDelete", "0"
    )
    DESCRIBE_USER_SCRAM_CREDENTIALS: TypedApi[
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
        describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
    ] = TypedApi(50, "DescribeUserScramCredentials", "0", flexible="0+")
    ALTER_USER_SCRAM_CREDENTIALS: TypedApi[
        alter_user_scram_credentials.AlterUserScramCredentialsRequest,
        alter_user_scram_credentials.AlterUserScramCredentialsResponse,
    ] = TypedApi(51, "AlterUserScramCredentials", "0", flexible="0+")
    CREATE_DELEGATION_TOKEN: TypedApi[
        create_delegation_token.CreateDelegationTokenRequest,
        create_delegation_token.CreateDelegationTokenResponse,
    ] = TypedApi(38, "CreateDelegationToken", "1-3", flexible="2+")
    RENEW_DELEGATION_TOKEN: TypedApi[
        renew_delegation_token.RenewDelegationTokenRequest,
        renew_delegation_token.RenewDelegationTokenResponse,
    ] = TypedApi(39, "RenewDelegationToken", "1-2", flexible="2+")
    EXPIRE_DELEGATION_TOKEN: TypedApi[
        expire_delegation_token.ExpireDelegationTokenRequest,
        expire_delegation_token.ExpireDelegationTokenResponse,
    ] = TypedApi(40, "ExpireDelegationToken", "1-2", flexible="2+")
    DESCRIBE_DELEGATION_TOKEN: TypedApi[
        describe_delegation_token.DescribeDelegationTokenRequest,
        describe_delegation_token.DescribeDelegationTokenResponse,
    ] = TypedApi(41, "DescribeDelegationToken", "1-3", flexible="2+")
    GET_TELEMETRY_SUBSCRIPTIONS: TypedApi[
        get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest,
        get_telemetry_subscriptions.GetTelemetrySubscriptionsResponse,
    ] = TypedApi(71, "GetTelemetrySubscriptions", "0", flexible="0+")
    PUSH_TELEMETRY: TypedApi[push_telemetry.PushTelemetryRequest, push_telemetry.PushTelemetryResponse] = (
        TypedApi(72, "PushTelemetry", "0", flexible="0+")
    )
    UPDATE_FEATURES: TypedApi[
        update_features.UpdateFeaturesRequest, update_features.UpdateFeaturesResponse
    ] = TypedApi(57, "UpdateFeatures", "0-2", flexible="0+")
    DESCRIBE_ACLS: TypedApi[describe_acls.DescribeAclsRequest, describe_acls.DescribeAclsResponse] = TypedApi(
        29, "DescribeAcls", "1-3", flexible="2+"
    )
    CREATE_ACLS: TypedApi[create_acls.CreateAclsRequest, create_acls.CreateAclsResponse] = TypedApi(
        30, "CreateAcls", "1-3", flexible="2+"
    )
    DELETE_ACLS: TypedApi[delete_acls.DeleteAclsRequest, delete_acls.DeleteAclsResponse] = TypedApi(
        31, "DeleteAcls", "1-3", flexible="2+"
    )
    DESCRIBE_CLIENT_QUOTAS: TypedApi[
        describe_client_quotas.DescribeClientQuotasRequest,
        describe_client_quotas.DescribeClientQuotasResponse,
    ] = TypedApi(48, "DescribeClientQuotas", "0-1", flexible="1+")
    ALTER_CLIENT_QUOTAS: TypedApi[
        alter_client_quotas.AlterClientQuotasRequest, alter_client_quotas.AlterClientQuotasResponse
    ] = TypedApi(49, "AlterClientQuotas", "0-1", flexible="1+")
    DESCRIBE_CLUSTER: TypedApi[
        describe_cluster.DescribeClusterRequest, describe_cluster.DescribeClusterResponse
    ] = TypedApi(60, "DescribeCluster", "0-2", flexible="0+")
    ELECT_LEADERS: TypedApi[elect_leaders.ElectLeadersRequest, elect_leaders.ElectLeadersResponse] = TypedApi(
        43, "ElectLeaders", "0-2", flexible="2+"
    )
    ALTER_PARTITION_REASSIGNMENTS: TypedApi[
        alter_partition_reassignments.AlterPartitionReassignmentsRequest,
        alter_partition_reassignments.AlterPartitionReassignmentsResponse,
    ] = TypedApi(45, "AlterPartitionReassignments", "0-1", flexible="0+")
    LIST_PARTITION_REASSIGNMENTS: TypedApi[
        list_partition_reassignments.ListPartitionReassignmentsRequest,
        list_partition_reassignments.ListPartitionReassignmentsResponse,
    ] = TypedApi(46, "ListPartitionReassignments", "0", flexible="0+")
    LIST_CONFIG_RESOURCES: TypedApi[
        list_config_resources.ListConfigResourcesRequest, list_config_resources.ListConfigResourcesResponse
    ] = TypedApi(74, "ListConfigResources", "0-1", flexible="0+")
    DESCRIBE_TOPIC_PARTITIONS: TypedApi[
        describe_topic_partitions.DescribeTopicPartitionsRequest,
        describe_topic_partitions.DescribeTopicPartitionsResponse,
    ] = TypedApi(75, "DescribeTopicPartitions", "0", flexible="0+")
    CONSUMER_GROUP_HEARTBEAT: TypedApi[
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest,
        consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
    ] = TypedApi(68, "ConsumerGroupHeartbeat", "0-1", flexible="0+")
    CONSUMER_GROUP_DESCRIBE: TypedApi[
        consumer_group_describe.ConsumerGroupDescribeRequest,
        consumer_group_describe.ConsumerGroupDescribeResponse,
    ] = TypedApi(69, "ConsumerGroupDescribe", "0-1", flexible="0+")
    SHARE_GROUP_HEARTBEAT: TypedApi[
        share_group_heartbeat.ShareGroupHeartbeatRequest, share_group_heartbeat.ShareGroupHeartbeatResponse
    ] = TypedApi(76, "ShareGroupHeartbeat", "1", flexible="0+")
    SHARE_GROUP_DESCRIBE: TypedApi[
        share_group_describe.ShareGroupDescribeRequest, share_group_describe.ShareGroupDescribeResponse
    ] = TypedApi(77, "ShareGroupDescribe", "1", flexible="0+")
    SHARE_FETCH: TypedApi[share_fetch.ShareFetchRequest, share_fetch.ShareFetchResponse] = TypedApi(
        78, "ShareFetch", "1-2", flexible="0+"
    )
    SHARE_ACKNOWLEDGE: TypedApi[
        share_acknowledge.ShareAcknowledgeRequest, share_acknowledge.ShareAcknowledgeResponse
    ] = TypedApi(79, "ShareAcknowledge", "1-2", flexible="0+")
    INITIALIZE_SHARE_GROUP_STATE: TypedApi[
        initialize_share_group_state.InitializeShareGroupStateRequest,
        initialize_share_group_state.InitializeShareGroupStateResponse,
    ] = TypedApi(83, "InitializeShareGroupState", "0", flexible="0+")
    READ_SHARE_GROUP_STATE: TypedApi[
        read_share_group_state.ReadShareGroupStateRequest, read_share_group_state.ReadShareGroupStateResponse
    ] = TypedApi(84, "ReadShareGroupState", "0", flexible="0+")
    WRITE_SHARE_GROUP_STATE: TypedApi[
        write_share_group_state.WriteShareGroupStateRequest,
        write_share_group_state.WriteShareGroupStateResponse,
    ] = TypedApi(85, "WriteShareGroupState", "0-1", flexible="0+")
    DELETE_SHARE_GROUP_STATE: TypedApi[
        delete_share_group_state.DeleteShareGroupStateRequest,
        delete_share_group_state.DeleteShareGroupStateResponse,
    ] = TypedApi(86, "DeleteShareGroupState", "0", flexible="0+")
    READ_SHARE_GROUP_STATE_SUMMARY: TypedApi[
        read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
    ] = TypedApi(87, "ReadShareGroupStateSummary", "0-1", flexible="0+")
    STREAMS_GROUP_HEARTBEAT: TypedApi[
        streams_group_heartbeat.StreamsGroupHeartbeatRequest,
        streams_group_heartbeat.StreamsGroupHeartbeatResponse,
    ] = TypedApi(88, "StreamsGroupHeartbeat", "0", flexible="0+")
    STREAMS_GROUP_DESCRIBE: TypedApi[
        streams_group_describe.StreamsGroupDescribeRequest,
        streams_group_describe.StreamsGroupDescribeResponse,
    ] = TypedApi(89, "StreamsGroupDescribe", "0", flexible="0+")
    DESCRIBE_SHARE_GROUP_OFFSETS: TypedApi[
        describe_share_group_offsets.DescribeShareGroupOffsetsRequest,
        describe_share_group_offsets.DescribeShareGroupOffsetsResponse,
    ] = TypedApi(90, "DescribeShareGroupOffsets", "0-1", flexible="0+")
    ALTER_SHARE_GROUP_OFFSETS: TypedApi[
        alter_share_group_offsets.AlterShareGroupOffsetsRequest,
        alter_share_group_offsets.AlterShareGroupOffsetsResponse,
    ] = TypedApi(91, "AlterShareGroupOffsets", "0", flexible="0+")
    DELETE_SHARE_GROUP_OFFSETS: TypedApi[
        delete_share_group_offsets.DeleteShareGroupOffsetsRequest,
        delete_share_group_offsets.DeleteShareGroupOffsetsResponse,
    ] = TypedApi(92, "DeleteShareGroupOffsets", "0", flexible="0+")

    by_key: ClassVar[dict[int, Api]] = {}


API.by_key.update({row.key: row for row in vars(API).values() if isinstance(row, Api)})
