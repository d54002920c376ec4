"""Foreign-key joins, global and versioned tables, processors and dedupe on Spark: the results of the TestDriver."""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark import cloudpickle

from conformance.targets import Target
from conformance.test_streams_on_spark import read_pairs
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.records.kernels import murmur2
from felice.streams import App, Context, KeyValues, Processor, Record, TestDriver

Row = tuple[str, str, str | None, int]
TOPICS = (
    *("orders", "users", "rates", "clicks", "prices"),
    *("referred", "rated", "sums", "once", "placed", "priced"),
)
PARTITIONS = 2


# Workers cannot import this module. The program that `felice run` runs is none either.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Sums(Processor):
    """Appends values, and sends and removes them when a timer is due."""

    def __init__(self, interval_ms: int, clock: str) -> None:
        self.interval_ms, self.clock = interval_ms, clock

    def init(self, context: Context) -> None:
        self.sums = context.store("sums")
        context.schedule(self.interval_ms, self.on_timer, clock=self.clock)

    def process(self, record: Record) -> None:
        row = self.sums.get(record.key)
        self.sums.put(record.key, ("" if row is None else row.value) + record.value)

    def on_timer(self, time: int) -> list[Record]:
        found = sorted(self.sums.items())
        for key, _ in found:
            self.sums.put(key, None)
        return [Record(key, row.value, time) for key, row in found]


def shop(name: str) -> App:
    app = App(name, value="string")
    users, orders = app.table(f"{name}-users"), app.table(f"{name}-orders")
    orders.left_join(users, lambda order, user: f"{order}:{user}", on=lambda _, order: order[:2]).to(
        f"{name}-referred"
    )
    clicks = app.stream(f"{name}-clicks")
    rates = app.global_table(f"{name}-rates")
    clicks.left_join(rates, lambda click, rate: f"{click}*{rate}", on=lambda _, click: click[:2]).to(
        f"{name}-rated"
    )
    # As it was at the time of the click, which the task may see after later changes of the table.
    history = app.table(f"{name}-prices", history_ms=1_000)
    clicks.left_join(history, lambda click, price: f"{click}@{price}", grace_ms=50).to(f"{name}-priced")
    clicks.process(lambda: Sums(100, "stream"), stores=[KeyValues("sums")]).to(f"{name}-sums")
    clicks.dedupe(lambda key, click: click, within_ms=150).to(f"{name}-once")
    clicks.key_by(lambda key, click: click[:2]).repartition().map_values(
        lambda key, click: f"{key}={click}"
    ).to(f"{name}-placed")
    return app


def random_rows(dice: Random, name: str, topics: tuple[str, ...], count: int, now: int) -> list[Row]:
    rows: list[Row] = []
    for number in range(count):
        topic, key = dice.choice(topics), f"k{dice.randrange(4)}"
        value = f"k{dice.randrange(4)}-{dice.randrange(3)}"
        is_deleted = topic in ("users", "orders", "rates", "prices") and dice.random() < 0.15
        rows.append((f"{name}-{topic}", key, None if is_deleted else value, now + 7 * number))
    return rows


def send(broker: Target, rows: list[Row]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for topic, key, value, timestamp in rows:
        producer.produce(topic, value, key, timestamp=timestamp, partition=ord(key[-1]) % PARTITIONS)
    assert producer.flush(60) == 0


def run(app: App, spark: Any, broker: Target, directory: Path) -> None:
    from felice.pipelines.streams.on_spark.runner import start

    start(
        app.scope, spark, broker.bootstrap, directory, partitions=2, until_caught_up=True
    ).awaitTermination()


def by_key(pairs: list[tuple[Any, Any]]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


@pytest.fixture
def name(broker: Target) -> str:
    found = unique_name("shop")
    for topic in TOPICS:
        create_topic(broker, f"{found}-{topic}", partitions=PARTITIONS)
    return found


def test_operators_give_the_results_of_the_test_driver(
    broker: Target, spark: Any, tmp_path: Path, name: str
) -> None:
    dice, now = Random(8), int(time.time() * 1000) // 1000 * 1000
    batches = [
        random_rows(dice, name, ("users", "orders", "rates", "prices"), 80, now),
        random_rows(dice, name, ("clicks",), 80, now + 1_000),
        random_rows(dice, name, ("users", "orders", "clicks", "prices"), 100, now + 2_000),
    ]
    driver, app = TestDriver(shop(name), PARTITIONS), shop(name)
    for rows in batches:
        send(broker, rows)
        run(app, spark, broker, tmp_path / "checkpoint")
        for row in rows:
            driver.send(*row)
    for topic in ("rated", "sums", "once", "placed", "priced"):
        expected = [(record.key, record.value) for record in driver.read(f"{name}-{topic}")]
        written = read_pairs(broker.bootstrap, f"{name}-{topic}")
        assert len(expected) > 20, topic
        assert by_key(written) == by_key(expected), topic
    # A batch may leave out what its later records replaced; the table is the same.
    expected = {record.key: record.value for record in driver.read(f"{name}-referred")}
    assert dict(read_pairs(broker.bootstrap, f"{name}-referred")) == expected


def test_timers_of_the_wall_clock_run_without_records(
    broker: Target, spark: Any, tmp_path: Path, name: str
) -> None:
    from felice.pipelines.streams.on_spark.runner import start

    app = App(f"{name}-clocked", value="string")
    stream = app.stream(f"{name}-clicks").process(lambda: Sums(1_000, "wall"), stores=[KeyValues("sums")])
    stream.to(f"{name}-sums")
    now = int(time.time() * 1000)
    send(broker, [(f"{name}-clicks", key, f"{key}-x", now) for key in ("k0", "k1", "k2")])
    query = start(app.scope, spark, broker.bootstrap, tmp_path / "checkpoint", partitions=2)
    try:
        deadline = time.monotonic() + 300
        while len(read_pairs(broker.bootstrap, f"{name}-sums")) < 3 and time.monotonic() < deadline:
            assert query.isActive, query.exception()
            time.sleep(0.5)
    finally:
        query.stop()
    written = read_pairs(broker.bootstrap, f"{name}-sums")
    assert sorted(written) == [("k0", "k0-x"), ("k1", "k1-x"), ("k2", "k2-x")]


def test_an_application_reads_a_pattern_and_chooses_the_partitions_of_its_results(
    broker: Target, spark: Any, tmp_path: Path, name: str
) -> None:
    app = App(f"{name}-routed", value="string")
    routed = app.stream(re.compile(f"{name}-clicks.*")).map(lambda key, value: (key, value))
    routed.to(f"{name}-rated", partition=lambda key, value: None if value == "any" else int(value))
    routed.group_by_key().count().to_stream().to(f"{name}-sums", partition=lambda key, count: 5)
    now = int(time.time() * 1000)
    values = ["any", "0", "1", "2", "3", "any"]
    send(broker, [(f"{name}-clicks", f"k{number}", value, now) for number, value in enumerate(values[:4])])
    run(app, spark, broker, tmp_path / "checkpoint")
    # A topic that is created later matches the pattern, too.
    create_topic(broker, f"{name}-clicks-2", partitions=PARTITIONS)
    send(broker, [(f"{name}-clicks-2", f"k{number}", values[number], now) for number in (4, 5)])
    run(app, spark, broker, tmp_path / "checkpoint")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": unique_name("g"),
            "isolation.level": "read_committed",
        }
    )
    found = {}
    for topic in ("rated", "sums"):
        consumer.assign([TopicPartition(f"{name}-{topic}", number, 0) for number in range(PARTITIONS)])
        for _ in values:
            message = consumer.poll(60)
            assert message is not None and message.error() is None and message.headers() is None
            found[topic, message.key().decode()] = message.partition()
    consumer.close()
    assert [found["sums", f"k{number}"] for number in range(len(values))] == [5 % PARTITIONS] * len(values)
    by_key = {f"k{number}": murmur2(f"k{number}".encode()) % PARTITIONS for number in (0, 5)}
    chosen = {f"k{number}": int(values[number]) % PARTITIONS for number in range(1, 5)}
    assert {key: found["rated", key] for key in by_key | chosen} == by_key | chosen
