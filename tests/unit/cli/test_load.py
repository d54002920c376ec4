"""The figures of a load, and how Kafka's performance tools read their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Self

import pytest

from felice.cli import load
from felice.cli.kafka_tools import perf
from felice.cli.kafka_tools.perf import ConsumerReport, ProducerReport, repeat_option
from felice.cli.load import MIB, Deliveries, Rebalances, consume_batches, percentile
from felice.client import KafkaError, KafkaException
from felice.client.error import error_of


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


class ScriptedConsumer:
    """Each `consume` returns the next part of the script, as a list of errors (None: a record), and takes 1 s."""

    def __init__(self, script: Sequence[list[KafkaError | None]]) -> None:
        self.now_s = 0.0
        self._script = list(script)

    def __call__(self, config: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def subscribe(self, topics: list[str], **callbacks: object) -> None:
        pass

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        self.now_s += 1
        errors = self._script.pop(0) if self._script else []
        return [SimpleNamespace(error=lambda error=error: error) for error in errors]


UNKNOWN = error_of(KafkaError.UNKNOWN_TOPIC_OR_PART, "t")
DENIED = error_of(KafkaError.TOPIC_AUTHORIZATION_FAILED, "t")
DAMAGED = error_of(KafkaError._BAD_MSG, "t-0")
END = error_of(KafkaError._PARTITION_EOF, "t-0")


def consumed(monkeypatch: pytest.MonkeyPatch, *script: list[KafkaError | None]) -> int:
    """The number of records that were read until none came for 3 s."""
    consumer = ScriptedConsumer(script)
    monkeypatch.setattr("felice.client.Consumer", consumer)
    monkeypatch.setattr(load, "time", SimpleNamespace(perf_counter=lambda: consumer.now_s))
    return sum(map(len, consume_batches({}, "t", Rebalances(), records=9, timeout_s=3)))


def test_reading_a_topic_that_may_not_be_read_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaException) as failed:
        consumed(monkeypatch, [None], [DENIED, None], [None])
    assert failed.value.error == DENIED


def test_reading_an_unknown_topic_fails_when_no_record_came(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaException) as failed:
        consumed(monkeypatch, [UNKNOWN], [])
    assert failed.value.error == UNKNOWN


def test_an_error_that_passed_and_the_end_of_a_partition_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert consumed(monkeypatch, [UNKNOWN], [None, None], [UNKNOWN], [END]) == 2
    assert consumed(monkeypatch, [END]) == 0


def test_an_error_before_the_end_of_an_empty_partition_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert consumed(monkeypatch, [UNKNOWN], [END]) == 0


def test_a_damaged_batch_that_the_consumer_skips_does_not_end_the_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert consumed(monkeypatch, [None], [DAMAGED], [None]) == 2


def test_a_topic_with_only_damaged_batches_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaException) as failed:
        consumed(monkeypatch, [DAMAGED], [])
    assert failed.value.error == DAMAGED
