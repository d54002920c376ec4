"""Records of `__share_group_state`: encoded to and decoded from Kafka's bytes."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from felice.coordinator.share_state.records import ShareRecordCodec, SnapshotRecord, UpdateRecord
from felice.coordinator.share_state.states import ShareKey, ShareState, ShareUpdate
from felice.protocol.codec import encode_data
from felice.protocol.messages import share_state_topic as schema
from felice.protocol.primitives import MalformedMessage
from felice.replication.share.states import StateBatch

CODEC = ShareRecordCodec()
KEY = ShareKey("g", UUID(int=5), 3)
KEY_BYTES = "0001670000000000000000000000000000000500000003"
BATCH = StateBatch(10, 12, 2, 1)
BATCHES_BYTES = "02000000000000000a000000000000000c02000100"
STATE = ShareState(
    snapshot_epoch=1,
    state_epoch=2,
    leader_epoch=3,
    start_offset=10,
    done_count=3,
    created_ms=4,
    written_ms=5,
    batches=(BATCH,),
)
UPDATE = ShareUpdate(snapshot_epoch=1, leader_epoch=3, start_offset=10, done_count=3, batches=(BATCH,))


def test_a_snapshot_is_written_as_kafka_writes_it() -> None:
    key, value = CODEC.encode(SnapshotRecord(KEY, STATE))
    assert key == bytes.fromhex("0000" + KEY_BYTES)
    assert value == bytes.fromhex(
        "0000"
        "00000001"
        "00000002"
        "00000003"
        "000000000000000a"
        "0000000000000004"
        "0000000000000005" + BATCHES_BYTES + "01"
        "00"
        "04"
        "00000003"
    )


def test_an_update_is_written_as_kafka_writes_it() -> None:
    key, value = CODEC.encode(UpdateRecord(KEY, UPDATE))
    assert key == bytes.fromhex("0001" + KEY_BYTES)
    assert value == bytes.fromhex("00000000000100000003000000000000000a" + BATCHES_BYTES + "01000400000003")


def test_an_unknown_number_of_done_offsets_takes_no_bytes() -> None:
    _, value = CODEC.encode(UpdateRecord(KEY, replace(UPDATE, done_count=-1, batches=())))
    assert value == bytes.fromhex("00000000000100000003000000000000000a0100")


@pytest.mark.parametrize(
    "record", [SnapshotRecord(KEY, STATE), UpdateRecord(KEY, UPDATE), SnapshotRecord(KEY, None)]
)
def test_what_is_written_is_read(record: SnapshotRecord | UpdateRecord) -> None:
    assert CODEC.decode(*CODEC.encode(record)) == record


def test_records_of_newer_brokers_are_skipped_and_damaged_ones_refused() -> None:
    key, value = CODEC.encode(UpdateRecord(KEY, UPDATE))
    assert CODEC.decode(b"\0\7" + key[2:], value) is None
    assert CODEC.decode(key, None) is None, "an update without a value says nothing"
    assert value is not None
    with pytest.raises(MalformedMessage):
        CODEC.decode(key, value[:20])
    with pytest.raises(MalformedMessage):
        CODEC.decode(b"", value)


def test_batches_that_another_writer_did_not_join_are_joined() -> None:
    batches = [(5, 9, 2, 1), (10, 12, 2, 1), (20, 15, 2, 1), (13, 13, 0, 1), (12, 12, 4, 2)]
    value = encode_data(
        schema.ShareSnapshotValue(
            snapshot_epoch=1,
            state_epoch=2,
            leader_epoch=3,
            start_offset=8,
            create_timestamp=4,
            write_timestamp=5,
            state_batches=[
                schema.StateBatch(first_offset=a, last_offset=b, delivery_state=c, delivery_count=d)
                for a, b, c, d in batches
            ],
        )
    )
    record = CODEC.decode(CODEC.encode(SnapshotRecord(KEY, STATE))[0], value)
    assert isinstance(record, SnapshotRecord) and record.state is not None
    assert record.state.batches == (
        StateBatch(8, 11, 2, 1),
        StateBatch(12, 12, 4, 2),
        StateBatch(13, 13, 0, 1),
    )
    assert record.state.done_count == -1
