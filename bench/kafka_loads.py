"""Further workloads for one Kafka broker: Kafka's own tools, latency, connections, groups and transactions."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from bench import requests
from bench.systems import System, cpu_seconds, kafka_java, resident_mib
from bench.workloads import Figures, create_topic, scratch_topic

Load = Callable[[System], Figures]
_TOOLS = "org.apache.kafka.tools"
_TIMEOUT_S = 600


def percentiles(times_ms: list[float]) -> Figures:
    """The usual percentiles of latencies."""
    times_ms.sort()
    return {
        f"p{share:g} ms": times_ms[min(len(times_ms) - 1, int(len(times_ms) * share / 100))]
        for share in (50, 99, 99.9)
    }


# Kafka's own tools


def java_tools(records: int, record_bytes: int, codec: str = "none") -> Load:
    """Kafka's ProducerPerformance and ConsumerPerformance, acks=1, six partitions."""

    def run(system: System) -> Figures:
        with scratch_topic(system.bootstrap) as topic:
            before_s = cpu_seconds(system.pid)
            produced = _produce_with_java(system.bootstrap, topic, records, record_bytes, codec)
            used_s = cpu_seconds(system.pid) - before_s
            consumed = _consume_with_java(system.bootstrap, topic, records)
        return {
            "produce records/s": produced,
            "produce broker cpu s/GB": used_s / (records * record_bytes / 1e9),
            "consume records/s": consumed,
        }

    return run


def _produce_with_java(bootstrap: str, topic: str, records: int, record_bytes: int, codec: str) -> float:
    output = _java(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)),
        *("--throughput", "-1", "--bootstrap-server", bootstrap, "--command-property", "acks=1"),
        f"compression.type={codec}",
    )
    rates = re.findall(rf"^{records} records sent, ([\d.]+) records/sec", output, re.MULTILINE)
    if not rates:
        raise RuntimeError(f"ProducerPerformance failed: {output[-500:]}")
    return float(rates[-1])


def _consume_with_java(bootstrap: str, topic: str, records: int) -> float:
    output = _java(
        "ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)),
    )
    header, figures = [line.split(", ") for line in output.strip().splitlines()[-2:]]
    row = dict(zip(header, figures, strict=True))
    if int(row["data.consumed.in.nMsg"]) < records:
        raise RuntimeError(f"ConsumerPerformance failed: {row}")
    # Without the time that the group needs to be balanced.
    return float(row["fetch.nMsg.sec"])


def _java(tool: str, *arguments: str) -> str:
    command = kafka_java(f"{_TOOLS}.{tool}", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{tool} failed: {done.stdout[-500:]} {done.stderr[-500:]}")
    return done.stdout


# Latency from end to end


def fixed_rate(per_second: int, seconds: float) -> Load:
    """Latency from the moment at which a record is due to its arrival at a consumer, at a fixed rate."""

    def run(system: System) -> Figures:
        from confluent_kafka import Consumer, Producer, TopicPartition

        topic = create_topic(system.bootstrap, 1)
        consumer = Consumer(
            {"bootstrap.servers": system.bootstrap, "group.id": "latency", "auto.offset.reset": "earliest"}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 0, "acks": "all"})
        count = int(per_second * seconds)
        sending = threading.Thread(target=_send_at_rate, args=(producer, topic, count, per_second))
        times_ms: list[float] = []
        sending.start()
        deadline = time.monotonic() + seconds + 60
        while len(times_ms) < count and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                times_ms.append((time.perf_counter() - float(message.value())) * 1000)
        sending.join()
        consumer.close()
        if len(times_ms) < count:
            raise RuntimeError(f"only {len(times_ms)} of {count} records came back")
        return percentiles(times_ms)

    return run


def _send_at_rate(producer: Any, topic: str, count: int, per_second: int) -> None:
    begun = time.perf_counter()
    for number in range(count):
        # A record that is sent late counts from the moment when it was due.
        due = begun + number / per_second
        while (left_s := due - time.perf_counter()) > 0:
            producer.poll(min(left_s, 0.01))
        producer.produce(topic, repr(due).encode().ljust(100))
    producer.flush(60)


# Connections


def idle_connections(count: int) -> Load:
    """Memory and processor time of idle connections, and the latency of one client beside them."""

    def run(system: System) -> Figures:
        host, _, port = system.bootstrap.partition(":")
        request = requests.produce_request(create_topic(system.bootstrap, 1))
        requests.repeat(system.bootstrap, request, 1, 0.5)
        alone_mib = resident_mib(system.pid)
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            time.sleep(1)
            before_s = cpu_seconds(system.pid)
            time.sleep(3)
            idle_s = cpu_seconds(system.pid) - before_s
            held_mib = resident_mib(system.pid)
            found = requests.repeat(system.bootstrap, request, 1, 2)
        return {
            "KiB a connection": (held_mib - alone_mib) * 1024 / count,
            "idle CPU % of a core": 100 * idle_s / 3,
            "p50 ms beside them": found["p50_ms"],
            "p99 ms beside them": found["p99_ms"],
        }

    return run


# Groups


def groups(count: int, commits_each: int) -> Load:
    """Consumer groups of one member each: the time until all have joined, and then offsets committed per second."""

    def run(system: System) -> Figures:
        return asyncio.run(_groups(system.bootstrap, create_topic(system.bootstrap, 1), count, commits_each))

    return run


async def _groups(bootstrap: str, topic: str, count: int, commits_each: int) -> Figures:
    from felice.client import TopicPartition
    from felice.client.aio import Consumer

    prefix, offsets = uuid.uuid4().hex[:8], [TopicPartition(topic, 0, 0)]

    async def commit(consumer: Any) -> None:
        for _ in range(commits_each):
            await consumer.commit(offsets=offsets)

    async with AsyncExitStack() as stack, asyncio.timeout(_TIMEOUT_S):
        consumers = []
        for number in range(count):
            config = {"bootstrap.servers": bootstrap, "group.id": f"{prefix}-{number}"}
            consumer = Consumer({**config, "enable.auto.commit": False})
            consumers.append(await stack.enter_async_context(consumer))
        begun = time.perf_counter()
        await asyncio.gather(*(_join(consumer, topic) for consumer in consumers))
        joined_s = time.perf_counter() - begun
        begun = time.perf_counter()
        await asyncio.gather(*(commit(consumer) for consumer in consumers))
        committed_s = time.perf_counter() - begun
    return {"all joined, s": joined_s, "commits/s": count * commits_each / committed_s}


async def _join(consumer: Any, topic: str) -> None:
    await consumer.subscribe([topic])
    while not consumer.assignment():
        await consumer.poll(0.2)


# Transactions


def transactions(count: int, records_each: int) -> Load:
    """Transactions one after the other, by librdkafka: commits per second, and how long begin to commit takes."""

    def run(system: System) -> Figures:
        from confluent_kafka import Producer

        topic = create_topic(system.bootstrap)
        producer = Producer(
            {"bootstrap.servers": system.bootstrap, "transactional.id": f"bench-{uuid.uuid4().hex[:8]}"}
        )
        producer.init_transactions(60)
        times_ms = []
        for number in range(count + 3):  # the first ones warm up
            begun = time.perf_counter()
            producer.begin_transaction()
            for _ in range(records_each):
                producer.produce(topic, b"x" * 100)
            producer.commit_transaction(60)
            if number >= 3:
                times_ms.append((time.perf_counter() - begun) * 1000)
        return {"transactions/s": 1000 * len(times_ms) / sum(times_ms), **percentiles(times_ms)}

    return run
