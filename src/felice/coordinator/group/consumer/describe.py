"""ConsumerGroupDescribe (KIP-848): the members of a consumer group, with current and target assignments."""

from __future__ import annotations

from felice.coordinator.group.consumer.group import ConsumerGroup
from felice.coordinator.group.consumer.target import preferred_assignor
from felice.coordinator.group.modern.reconciliation import Partitions
from felice.coordinator.group.modern.topics import Topics
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_describe import (
    MEMBER_TYPE_CLASSIC,
    MEMBER_TYPE_CONSUMER,
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)


def describe_consumer(
    group_id: str, group: ConsumerGroup | None, topics: Topics, assignors: tuple[str, ...]
) -> DescribedGroup:
    """`group` is None if the group does not exist, or is not a consumer group."""
    if group is None:
        return describe_missing(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch.epoch,
        assignment_epoch=group.target_epoch.epoch,
        assignor_name=preferred_assignor(group.members, assignors),
        members=[_member(group, member_id, topics) for member_id in group.members],
    )


def describe_missing(group_id: str, error: ErrorCode, message: str) -> DescribedGroup:
    """The row of a group that cannot be described."""
    return DescribedGroup(group_id=group_id, error_code=error, error_message=message)


def _member(group: ConsumerGroup, member_id: str, topics: Topics) -> Member:
    subscription, current = group.members[member_id], group.current(member_id)
    return Member(
        member_id=member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topics),
        subscribed_topic_regex=subscription.expression or None,
        assignment=_assignment(current.partitions, topics),
        target_assignment=_assignment(group.target(member_id), topics),
        member_type=MEMBER_TYPE_CONSUMER if subscription.classic is None else MEMBER_TYPE_CLASSIC,
    )


def _assignment(partitions: Partitions, topics: Topics) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topics.names[topic_id], partitions=sorted(has))
            for topic_id, has in partitions.items()
            if topic_id in topics.names  # a topic that was deleted meanwhile
        ]
    )
