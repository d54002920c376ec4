"""Batches survive a round trip, and no input makes a reader raise anything but its documented errors."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from felice.protocol.errors import ApiError
from felice.records.aborted import AbortedTransactions
from felice.records.batch import BatchHeader, TimestampType, iter_batches, seal, stamp, verify_crc
from felice.records.builder import build_batch, rebuild_batch
from felice.records.compression import Codec, compress, decompress
from felice.records.reader import read_batch, read_records
from felice.records.record import Record
from felice.records.validate import ProduceRules, validate_produce

NOW_MS = 1_700_000_000_000
TIMESTAMPS = st.integers(NOW_MS - 10**9, NOW_MS + 10**9) | st.sampled_from([-1, 0, 2**62])
OPTIONAL_BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=8), OPTIONAL_BYTES), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(Record, st.just(0), TIMESTAMPS, OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS), min_size=1
)
CODECS = st.sampled_from(Codec)


def numbered(records: list[Record], base_offset: int = 0) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(records)]


@given(RECORDS, CODECS, st.integers(0, 2**62), st.integers(-1, 2**31 - 1))
def test_records_survive_a_batch(records: list[Record], codec: Codec, base_offset: int, epoch: int) -> None:
    data = bytearray(build_batch(records, codec))
    stamp(data, 0, base_offset, epoch)
    assert list(read_records(data, check_crcs=True)) == numbered(records, base_offset)
    (header,) = iter_batches(data)
    assert header.leader_epoch == epoch
    assert header.max_timestamp == max(-1, *(record.timestamp for record in records))


@given(RECORDS, CODECS, st.data())
def test_compaction_keeps_the_selected_records(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = build_batch(records, codec, base_offset=50)
    header = BatchHeader.parse(batch)
    kept = [record for record in read_batch(batch, header) if data.draw(st.booleans())]
    horizon = data.draw(st.none() | st.integers(0, 2**50))
    smaller = rebuild_batch(header, kept, delete_horizon_ms=horizon)
    after = BatchHeader.parse(smaller)
    assert verify_crc(smaller, after)
    assert read_batch(smaller, after) == kept
    assert (after.base_offset, after.next_offset) == (header.base_offset, header.next_offset)


RULES = st.builds(
    ProduceRules,
    max_message_bytes=st.sampled_from([300, 1_000_000]),
    codec=st.none() | CODECS,
    level=st.none(),
    timestamp_type=st.sampled_from(TimestampType),
    timestamp_before_max_ms=st.sampled_from([10**8, 2**63 - 1]),
    timestamp_after_max_ms=st.sampled_from([10**8, 2**63 - 1]),
    is_compacted=st.booleans(),
)


@given(RECORDS, CODECS, RULES)
def test_an_accepted_batch_holds_the_records_that_were_sent(
    records: list[Record], codec: Codec, rules: ProduceRules
) -> None:
    data = build_batch(records, codec, producer_id=1, producer_epoch=0, base_sequence=3)
    try:
        validated = validate_produce(data, rules, now_ms=NOW_MS)
    except ApiError:
        return
    header = BatchHeader.parse(validated.records)
    assert header == validated.header and verify_crc(validated.records, header)
    assert header.codec is (codec if rules.codec is None else rules.codec)
    found = list(read_records(validated.records))
    if header.is_log_append_time:
        assert {record.timestamp for record in found} == {NOW_MS}
        found = [
            record._replace(timestamp=sent.timestamp) for record, sent in zip(found, records, strict=True)
        ]
    assert found == numbered(records)


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytearray:
    """Batches with bytes changed, removed or added. Some get a new CRC, so that a later check must find the damage."""
    data = bytearray()
    for records in draw(st.lists(RECORDS, min_size=1, max_size=2)):
        data += build_batch(records, draw(CODECS), producer_id=draw(st.integers(-1, 1)), transactional=True)
    for _ in range(draw(st.integers(1, 4))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    if draw(st.booleans()) and len(data) >= 61:
        size_bytes = int.from_bytes(data[8:12], "big") + 12
        if 61 <= size_bytes <= len(data):
            seal(data, 0, size_bytes)
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    return data


def only_api_errors(call: Any) -> None:
    with suppress(ApiError):
        call()


@given(damaged_batches() | st.binary(max_size=200), RULES)
def test_damaged_bytes_raise_nothing_but_api_errors(data: bytes, rules: ProduceRules) -> None:
    only_api_errors(lambda: list(read_records(data)))
    only_api_errors(lambda: list(read_records(data, check_crcs=True)))
    only_api_errors(lambda: validate_produce(data, rules, now_ms=NOW_MS))
    hidden = AbortedTransactions([(1, 0), (0, 1)])
    only_api_errors(lambda: [hidden.hides(data, header) for header in iter_batches(data)])


@given(st.binary(max_size=5000), CODECS)
def test_codecs_round_trip(data: bytes, codec: Codec) -> None:
    assert bytes(decompress(codec, compress(codec, data))) == data


@given(st.binary(max_size=100) | st.binary(max_size=500).map(bytes), CODECS, st.data())
def test_damaged_compressed_data_raises_nothing_but_api_errors(
    plain: bytes, codec: Codec, data: st.DataObject
) -> None:
    damaged = bytearray(compress(codec, plain))
    for _ in range(data.draw(st.integers(1, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    only_api_errors(lambda: decompress(codec, damaged, 1 << 20))
    only_api_errors(lambda: decompress(codec, plain, 1 << 20))
