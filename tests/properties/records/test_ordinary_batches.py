"""The compiled kernels accept a batch only if `validate` accepts it unchanged, and do accept such batches."""

from __future__ import annotations

import random
from dataclasses import replace
from struct import pack_into
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from felice.config import TopicConfig
from felice.protocol.errors import ApiError
from felice.records import kernels, validate
from felice.records.batch import HEADER_SIZE, seal
from felice.records.builder import build_batch
from felice.records.compression import Codec
from felice.records.record import Record
from felice.records.validate import (
    ProduceRules,
    Validated,
    Verdict,
    only_batch,
    ordinary_batch,
    validate_batch,
    validate_produce,
    validation_result,
)

compiled = pytest.importorskip("felice.records.kernels._kernels", reason="the extension was not built")

NOW_MS = 1_700_000_000_000
DECOMPRESSED_MAX_BYTES = 1 << 20
RULES = replace(
    ProduceRules.of(TopicConfig.parse({})), timestamp_before_max_ms=1000, timestamp_after_max_ms=500
)
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(NOW_MS - 1100, NOW_MS + 600) | st.just(-1),
        st.none() | st.binary(max_size=5),
        st.none() | st.binary(max_size=90),
        st.just(()) | st.just((("name", b"value"),)),
    ),
    min_size=1,
    max_size=5,
)


def batch_of(records: list[Record], **options: Any) -> bytearray:
    return bytearray(build_batch(records, **options))


def compare(batch: bytearray, rules: ProduceRules) -> bool:
    """Returns whether the kernel has accepted the batch."""
    found = ordinary_batch(bytearray(batch), rules, NOW_MS)
    if found is None:
        return False
    expected = validate_produce(bytearray(batch), rules, now_ms=NOW_MS)
    assert (found.header, *found[2:]) == (expected.header, *expected[2:])
    assert type(found.header) is type(expected.header)
    assert found.records == expected.records == batch
    return True


def is_accepted_unchanged(batch: bytearray, rules: ProduceRules) -> bool:
    try:
        expected: Validated = validate_produce(bytearray(batch), rules, now_ms=NOW_MS)
    except ApiError:
        return False
    return expected.records == batch


@settings(max_examples=300, deadline=None)
@given(records=RECORDS, is_compacted=st.booleans(), max_bytes=st.sampled_from([100, 10_000]))
def test_a_batch_is_accepted_as_it_is_or_left_to_validation(
    records: list[Record], is_compacted: bool, max_bytes: int
) -> None:
    rules = replace(RULES, is_compacted=is_compacted, max_message_bytes=max_bytes)
    batch = batch_of(records)
    is_accepted = compare(batch, rules)
    if all(record.timestamp != -1 for record in records):
        assert is_accepted == is_accepted_unchanged(batch, rules)


@settings(max_examples=300, deadline=None)
@given(records=RECORDS, seed=st.integers(0, 2**32))
def test_a_batch_with_changed_bytes_is_accepted_as_validation_accepts_it(
    records: list[Record], seed: int
) -> None:
    source, batch = random.Random(seed), batch_of(records, producer_id=source_of_id(seed), base_sequence=3)
    for _ in range(40):
        changed = bytearray(batch)
        at = source.randrange(HEADER_SIZE if source.random() < 0.7 else len(changed))
        changed[at] = source.choice([0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)])
        if source.random() < 0.8:
            seal(changed, 0, len(changed))
        compare(changed, RULES)
        compare(changed[:at], RULES)


def in_full(batch: bytearray, rules: ProduceRules) -> Verdict:
    """What validation finds without compiled kernels for headers and for ordinary records."""
    try:
        return validate_batch(
            batch, only_batch(batch), rules, now_ms=NOW_MS, max_decompressed_bytes=DECOMPRESSED_MAX_BYTES
        )
    except ApiError as error:
        return error


def described(verdict: Verdict) -> object:
    if isinstance(verdict, ApiError):
        return type(verdict), verdict.code, str(verdict)
    return bytes(verdict.records), tuple(verdict)[1:], type(verdict.header)


@settings(max_examples=150, deadline=None)
@given(
    records=RECORDS,
    codec=st.sampled_from(Codec),
    is_compacted=st.booleans(),
    topic_codec=st.sampled_from([None, Codec.LZ4]),
    seed=st.integers(0, 2**32),
)
# A changed length of Snappy's claims more than the limit.
@example([Record(0, -1, None, None, (("name", b"value"),))], Codec.SNAPPY, False, None, 5756)
def test_a_compressed_batch_is_judged_as_without_compiled_kernels(
    records: list[Record], codec: Codec, is_compacted: bool, topic_codec: Codec | None, seed: int
) -> None:
    rules = replace(RULES, is_compacted=is_compacted, codec=topic_codec)
    source = random.Random(seed)
    batch = batch_of(records, codec=codec, producer_id=source_of_id(seed), base_sequence=3)
    variants = [batch]
    for _ in range(20):
        changed = bytearray(batch)
        at = source.randrange(HEADER_SIZE if source.random() < 0.7 else len(changed))
        changed[at] = source.choice([0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)])
        if source.random() < 0.8:
            seal(changed, 0, len(changed))
        variants += [changed, changed[:at]]
    for variant in variants:
        found = validation_result(
            bytearray(variant), rules, NOW_MS, True, DECOMPRESSED_MAX_BYTES, on_loop=True
        )
        assert described(found) == described(in_full(bytearray(variant), rules))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compiled_kernels_judge_a_compressed_batch_that_is_right(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_of([Record(0, NOW_MS, b"k", bytes(100))], codec=codec)
    monkeypatch.setattr(validate, "only_batch", None)
    monkeypatch.setattr(validate, "scan", None)
    assert validate_produce(batch, RULES, now_ms=NOW_MS).records is batch


def test_a_header_is_read_for_topics_that_take_batches_of_its_size() -> None:
    batch = batch_of([Record(0, NOW_MS, b"k", bytes(100))], codec=Codec.LZ4)
    assert kernels.right_header(batch, len(batch)) == only_batch(batch)
    assert kernels.right_header(batch, len(batch) - 1) is None
    assert kernels.right_header(bytes(batch), len(batch)) is None


def source_of_id(seed: int) -> int:
    return seed % 3 - 1


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_compressed_batch_is_left_to_validation(codec: Codec) -> None:
    assert not compare(batch_of([Record(0, NOW_MS, b"k", bytes(100))], codec=codec), RULES)


def test_a_batch_that_its_topic_changes_is_left_to_validation() -> None:
    batch = batch_of([Record(0, NOW_MS, b"k", b"v")])
    assert compare(batch, RULES)
    times = ProduceRules.of(TopicConfig.parse({"message.timestamp.type": "LogAppendTime"}))
    codec = ProduceRules.of(TopicConfig.parse({"compression.type": "lz4"}))
    assert not compare(batch, times)
    assert not compare(batch, codec)


def test_a_batch_in_memory_that_may_not_be_changed_is_left_to_validation() -> None:
    batch = batch_of([Record(0, NOW_MS, b"k", b"v")])
    assert ordinary_batch(bytes(batch), RULES, NOW_MS) is None
    assert ordinary_batch(memoryview(batch), RULES, NOW_MS) is not None


def test_large_batches_are_judged_too() -> None:
    records = [Record(index, NOW_MS, b"k", bytes(1000)) for index in range(200)]
    batch = batch_of(records)
    assert compare(batch, RULES)
    pack_into(">b", batch, len(batch) - 1, 5)
    assert not compare(batch, RULES)
    seal(batch, 0, len(batch))
    assert not compare(batch, RULES)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("timestamp", [0, NOW_MS, 2**63 - 1])
def test_limits_of_the_largest_long_allow_every_timestamp(codec: Codec, timestamp: int) -> None:
    rules = replace(RULES, timestamp_before_max_ms=2**63 - 1, timestamp_after_max_ms=2**63 - 1)
    batch = batch_of([Record(0, timestamp, None, b"value")], codec=codec)
    validated = ordinary_batch(bytearray(batch), rules, NOW_MS)
    assert (validated is not None) == (codec is Codec.NONE)
    assert validate_produce(bytearray(batch), rules, now_ms=NOW_MS).records == batch
