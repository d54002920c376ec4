"""The figures of a load, and how Kafka's performance tools read their arguments."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from felice.cli import load
from felice.cli.kafka_tools import perf
from felice.cli.kafka_tools.perf import ConsumerReport, ProducerReport, repeat_option
from felice.cli.load import MIB, Deliveries, Rebalances, percentile


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


def test_each_line_of_progress_counts_its_own_interval(capsys: pytest.CaptureFixture[str]) -> None:
    report = ProducerReport(3, warmup=0, interval_s=0.0)
    for _ in range(3):
        report.add(1.0, 10)
    report.end()
    counts = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert counts == ["1", "1", "1", "3"]


def test_detailed_statistics_have_totals_and_the_rates_of_their_interval(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(perf, "time", SimpleNamespace(perf_counter=lambda: now_s))
    rebalances = Rebalances()
    report = ConsumerReport(rebalances, interval_s=1.0)
    now_s, rebalances.total_s = 2.0, 1.5
    report.on_read(5, MIB)
    now_s = 2.5
    report.on_read(1, 0)
    now_s = 3.0
    report.on_read(1, MIB)
    report.end()
    lines = [line.split(", ", 2)[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "1.0000, 0.5000, 5, 2.5000, 1500, 500, 2.0000, 10.0000",
        "2.0000, 1.0000, 7, 2.0000, 0, 1000, 1.0000, 2.0000",
    ]


def test_neither_making_nor_closing_the_producer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(load, "time", SimpleNamespace(perf_counter=lambda: now_s))
    deliveries = Deliveries(1)
    now_s = 5.0
    deliveries.begin()
    now_s = 7.0
    deliveries.add(1.0, 10)
    now_s = 20.0
    assert deliveries.summary()["seconds"] == 2


def test_closing_the_consumer_does_not_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(perf, "time", SimpleNamespace(perf_counter=lambda: now_s))
    report = ConsumerReport(Rebalances(), interval_s=None)
    now_s = 2.0
    report.on_read(5, MIB)
    now_s = 9.0
    report.end()
    assert capsys.readouterr().out.endswith("1.0000, 0.5000, 5, 2.5000, 0, 2000, 0.5000, 2.5000\n")
