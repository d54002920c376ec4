"""The demo's topics: converts rows to JSON records and records to rows.

Keeps true: each row is one record. The key of a record decides its partition, so rows
            with the same key stay in order. A record that is read twice counts twice.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence

import pandas as pd
import pyarrow as pa

from felice.client import AdminClient, KafkaError, KafkaException, NewTopic, Producer, TopicPartition
from felice.client.blocking import LATEST, BlockingClient
from felice.client.confluent.consumer import Consumer
from felice.client.consume.isolation import READ_COMMITTED
from felice.client.model import Partition
from felice.dataclass import dataclass
from felice.demo.dataset import Dataset
from felice.records.batch import iter_batches

CHUNK_ROWS = 20_000
RESULTS = "delays"
CARRIERS = "carriers"
RESULT_PARTITIONS = 2
GROUP = "felice-demo"
# A poll for a chunk ends after this time also if there are fewer rows.
POLL_S = 0.1
STALLED_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class DemoTopic:
    """One topic. `key` is the column of record keys; `timestamp` is the column of event times, if there is one."""

    name: str
    key: str
    partitions: int = 1
    timestamp: str | None = None
    compacted: bool = False

    def config(self) -> dict[str, str]:
        """The topic's options."""
        if self.compacted:
            return {"cleanup.policy": "compact"}
        # Without this option, retention would soon delete records of 2013.
        return {"retention.ms": "-1"}

    def rows(self, data: Dataset) -> pd.DataFrame:
        """The topic's rows in the data set."""
        rows: pd.DataFrame = getattr(data, self.name)
        return rows


FLIGHTS = DemoTopic("flights", key="carrier", partitions=4, timestamp="scheduled")
TABLES = (
    DemoTopic("weather", key="origin", timestamp="time_hour"),
    DemoTopic("airlines", key="carrier", compacted=True),
    DemoTopic("airports", key="faa", compacted=True),
    DemoTopic("planes", key="tailnum", compacted=True),
)
SOURCES = (FLIGHTS, *TABLES)


def create_topics(bootstrap: str) -> None:
    """Creates all topics of the demo."""
    wanted = [NewTopic(topic.name, topic.partitions, config=topic.config()) for topic in SOURCES]
    wanted += [NewTopic(name, RESULT_PARTITIONS) for name in (RESULTS, CARRIERS)]
    with AdminClient({"bootstrap.servers": bootstrap}) as admin:
        for created in admin.create_topics(wanted).values():
            created.result()


def produce(bootstrap: str, topic: DemoTopic, rows: pd.DataFrame, advance: Callable[[int], None]) -> None:
    """Sends rows to a topic. Returns when every record is acknowledged; raises if a record is not."""
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    settings = {"bootstrap.servers": bootstrap, "compression.type": "lz4", "on_delivery": report}
    with Producer(settings, **{"delivery.report.only.error": True}) as producer:
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk = rows.iloc[start : start + CHUNK_ROWS]
            producer.produce_arrow(topic.name, records_of(topic, chunk))
            advance(len(chunk))
        producer.flush()
    if failures:
        raise KafkaException(failures[0])


def records_of(topic: DemoTopic, rows: pd.DataFrame) -> pa.Table:
    """A table with the columns key, value (the row as JSON) and timestamp."""
    shown = rows.drop(columns="scheduled", errors="ignore")
    values = shown.to_json(orient="records", lines=True).splitlines()
    columns = {
        "key": pa.array(rows[topic.key].astype(str), pa.binary()),
        "value": pa.array(values, pa.binary()),
    }
    if topic.timestamp is not None:
        times = pd.to_datetime(rows[topic.timestamp], utc=True)
        columns["timestamp"] = pa.array(times, pa.timestamp("ms", tz="UTC"))
    return pa.table(columns)


def consume_results(bootstrap: str, advance: Callable[[int], None]) -> tuple[int, pd.DataFrame]:
    """Reads the results as a member of a group. Returns the number of records, and the last row of each key."""
    read, last = read_last(bootstrap, RESULTS, advance)
    return read, windows_of(list(last.values()))


def read_last(
    bootstrap: str, topic: str, advance: Callable[[int], None] = lambda rows: None
) -> tuple[int, dict[bytes, bytes]]:
    """The number of records in a topic, and the last value of each key."""
    read, last = 0, dict[bytes, bytes]()
    for table in _consume(bootstrap, topic):
        last.update(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
        read += len(table)
        advance(len(table))
    return read, last


def count_records(
    bootstrap: str, topics: Sequence[DemoTopic], advance: Callable[[int], None]
) -> dict[str, int]:
    """Reads topics as a member of a group. Returns the number of records of each."""
    read = dict.fromkeys((topic.name for topic in topics), 0)
    for table in _consume(bootstrap, *read):
        for counted in table["topic"].value_counts().to_pylist():
            read[counted["values"]] += counted["counts"]
        advance(len(table))
    return read


def _consume(bootstrap: str, *topics: str) -> Iterator[pa.Table]:
    """Yields all records of the topics, as a member of the demo's group, and commits their offsets."""
    ends: dict[Partition, int] = {}
    for topic in topics:
        ends |= ends_of(bootstrap, topic)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with Consumer(settings) as consumer:
        consumer.subscribe(list(topics))
        last_came = time.monotonic()
        while not _is_read(consumer, ends):
            table = consumer.consume_arrow(CHUNK_ROWS, timeout=POLL_S)
            if len(table):
                last_came = time.monotonic()
                yield table
            elif time.monotonic() - last_came > STALLED_AFTER_S:
                raise TimeoutError(f"nothing more of {', '.join(topics)} came within {STALLED_AFTER_S:.0f} s")
        consumer.commit(asynchronous=False)


def _is_read(consumer: Consumer, ends: dict[Partition, int]) -> bool:
    """Whether everything is read, by positions: transaction markers have offsets too, but are not records."""
    wanted = [TopicPartition(topic, partition) for topic, partition in ends]
    return all(row.offset >= ends[row.topic, row.partition] for row in consumer.position(wanted))


def ends_of(bootstrap: str, topic: str) -> dict[Partition, int]:
    """The last stable offset of each partition of a topic."""
    with BlockingClient(bootstrap) as client:
        partitions = client.metadata([topic]).topics[topic].partitions
        ends = client.list_offsets({(topic, partition): LATEST for partition in partitions}, READ_COMMITTED)
        return {key: end.offset for key, end in ends.items()}


def count_written(bootstrap: str, topic: str) -> int:
    """The number of committed records in a topic, by the headers of its batches."""
    ends = ends_of(bootstrap, topic)
    spans = {key: (0, end) for key, end in ends.items()}
    with BlockingClient(bootstrap) as client:
        return sum(
            header.record_count
            for piece in client.fetch(spans, isolation_level=READ_COMMITTED)
            for header in iter_batches(piece.data)
            if not header.is_control
        )


def windows_of(values: list[bytes]) -> pd.DataFrame:
    """The results as a table, with hours as timestamps."""
    windows = pd.read_json(io.BytesIO(b"\n".join(values)), lines=True, convert_dates=False)
    return windows.assign(hour=pd.to_datetime(windows["hour"], utc=True))
