"""The data that consumers of a group exchange through the coordinator, which does not read it.

The bytes begin with the version (`codec.encode_data`). A reader decodes a newer version as the newest that it knows.
The generation, from version 2, lets sticky assignors recognise stale ownership; the rack, from version 3, lets them
assign by rack.
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
    """A member's subscription: the topics that it wants, and the partitions that it owns."""

    topics: list[str] = array(string)
    user_data: bytes | None = binary(nullable="0+", default=None)
    owned_partitions: list[AssignedTopic] = array(AssignedTopic, versions="1+", ignorable=True)
    generation_id: int = int32(versions="2+", default=-1, ignorable=True)
    rack_id: str | None = string(versions="3+", nullable="3+", default=None, ignorable=True)


@data(versions="0-3")
class ConsumerProtocolAssignment:
    """A member's assignment: the partitions that it gets."""

    assigned_partitions: list[AssignedTopic] = array(AssignedTopic)
    user_data: bytes | None = binary(nullable="0+", default=None)
