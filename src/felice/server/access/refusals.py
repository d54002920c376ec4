"""The responses and rows for requests and items without permission, with the fields that Kafka sets.

Every function takes the request or the item, the error code, and the context of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from felice.protocol.errors import ErrorCode
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from felice.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
)
from felice.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from felice.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from felice.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from felice.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from felice.protocol.messages.create_partitions import CreatePartitionsTopic, CreatePartitionsTopicResult
from felice.protocol.messages.create_topics import CreatableTopic, CreatableTopicResult
from felice.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from felice.protocol.messages.delete_groups import DeletableGroupResult
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from felice.protocol.messages.describe_acls import DescribeAclsResponse
from felice.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from felice.protocol.messages.describe_configs import DescribeConfigsResource, DescribeConfigsResult
from felice.protocol.messages.describe_groups import DescribedGroup
from felice.protocol.messages.describe_producers import PartitionResponse, TopicRequest, TopicResponse
from felice.protocol.messages.describe_transactions import TransactionState
from felice.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from felice.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from felice.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from felice.protocol.messages.init_producer_id import InitProducerIdResponse
from felice.protocol.messages.join_group import JoinGroupResponse
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from felice.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from felice.protocol.messages.offset_delete import (
    OffsetDeleteRequestTopic,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from felice.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from felice.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from felice.protocol.messages.update_features import UpdateFeaturesResponse
from felice.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_NULL_PROTOCOL_SINCE = 7
_ELECTION_ERROR_SINCE = 1
_NO_NODE = -1

R = TypeVar("R")


def with_code(response: Callable[..., R]) -> Callable[[Any, ErrorCode, RequestContext], R]:
    """The refusal of a request whose response has only an error code to set."""
    return lambda request, code, context: response(error_code=code)


# Records


def produce(request: ProduceRequest, code: ErrorCode, context: RequestContext) -> ProduceResponse:
    """Refuses every partition of a Produce request."""
    return ProduceResponse(responses=[produce_topic(topic, code, context) for topic in request.topic_data])


def produce_topic(topic: TopicProduceData, code: ErrorCode, context: RequestContext) -> TopicProduceResponse:
    """Refuses every partition of a topic. There is no base offset."""
    rows = [
        PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
        for data in topic.partition_data
    ]
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)


def list_offsets_topic(
    topic: ListOffsetsTopic, code: ErrorCode, context: RequestContext
) -> ListOffsetsTopicResponse:
    """Refuses every partition of a topic in ListOffsets."""
    rows = [
        ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
        for asked in topic.partitions
    ]
    return ListOffsetsTopicResponse(name=topic.name, partitions=rows)


def epoch_topic(
    topic: OffsetForLeaderTopic, code: ErrorCode, context: RequestContext
) -> OffsetForLeaderTopicResult:
    """Refuses every partition of a topic in OffsetForLeaderEpoch."""
    rows = [EpochEndOffset(partition=asked.partition, error_code=code) for asked in topic.partitions]
    return OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows)


def delete_records_topic(
    topic: DeleteRecordsTopic, code: ErrorCode, context: RequestContext
) -> DeleteRecordsTopicResult:
    """Refuses every partition of a topic in DeleteRecords. There is no low watermark."""
    rows = [
        DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1, error_code=code)
        for asked in topic.partitions
    ]
    return DeleteRecordsTopicResult(name=topic.name, partitions=rows)


def producers_topic(topic: TopicRequest, code: ErrorCode, context: RequestContext) -> TopicResponse:
    """Refuses every partition of a topic in DescribeProducers."""
    rows = [
        PartitionResponse(partition_index=index, error_code=code, error_message=code.message)
        for index in topic.partition_indexes
    ]
    return TopicResponse(name=topic.name, partitions=rows)


# Groups


def find_coordinator(request: Any, code: ErrorCode, context: RequestContext) -> FindCoordinatorResponse:
    """Refuses the only key of FindCoordinator up to version 3."""
    return FindCoordinatorResponse(
        error_code=code, error_message=code.message, node_id=_NO_NODE, host="", port=_NO_NODE
    )


def coordinator(key: str, code: ErrorCode, context: RequestContext) -> Coordinator:
    """Refuses one key of FindCoordinator."""
    return Coordinator(
        key=key, node_id=_NO_NODE, host="", port=_NO_NODE, error_code=code, error_message=code.message
    )


def join_group(request: Any, code: ErrorCode, context: RequestContext) -> JoinGroupResponse:
    """Refuses JoinGroup. Old versions cannot encode a protocol name of null."""
    name = None if context.version >= _NULL_PROTOCOL_SINCE else ""
    return JoinGroupResponse(error_code=code, protocol_name=name)


def described_group(group_id: str, code: ErrorCode, context: RequestContext) -> DescribedGroup:
    """Refuses one group of DescribeGroups."""
    return DescribedGroup(group_id=group_id, error_code=code)


def deleted_group(group_id: str, code: ErrorCode, context: RequestContext) -> DeletableGroupResult:
    """Refuses one group of DeleteGroups."""
    return DeletableGroupResult(group_id=group_id, error_code=code)


def offset_commit(
    request: OffsetCommitRequest, code: ErrorCode, context: RequestContext
) -> OffsetCommitResponse:
    """Refuses every partition of OffsetCommit, whose response has no error of its own."""
    return OffsetCommitResponse(topics=[commit_topic(topic, code, context) for topic in request.topics])


def commit_topic(
    topic: OffsetCommitRequestTopic, code: ErrorCode, context: RequestContext
) -> OffsetCommitResponseTopic:
    """Refuses every partition of a topic in OffsetCommit."""
    rows = [
        OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
        for asked in topic.partitions
    ]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)


def delete_offsets_topic(
    topic: OffsetDeleteRequestTopic, code: ErrorCode, context: RequestContext
) -> OffsetDeleteResponseTopic:
    """Refuses every partition of a topic in OffsetDelete."""
    rows = [
        OffsetDeleteResponsePartition(partition_index=asked.partition_index, error_code=code)
        for asked in topic.partitions
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=rows)


# Transactions


def init_producer_id(request: Any, code: ErrorCode, context: RequestContext) -> InitProducerIdResponse:
    """Refuses InitProducerId: there is no producer id."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def add_partitions(
    request: AddPartitionsToTxnRequest, code: ErrorCode, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Refuses every partition of AddPartitionsToTxn up to version 3."""
    topics = [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ],
        )
        for topic in request.v3_and_below_topics
    ]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def txn_offset_commit(
    request: TxnOffsetCommitRequest, code: ErrorCode, context: RequestContext
) -> TxnOffsetCommitResponse:
    """Refuses every partition of TxnOffsetCommit, whose response has no error of its own."""
    return TxnOffsetCommitResponse(
        topics=[txn_commit_topic(topic, code, context) for topic in request.topics]
    )


def txn_commit_topic(
    topic: TxnOffsetCommitRequestTopic, code: ErrorCode, context: RequestContext
) -> TxnOffsetCommitResponseTopic:
    """Refuses every partition of a topic in TxnOffsetCommit."""
    rows = [
        TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
        for asked in topic.partitions
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows)


def write_txn_markers(
    request: WriteTxnMarkersRequest, code: ErrorCode, context: RequestContext
) -> WriteTxnMarkersResponse:
    """Refuses every partition of every marker."""

    def topics(names: Iterable[Any]) -> list[WritableTxnMarkerTopicResult]:
        return [
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in names
        ]

    rows = [
        WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics(marker.topics))
        for marker in request.markers
    ]
    return WriteTxnMarkersResponse(markers=rows)


def transaction(transactional_id: str, code: ErrorCode, context: RequestContext) -> TransactionState:
    """Refuses one transactional id of DescribeTransactions."""
    return TransactionState(transactional_id=transactional_id, error_code=code)


# Topics, configurations and the cluster


def created_topic(topic: CreatableTopic, code: ErrorCode, context: RequestContext) -> CreatableTopicResult:
    """Refuses one topic of CreateTopics."""
    return CreatableTopicResult(name=topic.name, error_code=code, error_message=code.message)


def created_partitions(
    topic: CreatePartitionsTopic, code: ErrorCode, context: RequestContext
) -> CreatePartitionsTopicResult:
    """Refuses one topic of CreatePartitions."""
    return CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=code.message)


def described_config(
    resource: DescribeConfigsResource, code: ErrorCode, context: RequestContext
) -> DescribeConfigsResult:
    """Refuses one resource of DescribeConfigs."""
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=code,
        error_message=code.message,
    )


def altered_config(row: Callable[..., R]) -> Callable[[Any, ErrorCode, RequestContext], R]:
    """Returns what refuses one resource of an API that changes configurations, with the API's own row."""
    return lambda resource, code, context: row(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=code,
        error_message=code.message,
    )


def describe_acls(request: Any, code: ErrorCode, context: RequestContext) -> DescribeAclsResponse:
    """Refuses DescribeAcls."""
    return DescribeAclsResponse(error_code=code, error_message=code.message)


def describe_client_quotas(
    request: Any, code: ErrorCode, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Refuses DescribeClientQuotas."""
    return DescribeClientQuotasResponse(error_code=code, error_message=code.message, entries=None)


def alter_client_quotas(
    request: AlterClientQuotasRequest, code: ErrorCode, context: RequestContext
) -> AlterClientQuotasResponse:
    """Refuses every entity of AlterClientQuotas, whose response has no error of its own."""
    rows = [
        AlteredEntry(error_code=code, error_message=code.message, entity=entry.entity)
        for entry in request.entries
    ]
    return AlterClientQuotasResponse(entries=rows)


def create_acls(request: CreateAclsRequest, code: ErrorCode, context: RequestContext) -> CreateAclsResponse:
    """Refuses every ACL of CreateAcls, whose response has no error of its own."""
    row = AclCreationResult(error_code=code, error_message=code.message)
    return CreateAclsResponse(results=[row] * len(request.creations))


def delete_acls(request: DeleteAclsRequest, code: ErrorCode, context: RequestContext) -> DeleteAclsResponse:
    """Refuses every filter of DeleteAcls, whose response has no error of its own."""
    row = DeleteAclsFilterResult(error_code=code, error_message=code.message)
    return DeleteAclsResponse(filter_results=[row] * len(request.filters))


def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, code: ErrorCode, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Refuses every partition of AlterReplicaLogDirs, whose response has no error of its own."""
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for asked in request.dirs:
        for topic in asked.topics:
            row = topics.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
            row.partitions += [
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                for index in topic.partitions
            ]
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def alter_reassignments(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Refuses AlterPartitionReassignments, and each of its partitions."""
    rows = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=asked.partition_index, error_code=code, error_message=code.message
                )
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=code.message, responses=rows)


def elect_leaders(
    request: ElectLeadersRequest, code: ErrorCode, context: RequestContext
) -> ElectLeadersResponse:
    """Refuses ElectLeaders, and each of its partitions."""
    rows = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=code, error_message=code.message)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    response = ElectLeadersResponse(replica_election_results=rows)
    if context.version >= _ELECTION_ERROR_SINCE:
        response.error_code = code
    return response


def list_reassignments(
    request: ListPartitionReassignmentsRequest, code: ErrorCode, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Refuses ListPartitionReassignments. As in Kafka, each requested partition has a row without replicas."""
    rows = [
        OngoingTopicReassignment(
            name=topic.name,
            partitions=[
                OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return ListPartitionReassignmentsResponse(error_code=code, error_message=code.message, topics=rows)


def update_features(request: Any, code: ErrorCode, context: RequestContext) -> UpdateFeaturesResponse:
    """Refuses UpdateFeatures."""
    return UpdateFeaturesResponse(error_code=code, error_message=code.message)


def alter_scram_users(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Refuses every user of AlterUserScramCredentials, whose response has no error of its own."""
    users = dict.fromkeys([row.name for row in request.deletions] + [row.name for row in request.upsertions])
    rows = [
        AlterUserScramCredentialsResult(user=user, error_code=code, error_message=code.message)
        for user in users
    ]
    return AlterUserScramCredentialsResponse(results=rows)


def describe_scram_users(
    request: DescribeUserScramCredentialsRequest, code: ErrorCode, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Refuses DescribeUserScramCredentials. As in Kafka, each user has a row without the user's name."""
    row = DescribeUserScramCredentialsResult(error_code=code, error_message=code.message)
    rows = [row] * len(request.users or ())
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=code.message, results=rows)
