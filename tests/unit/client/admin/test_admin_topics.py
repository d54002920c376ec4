"""Topics and their records through the admin client: the requests, and the results by topic and partition."""

from __future__ import annotations

import time
import uuid

import pytest

from felice.client import OFFSET_END, KafkaError, TopicPartition
from felice.client.admin import (
    AclOperation,
    AdminClient,
    DeletedRecords,
    IsolationLevel,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    Node,
    OffsetSpec,
    TopicCollection,
    TopicDescription,
    TopicPartitionInfo,
)
from felice.client.error import failure
from felice.client.model import Uuid
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from felice.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from felice.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from felice.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from unit.client.admin.exchange import TIMEOUT_MS, TIMEOUT_S, Exchange, broker_ranges
from unit.client.fake_broker import FakeBroker

NEW = [
    NewTopic("t", 3, 2, config={"retention.ms": 5, "cleanup.policy": None}),
    NewTopic("u", 7, 7, replica_assignment=[[1, 2], [2, 1]]),
]
CREATED = [
    CreatableTopicResult(name="t"),
    CreatableTopicResult(name="u", error_code=ErrorCode.INVALID_PARTITIONS, error_message="why"),
]


def creation(timeout_ms: int, validate_only: bool) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="t",
                num_partitions=3,
                replication_factor=2,
                configs=[
                    CreatableTopicConfig(name="retention.ms", value="5"),
                    CreatableTopicConfig(name="cleanup.policy", value=None),
                ],
            ),
            # The assignment decides both numbers.
            CreatableTopic(
                name="u",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2]),
                    CreatableReplicaAssignment(partition_index=1, broker_ids=[2, 1]),
                ],
            ),
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


TOPICS = [
    Exchange(
        "topics are created",
        lambda admin: admin.create_topics(NEW, request_timeout=TIMEOUT_S),
        [creation(TIMEOUT_MS, False)],
        [CreateTopicsResponse(topics=CREATED)],
        {"t": None, "u": failure(ErrorCode.INVALID_PARTITIONS, "u: why")},
    ),
    Exchange(
        "the operation's timeout goes before the request's",
        lambda admin: admin.create_topics(NEW, 3.0, TIMEOUT_S, validate_only=True),
        [creation(3000, True)],
        [CreateTopicsResponse(topics=CREATED)],
        {"t": None, "u": failure(ErrorCode.INVALID_PARTITIONS, "u: why")},
    ),
    Exchange(
        "a minute is the time limit of a call without another",
        lambda admin: admin.create_topics(NEW),
        [creation(60_000, False)],
        [CreateTopicsResponse(topics=CREATED[:1])],
        {"t": None, "u": None},
    ),
    Exchange(
        "topics are deleted",
        lambda admin: admin.delete_topics(["t", "u"], request_timeout=TIMEOUT_S),
        [
            DeleteTopicsRequest(
                topics=[DeleteTopicState(name="t"), DeleteTopicState(name="u")], timeout_ms=TIMEOUT_MS
            )
        ],
        [
            DeleteTopicsResponse(
                responses=[
                    DeletableTopicResult(name="t", error_code=ErrorCode.POLICY_VIOLATION),
                    DeletableTopicResult(name="u"),
                ]
            )
        ],
        {"t": failure(ErrorCode.POLICY_VIOLATION, "t"), "u": None},
    ),
    Exchange(
        "brokers before version 6 of DeleteTopics get names",
        lambda admin: admin.delete_topics(["t"], 62.5),
        [DeleteTopicsRequest(topic_names=["t"], timeout_ms=62_500)],
        [DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])],
        {"t": None},
        ranges=broker_ranges({20: (1, 5)}),
    ),
    Exchange(
        "partitions are added",
        lambda admin: admin.create_partitions(
            [NewPartitions("t", 4), NewPartitions("u", 3, [[1], [2]])], request_timeout=TIMEOUT_S
        ),
        [
            CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(name="t", count=4, assignments=None),
                    CreatePartitionsTopic(
                        name="u",
                        count=3,
                        assignments=[
                            CreatePartitionsAssignment(broker_ids=[1]),
                            CreatePartitionsAssignment(broker_ids=[2]),
                        ],
                    ),
                ],
                timeout_ms=TIMEOUT_MS,
            )
        ],
        [
            CreatePartitionsResponse(
                results=[
                    CreatePartitionsTopicResult(name="t"),
                    CreatePartitionsTopicResult(
                        name="u", error_code=ErrorCode.INVALID_PARTITIONS, error_message="why"
                    ),
                ]
            )
        ],
        {"t": None, "u": failure(ErrorCode.INVALID_PARTITIONS, "u: why")},
    ),
    Exchange(
        "new partitions are only validated",
        lambda admin: admin.create_partitions([NewPartitions("t", 4)], 62.5, TIMEOUT_S, validate_only=True),
        [
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="t", count=4, assignments=None)],
                timeout_ms=62_500,
                validate_only=True,
            )
        ],
        [CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t")])],
        {"t": None},
    ),
    Exchange(
        "offsets are listed by their specification",
        lambda admin: admin.list_offsets(
            {
                TopicPartition("t", 0): OffsetSpec.earliest(),
                TopicPartition("t", 1): OffsetSpec.latest(),
                TopicPartition("u", 0): OffsetSpec.max_timestamp(),
                TopicPartition("t", 2): OffsetSpec.for_timestamp(77),
                TopicPartition("t", 9): OffsetSpec.latest(),
            },
            isolation_level=IsolationLevel.READ_COMMITTED,
        ),
        [
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=1,
                topics=[
                    ListOffsetsTopic(
                        name="t",
                        partitions=[
                            ListOffsetsPartition(partition_index=0, timestamp=-2),
                            ListOffsetsPartition(partition_index=1, timestamp=-1),
                            ListOffsetsPartition(partition_index=2, timestamp=77),
                        ],
                    ),
                    ListOffsetsTopic(
                        name="u", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-3)]
                    ),
                ],
            )
        ],
        [
            ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name="t",
                        partitions=[
                            ListOffsetsPartitionResponse(
                                partition_index=0, offset=5, timestamp=70, leader_epoch=3
                            ),
                            ListOffsetsPartitionResponse(
                                partition_index=1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                            ),
                            ListOffsetsPartitionResponse(partition_index=2, offset=6),
                        ],
                    ),
                    ListOffsetsTopicResponse(
                        name="u", partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=7)]
                    ),
                ]
            )
        ],
        {
            TopicPartition("t", 0): ListOffsetsResultInfo(5, 70, 3),
            TopicPartition("t", 1): failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t-1"),
            TopicPartition("u", 0): ListOffsetsResultInfo(7, -1, -1),
            TopicPartition("t", 2): ListOffsetsResultInfo(6, -1, -1),
            TopicPartition("t", 9): failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t-9"),
        },
    ),
    Exchange(
        "readers of offsets see uncommitted records unless they say otherwise",
        lambda admin: admin.list_offsets({TopicPartition("u", 0): OffsetSpec.latest()}),
        [
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=[
                    ListOffsetsTopic(
                        name="u", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
                    )
                ],
            )
        ],
        [
            ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name="u", partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=7)]
                    ),
                ]
            )
        ],
        {TopicPartition("u", 0): ListOffsetsResultInfo(7, -1, -1)},
    ),
    Exchange(
        "records are deleted up to an offset",
        lambda admin: admin.delete_records(
            [TopicPartition("t", 2, 40), TopicPartition("t", 1, OFFSET_END), TopicPartition("no", 0, 1)],
            request_timeout=TIMEOUT_S,
        ),
        [
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name="t",
                        partitions=[
                            DeleteRecordsPartition(partition_index=2, offset=40),
                            DeleteRecordsPartition(partition_index=1, offset=-1),
                        ],
                    )
                ],
                timeout_ms=TIMEOUT_MS,
            )
        ],
        [
            DeleteRecordsResponse(
                topics=[
                    DeleteRecordsTopicResult(
                        name="t",
                        partitions=[
                            DeleteRecordsPartitionResult(
                                partition_index=2, error_code=ErrorCode.POLICY_VIOLATION
                            ),
                            DeleteRecordsPartitionResult(partition_index=1, low_watermark=50),
                        ],
                    )
                ]
            )
        ],
        {
            TopicPartition("t", 2, 40): failure(ErrorCode.POLICY_VIOLATION, "t-2"),
            TopicPartition("t", 1, OFFSET_END): DeletedRecords(50),
            TopicPartition("no", 0, 1): failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no-0"),
        },
    ),
    Exchange(
        "the operation's timeout limits the deletion of records",
        lambda admin: admin.delete_records([TopicPartition("u", 0, 4)], operation_timeout=62.5),
        [
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name="u", partitions=[DeleteRecordsPartition(partition_index=0, offset=4)]
                    )
                ],
                timeout_ms=62_500,
            )
        ],
        [
            DeleteRecordsResponse(
                topics=[
                    DeleteRecordsTopicResult(
                        name="u",
                        partitions=[DeleteRecordsPartitionResult(partition_index=0, low_watermark=4)],
                    )
                ]
            )
        ],
        {TopicPartition("u", 0, 4): DeletedRecords(4)},
    ),
]

T_ID = uuid.UUID(int=5 << 64 | 6)
ALLOWED = 1 << AclOperation.READ.value | 1 << AclOperation.DESCRIBE.value
DESCRIBED = MetadataResponse(
    brokers=[
        MetadataResponseBroker(node_id=1, host="localhost", port=9092, rack="r"),
        MetadataResponseBroker(node_id=2, host="localhost", port=9093),
    ],
    controller_id=2,
    cluster_id="cluster",
    topics=[
        MetadataResponseTopic(
            name="t",
            topic_id=T_ID,
            is_internal=True,
            partitions=[
                MetadataResponsePartition(
                    partition_index=0, leader_id=2, leader_epoch=4, replica_nodes=[1, 2, 8], isr_nodes=[2, 8]
                ),
                MetadataResponsePartition(partition_index=1, leader_id=-1, replica_nodes=[1], isr_nodes=[]),
            ],
            topic_authorized_operations=ALLOWED,
        ),
        MetadataResponseTopic(name="u", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
ASKED = [MetadataRequestTopic(name="t"), MetadataRequestTopic(name="u")]
ONE, TWO, UNKNOWN = Node(1, "localhost", 9092, "r"), Node(2, "localhost", 9093), Node(8, "", -1)


def description(operations: list[AclOperation] | None) -> TopicDescription:
    partitions = [
        TopicPartitionInfo(0, TWO, [ONE, TWO, UNKNOWN], [TWO, UNKNOWN]),
        TopicPartitionInfo(1, None, [ONE], []),
    ]
    return TopicDescription("t", Uuid(5, 6), True, partitions, operations)


DESCRIPTIONS = [
    Exchange(
        "topics are described with their brokers",
        lambda admin: admin.describe_topics(TopicCollection(["t", "u"])),
        [MetadataRequest(topics=ASKED, allow_auto_topic_creation=False)],
        [DESCRIBED],
        {"t": description(None), "u": failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED)},
    ),
    Exchange(
        "topics are described with the operations that are allowed on them",
        lambda admin: admin.describe_topics(["t", "u"], include_authorized_operations=True),
        [
            MetadataRequest(topics=ASKED, allow_auto_topic_creation=False),
            MetadataRequest(
                topics=ASKED, allow_auto_topic_creation=False, include_topic_authorized_operations=True
            ),
        ],
        [DESCRIBED, DESCRIBED],
        {
            "t": description([AclOperation.READ, AclOperation.DESCRIBE]),
            "u": failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        },
    ),
    Exchange(
        "brokers before version 8 of Metadata do not report operations",
        lambda admin: admin.describe_topics(["t"], include_authorized_operations=True),
        [MetadataRequest(topics=ASKED[:1], allow_auto_topic_creation=False)],
        [MetadataResponse(brokers=DESCRIBED.brokers, topics=[MetadataResponseTopic(name="t")])],
        {"t": failure(KafkaError._UNSUPPORTED_FEATURE, "the broker does not report authorized operations")},
        ranges=broker_ranges({3: (0, 7)}),
    ),
]


@pytest.mark.parametrize("exchange", TOPICS + DESCRIPTIONS, ids=str)
def test_topics(exchange: Exchange) -> None:
    assert exchange.perform() == exchange.expected


def test_an_operation_timeout_of_zero_lets_the_broker_answer_at_once_and_limits_no_call() -> None:
    def slowly(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
        time.sleep(0.3)
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="n")])

    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.handlers[CreateTopicsRequest] = slowly
        futures = admin.create_topics([NewTopic("n", 1)], operation_timeout=0)
        assert futures["n"].result(60) is None
    [asked] = broker.asked(CreateTopicsRequest)
    assert asked.timeout_ms == 0
