"""Many applications in one query of Spark: first results, memory, CPU and latency with so many of them.

    python -m bench.host 1 10 50

Half of the applications filter, half count, each from a topic of its own to another one. Then one record a second comes
to each topic. The driver is a process of its own, and figures are of it, its Java and its workers.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.systems import Felice, tree, tree_cpu_seconds, tree_mib
from bench.workloads import Figures
from felice.streams import App

_IDLE_S = 10.0
_RATED_S = 15
_WITHIN_S = 120.0


def app(name: str, number: int) -> App:
    """The application with this number."""
    found = App(f"{name}-{number}", value="string")
    stream = found.stream(f"{name}-in-{number}")
    if number % 2:
        stream.filter(lambda key, value: bool(value)).to(f"{name}-out-{number}")
    else:
        counts = stream.group_by_key().count().to_stream()
        counts.map_values(lambda key, count: str(count), value="string").to(f"{name}-out-{number}")
    return found


def drive(bootstrap: str, checkpoint: str, name: str, count: int) -> None:
    """Run the applications, and one more for each line of the standard input, until it ends."""
    from felice.pipelines.streams.on_spark.host.host import Host

    host = Host(bootstrap, checkpoint, master="local[2]", partitions=2)
    host.start()
    for number in range(count):
        host.put(app(name, number))
    print("put", flush=True)
    for number, _ in enumerate(sys.stdin, count):
        host.put(app(name, number))
        print("put", flush=True)
    host.stop()


class _Results:
    """The results of all applications, as a consumer sees them."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "fetch.wait.max.ms": 10})
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        self.seen: dict[str, list[float]] = {topic: [] for topic in topics}
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._is_ending.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.seen[str(message.topic())].append(time.monotonic())

    def wait(self, topics: list[str], count: int) -> None:
        """Return when each of the topics has so many results."""
        until = time.monotonic() + _WITHIN_S
        while not all(len(self.seen[topic]) >= count for topic in topics):
            if time.monotonic() > until:
                raise RuntimeError(f"no {count} results each: {[len(self.seen[topic]) for topic in topics]}")
            time.sleep(0.01)

    def close(self) -> None:
        """End the consumer."""
        self._is_ending.set()
        self._thread.join()
        self._consumer.close()


@contextmanager
def _driver(bootstrap: str, name: str, count: int) -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryDirectory(prefix="felice-bench-") as directory:
        command = [
            sys.executable,
            "-m",
            "bench.host",
            "drive",
            bootstrap,
            f"{directory}/host",
            name,
            str(count),
        ]
        with (
            (Path(directory) / "log").open("w") as log,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()


def hosted(count: int) -> Figures:
    """The figures with so many applications."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"bench-{uuid.uuid4().hex[:8]}"
    inputs, outputs = ([f"{name}-{way}-{number}" for number in range(count + 1)] for way in ("in", "out"))
    with Felice() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in inputs + outputs]).values():
            made.result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        results = _Results(broker.bootstrap, outputs)

        def send() -> float:
            at = time.monotonic()
            for topic in inputs:
                producer.produce(topic, b"value", b"key")
            producer.flush(60)
            return at

        try:
            send()
            began = time.monotonic()
            with _driver(broker.bootstrap, name, count) as process:
                results.wait(outputs[:-1], 1)
                figures = {"first results s": time.monotonic() - began}
                time.sleep(5)
                figures["cpu idle cores"] = _cores(process.pid, lambda: time.sleep(_IDLE_S))
                sent: list[float] = []

                def rated() -> None:
                    for _ in range(_RATED_S):
                        sent.append(send())
                        time.sleep(max(0.0, sent[-1] + 1 - time.monotonic()))
                    results.wait(outputs[:-1], 1 + _RATED_S)

                figures["cpu rated cores"] = _cores(process.pid, rated)
                waits = sorted(
                    seen - at
                    for topic in outputs[:-1]
                    for at, seen in zip(sent, results.seen[topic][1:], strict=True)
                )
                figures["latency p50 s"] = statistics.median(waits)
                figures["latency p99 s"] = waits[int(len(waits) * 0.99)]
                assert process.stdin is not None
                began = time.monotonic()
                process.stdin.write("another\n")
                process.stdin.flush()
                results.wait(outputs[-1:], 1)
                figures["one more s"] = time.monotonic() - began
                figures["memory MiB"] = tree_mib(process.pid)
                figures["processes"] = len(tree(process.pid))
        finally:
            results.close()
    return figures


def _cores(pid: int, work: Callable[[], object]) -> float:
    before, began = tree_cpu_seconds(pid), time.monotonic()
    work()
    after = tree_cpu_seconds(pid)
    return sum(used - before.get(one, 0.0) for one, used in after.items()) / (time.monotonic() - began)


if __name__ == "__main__":
    if sys.argv[1] == "drive":
        bootstrap, checkpoint, name, count = sys.argv[2:]
        drive(bootstrap, checkpoint, name, int(count))
    else:
        for number in map(int, sys.argv[1:]):
            print(number, {what: round(figure, 3) for what, figure in hosted(number).items()}, flush=True)
