"""Kafka's znode JSON, and the image made of it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from uuid import UUID

import pytest

from felice.metadata import ClusterImage, Create, Delete, Node, SetData, layout
from felice.metadata.image import ImageBuilder
from felice.metadata.layout import BrokerNode, Endpoint, ProducerIdBlock, StateNode, TopicNode
from felice.metadata.memory import MemoryEnsemble
from felice.metadata.watcher import Watcher
from felice.protocol.uuids import format_uuid, parse_uuid
from waiting import LIMIT_S

TOPIC_ID = UUID("3b1f8a52-6f8e-4c0d-9d5a-0f1e2d3c4b5a")


def test_topic_json_is_kafkas() -> None:
    node = TopicNode(TOPIC_ID, {0: (1, 2), 1: (2, 1)}, {}, {})
    value = json.loads(layout.encode_topic(node))
    assert value == {
        "version": 3,
        "topic_id": format_uuid(TOPIC_ID),
        "partitions": {"0": [1, 2], "1": [2, 1]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert layout.decode_topic(layout.encode_topic(node)) == node


def test_a_topic_written_before_topic_ids_is_read() -> None:
    assert layout.decode_topic(b'{"version":1,"partitions":{"0":[1]}}') == TopicNode(None, {0: (1,)}, {}, {})


def test_a_topic_id_prints_in_22_characters() -> None:
    text = format_uuid(TOPIC_ID)
    assert len(text) == 22
    assert parse_uuid(text) == TOPIC_ID


def test_state_broker_and_producer_block_are_read_back_unchanged() -> None:
    state = StateNode(1, 4, 2, (1, 2))
    assert layout.decode_state(layout.encode_state(state)) == state
    broker = BrokerNode(
        (Endpoint("PLAINTEXT", "h", 9092), Endpoint("IN", "::1", 9093)), {"PLAINTEXT": "PLAINTEXT"}, "r1", 7
    )
    assert layout.decode_broker(layout.encode_broker(broker)) == broker
    assert json.loads(layout.encode_broker(broker))["host"] == "h"
    block = ProducerIdBlock(1, 1000, 1999)
    assert layout.decode_producer_id_block(layout.encode_producer_id_block(block)) == block
    assert json.loads(layout.encode_producer_id_block(block))["block_start"] == "1000"


@pytest.mark.parametrize("name", ["orders", "a.b_c-d", "<default>", "user@host/x"])
def test_config_paths_name_their_entity(name: str) -> None:
    path = layout.broker_config_path(name)
    assert path.count("/") == 3
    assert layout.entity_of(path) == name


def _node(data: bytes, version: int = 0, created_zxid: int = 5) -> Node:
    return Node(data, version, created_zxid, created_zxid)


def _orders(partitions: int, version: int = 0) -> Node:
    return _node(
        layout.encode_topic(TopicNode(TOPIC_ID, dict.fromkeys(range(partitions), (1,)), {}, {})), version
    )


def _image_with_orders() -> ClusterImage:
    builder = ImageBuilder(ClusterImage())
    builder.put("/brokers/topics/orders", _orders(2))
    state = layout.encode_state(StateNode(1, 3, 1, (1,)))
    builder.put(layout.state_path("orders", 1), _node(state, 7))
    return builder.build()


def test_a_partition_without_state_has_no_leader() -> None:
    image = _image_with_orders()
    without = image.partition("orders", 0)
    assert without is not None
    assert (without.leader, without.leader_epoch, without.replicas) == (layout.NO_LEADER, -1, (1,))
    led = image.partition("orders", 1)
    assert led is not None
    assert (led.leader, led.leader_epoch, led.partition_epoch, led.isr) == (1, 3, 7, (1,))
    assert image.partition("orders", 2) is None
    assert image.partition("nothing", 0) is None


def test_an_image_never_changes_and_shares_unchanged_parts() -> None:
    first = _image_with_orders()
    builder = ImageBuilder(first)
    builder.put(
        "/brokers/topics/other", _node(layout.encode_topic(TopicNode(UUID(int=9), {0: (1,)}, {}, {})))
    )
    second = builder.build()
    assert "other" not in first.topics
    assert second.topics["orders"] is first.topics["orders"]
    assert second.topic_by_id(UUID(int=9)) is second.topics["other"]


def test_more_partitions_keep_the_leaders_of_the_old() -> None:
    builder = ImageBuilder(_image_with_orders())
    builder.put("/brokers/topics/orders", _orders(3, version=1))
    image = builder.build()
    assert [p.leader for p in image.topics["orders"].partitions] == [-1, 1, -1]


def test_a_topic_created_again_does_not_inherit_leaders() -> None:
    builder = ImageBuilder(_image_with_orders())
    builder.put(
        "/brokers/topics/orders",
        _node(layout.encode_topic(TopicNode(UUID(int=2), {0: (1,), 1: (1,)}, {}, {})), created_zxid=6),
    )
    image = builder.build()
    assert [p.leader for p in image.topics["orders"].partitions] == [-1, -1]
    assert image.topic_by_id(TOPIC_ID) is None


def _with(image: ClusterImage, *nodes: tuple[str, Node | None], is_complete: bool = False) -> ClusterImage:
    builder = ImageBuilder(image, is_complete=is_complete)
    for path, node in nodes:
        builder.put(path, node)
    return builder.build()


def test_a_topic_whose_deletion_is_pending_is_not_in_the_image() -> None:
    doom = (layout.pending_deletion_path("orders", TOPIC_ID), _node(b""))
    state = (layout.state_path("orders", 1), _node(layout.encode_state(StateNode(1, 3, 1, (1,))), 7))
    topic = layout.topic_path("orders")
    deleting = _with(_image_with_orders(), doom, (topic, _orders(0)), state)
    assert (deleting.topics, deleting.topic_names, deleting.pending_deletions) == (
        {},
        {},
        {"orders": TOPIC_ID},
    )
    assert not deleting.topic_faults
    assert _with(deleting, (doom[0], None), (topic, None)).pending_deletions == {}
    again = _with(deleting, (topic, _node(_orders(1).data, created_zxid=6)))
    assert (list(again.topics), again.pending_deletions) == (["orders"], {})


@pytest.mark.parametrize(
    "text",
    [
        b'{"version":3,"partitions":{}}',
        b'{"version":1,"partitions":{"0":[1],"1":[1]}}',
        b'{"version":1,"partitions":{"0":[1],"2":[1]}}',
        b'{"version":1,"partitions":{"0":[1]}}',
        b'{"version":1}',
        b"gibberish",
    ],
)
@pytest.mark.parametrize("is_complete", [False, True])
def test_a_topic_whose_node_is_damaged_keeps_its_last_known_state(text: bytes, is_complete: bool) -> None:
    before = _image_with_orders()
    topic = layout.topic_path("orders")
    state = layout.encode_state(StateNode(2, 4, 1, (2,)))
    broken = (topic, _node(text, version=1))
    image = _with(before, broken, (layout.state_path("orders", 1), _node(state, 8)), is_complete=is_complete)
    assert list(image.topic_faults) == ["orders"] and not image.pending_deletions
    held = image.topics["orders"]
    assert (held.topic_id, held.version, len(held.partitions)) == (TOPIC_ID, 0, 2)
    assert held.partitions[1].leader == 2, "its leadership goes on"
    mended = _with(image, (topic, _node(_orders(2).data, version=2)))
    assert not mended.topic_faults and mended.topics["orders"].version == 2
    assert mended.topics["orders"].partitions[1].leader == 2
    remade = _with(before, (topic, _node(text, created_zxid=9)))
    assert not remade.topics, "it is not the one that was known"


def test_the_topic_id_node_wins_over_the_id_in_the_topics_node() -> None:
    topic, id_node = layout.topic_path("orders"), (layout.topic_id_path("orders", TOPIC_ID), _node(b""))
    for other in (UUID(int=7), None):
        text = layout.encode_topic(TopicNode(other, {0: (1,)}, {}, {}))
        image = _with(ClusterImage(), id_node, (topic, _node(text, 1)))
        assert image.topics["orders"].topic_id == TOPIC_ID
        assert "its topic id is" in image.topic_faults["orders"]
    older = (id_node[0], _node(b"", created_zxid=4))
    text = layout.encode_topic(TopicNode(UUID(int=7), {0: (1,)}, {}, {}))
    image = _with(ClusterImage(), older, (topic, _node(text)))
    assert image.topics["orders"].topic_id == UUID(int=7), (
        "the id_node is of a topic that had the name before"
    )
    assert not image.topic_faults


def test_no_two_topics_have_one_id() -> None:
    copy, orders = layout.topic_path("copy"), layout.topic_path("orders")
    later = _node(_orders(2).data, created_zxid=6)
    for nodes in ([(copy, later), (orders, _orders(2))], [(orders, _orders(2)), (copy, later)]):
        image = _with(ClusterImage(), *nodes)
        assert list(image.topics) == ["orders"] and image.topic_names == {TOPIC_ID: "orders"}
        assert image.topic_faults == {"copy": "its topic id is that of orders"}
    # The topic-id node wins over the id in the topic's node.
    id_node = (layout.topic_id_path("copy", TOPIC_ID), _node(b"", created_zxid=6))
    image = _with(ClusterImage(), id_node, (copy, later), (orders, _orders(2)))
    assert list(image.topics) == ["copy"]


def test_the_watcher_follows_the_store() -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        store = ensemble.connect()
        for path in layout.PERSISTENT_PATHS:
            await store.create(path)
        await store.create(layout.CLUSTER_ID, layout.encode_cluster_id("abc"))
        seen: list[tuple[ClusterImage, ClusterImage]] = []
        watcher = Watcher(store, lambda old, new: seen.append((old, new)))
        await watcher.start()
        assert watcher.image.cluster_id == "abc"
        writer = ensemble.connect()
        await writer.multi(
            [
                Create(layout.topic_path("orders"), _orders(1).data),
                Create(layout.partitions_path("orders")),
                Create(layout.partition_path("orders", 0)),
                Create(layout.state_path("orders", 0), layout.encode_state(StateNode(1, 0, 1, (1,)))),
                Create(layout.topic_config_path("orders"), layout.encode_config({"retention.ms": "1"})),
            ]
        )
        assert await watcher.wait_until(lambda image: "orders" in image.topics, LIMIT_S)
        partition = watcher.image.partition("orders", 0)
        assert partition is not None
        assert partition.leader == 1
        assert watcher.image.topic_configs["orders"] == {"retention.ms": "1"}
        await writer.multi(
            [
                SetData(layout.topic_config_path("orders"), layout.encode_config({})),
                Delete(layout.state_path("orders", 0)),
                Delete(layout.partition_path("orders", 0)),
                Delete(layout.partitions_path("orders")),
                Delete(layout.topic_path("orders")),
            ]
        )
        assert await watcher.wait_until(lambda image: "orders" not in image.topics, LIMIT_S)
        assert watcher.image.topic_configs["orders"] == {}
        assert not await watcher.wait_until(lambda image: False, 0.01)
        assert all(new is later for (_, new), (later, _) in itertools.pairwise(seen))
        await watcher.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["billing", "a/b c", ".", "..", "<default>", "%2E", "ü"])
@pytest.mark.parametrize("path_of", [layout.client_metrics_path, layout.group_config_path])
def test_a_resource_known_by_its_configuration_exists_while_it_has_one(
    path_of: Callable[[str], str], name: str
) -> None:
    path = path_of(name)
    assert layout.entity_of(path) == name and path.count("/") == 3
    assert path.rpartition("/")[2] not in (".", "..")  # ZooKeeper refuses them
    image = _with(ClusterImage(), (path, _node(layout.encode_config({"a": "1"}))))
    assert image.config_at(path) == {"a": "1"}
    assert {**image.client_metrics, **image.group_configs} == {name: {"a": "1"}}
    for node in (None, _node(layout.encode_config({}))):
        without = _with(image, (path, node))
        assert (without.client_metrics, without.group_configs, without.config_at(path)) == ({}, {}, {})
