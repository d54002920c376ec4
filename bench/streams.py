"""Stream applications: `felice run` beside Kafka Streams, with the same records on the same Felice broker.

How: Records are written in one transaction, so that both applications find a backlog when it is committed. The last
     records of each partition are marked, with keys that end in all partitions behind a repartition. The backlog is
     processed when a read_committed consumer has seen the results of all marked records. Latencies are those of marked
     records that are sent at a fixed rate.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.programs import Unavailable
from bench.systems import Felice, Shared, kafka_java, sampled_mib, tree_mib, tree_total_cpu_seconds
from bench.workloads import Figures, create_topic

COUNT = "count"
KINDS = ("words", COUNT, "undo", "hopping", "join", "sessions")
_APPLICATION = Path(__file__).with_name("stream_application.py")
_PARTITIONS = 2
_KEYS = 100_000
MANY_KEYS = {"100k": 100_000, "million": 1_000_000, "10-million": 10_000_000}
LARGE = (COUNT, "hopping", "join")
"""The applications that are measured with so many keys."""
_WORDS = 5
# A key gets another region with each of its values: this number does not divide the number of keys.
_REGIONS = 997
_MARKS = 16
_RATE = 200
_SPAN_MS = 600_000
_WITHIN_S = 1200.0
# What the broker allows: a backlog takes long where the machine is busy.
_TRANSACTION_MS = 900_000
_MARK = b"mark-"
# As many bytes as `_mark` makes.
_MARK_BYTES = 16


@dataclass(frozen=True, slots=True)
class Topics:
    """Where one run of an application reads and writes."""

    kind: str
    input: str
    table: str
    output: str


Command = Callable[[str, Topics, Path], "subprocess.Popen[bytes]"]


@dataclass(frozen=True, slots=True)
class Runner:
    """Starts applications, on a broker."""

    name: str
    bootstrap: str
    command: Command

    @contextmanager
    def running(self, topics: Topics) -> Iterator[Application]:
        """The application, until the context ends."""
        with tempfile.TemporaryDirectory(prefix="felice-bench-") as directory:
            process = self.command(self.bootstrap, topics, Path(directory))
            try:
                yield Application(process, Path(directory) / "log")
            finally:
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


@dataclass(frozen=True, slots=True)
class Application:
    """A process, and what it printed."""

    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise an error with the end of the log if the process has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the application ended: {self.log.read_text(errors='replace')[-2000:]}")


def _felice(bootstrap: str, topics: Topics, directory: Path) -> subprocess.Popen[bytes]:
    chosen = f"{topics.kind} {topics.input} {topics.table} {topics.output}"
    return _felice_run(_APPLICATION, bootstrap, directory, {"FELICE_BENCH_STREAM": chosen})


def _felice_run(
    file: Path, bootstrap: str, directory: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    felice = Path(sys.executable).parent / "felice"
    command = [str(felice), "run", str(file), "-b", bootstrap, "--master", "local[2]"]
    command += ["--checkpoint", str(directory / "checkpoint")]
    return _process(command, directory, environment)


# ksqlDB, and so Felice, neither groups nor joins values of the format KAFKA.
_GIVEN = "CREATE STREAM given (k STRING KEY, v STRING) WITH (kafka_topic = '{0.input}', value_format = 'DELIMITED');"
_RESULTS = "CREATE TABLE results WITH (kafka_topic = '{0.output}', value_format = 'JSON') AS "
_COUNTED = _GIVEN + _RESULTS + "SELECT k, COUNT(*) AS n FROM given "
STATEMENTS = {
    COUNT: _COUNTED + "GROUP BY k;",
    "hopping": _COUNTED
    + "WINDOW HOPPING (SIZE 1 MINUTE, ADVANCE BY 20 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY k;",
    "sessions": _COUNTED + "WINDOW SESSION (5 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY k;",
    "join": _GIVEN
    + "CREATE TABLE rows (k STRING PRIMARY KEY, r STRING)"
    + " WITH (kafka_topic = '{0.table}', value_format = 'DELIMITED');"
    + "CREATE STREAM results WITH (kafka_topic = '{0.output}') AS "
    + "SELECT g.k, g.v || '|' || r.r AS both FROM given g JOIN rows r ON g.k = r.k;",
}
"""The applications that are measured as queries of SQL, too."""


def _felice_sql(bootstrap: str, topics: Topics, directory: Path) -> subprocess.Popen[bytes]:
    statements = directory / "queries.sql"
    begin = "SET 'auto.offset.reset' = 'earliest';"
    statements.write_text(begin + STATEMENTS[topics.kind].format(topics))
    return _felice_run(statements, bootstrap, directory, {})


def _kafka_streams(bootstrap: str, topics: Topics, directory: Path) -> subprocess.Popen[bytes]:
    from peers.applications import application_class_path, find_applications
    from peers.cache import PeerMissing

    try:
        find_applications()
    except PeerMissing as missing:
        raise Unavailable(str(missing)) from None
    arguments = (topics.kind, topics.input, topics.table, topics.output, str(directory / "state"))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    command = kafka_java(quiet, "StreamsLoad", bootstrap, *arguments, classes=application_class_path())
    return _process(command, directory, {})


def _process(command: Sequence[str], directory: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | environment,
        )


_BROKER = Shared(Felice)


@contextmanager
def _runner(name: str, command: Command) -> Iterator[Runner]:
    with _BROKER as broker:
        yield Runner(name, broker.bootstrap, command)


def felice_streams() -> Any:
    """`felice run` on `local[2]`."""
    return _runner("felice", _felice)


def felice_sql() -> Any:
    """`felice run` of a file of SQL, on `local[2]`."""
    return _runner("felice.sql", _felice_sql)


def kafka_streams() -> Any:
    """Kafka Streams in one process with two threads."""
    return _runner("kafka streams", _kafka_streams)


def application(kind: str, rows: int, latency_s: float) -> Callable[[Runner], Figures]:
    """The figures of one application; a tenth of the records warm it up."""

    def run(system: Runner) -> Figures:
        load = Load(system.bootstrap, _new_topics(system, kind))
        if kind == "join":
            load.fill_table()
        with load.running(system) as (process, results):
            load.backlog(max(_KEYS // 100, rows // 10), results, process)
            seconds = load.backlog(rows, results, process)
            mib = tree_mib(process.process.pid)
            latencies = sorted(load.latencies(int(latency_s * _RATE), results, process))
        return {
            "backlog rows/s": rows / seconds,
            **_latency_figures(latencies),
            "memory MiB": mib,
        }

    return run


def many_keys(kind: str, keys: int, rows: int, latency_s: float) -> Callable[[Runner], Figures]:
    """An application whose state has so many keys: a row or record of each, then a backlog, then single records. The
    memory is sampled twice a second.
    """

    def run(system: Runner) -> Figures:
        load = Load(system.bootstrap, _new_topics(system, kind), keys)
        if kind == "join":
            load.fill_table()
        with load.running(system) as (process, results), sampled_mib(process.process.pid) as samples:
            # The first results of a join come when the table has its rows.
            load.backlog(rows // 10 if kind == "join" else keys, results, process)
            used_s = tree_total_cpu_seconds(process.process.pid)
            seconds = load.backlog(rows, results, process)
            used_s = tree_total_cpu_seconds(process.process.pid) - used_s
            latencies = sorted(load.latencies(int(latency_s * _RATE), results, process))
        return {
            "backlog rows/s": rows / seconds,
            "CPU us/row": 1e6 * used_s / rows,
            **_latency_figures(latencies),
            "greatest memory MiB": max(samples),
        }

    return run


def _latency_figures(ordered: Sequence[float]) -> Figures:
    return {
        "latency p50 ms": 1000 * statistics.median(ordered),
        "latency p99 ms": 1000 * ordered[int(len(ordered) * 0.99)],
    }


def _new_topics(system: Runner, kind: str) -> Topics:
    return Topics(kind, *(create_topic(system.bootstrap, _PARTITIONS) for _ in range(3)))


class Results:
    """When the results of marked records could be read, by mark. A context that reads the topic in a thread."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from felice.client import Consumer

        options = {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{topic}",
            "auto.offset.reset": "earliest",
        }
        self._consumer = Consumer({**options, "isolation.level": "read_committed", "fetch.wait.max.ms": 10})
        self._consumer.subscribe([topic])
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.seen: dict[bytes, float] = {}

    def __enter__(self) -> Results:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()
        self._consumer.close()

    def wait(self, marks: Sequence[bytes], process: Application) -> float:
        """The time at which the last of these marks was seen."""
        deadline = time.monotonic() + _WITHIN_S
        while not all(mark in self.seen for mark in marks):
            process.check()
            if not self._thread.is_alive() or time.monotonic() > deadline:
                missing = sum(mark not in self.seen for mark in marks)
                raise RuntimeError(f"{missing} of {len(marks)} results did not come within {_WITHIN_S:.0f} s")
            time.sleep(0.01)
        return max(self.seen[mark] for mark in marks)

    def _read(self) -> None:
        import pyarrow.compute as pc

        while not self._is_ending.is_set():
            rows = self._consumer.consume_arrow(timeout=0.1)
            now = time.perf_counter()
            for name in ("key", "value"):
                column = rows.column(name).cast("binary")
                marked = column.filter(pc.fill_null(pc.starts_with(column, pattern=_MARK), False))
                for mark in marked.to_pylist():
                    # A windowed key has the window behind the mark, and a join's result the table's row.
                    self.seen.setdefault(mark[:_MARK_BYTES], now)


@dataclass(slots=True)
class Load:
    """The records of one run. Their timestamps go on from one backlog to the next."""

    bootstrap: str
    topics: Topics
    keys: int = _KEYS
    _now_ms: int = field(default_factory=lambda: int(time.time() * 1000) - 3 * _SPAN_MS)
    _marks: int = 0

    @contextmanager
    def running(self, system: Runner) -> Iterator[tuple[Application, Results]]:
        """The application on these topics, and what it writes."""
        with system.running(self.topics) as process, Results(self.bootstrap, self.topics.output) as results:
            yield process, results

    def fill_table(self) -> None:
        """A row of each key."""
        with self._transaction() as producer:
            for number in range(self.keys):
                self._produce(
                    producer, f"user-{number}".encode(), b"row-%d" % number, topic=self.topics.table
                )

    def backlog(self, rows: int, results: Results, process: Application) -> float:
        """Seconds from the commit of a backlog until the results of its last records could be read."""
        begun_ms = self._now_ms
        with self._transaction() as producer:
            for number in range(rows):
                self._now_ms = begun_ms + number * _SPAN_MS // rows
                self._produce(producer, b"user-%d" % (number * 7919 % self.keys), self._value(number))
            marks = [
                self._produce_mark(producer, partition)
                for partition in range(_PARTITIONS)
                for _ in range(_MARKS)
            ]
        committed = time.perf_counter()
        return results.wait(marks, process) - committed

    def latencies(self, count: int, results: Results, process: Application) -> list[float]:
        """Seconds from sending each record, at a fixed rate, until its result could be read."""
        producer = self._producer({"linger.ms": 0})
        begun, due = time.perf_counter(), {}
        for number in range(count):
            at = begun + number / _RATE
            time.sleep(max(0.0, at - time.perf_counter()))
            due[self._produce_mark(producer, number % _PARTITIONS)] = at
            producer.poll(0)
        producer.flush(_WITHIN_S)
        results.wait(list(due), process)
        return [results.seen[mark] - at for mark, at in due.items()]

    def _value(self, number: int) -> bytes:
        if self.topics.kind == "undo":
            return b"region-%d %s" % (number % _REGIONS, b"x" * 40)
        if self.topics.kind != "words":
            return b"x" * 50
        return b" ".join(b"word-%d" % ((number * _WORDS + one) * 7919 % _KEYS) for one in range(_WORDS))

    def _produce_mark(self, producer: Any, partition: int) -> bytes:
        mark = _mark(self._marks)
        self._marks += 1
        key = mark
        if self.topics.kind == "join":  # Only a key with a row has a result, in the partition of the row.
            key = b"user-%d" % (self._marks % self.keys)
            self._produce(producer, key, mark)
        else:
            self._produce(producer, key, mark, partition=partition if self.topics.kind == "words" else -1)
        return mark

    def _produce(
        self, producer: Any, key: bytes, value: bytes, *, topic: str | None = None, partition: int = -1
    ) -> None:
        while True:
            try:
                producer.produce(topic or self.topics.input, value, key, partition, timestamp=self._now_ms)
                return
            except BufferError:
                producer.poll(0.1)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        options = {"transaction.timeout.ms": _TRANSACTION_MS, "linger.ms": 20}
        producer = self._producer({"transactional.id": f"bench-{uuid.uuid4().hex}", **options})
        producer.init_transactions(_WITHIN_S)
        producer.begin_transaction()
        yield producer
        producer.commit_transaction(_WITHIN_S)

    def _producer(self, options: dict[str, Any]) -> Any:
        from confluent_kafka import Producer

        # Java's partitioner, so that a stream's records find the rows of their keys.
        common = {"partitioner": "murmur2_random", "enable.metrics.push": False}
        return Producer({"bootstrap.servers": self.bootstrap, **common, **options})


def _mark(number: int) -> bytes:
    return _MARK + b"%011d" % number
