"""Rows to batches to rows: no row is lost or changed, however the batches are split."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.records.batch import BatchHeader, stamp
from felice.records.compression import Codec
from felice.records.reader import read_records

pa = pytest.importorskip("pyarrow")

from felice.records.arrow import arrow_schema, arrow_to_batches, batches_to_arrow  # noqa: E402

OPTIONAL_BYTES = st.none() | st.binary(max_size=100)
HEADER = st.fixed_dictionaries({"key": st.text(max_size=5), "value": OPTIONAL_BYTES})
ROW = st.fixed_dictionaries(
    {
        "key": OPTIONAL_BYTES,
        "value": OPTIONAL_BYTES,
        "timestamp": st.integers(0, 2**40).map(lambda ms: ms * 1000),
        "headers": st.none() | st.lists(HEADER, max_size=2),
    }
)
COLUMNS = ("key", "value", "timestamp", "headers")
SCHEMA = pa.schema([arrow_schema(with_headers=True).field(name) for name in COLUMNS])


@given(
    st.lists(ROW, max_size=40),
    st.integers(0, 5),
    st.integers(62, 2000),
    st.sampled_from(Codec),
    st.booleans(),
)
def test_rows_survive(rows: list[Any], skip: int, target_bytes: int, codec: Codec, is_chunked: bool) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA).slice(skip)
    if is_chunked:
        table = pa.concat_tables([table.slice(0, 3), table.slice(3)])
    batches, next_offset = [], 1000
    for batch in arrow_to_batches(table, timestamp_ms=0, codec=codec, target_bytes=target_bytes):
        stamp(batch, 0, next_offset, 0)
        next_offset = BatchHeader.parse(batch).next_offset
        batches.append(batch)
    found = pa.Table.from_batches(
        batches_to_arrow(batches, with_headers=True), arrow_schema(with_headers=True)
    )
    found.validate(full=True)
    assert found.column("offset").to_pylist() == list(range(1000, 1000 + table.num_rows))
    # A record without headers has null, as in Spark's Kafka source.
    expected = [row | {"headers": row["headers"] or None} for row in table.to_pylist()]
    assert found.select(SCHEMA.names).to_pylist() == expected
    has_headers = [row["headers"] is not None for row in expected]
    assert found.column("headers").is_valid().to_pylist() == has_headers
    assert found.column("headers").null_count == has_headers.count(False)
    keys = [record.key for batch in batches for record in read_records(batch, check_crcs=True)]
    assert keys == table.column("key").to_pylist()
