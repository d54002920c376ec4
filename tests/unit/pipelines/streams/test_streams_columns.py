"""Addresses by column are those of rows one by one."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from felice.pipelines.streams.on_spark import stage
from felice.pipelines.streams.on_spark.columns import address_columns, never_null, places_of
from felice.pipelines.streams.on_spark.rows import HEADERS, SCHEMA
from felice.pipelines.streams.on_spark.stage import Plan, address
from felice.records.kernels import murmur2
from felice.streams import App
from streams.spark_batches import SOURCE


def plan_of() -> Plan:
    app = App("addresses", value="string")
    app.stream("a").group_by_key().count().to("counts")
    app.stream("b").group_by_key().tumbling(5).count().to("windows")
    app.stream("timed", ts=lambda key, value: 100 + len(value or "")).group_by_key().count(name="timed").to(
        "timed-counts"
    )
    app.stream("passed").to("out")
    return Plan(cloudpickle.dumps(app.topology), 3, ())  # type: ignore[no-untyped-call]


def source(dice: Random, topics: tuple[str, ...], rows: int) -> pa.RecordBatch:
    found = [
        {
            "key": dice.choice((None, b"", b"k1", b"k2", b"long key")),
            "value": dice.choice((None, b"v")),
            "topic": dice.choice(topics),
            "partition": dice.randrange(12),
            "offset": number,
            "timestamp": dice.choice((0, 1_999, 1_700_000_000_123_456)),
            "headers": dice.choice((None, [{"key": "h", "value": None}])),
        }
        for number in range(rows)
    ]
    return pa.RecordBatch.from_pylist(found, SOURCE)


@pytest.mark.parametrize("rows", [0, 1, 40])
def test_columns_are_addressed_as_rows_are(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    plan, batch = plan_of(), source(Random(rows), ("a", "b"), rows)
    plain = plan.application().plain_topics
    assert sorted(plain) == ["a", "b", "timed"]
    made = address_columns(batch, plain, plan.places, SCHEMA)
    assert made is not None
    monkeypatch.setattr(stage, "address_columns", lambda *_: None)
    (expected,) = address(batch, plan.application(), {}, plan.places)
    assert made.to_pylist() == expected.to_pylist()


def test_a_record_without_key_stays_with_its_partition() -> None:
    plan, batch = plan_of(), source(Random(3), ("a", "b"), 60)
    made = address_columns(batch, plan.application().plain_topics, plan.places, SCHEMA)
    assert made is not None
    for row, given in zip(made.to_pylist(), batch.to_pylist(), strict=True):
        if given["key"] is None:
            assert row["place"] == given["partition"] % plan.places


def test_the_times_that_an_input_chooses_are_set_before() -> None:
    plan, batch = plan_of(), source(Random(2), ("a", "timed"), 40)
    (made,) = address(batch, plan.application(), {}, plan.places)
    for row, given in zip(made.to_pylist(), batch.to_pylist(), strict=True):
        own = int(given["timestamp"].timestamp() * 1_000_000) // 1000
        chosen = 100 + len(given["value"] or b"")
        assert row["timestamp"] == (chosen if given["topic"] == "timed" else own)


def test_topics_of_parts_without_state_are_left_to_rows() -> None:
    plan, dice = plan_of(), Random(1)
    batch = source(dice, ("a", "passed"), 30)
    assert address_columns(batch, plan.application().plain_topics, plan.places, SCHEMA) is None


def test_places_are_those_of_kafkas_partitioner() -> None:
    keys = [None, b"", *(b"key %d" % number for number in range(50)), None]
    otherwise = np.arange(100, 100 + len(keys))
    expected = [
        (int(number) if key is None else murmur2(key)) % 7
        for number, key in zip(otherwise, keys, strict=True)
    ]
    assert places_of(pa.array(keys, pa.binary()), otherwise, 7).tolist() == expected
    assert places_of(pa.nulls(3, pa.binary()), otherwise[:3], 7).tolist() == [
        number % 7 for number in (100, 101, 102)
    ]


def test_lists_without_nulls_hold_no_other_values() -> None:
    given = [None, [{"key": "a", "value": b"1"}], [], None, [{"key": "b", "value": None}] * 2]
    column = pa.array(given, HEADERS)
    for start in range(len(given) + 1):
        assert never_null(column.slice(start)).to_pylist() == [one or [] for one in given[start:]]
    # Arrow gives nulls a value each, and would write these values with every slice.
    many = pa.RecordBatch.from_arrays([never_null(pa.nulls(100_000, HEADERS))], ["headers"])
    assert many.slice(5, 10).serialize().size < 1_000
