"""`felice connect`: beside Kafka Connect (files), beside programs written by hand (JDBC, S3), and while nothing comes.

Both sides of a comparison use the same Felice broker, in turns. A source's time runs from the moment when its task runs
until all records are in the topic; a sink's from the first records that it wrote, so that no start counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import connect_by_hand as by_hand
from bench.systems import Felice, tree, tree_cpu_seconds, tree_mib
from bench.workloads import Figures, create_topic
from connect_rest import RestClient
from felice.client.blocking import LATEST, BlockingClient
from peers.databases import Database, running_database
from peers.kafka_connect import running_kafka_connect
from peers.objects import Bucket, running_store

COMPARED = {
    "connect-files": ("felice", "kafka"),
    "connect-jdbc": ("felice", "by hand"),
    "connect-s3": ("felice", "by hand"),
}
IDLE = {f"connect-idle-{count}": count for count in (1, 5, 20)}
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_LINE = "x" * 99
_WITHIN_S = 600.0
_POLL_S = 0.05
_SETTLE_S = 15.0
_IDLE_S = 30.0
_FLUSH_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class Connect:
    """A running worker: ours, or Kafka Connect's."""

    rest: RestClient
    pid: int

    def create(self, name: str, **options: str) -> None:
        """Creates a connector with one task. `options` have underscores for dots."""
        config = {key.replace("_", "."): value for key, value in options.items()}
        status, answer = self.rest.ask(
            "POST", "/connectors", {"name": name, "config": {**config, "tasks.max": "1"}}
        )
        assert status == 201, answer
        self.rest.wait_states(name, "RUNNING", "RUNNING")


@contextmanager
def _ours(bootstrap: str, place: Path) -> Iterator[RestClient]:
    options = {
        "bootstrap.servers": bootstrap,
        "key.converter": _STRINGS,
        "value.converter": _STRINGS,
        "offset.storage.file.filename": str(place / "offsets"),
        "listeners": "http://127.0.0.1:0",
    }
    file = place / "worker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    command = [sys.executable, "-m", "felice.cli.main", "connect", "standalone", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield RestClient(process.stdout.readline().split()[-1])
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


_WORKERS = {"felice": _ours, "kafka": running_kafka_connect}


@contextmanager
def worker(system: str, bootstrap: str) -> Iterator[Connect]:
    """A standalone worker of a system."""
    before = set(tree(os.getpid()))
    with tempfile.TemporaryDirectory() as place, _WORKERS[system](bootstrap, Path(place)) as rest:
        pid = next(one for one in tree(os.getpid()) if one not in before)
        yield Connect(rest, pid)


def _until(condition: Callable[[], bool], what: str) -> float:
    """The seconds until a condition holds."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > _WITHIN_S:
            raise TimeoutError(f"{what} took over {_WITHIN_S:g} s")
        time.sleep(_POLL_S)
    return time.perf_counter() - began


def _written_per_s(count: Callable[[], int], records: int, what: str) -> float:
    """The records a second that a sink writes, from the first that are there to the last."""
    _until(lambda: count() > 0, f"the first records of {what}")
    early, began = count(), time.perf_counter()
    _until(lambda: count() >= records, what)
    return (records - early) / (time.perf_counter() - began)


def _end(bootstrap: str, topic: str) -> int:
    with BlockingClient(bootstrap) as client:
        return client.list_offsets({(topic, 0): LATEST})[topic, 0].offset


def _read_per_s(bootstrap: str, topic: str, records: int) -> float:
    return records / _until(lambda: _end(bootstrap, topic) >= records, "the source")


def _files(system: str, bootstrap: str, records: int) -> Figures:
    """Lines of 100 bytes to a topic and back."""
    topic = create_topic(bootstrap, 1)
    with tempfile.TemporaryDirectory() as folder, worker(system, bootstrap) as connect:
        before, after, new = (Path(folder) / name for name in ("before.txt", "after.txt", "new.txt"))
        with new.open("w") as out:
            out.writelines(f"{_LINE}\n" for _ in range(records))
        connect.create("in", connector_class="FileStreamSource", file=str(before), topic=topic)
        new.rename(before)  # the task waits for the file
        read = _read_per_s(bootstrap, topic, records)
        connect.create("out", connector_class="FileStreamSink", file=str(after), topics=topic)

        def lines() -> int:
            return after.stat().st_size // (len(_LINE) + 1) if after.exists() else 0

        return {"in records/s": read, "out records/s": _written_per_s(lines, records, "the file")}


def _jdbc(system: str, bootstrap: str, records: int) -> Figures:
    """Rows of a table of PostgreSQL to a topic as plain JSON, and into another table."""
    source, sink = create_topic(bootstrap, 1), "copies"
    with tempfile.TemporaryDirectory() as folder, running_database("postgresql", Path(folder)) as database:
        database.run(
            "create table orders (id bigint primary key, name text, price double precision)",
            f"insert into orders select n, 'customer ' || n, n * 0.5 from generate_series(1, {records}) n",
            f"create table {sink} (id bigint, name text, price double precision)",
        )

        def rows() -> int:
            return int(str(database.rows(f"select count(*) from {sink}")[0][0]))

        if system == "felice":
            with worker(system, bootstrap) as connect:
                read = _jdbc_source(connect, database, bootstrap, source, records)
                _jdbc_sink(connect, database, source, sink)
                return {"in records/s": read, "out records/s": _written_per_s(rows, records, "the table")}
        url = database.engine.url.render_as_string(hide_password=False)
        with by_hand.running("rows_to_topic", url, bootstrap, source):
            read = _read_per_s(bootstrap, source, records)
        with by_hand.running("topic_to_rows", url, bootstrap, source, sink):
            return {"in records/s": read, "out records/s": _written_per_s(rows, records, "the table")}


def _jdbc_source(connect: Connect, database: Database, bootstrap: str, topic: str, records: int) -> float:
    connect.create(
        "in",
        connector_class="jdbc-source",
        mode="incrementing",
        incrementing_column_name="id",
        query="select * from orders",
        topic_prefix=topic,
        batch_max_rows=str(by_hand.BATCH),
        poll_interval_ms="100",
        value_converter=_JSON,
        value_converter_schemas_enable="false",
        **{name.replace(".", "_"): value for name, value in database.options.items()},
    )
    return _read_per_s(bootstrap, topic, records)


def _jdbc_sink(connect: Connect, database: Database, topic: str, table: str) -> None:
    kinds = {"id": "int64", "name": "string", "price": "double"}
    fields = [{"field": name, "type": kind, "optional": True} for name, kind in kinds.items()]
    connect.create(
        "out",
        connector_class="jdbc-sink",
        topics=topic,
        table_name_format=table,
        pk_mode="none",
        value_converter=_JSON,
        value_converter_schema_content=json.dumps({"type": "struct", "fields": fields}),
        **{name.replace(".", "_"): value for name, value in database.options.items()},
    )


def _s3(system: str, bootstrap: str, records: int) -> Figures:
    """Records of JSON to objects of lines."""
    topic = create_topic(bootstrap, 1)
    by_hand.fill(bootstrap, topic, records)
    with running_store() as store:

        def written() -> int:
            return _FLUSH_RECORDS * len(store.names())

        if system == "felice":
            with worker(system, bootstrap) as connect:
                _s3_sink(connect, store, topic)
                return {"out records/s": _written_per_s(written, records, "the bucket")}
        with by_hand.running("topic_to_objects", store.url, bootstrap, topic, _FLUSH_RECORDS):
            return {"out records/s": _written_per_s(written, records, "the bucket")}


def _s3_sink(connect: Connect, store: Bucket, topic: str) -> None:
    connect.create(
        "out",
        connector_class="s3-sink",
        topics=topic,
        flush_size=str(_FLUSH_RECORDS),
        format_class="io.confluent.connect.s3.format.json.JsonFormat",
        s3_region="us-east-1",
        value_converter=_JSON,
        value_converter_schemas_enable="false",
        **{name.replace(".", "_"): value for name, value in store.options.items()},
    )


def _idle(system: str, bootstrap: str, connectors: int) -> Figures:
    """Memory and processor time of connectors of one task each that wait for lines."""
    with tempfile.TemporaryDirectory() as folder, worker(system, bootstrap) as connect:
        for number in range(connectors):
            file = Path(folder) / f"{number}.txt"
            file.write_text("a line\n")
            topic = create_topic(bootstrap, 1)
            connect.create(f"in-{number}", connector_class="FileStreamSource", file=str(file), topic=topic)
        time.sleep(_SETTLE_S)
        before = tree_cpu_seconds(connect.pid)
        time.sleep(_IDLE_S)
        after = tree_cpu_seconds(connect.pid)
        used_s = sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
        return {"CPU % of a core": 100 * used_s / _IDLE_S, "MiB": tree_mib(connect.pid)}


_LOADS: dict[str, tuple[Callable[[str, str, int], Figures], int]] = {
    "connect-files": (_files, 1_000_000),
    "connect-jdbc": (_jdbc, 200_000),
    "connect-s3": (_s3, 500_000),
}


def compared(name: str, scale: float, turns: int) -> dict[str, list[Figures]]:
    """The figures of each system's turns, in alternating order."""
    if name in IDLE:
        systems, load, count = ("felice", "kafka"), _idle, IDLE[name]
    else:
        systems, (load, records) = COMPARED[name], _LOADS[name]
        count = max(_FLUSH_RECORDS, int(records * scale) // _FLUSH_RECORDS * _FLUSH_RECORDS)
    found: dict[str, list[Figures]] = {system: [] for system in systems}
    with Felice() as broker:
        for turn in range(turns):
            for system in systems if turn % 2 == 0 else reversed(systems):
                found[system].append(load(system, broker.bootstrap, count))
                print(f"{name} {system} turn {turn + 1}/{turns}: {found[system][-1]}", file=sys.stderr)
    return found
