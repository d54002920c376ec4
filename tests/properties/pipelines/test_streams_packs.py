"""Packs hold exactly the rows that were packed, in order, and stay within their limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.streams.on_spark import packs
from felice.pipelines.streams.on_spark.packs import PACKS, packed, results, unpacked
from felice.pipelines.streams.on_spark.rows import OUT, SCHEMA
from felice.pipelines.streams.on_spark.stage import passed_on

Row = dict[str, Any]
Group = tuple[int, int, str, str]

RECORD = ("topic", "key", "value", "headers", "timestamp")
MOST_BYTES, MOST_ROWS = 300, 4
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
BYTES = st.none() | st.binary(max_size=12) | st.binary(min_size=400, max_size=500)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Rows of several topics; those of an origin are numbered in their order."""
    drawn = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "part": st.integers(OUT, 0),
                    "place": st.integers(0, 1),
                    "origin": st.sampled_from(("a-0", "0/1")),
                    "topic": st.sampled_from(("a", "é")),
                    "key": BYTES,
                    "value": BYTES,
                    "timestamp": st.integers(0, 5) | INT64,
                    "headers": st.lists(
                        st.fixed_dictionaries({"key": st.text(max_size=3), "value": BYTES}), max_size=2
                    ),
                }
            ),
            max_size=40,
        )
    )
    return [row | {"seq": number} for number, row in enumerate(drawn)]


@contextmanager
def small_packs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packs, "MOST_BYTES", MOST_BYTES)
        patch.setattr(packs, "MOST_ROWS", MOST_ROWS)
        yield


def packs_of(made: list[Row]) -> list[pa.RecordBatch]:
    with small_packs():
        return list(packed(pa.RecordBatch.from_pylist(made, SCHEMA)))


def grouped(made: list[Row]) -> dict[Group, list[Row]]:
    """The rows of each group that no pack may mix."""
    found: defaultdict[Group, list[Row]] = defaultdict(list)
    for row in made:
        found[group_of(row)].append(row)
    return dict(found)


def group_of(row: Row) -> Group:
    return row["part"], row["place"], row["topic"], row["origin"]


def each_pack(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch.slice(at, 1) for batch in batches for at in range(len(batch)))


@given(rows())
def test_what_is_packed_is_unpacked(made: list[Row]) -> None:
    back = unpacked(pa.Table.from_batches(packs_of(made), PACKS))
    assert back.schema == SCHEMA
    assert grouped(back.to_pylist()) == grouped(made)


@given(rows())
def test_packs_are_within_their_limits(made: list[Row]) -> None:
    batches = packs_of(made)
    for batch in batches:
        sizes = [len(data) for data in batch["packed"].to_pylist()]
        assert sizes and sum(sizes[:-1]) <= MOST_BYTES
    for pack in each_pack(batches):
        held = unpacked(pa.Table.from_batches([pack])).to_pylist()
        assert pack["count"].to_pylist() == [len(held)]
        assert len(held) <= MOST_ROWS
        columns = pa.RecordBatch.from_pylist(held, SCHEMA).select(packs._PACKED.names)
        assert len(held) == 1 or columns.nbytes <= MOST_BYTES


@given(rows())
def test_a_sink_gets_the_records(made: list[Row]) -> None:
    taken: defaultdict[Group, list[Row]] = defaultdict(list)
    for pack in each_pack(packs_of(made)):
        taken[group_of(pack.to_pylist()[0])].extend(records_of(pack))
    assert taken == {
        group: [{name: row[name] for name in RECORD} for row in rows] for group, rows in grouped(made).items()
    }


@given(rows(), st.randoms(use_true_random=False))
def test_results_of_several_tasks_are_put_in_the_order_of_timestamps_for_the_sink(
    made: list[Row], dice: Random
) -> None:
    """Of each origin they stay in order; among origins the smallest timestamp is next."""
    each = list(each_pack(packs_of(made)))
    dice.shuffle(each)
    sent_on = passed_on(pa.Table.from_batches(each, PACKS), is_last=True)
    found = unpacked(pa.Table.from_batches(sent_on, PACKS))
    reached: dict[int, int] = {}
    latest: dict[str, int] = {}
    for row in made:
        if row["part"] == OUT:
            latest[row["origin"]] = max(row["timestamp"], latest.get(row["origin"], -(1 << 63)))
            reached[row["seq"]] = latest[row["origin"]]
    origins = {row["seq"]: row["origin"] for row in made}
    results_of: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for row in found.to_pylist():
        if row["part"] == OUT:
            results_of[row["place"], row["topic"]].append(row["seq"])
    assert sorted(seq for seqs in results_of.values() for seq in seqs) == sorted(reached)
    for seqs in results_of.values():
        assert [reached[seq] for seq in seqs] == sorted(reached[seq] for seq in seqs)
        for origin in set(origins.values()):
            of_origin = [seq for seq in seqs if origins[seq] == origin]
            assert of_origin == sorted(of_origin)
    assert len(found) == len(made)


def records_of(packs: pa.RecordBatch) -> list[Row]:
    """The records that a sink gets, with their timestamps as numbers, because some are outside Python's dates."""
    found = []
    for records in results([packs]):
        at = records.schema.get_field_index("timestamp")
        times = records["timestamp"].cast(pa.int64())
        found += records.set_column(at, "timestamp", times).select(RECORD).to_pylist()
    return found
