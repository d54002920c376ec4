"""DescribeGroups, ListGroups, DeleteGroups: the administrator's view of groups."""

from __future__ import annotations

from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.states import GroupState
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from felice.protocol.messages.list_groups import ListedGroup

CLASSIC_TYPE = "classic"
_NOT_FOUND_SINCE = 6


def describe(group: ClassicGroup) -> DescribedGroup:
    """Member metadata only of a Stable group. Assignments are the last ones until the next generation has its own."""
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.metadata(protocol),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def describe_missing(group_id: str, version: int) -> DescribedGroup:
    """Before version 6 a missing group is described as Dead, without an error."""
    described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= _NOT_FOUND_SINCE:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} not found."
    return described


def listed(group: ClassicGroup) -> ListedGroup:
    """The group's row in a ListGroups response."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_TYPE,
    )


def matches(row: ListedGroup, states: list[str], types: list[str]) -> bool:
    """An empty filter matches every group; case does not matter."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {group_type.lower() for group_type in types}
    return (not wanted_states or row.group_state.lower() in wanted_states) and (
        not wanted_types or row.group_type.lower() in wanted_types
    )


def check_delete(group: ClassicGroup) -> ErrorCode:
    """NONE if the group may be deleted: it has no members."""
    if group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def check_offset_delete(group: ClassicGroup) -> ErrorCode:
    """A consumer group may remove offsets of topics that it does not read; other groups do not tell what they read."""
    if group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is GroupState.EMPTY or group.is_consumer_type:
        return ErrorCode.NONE
    return ErrorCode.NON_EMPTY_GROUP
