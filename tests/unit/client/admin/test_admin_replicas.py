"""Leaders, reassignments and log directories through the admin client."""

from __future__ import annotations

import pytest

from felice.client import KafkaError, TopicPartition
from felice.client.admin import ElectionType, LogDirDescription, PartitionReassignment, ReplicaInLogDir
from felice.client.error import error_of, failure
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from felice.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)
from felice.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from felice.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from felice.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from unit.client.admin.exchange import TIMEOUT_MS, TIMEOUT_S, Exchange

LEADERS = [
    Exchange(
        "leaders of some partitions are elected",
        lambda admin: admin.elect_leaders(
            ElectionType.UNCLEAN,
            [TopicPartition("t", 2), TopicPartition("u", 0), TopicPartition("t", 1)],
            request_timeout=TIMEOUT_S,
        ),
        [
            ElectLeadersRequest(
                election_type=1,
                topic_partitions=[
                    TopicPartitions(topic="t", partitions=[2, 1]),
                    TopicPartitions(topic="u", partitions=[0]),
                ],
                timeout_ms=TIMEOUT_MS,
            )
        ],
        [
            ElectLeadersResponse(
                replica_election_results=[
                    ReplicaElectionResult(
                        topic="t",
                        partition_result=[
                            PartitionResult(partition_id=2),
                            PartitionResult(
                                partition_id=1, error_code=ErrorCode.ELECTION_NOT_NEEDED, error_message="why"
                            ),
                        ],
                    )
                ]
            )
        ],
        {
            TopicPartition("t", 2): None,
            TopicPartition("t", 1): error_of(ErrorCode.ELECTION_NOT_NEEDED, "t-1: why"),
        },
    ),
    Exchange(
        "leaders of all partitions are elected",
        lambda admin: admin.elect_leaders(ElectionType.PREFERRED, operation_timeout=62.5),
        [ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=62_500)],
        [ElectLeadersResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)],
        failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "elections"),
    ),
    Exchange(
        "partitions are reassigned, or keep their replicas",
        lambda admin: admin.alter_partition_reassignments(
            {("t", 2): (2, 1), ("u", 0): None, ("t", 1): [3]}, request_timeout=TIMEOUT_S
        ),
        [
            AlterPartitionReassignmentsRequest(
                timeout_ms=TIMEOUT_MS,
                topics=[
                    ReassignableTopic(
                        name="t",
                        partitions=[
                            ReassignablePartition(partition_index=2, replicas=[2, 1]),
                            ReassignablePartition(partition_index=1, replicas=[3]),
                        ],
                    ),
                    ReassignableTopic(
                        name="u", partitions=[ReassignablePartition(partition_index=0, replicas=None)]
                    ),
                ],
            )
        ],
        [
            AlterPartitionReassignmentsResponse(
                responses=[
                    ReassignableTopicResponse(
                        name="t",
                        partitions=[
                            ReassignablePartitionResponse(partition_index=2),
                            ReassignablePartitionResponse(
                                partition_index=1,
                                error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                                error_message="why",
                            ),
                        ],
                    ),
                    ReassignableTopicResponse(
                        name="u",
                        partitions=[
                            ReassignablePartitionResponse(
                                partition_index=0, error_code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
                            )
                        ],
                    ),
                ]
            )
        ],
        {
            ("t", 2): None,
            ("u", 0): failure(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "u-0"),
            ("t", 1): failure(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "t-1: why"),
        },
    ),
    Exchange(
        "a refused reassignment fails for all partitions",
        lambda admin: admin.alter_partition_reassignments({("t", 2): [1]}, request_timeout=62.5),
        [
            AlterPartitionReassignmentsRequest(
                timeout_ms=62_500,
                topics=[
                    ReassignableTopic(
                        name="t", partitions=[ReassignablePartition(partition_index=2, replicas=[1])]
                    )
                ],
            )
        ],
        [
            AlterPartitionReassignmentsResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="why"
            )
        ],
        {("t", 2): failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "reassignments: why")},
    ),
    Exchange(
        "reassignments in progress are listed",
        lambda admin: admin.list_partition_reassignments(request_timeout=TIMEOUT_S),
        [ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)],
        [
            ListPartitionReassignmentsResponse(
                topics=[
                    OngoingTopicReassignment(
                        name="t",
                        partitions=[
                            OngoingPartitionReassignment(
                                partition_index=2,
                                replicas=[1, 2, 3],
                                adding_replicas=[3],
                                removing_replicas=[1],
                            )
                        ],
                    )
                ]
            )
        ],
        {("t", 2): PartitionReassignment((1, 2, 3), (3,), (1,))},
    ),
    Exchange(
        "a list of reassignments is refused",
        lambda admin: admin.list_partition_reassignments(),
        [ListPartitionReassignmentsRequest(timeout_ms=60_000, topics=None)],
        [
            ListPartitionReassignmentsResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="why"
            )
        ],
        failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "reassignments: why"),
    ),
]

DIRECTORY = DescribeLogDirsResult(
    log_dir="/a",
    total_bytes=100,
    usable_bytes=40,
    stray_logs=["t-9.stray"],
    topics=[
        DescribeLogDirsTopic(
            name="t",
            partitions=[
                DescribeLogDirsPartition(partition_index=0, partition_size=7, offset_lag=1),
                DescribeLogDirsPartition(
                    partition_index=2, partition_size=8, offset_lag=2, is_future_key=True
                ),
            ],
        )
    ],
)
FAILED = DescribeLogDirsResult(log_dir="/b", error_code=ErrorCode.KAFKA_STORAGE_ERROR)
DESCRIBED = [
    LogDirDescription(
        "/a",
        None,
        [ReplicaInLogDir("t", 0, 7, 1, False), ReplicaInLogDir("t", 2, 8, 2, True)],
        100,
        40,
        ["t-9.stray"],
    ),
    LogDirDescription("/b", error_of(ErrorCode.KAFKA_STORAGE_ERROR, "/b"), [], -1, -1, []),
]

LOG_DIRS = [
    Exchange(
        "the log directories of all brokers are described",
        lambda admin: admin.describe_log_dirs(),
        [DescribeLogDirsRequest(topics=None)],
        [DescribeLogDirsResponse(results=[DIRECTORY, FAILED])],
        {1: DESCRIBED},
    ),
    Exchange(
        "only the given topics are described, and an unknown broker is an error",
        lambda admin: admin.describe_log_dirs([1, 7], ["t", "u", "no"], request_timeout=TIMEOUT_S),
        [
            DescribeLogDirsRequest(
                topics=[
                    DescribableLogDirTopic(topic="t", partitions=[0, 1, 2]),
                    DescribableLogDirTopic(topic="u", partitions=[0]),
                    DescribableLogDirTopic(topic="no", partitions=[]),
                ]
            )
        ],
        [DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)],
        {
            1: failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "log directories of broker 1"),
            7: failure(KafkaError._UNKNOWN_BROKER, "there is no broker 7"),
        },
    ),
    Exchange(
        "replicas move to other directories of a broker",
        lambda admin: admin.alter_replica_log_dirs(
            1, {("t", 2): "/a", ("u", 0): "/b", ("t", 0): "/a"}, request_timeout=TIMEOUT_S
        ),
        [
            AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path="/a", topics=[AlterReplicaLogDirTopic(name="t", partitions=[2, 0])]
                    ),
                    AlterReplicaLogDir(path="/b", topics=[AlterReplicaLogDirTopic(name="u", partitions=[0])]),
                ]
            )
        ],
        [
            AlterReplicaLogDirsResponse(
                results=[
                    AlterReplicaLogDirTopicResult(
                        topic_name="t",
                        partitions=[
                            AlterReplicaLogDirPartitionResult(partition_index=2),
                            AlterReplicaLogDirPartitionResult(
                                partition_index=0, error_code=ErrorCode.LOG_DIR_NOT_FOUND
                            ),
                        ],
                    ),
                    AlterReplicaLogDirTopicResult(
                        topic_name="u", partitions=[AlterReplicaLogDirPartitionResult(partition_index=0)]
                    ),
                ]
            )
        ],
        {("t", 2): None, ("u", 0): None, ("t", 0): failure(ErrorCode.LOG_DIR_NOT_FOUND, "t-0")},
    ),
    Exchange(
        "no replica moves on a broker that does not exist",
        lambda admin: admin.alter_replica_log_dirs(7, {("t", 2): "/a"}),
        [],
        [],
        {("t", 2): failure(KafkaError._UNKNOWN_BROKER, "there is no broker 7")},
    ),
]


@pytest.mark.parametrize("exchange", LEADERS + LOG_DIRS, ids=str)
def test_replicas(exchange: Exchange) -> None:
    assert exchange.perform() == exchange.expected
