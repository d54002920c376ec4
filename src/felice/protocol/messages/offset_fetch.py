"""OffsetFetch (key 9): the committed offsets of groups.

A request has one group up to version 7, several from version 8. A request for all topics has None: as `topics` in
versions 2 to 7, as `topics` of a group from version 8. Version 10 names topics by id.
"""

from __future__ import annotations

import uuid

from felice.protocol.schema import array, boolean, int16, int32, int64, request, response, string, struct, uid


@struct
class OffsetFetchRequestTopic:
    """The requested partitions of a topic, up to version 7."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@struct
class OffsetFetchRequestTopics:
    """The requested partitions of a topic, from version 8."""

    name: str = string(versions="8-9", ignorable=True)
    topic_id: uuid.UUID = uid(versions="10+", ignorable=True)
    partition_indexes: list[int] = array(int32)


@struct
class OffsetFetchRequestGroup:
    """One group, with the member epoch of the new consumer protocol."""

    group_id: str = string()
    member_id: str | None = string(versions="9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32(versions="9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable="8+")


@request(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    """With `require_stable` a partition has an error while an open transaction may change its offset (KIP-447)."""

    group_id: str = string(versions="0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, versions="0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, versions="8+")
    require_stable: bool = boolean(versions="7+")


@struct
class OffsetFetchResponsePartition:
    """An offset of -1 means that none is committed. Up to version 7."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(versions="5-7", default=-1, ignorable=True)
    metadata: str | None = string(nullable="0-7")
    error_code: int = int16()


@struct
class OffsetFetchResponseTopic:
    """Offsets of one topic, up to version 7."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@struct
class OffsetFetchResponsePartitions:
    """An offset of -1 means that none is committed. From version 8."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, ignorable=True)
    metadata: str | None = string(nullable="8+")
    error_code: int = int16()


@struct
class OffsetFetchResponseTopics:
    """Offsets of one topic, from version 8."""

    name: str = string(versions="8-9", ignorable=True)
    topic_id: uuid.UUID = uid(versions="10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


@struct
class OffsetFetchResponseGroup:
    """Offsets of one group."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


@response(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    """Version 1 has no error of its own: each partition has it."""

    throttle_time_ms: int = int32(versions="3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, versions="0-7")
    error_code: int = int16(versions="2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, versions="8+")
