"""The partition of a result that a function of the application chooses."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.spark.producing import NUMBER
from felice.pipelines.streams.on_spark.application import Application
from felice.pipelines.streams.on_spark.packs import packed, results
from felice.pipelines.streams.on_spark.rows import OUT, Results, Rows
from felice.pipelines.streams.record import Group
from felice.pipelines.streams.task import StreamsError, TopicRecord, with_partition
from felice.records.kernels import murmur2
from felice.streams import App, TestDriver, TopologyError


def test_a_chosen_partition_travels_with_the_record_and_its_reader_does_not_see_it() -> None:
    app = App("chosen")
    app.stream("in", value="string").to(
        "out", partition=lambda key, value: None if value == "any" else int(value)
    )
    assert app.topology.nodes[-1].sink is not None
    driver = TestDriver(app)
    for value, headers in (("7", ()), ("any", (("a", b"x"),)), ("9", (("b", None), ("c", b"")))):
        driver.send("in", "k", value, 5, headers)
    assert [(one.value, one.headers) for one in driver.read("out")] == [
        ("7", ()),
        ("any", (("a", b"x"),)),
        ("9", (("b", None), ("c", b""))),
    ]


@pytest.mark.parametrize("number", [-1, 1 << 63, True, "1", 1.0])
def test_a_partition_must_be_a_number(number: object) -> None:
    app = App("chosen")
    app.stream("in", value="string").to("out", partition=lambda key, value: number)  # type: ignore[arg-type, return-value]
    with pytest.raises(
        StreamsError, match="the partition of the record is .*; it must be a number from 0 to"
    ):
        TestDriver(app).send("in", "k", "v")


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(0, (1 << 63) - 1),
            st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3),
        ),
        max_size=8,
    ),
    st.integers(0, 8),
)
def test_numbers_of_partitions_are_found_in_packs(rows: list[tuple[int | None, Any]], skipped: int) -> None:
    records = [
        with_partition(TopicRecord("out", b"k", b"v", 1, tuple(headers)), number) for number, headers in rows
    ]
    sent = Rows()
    for place, record in enumerate(records):
        sent.add(OUT, 0, "o", place, record)
    found = [
        row
        for batch in results(packed(sent.batch().slice(min(skipped, len(rows)))))
        for row in batch.to_pylist()
    ]
    assert [(row[NUMBER], [(one["key"], one["value"]) for one in row["headers"]]) for row in found] == rows[
        min(skipped, len(rows)) :
    ]


def by_last_digit(key: str, value: str) -> int | None:
    return int(value[-1]) if value[-1:].isdigit() else None


def placing(*, is_stateless: bool = True) -> App:
    """Sends each record with the number of those of its task before it."""
    app = App("placing", value="string")
    given = app.stream("in")
    if not is_stateless:
        given.group_by_key().count(name="counts")
    chosen = given.repartition(name="chosen", partition=by_last_digit)
    chosen.numbered(lambda key, value, number: f"{value} {number}", name="numbers").to("out")
    return app


GIVEN = [("k", "a0"), ("k", "b2"), ("j", "c3"), ("k", "d"), (None, "e2"), ("m", "f5")]
PLACES = 3


def test_a_function_chooses_the_task_of_a_record() -> None:
    driver = TestDriver(placing(), PLACES)
    for key, value in GIVEN:
        driver.send("in", key, value, headers=(("h", b"1"),))
    of_key = murmur2(b"k") % PLACES
    counts, expected = Counter[int](), []
    for _, value in GIVEN:
        place = of_key if value == "d" else int(value[-1]) % PLACES
        expected.append((f"{value} {counts[place]}", (("h", b"1"),)))
        counts[place] += 1
    assert [(one.value, one.headers) for one in driver.read("out")] == expected


@pytest.mark.parametrize("is_stateless", [True, False])
def test_the_chosen_task_gets_the_record_on_spark(is_stateless: bool) -> None:
    topology = placing(is_stateless=is_stateless).topology
    application = Application(topology, None)
    number = application.reads["in"][0]
    records = [TopicRecord("in", key and key.encode(), value.encode(), 1, ()) for key, value in GIVEN]
    task = application.task(number)
    sent = [one for record in records for one in task.process(record)]
    by_row = [application.addressed(one, PLACES, "in-0", 0) for one in sent]
    again, results = application.task(number), Results()
    columns = ([record[at] for record in records] for at in (1, 2, 3, 4))
    results.add(again.process_group("in", Group(*columns, lambda number: None)))
    batch = results.batch(application.reader_of, PLACES, "in-0", results.in_order())
    found = zip(batch.column("value").to_pylist(), batch.column("place").to_pylist(), strict=True)
    places = {value.decode(): place for value, place in found}
    assert places == {one[-1].value.decode(): one[1] for one in by_row}
    assert places == {"a0": 0, "b2": 2, "c3": 0, "d": murmur2(b"k") % PLACES, "e2": 2, "f5": 2}
    assert not any(batch.column("headers").to_pylist()) and not any(one[-1].headers for one in by_row)


def test_chosen_partitions_are_not_mixed_with_those_of_keys() -> None:
    app = App("mixed", value="string")
    chosen = app.stream("in").repartition(partition=by_last_digit)
    counts = chosen.key_by(lambda key, value: value).group_by_key().count()
    with pytest.raises(
        TopologyError, match="a function chooses the partitions of .*: they cannot be used together"
    ):
        chosen.join(counts, lambda value, count: f"{value} {count}")
