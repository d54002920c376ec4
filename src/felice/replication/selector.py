"""Selects the replica that a consumer should read from (KIP-392). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from felice.replication.leader import Leader

NO_PREFERENCE = -1


def same_rack_replica(leader: Leader, racks: Mapping[int, str | None], rack: str, offset: int) -> int:
    """The in-sync replica in the consumer's rack with the most records.

    -1 stands for the leader: the consumer names no rack, the leader is in that rack, or no other replica there has
    `offset`. `racks` has the live brokers only.
    """
    if not rack or racks.get(leader.broker_id) == rack:
        return NO_PREFERENCE
    candidates = [
        (follower.log_end_offset, -replica)
        for replica, follower in leader.followers.items()
        if replica in leader.isr
        and racks.get(replica) == rack
        and follower.log_start_offset <= offset <= follower.log_end_offset
    ]
    return -max(candidates)[1] if candidates else NO_PREFERENCE
