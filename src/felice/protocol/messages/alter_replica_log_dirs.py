"""AlterReplicaLogDirs (key 34): moves replicas of one broker from one of its log directories to another (KIP-113)."""

from __future__ import annotations

from felice.protocol.schema import array, int16, int32, request, response, string, struct


@struct
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(int32)


@struct
class AlterReplicaLogDir:
    """One target directory, by its absolute path, and the replicas to move there."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@request(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """The replicas to move, by target directory."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@struct
class AlterReplicaLogDirPartitionResult:
    """Whether the move of one replica began."""

    partition_index: int = int32()
    error_code: int = int16()


@struct
class AlterReplicaLogDirTopicResult:
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@response(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """One entry for each topic."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
