"""The coordinator's own decisions: its answers when there is no shard for a request."""

from __future__ import annotations

import random
from typing import Any, cast
from uuid import UUID

from begun_calls import at_once, under_way
from felice.config import BrokerConfig
from felice.coordinator.group.coordinator import GROUP_TOPIC, NO_NODE, Client, GroupCoordinator
from felice.coordinator.group.records import CommittedOffset, GroupRecordCodec, OffsetRecord
from felice.env import Environment
from felice.log.answers import AppendOrigin
from felice.metadata.image import ClusterImage, PartitionImage, TopicImage
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from felice.protocol.messages.list_groups import ListGroupsRequest
from felice.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from felice.records.builder import BatchBuilder
from unit.coordinator.fake_partition import FakeClock, FakePartition, FakePartitions
from waiting import let_run, until

CLIENT = Client(3, "client", "/host")


def image_of(*names: str) -> ClusterImage:
    partitions = (PartitionImage(0, (1,), leader=1, leader_epoch=0),)
    topics = {name: TopicImage(name, UUID(int=len(name)), partitions) for name in names}
    return ClusterImage(topics=topics, topic_names={topic.topic_id: topic.name for topic in topics.values()})


class World:
    def __init__(self, image: ClusterImage, partition: FakePartition, **options: str) -> None:
        config, _ = BrokerConfig.parse({name.replace("_", "."): text for name, text in options.items()})
        self.image = image
        self.created: list[str] = []
        env = Environment(cast("Any", FakeClock()), cast("Any", None), cast("Any", None), random.Random(1))
        self.coordinator = GroupCoordinator(
            lambda: config, env, FakePartitions({0: partition}), lambda: self.image, self.created.append
        )
        self.coordinator.start()

    async def until_loaded(self) -> None:
        await until(lambda: not self.coordinator.list(ListGroupsRequest()).error_code)


def loading_partition() -> FakePartition:
    partition = FakePartition(topic=GROUP_TOPIC)
    builder = BatchBuilder()
    builder.append(1, b"\0\x63", b"")
    partition.append(builder.build(), required_acks=-1, now_ms=0, origin=AppendOrigin.COORDINATOR)
    return partition


async def test_the_topic_is_created_with_the_first_lookup_of_a_coordinator() -> None:
    world = World(image_of(), FakePartition())
    assert world.coordinator.leader_of("g") == NO_NODE
    assert world.created == [GROUP_TOPIC]
    world.image = image_of(GROUP_TOPIC)
    assert world.coordinator.leader_of("g") == 1


async def test_a_heartbeat_while_the_log_is_loaded_is_no_error() -> None:
    """Java's consumer treats COORDINATOR_LOAD_IN_PROGRESS in a heartbeat as fatal; Kafka answers NONE."""
    world = World(image_of(GROUP_TOPIC), loading_partition())
    request = HeartbeatRequest(group_id="g", member_id="m", generation_id=1)
    assert world.coordinator.heartbeat(request).error_code == ErrorCode.NONE
    listing = world.coordinator.list(ListGroupsRequest())
    assert listing.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.coordinator.describe("g", CLIENT).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await world.until_loaded()
    assert world.coordinator.heartbeat(request).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_offsets_of_a_deleted_topic_do_not_count_for_a_new_one_of_its_name() -> None:
    """The broker may stop between a topic's deletion and the removal of its offsets; then the name is used again."""
    partition = FakePartition(topic=GROUP_TOPIC)
    builder = BatchBuilder()
    for topic, topic_id in (("t", UUID(int=99)), ("old", UUID(int=0)), ("same", UUID(int=4))):
        committed = CommittedOffset(7, topic_id=topic_id)
        builder.append(1, *GroupRecordCodec().encode(OffsetRecord("g", topic, 0, committed)))
    partition.append(builder.build(), required_acks=-1, now_ms=0, origin=AppendOrigin.COORDINATOR)
    world = World(image_of(GROUP_TOPIC, "t", "old", "same"), partition)
    await world.until_loaded()

    def fetched(version: int, **asked: Any) -> dict[str, int]:
        topics = None if asked == {} else [OffsetFetchRequestTopics(partition_indexes=[0], **asked)]
        request = OffsetFetchRequestGroup(group_id="g", topics=topics)
        group = at_once(world.coordinator.fetch(request, False, Client(version)))
        return {topic.name: topic.partitions[0].committed_offset for topic in group.topics}

    assert fetched(8, name="t") == {"t": -1}
    assert fetched(10, topic_id=UUID(int=1)) == {"": -1}
    assert fetched(8, name="same") == {"same": 7}
    assert fetched(8, name="old") == {"old": 7}  # written by a version without topic ids
    assert fetched(8) == fetched(10) == {"old": 7, "same": 7}


async def test_the_stop_answers_parked_requests() -> None:
    world = World(image_of(GROUP_TOPIC), FakePartition(topic=GROUP_TOPIC))
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    parked = under_way(world.coordinator.join(request, CLIENT))
    await let_run()
    assert not parked.done()
    world.coordinator.stop()
    assert (await parked).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
