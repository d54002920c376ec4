"""Answers about metadata with rows that were kept equal those without, after any change of the image."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from begun_calls import at_once
from felice.metadata import ClusterImage, Node, layout
from felice.metadata.image import ImageBuilder
from felice.metadata.layout import BrokerNode, Endpoint, StateNode, TopicNode
from felice.protocol.codec import encode
from felice.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.server.handlers import describe_topic_partitions, metadata
from felice.server.services import Services
from felice.server.topics.topic_rows import TopicRows
from rooms import Client, context_with, rooms_of, with_room

NAMES = ("a", "b", "c", "__consumer_offsets")
LISTENERS = ("PLAINTEXT", "OTHER")


class Changes:
    """Random nodes of topics, partition states and brokers."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.image = ClusterImage(cluster_id="c", controller_id=1)
        self.zxid = 0

    def make(self) -> None:
        builder = ImageBuilder(self.image)
        for _ in range(self.source.randint(1, 3)):
            self.zxid += 1
            self.source.choice((self._topic, self._state, self._state, self._broker, self._grow))(builder)
        self.image = builder.build()

    def _node(self, data: bytes, created_zxid: int | None = None) -> Node:
        return Node(data, self.zxid, created_zxid or self.zxid, self.zxid)

    def _replicas(self) -> tuple[int, ...]:
        return tuple(self.source.sample((1, 2, 3), self.source.randint(1, 3)))

    def _topic(self, builder: ImageBuilder) -> None:
        name = self.source.choice(NAMES)
        partitions = {index: self._replicas() for index in range(self.source.randint(1, 5))}
        topic = layout.encode_topic(TopicNode(UUID(int=self.zxid), partitions, {}, {}))
        is_deleted = self.source.random() < 0.3
        builder.put(layout.topic_path(name), None)
        if not is_deleted:
            builder.put(layout.topic_path(name), self._node(topic))

    def _grow(self, builder: ImageBuilder) -> None:
        """One more partition, in the node that is there, and other replicas."""
        topic = self.image.topics.get(self.source.choice(NAMES))
        if topic is not None:
            partitions = {index: self._replicas() for index in range(len(topic.partitions) + 1)}
            node = layout.encode_topic(TopicNode(topic.topic_id, partitions, {}, {}))
            builder.put(layout.topic_path(topic.name), self._node(node, topic.created_zxid))

    def _state(self, builder: ImageBuilder) -> None:
        leader = self.source.choice((-1, 1, 2, 3))
        state = layout.encode_state(StateNode(leader, self.zxid, 1, self._replicas()))
        builder.put(
            layout.state_path(self.source.choice(NAMES), self.source.randint(0, 4)), self._node(state)
        )

    def _broker(self, builder: ImageBuilder) -> None:
        broker_id = self.source.choice((1, 2, 3))
        listeners = self.source.sample(LISTENERS, self.source.randint(0, 2))
        endpoints = tuple(Endpoint(name, "host", 9092 + self.source.randint(0, 3)) for name in listeners)
        node = self._node(layout.encode_broker(BrokerNode(endpoints, {}, None, 0)))
        builder.put(layout.broker_path(broker_id), node if listeners else None)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Services:
    options = {"max_request_partition_size_limit": "2000", "auto_create_topics_enable": "false"}
    return rooms_of(tmp_path_factory.mktemp("broker"), **options)


def answer(
    services: Services, asked: Any, image: ClusterImage, rows: TopicRows, version: int, listener: str
) -> bytes:
    watcher: Any = SimpleNamespace(image=image)
    services = with_room(replace(services, watcher=watcher), topics={"rows": rows})
    context = context_with(services, version, Client(listener))
    handler: Any = metadata if isinstance(asked, MetadataRequest) else describe_topic_partitions
    return encode(at_once(handler.handle(asked, context)), version)


def requests(source: random.Random, image: ClusterImage) -> list[tuple[Any, int]]:
    version = source.randint(1, 13)
    wants_operations = version >= 8 and source.random() < 0.5
    names = source.sample(NAMES, 2)
    topics = [MetadataRequestTopic(name=name) for name in names]
    if version >= 12 and image.topics:
        topics.append(MetadataRequestTopic(name=None, topic_id=source.choice(list(image.topic_names))))
    cursor = Cursor(topic_name=names[0], partition_index=source.randint(0, 6))
    return [
        (MetadataRequest(topics=None, include_topic_authorized_operations=wants_operations), version),
        (MetadataRequest(topics=topics, include_topic_authorized_operations=wants_operations), version),
        (DescribeTopicPartitionsRequest(response_partition_limit=source.randint(1, 8)), 0),
        (DescribeTopicPartitionsRequest(topics=[TopicRequest(name=names[0])], cursor=cursor), 0),
    ]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("max_bytes", [1 << 20, 3000])
def test_kept_rows_equal_new_ones_after_every_change(services: Services, seed: int, max_bytes: int) -> None:
    changes, kept = Changes(seed), TopicRows(max_bytes)
    for _ in range(60):
        changes.make()
        for asked, version in requests(changes.source, changes.image):
            for listener in LISTENERS:
                expected = answer(services, asked, changes.image, TopicRows(max_bytes=0), version, listener)
                assert answer(services, asked, changes.image, kept, version, listener) == expected
                assert kept.size_bytes <= max_bytes
