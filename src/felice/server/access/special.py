"""The guards of APIs whose rule is more than one need for the request, or one for each item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress, islice
from typing import TYPE_CHECKING, Any

from felice.controller import topic_names
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from felice.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from felice.protocol.messages.describe_configs import ResourceType as ConfigResourceType
from felice.protocol.messages.describe_transactions import DescribeTransactionsResponse
from felice.protocol.messages.find_coordinator import (
    GROUP_KEY_TYPE,
    TRANSACTION_KEY_TYPE,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.join_group import JoinGroupRequest
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from felice.protocol.messages.produce import ProduceRequest, ProduceResponse
from felice.protocol.messages.sync_group import SyncGroupRequest
from felice.protocol.primitives import ZERO_UUID
from felice.protocol.schema import schema_of
from felice.records.batch import has_transactional_flag
from felice.security.acl import CLUSTER_NAME, Operation, ResourceType
from felice.server.access import refusals
from felice.server.access.guards import (
    DENIED_CODES,
    Guard,
    Handle,
    Need,
    any_of,
    both,
    cluster,
    codes_of,
    each,
    itself,
    need,
    shown,
    whole,
)
from felice.server.context import NO_REPLY, CloseConnection
from felice.server.requests.group_client import names_protocol
from felice.server.requests.large_answers import each_alone
from felice.server.requests.requested_groups import distinct
from felice.server.security.access_control import Access

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_MANY_KEYS_SINCE = 4
_MANY_GROUPS_SINCE = 8
_GROUP_ERROR_SINCE = 2
_FROM_BROKERS_SINCE = 4
_NO_OFFSET = -1


def topic_name(item: Any, context: RequestContext) -> str | None:
    """The name of an item that names its topic, or has its id. None for an unknown id, which the handler refuses."""
    if item.topic_id == ZERO_UUID:
        return None if not item.name and _has_ids(item, context.version) else str(item.name)
    return context.services.image.topic_names.get(item.topic_id)


def _has_ids(item: Any, version: int) -> bool:
    """Whether requests of this version name topics by their ids."""
    return any(
        field.name == "topic_id" and version in field.versions for field in schema_of(type(item)).fields
    )


def valid_topic_name(item: Any, context: RequestContext) -> str | None:
    """The name of an item's topic. None for an invalid name: the handler refuses it with or without rights."""
    return None if topic_names.fault_of(item.name) is not None else str(item.name)


# Produce


def _transactional_need(request: ProduceRequest, context: RequestContext, access: Access) -> ErrorCode:
    batches = (data.records for topic in request.topic_data for data in topic.partition_data)
    if not any(records is not None and has_transactional_flag(records) for records in batches):
        return ErrorCode.NONE
    name = request.transactional_id
    if name is not None and access.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return ErrorCode.NONE
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


_produce = both(
    whole(_transactional_need, refusals.produce),
    each(
        need(Operation.WRITE, ResourceType.TOPIC, topic_name),
        "topic_data",
        "responses",
        refusals.produce_topic,
        ProduceResponse,
    ),
)


async def produce(request: ProduceRequest, context: RequestContext, handle: Handle) -> Any:
    """Each topic needs WRITE. With acks=0 there is no response to refuse in: the connection is closed."""
    if request.acks != 0:
        return await _produce(request, context, handle)

    async def handle_without_reply(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
        await handle(request, context)
        return ProduceResponse()

    answer = await _produce(request, context, handle_without_reply)
    if answer.responses:
        raise CloseConnection("produce with acks=0 was not authorised")
    return NO_REPLY


# Groups


async def find_coordinator(request: FindCoordinatorRequest, context: RequestContext, handle: Handle) -> Any:
    """Each key needs DESCRIBE of the group or transactional id. Other types of keys have no coordinator here."""
    guards = _COORDINATOR_GUARDS.get(request.key_type)
    if guards is None:
        return await handle(request, context)
    of_one, of_several = guards
    return await (of_several if context.version >= _MANY_KEYS_SINCE else of_one)(request, context, handle)


def _coordinator_guards(kind: ResourceType) -> tuple[Guard, Guard]:
    of_several = each(
        need(Operation.DESCRIBE, kind, itself),
        "coordinator_keys",
        "coordinators",
        refusals.coordinator,
        FindCoordinatorResponse,
    )
    return whole(need(Operation.DESCRIBE, kind, "key"), refusals.find_coordinator), of_several


_COORDINATOR_GUARDS = {
    GROUP_KEY_TYPE: _coordinator_guards(ResourceType.GROUP),
    TRANSACTION_KEY_TYPE: _coordinator_guards(ResourceType.TRANSACTIONAL_ID),
}


async def join_group(request: JoinGroupRequest, context: RequestContext, handle: Handle) -> Any:
    """Needs READ of the group. Also a refused client has used the coordinator that it looked up."""
    context.services.coordinators.lookups.on_group_request(context)
    return await _join_group(request, context, handle)


_join_group = whole(need(Operation.READ, ResourceType.GROUP, "group_id"), refusals.join_group)


def group_to_sync(request: SyncGroupRequest, context: RequestContext) -> str | None:
    """The group. None if the request does not name its protocol: the handler refuses that before, as Kafka does."""
    return request.group_id if names_protocol(request, context.version) else None


async def list_groups(request: Any, context: RequestContext, handle: Handle) -> Any:
    """Shows all groups with DESCRIBE of the cluster, or else the groups that the client may describe."""
    if context.access.shows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return await handle(request, context)
    return await _shown_groups(request, context, handle)


_shown_groups = shown(
    "groups", lambda row, access: access.shows(Operation.DESCRIBE, ResourceType.GROUP, row.group_id)
)


async def offset_fetch(request: OffsetFetchRequest, context: RequestContext, handle: Handle) -> Any:
    """Each group and each of its topics need DESCRIBE. Where all topics were requested, others are left out."""
    guard = _fetch_of_several if context.version >= _MANY_GROUPS_SINCE else _fetch_of_one
    return await guard(request, context, handle)


_describe_topic = need(Operation.DESCRIBE, ResourceType.TOPIC, topic_name)


async def _several_topics(request: OffsetFetchRequest, context: RequestContext, handle: Handle) -> Any:
    asked = [topic for group in request.groups for topic in group.topics or ()]
    codes = await codes_of(asked, _describe_topic, context)
    request.groups = distinct(request.groups)
    denied = _take_denied(request.groups, iter(codes))
    answer: OffsetFetchResponse = await handle(request, context)
    unfiltered = []
    for row, refused in zip(answer.groups, denied, strict=True):
        if refused is None:
            unfiltered.append(row)
        elif not row.error_code:
            row.topics = [*row.topics, *refused]
    await _take_hidden(unfiltered, context)
    return answer


def _take_denied(
    groups: Iterable[OffsetFetchRequestGroup], codes: Iterator[ErrorCode]
) -> list[list[OffsetFetchResponseTopics] | None]:
    """Removes the topics without permission from the groups of a request.

    Returns the rows of these topics for each group, or None for a group of which all topics are requested.
    """
    denied: list[list[OffsetFetchResponseTopics] | None] = []
    for group in groups:
        if group.topics is None:
            denied.append(None)
            continue
        allowed, refused = [], []
        for topic, code in zip(group.topics, islice(codes, len(group.topics)), strict=True):
            if code == ErrorCode.NONE:
                allowed.append(topic)
            else:
                refused.append(_denied_topic(topic))
        group.topics = allowed
        denied.append(refused)
    return denied


def _denied_topic(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    rows = [
        OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=_NO_OFFSET,
            metadata="",
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
        for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=rows)


async def _take_hidden(rows: list[OffsetFetchResponseGroup], context: RequestContext) -> None:
    """Removes the topics that the client may not see."""
    access = context.access

    def is_shown(topic: OffsetFetchResponseTopics) -> bool:
        name = topic_name(topic, context)
        return name is not None and access.shows(Operation.DESCRIBE, ResourceType.TOPIC, name)

    are_shown = iter(await each_alone([topic for row in rows for topic in row.topics], is_shown, context))
    for row in rows:
        row.topics = list(compress(row.topics, islice(are_shown, len(row.topics))))


_fetch_of_several = both(
    each(
        need(Operation.DESCRIBE, ResourceType.GROUP, "group_id"),
        "groups",
        "groups",
        lambda group, code, context: OffsetFetchResponseGroup(group_id=group.group_id, error_code=code),
        OffsetFetchResponse,
    ),
    _several_topics,
)


def _refused_fetch(
    request: OffsetFetchRequest, code: ErrorCode, context: RequestContext
) -> OffsetFetchResponse:
    if context.version >= _GROUP_ERROR_SINCE:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(topics=[_fetch_topic(topic, code, context) for topic in request.topics or ()])


def _fetch_topic(topic: Any, code: ErrorCode, context: RequestContext) -> OffsetFetchResponseTopic:
    rows = [
        OffsetFetchResponsePartition(
            partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
        )
        for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopic(name=topic.name, partitions=rows)


_fetch_named = each(
    need(Operation.DESCRIBE, ResourceType.TOPIC, "name"),
    "topics",
    "topics",
    _fetch_topic,
    OffsetFetchResponse,
)


_shown_topics = shown(
    "topics", lambda row, access: access.shows(Operation.DESCRIBE, ResourceType.TOPIC, row.name)
)


async def _one_groups_topics(request: OffsetFetchRequest, context: RequestContext, handle: Handle) -> Any:
    return await (_shown_topics if request.topics is None else _fetch_named)(request, context, handle)


_fetch_of_one = both(
    whole(need(Operation.DESCRIBE, ResourceType.GROUP, "group_id"), _refused_fetch), _one_groups_topics
)


# Transactions


def producer_need(request: InitProducerIdRequest, context: RequestContext, access: Access) -> ErrorCode:
    """WRITE of the transactional id. An idempotent producer needs IDEMPOTENT_WRITE, or WRITE of any topic (KIP-679)."""
    if request.transactional_id is not None:
        kind = ResourceType.TRANSACTIONAL_ID
        is_allowed = access.allows(Operation.WRITE, kind, request.transactional_id)
        return ErrorCode.NONE if is_allowed else DENIED_CODES[kind]
    if access.shows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME):
        return ErrorCode.NONE
    if access.allows_any(Operation.WRITE, ResourceType.TOPIC):
        return ErrorCode.NONE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def add_partitions_to_txn(request: Any, context: RequestContext, handle: Handle) -> Any:
    """A client needs WRITE of the transactional id; the handler checks its topics. A broker needs CLUSTER_ACTION."""
    is_from_broker = context.version >= _FROM_BROKERS_SINCE
    guard = _partitions_from_brokers if is_from_broker else _partitions_from_clients
    return await guard(request, context, handle)


_partitions_from_clients = whole(
    need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "v3_and_below_transactional_id"),
    refusals.add_partitions,
)


def _refuse_broker(request: Any, code: ErrorCode, context: RequestContext) -> Any:
    response = refusals.add_partitions(request, code, context)
    response.error_code = code
    return response


_partitions_from_brokers = whole(cluster(Operation.CLUSTER_ACTION), _refuse_broker)


async def topics_of_transactions(request: Any, context: RequestContext, handle: Handle) -> Any:
    """Leaves out the topics of described transactions that the client may not describe."""
    access = context.access
    answer: DescribeTransactionsResponse = await handle(request, context)
    for state in answer.transaction_states:
        state.topics = [
            topic
            for topic in state.topics
            if access.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        ]
    return answer


# Topics and configurations


async def configs_of_created_topics(request: Any, context: RequestContext, handle: Handle) -> Any:
    """Tells nothing about a created topic unless the client may describe its configuration."""
    access = context.access

    def hidden(row: CreatableTopicResult) -> CreatableTopicResult:
        if row.error_code or access.shows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, row.name):
            return row
        row.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        row.num_partitions = row.replication_factor = -1
        row.configs = []
        return row

    answer: CreateTopicsResponse = await handle(request, context)
    answer.topics = [hidden(row) for row in answer.topics]
    return answer


async def delete_topics(request: DeleteTopicsRequest, context: RequestContext, handle: Handle) -> Any:
    """Needs DELETE of the cluster (an ACL for ALL) or of each topic. The name for an id is shown only with DESCRIBE."""
    items = "topics" if request.topics else "topic_names"
    return await _DELETE_TOPICS[items](request, context, handle)


def _topic_to_delete(item: Any, context: RequestContext) -> str | None:
    """The topic of an item. None if the handler refuses the item with or without rights."""
    if not isinstance(item, DeleteTopicState):
        return _existing_or_hidden(str(item), context)
    if item.name is None:
        return topic_name(item, context)
    return _existing_or_hidden(item.name, context) if item.topic_id == ZERO_UUID else None


def _existing_or_hidden(name: str, context: RequestContext) -> str | None:
    """None for a topic that does not exist, if the client may know that."""
    is_known = name in context.services.image.topics
    return (
        name if is_known or not context.access.shows(Operation.DESCRIBE, ResourceType.TOPIC, name) else None
    )


def _undeleted(item: Any, code: ErrorCode, context: RequestContext) -> DeletableTopicResult:
    row = DeletableTopicResult(error_code=code, error_message=code.message, name=None)
    if isinstance(item, DeleteTopicState):
        row.topic_id = item.topic_id
    name = _topic_to_delete(item, context)
    by_name = not isinstance(item, DeleteTopicState) or item.name is not None
    if name is not None and (by_name or context.access.shows(Operation.DESCRIBE, ResourceType.TOPIC, name)):
        row.name = name
    return row


_DELETE_TOPICS = {
    items: each(
        any_of(Operation.DELETE, need(Operation.DELETE, ResourceType.TOPIC, _topic_to_delete)),
        items,
        "responses",
        _undeleted,
        DeleteTopicsResponse,
    )
    for items in ("topics", "topic_names")
}


def config_need(operation: Operation) -> Need:
    """The permission for a configuration: of its topic or group, or of the cluster for those of brokers."""
    needs = {
        ConfigResourceType.TOPIC: need(operation, ResourceType.TOPIC, "resource_name"),
        ConfigResourceType.GROUP: need(operation, ResourceType.GROUP, "resource_name"),
        **dict.fromkeys(
            (
                ConfigResourceType.BROKER,
                ConfigResourceType.BROKER_LOGGER,
                ConfigResourceType.CLIENT_METRICS,
            ),
            cluster(operation),
        ),
    }

    def check(item: Any, context: RequestContext, access: Access) -> ErrorCode:
        needed = needs.get(item.resource_type)
        return ErrorCode.NONE if needed is None else needed(item, context, access)

    return check
