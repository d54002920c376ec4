"""Every public call of the clients that takes a list refuses a text, and what else cannot be a list, before it sends
anything. The calls are found by their annotations, so that a new call is covered.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

import felice.client
import felice.testing
from felice.client import aio
from felice.client.blocking import BlockingClient

# Nobody listens there: a call that is not refused would wait or fail otherwise.
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
CLASSES = [
    felice.client.Consumer,
    felice.client.Producer,
    felice.client.AdminClient,
    felice.client.SerializingProducer,
    felice.client.DeserializingConsumer,
    aio.AIOConsumer,
    aio.AIOProducer,
    aio.Consumer,
    aio.Producer,
    aio.Admin,
    BlockingClient,
    felice.testing.Broker,
    felice.testing.Cluster,
    felice.testing.AsyncBroker,
]
LIST = re.compile(r"\b(list|Iterable|Sequence|Mapping)\[")


def calls_with_lists() -> Iterator[Any]:
    for cls in CLASSES:
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if name.startswith("_") and (name != "__init__" or cls not in (felice.testing.Broker,)):
                continue
            for parameter in inspect.signature(method).parameters.values():
                annotation = str(parameter.annotation)
                if LIST.search(annotation) and "Callable" not in annotation:
                    yield pytest.param(
                        method, parameter.name, annotation, id=f"{cls.__module__}.{cls.__name__}.{name}"
                    )


CALLS = list(calls_with_lists())


def refused(method: Any, name: str, given: object) -> None:
    """Call the method, with `given` as this parameter and without anything that could send."""
    others = {
        one.name: None
        for one in inspect.signature(method).parameters.values()
        if one.default is one.empty and one.name not in ("self", name) and one.kind is not one.VAR_KEYWORD
    }
    with pytest.raises(TypeError) as caught:
        result = method(object(), **others, **{name: given})
        if inspect.isawaitable(result):
            asyncio.run(result)  # type: ignore[arg-type]
    assert name in str(caught.value)


def test_the_calls_are_found() -> None:
    assert len(CALLS) > 100


@pytest.mark.parametrize(("method", "name", "annotation"), CALLS)
@pytest.mark.parametrize("text", ["Q7", b"Q7", bytearray(b"Q7"), memoryview(b"Q7"), "", 7])
def test_a_text_is_not_a_list(method: Any, name: str, annotation: str, text: object) -> None:
    refused(method, name, text)


@pytest.mark.parametrize(("method", "name", "annotation"), CALLS)
def test_none_stands_for_no_list_only_where_it_is_named(method: Any, name: str, annotation: str) -> None:
    if "| None" not in annotation.rpartition("]")[2]:
        refused(method, name, None)
    if "Mapping[" not in annotation:
        refused(method, name, {"Q7": 1})


@pytest.mark.parametrize(("method", "name", "annotation"), CALLS)
@pytest.mark.parametrize("given", [("x",), {"x"}, iter(["x"]), {}.keys()])
def test_where_confluent_kafka_needs_a_list_nothing_else_is_one(
    method: Any, name: str, annotation: str, given: object
) -> None:
    if annotation.startswith("list["):
        refused(method, name, given)


@pytest.mark.parametrize(("method", "name", "annotation"), CALLS)
def test_items_of_another_type_are_refused(method: Any, name: str, annotation: str) -> None:
    if "Mapping[" in annotation or "dict" in annotation or "[object]" in annotation:
        return
    refused(method, name, [None])
    refused(method, name, [3.5])


def test_delete_topics_with_a_text_deletes_nothing() -> None:
    with felice.client.AdminClient(NOWHERE) as admin:
        for text in ("Q7", b"Q7"):
            with pytest.raises(TypeError, match="topics: expected a list, not"):
                admin.delete_topics(text)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            admin.describe_topics("Q7")
        with pytest.raises(TypeError):
            felice.client.TopicCollection("Q7")
        with pytest.raises(TypeError):
            felice.client.ConsumerGroupTopicPartitions("g", "Q7")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="expected a list, not str"):
            admin.alter_partition_reassignments({("t", 0): "12"})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="expected a list of int, not of str"):
            admin.alter_partition_reassignments({("t", 0): ["1"]})  # type: ignore[list-item]


@pytest.mark.parametrize(("method", "name", "annotation"), CALLS)
@pytest.mark.parametrize("key", ["t7", b"t7", ("t", "7"), (b"t", 7), ("t",), ("t", 7, 0), 7, None, ("t7",)])
def test_a_key_is_a_partition_of_a_topic(method: Any, name: str, annotation: str, key: object) -> None:
    if "Mapping[Partition" in annotation or "Mapping[TopicPartition" in annotation:
        refused(method, name, {key: 0})


def test_keys_are_found() -> None:
    assert sum("Partition, " in annotation for _, _, annotation in (one.values for one in CALLS)) > 6


@pytest.mark.parametrize("kafka", [felice.client, confluent_kafka])
@pytest.mark.parametrize(
    "values",
    [
        {"replica_assignment": "0"},
        {"replica_assignment": ["0"]},
        {"replica_assignment": [["0"]]},
        {"replica_assignment": [0]},
        {"config": ["ab"]},
        {"config": "ab"},
        {"topic": 5},
        {"topic": b"t"},
        {"num_partitions": "1"},
        {"replication_factor": "1"},
    ],
)
def test_both_clients_refuse_a_new_topic_that_cannot_be_one(kafka: Any, values: dict[str, Any]) -> None:
    of_admin = importlib.import_module(f"{kafka.__name__}.admin")
    admin = of_admin.AdminClient(NOWHERE)
    with pytest.raises((TypeError, ValueError)):
        admin.create_topics([of_admin.NewTopic(**{"topic": "t", "num_partitions": 1} | values)])


@pytest.mark.parametrize("kafka", [felice.client, confluent_kafka])
@pytest.mark.parametrize("given", ["t7", ["t7"], [("t", 7)], [None]])
def test_both_clients_refuse_partitions_that_are_none(kafka: Any, given: Any) -> None:
    of_admin = importlib.import_module(f"{kafka.__name__}.admin")
    admin = of_admin.AdminClient(NOWHERE)
    with pytest.raises((TypeError, ValueError)):
        admin.list_consumer_group_offsets([kafka.ConsumerGroupTopicPartitions("g", given)])
    with pytest.raises((TypeError, ValueError)):
        admin.create_partitions([of_admin.NewPartitions("t", 3, replica_assignment=given)])
    with pytest.raises(TypeError):
        resource = of_admin.ConfigResource("topic", "t", incremental_configs=given)
        admin.incremental_alter_configs([resource])
    for topic, number in ((b"t", 0), ("t", "0"), (None, 0), ("t", 1.5)):
        with pytest.raises(TypeError):
            kafka.TopicPartition(topic, number)


def test_values_of_configurations_may_be_numbers() -> None:
    topic = felice.client.NewTopic("t", 1, 1, config={"retention.ms": 5000})  # type: ignore[dict-item]
    assert topic.config == {"retention.ms": 5000}
    assert felice.client.NewTopic("t", replica_assignment=((0, 1),)).replica_assignment == [[0, 1]]


@pytest.mark.parametrize("kafka", [felice.client, confluent_kafka])
@pytest.mark.parametrize("given", ["Q7", b"Q7", ("Q7",), {"Q7"}, {"Q7": 1}, iter(["Q7"]), None])
def test_both_clients_refuse_what_is_not_a_list(kafka: Any, given: Any) -> None:
    consumer = kafka.Consumer(NOWHERE | {"group.id": "g"})
    try:
        for call in (
            consumer.subscribe,
            consumer.assign,
            consumer.pause,
            consumer.committed,
            consumer.position,
        ):
            with pytest.raises(TypeError):
                call(given)
        for empty in ([], [""]):
            with pytest.raises(kafka.KafkaException):
                consumer.subscribe(empty)
        admin = importlib.import_module(f"{kafka.__name__}.admin").AdminClient(NOWHERE)
        with pytest.raises(TypeError):
            admin.delete_topics(given)
    finally:
        consumer.close()


def test_a_checked_coroutine_function_is_still_one() -> None:
    """Mocks with the specification of a class, and frameworks, ask for this."""
    coroutines = [
        method
        for method, _, _ in (param.values for param in CALLS)
        if inspect.iscoroutinefunction(inspect.unwrap(method))
    ]
    assert coroutines
    assert [method.__qualname__ for method in coroutines if not inspect.iscoroutinefunction(method)] == []
