"""Apps on Spark, over real topics: the same results as in the TestDriver, once each, and state that comes back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from confluent_kafka import Producer

from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.streams import App, TestDriver, TopologyError

Row = tuple[str, str, str, int]


def shop(name: str) -> App:
    """A stateless step, a repartition, an aggregation, a join with a table, and an aggregation with undo."""
    app = App(name, value="string")
    users = app.table(f"{name}-users")
    words = app.stream(f"{name}-lines").flat_map_values(lambda key, line: line.split())
    words.group_by(lambda key, word: word).count(name="counts").to(f"{name}-counts")
    words.left_join(users, lambda word, user: f"{word}:{user}").to(f"{name}-joined")
    regions = users.group_by(lambda key, user: (user[0], user))
    regions.count(name="regions").to(f"{name}-regions")
    return app


def rows_of(dice: Random, name: str, count: int, now: int) -> list[Row]:
    rows = []
    for number in range(count):
        key = f"k{dice.randrange(5)}"
        if dice.random() < 0.3:
            rows.append((f"{name}-users", key, dice.choice(("x1", "x2", "y1")), now + number))
        else:
            rows.append((f"{name}-lines", key, " ".join(dice.choices("abcdef", k=3)), now + number))
    return rows


class Place:
    def __init__(self, broker: Target, spark: Any, directory: Path, build: Any = shop) -> None:
        self.broker, self.spark, self.directory = broker, spark, directory
        self.name = unique_name("shop")
        for topic in ("users", "lines", "counts", "joined", "regions"):
            create_topic(broker, f"{self.name}-{topic}", partitions=2)
        self.app = build(self.name)
        self.sent: list[Row] = []

    def send(self, rows: list[Row]) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for topic, key, value, timestamp in rows:
            producer.produce(topic, value, key, timestamp=timestamp, partition=ord(key[-1]) % 2)
        assert producer.flush(30) == 0
        self.sent += rows

    def run(self) -> None:
        from felice.pipelines.streams.on_spark.runner import start

        query = start(
            self.app, self.spark, self.broker.bootstrap, self.directory, partitions=2, until_caught_up=True
        )
        query.awaitTermination()

    def forget_last_commit(self) -> None:
        """As if Spark had died before it noted the end of the last batch."""
        last = max((self.directory / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (self.directory / "commits" / f".{last.name}.crc").unlink(missing_ok=True)

    def written(self, topic: str) -> dict[str, list[str]]:
        found = defaultdict(list)
        for key, value in read_pairs(self.broker.bootstrap, f"{self.name}-{topic}"):
            found[key].append(value)
        return dict(found)

    def expected(self, topic: str) -> dict[str, list[str]]:
        driver = TestDriver(shop(self.name))
        for row in self.sent:
            driver.send(*row)
        found = defaultdict(list)
        for record in driver.read(f"{self.name}-{topic}"):
            found[str(record.key)].append(str(record.value))
        return dict(found)


def read_pairs(bootstrap: str, topic: str) -> list[tuple[str, str]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(2)])
    found, ended = [], 0
    while ended < 2:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append((message.key().decode(), message.value().decode()))
    consumer.close()
    return found


def test_changes_equal_those_of_the_test_driver_also_when_a_batch_runs_again(
    broker: Target, spark: Any, tmp_path: Path
) -> None:
    place, dice = Place(broker, spark, tmp_path / "checkpoint"), Random(4)
    # Not in 1970: the broker's retention would delete them while a slow machine is still at it.
    now = int(time.time() * 1000)
    place.send(rows_of(dice, place.name, 60, now))
    place.run()
    place.forget_last_commit()
    place.send(rows_of(dice, place.name, 60, now + 1_000))
    place.run()
    for topic in ("counts", "joined", "regions"):
        assert place.written(topic) == place.expected(topic), topic


def test_state_of_another_application_or_topology_is_refused(tmp_path: Path, spark: Any) -> None:
    from felice.pipelines.streams.on_spark.runner import _described

    def counting(name: str, topic: str) -> App:
        app = App(name)
        app.stream(topic).group_by_key().count().to("out")
        return app

    assert _described(counting("a", "in"), tmp_path, 3) == 3
    assert _described(counting("a", "in"), tmp_path, 5) == 3
    with pytest.raises(TopologyError, match="belongs to the application 'a'"):
        _described(counting("b", "in"), tmp_path, 3)
    with pytest.raises(TopologyError, match="belongs to an earlier topology"):
        _described(counting("a", "other"), tmp_path, 3)


PROGRAM = """
from felice.streams import App

app = App("{name}", value="string")
words = app.stream("{name}-lines").flat_map_values(lambda key, line: line.split())
words.group_by(lambda key, word: word[0]).count().to("{name}-counts")
"""


def test_a_program_runs_to_the_end_of_its_topic_and_a_failure_is_told(broker: Target, tmp_path: Path) -> None:
    name = unique_name("program")
    for topic in ("lines", "counts"):
        create_topic(broker, f"{name}-{topic}", partitions=2)
    (tmp_path / "program.py").write_text(PROGRAM.format(name=name))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(f"{name}-lines", "aa b ab", "k", partition=0)
    producer.flush(30)

    def run() -> subprocess.CompletedProcess[str]:
        felice = str(Path(sys.executable).with_name("felice"))
        command = [felice, "run", "program.py", "--until-caught-up", "--master", "local[2]"]
        return subprocess.run(
            [*command, "--bootstrap-server", broker.bootstrap],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=280,
        )

    done = run()
    assert done.returncode == 0, done.stderr
    assert "1 rows" in done.stderr
    assert sorted(read_pairs(broker.bootstrap, f"{name}-counts")) == [("a", "1"), ("a", "2"), ("b", "1")]
    producer.produce(f"{name}-lines", b"\xff", "k", partition=1)
    producer.flush(30)
    failed = run()
    assert failed.returncode == 1
    last = failed.stderr.strip().splitlines()[-1]
    assert last.startswith(f"error: StreamsError: a record of topic '{name}-lines' cannot be read"), (
        failed.stderr
    )
    assert last.endswith(f"(at {name}-lines-1, offset 0)")
