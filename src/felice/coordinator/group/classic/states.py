"""The states of a classic group, and the allowed transitions."""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The values are the names that DescribeGroups and ListGroups print."""

    EMPTY = "Empty"
    """No members; there may be committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for the members' JoinGroup requests."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The JoinGroups are answered; waits for the leader's SyncGroup."""
    STABLE = "Stable"
    """Every member can fetch its assignment."""
    DEAD = "Dead"
    """Deleted, or coordinated by another broker now."""


PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
