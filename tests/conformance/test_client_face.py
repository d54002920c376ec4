"""Our client with confluent_kafka's names: well-known programs run with only the import changed, and both clients
return the same.
"""

import uuid
from itertools import chain
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

import felice.client
import felice.client.admin
from conformance.targets import Target
from waiting import LIMIT_S, wait_until

BOTH = pytest.mark.parametrize("kafka", [felice.client, confluent_kafka], ids=["felice", "confluent"])


@pytest.fixture
def topic(broker: Target) -> str:
    name = f"face-{uuid.uuid4().hex[:8]}"
    with felice.client.AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topics([felice.client.NewTopic(name, 3)])[name].result(LIMIT_S)
    return name


def run_sample(kafka: Any, bootstrap: str, topic: str) -> tuple[list[str], list[str]]:
    """The producer and the consumer of confluent_kafka's README, one after the other."""
    delivered: list[str] = []
    consumed: list[str] = []

    # --- the sample, as it is known
    p = kafka.Producer({"bootstrap.servers": bootstrap})

    def delivery_report(err: Any, msg: Any) -> None:
        """Called once for each message produced to indicate delivery result."""
        if err is not None:
            delivered.append(f"Message delivery failed: {err}")
        else:
            delivered.append(f"Message delivered to {msg.topic()} [{msg.partition()}]")

    some_data_source = [f"message {number}" for number in range(30)]
    for data in some_data_source:
        # Trigger any available delivery report callbacks from previous produce() calls
        p.poll(0)
        p.produce(topic, data.encode("utf-8"), callback=delivery_report)
    # Wait for any outstanding messages to be delivered and delivery report callbacks to be triggered.
    p.flush()

    c = kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"mygroup-{kafka.__name__}",
            "auto.offset.reset": "earliest",
        }
    )
    c.subscribe([topic])
    quiet = 0
    while len(consumed) < 30 and quiet < LIMIT_S:
        msg = c.poll(1.0)
        if msg is None:
            quiet += 1
            continue
        if msg.error():
            consumed.append(f"Consumer error: {msg.error()}")
            continue
        consumed.append(msg.value().decode("utf-8"))
    c.close()
    # --- end of the sample
    return delivered, consumed


@BOTH
def test_sample_runs_with_only_the_import_changed(kafka: Any, broker: Target, topic: str) -> None:
    delivered, consumed = run_sample(kafka, broker.bootstrap, topic)
    assert len(delivered) == 30
    assert all(line.startswith(f"Message delivered to {topic} [") for line in delivered)
    assert sorted(consumed) == sorted(f"message {number}" for number in range(30))


@BOTH
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_both_clients_read_the_records_of_either(kafka: Any, codec: str, broker: Target, topic: str) -> None:
    producer = kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "enable.idempotence": True}
    )
    for number in range(200):
        producer.produce(
            topic,
            value=f"v{number}",
            key=f"k{number}",
            partition=1,
            timestamp=1000 + number,
            headers=[("h", b"x")],
        )
    assert producer.flush(LIMIT_S) == 0
    expected = [
        (number, f"k{number}".encode(), f"v{number}".encode(), (1, 1000 + number)) for number in range(200)
    ]
    for other in (felice.client, confluent_kafka):
        consumer = other.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.assign([other.TopicPartition(topic, 1, 0)])
        messages: list[Any] = []
        while len(messages) < 200:
            found = consumer.consume(200 - len(messages), LIMIT_S)
            assert found, f"{other.__name__} read {len(messages)}"
            messages += found
        consumer.close()
        assert [(m.offset(), m.key(), m.value(), m.timestamp()) for m in messages] == expected
        assert messages[0].headers() == [("h", b"x")]


def test_keys_go_to_the_partitions_of_librdkafkas_partitioners(broker: Target, topic: str) -> None:
    for partitioner in ("murmur2_random", "consistent_random", "fnv1a_random", "murmur2", "consistent"):
        placed: list[dict[bytes, int]] = []
        for kafka in (felice.client, confluent_kafka):
            where: dict[bytes, int] = {}

            def note(error: Any, message: Any, where: dict[bytes, int] = where) -> None:
                where[message.key()] = message.partition()

            producer: Any = kafka.Producer(
                {"bootstrap.servers": broker.bootstrap, "partitioner": partitioner}
            )
            for number in range(40):
                producer.produce(
                    topic,
                    b"",
                    key=b"key-%d" % number,
                    on_delivery=lambda e, m, w=where: w.update({m.key(): m.partition()}),
                )
            producer.flush(LIMIT_S)
            placed.append(where)
        assert len(placed[0]) == 40 and placed[0] == placed[1], partitioner


def ask_everything(kafka: Any, admin_module: Any, bootstrap: str, topic: str) -> dict[str, Any]:
    """Calls whose results must be the same in both clients."""
    group = f"answers-{topic}"
    consumer = kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    tp = kafka.TopicPartition
    consumer.assign([tp(topic, 0, 0)])
    messages = consumer.consume(6, LIMIT_S)
    answers = {
        "offsets": [message.offset() for message in messages],
        "errors": [message.error().code() if message.error() else None for message in messages],
        "position": consumer.position([tp(topic, 0)])[0].offset,
        "watermarks": consumer.get_watermark_offsets(tp(topic, 0), timeout=LIMIT_S),
        "by time": [
            row.offset
            for row in consumer.offsets_for_times([tp(topic, 0, 1002), tp(topic, 1, 10**12)], LIMIT_S)
        ],
        "uncommitted": consumer.committed([tp(topic, 0)], LIMIT_S)[0].offset,
        "commit": [row.offset for row in consumer.commit(message=messages[2], asynchronous=False)],
        "committed": consumer.committed([tp(topic, 0)], LIMIT_S)[0].offset,
        "topics": sorted(consumer.list_topics(topic, LIMIT_S).topics[topic].partitions),
        "nowhere": consumer.list_topics(f"{topic}-no", LIMIT_S).topics[f"{topic}-no"].error.code(),
        "member": consumer.memberid() or "",
    }
    consumer.seek(tp(topic, 0, 4))
    answers["after seek"] = consumer.poll(LIMIT_S).offset()
    consumer.close()
    admin = admin_module.AdminClient({"bootstrap.servers": bootstrap})
    again = admin.create_topics([admin_module.NewTopic(topic, 1)])[topic]
    answers["exists"] = again.exception(LIMIT_S).args[0].name()
    described = admin.describe_consumer_groups([group])[group].result(LIMIT_S)
    answers["group"] = (described.state.name, len(described.members))
    return answers


def test_both_clients_get_the_same_answers(broker: Target, topic: str) -> None:
    with felice.client.Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for number in range(5):
            producer.produce(topic, b"%d" % number, partition=0, timestamp=1000 + number)
    ours = ask_everything(felice.client, felice.client.admin, broker.bootstrap, topic)
    with felice.client.AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.delete_consumer_groups([f"answers-{topic}"])[f"answers-{topic}"].result(LIMIT_S)
    theirs = ask_everything(confluent_kafka, confluent_kafka.admin, broker.bootstrap, topic)
    assert ours == theirs
    assert ours["offsets"] == [0, 1, 2, 3, 4, 5]


def test_both_clients_share_one_group(broker: Target, topic: str) -> None:
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"shared-{topic}",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 60_000,
        "heartbeat.interval.ms": 200,
        "partition.assignment.strategy": "cooperative-sticky",
    }
    members: list[Any] = [felice.client.Consumer(config), confluent_kafka.Consumer(config)]
    for member in members:
        member.subscribe([topic])

    def shared() -> bool:
        for member in members:
            member.poll(0.05)
        shares = [sorted(tp.partition for tp in member.assignment()) for member in members]
        return all(shares) and sorted(chain(*shares)) == [0, 1, 2]

    wait_until(shared)
    for member in members:
        member.close()
