"""Batches of limited size take a backlog in the order of time across partitions."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.spark.offsets import Offsets
from felice.pipelines.streams.on_spark.cut_by_time import FULL_ENOUGH, TimeCut

Logs = dict[tuple[str, int], list[int]]
"""The timestamps of each partition, by offset."""


class Brokers:
    def __init__(self, logs: Logs) -> None:
        self.logs, self.asked = logs, 0

    def first_since(self, timestamp_ms: int) -> Offsets:
        self.asked += 1
        found = {}
        for key, times in self.logs.items():
            first = next((offset for offset, time in enumerate(times) if time >= timestamp_ms), None)
            if first is not None:
                found[key] = first
        return found

    def latest(self) -> Offsets:
        return {key: len(times) for key, times in self.logs.items()}


def batches(
    brokers: Brokers, limit: int, begin: Offsets | None = None
) -> list[list[tuple[int, tuple[str, int]]]]:
    """The records of each batch, until all are read."""
    cut, taken = TimeCut(), []
    begin = begin or dict.fromkeys(brokers.logs, 0)
    while begin != brokers.latest():
        end = cut.end(limit, begin, brokers.latest(), brokers.first_since)
        taken.append(
            [(brokers.logs[key][offset], key) for key in end for offset in range(begin[key], end[key])]
        )
        assert taken[-1], "each batch makes progress"
        begin = end
    return taken


def random_logs(seed: int, *, are_sorted: bool) -> Logs:
    dice, logs = Random(seed), Logs()
    for topic in ("a", "b"):
        for partition in range(2):
            first, step = 1_700_000_000_000 + dice.randrange(10**7), dice.choice((1, 1000, 10**6))
            times = [first + dice.randrange(step * 300) for _ in range(dice.randrange(400))]
            logs[topic, partition] = sorted(times) if are_sorted else times
    return logs


@pytest.mark.parametrize("seed", range(20))
def test_batches_are_bounded_and_in_the_order_of_time(seed: int) -> None:
    brokers = Brokers(random_logs(seed, are_sorted=True))
    found = batches(brokers, 100)
    assert sum(map(len, found)) == sum(map(len, brokers.logs.values()))
    latest = -1
    for batch in found:
        assert len(batch) <= 100
        # Only records of one timestamp, of which there are few here, may be divided between two batches.
        assert min(batch)[0] >= latest
        latest = max(batch)[0]
    assert len(found) <= sum(map(len, found)) / (100 * FULL_ENOUGH) * 1.5 + 2


@pytest.mark.parametrize("seed", range(20))
def test_records_out_of_order_wait_behind_younger_ones_and_nothing_is_left_out(seed: int) -> None:
    brokers = Brokers(random_logs(seed, are_sorted=False))
    found = batches(brokers, 50)
    assert all(len(batch) <= 50 for batch in found)
    for key, times in brokers.logs.items():
        assert [time for batch in found for time, where in batch if where == key] == times


def test_a_topic_with_a_month_of_backlog_does_not_pass_another() -> None:
    day = 86_400_000
    month = [day * 20_000 + hour * 3_600_000 for hour in range(720)]
    brokers = Brokers({("a", 0): month, ("b", 0): [day * 20_029]})
    found = batches(brokers, 100)
    [day_29] = [batch for batch in found if any(key == ("b", 0) for _, key in batch)]
    assert (month[29 * 24], ("a", 0)) in day_29, (
        "the record of the last day comes with the others of that day"
    )
    assert brokers.asked <= 20 * len(found) + 60


def test_more_records_of_one_timestamp_than_the_limit_are_divided() -> None:
    brokers = Brokers({("a", 0): [5] * 300, ("a", 1): [5] * 100, ("a", 2): [6]})
    found = batches(brokers, 100)
    assert [len(batch) for batch in found[:3]] == [100, 100, 100]
    assert found[-1][-1] == (6, ("a", 2)) and all((6, ("a", 2)) not in batch for batch in found[:-1])


def test_older_records_that_come_later_are_found() -> None:
    logs = {("a", 0): list(range(10_000, 10_200)), ("b", 0): [20_000]}
    brokers, cut = Brokers(logs), TimeCut()
    end = cut.end(100, dict.fromkeys(logs, 0), brokers.latest(), brokers.first_since)
    assert 80 <= end["a", 0] <= 100 and end["b", 0] == 0
    logs["c", 0] = list(range(150))
    end = cut.end(100, end | {("c", 0): 0}, brokers.latest(), brokers.first_since)
    assert 80 <= end["c", 0] <= 100 and end["b", 0] == 0
