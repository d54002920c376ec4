"""The figures of a load, and how Kafka's performance tools read their arguments."""

from __future__ import annotations

import pytest

from felice.cli import load
from felice.cli.kafka_tools.perf import repeat_option
from felice.cli.load import Deliveries, percentile


def test_average_and_maximum_include_every_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_MOST_LATENCIES", 10)
    deliveries = Deliveries(100)
    for number in range(100):
        deliveries.add(1000.0 if number == 99 else 1.0, 10)
    found = deliveries.summary()
    assert found["records"] == 100
    # Only every tenth latency is kept for percentiles; the slow one is not among them.
    assert found["latency_ms"] == {"average": 10.99, "max": 1000, "p50": 1, "p95": 1, "p99": 1, "p99.9": 1}


def test_percentiles_are_values_of_the_list() -> None:
    ordered = [float(value) for value in range(1000)]
    assert [percentile(ordered, share) for share in (50, 99, 99.9)] == [500, 990, 999]
    assert percentile([7.0], 99.9) == 7
    assert percentile([], 50) == 0


def test_an_option_is_repeated_before_each_of_its_values() -> None:
    given = ["--topic", "t", "--many", "a=b", "c=d", "--records", "3", "--many", "e=f"]
    repeated = ["--topic", "t", "--many", "a=b", "--many", "c=d", "--records", "3", "--many", "e=f"]
    assert repeat_option(given, ["--many"]) == repeated
    assert repeat_option(["x", "--topic", "t", "u"], ["--many"]) == ["x", "--topic", "t", "u"]
