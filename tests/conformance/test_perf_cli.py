"""`felice perf` and Kafka's performance tools against a broker."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from felice.cli import advise, main
from felice.cli.kafka_tools.perf import kafka_consumer_perf_test, kafka_e2e_latency, kafka_producer_perf_test
from felice.client import Consumer, TopicPartition
from felice.server.process.embedded import EmbeddedBroker

Run = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture
def run(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a tool with the broker's address and returns its output; of a failure, its error."""

    def running(tool: click.Command, words: str, code: int = 0) -> str:
        capsys.readouterr()
        found = main.run(tool, words.replace("BROKER", broker.bootstrap).split(), usage_code=1)
        said = capsys.readouterr()
        assert found == code, said.err
        return said.err if code else said.out

    return running


def values(broker: EmbeddedBroker, topic: str, count: int) -> list[bytes | None]:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "isolation.level": "read_committed"}
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, 120)]


SUMMARY = (
    r"(\d+) records sent, \d+\.\d{6} records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency, "
    r"\d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)


def test_the_producer_test_prints_kafkas_lines_and_keeps_the_pace(run: Run) -> None:
    words = "--bootstrap-server BROKER --topic pace --num-records 600 --record-size 10 --throughput 500"
    *windows, last = run(kafka_producer_perf_test, words + " --reporting-interval 300").splitlines()
    found = re.fullmatch(SUMMARY, last)
    assert found and found[1] == "600", last
    # 600 records at 500 a second take 1.2 s. Usually four intervals end; after a pause of the machine, one.
    assert len(windows) >= 1, windows
    for line in windows:
        assert re.fullmatch(
            r"\d+ records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d ms avg latency, "
            r"\d+\.\d ms max latency\.",
            line,
        ), line
    assert float(last.split(", ")[1].split()[0]) < 510


def test_the_producer_test_takes_properties_in_kafkas_way(run: Run, broker: EmbeddedBroker) -> None:
    run(
        kafka_producer_perf_test,
        "--topic many --producer-props linger.ms=1 bootstrap.servers=BROKER --num-records 3 "
        "--payload-monotonic --throughput -1",
    )
    assert values(broker, "many", 3) == [b"0", b"1", b"2"]


def test_the_producer_test_needs_an_address_and_one_kind_of_value(run: Run) -> None:
    assert "--bootstrap-server" in run(
        kafka_producer_perf_test, "--topic t --num-records 1 --record-size 1 --throughput 1", code=1
    )
    for kinds in ("", "--payload-monotonic --record-size 1"):
        words = f"--bootstrap-server BROKER --topic t --num-records 1 --throughput -1 {kinds}"
        assert "exactly one of --record-size" in run(kafka_producer_perf_test, words, code=1)


def test_values_come_from_a_file(run: Run, broker: EmbeddedBroker, tmp_path: Path) -> None:
    (tmp_path / "values").write_text("red;green;")
    words = f"--bootstrap-server BROKER --topic colours --num-records 40 --payload-file {tmp_path / 'values'}"
    said = run(kafka_producer_perf_test, words + " --payload-delimiter ; --throughput -1")
    assert said.startswith("Number of records read: 2\n")
    assert set(values(broker, "colours", 40)) == {b"red", b"green"}


def test_the_producer_test_sends_in_transactions(run: Run, broker: EmbeddedBroker) -> None:
    words = "--bootstrap-server BROKER --topic exact --num-records 30 --payload-monotonic --throughput 100"
    run(kafka_producer_perf_test, words + " --transaction-duration-ms 1")
    assert values(broker, "exact", 30) == [b"%d" % number for number in range(30)]
    with Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"}) as consumer:
        _, end = consumer.get_watermark_offsets(TopicPartition("exact", 0), 60)  # type: ignore[misc]
    # Each commit has a marker. There are many, but few if most records were sent at once after a pause.
    assert end >= 32


def test_the_summary_after_the_warm_up_leaves_it_out(run: Run) -> None:
    words = "--bootstrap-server BROKER --topic warm --num-records 500 --record-size 10 --throughput -1"
    first, steady, whole, rest = run(kafka_producer_perf_test, words + " --warmup-records 200").splitlines()
    assert first.startswith("Warmup first 200 records. ")
    assert steady == "In steady state."
    assert whole.startswith("500 records sent, ")
    assert rest.startswith("300 steady state records sent, ")
    refused = run(kafka_producer_perf_test, words + " --warmup-records 500", code=1)
    assert "must be strictly fewer" in refused


def test_the_consumer_test_prints_kafkas_columns(run: Run, broker: EmbeddedBroker) -> None:
    run(
        kafka_producer_perf_test,
        "--bootstrap-server BROKER --topic read --num-records 2048 --record-size 1024 --throughput -1",
    )
    header, line = run(
        kafka_consumer_perf_test, "--bootstrap-server BROKER --topic read --messages 2048 --timeout 120000"
    ).splitlines()
    found = dict(zip(header.split(", "), line.split(", "), strict=True))
    assert (found["data.consumed.in.MB"], found["data.consumed.in.nMsg"]) == ("2.0000", "2048")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", found["start.time"])
    assert int(found["rebalance.time.ms"]) > 0
    assert float(found["fetch.nMsg.sec"]) > float(found["nMsg.sec"]) > 0


def test_the_consumer_test_reports_intervals_and_a_timeout(run: Run) -> None:
    run(
        kafka_producer_perf_test,
        "--bootstrap-server BROKER --topic few --num-records 5 --record-size 1 --throughput -1",
    )
    words = (
        "--bootstrap-server BROKER --include fe. --num-records 6 --show-detailed-stats --reporting-interval 1"
    )
    for timeout_ms in (12000, 60000):
        said = run(kafka_consumer_perf_test, f"{words} --timeout {timeout_ms}")
        header, *lines, warning = said.splitlines()
        if lines and lines[-1].split(", ")[4] == "5":
            break  # the machine was quick enough to read the records before the timeout
    assert header.startswith("time, threadId, data.consumed.in.MB")
    assert lines and lines[-1].split(", ")[4] == "5", lines
    assert warning.startswith(
        f"WARNING: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms)"
    )


@pytest.mark.parametrize(
    "words",
    [
        "--bootstrap-server BROKER --topic trips --num-records 1001 --producer-acks all --record-size 20 "
        "--record-key-size 3 --num-headers 1 --record-header-key-size 2 --record-header-size -1",
        "BROKER positions 1001 1 20",
    ],
)
def test_the_latency_test_sends_and_reads_each_record(words: str, run: Run, broker: EmbeddedBroker) -> None:
    lines = run(kafka_e2e_latency, words).splitlines()
    named = words.startswith("--")
    assert named or lines.pop(0).startswith("WARNING: Positional argument usage is deprecated")
    topic = "trips" if named else "positions"
    assert lines[0].startswith(f'Topic "{topic}" does not exist.')
    assert [line.split("\t")[0] for line in lines[1:3]] == ["0", "1000"]
    assert re.fullmatch(r"Avg latency: \d+\.\d{4} ms", lines[3])
    assert re.fullmatch(r"Percentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+", lines[4])
    read = values(broker, topic, 1001)
    assert len(read) == 1001
    assert {len(value or b"") for value in read} == {20}


def test_the_latency_test_refuses_acks_0(run: Run) -> None:
    assert "'0' is not one of '1', 'all'" in run(kafka_e2e_latency, "BROKER t 10 0 100", code=1)


def test_felices_own_latency_test_reports_percentiles(run: Run) -> None:
    run(main.felice, "topics create idle -b BROKER --partitions 3")
    found = json.loads(run(main.felice, "perf latency idle -b BROKER --num-records 20 --json"))
    assert found["records"] == 20
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["p99.9_ms"]


def test_the_latency_of_a_missing_topic_is_refused_at_once(run: Run) -> None:
    began_s = time.monotonic()
    said = run(main.felice, "perf latency missing -b BROKER", code=1)
    assert "does not know the topic" in said, said
    # Much less than the 60 s after which a record that was not read fails.
    assert time.monotonic() - began_s < 50


def test_advice_measures_the_rates_that_are_not_given(
    run: Run, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advise, "_MEASURED_RECORDS", 2000)
    words = "advise -b BROKER --throughput 1GB/s --json --record-size 100"
    found = json.loads(run(main.felice, words))
    assert found["producer_rate_measured"] and found["consumer_rate_measured"]
    assert found["partitions_for_producers"] == math.ceil(1e9 / found["producer_rate"])
    assert found["partitions_for_consumers"] == math.ceil(1e9 / found["consumer_rate"])
    given = json.loads(run(main.felice, words + " --consumer-rate 50MB/s"))
    assert (given["consumer_rate"], given["partitions_for_consumers"]) == (50_000_000, 20)
    assert "felice-advise-" not in run(main.felice, "topics list -b BROKER")
