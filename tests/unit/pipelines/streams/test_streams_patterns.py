"""Streams of all topics that match a pattern."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.spark.options import SourceOptions
from felice.streams import App, Context, KeyValues, Processor, Record, TestDriver, TopologyError

PATTERN = re.compile(r"orders-\w+")


class Origins(Processor):
    """Appends the topic that a record was read from."""

    def init(self, context: Context) -> None:
        self.context = context

    def process(self, record: Record) -> list[Record]:
        metadata = self.context.record_metadata
        return [record._replace(value=f"{record.value}@{None if metadata is None else metadata.topic}")]


def counting(ts: Any = None) -> App:
    app = App("patterns", key="string", value="string")
    orders = app.stream(PATTERN, ts=ts)
    orders.group_by_key().count(name="counts").to_stream().to("counts", value="json")
    orders.process(Origins, stores=[KeyValues("seen")]).to("seen-orders")
    app.stream("orders-special").to("special")
    return app


def test_other_topics_are_not_read() -> None:
    driver = TestDriver(counting())
    driver.send("orders-eu", "k", "v")
    assert [one.value for one in driver.read("seen-orders")] == ["v@orders-eu"]
    # A topic that has a stream of its own is not read by that of the pattern.
    driver.send("orders-special", "k", "v")
    assert [one.value for one in driver.read("special")] == ["v"] and driver.read("seen-orders") == []
    for topic in ("order-eu", "orders-eu.x", "my-orders-eu"):
        with pytest.raises(TopologyError, match="reads no topic"):
            driver.send(topic, "k", "v")


def test_the_subscription_names_all_topics() -> None:
    app = counting()
    name, value = app.topology.subscription()
    assert name == "subscribePattern" and app.topology.topics() == ["/orders-\\w+/", "orders-special"]
    matches = SourceOptions.parse({name: value, "kafka.bootstrap.servers": "h:1"}).subscription.matches
    names = ("orders-eu", "orders-special", "orders-", "x-orders-eu", "orders-eu.x", "special")
    assert [topic for topic in names if matches(topic)] == ["orders-eu", "orders-special"]
    assert [topic for topic in names if app.topology.reads(topic)] == ["orders-eu", "orders-special"]


def test_what_a_pattern_cannot_be_is_told() -> None:
    app = App("wrong")
    with pytest.raises(
        TopologyError, match=r"the pattern a has flags; write them into the pattern, as in \(\?i:a\)"
    ):
        app.stream(re.compile("a", re.IGNORECASE))
    with pytest.raises(
        TopologyError, match="topics that match a pattern begin at 'earliest'; start is 'latest'"
    ):
        app.stream(re.compile("a"), start="latest")
