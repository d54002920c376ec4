"""Consumer groups: list, describe and delete them, and their committed offsets.

Each function sends one request and returns a result or an error per item; `aio.Admin` retries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from felice.client.admin.coordinators import ask_coordinator, raise_if_moved
from felice.client.admin.enumerations import ConsumerGroupState, ConsumerGroupType, authorized_operations
from felice.client.admin.model import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    GroupMember,
    GroupMetadata,
    ListConsumerGroupsResult,
    MemberAssignment,
    MemberDescription,
    Node,
)
from felice.client.admin.results import Results, from_all, outcome
from felice.client.error import KafkaError, KafkaException, error_of, failure
from felice.client.group.requests import (
    CommittedOffset,
    commit_results,
    fetched_offsets,
    offset_commit_request,
    offset_fetch_request,
)
from felice.client.model import OFFSET_INVALID, BrokerMetadata, Partition, TopicPartition
from felice.client.net.cluster import Cluster
from felice.client.net.requests import by_topic
from felice.client.net.wire import ByVersion
from felice.protocol.codec import decode_data
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_describe import (
    MEMBER_TYPE_CONSUMER,
    MEMBER_TYPE_UNKNOWN,
    Assignment,
    ConsumerGroupDescribeRequest,
    Member,
)
from felice.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from felice.protocol.messages.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolAssignment
from felice.protocol.messages.delete_groups import DeleteGroupsRequest
from felice.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
)
from felice.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from felice.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from felice.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from felice.protocol.primitives import MalformedMessage


async def list_groups(
    cluster: Cluster, states: Iterable[ConsumerGroupState], types: Iterable[ConsumerGroupType]
) -> ListConsumerGroupsResult:
    """List groups. Asks every broker, because each lists only the groups that it coordinates."""
    await cluster.refresh([])
    state_names, type_names = [state.wire_name for state in states], [kind.wire_name for kind in types]

    def build(version: int) -> ListGroupsRequest:
        return ListGroupsRequest(
            states_filter=state_names if version >= 4 else [], types_filter=type_names if version >= 5 else []
        )

    result = ListConsumerGroupsResult()
    answers = await from_all(cluster, ByVersion(ListGroupsRequest, build))
    for node_id, response in answers.items():
        if isinstance(response, KafkaException):
            result.errors.append(response)
            continue
        if response.error_code:
            result.errors.append(failure(response.error_code, f"broker {node_id}"))
        result.valid += [_listing(row) for row in response.groups]
    return result


def _listing(row: ListedGroup) -> ConsumerGroupListing:
    return ConsumerGroupListing(
        row.group_id,
        row.protocol_type == "",
        ConsumerGroupState.of(row.group_state),
        ConsumerGroupType.of(row.group_type or "classic"),
        row.protocol_type,
    )


async def _ask_about_group(
    cluster: Cluster, group_id: str, timeout_s: float, include_authorized_operations: bool = False
) -> tuple[DescribedGroup, BrokerMetadata]:
    """Return the coordinator's description of a group, and the coordinator."""

    def build(version: int) -> DescribeGroupsRequest:
        if include_authorized_operations and version < 3:
            raise failure(KafkaError._UNSUPPORTED_FEATURE, "the broker does not report authorized operations")
        return DescribeGroupsRequest(
            groups=[group_id], include_authorized_operations=include_authorized_operations
        )

    request = ByVersion(DescribeGroupsRequest, build)
    response = await ask_coordinator(cluster, group_id, request, timeout_s)
    row: DescribedGroup = response.groups[0]
    raise_if_moved(cluster, group_id, row.error_code)
    broker = cluster.topology.broker(await cluster.coordinator(group_id, timeout_s))
    return row, broker


async def group_metadata(cluster: Cluster, group_id: str, timeout_s: float) -> GroupMetadata:
    """Return a group with its members' metadata and assignments as bytes."""
    row, broker = await _ask_about_group(cluster, group_id, timeout_s)
    members = [
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            bytes(member.member_metadata),
            bytes(member.member_assignment),
        )
        for member in row.members
    ]
    error = error_of(row.error_code, row.error_message or group_id) if row.error_code else None
    return GroupMetadata(
        broker, group_id, error, row.group_state, row.protocol_type, row.protocol_data, members
    )


async def describe_group(
    cluster: Cluster, group_id: str, timeout_s: float, include_authorized_operations: bool = False
) -> ConsumerGroupDescription:
    """Return a group with its members' decoded assignments; a group that does not exist has the state Dead."""
    row, broker = await _ask_about_group(cluster, group_id, timeout_s, include_authorized_operations)
    if row.error_code and row.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        raise failure(row.error_code, row.error_message or group_id)
    # If no classic group has this id, version 6 reports an error and older versions the state Dead.
    state = "Dead" if row.error_code else row.group_state
    if state == "Dead":
        found = await _consumer_group(cluster, group_id, timeout_s, include_authorized_operations)
        if found is not None:
            return _consumer_description(found, broker)
    return ConsumerGroupDescription(
        group_id,
        row.protocol_type == "",
        [_member(member) for member in row.members],
        row.protocol_data,
        ConsumerGroupState.of(state),
        Node(broker.id, broker.host, broker.port, broker.rack),
        authorized_operations(row.authorized_operations),
        ConsumerGroupType.CLASSIC,
        row.protocol_type,
    )


async def _consumer_group(
    cluster: Cluster, group_id: str, timeout_s: float, include_authorized_operations: bool
) -> DescribedConsumerGroup | None:
    """Return a group of KIP-848; None if no such group has this id, or if the broker does not have this protocol."""
    request = ConsumerGroupDescribeRequest(
        group_ids=[group_id], include_authorized_operations=include_authorized_operations
    )
    try:
        response = await ask_coordinator(cluster, group_id, request, timeout_s)
    except KafkaException as error:
        if error.code == KafkaError._UNSUPPORTED_FEATURE:
            return None
        raise
    row: DescribedConsumerGroup = response.groups[0]
    raise_if_moved(cluster, group_id, row.error_code)
    if row.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    if row.error_code:
        raise failure(row.error_code, row.error_message or group_id)
    return row


def _consumer_description(row: DescribedConsumerGroup, broker: BrokerMetadata) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        row.group_id,
        False,
        [_consumer_member(member) for member in row.members],
        row.assignor_name,
        ConsumerGroupState.of(row.group_state),
        Node(broker.id, broker.host, broker.port, broker.rack),
        authorized_operations(row.authorized_operations),
        ConsumerGroupType.CONSUMER,
        PROTOCOL_TYPE,
        row.group_epoch,
        row.assignment_epoch,
    )


def _consumer_member(member: Member) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        _consumer_assignment(member.assignment),
        member.instance_id,
        _consumer_assignment(member.target_assignment),
        member.member_epoch,
        None if member.member_type == MEMBER_TYPE_UNKNOWN else member.member_type == MEMBER_TYPE_CONSUMER,
    )


def _consumer_assignment(assignment: Assignment) -> MemberAssignment:
    return MemberAssignment(
        [
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        ]
    )


def _member(member: DescribedGroupMember) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        MemberAssignment(_assigned(member.member_assignment)),
        member.group_instance_id,
    )


def _assigned(data: bytes) -> list[TopicPartition]:
    """Decode a consumer's partitions. Members of other kinds have assignments in formats of their own."""
    if not data:
        return []
    try:
        assignment = decode_data(ConsumerProtocolAssignment, data)
    except MalformedMessage:
        return []
    return [
        TopicPartition(row.topic, number)
        for row in assignment.assigned_partitions
        for number in row.partitions
    ]


async def delete_group(cluster: Cluster, group_id: str, timeout_s: float) -> None:
    """Delete a group without members."""
    response = await ask_coordinator(
        cluster, group_id, DeleteGroupsRequest(groups_names=[group_id]), timeout_s
    )
    code = response.results[0].error_code
    raise_if_moved(cluster, group_id, code)
    if code:
        raise failure(code, group_id)


async def remove_members(
    cluster: Cluster, group_id: str, members: Iterable[tuple[str, str | None]], timeout_s: float
) -> Results:
    """Remove members: (member id, None), or ("", instance id) for static members."""
    rows = [
        MemberIdentity(member_id=member, group_instance_id=instance, reason="removed by an administrator")
        for member, instance in members
    ]
    request = ByVersion(LeaveGroupRequest, lambda version: LeaveGroupRequest(group_id=group_id, members=rows))
    response = await ask_coordinator(cluster, group_id, request, timeout_s)
    raise_if_moved(cluster, group_id, response.error_code)
    if response.error_code:
        raise failure(response.error_code, group_id)
    return {
        (row.member_id, row.group_instance_id): outcome(row.error_code, None, row.member_id or group_id)
        for row in response.members
    }


async def list_group_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[Partition] | None,
    timeout_s: float,
    require_stable: bool = False,
) -> list[TopicPartition]:
    """Return committed offsets; None asks for all of them."""
    request = offset_fetch_request(group_id, partitions, require_stable=require_stable)
    code, offsets = fetched_offsets(await ask_coordinator(cluster, group_id, request, timeout_s))
    raise_if_moved(cluster, group_id, code)
    if code:
        raise failure(code, group_id)
    return [
        TopicPartition(
            topic,
            number,
            row.offset if row.offset >= 0 else OFFSET_INVALID,
            row.metadata or None,
            row.leader_epoch if row.leader_epoch >= 0 else None,
            error_of(row.error_code) if row.error_code else None,
        )
        for (topic, number), row in offsets.items()
    ]


async def alter_group_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[Partition, CommittedOffset], timeout_s: float
) -> list[TopicPartition]:
    """Commit offsets for a group without active members."""
    request = offset_commit_request(group_id, offsets)
    results = commit_results(await ask_coordinator(cluster, group_id, request, timeout_s))
    for code in results.values():
        raise_if_moved(cluster, group_id, code)
    return [
        TopicPartition(topic, number, offsets[topic, number].offset, error=error_of(code) if code else None)
        for (topic, number), code in results.items()
    ]


async def delete_group_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[Partition], timeout_s: float
) -> list[TopicPartition]:
    """Delete committed offsets of these partitions."""
    topics = [
        OffsetDeleteRequestTopic(
            name=topic,
            partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
        )
        for topic, numbers in by_topic(partitions).items()
    ]
    request = OffsetDeleteRequest(group_id=group_id, topics=topics)
    response = await ask_coordinator(cluster, group_id, request, timeout_s)
    raise_if_moved(cluster, group_id, response.error_code)
    if response.error_code:
        raise failure(response.error_code, group_id)
    return [
        TopicPartition(
            topic.name, row.partition_index, error=error_of(row.error_code) if row.error_code else None
        )
        for topic in response.topics
        for row in topic.partitions
    ]
