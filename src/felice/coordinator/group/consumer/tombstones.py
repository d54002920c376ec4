"""The records that remove members of a consumer group, or the whole group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from felice.coordinator.group.consumer.group import ConsumerGroup
from felice.coordinator.group.consumer.values import (
    ConsumerRecord,
    CurrentRecord,
    EpochRecord,
    ExpressionRecord,
    MemberRecord,
    MetadataRecord,
    TargetEpochRecord,
    TargetRecord,
)


def tombstones_of_member(group: ConsumerGroup, member_id: str) -> list[ConsumerRecord]:
    """The records that remove a member: its partitions, its target, and itself."""
    return [
        CurrentRecord(group.group_id, member_id, None),
        TargetRecord(group.group_id, member_id, None),
        MemberRecord(group.group_id, member_id, None),
    ]


def tombstones(group: ConsumerGroup) -> list[ConsumerRecord]:
    """The records that remove the whole group, without its offsets."""
    group_id = group.group_id
    records: list[ConsumerRecord] = []
    records += [CurrentRecord(group_id, member_id, None) for member_id in group.currents]
    records += [TargetRecord(group_id, member_id, None) for member_id in group.targets]
    records.append(TargetEpochRecord(group_id, None))
    records += [MemberRecord(group_id, member_id, None) for member_id in group.members]
    records += [ExpressionRecord(group_id, expression, None) for expression in group.expressions]
    return [*records, MetadataRecord(group_id), EpochRecord(group_id, None)]


def removal_of(group: ConsumerGroup, member_ids: Iterable[str]) -> list[ConsumerRecord]:
    """The records that remove members and regular expressions without a member, and increase the epoch by one."""
    records: list[ConsumerRecord] = []
    left = group.expression_users.copy()
    for member_id in member_ids:
        records += tombstones_of_member(group, member_id)
        expression = group.members[member_id].expression
        if expression:
            left[expression] -= 1
            if not left[expression] and expression in group.expressions:
                records.append(ExpressionRecord(group.group_id, expression, None))
    raised = replace(group.epoch, epoch=group.epoch.epoch + 1)
    return [*records, EpochRecord(group.group_id, raised)]


def unused_expression(group: ConsumerGroup, expression: str) -> list[ConsumerRecord]:
    """The record that removes the expression of a member that replaces it; none if other members use it."""
    if group.expression_users[expression] > 1 or expression not in group.expressions:
        return []
    return [ExpressionRecord(group.group_id, expression, None)]
