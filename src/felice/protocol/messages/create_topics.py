"""CreateTopics (key 19).

From version 4, -1 partitions or replicas request the broker's defaults (KIP-464). From version 5 the response describes
the created topic, from version 7 with its id.
"""

from __future__ import annotations

import uuid

from felice.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    request,
    response,
    string,
    struct,
    uid,
)


@struct
class CreatableReplicaAssignment:
    """Replicas of one partition, the preferred leader first."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


@struct
class CreatableTopicConfig:
    """One config to set."""

    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class CreatableTopic:
    """With `assignments`, partitions and replicas must both be -1."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@request(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    """With `validate_only` the broker checks the request and creates nothing."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(versions="1+")


@struct
class CreatableTopicConfigs:
    """One config of the created topic."""

    name: str = string()
    value: str | None = string(nullable="5+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1, ignorable=True)
    is_sensitive: bool = boolean()


@struct
class CreatableTopicResult:
    """`configs` is None where the client may not see them, and `topic_config_error_code` says why."""

    name: str = string()
    topic_id: uuid.UUID = uid(versions="7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(versions="1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16(versions="5+", tag=0, ignorable=True)
    num_partitions: int = int32(versions="5+", default=-1, ignorable=True)
    replication_factor: int = int16(versions="5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, versions="5+", nullable="5+", ignorable=True
    )


@response(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    """Results, by topic."""

    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
