"""What a stream application reads from topics before it starts: rows of new tables, and where its topics begin."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Producer

from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.pipelines.streams.on_spark.filling import TableTopics
from felice.pipelines.streams.on_spark.starts import found_starts
from felice.records.kernels import murmur2
from felice.streams import App, StreamsError

NOW = int(time.time() * 1000) - 60_000


def send(
    broker: Target, topic: str, rows: list[tuple[str | None, str | None, int]], partition: int = 0
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value, timestamp in rows:
        producer.produce(topic, value, key, timestamp=timestamp, partition=partition)
    assert producer.flush(60) == 0


def done_until(checkpoint: Path, offsets: dict[str, dict[str, int]]) -> None:
    """As Spark's logs are after a batch that ended there."""
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "offsets" / "4").write_text(f"v1\n{{}}\n{json.dumps(offsets)}")
    (checkpoint / "commits" / "4").touch()


@pytest.mark.parametrize("kind", ["table", "versioned table", "global table"])
def test_a_new_table_has_the_rows_that_the_application_has_passed(
    broker: Target, tmp_path: Path, kind: str
) -> None:
    topic = unique_name("users")
    create_topic(broker, topic, partitions=2)
    rows = [
        ("a", "old", NOW),
        ("b", "gone", NOW),
        ("a", "new", NOW + 1),
        ("b", None, NOW + 2),
        (None, "x", NOW),
    ]
    send(broker, topic, rows)
    send(broker, topic, [("c", "other", NOW), ("d", "later", NOW)], partition=1)
    app = App("shop", value="string")
    if kind == "global table":
        app.global_table(topic, name="users")
    else:
        app.table(topic, name="users", history_ms=1000 if kind == "versioned table" else None)
    done_until(tmp_path, {topic: {"0": 5, "1": 1, "7": 3}, "other": {"0": 9}})
    source = next(node.source for node in app.topology.nodes if node.source is not None)
    fill = TableTopics(tmp_path, {"kafka.bootstrap.servers": broker.bootstrap})
    stores: list[Any] = fill(app.topology, "users", source, 3)
    found = [{key: store.get(key).value for key in "abcd" if store.get(key) is not None} for store in stores]
    expected = {"a": "new", "c": "other"}
    if kind == "global table":
        assert found == [expected] * 3
    else:
        places = [{key for key in expected if murmur2(key.encode()) % 3 == place} for place in range(3)]
        assert found == [{key: expected[key] for key in keys} for keys in places]


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_record_that_a_new_table_cannot_read(broker: Target, tmp_path: Path, policy: str) -> None:
    topic = unique_name("users")
    create_topic(broker, topic, partitions=1)
    send(broker, topic, [("a", "{", NOW), ("b", "1", NOW)])
    app = App("shop")
    app.table(topic, name="users", on_bad_record=policy)
    done_until(tmp_path, {topic: {"0": 90}})  # More than the topic holds: it was created again.
    source = next(node.source for node in app.topology.nodes if node.source is not None)
    fill = TableTopics(tmp_path, {"kafka.bootstrap.servers": broker.bootstrap})
    if policy == "fail":
        with pytest.raises(StreamsError, match="cannot be read"):
            fill(app.topology, "users", source, 1)
    else:
        [store] = fill(app.topology, "users", source, 1)
        assert list(store.rows) == [b'"b"'] or list(store.rows) == [b"b"]


def test_where_topics_begin(broker: Target) -> None:
    names = [unique_name(name) for name in ("latest", "since", "before", "earliest")]
    for name in names:
        create_topic(broker, name, partitions=2)
        send(broker, name, [("k", "x", NOW + number * 1000) for number in range(5)])
    app = App("shop", value="string")
    starts: list[Any] = ["latest", NOW + 2000, timedelta(days=36_500), "earliest"]
    for name, start in zip(names, starts, strict=True):
        app.stream(name, start=start).foreach(print)
    connected = {"kafka.bootstrap.servers": broker.bootstrap}
    assert found_starts(app.topology, names, connected) == {
        names[0]: {"0": 5, "1": 0},
        names[1]: {"0": 2, "1": 0},
        names[2]: {"0": 0, "1": 0},
    }
    assert found_starts(app.topology, names[3:], connected) == {}
    assert found_starts(app.topology, names[:1], connected).keys() == {names[0]}
