"""Workloads for large logs: recovery after kill -9, reads and appends in logs of any size, compaction."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import rdkafka
from bench.kafka_loads import percentiles
from bench.systems import KafkaSystem, cpu_seconds
from bench.workloads import Figures, create_topic

_RECORD_BYTES = 10_000
_TIMEOUT_S = 600
# Options of both systems for compaction: small segments, and a cleaner that does not wait.
COMPACTION_OPTIONS = ("log.cleaner.backoff.ms=200",)


def fill(system: KafkaSystem, gigabytes: float, topic: str | None = None) -> str:
    """Writes records of 10 KB to a topic of one partition, until it has that size."""
    name = topic or create_topic(system.bootstrap, 1)
    rdkafka.produce(system.bootstrap, name, int(gigabytes * 1e9 / _RECORD_BYTES), _RECORD_BYTES, "acks=1")
    return name


def recovery(gigabytes: float) -> Callable[[KafkaSystem], Figures]:
    """Kills a broker (SIGKILL) with a large log, and starts it again on its data."""

    def run(system: KafkaSystem) -> Figures:
        topic = fill(system, gigabytes)
        system.kill()
        begun = time.perf_counter()
        system.start()
        ready_s = time.perf_counter() - begun
        _append_one(system.bootstrap, topic)
        first_s = time.perf_counter() - begun
        return {
            "ready s": ready_s,
            "first acknowledged record s": first_s,
            "recovery cpu s": cpu_seconds(system.pid),
        }

    return run


def _append_one(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "message.timeout.ms": 300_000})
    producer.produce(topic, b"record")
    if producer.flush(_TIMEOUT_S):
        raise RuntimeError("the broker acknowledges nothing after its restart")


def log_sizes(gigabytes: tuple[float, ...], operations: int) -> Callable[[KafkaSystem], Figures]:
    """Appends single records and reads at random offsets in a log that grows: each size should cost the same."""

    def run(system: KafkaSystem) -> Figures:
        figures: Figures = {}
        topic, held = create_topic(system.bootstrap, 1), 0.0
        for size in gigabytes:
            fill(system, size - held, topic)
            held = size
            label = f"{size * 1000:g} MB"
            for kind, found in (
                ("append", _appends(system.bootstrap, topic, operations)),
                ("read", _reads(system.bootstrap, topic, operations)),
            ):
                figures |= {f"{label}: {kind} {name}": value for name, value in found.items()}
        return figures

    return run


def _appends(bootstrap: str, topic: str, operations: int) -> Figures:
    from confluent_kafka import Producer

    producer, times_ms = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}), []
    for _ in range(operations + 20):
        begun = time.perf_counter()
        producer.produce(topic, b"x" * 100)
        producer.flush()
        times_ms.append((time.perf_counter() - begun) * 1000)
    return _middle(times_ms[20:])


def _reads(bootstrap: str, topic: str, operations: int) -> Figures:
    from felice.client.blocking.client import BlockingClient

    chance, times_ms = random.Random(3), []
    with BlockingClient(bootstrap) as client:
        end = _end_offset(bootstrap, topic)
        for _ in range(operations + 20):
            offset = chance.randrange(end)
            begun = time.perf_counter()
            next(client.fetch_raw(topic, 0, offset, offset + 1, max_bytes=1))
            times_ms.append((time.perf_counter() - begun) * 1000)
    return _middle(times_ms[20:])


def _middle(times_ms: list[float]) -> Figures:
    found = percentiles(times_ms)
    return {name: found[name] for name in ("p50 ms", "p99 ms")}


def _end_offset(bootstrap: str, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1])
    finally:
        consumer.close()


# Compaction


def compaction(keys: int, record_bytes: int) -> Callable[[KafkaSystem], Figures]:
    """Writes each key four times to a compacted topic, and waits until the broker has removed what is outdated."""

    def run(system: KafkaSystem) -> Figures:
        from confluent_kafka import Producer

        topic = _compacted_topic(system.bootstrap)
        producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 5})
        written = 4 * keys
        before_s, begun = cpu_seconds(system.pid), time.perf_counter()
        for number in range(written):
            while True:
                try:
                    producer.produce(topic, b"x" * record_bytes, b"key-%012d" % (number % keys))
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(_TIMEOUT_S)
        # Half as much again as the newest values: the active segment is never compacted.
        wanted_bytes = 1.5 * keys * (record_bytes + 30)
        done_s = _wait_until_small(system.log_dir, topic, wanted_bytes) - begun
        return {
            "compacted after s": done_s,
            "MB/s": written * record_bytes / 1e6 / done_s,
            "broker cpu s": cpu_seconds(system.pid) - before_s,
        }

    return run


def _compacted_topic(bootstrap: str) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    name, admin = f"bench-{uuid.uuid4().hex[:8]}", AdminClient({"bootstrap.servers": bootstrap})
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": str(4 << 20),
        "file.delete.delay.ms": "100",
    }
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    return name


def _wait_until_small(log_dir: Path, topic: str, wanted_bytes: float) -> float:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        files: list[Any] = [*log_dir.glob(f"**/{topic}-0/*.log")]
        if sum(_size(file) for file in files) <= wanted_bytes:
            return time.perf_counter()
        time.sleep(0.1)
    raise RuntimeError("the topic was not compacted")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0  # the cleaner has just replaced it
