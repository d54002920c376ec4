"""Programs in the manner of confluent-kafka's examples: each runs with both packages and prints the same.

Only the module that a program is given differs, as only the import would in a program of its own.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import threading
import uuid
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

import felice.client
from conformance.targets import Target

Say = Callable[..., None]
TIMEOUT_S = 150


def sub(kafka: Any, name: str) -> Any:
    return importlib.import_module(f"{kafka.__name__}.{name}")


def outcome(say: Say, what: str, future: Any) -> Any:
    """The result of a future, or its error, as one line."""
    try:
        result = future.result(TIMEOUT_S)
    except Exception as error:
        say(what, "failed with", error.args[0].name())  # type: ignore[attr-defined]
        return None
    say(what, "done")
    return result


def administer(kafka: Any, bootstrap: str, name: str, say: Say) -> None:
    """Topics, partitions, configs, groups, offsets, records and access rules, one after the other."""
    from_admin = sub(kafka, "admin")
    admin = from_admin.AdminClient({"bootstrap.servers": bootstrap})
    for _, future in admin.create_topics(
        [from_admin.NewTopic(name, num_partitions=1, replication_factor=1)]
    ).items():
        outcome(say, "create", future)
    outcome(say, "create again", admin.create_topics([from_admin.NewTopic(name, 1, 1)])[name])
    outcome(say, "partitions", admin.create_partitions([from_admin.NewPartitions(name, 3)])[name])

    found = admin.list_topics(name, timeout=TIMEOUT_S)
    say("topic", sorted(found.topics[name].partitions), found.orig_broker_name is not None)
    described = admin.describe_topics(kafka.TopicCollection([name]), request_timeout=TIMEOUT_S)[name].result()
    say(described.name, described.is_internal, [len(part.replicas) for part in described.partitions])

    resource = from_admin.ConfigResource("topic", name)
    resource.set_config("retention.ms", "3600000")
    outcome(say, "alter", admin.alter_configs([resource])[resource])
    change = from_admin.ConfigEntry(
        "compression.type", "lz4", incremental_operation=from_admin.AlterConfigOpType.SET
    )
    changed = from_admin.ConfigResource(from_admin.ResourceType.TOPIC, name, incremental_configs=[change])
    outcome(say, "alter by increments", admin.incremental_alter_configs([changed])[changed])
    configs = admin.describe_configs([from_admin.ConfigResource("TOPIC", name)])
    for entries in (future.result(TIMEOUT_S) for future in configs.values()):
        for entry in (entries["retention.ms"], entries["compression.type"]):
            say(entry, from_admin.ConfigSource(entry.source).name, entry.is_default, entry.is_read_only)

    delta(kafka, admin, name, say)
    inspect_groups(kafka, admin, bootstrap, name, say)
    access_rules(kafka, admin, say)
    for topic, future in admin.delete_topics([name], operation_timeout=TIMEOUT_S).items():
        outcome(say, "delete" if topic == name else "?", future)


def delta(kafka: Any, admin: Any, name: str, say: Say) -> None:
    """Reads configs and writes them back with a change, from the callback of a future."""
    from_admin, done = sub(kafka, "admin"), threading.Event()
    resource = from_admin.ConfigResource("topic", name)
    resource.set_config("segment.bytes", "2000000")

    def write_back(future: Any) -> None:
        kept = {key: entry for key, entry in future.result().items() if not entry.is_default}
        for key in sorted(kept):
            resource.set_config(key, kept[key].value, overwrite=False)
        admin.alter_configs([resource])[resource].add_done_callback(finish)

    def finish(future: Any) -> None:
        say("delta", len(resource), future.exception())
        done.set()

    admin.describe_configs([resource])[resource].add_done_callback(write_back)
    assert done.wait(TIMEOUT_S)


def inspect_groups(kafka: Any, admin: Any, bootstrap: str, name: str, say: Say) -> None:
    from_admin, group = sub(kafka, "admin"), f"group-{name}"
    consumer = kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    consumer.subscribe([name], on_assign=lambda consumer, partitions: say("assigned", len(partitions)))
    while not consumer.assignment():
        consumer.poll(0.2)
    described = admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)[group].result()
    say(described.state.name, described.is_simple_consumer_group, described.partition_assignor)
    for member in described.members:
        say([tp.topic == name for tp in member.assignment.topic_partitions], member.group_instance_id)
    listed = admin.list_consumer_groups(states={kafka.ConsumerGroupState.STABLE}).result(TIMEOUT_S)
    say([row.state.name for row in listed.valid if row.group_id == group], listed.errors)
    consumer.close()
    wanted = kafka.ConsumerGroupTopicPartitions(group, [kafka.TopicPartition(name, 0, 7)])
    altered = outcome(say, "set offsets", admin.alter_consumer_group_offsets([wanted])[group])
    say([(tp.partition, tp.offset, tp.error) for tp in altered.topic_partitions])
    asked = admin.list_consumer_group_offsets([kafka.ConsumerGroupTopicPartitions(group)])
    say([(tp.partition, tp.offset) for tp in asked[group].result(TIMEOUT_S).topic_partitions])
    outcome(say, "delete group", admin.delete_consumer_groups([group])[group])
    tp = kafka.TopicPartition(name, 0)
    for spec in (
        from_admin.OffsetSpec.earliest(),
        from_admin.OffsetSpec.latest(),
        from_admin.OffsetSpec.max_timestamp(),
    ):
        found = admin.list_offsets({tp: spec}, isolation_level=kafka.IsolationLevel.READ_COMMITTED)
        say(found[tp].result(TIMEOUT_S).offset)
    deleted = admin.delete_records([kafka.TopicPartition(name, 0, kafka.OFFSET_END)])
    say([future.result(TIMEOUT_S).low_watermark for future in deleted.values()])


def access_rules(kafka: Any, admin: Any, say: Say) -> None:
    """A broker without an authorizer refuses access rules with the same text."""
    from_admin = sub(kafka, "admin")
    kind, pattern = from_admin.ResourceType.TOPIC, from_admin.ResourcePatternType
    operation, permission = from_admin.AclOperation, from_admin.AclPermissionType
    rule = from_admin.AclBinding(kind, "t", pattern.LITERAL, "User:u", "*", operation.READ, permission.ALLOW)
    for future in admin.create_acls([rule], request_timeout=TIMEOUT_S).values():
        outcome(say, "create rule", future)
    chosen = from_admin.AclBindingFilter(
        from_admin.ResourceType.ANY, None, pattern.ANY, None, None, operation.ANY, permission.ANY
    )
    # librdkafka takes the broker's refusal for an empty list.
    outcome(lambda *words: None, "find rules", admin.describe_acls(chosen))
    for future in admin.delete_acls([chosen]).values():
        outcome(say, "delete rules", future)
    try:
        from_admin.AclBinding(kind, "t", pattern.ANY, "User:u", "*", operation.READ, permission.ALLOW)
    except ValueError:
        say("a rule cannot have a pattern type of ANY")


def copy_exactly_once(kafka: Any, bootstrap: str, name: str, say: Say) -> None:
    """Reads a topic to its end, and writes the records and the offsets in transactions."""
    with kafka.Producer({"bootstrap.servers": bootstrap}) as first:
        for number in range(25):
            first.produce(name, b"%d" % number, key=b"k", partition=0)
        say("left", first.flush(TIMEOUT_S))
    copied = f"{name}-copy"
    admin = sub(kafka, "admin").AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([sub(kafka, "admin").NewTopic(copied, 1, 1)])[copied].result(TIMEOUT_S)
    consumer = kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"eos-{name}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([kafka.TopicPartition(name, 0)])
    producer = kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": f"eos-{name}"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    taken = 0
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().code() == kafka.KafkaError._PARTITION_EOF
            break
        producer.produce(copied, message.value(), message.key())
        taken += 1
        if taken % 10 == 0:
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
            )
            producer.commit_transaction()
            producer.begin_transaction()
    # Without it, librdkafka may abort before the broker has added the partition, because the commit before still writes
    # its markers. A broker answers INVALID_TXN_STATE to that, and librdkafka counts it as fatal.
    producer.flush(TIMEOUT_S)
    producer.abort_transaction()
    committed = consumer.committed([kafka.TopicPartition(name, 0)], timeout=TIMEOUT_S)
    say(taken, [tp.offset for tp in committed])
    low, high = consumer.get_watermark_offsets(kafka.TopicPartition(name, 0), timeout=TIMEOUT_S)
    say("watermarks", low, high)
    consumer.assign([kafka.TopicPartition(copied, 0, kafka.OFFSET_BEGINNING)])
    values: list[bytes] = []
    while len(values) < 20:
        values += [found.value() for found in consumer.consume(100, 0.5) if found.error() is None]
    say(values == [b"%d" % number for number in range(20)])
    consumer.close()


def produce_and_watch(kafka: Any, bootstrap: str, name: str, say: Say) -> None:
    """A consumer with a logger, statistics and topic defaults; a producer whose reports count."""
    reports: list[str] = []
    producer = kafka.Producer(**{"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(
            name,
            f"line {number}",
            headers={"n": str(number)},
            callback=lambda error, message: reports.append(f"{message.topic() == name} {error}"),
        )
        producer.poll(0)
    say(producer.flush(TIMEOUT_S), sorted(set(reports)), len(reports))
    statistics: list[Any] = []
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": f"watch-{name}",
        "session.timeout.ms": 60_000,
        "default.topic.config": {"auto.offset.reset": "smallest"},
        "stats_cb": lambda text: statistics.append(json.loads(text)),
        "statistics.interval.ms": 100,
    }
    with kafka.Consumer(config, logger=logging.getLogger("watch")) as consumer:
        consumer.subscribe([name])
        values = []
        while len(values) < 10 or not statistics:
            message = consumer.poll(timeout=0.5)
            if message is not None and not message.error():
                values.append((message.value(), message.headers()))
        say(sorted(values)[0], len(values), statistics[0]["type"])


def run_on_the_loop(kafka: Any, bootstrap: str, name: str, say: Say) -> None:
    """Both asyncio clients at once, with callbacks that are coroutine functions."""
    aio, seen = sub(kafka, "aio"), []

    async def on_statistics(text: str) -> None:
        seen.append(json.loads(text)["type"])

    async def on_error(error: Any) -> None:
        say("error", error)

    def common(**keys: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": bootstrap,
            "error_cb": on_error,
            "stats_cb": on_statistics,
            "statistics.interval.ms": 100,
            **{key.replace("_", "."): value for key, value in keys.items()},
        }

    async def write() -> None:
        producer = aio.AIOProducer(common(transactional_id=f"aio-{name}"), max_workers=5)
        await producer.init_transactions()
        await producer.begin_transaction()
        futures = [
            await producer.produce(topic=name, key=f"k{n}", value=f"v{n}", partition=0) for n in range(20)
        ]
        await producer.flush()
        messages = await asyncio.gather(*futures)
        await producer.commit_transaction()
        say(sorted(message.offset() for message in messages) == list(range(20)))
        await producer.close()

    async def read() -> None:
        consumer = aio.AIOConsumer(
            common(
                group_id=f"aio-{name}",
                auto_offset_reset="earliest",
                enable_auto_commit="false",
                enable_auto_offset_store="false",
                partition_assignment_strategy="cooperative-sticky",
            )
        )

        async def on_assign(consumer: Any, partitions: Any) -> None:
            await consumer.incremental_assign(partitions)
            await consumer.pause(partitions)
            await consumer.resume(partitions)

        async def on_revoke(consumer: Any, partitions: Any) -> None:
            await consumer.position(partitions)

        await consumer.subscribe([name], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
        count = 0
        while count < 20 or not seen:
            message = await consumer.poll(1.0)
            if message is not None and message.error() is None:
                await consumer.store_offsets(message=message)
                count += 1
        await consumer.commit(asynchronous=False)
        await consumer.unsubscribe()
        found = await consumer.committed([kafka.TopicPartition(name, 0)], timeout=TIMEOUT_S)
        # A transaction of one partition ends with a marker that takes an offset of its own.
        say(count, [tp.offset in (20, 21) for tp in found])
        await consumer.close()

    async def both() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(write(), read())

    asyncio.run(both())


PROGRAMS = [administer, copy_exactly_once, produce_and_watch, run_on_the_loop]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program_prints_the_same_with_both_packages(program: Any, broker: Target) -> None:
    printed: list[list[str]] = []
    for kafka in (felice.client, confluent_kafka):
        name = f"program-{uuid.uuid4().hex[:8]}"
        lines: list[str] = []

        def say(*words: Any, lines: list[str] = lines, name: str = name) -> None:
            lines.append(" ".join(map(str, words)).replace(name, "NAME"))

        if program is not administer:
            with felice.client.AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
                admin.create_topics([felice.client.NewTopic(name, 1)])[name].result(TIMEOUT_S)
        program(kafka, broker.bootstrap, name, say)
        printed.append(lines)
    assert printed[0] == printed[1]
    assert printed[0]
