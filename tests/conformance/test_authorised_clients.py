"""Producers and consumers with the rights of their role: librdkafka and Felice's client, and what they report without.

The rules are those that `kafka-acls --producer` and `--consumer` make.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

import felice.client
from conformance.secured import ANONYMOUS, Secured, secured_felice
from conformance.topics import create_topic_over
from conformance.wire import unique_name
from felice.cli.acls import Rules, add, rules_of
from felice.client.admin import AdminClient
from waiting import wait_until

pytestmark = pytest.mark.felice_only

CLIENTS = pytest.mark.parametrize("client", [confluent_kafka, felice.client], ids=["librdkafka", "felice"])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_felice(tmp_path_factory.mktemp("clients") / "data") as found:
        yield found


@pytest.fixture
def topic(broker: Secured) -> str:
    broker.clear()
    return create_topic_over(broker.admin, unique_name("topic"))


def asked(**chosen: Any) -> Rules:
    """The options of `kafka-acls --add`."""
    nothing: Rules = {
        "topics": (),
        "groups": (),
        "transactional_ids": (),
        "delegation_tokens": (),
        "user_principals": (),
        "cluster": False,
        "pattern": "literal",
        "allow_principals": (ANONYMOUS,),
        "deny_principals": (),
        "allow_hosts": (),
        "deny_hosts": (),
        "operations": (),
        "producer": False,
        "consumer": False,
        "idempotent": False,
    }
    return {**nothing, **chosen}  # type: ignore[typeddict-item]


def grant(broker: Secured, **chosen: Any) -> None:
    """Adds rules with the login of the super user."""
    admin = AdminClient(
        {
            "bootstrap.servers": broker.admin_address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "secret",
        }
    )
    try:
        add(admin, rules_of(asked(**chosen)))
    finally:
        admin.close()


def polled(consumer: Any, within_s: float = 60) -> Any:
    """The next record or error of a consumer."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if (message := consumer.poll(0.2)) is not None:
            return message
    raise AssertionError("the consumer got nothing")


@CLIENTS
def test_the_rules_of_the_roles_are_enough(client: Any, broker: Secured, topic: str) -> None:
    name = unique_name("x")
    grant(broker, producer=True, topics=(topic,), transactional_ids=(name,))
    grant(broker, consumer=True, topics=(topic,), groups=("readers",))
    producer = client.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"value")
    consumer = client.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.subscribe([topic])
        producer.flush(60)
        # A member that is joining has an id and no generation yet, which the coordinator refuses.
        wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment())
        offsets = [client.TopicPartition(topic, 0, 0)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
        message = polled(consumer)
        assert message.error() is None, message.error()
        assert message.value() == b"value"
        consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()


@CLIENTS
def test_an_idempotent_producer_needs_nothing_but_its_topic(client: Any, broker: Secured, topic: str) -> None:
    grant(broker, producer=True, topics=(topic,))
    reports: list[Any] = []
    producer = client.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    producer.produce(topic, b"value", on_delivery=lambda error, message: reports.append(error))
    assert producer.flush(60) == 0
    assert reports == [None]


@CLIENTS
def test_a_producer_reports_the_topic_that_it_may_not_write(client: Any, broker: Secured, topic: str) -> None:
    grant(broker, topics=(topic,), operations=("Describe",))
    reports: list[int] = []
    producer = client.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": False})
    producer.produce(topic, b"value", on_delivery=lambda error, message: reports.append(error.code()))
    assert producer.flush(60) == 0
    assert reports == [client.KafkaError.TOPIC_AUTHORIZATION_FAILED]


@CLIENTS
def test_a_consumer_reports_what_it_lacks(client: Any, broker: Secured, topic: str) -> None:
    def first_error() -> int:
        consumer = client.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        consumer.subscribe([topic])
        try:
            message = polled(consumer)
            assert message.error() is not None
            return int(message.error().code())
        except client.KafkaException as error:
            return int(error.args[0].code())
        finally:
            consumer.close()

    grant(broker, topics=(topic,), operations=("Read",))
    assert first_error() == client.KafkaError.GROUP_AUTHORIZATION_FAILED
    broker.clear()
    grant(broker, groups=("readers",), operations=("Read",))
    assert first_error() == client.KafkaError.TOPIC_AUTHORIZATION_FAILED
