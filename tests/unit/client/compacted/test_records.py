"""How the records of a write become batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.client import KafkaError, KafkaException
from felice.client.compacted.records import WRITE_RECORDS, Batch, encode
from felice.records.batch import BatchHeader
from felice.records.compression import Codec
from felice.records.reader import read_batch

Records = list[tuple[bytes, bytes | None]]


def read(batches: list[Batch]) -> Records:
    found: Records = []
    for batch in batches:
        header = BatchHeader.parse(batch.data)
        records = read_batch(batch.data, header)
        assert len(records) == batch.record_count == header.record_count
        found += [(bytes(record.key or b""), record.value) for record in records]
    return found


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=200)), min_size=1, max_size=30),
    st.integers(400, 2000),
    st.sampled_from([Codec.NONE, Codec.GZIP]),
)
def test_batches_have_all_records_in_order_within_the_limit(
    records: Records, limit: int, codec: Codec
) -> None:
    batches = encode(records, 5, limit, codec=codec)
    assert read(batches) == records
    for batch in batches:
        header = BatchHeader.parse(batch.data)
        assert header.codec == codec and header.base_timestamp == 5 and not header.is_transactional
        assert codec is not Codec.NONE or len(batch.data) <= limit


def test_records_share_a_batch_as_far_as_they_fit() -> None:
    assert [batch.record_count for batch in encode([(b"k", b"v")] * 100, 0, 1_000_000)] == [100]
    counts = [batch.record_count for batch in encode([(b"k", bytes(400))] * 5, 0, 1_000)]
    assert counts == [2, 2, 1]


def test_batches_of_a_transaction_are_marked() -> None:
    (batch,) = encode([(b"k", None)], 0, 1_000, transactional=True)
    assert BatchHeader.parse(batch.data).is_transactional


@pytest.mark.parametrize(
    ("records", "code", "reason"),
    [
        ([], KafkaError._INVALID_ARG, "at least one record"),
        ([(b"k", b"")] * (WRITE_RECORDS + 1), KafkaError._INVALID_ARG, "at most 10000 records, not 10001"),
        ([(None, b"v")], KafkaError._INVALID_ARG, "needs a key of bytes, not None"),
        ([("k", b"v")], KafkaError._INVALID_ARG, "needs a key of bytes, not 'k'"),
        ([(b"k", "v")], KafkaError._INVALID_ARG, "value of bytes or None, not 'v'"),
        ([(b"k", bytes(1_000))], KafkaError.MSG_SIZE_TOO_LARGE, "message.max.bytes is 1000"),
    ],
)
def test_records_that_cannot_be_written_are_refused(records: Any, code: int, reason: str) -> None:
    with pytest.raises(KafkaException, match=reason) as raised:
        encode(records, 0, 1_000)
    assert raised.value.code == code
