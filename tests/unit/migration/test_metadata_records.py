"""The metadata log of Kafka, byte by byte: what is read, and what is refused with a reason."""

from __future__ import annotations

from uuid import UUID

import pytest

from felice.migration.errors import MigrationError
from felice.migration.metadata_records import (
    MetadataRecord,
    batches_of,
    check_continuous,
    committed,
    data_values,
    decode_value,
    encode_snapshot,
    encode_value,
    is_whole_snapshot,
)
from felice.protocol.messages.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    TopicRecord,
)
from unit.migration.kafka_files import NOW, batch, metadata_log, newest

# The beginning and the end of a `bootstrap.checkpoint` that `kafka-storage format` of Kafka 4.3.1 wrote.
KAFKAS_HEADER = bytes.fromhex(
    "00000000000000000000004700000000 02630a396d0020000000000000 01a228d00219 000001a228d00219"
    "ffffffffffffffff ffff ffffffff 00000001 2a 00 00 00 08 00000003 16 0000000000000000000000 00"
)
KAFKAS_VALUE = bytes.fromhex("010c00116d657461646174612e76657273696f6e001e00")
A, B, C = (TopicRecord(name=name, topic_id=UUID(int=number)) for number, name in enumerate("abc", 1))


def read(data: bytes) -> list[MetadataRecord]:
    return list(committed(data_values(batches_of(data, "file"))))


def test_kafkas_own_bytes_are_read_and_written_alike() -> None:
    assert decode_value(KAFKAS_VALUE, 0) == FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert encode_value(FeatureLevelRecord(name="metadata.version", feature_level=30), 0) == KAFKAS_VALUE
    ours = encode_snapshot([], 0x01A228D00219)
    assert ours[: len(KAFKAS_HEADER)] == KAFKAS_HEADER


def test_a_snapshot_holds_its_records_between_header_and_footer() -> None:
    records = [TopicRecord(name=f"t{number}", topic_id=UUID(int=number)) for number in range(1200)]
    data = encode_snapshot([newest(record) for record in records], NOW)
    assert is_whole_snapshot(batches_of(data, "file"))
    assert [one.record for one in read(data)] == records
    assert not is_whole_snapshot(batches_of(data[:-1], "file"))
    last = batches_of(data, "file").headers[-1]
    assert not is_whole_snapshot(batches_of(data[: last.position], "file"))


@pytest.mark.parametrize(
    ("records", "kept"),
    [
        ([A, B], [A, B]),
        ([BeginTransactionRecord(), A, EndTransactionRecord(), B], [A, B]),
        ([A, BeginTransactionRecord(name="x"), B, AbortTransactionRecord(reason="y"), C], [A, C]),
        ([A, BeginTransactionRecord(), B], [A]),
    ],
    ids=["none", "ended", "aborted", "open"],
)
def test_records_of_a_transaction_count_once_it_has_ended(records: list[object], kept: list[object]) -> None:
    assert [one.record for one in read(metadata_log(records))] == kept


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x01\x1d\x00", "offset 7 has type 29 and version 0, which is not known; was the directory"),
        (b"\x01\x02\x01", "offset 7 has type 2 and version 1, which is not known"),
        (b"\x01\x14\x01", "offset 7 has type 20 and version 1, which is not known"),
        (b"\x02\x02\x00", "frame version 2"),
        (b"\x01\x02\x00\x05ab", "name at byte 4"),
        (b"", "offset 7 cannot be read"),
        (None, "it has no value"),
    ],
    ids=["type", "version", "version of a skipped type", "frame", "short", "empty", "null"],
)
def test_an_unknown_record_stops_the_import(value: bytes | None, reason: str) -> None:
    with pytest.raises(MigrationError, match=reason):
        decode_value(value, 7)


def test_records_without_meaning_here_are_skipped() -> None:
    data = batch([b"\x01\x14\x00\x00", encode_value(A, 0), b"\x01\x11\x03anything"], 0)
    assert [one.record for one in read(data)] == [A]


def test_every_flipped_bit_is_found() -> None:
    data = metadata_log([A, B])
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        if position % len(metadata_log([A])) in range(12, 16):
            continue  # the epoch of the leader, which no checksum covers and nothing reads
        with pytest.raises(MigrationError):
            check_continuous([batches_of(bytes(damaged), "file")], 0)


def test_a_last_batch_that_is_cut_short_does_not_count() -> None:
    data = metadata_log([A, B])
    whole = len(metadata_log([A]))
    for end in range(whole, len(data)):
        assert [one.record for one in read(data[:end])] == [A]
        assert batches_of(data[:end], "file").torn_bytes == end - whole
    assert [one.record for one in read(data[:whole] + bytes(500))] == [A]


def test_missing_offsets_are_found() -> None:
    first, second = batches_of(metadata_log([A, B]), "one"), batches_of(metadata_log([C], 2), "two")
    assert check_continuous([first, second], 0) == 3
    assert check_continuous([second], 2) == 3
    assert check_continuous([], 9) == 9
    with pytest.raises(MigrationError, match="two is damaged: the offsets from 1 to 1 are missing"):
        check_continuous([second], 1)
    with pytest.raises(MigrationError, match="the offsets from 1 to 1 are missing"):
        check_continuous([batches_of(metadata_log([A]), "one"), second], 0)
