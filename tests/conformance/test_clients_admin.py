"""Topics and groups from creation to deletion, with the admin client of every ecosystem."""

from collections.abc import Callable
from typing import Any

import confluent_kafka
import confluent_kafka.admin as confluent_admin
import kafka
import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic

from conformance.group_calls import commit, find_coordinator
from conformance.targets import Target
from conformance.topics import batch_of, produce
from conformance.wire import unique_name
from peers.clients import Clients
from waiting import LIMIT_S, wait_until

BEFORE = {"listed": True, "retention": "123456", "partitions": 3, "nodes": 1}
AFTER = {
    "altered": "54321",
    "latest": 5,
    "earliest": 2,
    "grouped": True,
    "state": "Empty",
    "committed": 3,
    "left": False,
}

Facts = dict[str, Any]
Administer = Callable[[str, str, str, str], Facts]


def confluent(bootstrap: str, topic: str, group: str, phase: str) -> Facts:
    admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
    if phase == "before":
        return confluent_before(admin, topic)
    return confluent_after(admin, topic, group)


def only(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(LIMIT_S)


def confluent_config(admin: Any, topic: str, name: str) -> str:
    resource = confluent_admin.ConfigResource(confluent_admin.ResourceType.TOPIC, topic)
    return str(only(admin.describe_configs([resource]))[name].value)


def confluent_before(admin: Any, topic: str) -> Facts:
    only(admin.create_topics([confluent_admin.NewTopic(topic, 2, 1, config={"retention.ms": "123456"})]))
    facts: Facts = {
        "listed": topic in admin.list_topics(timeout=LIMIT_S).topics,
        "retention": confluent_config(admin, topic, "retention.ms"),
    }
    change = confluent_admin.ConfigEntry(
        "max.message.bytes", "54321", incremental_operation=confluent_admin.AlterConfigOpType.SET
    )
    resource = confluent_admin.ConfigResource(
        confluent_admin.ResourceType.TOPIC, topic, incremental_configs=[change]
    )
    only(admin.incremental_alter_configs([resource]))
    only(admin.create_partitions([confluent_admin.NewPartitions(topic, 3)]))
    described = only(admin.describe_topics(confluent_kafka.TopicCollection([topic])))
    facts["partitions"] = len(described.partitions)
    facts["nodes"] = len(admin.describe_cluster().result(LIMIT_S).nodes)
    return facts


def confluent_after(admin: Any, topic: str, group: str) -> Facts:
    altered = confluent_config(admin, topic, "max.message.bytes")
    first = confluent_kafka.TopicPartition(topic, 0)
    latest = only(admin.list_offsets({first: confluent_admin.OffsetSpec.latest()}))
    only(admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 2)]))
    earliest = only(admin.list_offsets({first: confluent_admin.OffsetSpec.earliest()}))
    listed = [row.group_id for row in admin.list_consumer_groups().result(LIMIT_S).valid]
    state = only(admin.describe_consumer_groups([group])).state
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
    offsets = only(admin.list_consumer_group_offsets([asked])).topic_partitions
    only(admin.delete_consumer_groups([group]))
    only(admin.delete_topics([topic]))
    return {
        "altered": altered,
        "latest": latest.offset,
        "earliest": earliest.offset,
        "grouped": group in listed,
        "state": state.name.capitalize(),
        "committed": offsets[0].offset,
        "left": topic in admin.list_topics(timeout=LIMIT_S).topics,
    }


def kafka_python(bootstrap: str, topic: str, group: str, phase: str) -> Facts:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        return (
            kafka_python_before(admin, topic)
            if phase == "before"
            else kafka_python_after(admin, topic, group)
        )
    finally:
        admin.close()


def kafka_python_config(admin: Any, topic: str, name: str) -> str:
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return str(find_value(described, name))


def find_value(tree: Any, name: str) -> Any:
    """The value next to a config's name, however deep kafka-python nests it."""
    if isinstance(tree, dict):
        if tree.get("name") == name and "value" in tree:
            return tree["value"]
        if name in tree:
            return tree[name]["value"] if isinstance(tree[name], dict) else tree[name]
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ()
    return next((found for child in children if (found := find_value(child, name)) is not None), None)


def kafka_python_before(admin: Any, topic: str) -> Facts:
    admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "123456"})])
    facts: Facts = {
        "listed": topic in admin.list_topics(),
        "retention": kafka_python_config(admin, topic, "retention.ms"),
    }
    admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, configs={"max.message.bytes": "54321"})]
    )
    admin.create_partitions({topic: NewPartitions(3)})
    facts["partitions"] = len(admin.describe_topics([topic])[0]["partitions"])
    facts["nodes"] = len(admin.describe_cluster()["brokers"])
    return facts


def kafka_python_after(admin: Any, topic: str, group: str) -> Facts:
    altered = kafka_python_config(admin, topic, "max.message.bytes")
    first = kafka.TopicPartition(topic, 0)
    with_offsets = kafka.KafkaConsumer(bootstrap_servers=admin.config["bootstrap_servers"])
    try:
        latest = with_offsets.end_offsets([first])[first]
        admin.delete_records({first: 2})
        earliest = with_offsets.beginning_offsets([first])[first]
    finally:
        with_offsets.close()
    grouped = group in str(admin.list_groups())
    described = admin.describe_groups([group])
    offsets = admin.list_group_offsets(group)
    admin.delete_groups([group])
    admin.delete_topics([topic])
    return {
        "altered": altered,
        "latest": latest,
        "earliest": earliest,
        "grouped": grouped,
        "state": "Empty" if "Empty" in str(described) else str(described),
        "committed": committed_of(offsets, first),
        "left": topic in admin.list_topics(),
    }


def committed_of(offsets: Any, partition: Any) -> int:
    rows = offsets[next(iter(offsets))] if partition not in offsets else offsets
    return int(rows[partition].offset)


def through_pipe(clients: Clients, name: str) -> Administer:
    return clients.pipe(name).administer


@pytest.mark.parametrize("name", ["confluent-kafka", "kafka-python", "java", "franz-go", "kafkajs"])
def test_every_admin_client_creates_changes_and_deletes_a_topic(
    broker: Target, clients: Clients, name: str
) -> None:
    own: dict[str, Administer] = {"confluent-kafka": confluent, "kafka-python": kafka_python}
    administer = own.get(name) or through_pipe(clients, name)
    topic, group = unique_name(f"admin-{name}"), unique_name("admin-group")
    seen = administer(broker.bootstrap, topic, group, "before")
    assert seen == BEFORE
    with broker.wire() as wire:
        wait_until(lambda: produce(wire, topic, batch_of(*[b"v"] * 5)).error_code == 0)
        find_coordinator(wire, group)
        assert commit(wire, topic, 3, group_id=group) == 0
    assert administer(broker.bootstrap, topic, group, "after") == AFTER
