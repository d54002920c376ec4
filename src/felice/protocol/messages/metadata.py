"""Metadata (key 3): brokers, topics, partitions and their leaders.

A request for all topics has an empty list in version 0 and None from version 1, where an empty list requests none.
Requests may name topics by id from version 12. Cluster authorised operations moved to DescribeCluster after
version 10.
"""

from __future__ import annotations

import uuid

from felice.protocol.schema import array, boolean, int16, int32, request, response, string, struct, uid

OPERATIONS_NOT_REQUESTED = -(2**31)
"""The value of `*_authorized_operations` if the request did not ask for them."""


@struct
class MetadataRequestTopic:
    """A topic by name, or from version 12 by id with name None."""

    topic_id: uuid.UUID = uid(versions="10+", ignorable=True)
    name: str | None = string(nullable="10+")


@request(api_key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    """From version 4 a request can forbid the creation of missing topics."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean(versions="4+", default=True)
    include_cluster_authorized_operations: bool = boolean(versions="8-10")
    include_topic_authorized_operations: bool = boolean(versions="8+")


@struct
class MetadataResponseBroker:
    """The address of a broker at the listener on which the request came."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(versions="1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    """`leader_id` is -1 while there is no leader."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(versions="7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, versions="5+", ignorable=True)


@struct
class MetadataResponseTopic:
    """`name` is None only when the request names an id that the broker does not know."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: uuid.UUID = uid(versions="10+", ignorable=True)
    is_internal: bool = boolean(versions="1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(versions="8+", default=OPERATIONS_NOT_REQUESTED)


@response(api_key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """A top-level error exists from version 13 (REBOOTSTRAP_REQUIRED)."""

    throttle_time_ms: int = int32(versions="3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(versions="2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32(versions="1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, may_be_encoded=True)
    cluster_authorized_operations: int = int32(versions="8-10", default=OPERATIONS_NOT_REQUESTED)
    error_code: int = int16(versions="13+", ignorable=True)
