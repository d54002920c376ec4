"""The handler of each API. Clients are offered exactly the APIs in this table."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from felice.protocol.api import API, Api

if TYPE_CHECKING:
    from felice.server.context import RequestContext

# The key of an API decides the types of its request and response, so no single type can be given here.
Handle = Callable[[Any, "RequestContext"], Coroutine[Any, Any, Any]]

# The module of `felice.server.handlers` whose `handle` answers the API.
MODULES: dict[Api, str] = {
    API.PRODUCE: "produce",
    API.FETCH: "fetch",
    API.LIST_OFFSETS: "list_offsets",
    API.METADATA: "metadata",
    API.OFFSET_COMMIT: "offset_commit",
    API.OFFSET_FETCH: "offset_fetch",
    API.FIND_COORDINATOR: "find_coordinator",
    API.JOIN_GROUP: "join_group",
    API.HEARTBEAT: "heartbeat",
    API.LEAVE_GROUP: "leave_group",
    API.SYNC_GROUP: "sync_group",
    API.DESCRIBE_GROUPS: "describe_groups",
    API.LIST_GROUPS: "list_groups",
    API.DELETE_GROUPS: "delete_groups",
    API.OFFSET_DELETE: "offset_delete",
    API.SASL_HANDSHAKE: "sasl_handshake",
    API.API_VERSIONS: "api_versions",
    API.CREATE_TOPICS: "create_topics",
    API.DELETE_TOPICS: "delete_topics",
    API.DELETE_RECORDS: "delete_records",
    API.INIT_PRODUCER_ID: "init_producer_id",
    API.OFFSET_FOR_LEADER_EPOCH: "offset_for_leader_epoch",
    API.ADD_PARTITIONS_TO_TXN: "add_partitions_to_txn",
    API.ADD_OFFSETS_TO_TXN: "add_offsets_to_txn",
    API.END_TXN: "end_txn",
    API.WRITE_TXN_MARKERS: "write_txn_markers",
    API.TXN_OFFSET_COMMIT: "txn_offset_commit",
    API.DESCRIBE_PRODUCERS: "describe_producers",
    API.DESCRIBE_TRANSACTIONS: "describe_transactions",
    API.LIST_TRANSACTIONS: "list_transactions",
    API.DESCRIBE_ACLS: "describe_acls",
    API.CREATE_ACLS: "create_acls",
    API.DELETE_ACLS: "delete_acls",
    API.DESCRIBE_CLIENT_QUOTAS: "describe_client_quotas",
    API.ALTER_CLIENT_QUOTAS: "alter_client_quotas",
    API.DESCRIBE_CONFIGS: "describe_configs",
    API.ALTER_CONFIGS: "alter_configs",
    API.ALTER_REPLICA_LOG_DIRS: "alter_replica_log_dirs",
    API.DESCRIBE_LOG_DIRS: "describe_log_dirs",
    API.SASL_AUTHENTICATE: "sasl_authenticate",
    API.CREATE_PARTITIONS: "create_partitions",
    API.ELECT_LEADERS: "elect_leaders",
    API.ALTER_PARTITION_REASSIGNMENTS: "alter_partition_reassignments",
    API.LIST_PARTITION_REASSIGNMENTS: "list_partition_reassignments",
    API.INCREMENTAL_ALTER_CONFIGS: "incremental_alter_configs",
    API.DESCRIBE_USER_SCRAM_CREDENTIALS: "describe_user_scram_credentials",
    API.ALTER_USER_SCRAM_CREDENTIALS: "alter_user_scram_credentials",
    API.CREATE_DELEGATION_TOKEN: "create_delegation_token",
    API.RENEW_DELEGATION_TOKEN: "renew_delegation_token",
    API.EXPIRE_DELEGATION_TOKEN: "expire_delegation_token",
    API.DESCRIBE_DELEGATION_TOKEN: "describe_delegation_token",
    API.GET_TELEMETRY_SUBSCRIPTIONS: "get_telemetry_subscriptions",
    API.PUSH_TELEMETRY: "push_telemetry",
    API.UPDATE_FEATURES: "update_features",
    API.DESCRIBE_CLUSTER: "describe_cluster",
    API.LIST_CONFIG_RESOURCES: "list_config_resources",
    API.DESCRIBE_TOPIC_PARTITIONS: "describe_topic_partitions",
}

OFFERED: dict[int, Api] = {api.key: api for api in MODULES}


class Handlers(dict[int, Handle]):
    """Handlers by API key. One is imported when it is first called: most brokers never need most of them."""

    def __missing__(self, api_key: int) -> Handle:
        handle: Handle = _module(api_key).handle
        self[api_key] = handle
        return handle


class GuardedHandlers(dict[int, Handle]):
    """The same behind the guards of their modules. A handler without a guard is not found."""

    def __init__(self, handlers: Mapping[int, Handle]) -> None:
        super().__init__()
        self._handlers = handlers

    def __missing__(self, api_key: int) -> Handle:
        guard: Callable[[Handle], Handle] = _module(api_key).guard
        self[api_key] = guarded = guard(self._handlers[api_key])
        return guarded


def _module(api_key: int) -> ModuleType:
    return import_module(f"felice.server.handlers.{MODULES[OFFERED[api_key]]}")
