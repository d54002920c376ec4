"""Queries of SQL on Spark, over real topics: the same records as in a test without Spark, once each."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.client import Consumer, Producer, TopicPartition
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.offline.statements import Statements
from felice.pipelines.sql.offline.topics import Topics
from felice.pipelines.sql.programs import program_of
from felice.pipelines.streams.task import TopicRecord
from felice.streams import App

pytestmark = pytest.mark.timeout(1800)

PROGRAM = """
SET 'auto.offset.reset' = 'earliest';
CREATE TABLE users (id STRING PRIMARY KEY, town STRING) WITH (kafka_topic = '{0}-users', value_format = 'JSON');
CREATE STREAM pay (id STRING KEY, who STRING, amt INT) WITH (kafka_topic = '{0}-pay', value_format = 'JSON');
CREATE STREAM located WITH (kafka_topic = '{0}-located') AS
  SELECT p.who, u.town, p.amt * 2 AS twice FROM pay p LEFT JOIN users u ON p.who = u.id WHERE p.amt > 3;
CREATE TABLE totals WITH (kafka_topic = '{0}-totals', value_format = 'DELIMITED') AS
  SELECT who, SUM(amt) AS total, LATEST_BY_OFFSET(amt) AS last FROM pay
  WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY who HAVING COUNT(*) > 1;
"""
RESULTS = ("located", "totals")
Pairs = dict[bytes | None, list[bytes | None]]


def records_of(dice: Random, name: str, count: int, now: int) -> list[TopicRecord]:
    found = []
    for number in range(count):
        who = f"u{dice.randrange(4)}"
        if dice.random() < 0.3:
            value = b'{"town": "%s"}' % dice.choice((b"Rome", b"Oslo"))
            found.append(TopicRecord(f"{name}-users", who.encode(), value, now + number * 100))
        else:
            value = b'{"who": "%s", "amt": %d}' % (who.encode(), dice.randrange(10))
            found.append(TopicRecord(f"{name}-pay", b"%d" % number, value, now + number * 100))
    return found


def expected(name: str, given: list[TopicRecord]) -> dict[str, Pairs]:
    topics = Topics()
    statements = Statements(built_in(), {}, topics)
    statements.execute(PROGRAM.format(name))
    statements.run_queries(given)
    found = {}
    for topic in RESULTS:
        found[topic] = by_key((one.key, one.value) for _, one in topics.topic(f"{name}-{topic}").records)
    return found


def by_key(pairs: Any) -> Pairs:
    found: Pairs = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def written(broker: Target, topic: str) -> Pairs:
    with Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while (message := consumer.poll(60)) is not None and message.error() is None:
            found.append((message.key(), message.value()))
        return by_key(found)


def run(app: App, broker: Target, spark: Any, directory: Path) -> None:
    from felice.pipelines.streams.on_spark.runner import start

    query = start(
        app.scope, spark, broker.bootstrap, directory / app.name, partitions=1, until_caught_up=True
    )
    query.awaitTermination()


def test_queries_write_what_they_write_without_spark(broker: Target, spark: Any, tmp_path: Path) -> None:
    """In two runs, so that the second continues with the state of the first."""
    name = unique_name("sql")
    partitions = {f"{name}-{topic}": 1 for topic in ("users", "pay", *RESULTS)}
    for topic in partitions:
        create_topic(broker, topic, partitions=1)
    dice, given = Random(7), list[TopicRecord]()
    # Not in 1970: the broker's retention would delete them while a slow machine is still at it.
    now = int(time.time()) * 1000
    for turn in range(2):
        more = records_of(dice, name, 40, now + turn * 4000)
        with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            for topic, key, value, timestamp, _ in more:
                producer.produce(topic, value, key, timestamp=timestamp)
        given += more
        program = program_of(
            PROGRAM.format(name), {f"{name}-{topic}": 1 for topic in ("users", "pay", *RESULTS)}, built_in()
        )
        assert not program.topics
        for app in program.apps:
            run(app, broker, spark, tmp_path)
    wanted = expected(name, given)
    assert written(broker, f"{name}-totals") == wanted["totals"]
    # What a payment finds in the table depends on the batch; every payment is there once.
    own, other = written(broker, f"{name}-located"), wanted["located"]
    assert {key: len(values) for key, values in own.items()} == {
        key: len(values) for key, values in other.items()
    }
