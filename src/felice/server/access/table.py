"""What each API needs: the guard in front of its handler.

Keeps true: an API without a row here is refused by a broker with an authorizer, before its handler runs.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from felice.protocol.api import API, Api
from felice.protocol.messages import alter_configs, incremental_alter_configs
from felice.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from felice.protocol.messages.create_partitions import CreatePartitionsResponse
from felice.protocol.messages.create_topics import CreateTopicsResponse
from felice.protocol.messages.delete_groups import DeleteGroupsResponse
from felice.protocol.messages.delete_records import DeleteRecordsResponse
from felice.protocol.messages.describe_configs import DescribeConfigsResponse
from felice.protocol.messages.describe_groups import DescribeGroupsResponse
from felice.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from felice.protocol.messages.describe_producers import DescribeProducersResponse
from felice.protocol.messages.describe_transactions import DescribeTransactionsResponse
from felice.protocol.messages.end_txn import EndTxnResponse
from felice.protocol.messages.heartbeat import HeartbeatResponse
from felice.protocol.messages.leave_group import LeaveGroupResponse
from felice.protocol.messages.list_config_resources import ListConfigResourcesResponse
from felice.protocol.messages.list_offsets import ListOffsetsResponse
from felice.protocol.messages.offset_commit import OffsetCommitResponse
from felice.protocol.messages.offset_delete import OffsetDeleteResponse
from felice.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from felice.protocol.messages.sync_group import SyncGroupResponse
from felice.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from felice.security.acl import Operation, ResourceType
from felice.server.access import refusals as refuse
from felice.server.access import special
from felice.server.access.guards import (
    Guard,
    Handle,
    any_of,
    both,
    cluster,
    each,
    in_handler,
    itself,
    need,
    open_to_all,
    shown,
    whole,
)

_READ, _WRITE, _CREATE, _DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
_ALTER, _DESCRIBE, _CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

_reads_group = need(_READ, _GROUP, "group_id")
_writes_transaction = need(_WRITE, _TRANSACTIONAL_ID, "transactional_id")


GUARDS: Mapping[Api, Guard] = {
    # Records
    API.PRODUCE: special.produce,
    API.FETCH: in_handler,  # READ of each topic; CLUSTER_ACTION for followers
    API.LIST_OFFSETS: each(
        need(_DESCRIBE, _TOPIC, "name"), "topics", "topics", refuse.list_offsets_topic, ListOffsetsResponse
    ),
    API.OFFSET_FOR_LEADER_EPOCH: each(
        any_of(_CLUSTER_ACTION, need(_DESCRIBE, _TOPIC, "topic")),
        "topics",
        "topics",
        refuse.epoch_topic,
        OffsetForLeaderEpochResponse,
    ),
    API.DELETE_RECORDS: each(
        need(_DELETE, _TOPIC, "name"), "topics", "topics", refuse.delete_records_topic, DeleteRecordsResponse
    ),
    API.DESCRIBE_PRODUCERS: each(
        need(_READ, _TOPIC, special.valid_topic_name),
        "topics",
        "topics",
        refuse.producers_topic,
        DescribeProducersResponse,
    ),
    # Topics and the cluster
    API.METADATA: in_handler,  # DESCRIBE of each topic; CREATE for those that it creates
    API.DESCRIBE_TOPIC_PARTITIONS: in_handler,  # DESCRIBE of each topic
    API.DESCRIBE_CLUSTER: in_handler,  # only for its bit field of authorised operations
    API.API_VERSIONS: open_to_all,
    API.SASL_HANDSHAKE: open_to_all,
    API.SASL_AUTHENTICATE: open_to_all,
    API.GET_TELEMETRY_SUBSCRIPTIONS: open_to_all,
    API.PUSH_TELEMETRY: open_to_all,
    API.CREATE_TOPICS: both(
        each(
            any_of(_CREATE, need(_CREATE, _TOPIC, "name")),
            "topics",
            "topics",
            refuse.created_topic,
            CreateTopicsResponse,
        ),
        special.configs_of_created_topics,
    ),
    API.DELETE_TOPICS: special.delete_topics,
    API.CREATE_PARTITIONS: each(
        need(_ALTER, _TOPIC, "name"), "topics", "results", refuse.created_partitions, CreatePartitionsResponse
    ),
    API.DESCRIBE_CONFIGS: each(
        special.config_need(_DESCRIBE_CONFIGS),
        "resources",
        "results",
        refuse.described_config,
        DescribeConfigsResponse,
    ),
    API.ALTER_CONFIGS: each(
        special.config_need(_ALTER_CONFIGS),
        "resources",
        "responses",
        refuse.altered_config(alter_configs.AlterConfigsResourceResponse),
        alter_configs.AlterConfigsResponse,
    ),
    API.INCREMENTAL_ALTER_CONFIGS: each(
        special.config_need(_ALTER_CONFIGS),
        "resources",
        "responses",
        refuse.altered_config(incremental_alter_configs.AlterConfigsResourceResponse),
        incremental_alter_configs.IncrementalAlterConfigsResponse,
    ),
    API.LIST_CONFIG_RESOURCES: whole(
        cluster(_DESCRIBE_CONFIGS), refuse.with_code(ListConfigResourcesResponse)
    ),
    API.ELECT_LEADERS: whole(cluster(_ALTER), refuse.elect_leaders),
    API.ALTER_PARTITION_REASSIGNMENTS: whole(cluster(_ALTER), refuse.alter_reassignments),
    API.LIST_PARTITION_REASSIGNMENTS: whole(cluster(_DESCRIBE), refuse.list_reassignments),
    API.ALTER_REPLICA_LOG_DIRS: whole(cluster(_ALTER), refuse.alter_replica_log_dirs),
    API.DESCRIBE_LOG_DIRS: whole(cluster(_DESCRIBE), refuse.with_code(DescribeLogDirsResponse)),
    API.UPDATE_FEATURES: whole(cluster(_ALTER), refuse.update_features),
    API.DESCRIBE_USER_SCRAM_CREDENTIALS: whole(cluster(_DESCRIBE), refuse.describe_scram_users),
    API.ALTER_USER_SCRAM_CREDENTIALS: whole(cluster(_ALTER), refuse.alter_scram_users),
    API.DESCRIBE_ACLS: whole(cluster(_DESCRIBE), refuse.describe_acls),
    API.CREATE_ACLS: whole(cluster(_ALTER), refuse.create_acls),
    API.DELETE_ACLS: whole(cluster(_ALTER), refuse.delete_acls),
    API.DESCRIBE_CLIENT_QUOTAS: whole(cluster(_DESCRIBE_CONFIGS), refuse.describe_client_quotas),
    API.ALTER_CLIENT_QUOTAS: whole(cluster(_ALTER_CONFIGS), refuse.alter_client_quotas),
    # Delegation tokens
    API.CREATE_DELEGATION_TOKEN: in_handler,  # CREATE_TOKENS of the owner, if it is not the client
    API.RENEW_DELEGATION_TOKEN: in_handler,  # the token's owner and renewers
    API.EXPIRE_DELEGATION_TOKEN: in_handler,  # the token's owner and renewers
    API.DESCRIBE_DELEGATION_TOKEN: in_handler,  # DESCRIBE of the token, or DESCRIBE_TOKENS of its owner
    # Groups
    API.FIND_COORDINATOR: special.find_coordinator,
    API.JOIN_GROUP: special.join_group,
    API.SYNC_GROUP: whole(need(_READ, _GROUP, special.group_to_sync), refuse.with_code(SyncGroupResponse)),
    API.HEARTBEAT: whole(_reads_group, refuse.with_code(HeartbeatResponse)),
    API.LEAVE_GROUP: whole(_reads_group, refuse.with_code(LeaveGroupResponse)),
    API.OFFSET_COMMIT: both(
        whole(_reads_group, refuse.offset_commit),
        each(
            need(_READ, _TOPIC, special.topic_name),
            "topics",
            "topics",
            refuse.commit_topic,
            OffsetCommitResponse,
        ),
    ),
    API.OFFSET_FETCH: special.offset_fetch,
    API.OFFSET_DELETE: both(
        whole(need(_DELETE, _GROUP, "group_id"), refuse.with_code(OffsetDeleteResponse)),
        each(
            need(_READ, _TOPIC, "name"),
            "topics",
            "topics",
            refuse.delete_offsets_topic,
            OffsetDeleteResponse,
            handles_none=True,
        ),
    ),
    API.DESCRIBE_GROUPS: each(
        need(_DESCRIBE, _GROUP, itself), "groups", "groups", refuse.described_group, DescribeGroupsResponse
    ),
    API.DELETE_GROUPS: each(
        need(_DELETE, _GROUP, itself), "groups_names", "results", refuse.deleted_group, DeleteGroupsResponse
    ),
    API.LIST_GROUPS: special.list_groups,
    # Transactions
    API.INIT_PRODUCER_ID: whole(special.producer_need, refuse.init_producer_id),
    API.ADD_PARTITIONS_TO_TXN: special.add_partitions_to_txn,
    API.ADD_OFFSETS_TO_TXN: both(
        whole(_writes_transaction, refuse.with_code(AddOffsetsToTxnResponse)),
        whole(_reads_group, refuse.with_code(AddOffsetsToTxnResponse)),
    ),
    API.TXN_OFFSET_COMMIT: both(
        whole(_writes_transaction, refuse.txn_offset_commit),
        both(
            whole(_reads_group, refuse.txn_offset_commit),
            each(
                need(_READ, _TOPIC, "name"),
                "topics",
                "topics",
                refuse.txn_commit_topic,
                TxnOffsetCommitResponse,
            ),
        ),
    ),
    API.END_TXN: whole(_writes_transaction, refuse.with_code(EndTxnResponse)),
    API.WRITE_TXN_MARKERS: whole(any_of(_ALTER, cluster(_CLUSTER_ACTION)), refuse.write_txn_markers),
    API.DESCRIBE_TRANSACTIONS: both(
        each(
            need(_DESCRIBE, _TRANSACTIONAL_ID, itself),
            "transactional_ids",
            "transaction_states",
            refuse.transaction,
            DescribeTransactionsResponse,
        ),
        special.topics_of_transactions,
    ),
    API.LIST_TRANSACTIONS: shown(
        "transaction_states",
        lambda row, access: access.shows(_DESCRIBE, _TRANSACTIONAL_ID, row.transactional_id),
    ),
}


class GuardedHandlers(dict[int, Handle]):
    """Handlers behind their guards, by API key."""

    def __init__(self, handlers: Mapping[int, Handle]) -> None:
        super().__init__()
        self._handlers = handlers

    def __missing__(self, api_key: int) -> Handle:
        guard, handle = _BY_KEY[api_key], self._handlers[api_key]

        def guarded(request: Any, context: Any) -> Coroutine[Any, Any, Any]:
            return guard(request, context, handle)

        self[api_key] = guarded
        return guarded


_BY_KEY = {api.key: guard for api, guard in GUARDS.items()}
