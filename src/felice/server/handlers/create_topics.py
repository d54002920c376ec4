"""CreateTopics (key 19): each topic has its own result; a name that occurs twice is refused.

From version 5 the response describes the created topics, including every configuration.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from felice.config import shortened
from felice.controller.topic_plans import NewTopic, PlannedTopic
from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import all_of, cluster_permission_or, hides, items_need, permission
from felice.server.configs.entries import ConfigEntry, topic_entries
from felice.server.flow.pace import paced
from felice.server.requests.mutations import Mutations

if TYPE_CHECKING:
    from felice.server.context import RequestContext
    from felice.server.security.access_control import Access

_STRICT_QUOTA_FROM = 6

_Rows: TypeAlias = dict[tuple[str, str | None, int], CreatableTopicConfigs]


def _hide_configs(answer: CreateTopicsResponse, access: Access) -> None:
    """Tells nothing about a created topic unless the client may describe its configuration."""
    for row in answer.topics:
        if row.error_code or access.shows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, row.name):
            continue
        row.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        row.num_partitions = row.replication_factor = -1
        row.configs = []


guard = all_of(
    items_need(
        API.CREATE_TOPICS,
        cluster_permission_or(Operation.CREATE, permission(Operation.CREATE, ResourceType.TOPIC)),
    ),
    hides(_hide_configs),
)


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Creates one topic after the other, with pauses for other clients. With `validate_only` it only checks them."""
    times = Counter(topic.name for topic in request.topics)
    results = []
    mutations = Mutations(context, _STRICT_QUOTA_FROM)
    shared: _Rows = {}
    distinct = {topic.name: topic for topic in request.topics}.values()
    async for topic in paced(distinct, context.services.env.clock):
        try:
            if times[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate topic name: {topic.name}")
            requested = _new_topic(topic)
            mutations.check()
            planned = await context.services.changes.cluster.create_topic(
                requested, validate_only=request.validate_only
            )
            if not request.validate_only:
                mutations.spend(len(planned.partitions))
            results.append(_made(planned, request.validate_only, context, shared))
        except ApiError as error:
            results.append(
                CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            )
    return CreateTopicsResponse(throttle_time_ms=mutations.throttle_time_ms, topics=results)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    # KIP-464: -1 selects the broker's default. As in Kafka 4, it is accepted in every version.
    assignment = {row.partition_index: tuple(row.broker_ids) for row in topic.assignments}
    if len(assignment) != len(topic.assignments):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    if null := next((config.name for config in topic.configs if config.value is None), None):
        reason = f"Null value not supported for topic configs: {shortened(null)}"
        raise ApiError(ErrorCode.INVALID_CONFIG, reason)
    # As in Kafka, the last value of a repeated configuration wins.
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignment, configs)


def _made(
    planned: PlannedTopic, validate_only: bool, context: RequestContext, shared: _Rows
) -> CreatableTopicResult:
    result = CreatableTopicResult(
        name=planned.name,
        error_message=None,
        num_partitions=len(planned.partitions),
        replication_factor=planned.replication_factor,
        configs=[
            _config_row(entry, shared)
            for entry in topic_entries(planned.configs, context.services.config_layers)
        ],
    )
    if not validate_only:
        result.topic_id = planned.topic_id
    return result


def _config_row(entry: ConfigEntry, shared: _Rows) -> CreatableTopicConfigs:
    """Returns the row of a configuration. Equal rows are shared, because a response may have thousands of topics."""
    key = entry.name, entry.value, entry.source
    if key not in shared:
        shared[key] = CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
    return shared[key]
