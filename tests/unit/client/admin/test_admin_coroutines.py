"""`aio.Admin`: what its calls ask for without options, and with partitions that `AdminClient` cannot name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from felice.client.admin import (
    ConfigEntry,
    ConfigResource,
    ElectionType,
    FeatureUpdate,
    NewPartitions,
    NewTopic,
)
from felice.client.aio import Admin
from felice.protocol.messages import alter_configs as alter
from felice.protocol.messages import incremental_alter_configs as incremental
from felice.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from felice.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from felice.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from felice.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from felice.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from felice.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from felice.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from felice.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from felice.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from unit.client.fake_broker import FakeBroker

RESOURCE = ConfigResource("topic", "t", {"a": "1"}, incremental_configs=[ConfigEntry("a", "1")])
MINUTE_MS = 60_000
METADATA = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)

CALLS: list[tuple[Callable[[Admin], Awaitable[Any]], Any, Any]] = [
    (
        lambda admin: admin.create_topics([NewTopic("n", 1, 1)]),
        CreateTopicsRequest(
            topics=[CreatableTopic(name="n", num_partitions=1, replication_factor=1)], timeout_ms=MINUTE_MS
        ),
        CreateTopicsResponse(),
    ),
    (
        lambda admin: admin.delete_topics(["t"]),
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=MINUTE_MS),
        DeleteTopicsResponse(),
    ),
    (
        lambda admin: admin.create_partitions([NewPartitions("t", 4)]),
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=4, assignments=None)], timeout_ms=MINUTE_MS
        ),
        CreatePartitionsResponse(),
    ),
    (lambda admin: admin.describe_topics(["t"]), METADATA, None),
    (lambda admin: admin.metadata(["t"]), METADATA, None),
    (
        lambda admin: admin.metadata(),
        MetadataRequest(topics=None, allow_auto_topic_creation=False),
        None,
    ),
    (
        lambda admin: admin.describe_cluster(),
        MetadataRequest(topics=[], allow_auto_topic_creation=False),
        None,
    ),
    (
        lambda admin: admin.list_offsets({("t", 0): -1}),
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
            ],
        ),
        ListOffsetsResponse(),
    ),
    (
        lambda admin: admin.delete_records({("t", 0): 5}),
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=5)])
            ],
            timeout_ms=MINUTE_MS,
        ),
        DeleteRecordsResponse(),
    ),
    (
        lambda admin: admin.alter_configs([RESOURCE]),
        alter.AlterConfigsRequest(
            resources=[
                alter.AlterConfigsResource(
                    resource_type=2,
                    resource_name="t",
                    configs=[alter.AlterableConfig(name="a", value="1")],
                )
            ]
        ),
        alter.AlterConfigsResponse(),
    ),
    (
        lambda admin: admin.incremental_alter_configs([RESOURCE]),
        incremental.IncrementalAlterConfigsRequest(
            resources=[
                incremental.AlterConfigsResource(
                    resource_type=2,
                    resource_name="t",
                    configs=[incremental.AlterableConfig(name="a", value="1")],
                )
            ]
        ),
        incremental.IncrementalAlterConfigsResponse(),
    ),
    (
        lambda admin: admin.update_features([FeatureUpdate("f", 1)]),
        UpdateFeaturesRequest(
            timeout_ms=MINUTE_MS, feature_updates=[FeatureUpdateKey(feature="f", max_version_level=1)]
        ),
        UpdateFeaturesResponse(),
    ),
    (
        lambda admin: admin.elect_leaders(ElectionType.PREFERRED),
        ElectLeadersRequest(topic_partitions=None, timeout_ms=MINUTE_MS),
        ElectLeadersResponse(),
    ),
    (
        lambda admin: admin.elect_leaders(ElectionType.UNCLEAN, iter([("t", 1)])),
        ElectLeadersRequest(
            election_type=1,
            topic_partitions=[TopicPartitions(topic="t", partitions=[1])],
            timeout_ms=MINUTE_MS,
        ),
        ElectLeadersResponse(),
    ),
    (
        lambda admin: admin.list_partition_reassignments(),
        ListPartitionReassignmentsRequest(topics=None, timeout_ms=MINUTE_MS),
        ListPartitionReassignmentsResponse(),
    ),
    (
        lambda admin: admin.list_partition_reassignments([("t", 2), ("u", 0), ("t", 1)], 62.5),
        ListPartitionReassignmentsRequest(
            topics=[
                ListPartitionReassignmentsTopics(name="t", partition_indexes=[2, 1]),
                ListPartitionReassignmentsTopics(name="u", partition_indexes=[0]),
            ],
            timeout_ms=62_500,
        ),
        ListPartitionReassignmentsResponse(),
    ),
    (lambda admin: admin.list_consumer_groups(), ListGroupsRequest(), ListGroupsResponse()),
    (lambda admin: admin.list_groups(), ListGroupsRequest(), ListGroupsResponse()),
    (
        lambda admin: admin.describe_consumer_group("g"),
        DescribeGroupsRequest(groups=["g"]),
        DescribeGroupsResponse(groups=[DescribedGroup(group_state="Empty")]),
    ),
    (
        lambda admin: admin.list_consumer_group_offsets("g"),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
        OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g")]),
    ),
    (
        lambda admin: admin.list_consumer_group_offsets("g", iter([("t", 1)])),
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[1])]
                )
            ]
        ),
        OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g")]),
    ),
    (
        lambda admin: admin.list_transactions(),
        ListTransactionsRequest(duration_filter=-1),
        ListTransactionsResponse(),
    ),
]


@pytest.mark.parametrize(("call", "request_", "response"), CALLS)
async def test_requests_of_calls_without_options(
    call: Callable[[Admin], Awaitable[Any]], request_: Any, response: Any
) -> None:
    kind = type(request_)
    with FakeBroker({"t": 3, "u": 1}) as broker:
        if response is not None:
            broker.script(kind, response)
        async with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            await call(admin)
        assert broker.asked(kind) == [request_]


async def test_each_request_goes_to_the_broker_that_can_answer_it() -> None:
    with FakeBroker({"t": 3}) as controller, FakeBroker({"t": 3}) as leader:
        usual = controller.handlers[MetadataRequest]

        def both(request: MetadataRequest, version: int) -> MetadataResponse:
            response: MetadataResponse = usual(request, version)
            response.brokers.append(MetadataResponseBroker(node_id=2, host="127.0.0.1", port=leader.port))
            for topic in response.topics:
                topic.partitions[0].leader_id = 2
            return response

        controller.handlers[MetadataRequest] = leader.handlers[MetadataRequest] = both
        controller.script(CreateTopicsRequest, CreateTopicsResponse())
        async with Admin({"bootstrap.servers": controller.bootstrap}) as admin:
            await admin.create_topics([NewTopic("n", 1)])
            await admin.list_offsets({("t", 0): -1, ("t", 1): -1})
            leader.script(
                incremental.IncrementalAlterConfigsRequest, incremental.IncrementalAlterConfigsResponse()
            )
            await admin.incremental_alter_configs([ConfigResource("broker", "2")])
        for broker, partition in ((controller, 1), (leader, 0)):
            [asked] = broker.asked(ListOffsetsRequest)
            assert [row.partition_index for row in asked.topics[0].partitions] == [partition]
        assert len(controller.asked(CreateTopicsRequest)) == 1
        assert len(leader.asked(incremental.IncrementalAlterConfigsRequest)) == 1
