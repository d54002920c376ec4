"""Several inputs of one topic, chosen times, whole records, numbers and side outputs on Spark, as in the TestDriver."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from pyspark import cloudpickle

from conformance.targets import Target
from conformance.test_streams_on_spark import read_pairs
from conformance.test_streams_operators_on_spark import PARTITIONS, by_key, random_rows, run, send
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.streams import App, JoinWindows, Record, TestDriver

RESULTS = ("both", "joined", "last", "log")

# Workers cannot import this module. The program that `felice run` runs is none either.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def shop(name: str) -> App:
    app = App(name, value="string")
    log = app.side_output(f"{name}-log")
    clicks = app.stream(f"{name}-clicks")
    again = app.stream(f"{name}-clicks", ts=lambda key, click: 1_000_000 + int(click[-1]))

    def marked(record: Record) -> Record:
        if record.value.endswith("2"):
            log(record.key, record.value)
        return record._replace(value=f"{record.value}@{record.timestamp % 1_000}")

    marks = again.map_records(marked, keeps_key=True)
    clicks.merge(marks).to(f"{name}-both")
    rows = app.table(f"{name}-clicks")
    clicks.left_join(rows, lambda click, row: f"{click}:{row}").to(f"{name}-joined")
    numbered = clicks.numbered(lambda key, click, number: f"{number:09} {click}")
    numbered.outer_join(
        app.stream(f"{name}-orders"), lambda *both: f"{both}", within=JoinWindows(20, 20, 500, waits=False)
    ).map_values(lambda key, text: text[11:]).to(f"{name}-last")  # Another partition gives other numbers.
    return app


def test_inputs_and_side_outputs_give_the_results_of_the_test_driver(
    broker: Target, spark: Any, tmp_path: Path
) -> None:
    name = unique_name("inputs")
    for topic in ("clicks", "orders", *RESULTS):
        create_topic(broker, f"{name}-{topic}", partitions=PARTITIONS)
    dice, now = Random(9), int(time.time() * 1000) // 1000 * 1000
    driver = TestDriver(shop(name), PARTITIONS)
    for number in range(2):
        rows = random_rows(dice, name, ("clicks", "orders"), 60, now + number * 1_000)
        rows = [row for row in rows if row[2] is not None]
        send(broker, rows)
        run(shop(name), spark, broker, tmp_path / "checkpoint")
        for row in rows:
            driver.send(*row)
    for topic in RESULTS:
        expected = [(record.key, record.value) for record in driver.read(f"{name}-{topic}")]
        assert len(expected) > 20, topic
        assert by_key(read_pairs(broker.bootstrap, f"{name}-{topic}")) == by_key(expected), topic
