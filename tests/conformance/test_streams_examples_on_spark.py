"""Two programs of docs/streams-examples.md on Spark, over real topics."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from felice.streams import App
from felice.testing import Broker, felice_broker
from streams.documents import blocks, run_block

pytestmark = pytest.mark.felice_only

DOCUMENT = "streams-examples.md"
HOUR = 3_600_000
# Two days ago: retention deletes records of 1970 at once, and brokers refuse records of tomorrow.
BEGIN = int(time.time() * 1000) // (24 * HOUR) * 24 * HOUR - 48 * HOUR


def program(name: str) -> dict[str, Any]:
    return run_block(DOCUMENT, name, blocks(DOCUMENT, "example")[name])


class Place:
    """A broker, and applications that run on Spark until they have processed everything."""

    def __init__(self, broker: Broker, spark: Any, directory: Path) -> None:
        self.broker, self._spark, self._directory = broker, spark, directory

    def send(self, topic: str, key: str | None, value: Any, timestamp: int) -> None:
        key_bytes = None if key is None else key.encode()
        self.broker.produce(topic, json.dumps(value).encode(), key=key_bytes, timestamp_ms=BEGIN + timestamp)

    def run(self, app: App) -> None:
        from felice.pipelines.streams.on_spark.runner import start

        checkpoint = self._directory / app.name
        query = start(
            app.scope, self._spark, self.broker.bootstrap, checkpoint, partitions=2, until_caught_up=True
        )
        query.awaitTermination()

    def values(self, topic: str) -> list[Any]:
        return [json.loads(record.value) for record in self.broker.records(topic)]


def test_a_stock_that_falls_below_its_limit_is_ordered_once_and_its_price_follows(
    spark: Any, tmp_path: Path
) -> None:
    app = program("shop")["app"]
    topics = ["sales", "shipments", "reorder-limits", "reorders", "price-adjustments"]
    with felice_broker(topics=topics) as broker:
        place = Place(broker, spark, tmp_path)
        place.send("reorder-limits", "pen", {"low": 10, "batch": 100, "high": 50}, 0)
        place.send("shipments", None, {"item": "pen", "qty": 80}, 24 * HOUR)
        for hour, qty in ((25, 1), (26, 1), (27, 1)):
            place.send("sales", None, {"item": "pen", "qty": qty}, hour * HOUR)
        place.run(app)
        assert place.values("price-adjustments") == [{"item": "pen", "pct": -10}]
        assert place.values("reorders") == []
        for hour, qty in ((28, 60), (29, 10), (30, 1), (31, 1)):
            place.send("sales", None, {"item": "pen", "qty": qty}, hour * HOUR)
        place.run(app)
        assert place.values("reorders") == [{"item": "pen", "qty": 100}]
        assert [value["pct"] for value in place.values("price-adjustments")] == [-10, 5]


def test_history_processed_again_gives_the_windows_of_the_live_run(spark: Any, tmp_path: Path) -> None:
    defined = program("totals")
    minute = HOUR // 60
    lots = [
        [("shop", 5, 0), ("bar", 3, 5), ("shop", 2, 62)],
        [("shop", 4, 55), ("shop", 9, 59), ("bar", 1, 61)],
    ]
    with felice_broker(topics=["payments", "totals-v1", "totals-v2"]) as broker:
        place = Place(broker, spark, tmp_path)
        for lot in lots:
            for merchant, amount, at in lot:
                place.send("payments", merchant, {"merchant": merchant, "amount": amount}, at * minute)
            place.run(defined["live"])
        place.run(defined["app"])
        ends = [
            {record.key: json.loads(record.value) for record in broker.records(topic)}
            for topic in ("totals-v1", "totals-v2")
        ]
        assert ends[0] == ends[1]
        assert sorted(ends[1].values()) == [1, 2, 3, 18]
