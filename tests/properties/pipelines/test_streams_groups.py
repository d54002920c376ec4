"""Records in groups give what they give one by one: results in order, and state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.pipelines.streams.record import Group
from felice.pipelines.streams.task import Task, TopicRecord
from felice.pipelines.streams.topology import SubTopology
from felice.streams import App, Context, DeadLetters, Format, Processor, Record, Stream
from peers.streams_oracle import Row
from streams.comparison import random_rows, topics_of
from streams.topologies import TOPOLOGIES


def records_of(rows: list[Row]) -> list[TopicRecord]:
    return [
        TopicRecord(topic, _bytes(key), _bytes(value), timestamp, (("number", b"%d" % number),))
        for number, (topic, key, value, timestamp) in enumerate(rows)
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def groups_of(records: list[TopicRecord], dice: Random) -> Iterator[tuple[str, Group]]:
    for topic, run in groupby(records, attrgetter("topic")):
        left = [Record(*one[1:]) for one in run]
        while left:
            size = dice.randrange(1, 30)
            yield topic, Group.of(left[:size])
            left = left[size:]


def each(task: Task, topic: str, group: Group) -> tuple[list[TopicRecord], list[int]]:
    """The results of single records, and the numbers of the records that caused them."""
    results, numbers = [], []
    for number, record in enumerate(group.records()):
        found = task.process(TopicRecord(topic, *record))
        results += found
        numbers += [number] * len(found)
    return results, numbers


def check(app: App, part: SubTopology, records: list[TopicRecord], dice: Random) -> list[TopicRecord]:
    """Returns what the part sends."""
    task, other = Task(app.topology, part), Task(app.topology, part)
    sent = []
    for topic, group in groups_of(records, dice):
        results, numbers = each(task, topic, group)
        together = other.process_group(topic, group)
        assert list(map(TopicRecord, *together.columns())) == results
        assert part.is_placed or (together.numbers or list(range(len(results)))) == numbers
        sent += results
    for name, store in task.stores.items():
        assert other.stores[name].rows == store.rows
        changes = (sorted(one.stores[name].take_changes(), key=repr) for one in (task, other))
        assert next(changes) == next(changes)
    assert other.skipped == task.skipped
    return sent


def check_all(app: App, rows: list[Row], seed: int) -> None:
    waiting = records_of(rows)
    for part in app.topology.parts():
        mine = {one.topic for one in part.sources}
        waiting += check(app, part, [one for one in waiting if one.topic in mine], Random(seed))


def logged(app: App) -> Stream:
    """A stream whose function logs some of its records."""
    log = app.side_output("log")
    return app.stream("a").peek(lambda key, value: log(key, value) if value and value > "4" else None)


def letters(app: App) -> None:
    windows = logged(app).group_by_key().tumbling(10, on_late=DeadLetters("late"))
    windows.count(name="n").to_stream().key_by(lambda key, value: key.key).to("out")


class Picky(Format):
    """Text, but not all of it."""

    name = "picky"

    def write(self, value: str) -> bytes:
        return value.encode()

    def read(self, data: bytes) -> str:
        if data in (b"3", b"7"):
            raise ValueError("a number that is not liked")
        return data.decode()


LETTERS = DeadLetters("letters")


def picky(app: App, policy: Any = LETTERS) -> Stream:
    return app.stream("a", value=Picky(), on_bad_record=policy)


def timed(app: App, policy: Any) -> Stream:
    return app.stream(
        "a", value=Picky(), on_bad_record="skip", on_error=policy, ts=lambda key, value: int(value)
    )


class Ticking(Processor):
    """Passes records, and sends one for each tick of stream time."""

    def init(self, context: Context) -> None:
        context.schedule(10, lambda time: [Record("tick", "t", time)])

    def process(self, record: Record) -> list[Record]:
        return [record]


OWN: dict[str, Callable[[App], None]] = {
    "map_records": lambda app: (
        app.stream("a").map_records(lambda one: one._replace(timestamp=one.timestamp - 30)).to("out")
    ),
    "flat_map_records": lambda app: (
        app.stream("a").flat_map_records(lambda one: [one] * (one.timestamp % 3), keeps_key=True).to("out")
    ),
    "numbered": lambda app: app.stream("a").numbered(lambda *one: repr(one), name="numbers").to("out"),
    "numbered_again": lambda app: (
        app.stream("a").key_by(lambda key, value: value).numbered(lambda *one: repr(one)).to("out")
    ),
    "logged": lambda app: logged(app).to("out"),
    "logged_filter": lambda app: logged(app).filter(lambda key, value: value != "5").to("out"),
    "logged_letters": letters,
    "bad_skipped": lambda app: picky(app, "skip").to("out"),
    "bad_letters": lambda app: picky(app).to("out"),
    "bad_letters_filter": lambda app: picky(app).filter(lambda key, value: value != "5").to("out"),
    "bad_letters_count": lambda app: picky(app).group_by_key().count(name="n").to("out", key="string"),
    "bad_letters_errors": lambda app: (
        app.stream("a", value=Picky(), on_bad_record=LETTERS, on_error=LETTERS)
        .map_values(lambda key, value: str(1 / (int(value) - 5)))
        .to("out")
    ),
    "bad_letters_process": lambda app: picky(app).process(Ticking).to("out"),
    "bad_letters_late": lambda app: (
        picky(app).group_by_key().tumbling(10, on_late=LETTERS).count(name="n").to_stream().to("out")
    ),
    "times_skipped": lambda app: timed(app, "skip").to("out"),
    "times_letters": lambda app: timed(app, LETTERS).group_by_key().count(name="n").to("out"),
}
"""Topologies that Kafka Streams does not have."""


@pytest.mark.parametrize("name", [*TOPOLOGIES, *OWN])
@given(st.integers(0, 1 << 32))
@settings(max_examples=8, deadline=None)
def test_groups_give_what_single_records_give(name: str, seed: int) -> None:
    app = App("groups", key="string", value="string")
    (TOPOLOGIES | OWN)[name](app)
    dice = Random(seed)
    rows = random_rows(dice, ["a"] if name in OWN else topics_of(name), 60)
    # Also long runs of one topic, as in a batch of one partition.
    check_all(app, rows if dice.random() < 0.5 else sorted(rows, key=lambda row: row[0]), seed)
