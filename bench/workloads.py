"""Workloads for one broker. Each runs against one system and returns figures by name."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from bench import rdkafka, requests
from bench.systems import System, cpu_seconds, resident_mib

PARTITIONS = 6
Figures = dict[str, float]
# An address, and librdkafka's options to log in there.
Login = tuple[str, tuple[str, ...]]


def create_topic(bootstrap: str, partitions: int = PARTITIONS) -> str:
    """Creates a topic with a new name and waits until it can be written."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, partitions, 1, config={"file.delete.delay.ms": "500"})
    admin.create_topics([topic])[name].result(30)
    # A topic may be created before its partitions accept records, so wait until metadata has their leaders.
    while any(p.leader < 0 for p in admin.list_topics(name, timeout=10).topics[name].partitions.values()):
        time.sleep(0.02)
    return name


@contextmanager
def scratch_topic(bootstrap: str, partitions: int = PARTITIONS) -> Iterator[str]:
    """A topic for one turn. Deleting it frees its page cache; otherwise each turn would need new pages."""
    name = create_topic(bootstrap, partitions)
    try:
        yield name
    finally:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics([name])[name].result(30)
        time.sleep(2)


def _with_cpu(system: System, megabytes: float, load: Callable[[], dict[str, Any]], what: str) -> Figures:
    before = cpu_seconds(system.pid)
    found = load()
    used_s = cpu_seconds(system.pid) - before
    return {
        f"{what} records/s": rdkafka.rate(found),
        f"{what} broker cpu s/GB": used_s / (megabytes / 1000),
        f"{what} client cpu s/GB": found["cpu_s"] / (megabytes / 1000),
    }


def librdkafka(
    records: int,
    record_bytes: int,
    *,
    partitions: int = PARTITIONS,
    codec: str = "none",
    login: Callable[[System], Login] | None = None,
) -> Callable[[System], Figures]:
    """Produce and then consume the same records with librdkafka, acks=1.

    `login` names the listener that the load uses, and how it logs in; topics are made over the plain listener.
    """

    def run(system: System) -> Figures:
        address, config = (system.bootstrap, ()) if login is None else login(system)
        megabytes = records * record_bytes / 1e6
        produce_config = ("acks=1", f"compression.codec={codec}", *config)
        with scratch_topic(system.bootstrap, partitions) as topic:
            produced = _with_cpu(
                system,
                megabytes,
                lambda: rdkafka.produce(address, topic, records, record_bytes, *produce_config),
                "produce",
            )
            consumed = _with_cpu(
                system,
                megabytes,
                lambda: rdkafka.consume(address, topic, records, partitions, *config),
                "consume",
            )
        return produced | consumed

    return run


def latency_under_load(per_second: int, seconds: float, record_bytes: int) -> Callable[[System], Figures]:
    """Latency from end to end with librdkafka's defaults, at a rate that a broker can sustain; acks=all."""

    def run(system: System) -> Figures:
        records = int(per_second * seconds)
        with scratch_topic(system.bootstrap) as topic:
            before_s = cpu_seconds(system.pid)
            found: dict[str, Any] = rdkafka.latency(
                system.bootstrap, topic, records, record_bytes, PARTITIONS, per_second
            )
            used_s = cpu_seconds(system.pid) - before_s
        return {
            "p50 ms": found["p50_ms"],
            "p99 ms": found["p99_ms"],
            "p99.9 ms": found["p999_ms"],
            "broker cpu s/GB": used_s / (records * record_bytes / 1e9),
        }

    return run


def own_client(records: int, record_bytes: int) -> Callable[[System], Figures]:
    """Produce and then consume with Felice's own client, row by row and as Arrow."""

    def run(system: System) -> Figures:
        from felice.cli.load import Deliveries, Load, consume_load, produce_load, same_value

        topic = create_topic(system.bootstrap)
        config = {"bootstrap.servers": system.bootstrap}
        deliveries = Deliveries(records)
        produce_load(config, Load(topic, records, same_value(record_bytes)), deliveries, quiet=True)
        produced = deliveries.summary()
        consumed = consume_load(config, topic, records=records, timeout_s=20, quiet=True)
        assert consumed["records"] == records, consumed
        return {
            "produce records/s": produced["records_per_second"],
            "consume records/s": consumed["records_per_second_after_first"],
        }

    return run


def own_client_arrow(records: int, record_bytes: int) -> Callable[[System], Figures]:
    """Produce and then consume pyarrow tables with Felice's own client."""

    def run(system: System) -> Figures:
        import pyarrow as pa

        from felice.client import Consumer, Producer, TopicPartition

        topic = create_topic(system.bootstrap)
        table = pa.table({"value": pa.array([b"x" * record_bytes] * 100_000, pa.binary())})
        producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 5})
        begun = time.perf_counter()
        for _ in range(records // 100_000):
            producer.produce_arrow(topic, table)
        producer.flush()
        produced_s = time.perf_counter() - begun
        consumer = Consumer(
            {"bootstrap.servers": system.bootstrap, "group.id": "bench", "auto.offset.reset": "earliest"}
        )
        consumer.assign([TopicPartition(topic, p, -2) for p in range(PARTITIONS)])
        begun, count = time.perf_counter(), 0
        while count < records // 100_000 * 100_000 and time.perf_counter() - begun < 60:
            count += consumer.consume_arrow(timeout=1.0).num_rows
        consumed_s = time.perf_counter() - begun
        consumer.close()
        return {"produce records/s": count / produced_s, "consume records/s": count / consumed_s}

    return run


def latency(records: int) -> Callable[[System], Figures]:
    """Sends one record at a time, each after the previous one is acknowledged."""

    def run(system: System) -> Figures:
        from confluent_kafka import Producer

        topic = create_topic(system.bootstrap, 1)
        producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 0, "acks": "all"})
        times_ms = []
        for _ in range(records):
            begun = time.perf_counter()
            producer.produce(topic, b"x" * 100)
            producer.flush()
            times_ms.append((time.perf_counter() - begun) * 1000)
        times_ms.sort()
        return {"p50 ms": times_ms[len(times_ms) // 2], "p99 ms": times_ms[int(len(times_ms) * 0.99)]}

    return run


def synchronous(connections: int, seconds: float) -> Callable[[System], Figures]:
    """Produces single records over some connections, each record after the previous one is acknowledged."""

    def run(system: System) -> Figures:
        request = requests.produce_request(create_topic(system.bootstrap, 1))
        requests.repeat(system.bootstrap, request, connections, seconds / 4)  # warms up
        before = cpu_seconds(system.pid)
        found = requests.repeat(system.bootstrap, request, connections, seconds)
        return {
            "requests/s": found["requests"] / found["seconds"],
            "broker cpu us": (cpu_seconds(system.pid) - before) / found["requests"] * 1e6,
            "p50 ms": found["p50_ms"],
            "p99 ms": found["p99_ms"],
        }

    return run


def _send_first(bootstrap: str) -> float:
    """Sends one record with librdkafka. Returns the time of its acknowledgement, in seconds of `time.perf_counter`."""
    from confluent_kafka import Producer

    # Without its log, which has a line for each attempt to connect that is refused.
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    producer.produce("first", b"record")
    assert producer.flush(60) == 0
    return time.perf_counter()


def start_up(make: Callable[[], Any]) -> Figures:
    """Seconds from the command to the first acknowledged record, and memory before and after a load.

    A client of librdkafka starts together with the command and sends one record, which creates its topic.
    """
    with ThreadPoolExecutor(1) as client, ExitStack() as stack:
        starting = make()
        begun = time.perf_counter()
        first = client.submit(_send_first, starting.bootstrap)
        system = stack.enter_context(starting)
        ready_s = time.perf_counter() - begun
        first_s = first.result() - begun
        idle_mib = resident_mib(system.pid)
        topic = create_topic(system.bootstrap)
        rdkafka.produce(system.bootstrap, topic, 2_000_000, 100, "acks=1")
        rdkafka.consume(system.bootstrap, topic, 2_000_000, PARTITIONS)
        return {
            "ready ms": ready_s * 1000,
            "first acknowledged record ms": first_s * 1000,
            "idle MiB": idle_mib,
            "loaded MiB": resident_mib(system.pid),
        }
