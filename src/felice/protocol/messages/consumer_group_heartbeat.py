"""ConsumerGroupHeartbeat (key 68): a member of a group whose partitions the broker assigns (KIP-848).

The epoch of a request says what the member does: 0 joins, -1 leaves, -2 is a static member that will come back, and a
positive epoch is a heartbeat. A field that is None (the timeout: -1) has not changed since the last heartbeat. From
version 1 the member makes its own id, and may subscribe by a regular expression.
"""

from __future__ import annotations

import uuid

from felice.protocol.schema import array, int16, int32, nested, request, response, string, struct, uid


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[int] = array(int32)


@request(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """`topic_partitions` are the partitions that the member owns."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string(versions="1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)


@struct
class Assignment:
    """The partitions that a member may use now."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@response(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """Without an assignment, the member keeps the one that it has."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, nullable="0+")
