"""Workloads for clusters of three brokers. Each starts its own cluster and returns figures by name."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from bench import rdkafka
from bench.clusters import BROKERS, Cluster
from bench.systems import cpu_seconds, resident_mib
from bench.workloads import Figures

_TIMEOUT_S = 90
_IDLE_S = 10.0
_RESTARTS_PAUSE_S = 1.0
_SETTLE_S = 5.0

Make = Callable[..., Cluster]


def create(cluster: Cluster, partitions: int, replicas: int = 3) -> tuple[str, float, float]:
    """Creates a topic. Returns its name, the seconds until the response, and until all partitions have leaders."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name, admin = f"bench-{uuid.uuid4().hex[:8]}", AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.list_topics(timeout=10)
    begun = time.perf_counter()
    topic = NewTopic(name, partitions, replicas)
    admin.create_topics([topic], operation_timeout=60, request_timeout=60)[name].result(_TIMEOUT_S)
    answered_s = time.perf_counter() - begun
    while not _has_leaders(admin, name, partitions):
        time.sleep(0.02)
    return name, answered_s, time.perf_counter() - begun


def _has_leaders(admin: Any, name: str, partitions: int, but: int = -1) -> bool:
    found = admin.list_topics(name, timeout=30).topics[name].partitions
    return len(found) == partitions and all(one.leader not in (-1, but) for one in found.values())


def _wait_in_sync(admin: Any, name: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        found = admin.list_topics(name, timeout=10).topics[name].partitions
        if all(len(one.isrs) == 3 for one in found.values()):
            return
        time.sleep(0.05)
    raise RuntimeError("the replicas did not come in sync")


class Writer:
    """Writes records at a steady pace with acks=all and librdkafka's defaults, and notes the result of each."""

    def __init__(self, bootstrap: str, topic: str, per_second: int = 200) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
        self._topic, self._pause_s = topic, 1 / per_second
        self.acknowledged: list[tuple[float, float]] = []  # produced at, acknowledged at
        self.failed = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            produced = time.monotonic()
            self._producer.produce(
                self._topic, b"x" * 100, on_delivery=lambda error, _, at=produced: self._note(error, at)
            )
            self._producer.poll(self._pause_s)

    def _note(self, error: object, produced: float) -> None:
        if error is not None:
            self.failed += 1
        else:
            self.acknowledged.append((produced, time.monotonic()))

    def first_after(self, moment: float) -> float:
        """When the first of the records produced after `moment` was acknowledged."""
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            found = [acked for produced, acked in list(self.acknowledged) if produced > moment]
            if found:
                return min(found)
            time.sleep(0.01)
        raise RuntimeError("nothing was acknowledged any more")

    def longest_gap_s(self) -> float:
        """The longest time between two acknowledgements, in seconds."""
        times = sorted(acked for _, acked in self.acknowledged)
        return max((later - sooner for sooner, later in pairwise(times)), default=0.0)

    def end(self) -> None:
        """Stops writing and waits for all delivery reports."""
        self._ends.set()
        self._thread.join()
        self._producer.flush(60)


def replication(records: int) -> Callable[[Make], Figures]:
    """Produces 1 KB records with librdkafka: acks=all, six partitions, three replicas, `min.insync.replicas=2`."""

    def run(make: Make) -> Figures:
        with make() as cluster:
            warm, _, _ = create(cluster, 6)
            rdkafka.produce(cluster.bootstrap, warm, records // 2, 1000, "acks=all")
            topic, _, _ = create(cluster, 6)
            before = {pid: cpu_seconds(pid) for pid in cluster.pids}
            found = rdkafka.produce(cluster.bootstrap, topic, records, 1000, "acks=all")
            used_s = sum(cpu_seconds(pid) - before[pid] for pid in cluster.pids)
            return {
                "records/s": rdkafka.rate(found),
                "cpu s/GB of the three": used_s / (records * 1000 / 1e9),
            }

    return run


def failover(session_timeout_s: float | None) -> Callable[[Make], Figures]:
    """Kills a partition's leader; seconds until the next acknowledged write and another leader in metadata."""

    def run(make: Make) -> Figures:
        from confluent_kafka.admin import AdminClient

        with make(session_timeout_s) as cluster:
            topic, _, _ = create(cluster, 1)
            writer = Writer(cluster.bootstrap, topic)
            try:
                writer.first_after(time.monotonic())
                time.sleep(3)
                admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
                leader = admin.list_topics(topic).topics[topic].partitions[0].leader
                others = [f"127.0.0.1:{port}" for number, port in cluster.ports.items() if number != leader]
                survivors = AdminClient({"bootstrap.servers": ",".join(others), "log_level": 0})
                survivors.list_topics(topic)
                cluster.kill(leader)
                killed = time.monotonic()
                elected: list[float] = []
                watching = threading.Thread(target=_watch, args=(survivors, topic, leader, elected))
                watching.start()
                written = writer.first_after(killed)
                watching.join()
            finally:
                writer.end()
            return {
                "to the next acknowledged write, s": written - killed,
                "to another leader in metadata, s": elected[0] - killed,
                "failed writes": writer.failed,
            }

    return run


def _watch(admin: Any, topic: str, old_leader: int, elected: list[float]) -> None:
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if _has_leaders(admin, topic, 1, old_leader):
                break
        except KafkaException:
            pass
        time.sleep(0.02)
    elected.append(time.monotonic())


def rolling_restart(make: Make) -> Figures:
    """Restarts every broker cleanly under acks=all, one after the other, each when all replicas are in sync."""
    from confluent_kafka.admin import AdminClient

    with make() as cluster:
        topic, _, _ = create(cluster, 6)
        writer = Writer(cluster.bootstrap, topic)
        try:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            writer.first_after(time.monotonic())
            begun = time.monotonic()
            for broker_id in BROKERS:
                cluster.restart(broker_id)
                time.sleep(_RESTARTS_PAUSE_S)
                _wait_in_sync(admin, topic)
            took_s = time.monotonic() - begun
        finally:
            writer.end()
        return {
            "failed writes": writer.failed,
            "acknowledged writes": len(writer.acknowledged),
            "longest gap between acknowledgements, s": writer.longest_gap_s(),
            "all three restarted, s": took_s,
        }


def creation(partitions: int) -> Callable[[Make], Figures]:
    """Creates one topic of many partitions with three replicas."""

    def run(make: Make) -> Figures:
        with make() as cluster:
            create(cluster, 6)
            _, answered_s, led_s = create(cluster, partitions)
            return {"answered, s": answered_s, "all partitions led, s": led_s}

    return run


def takeover(partitions: int) -> Callable[[Make], Figures]:
    """Kills the controller, which leads a third of the partitions; seconds until they have other leaders."""

    def run(make: Make) -> Figures:
        from confluent_kafka.admin import AdminClient

        with make(4.0) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            names = [create(cluster, 1000)[0] for _ in range(partitions // 1000)]
            time.sleep(_SETTLE_S)
            controller = admin.list_topics(timeout=10).controller_id
            others = [f"127.0.0.1:{port}" for number, port in cluster.ports.items() if number != controller]
            survivors = AdminClient({"bootstrap.servers": ",".join(others), "log_level": 0})
            survivors.list_topics(timeout=10)
            cluster.kill(controller)
            begun = time.monotonic()
            for name in names:
                while not _has_leaders(survivors, name, 1000, controller):
                    time.sleep(0.05)
            return {"all partitions led by others, s": time.monotonic() - begun}

    return run


def idle(replicas_a_broker: int, replication_factor: int) -> Callable[[Make], Figures]:
    """CPU and memory of brokers with many idle partitions."""

    def run(make: Make) -> Figures:
        with make() as cluster:
            create(cluster, 6)
            time.sleep(_SETTLE_S)
            empty, empty_mib = _idle_cpu(cluster), _memory_mib(cluster)
            left = replicas_a_broker * len(BROKERS) // replication_factor
            while left > 0:
                create(cluster, min(left, 1000), replication_factor)
                left -= 1000
            time.sleep(2 * _SETTLE_S)
            return {
                "empty: CPU % of a core, a broker": empty,
                "with partitions: CPU % of a core, a broker": _idle_cpu(cluster),
                "empty: MiB a broker": empty_mib,
                "with partitions: MiB a broker": _memory_mib(cluster),
            }

    return run


def _idle_cpu(cluster: Cluster) -> float:
    before = {pid: cpu_seconds(pid) for pid in cluster.pids}
    time.sleep(_IDLE_S)
    used_s = sum(cpu_seconds(pid) - before[pid] for pid in cluster.pids)
    return 100 * used_s / _IDLE_S / len(BROKERS)


def _memory_mib(cluster: Cluster) -> float:
    return sum(resident_mib(pid) for pid in cluster.pids) / len(BROKERS)


CLUSTER_WORKLOADS: dict[str, Callable[[float], Callable[[Make], Figures]]] = {
    "cluster-replication": lambda scale: replication(int(1_000_000 * scale)),
    "cluster-failover": lambda scale: failover(None),
    "cluster-failover-4s": lambda scale: failover(4.0),
    "cluster-rolling-restart": lambda scale: rolling_restart,
    "cluster-create-1000": lambda scale: creation(1000),
    "cluster-takeover-5000": lambda scale: takeover(int(5 * scale) * 1000),
    "cluster-idle-2000-rf1": lambda scale: idle(int(2000 * scale), 1),
    "cluster-idle-2000-rf3": lambda scale: idle(int(2000 * scale), 3),
}
