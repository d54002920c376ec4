"""Records in groups give what they give one by one: results of each topic in order, and state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.pipelines.streams.record import Group, Record
from felice.pipelines.streams.task import Task, TopicRecord
from felice.pipelines.streams.topology import SubTopology
from felice.streams import App
from peers.streams_oracle import Row
from streams.comparison import random_rows, topics_of
from streams.topologies import TOPOLOGIES, pair


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


Numbered = tuple[int, TopicRecord]
"""A result, after the position of its source record in the group."""


def one_by_one(task: Task, topic: str, group: Group) -> list[Numbered]:
    return [
        (number, result)
        for number, record in enumerate(group.records())
        for result in task.process(TopicRecord(topic, *record))
    ]


def together(task: Task, topic: str, group: Group) -> list[Numbered]:
    return [
        (number, TopicRecord(to, *record))
        for to, results in task.process_group(topic, group)
        for number, record in zip(results.numbers, results.records(), strict=True)
    ]


def apart(results: Iterable[Numbered]) -> dict[str, list[Numbered]]:
    made: dict[str, list[Numbered]] = {}
    for number, record in results:
        made.setdefault(record.topic, []).append((number, record))
    return made


def check(app: App, part: SubTopology, records: list[TopicRecord], dice: Random) -> list[TopicRecord]:
    """Returns what the part sends."""
    task, other = Task(app.topology, part), Task(app.topology, part)
    sent = []
    for topic, group in groups_of(records, dice):
        results = one_by_one(task, topic, group)
        sent += [record for _, record in results]
        if other.takes_groups:
            assert apart(together(other, topic, group)) == apart(results)
    if other.takes_groups:
        for name, store in task.stores.items():
            assert other.stores[name].rows == store.rows
            assert sorted(other.stores[name].take_changes(), key=repr) == sorted(
                store.take_changes(), key=repr
            )
        assert other.skipped == task.skipped
    return sent


def check_all(app: App, rows: list[Row], seed: int) -> None:
    waiting = records_of(rows)
    for part in app.topology.parts():
        mine = {one.topic for one in part.sources}
        waiting += check(app, part, [one for one in waiting if one.topic in mine], Random(seed))


@pytest.mark.parametrize("name", TOPOLOGIES)
@given(st.integers(0, 1 << 32))
@settings(max_examples=8, deadline=None)
def test_groups_give_what_single_records_give(name: str, seed: int) -> None:
    app = App("groups", key="string", value="string")
    TOPOLOGIES[name](app)
    dice = Random(seed)
    rows = random_rows(dice, topics_of(name), 60)
    # Also long runs of one topic, as in a batch of one partition.
    check_all(app, rows if dice.random() < 0.5 else sorted(rows, key=lambda row: row[0]), seed)


def takes_groups(app: App) -> bool:
    (part,) = app.topology.parts()
    return part.takes_groups


def test_groups_are_not_used_where_they_would_change_the_order() -> None:
    apps = [App(name, value="string") for name in ("plain", "two ways", "one topic", "one store")]
    plain, two_ways, one_topic, one_store = (app.stream("a") for app in apps)
    plain.to("out")
    plain.to("copy")
    two_ways.filter(lambda key, value: True).merge(two_ways).to("out")
    one_topic.to("out")
    one_topic.filter(lambda key, value: True).to("out")
    one_store.join(one_store.group_by_key().count(), lambda value, count: value).to("out")
    assert [takes_groups(app) for app in apps] == [True, False, False, False]


def test_joins_with_tables_take_groups_unless_a_table_is_joined_with_itself() -> None:
    apps = [App(name, value="string") for name in ("twice", "global", "other", "itself", "its rows")]
    twice, everywhere, other, itself, of_rows = apps
    rows = twice.table("t")
    twice.stream("a").join(rows, pair).join(rows, pair).to("out")
    all_rows = everywhere.global_table("t")
    everywhere.stream("a").join(all_rows, pair).join(all_rows, pair).to("out")
    other.table("t").join(other.table("u"), pair, name="joined").join(other.table("v"), pair).to("out")
    table = itself.table("t")
    table.join(table, pair).to("out")
    table = of_rows.table("t", name="rows")
    table.to_stream().join(table, pair).to("out")
    assert [takes_groups(app) for app in apps] == [True, True, True, False, False]
