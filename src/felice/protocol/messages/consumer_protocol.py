"""What consumers of a group tell each other through the coordinator, which passes it on unread.

Each stands in the bytes with its version in front (`codec.encode_data`). A reader takes a newer version for the
newest it knows. The generation from version 2 lets sticky assignors tell stale claims, the rack from version 3
lets them place by rack.
"""

from __future__ import annotations

from felice.protocol.schema import array, binary, data, int32, string, struct

PROTOCOL_TYPE = "consumer"


@struct
class AssignedTopic:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@data(versions="0-3")
class ConsumerProtocolSubscription:
    """What a member wants, and what it owns already."""

    topics: list[str] = array(string)
    user_data: bytes | None = binary(nullable="0+", default=None)
    owned_partitions: list[AssignedTopic] = array(AssignedTopic, versions="1+", ignorable=True)
    generation_id: int = int32(versions="2+", default=-1, ignorable=True)
    rack_id: str | None = string(versions="3+", nullable="3+", default=None, ignorable=True)


@data(versions="0-3")
class ConsumerProtocolAssignment:
    """What a member gets."""

    assigned_partitions: list[AssignedTopic] = array(AssignedTopic)
    user_data: bytes | None = binary(nullable="0+", default=None)
