"""When a row about a topic is built again, and how much is kept."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from felice.metadata import BrokerImage, ClusterImage, PartitionImage, TopicImage
from felice.protocol.codec import encode, encode_element
from felice.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from felice.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from felice.protocol.primitives import UnencodableMessage
from felice.server.topics.topic_rows import TopicRows

VERSION = 9


def topic(name: str) -> TopicImage:
    return TopicImage(name, UUID(int=len(name)), (PartitionImage(0, (1,)),))


IMAGE = ClusterImage(topics={name: topic(name) for name in ("a", "bb", "ccc")})


class Asking:
    """Asks for rows, and counts those that were built."""

    def __init__(self, max_bytes: int = 1 << 20) -> None:
        self.rows = TopicRows(max_bytes)
        self.built = 0

    def ask(
        self, image: ClusterImage = IMAGE, name: str = "a", version: int = VERSION, key: str = "listener"
    ) -> MetadataResponseTopic:
        def build() -> MetadataResponseTopic:
            self.built += 1
            return MetadataResponseTopic(name=name, partitions=[MetadataResponsePartition(leader_id=7)])

        return self.rows.row(image, image.topics[name], MetadataResponse, version, key, build)


def test_a_row_is_built_once_for_each_version_and_key() -> None:
    asking = Asking()
    for _ in range(3):
        asking.ask()
        asking.ask(version=VERSION + 1)
        asking.ask(key="another listener")
    assert asking.built == 3


def test_a_row_is_built_again_after_its_topic_or_a_broker_changed() -> None:
    asking = Asking()
    asking.ask()
    changed = replace(IMAGE, topics={**IMAGE.topics, "a": topic("a")})
    asking.ask(changed)
    assert asking.built == 2
    asking.ask(replace(changed, brokers={1: BrokerImage(1, {}, None, 0)}))
    assert asking.built == 3


def test_a_row_is_kept_while_other_things_of_the_cluster_change() -> None:
    asking = Asking()
    asking.ask()
    asking.ask(replace(IMAGE, controller_id=5, topics={"a": IMAGE.topics["a"], "dddd": topic("dddd")}))
    assert asking.built == 1


def test_rows_of_deleted_topics_are_dropped() -> None:
    asking = Asking()
    asking.ask()
    one = asking.rows.size_bytes
    asking.ask(replace(IMAGE, topics={"bb": IMAGE.topics["bb"]}), "bb")
    assert asking.rows.size_bytes == pytest.approx(one, abs=10)


def test_the_topic_asked_for_first_is_dropped_when_there_is_no_room() -> None:
    asking = Asking(max_bytes=1200)  # two rows
    for name in ("a", "bb", "ccc"):
        asking.ask(name=name)
        assert asking.rows.size_bytes <= 1200
    asking.ask(name="ccc")
    asking.ask(name="bb")
    assert asking.built == 3
    asking.ask(name="a")
    assert asking.built == 4


def test_without_memory_every_row_is_new_and_may_be_changed() -> None:
    asking = Asking(max_bytes=0)
    first, second = asking.ask(), asking.ask()
    first.error_code = 3
    assert (asking.built, second.error_code) == (2, 0)


@pytest.mark.parametrize("version", [0, 8, 9, 13])
def test_an_encoded_row_gives_the_same_bytes_as_the_row(version: int) -> None:
    row = MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(replica_nodes=[1, 2])])
    expected = encode(MetadataResponse(topics=[row, row], controller_id=-1), version)
    encoded = encode_element(row, MetadataResponse, version)
    answer = MetadataResponse(topics=[encoded, row], controller_id=-1)  # type: ignore[list-item]
    assert encode(answer, version) == expected


def test_a_row_encoded_for_another_version_or_message_is_refused() -> None:
    row = encode_element(MetadataResponseTopic(name="t"), MetadataResponse, 9)
    with pytest.raises(UnencodableMessage, match="another message or version"):
        encode(MetadataResponse(topics=[row]), 10)  # type: ignore[list-item]
    with pytest.raises(UnencodableMessage, match="another message or version"):
        encode(DescribeTopicPartitionsResponse(topics=[row]), 0)  # type: ignore[list-item]
