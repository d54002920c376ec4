"""Which handler answers which API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from felice.protocol.api import API, Api
from felice.server.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)

Handle = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Handler:
    """An API with its handler, as the session needs it for each request."""

    handle: Handle
    request: type[Any]
    response: type[Any]
    first_version: int
    last_version: int


def _handler(api: Api, handle: Handle) -> Handler:
    # Produce is offered from version 0 (KAFKA-18659) but exists from 3 only.
    first = max(api.versions.min, api.advertised.min)
    last = min(api.versions.max, api.advertised.max)
    return Handler(handle, api.request, api.response, first, last)


_TABLE: tuple[tuple[Api, Handle], ...] = (
    (API.PRODUCE, produce.handle),
    (API.FETCH, fetch.handle),
    (API.LIST_OFFSETS, list_offsets.handle),
    (API.METADATA, metadata.handle),
    (API.OFFSET_COMMIT, offset_commit.handle),
    (API.OFFSET_FETCH, offset_fetch.handle),
    (API.FIND_COORDINATOR, find_coordinator.handle),
    (API.JOIN_GROUP, join_group.handle),
    (API.HEARTBEAT, heartbeat.handle),
    (API.LEAVE_GROUP, leave_group.handle),
    (API.SYNC_GROUP, sync_group.handle),
    (API.DESCRIBE_GROUPS, describe_groups.handle),
    (API.LIST_GROUPS, list_groups.handle),
    (API.OFFSET_COMMIT, offset_commit.handle),
    (API.OFFSET_FETCH, offset_fetch.handle),
    (API.FIND_COORDINATOR, find_coordinator.handle),
    (API.JOIN_GROUP, join_group.handle),
    (API.HEARTBEAT, heartbeat.handle),
    (API.LEAVE_GROUP, leave_group.handle),
    (API.SYNC_GROUP, sync_group.handle),
    (API.DESCRIBE_GROUPS, describe_groups.handle),
    (API.LIST_GROUPS, list_groups.handle),
    (API.DELETE_GROUPS, delete_groups.handle),
    (API.OFFSET_DELETE, offset_delete.handle),
    (API.API_VERSIONS, api_versions.handle),
    (API.CREATE_TOPICS, create_topics.handle),
    (API.DELETE_TOPICS, delete_topics.handle),
    (API.DELETE_RECORDS, delete_records.handle),
    (API.INIT_PRODUCER_ID, init_producer_id.handle),
    (API.OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch.handle),
    (API.DESCRIBE_CONFIGS, describe_configs.handle),
    (API.ALTER_CONFIGS, alter_configs.handle),
    (API.DELETE_GROUPS, delete_groups.handle),
    (API.OFFSET_DELETE, offset_delete.handle),
    (API.CREATE_PARTITIONS, create_partitions.handle),
    (API.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs.handle),
    (API.DESCRIBE_CLUSTER, describe_cluster.handle),
    (API.DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions.handle),
)

HANDLERS: dict[int, Handler] = {api.key: _handler(api, handle) for api, handle in _TABLE}
