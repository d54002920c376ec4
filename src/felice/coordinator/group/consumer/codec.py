"""The records of consumer groups in Kafka's format, both ways.

Keeps true:  Kafka and its tools can read every record that Felice writes, and Felice reads the records of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from felice.coordinator.group.consumer.values import (
    ClassicProtocols,
    ConsumerRecord,
    CurrentRecord,
    Epoch,
    EpochRecord,
    ExpressionRecord,
    MemberRecord,
    MetadataRecord,
    ResolvedExpression,
    Subscription,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
    shared_topics,
)
from felice.coordinator.group.modern.reconciliation import Assigned, Current, MemberState, Partitions
from felice.protocol.codec import decode_data, encode_data
from felice.protocol.messages.consumer_group_heartbeat import TopicPartitions
from felice.protocol.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
)
from felice.protocol.primitives import MalformedMessage

V = TypeVar("V")


def encode_consumer(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """Key and value; no value is a tombstone."""
    match record:
        case EpochRecord(group_id, epoch):
            return _pair(ConsumerGroupMetadataKey(group_id=group_id), epoch, _epoch_value)
        case MetadataRecord(group_id):
            return encode_data(ConsumerGroupPartitionMetadataKey(group_id=group_id)), None
        case MemberRecord(group_id, member_id, member):
            key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
            return _pair(key, member, _member_value)
        case TargetEpochRecord(group_id, target):
            return _pair(
                ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), target, _target_epoch_value
            )
        case TargetRecord(group_id, member_id, partitions):
            of_target = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
            return _pair(of_target, partitions, _target_value)
        case CurrentRecord(group_id, member_id, current):
            of_current = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
            return _pair(of_current, current, _current_value)
        case ExpressionRecord(group_id, expression, resolved):
            of_expression = ConsumerGroupRegularExpressionKey(
                group_id=group_id, regular_expression=expression
            )
            return _pair(of_expression, resolved, _expression_value)
    raise AssertionError(f"not a record of a consumer group: {record}")


def decode_consumer(record_type: int, key: bytes, value: bytes | None) -> ConsumerRecord | None:
    """The record; None for a value of type 4, which Kafka no longer uses. The type is one of `values.CONSUMER_TYPES`.

    Raises `MalformedMessage`.
    """
    match record_type:
        case 3:
            of_group = decode_data(ConsumerGroupMetadataKey, key)
            return EpochRecord(of_group.group_id, _read(value, _epoch))
        case 4:
            return None
        case 5:
            of_member = decode_data(ConsumerGroupMemberMetadataKey, key)
            return MemberRecord(of_member.group_id, of_member.member_id, _read(value, _member))
        case 6:
            of_target = decode_data(ConsumerGroupTargetAssignmentMetadataKey, key)
            return TargetEpochRecord(of_target.group_id, _read(value, _target_epoch))
        case 7:
            target = decode_data(ConsumerGroupTargetAssignmentMemberKey, key)
            return TargetRecord(target.group_id, target.member_id, _read(value, _target))
        case 8:
            current = decode_data(ConsumerGroupCurrentMemberAssignmentKey, key)
            return CurrentRecord(current.group_id, current.member_id, _read(value, _current))
    expression = decode_data(ConsumerGroupRegularExpressionKey, key)
    return ExpressionRecord(expression.group_id, expression.regular_expression, _read(value, _expression))


def _pair(key: object, value: V | None, encode: Callable[[V], object]) -> tuple[bytes, bytes | None]:
    return encode_data(key), None if value is None else encode_data(encode(value))


def _read(value: bytes | None, decode: Callable[[bytes], V]) -> V | None:
    return None if value is None else decode(value)


# Values, to the wire


def _epoch_value(epoch: Epoch) -> ConsumerGroupMetadataValue:
    return ConsumerGroupMetadataValue(epoch=epoch.epoch, metadata_hash=epoch.metadata_hash)


def _member_value(member: Subscription) -> ConsumerGroupMemberMetadataValue:
    classic = member.classic
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.expression,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        ),
    )


def _target_epoch_value(target: TargetEpoch) -> ConsumerGroupTargetAssignmentMetadataValue:
    return ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=target.epoch, assignment_timestamp=target.assigned_at_ms
    )


def _target_value(partitions: Partitions) -> ConsumerGroupTargetAssignmentMemberValue:
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(has)) for topic_id, has in partitions.items()
        ]
    )


def _current_value(current: Current) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=int(current.state),
        assigned_partitions=_with_epochs(current.assigned),
        partitions_pending_revocation=_with_epochs(current.pending),
    )


def _with_epochs(assigned: Assigned) -> list[CurrentTopicPartitions]:
    rows = []
    for topic_id, partitions in assigned.items():
        numbers = sorted(partitions)
        epochs = [partitions[number] for number in numbers]
        rows.append(CurrentTopicPartitions(topic_id=topic_id, partitions=numbers, assignment_epochs=epochs))
    return rows


def _expression_value(resolved: ResolvedExpression) -> ConsumerGroupRegularExpressionValue:
    return ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.resolved_at_ms
    )


# Values, from the wire


def _epoch(data: bytes) -> Epoch:
    value = decode_data(ConsumerGroupMetadataValue, data)
    return Epoch(value.epoch, value.metadata_hash)


def _member(data: bytes) -> Subscription:
    value = decode_data(ConsumerGroupMemberMetadataValue, data)
    classic: Any = value.classic_member_metadata
    return Subscription(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=shared_topics(value.subscribed_topic_names),
        expression=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        # A record without this field is decoded as a classic member without protocols. It is not a classic member.
        classic=ClassicProtocols(
            classic.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
        )
        if classic is not None and classic.supported_protocols
        else None,
    )


def _target_epoch(data: bytes) -> TargetEpoch:
    value = decode_data(ConsumerGroupTargetAssignmentMetadataValue, data)
    return TargetEpoch(value.assignment_epoch, value.assignment_timestamp)


def _target(data: bytes) -> Partitions:
    value = decode_data(ConsumerGroupTargetAssignmentMemberValue, data)
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def _current(data: bytes) -> Current:
    value = decode_data(ConsumerGroupCurrentMemberAssignmentValue, data)
    epoch = value.member_epoch
    try:
        state = MemberState(value.state)
    except ValueError as error:
        raise MalformedMessage("ConsumerGroupCurrentMemberAssignmentValue", "state", 0, str(error)) from error
    return Current(
        epoch,
        value.previous_member_epoch,
        state,
        _assigned(value.assigned_partitions, epoch),
        _assigned(value.partitions_pending_revocation, epoch),
    )


def _assigned(rows: Iterable[CurrentTopicPartitions], epoch: int) -> Assigned:
    """Brokers before 4.3 wrote no assignment epochs: for their records the member's epoch is used, which is safe."""
    found = {}
    for row in rows:
        epochs = row.assignment_epochs or [epoch] * len(row.partitions)
        if len(epochs) != len(row.partitions):
            raise MalformedMessage("CurrentTopicPartitions", "assignment_epochs", 0, "one for each partition")
        found[row.topic_id] = dict(zip(row.partitions, epochs, strict=True))
    return found


def _expression(data: bytes) -> ResolvedExpression:
    value = decode_data(ConsumerGroupRegularExpressionValue, data)
    return ResolvedExpression(frozenset(value.topics), value.version, value.timestamp)
