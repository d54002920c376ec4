"""Every API with a request, the permissions that it needs, and the error without each of them.

A case's request touches the topic `t`, the group `g` and the transactional id `x`, which exist, and `missing`, which
does not. `rights_case` says what a case is, and `rights_outcomes` asks and judges.
"""

from __future__ import annotations

import uuid
from typing import Any

from conformance.batches import fetch_request
from conformance.rights_case import (
    CLOSED,
    GROUP,
    LEFT_OUT,
    OF_GROUP,
    OF_TOKEN,
    OF_TOPIC,
    TOPIC,
    Case,
    Names,
    Need,
    cluster,
    group,
    topic,
    transaction,
)
from conformance.secured import Rule, describe_request
from conformance.topics import REQUEST_TIMEOUT_MS, batch_of
from felice.protocol.api import API
from felice.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
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
    fetch,
    find_coordinator,
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
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from felice.security.acl import Operation, ResourceType

ALICE, BOB = "User:alice", "User:bob"

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS


def _produced(
    names: Names, *, by_id: bool = False, acks: int = -1, transactional: bool = False
) -> produce.ProduceRequest:
    producer = {"producer_id": 77, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
    records = batch_of(b"value", transactional=transactional, **producer)
    where = {"topic_id": names.topic_id} if by_id else {"name": "t"}
    return produce.ProduceRequest(
        transactional_id="x" if transactional else None,
        acks=acks,
        timeout_ms=REQUEST_TIMEOUT_MS,
        topic_data=[
            produce.TopicProduceData(
                partition_data=[produce.PartitionProduceData(index=0, records=records)], **where
            )
        ],
    )


def _fetched_by_id(names: Names, follower: bool = False) -> fetch.FetchRequest:
    request = fetch_request("t", max_wait_ms=0)
    request.topics[0].topic, request.topics[0].topic_id = "", names.topic_id
    if follower:
        request.replica_state = fetch.ReplicaState(replica_id=77, replica_epoch=1)
    return request


def _committed(names: Names) -> offset_commit.OffsetCommitRequest:
    row = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    return offset_commit.OffsetCommitRequest(
        group_id="g", topics=[offset_commit.OffsetCommitRequestTopic(name="t", partitions=[row])]
    )


def _committed_in_transaction(names: Names) -> txn_offset_commit.TxnOffsetCommitRequest:
    row = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=77,
        producer_epoch=0,
        topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
    )


def _offsets_of_group(names: Names, all_topics: bool = False) -> offset_fetch.OffsetFetchRequest:
    topics = None if all_topics else [offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    return offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=topics)]
    )


def _offsets_of_one_group(names: Names) -> offset_fetch.OffsetFetchRequest:
    topics = [offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    return offset_fetch.OffsetFetchRequest(group_id="g", topics=topics)


def _added(names: Names, from_broker: bool = False) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
    topics = [
        add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0]),
        add_partitions_to_txn.AddPartitionsToTxnTopic(name="u", partitions=[0]),
    ]
    if from_broker:
        one = add_partitions_to_txn.AddPartitionsToTxnTransaction(
            transactional_id="x", producer_id=77, producer_epoch=0, verify_only=True, topics=topics[:1]
        )
        return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[one])
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=77,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )


def _metadata(name: str | None, *, creates: bool = False, topic_id: uuid.UUID | None = None) -> Any:
    row = metadata.MetadataRequestTopic(name=name)
    if topic_id is not None:
        row.topic_id = topic_id
    return metadata.MetadataRequest(topics=[row], allow_auto_topic_creation=creates)


def _config(kind: int, name: str) -> describe_configs.DescribeConfigsRequest:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=["retention.ms"]
    )
    return describe_configs.DescribeConfigsRequest(resources=[resource])


def _altered(kind: int, name: str) -> alter_configs.AlterConfigsRequest:
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=True)


def _edited(kind: int, name: str) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def _created(names: Names) -> create_topics.CreateTopicsRequest:
    wanted = create_topics.CreatableTopic(name="missing", num_partitions=1, replication_factor=1)
    return create_topics.CreateTopicsRequest(topics=[wanted], validate_only=True)


def _acl() -> create_acls.AclCreation:
    return Rule(TOPIC, "acl-of-the-matrix", READ, principal="User:nobody").creation()


def _acl_filter() -> delete_acls.DeleteAclsFilter:
    wanted = describe_request(TOPIC, "acl-of-the-matrix")
    return delete_acls.DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter=wanted.resource_name_filter,
        pattern_type_filter=wanted.pattern_type_filter,
        principal_filter=None,
        host_filter=None,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )


CASES = (
    Case("produce", API.PRODUCE, 9, _produced, (topic(WRITE),)),
    Case("produce by id", API.PRODUCE, 13, lambda names: _produced(names, by_id=True), (topic(WRITE),)),
    Case("produce, acks=0", API.PRODUCE, 9, lambda names: _produced(names, acks=0), (topic(WRITE, CLOSED),)),
    Case(
        "produce in a transaction",
        API.PRODUCE,
        9,
        lambda names: _produced(names, transactional=True),
        (topic(WRITE), transaction(WRITE)),
    ),
    Case("fetch", API.FETCH, 12, lambda names: fetch_request("t", max_wait_ms=0), (topic(READ),)),
    Case("fetch by id", API.FETCH, 16, _fetched_by_id, (topic(READ),)),
    Case(
        "fetch of a follower",
        API.FETCH,
        16,
        lambda names: _fetched_by_id(names, follower=True),
        (cluster(CLUSTER_ACTION, OF_TOPIC),),
    ),
    Case(
        "list offsets",
        API.LIST_OFFSETS,
        7,
        lambda names: list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name="t", partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-2)]
                )
            ],
        ),
        (topic(DESCRIBE),),
    ),
    Case("metadata", API.METADATA, 12, lambda names: _metadata("t"), (topic(DESCRIBE),)),
    Case(
        "metadata by id",
        API.METADATA,
        12,
        lambda names: _metadata(None, topic_id=names.topic_id),
        (topic(DESCRIBE),),
    ),
    Case(
        "metadata of all topics",
        API.METADATA,
        12,
        lambda names: metadata.MetadataRequest(topics=None),
        (topic(DESCRIBE, LEFT_OUT),),
    ),
    Case(
        "metadata of a missing topic",
        API.METADATA,
        12,
        lambda names: _metadata("missing"),
        (topic(DESCRIBE, name="missing"),),
    ),
    Case(
        "metadata that creates a topic",
        API.METADATA,
        12,
        # The name is invalid, so it is never created; the permission is checked all the same.
        lambda names: _metadata("made!", creates=True),
        (topic(DESCRIBE, name="made!"), topic(CREATE, name="made!")),
    ),
    Case(
        "describe topic partitions",
        API.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda names: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name="t")]
        ),
        (topic(DESCRIBE),),
    ),
    Case(
        "describe the partitions of all topics",
        API.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda names: describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[]),
        (topic(DESCRIBE, LEFT_OUT),),
    ),
    Case(
        "describe the cluster",
        API.DESCRIBE_CLUSTER,
        1,
        lambda names: describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True),
    ),
    Case("commit offsets", API.OFFSET_COMMIT, 8, _committed, (group(READ), topic(READ))),
    Case("fetch offsets", API.OFFSET_FETCH, 8, _offsets_of_group, (group(DESCRIBE), topic(DESCRIBE))),
    Case("fetch one group's", API.OFFSET_FETCH, 5, _offsets_of_one_group, (group(DESCRIBE), topic(DESCRIBE))),
    Case("fetch in v1", API.OFFSET_FETCH, 1, _offsets_of_one_group, (group(DESCRIBE), topic(DESCRIBE))),
    Case(
        "fetch all offsets",
        API.OFFSET_FETCH,
        8,
        lambda names: _offsets_of_group(names, all_topics=True),
        (group(DESCRIBE), topic(DESCRIBE, LEFT_OUT)),
    ),
    Case(
        "fetch all offsets of one group",
        API.OFFSET_FETCH,
        5,
        lambda names: offset_fetch.OffsetFetchRequest(group_id="g", topics=None),
        (group(DESCRIBE), topic(DESCRIBE, LEFT_OUT)),
    ),
    Case(
        "delete offsets",
        API.OFFSET_DELETE,
        0,
        lambda names: offset_delete.OffsetDeleteRequest(
            group_id="g",
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name="t", partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=1)]
                )
            ],
        ),
        (group(DELETE), topic(READ)),
    ),
    Case(
        "find a group's coordinator",
        API.FIND_COORDINATOR,
        4,
        lambda names: find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"]),
        (group(DESCRIBE),),
    ),
    Case(
        "find one group's coordinator",
        API.FIND_COORDINATOR,
        3,
        lambda names: find_coordinator.FindCoordinatorRequest(key="g"),
        (group(DESCRIBE),),
    ),
    Case(
        "find a transaction's coordinator",
        API.FIND_COORDINATOR,
        4,
        lambda names: find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        (transaction(DESCRIBE),),
    ),
    Case(
        "find one transaction's coordinator",
        API.FIND_COORDINATOR,
        3,
        lambda names: find_coordinator.FindCoordinatorRequest(key="x", key_type=1),
        (transaction(DESCRIBE),),
    ),
    *(
        Case(
            f"join a group, version {version}",
            API.JOIN_GROUP,
            version,
            # A session timeout of 1 ms is refused, so nobody joins.
            lambda names: join_group.JoinGroupRequest(group_id="g", session_timeout_ms=1, protocol_type="p"),
            (group(READ),),
        )
        for version in (5, 9)
    ),
    Case(
        "sync a group",
        API.SYNC_GROUP,
        3,
        lambda names: sync_group.SyncGroupRequest(group_id="g", member_id="nobody"),
        (group(READ),),
    ),
    Case(
        "heartbeat",
        API.HEARTBEAT,
        3,
        lambda names: heartbeat.HeartbeatRequest(group_id="g", member_id="nobody"),
        (group(READ),),
    ),
    Case(
        "leave a group",
        API.LEAVE_GROUP,
        3,
        lambda names: leave_group.LeaveGroupRequest(
            group_id="g", members=[leave_group.MemberIdentity(member_id="nobody")]
        ),
        (group(READ),),
    ),
    Case(
        "describe groups",
        API.DESCRIBE_GROUPS,
        5,
        lambda names: describe_groups.DescribeGroupsRequest(groups=["g"]),
        (group(DESCRIBE),),
    ),
    Case(
        "describe consumer groups",
        API.CONSUMER_GROUP_DESCRIBE,
        1,
        lambda names: consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["g"]),
        (group(DESCRIBE),),
    ),
    Case(
        "send a heartbeat of a consumer group",
        API.CONSUMER_GROUP_HEARTBEAT,
        1,
        lambda names: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="nobody", member_epoch=5, subscribed_topic_names=["t"]
        ),
        (group(READ), topic(DESCRIBE)),
    ),
    Case(
        "list groups",
        API.LIST_GROUPS,
        4,
        lambda names: list_groups.ListGroupsRequest(),
        (group(DESCRIBE, LEFT_OUT),),
        (cluster(DESCRIBE),),
    ),
    Case(
        "delete groups",
        API.DELETE_GROUPS,
        2,
        lambda names: delete_groups.DeleteGroupsRequest(groups_names=["missing"]),
        (Need(GROUP, "missing", DELETE, OF_GROUP),),
    ),
    Case(
        "create topics",
        API.CREATE_TOPICS,
        6,
        _created,
        (topic(CREATE, name="missing"), topic(DESCRIBE_CONFIGS, name="missing")),
    ),
    Case(
        "create topics as an administrator",
        API.CREATE_TOPICS,
        6,
        _created,
        (cluster(CREATE, OF_TOPIC), topic(DESCRIBE_CONFIGS, name="missing")),
    ),
    Case(
        "delete a missing topic",
        API.DELETE_TOPICS,
        5,
        lambda names: delete_topics.DeleteTopicsRequest(
            topic_names=["missing"], timeout_ms=REQUEST_TIMEOUT_MS
        ),
        (topic(DELETE, name="missing"),),
    ),
    Case(
        "delete records",
        API.DELETE_RECORDS,
        2,
        lambda names: delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name="t", partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=0)]
                )
            ],
            timeout_ms=REQUEST_TIMEOUT_MS,
        ),
        (topic(DELETE),),
    ),
    Case(
        "create partitions",
        API.CREATE_PARTITIONS,
        3,
        lambda names: create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="t", count=2, assignments=None)],
            validate_only=True,
            timeout_ms=REQUEST_TIMEOUT_MS,
        ),
        (topic(ALTER),),
    ),
    Case(
        "init an idempotent producer",
        API.INIT_PRODUCER_ID,
        4,
        lambda names: init_producer_id.InitProducerIdRequest(transactional_id=None),
        (cluster(Operation.IDEMPOTENT_WRITE),),
        (topic(WRITE, name="anything"), topic(WRITE, name="*")),
    ),
    Case(
        "init a transactional producer",
        API.INIT_PRODUCER_ID,
        4,
        # A timeout of 0 is refused, so the transactional id is left alone.
        lambda names: init_producer_id.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=0),
        (transaction(WRITE),),
    ),
    Case(
        "leader epochs",
        API.OFFSET_FOR_LEADER_EPOCH,
        4,
        lambda names: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic="t",
                    partitions=[
                        offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
                    ],
                )
            ]
        ),
        (topic(DESCRIBE),),
        (cluster(CLUSTER_ACTION),),
    ),
    Case(
        "add partitions to a transaction",
        API.ADD_PARTITIONS_TO_TXN,
        3,
        _added,
        (topic(WRITE), topic(WRITE, name="u"), transaction(WRITE)),
    ),
    Case(
        "verify partitions of a transaction",
        API.ADD_PARTITIONS_TO_TXN,
        4,
        lambda names: _added(names, from_broker=True),
        (cluster(CLUSTER_ACTION),),
    ),
    Case(
        "add offsets to a transaction",
        API.ADD_OFFSETS_TO_TXN,
        3,
        lambda names: add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id="x", producer_id=77, producer_epoch=0, group_id="g"
        ),
        (transaction(WRITE), group(READ)),
    ),
    Case(
        "commit offsets in a transaction",
        API.TXN_OFFSET_COMMIT,
        3,
        _committed_in_transaction,
        (transaction(WRITE), group(READ), topic(READ)),
    ),
    Case(
        "end a transaction",
        API.END_TXN,
        3,
        lambda names: end_txn.EndTxnRequest(transactional_id="x", producer_id=77, committed=True),
        (transaction(WRITE),),
    ),
    Case(
        "write markers",
        API.WRITE_TXN_MARKERS,
        1,
        lambda names: write_txn_markers.WriteTxnMarkersRequest(
            markers=[
                write_txn_markers.WritableTxnMarker(
                    producer_id=77,
                    topics=[write_txn_markers.WritableTxnMarkerTopic(name="missing", partition_indexes=[0])],
                )
            ]
        ),
        (cluster(CLUSTER_ACTION),),
        (cluster(ALTER),),
    ),
    Case(
        "describe producers",
        API.DESCRIBE_PRODUCERS,
        0,
        lambda names: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name="t", partition_indexes=[0])]
        ),
        (topic(READ),),
    ),
    Case(
        "describe transactions",
        API.DESCRIBE_TRANSACTIONS,
        0,
        lambda names: describe_transactions.DescribeTransactionsRequest(transactional_ids=["x"]),
        (transaction(DESCRIBE),),
    ),
    Case(
        "list transactions",
        API.LIST_TRANSACTIONS,
        0,
        lambda names: list_transactions.ListTransactionsRequest(),
        (transaction(DESCRIBE, LEFT_OUT),),
    ),
    Case(
        "describe ACLs",
        API.DESCRIBE_ACLS,
        2,
        lambda names: describe_request(TOPIC, "acl-of-the-matrix"),
        (cluster(DESCRIBE),),
    ),
    Case(
        "create ACLs",
        API.CREATE_ACLS,
        2,
        lambda names: create_acls.CreateAclsRequest(creations=[_acl()]),
        (cluster(ALTER),),
    ),
    Case(
        "delete ACLs",
        API.DELETE_ACLS,
        2,
        lambda names: delete_acls.DeleteAclsRequest(filters=[_acl_filter()]),
        (cluster(ALTER),),
    ),
    Case(
        "describe a topic's configs",
        API.DESCRIBE_CONFIGS,
        4,
        lambda names: _config(2, "t"),
        (topic(DESCRIBE_CONFIGS),),
    ),
    Case(
        "describe a group's configs",
        API.DESCRIBE_CONFIGS,
        4,
        lambda names: _config(32, "g"),
        (group(DESCRIBE_CONFIGS),),
    ),
    Case(
        "describe a broker's configs",
        API.DESCRIBE_CONFIGS,
        4,
        lambda names: _config(4, "1"),
        (cluster(DESCRIBE_CONFIGS),),
    ),
    Case(
        "alter a topic's configs",
        API.ALTER_CONFIGS,
        2,
        lambda names: _altered(2, "t"),
        (topic(ALTER_CONFIGS),),
    ),
    Case(
        "alter a group's configs",
        API.ALTER_CONFIGS,
        2,
        lambda names: _altered(32, "g"),
        (group(ALTER_CONFIGS),),
    ),
    Case(
        "alter a broker's configs",
        API.ALTER_CONFIGS,
        2,
        lambda names: _altered(4, "1"),
        (cluster(ALTER_CONFIGS),),
    ),
    Case(
        "edit a topic's configs",
        API.INCREMENTAL_ALTER_CONFIGS,
        1,
        lambda names: _edited(2, "t"),
        (topic(ALTER_CONFIGS),),
    ),
    Case(
        "edit a group's configs",
        API.INCREMENTAL_ALTER_CONFIGS,
        1,
        lambda names: _edited(32, "g"),
        (group(ALTER_CONFIGS),),
    ),
    Case(
        "edit a broker's configs",
        API.INCREMENTAL_ALTER_CONFIGS,
        1,
        lambda names: _edited(4, "1"),
        (cluster(ALTER_CONFIGS),),
    ),
    Case(
        "list config resources",
        API.LIST_CONFIG_RESOURCES,
        0,
        lambda names: list_config_resources.ListConfigResourcesRequest(),
        (cluster(DESCRIBE_CONFIGS),),
    ),
    Case(
        "move replicas between directories",
        API.ALTER_REPLICA_LOG_DIRS,
        2,
        lambda names: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=[alter_replica_log_dirs.AlterReplicaLogDirTopic(name="t", partitions=[0])],
                )
            ]
        ),
        (cluster(ALTER),),
    ),
    Case(
        "describe log directories",
        API.DESCRIBE_LOG_DIRS,
        4,
        lambda names: describe_log_dirs.DescribeLogDirsRequest(topics=[]),
        (cluster(DESCRIBE),),
    ),
    Case(
        "elect leaders",
        API.ELECT_LEADERS,
        2,
        lambda names: elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic="t", partitions=[0])]
        ),
        (cluster(ALTER),),
    ),
    Case(
        "reassign partitions",
        API.ALTER_PARTITION_REASSIGNMENTS,
        0,
        lambda names: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name="t",
                    partitions=[
                        alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=None)
                    ],
                )
            ]
        ),
        (cluster(ALTER),),
    ),
    Case(
        "list reassignments",
        API.LIST_PARTITION_REASSIGNMENTS,
        0,
        lambda names: list_partition_reassignments.ListPartitionReassignmentsRequest(),
        (cluster(DESCRIBE),),
    ),
    Case(
        "describe quotas",
        API.DESCRIBE_CLIENT_QUOTAS,
        1,
        lambda names: describe_client_quotas.DescribeClientQuotasRequest(components=[]),
        (cluster(DESCRIBE_CONFIGS),),
    ),
    Case(
        "alter quotas",
        API.ALTER_CLIENT_QUOTAS,
        1,
        lambda names: alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.EntryData(
                    entity=[describe_client_quotas.EntityData(entity_type="user", entity_name="nobody")],
                    ops=[alter_client_quotas.OpData(key="consumer_byte_rate", value=1.0)],
                )
            ],
            validate_only=True,
        ),
        (cluster(ALTER_CONFIGS),),
    ),
    Case(
        "describe SCRAM users",
        API.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        lambda names: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            users=[describe_user_scram_credentials.UserName(name="nobody")]
        ),
        (cluster(DESCRIBE),),
    ),
    Case(
        "alter SCRAM users",
        API.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        lambda names: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="nobody", mechanism=1)]
        ),
        (cluster(ALTER),),
    ),
    Case(
        "update features",
        API.UPDATE_FEATURES,
        1,
        lambda names: update_features.UpdateFeaturesRequest(
            feature_updates=[
                update_features.FeatureUpdateKey(feature="no.such.feature", max_version_level=1)
            ],
            validate_only=True,
        ),
        (cluster(ALTER),),
    ),
    Case(
        "create a token for another owner",
        API.CREATE_DELEGATION_TOKEN,
        3,
        lambda names: create_delegation_token.CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="carol", max_lifetime_ms=-1
        ),
        (Need(ResourceType.USER, "User:carol", Operation.CREATE_TOKENS, OF_TOKEN, ALICE),),
        user="alice",
    ),
    Case(
        "describe another owner's tokens",
        API.DESCRIBE_DELEGATION_TOKEN,
        3,
        lambda names: describe_delegation_token.DescribeDelegationTokenRequest(
            owners=[
                describe_delegation_token.DescribeDelegationTokenOwner(
                    principal_type="User", principal_name="bob"
                )
            ]
        ),
        (Need(ResourceType.USER, BOB, Operation.DESCRIBE_TOKENS, LEFT_OUT, ALICE),),
        (Need(ResourceType.DELEGATION_TOKEN, "*", DESCRIBE, LEFT_OUT, ALICE),),
        user="alice",
    ),
)

WITHOUT_NEEDS = {
    API.API_VERSIONS,
    API.DESCRIBE_CLUSTER,
    API.SASL_HANDSHAKE,
    API.SASL_AUTHENTICATE,
    # Only the owner and the renewers of a token may do this; ACLs do not count.
    API.RENEW_DELEGATION_TOKEN,
    API.EXPIRE_DELEGATION_TOKEN,
    API.GET_TELEMETRY_SUBSCRIPTIONS,
    API.PUSH_TELEMETRY,
}
