"""The cleaner in a running broker, observed by confluent-kafka and by Felice's own client."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from felice.client import Consumer as OwnConsumer
from felice.client import TopicPartition as OwnTopicPartition
from felice.log import Log
from felice.server.process.embedded import EmbeddedBroker
from waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.felice_only

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}


def start(directory: Path, **overrides: Any) -> EmbeddedBroker:
    return EmbeddedBroker(directory, log_cleaner_backoff_ms=50, offsets_topic_num_partitions=1, **overrides)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with start(tmp_path / "data") as running:
        yield running


def on_loop(broker: EmbeddedBroker, act: Callable[[], Any]) -> Any:
    """Runs `act` on the broker's event loop."""

    async def run() -> Any:
        return act()

    return asyncio.run_coroutine_threadsafe(run(), broker._loop).result(LIMIT_S)


def create(broker: EmbeddedBroker, name: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = COMPACTED | {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=wanted)])[name].result(LIMIT_S)


def produce(broker: EmbeddedBroker, topic: str, pairs: list[tuple[str, str | None]], **options: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 50, **options})
    for key, value in pairs:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(LIMIT_S) == 0


def log_of(broker: EmbeddedBroker, topic: str) -> Log:
    partition = broker.broker.services.partitions.get(topic, 0)
    assert partition is not None
    return partition.log


def roll(broker: EmbeddedBroker, topic: str) -> None:
    on_loop(broker, log_of(broker, topic).roll)


def clean(broker: EmbeddedBroker, topic: str) -> None:
    """Closes the segment, and waits until the cleaner has processed everything before it."""
    status, log = broker.broker.cleaner.status, log_of(broker, topic)
    roll(broker, topic)
    end_offset, directory = log.log_end_offset, broker.broker.directories[0]
    wait_until(
        lambda: directory.checkpoints.clean_offsets.get((topic, 0), 0) >= end_offset and not status.running
    )


def consumed(broker: EmbeddedBroker, topic: str, offset: int = 0) -> list[tuple[int, str, str | None]]:
    """Reads from `offset` to the end; the position decides, not the number of messages."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "check.crcs": True})
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=LIMIT_S)[1]
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[tuple[int, str, str | None]] = []
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and (not found or found[-1][0] < end - 1):
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            value = message.value()
            found.append((message.offset(), message.key().decode(), value.decode() if value else None))
    consumer.close()
    return found


def test_a_consumer_of_a_compacted_topic_gets_the_last_of_each_key(broker: EmbeddedBroker) -> None:
    create(broker, "t")
    for turn in range(5):
        produce(broker, "t", [(f"k{n}", f"{turn}") for n in range(300)], **{"compression.type": "lz4"})
    produce(broker, "t", [("k7", None)])
    clean(broker, "t")
    produce(broker, "t", [("end", "x")])
    everything = consumed(broker, "t")
    expected = [(1200 + n, f"k{n}", "4") for n in range(300) if n != 7]
    assert everything == [*expected, (1500, "k7", None), (1501, "end", "x")]
    for offset in (1, 17, 450, 899, 1199):  # in the middle of gaps
        assert consumed(broker, "t", offset)[0] == (1200, "k0", "4")
    stats = broker.broker.cleaner.status.last["t-0"]
    assert (stats.records_read, stats.records_kept) == (1501, 300)


def test_our_own_client_reads_over_gaps(broker: EmbeddedBroker) -> None:
    create(broker, "t")
    for turn in range(4):
        produce(broker, "t", [(f"k{n}", f"{turn}") for n in range(20)], **{"enable.idempotence": turn % 2})
    clean(broker, "t")
    produce(broker, "t", [("end", "x")])
    consumer = OwnConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "own"})
    consumer.assign([OwnTopicPartition("t", 0, 3)])
    found = []
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and len(found) < 21:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            found.append((message.offset(), message.key()))
    consumer.close()
    assert found == [*((60 + n, f"k{n}".encode()) for n in range(20)), (80, b"end")]


def test_compaction_goes_on_where_a_restart_interrupted_the_topic(tmp_path: Path) -> None:
    with start(tmp_path / "data") as first:
        create(first, "t")
        produce(first, "t", [("a", "1"), ("a", "2")])
        clean(first, "t")
    checkpoint = (tmp_path / "data" / "cleaner-offset-checkpoint").read_text()
    assert "\nt 0 2\n" in checkpoint
    with start(tmp_path / "data") as second:
        produce(second, "t", [("a", "3"), ("b", "1")])
        clean(second, "t")
        assert second.broker.cleaner.status.last["t-0"].keys == 2
        assert consumed(second, "t") == [(2, "a", "3"), (3, "b", "1")]


def test_a_topic_is_cleaned_after_its_policy_became_compact(broker: EmbeddedBroker) -> None:
    create(broker, "t", cleanup_policy="delete")
    produce(broker, "t", [("a", "1"), ("a", "2")])
    roll(broker, "t")
    time.sleep(0.3)
    assert broker.broker.cleaner.status.passes == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[change])
    admin.incremental_alter_configs([wanted])[wanted].result(LIMIT_S)
    wait_until(lambda: broker.broker.cleaner.status.passes == 1)
    assert consumed(broker, "t") == [(1, "a", "2")]


def test_threads_and_limits_change_while_the_broker_runs(broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def alter(name: str, value: str) -> None:
        change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[change])
        admin.incremental_alter_configs([wanted])[wanted].result(LIMIT_S)

    cleaner = broker.broker.cleaner
    assert len(cleaner._workers) == 1
    alter("log.cleaner.threads", "3")
    wait_until(lambda: len(cleaner._workers) == 3)
    alter("log.cleaner.threads", "0")
    wait_until(lambda: not cleaner._workers)
    alter("log.cleaner.io.max.bytes.per.second", "10")
    wait_until(lambda: cleaner._settings.config.log_cleaner_io_max_bytes_per_second == 10)
    alter("log.cleaner.threads", "1")
    wait_until(lambda: len(cleaner._workers) == 1)
    create(broker, "t")
    produce(broker, "t", [("a", "x" * 10_000)])
    roll(broker, "t")
    wait_until(lambda: "t-0" in cleaner.status.running)
    # A topic under a slow cleaner is deleted at once, and a broker with one stops at once.
    admin.delete_topics(["t"])["t"].result(LIMIT_S)
    create(broker, "u")
    produce(broker, "u", [("a", "x" * 10_000)])
    roll(broker, "u")
    begun = time.monotonic()
    broker.stop()
    # The cleaner would need 1000 s for the topic.
    assert time.monotonic() - begun < 120


def test_a_damaged_log_is_reported_once_and_not_cleaned(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="felice.server")
    create(broker, "bad", min_cleanable_dirty_ratio="1")
    produce(broker, "bad", [("a", "1"), ("a", "2")])
    path = log_of(broker, "bad").segments[0].log_path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    roll(broker, "bad")
    change = ConfigEntry("min.cleanable.dirty.ratio", "0", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, "bad", incremental_configs=[change])
    admin.incremental_alter_configs([wanted])[wanted].result(LIMIT_S)
    status = broker.broker.cleaner.status
    wait_until(lambda: "bad-0" in status.uncleanable)
    assert "CRC" in status.uncleanable["bad-0"]
    time.sleep(0.3)
    said = [record for record in caplog.records if "cannot be cleaned" in record.message]
    assert len(said) == 1
    # The other topics continue, and a new topic of the same name is not affected.
    create(broker, "good")
    produce(broker, "good", [("a", "1"), ("a", "2")])
    clean(broker, "good")
    assert path.read_bytes() == data
    admin.delete_topics(["bad"])["bad"].result(LIMIT_S)
    wait_until(lambda: not status.uncleanable)


def test_without_the_cleaner_nothing_is_cleaned(tmp_path: Path) -> None:
    with start(tmp_path / "data", log_cleaner_enable=False) as broker:
        create(broker, "t")
        produce(broker, "t", [("a", "1"), ("a", "2")])
        roll(broker, "t")
        time.sleep(0.3)
        assert not broker.broker.cleaner._workers
        assert consumed(broker, "t") == [(0, "a", "1"), (1, "a", "2")]


def test_groups_outlive_the_compaction_of_their_offsets(tmp_path: Path) -> None:
    committed: dict[int, int] = {}
    with start(tmp_path / "data") as broker:
        create(broker, "t")
        produce(broker, "t", [(str(n), "x") for n in range(100)])
        for group in range(3):
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"g{group}"})
            for offset in range(1, 30):
                consumer.commit(offsets=[TopicPartition("t", 0, offset + group)], asynchronous=False)
                committed[group] = offset + group
            consumer.close()
        before = log_of(broker, "__consumer_offsets").size_bytes
        clean(broker, "__consumer_offsets")
        assert log_of(broker, "__consumer_offsets").size_bytes < before / 5
        assert offsets_of(broker, 3) == committed
    with start(tmp_path / "data") as broker:
        assert offsets_of(broker, 3) == committed


def offsets_of(broker: EmbeddedBroker, groups: int) -> dict[int, int]:
    found = {}
    for group in range(groups):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"g{group}"})
        [partition] = consumer.committed([TopicPartition("t", 0)], timeout=LIMIT_S)
        found[group] = partition.offset
        consumer.close()
    return found


def test_appends_reads_and_deletions_go_on_while_the_cleaner_works(broker: EmbeddedBroker) -> None:
    create(broker, "t", cleanup_policy="compact,delete", segment_bytes="1048576")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for turn in range(12):
        produce(broker, "t", [(f"k{n % 50}", f"{turn:03d}" + "x" * 2000) for n in range(600)])
        if turn == 6:
            target = TopicPartition("t", 0, 600)
            admin.delete_records([target])[target].result(LIMIT_S)
        assert consumed(broker, "t", 600 * turn + 590)[-1][0] == 600 * turn + 599
    wait_until(lambda: broker.broker.cleaner.status.passes > 1)
    clean(broker, "t")
    left = consumed(broker, "t", 600)
    assert [(key, value and value[:3]) for _, key, value in left][-50:] == [
        (f"k{n}", "011") for n in range(50)
    ]
    assert len(left) == 50
    assert not broker.broker.cleaner.status.uncleanable
