"""The partition of a result that a function of the application chooses."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.spark.producing import NUMBER
from felice.pipelines.streams.on_spark.packs import packed, results
from felice.pipelines.streams.on_spark.rows import OUT, Rows
from felice.pipelines.streams.task import StreamsError, TopicRecord, with_partition
from felice.streams import App, TestDriver


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
