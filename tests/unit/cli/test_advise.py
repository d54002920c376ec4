"""`felice advise`: rates with units, the rule for partitions, and its explanation."""

from __future__ import annotations

import json

import click
import pytest

from felice.cli import main
from felice.cli.advise import Advice, ByteRate, Rate, as_rate


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [
        ("200MB/s", 200e6),
        ("1.5 GiB/s", 1.5 * 1024**3),
        ("800kB/s", 800e3),
        ("2KiB", 2048),
        ("5mb", 5e6),
        ("7B/s", 7),
    ],
)
def test_rates_have_decimal_and_binary_units(text: str, bytes_per_second: float) -> None:
    assert ByteRate().convert(text, None, None) == bytes_per_second


@pytest.mark.parametrize(
    "text", ["200", "0MB/s", "-5MB/s", "nanMB/s", "9" * 5000 + "B", "200Mbit/s", "MB/s", ""]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a rate such as 200MB/s"):
        ByteRate().convert(text, None, None)


def advice(target: int, producer: int, consumer: int) -> Advice:
    return Advice(target, Rate(producer, measured=False), Rate(consumer, measured=True))


@pytest.mark.parametrize(
    ("target", "producer", "consumer", "partitions", "reason"),
    [
        (200_000_000, 80_000_000, 50_000_000, (3, 4, 4), "reading sets it"),
        (200_000_000, 20_000_000, 50_000_000, (10, 4, 10), "writing sets it"),
        (201_000_000, 50_000_000, 50_000_000, (5, 5, 5), "here both are equal"),
        (1_000_000, 80_000_000, 50_000_000, (1, 1, 1), "here both are equal"),
    ],
)
def test_the_larger_number_of_partitions_counts(
    target: int, producer: int, consumer: int, partitions: tuple[int, int, int], reason: str
) -> None:
    found = advice(target, producer, consumer)
    assert (found.for_producers, found.for_consumers, found.partitions) == partitions
    assert f"The larger number counts: {reason}." in list(found.lines())


def test_the_words_name_rates_sources_and_numbers() -> None:
    first, _, writing, reading, *_ = advice(200_000_000, 20_000_000, 1_500_000_000).lines()
    assert first == "Use 10 partitions for 200 MB/s."
    assert writing == (
        "Writing: one producer writes 20 MB/s to one partition (as given). For 200 MB/s that is 10 partitions."
    )
    assert reading.startswith("Reading: one consumer reads 1.5 GB/s from one partition (measured now). ")
    assert "For 200 MB/s that is 1 partition, because" in reading


def test_rates_are_shown_in_the_largest_fitting_unit() -> None:
    assert [as_rate(value) for value in (7, 1500, 123_456_789, 2.5e12)] == [
        "7 B/s",
        "1.5 kB/s",
        "123 MB/s",
        "2,500 GB/s",
    ]


def test_given_rates_need_no_broker(capsys: pytest.CaptureFixture[str]) -> None:
    words = "advise -b 127.0.0.1:1 --throughput 200MB/s --producer-rate 80MB/s --consumer-rate 50MB/s --json"
    assert main.run(main.felice, words.split()) == 0
    assert json.loads(capsys.readouterr().out) == {
        "partitions": 4,
        "partitions_for_producers": 3,
        "partitions_for_consumers": 4,
        "throughput": 200_000_000,
        "producer_rate": 80_000_000,
        "producer_rate_measured": False,
        "consumer_rate": 50_000_000,
        "consumer_rate_measured": False,
    }
