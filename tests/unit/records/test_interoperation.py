"""kafka-python and aiokafka read our batches, and we read theirs."""

from __future__ import annotations

from typing import Any

import aiokafka.record.default_records as aio  # type: ignore[import-untyped]
import kafka.record.default_records as kp  # type: ignore[import-untyped]
import pytest

from felice.config import TopicConfig
from felice.records.batch import BatchHeader, verify_crc
from felice.records.builder import build_batch
from felice.records.compression import Codec
from felice.records.reader import read_records
from felice.records.record import Record
from felice.records.validate import ProduceRules, validate_produce

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value" * 500, (("h", b"1"), ("h", b""), ("é", None))),
    Record(1, 1_700_000_000_500, None, b"v", ()),
    Record(2, 1_699_999_999_000, b"k", None, ()),
    Record(3, 1_700_000_000_001, b"", b"", ()),
]
THEIRS = [(module.DefaultRecordBatchBuilder, module.DefaultRecordBatch) for module in (kp, aio)]
RULES = ProduceRules.of(TopicConfig())

their_classes = pytest.mark.parametrize(
    ("their_builder", "their_batch"), THEIRS, ids=["kafka-python", "aiokafka"]
)


@their_classes
@pytest.mark.parametrize("codec", Codec)
def test_their_batches_are_read(their_builder: Any, their_batch: Any, codec: Codec) -> None:
    builder = their_builder(2, int(codec), 1, 5, 2, 30, 1 << 20)
    for record in RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    data = bytes(builder.build())
    header = BatchHeader.parse(data)
    assert verify_crc(data, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 30)
    assert header.codec is codec and header.is_transactional
    assert list(read_records(data)) == RECORDS
    validated = validate_produce(data, RULES, now_ms=1_700_000_000_000)
    assert bytes(validated.records) == data
    assert validated.offset_delta_of_max_timestamp == 1


@their_classes
@pytest.mark.parametrize("codec", Codec)
def test_our_batches_are_read_by_them(their_builder: Any, their_batch: Any, codec: Codec) -> None:
    data = build_batch(RECORDS, codec, producer_id=5, producer_epoch=2, base_sequence=30, base_offset=0)
    theirs = their_batch(data)
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (5, 2, 30)
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == RECORDS
