"""Records of `__transaction_state`: encoded to and decoded from Kafka's bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from felice.coordinator.transaction.metadata import V2, TransactionMetadata
from felice.coordinator.transaction.records import TransactionRecord, TransactionRecordCodec
from felice.coordinator.transaction.states import PREVIOUS_STATES, TransactionState
from felice.protocol.codec import encode_data
from felice.protocol.messages.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from felice.protocol.primitives import MalformedMessage
from felice.protocol.topic_partition import TopicPartition

CODEC = TransactionRecordCodec(lambda: 0)
ONGOING = TransactionMetadata(
    producer_id=1,
    epoch=2,
    timeout_ms=3,
    last_update_ms=4,
    state=TransactionState.ONGOING,
    partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
    start_ms=5,
)


def test_at_level_0_a_transaction_is_written_in_kafkas_version_0() -> None:
    key, value = CODEC.encode(TransactionRecord("tx", ONGOING))
    assert key == b"\0\0" + b"\0\2tx"
    assert value == bytes.fromhex(
        "0000"
        "0000000000000001"
        "0002"
        "00000003"
        "01"
        "00000001"
        "0001"
        "74"
        "00000002"
        "00000000"
        "00000001"
        "0000000000000004"
        "0000000000000005"
    )


def test_written_records_are_read_back() -> None:
    for record in (TransactionRecord("tx", ONGOING), TransactionRecord("tx", None)):
        assert CODEC.decode(*CODEC.encode(record)) == record


def test_an_empty_transaction_has_no_partitions_at_all() -> None:
    key, value = CODEC.encode(TransactionRecord("tx", TransactionMetadata(1, 2, 3, 4)))
    assert value is not None
    assert value[17:21] == b"\xff\xff\xff\xff"
    assert CODEC.decode(key, value) == TransactionRecord("tx", TransactionMetadata(1, 2, 3, 4))


def test_version_1_of_a_broker_with_transaction_v2_is_read() -> None:
    stored = TransactionLogValue(
        producer_id=1,
        previous_producer_id=9,
        producer_epoch=2,
        transaction_timeout_ms=3,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 1])],
        transaction_last_update_timestamp_ms=4,
        transaction_start_timestamp_ms=5,
        client_transaction_version=2,
    )
    key = encode_data(TransactionLogKey(transactional_id="tx"))
    assert CODEC.decode(key, encode_data(stored, 1)) == TransactionRecord(
        "tx", replace(ONGOING, last_producer_id=9, client_version=V2)
    )


ROTATING = replace(
    ONGOING, state=TransactionState.PREPARE_ABORT, last_producer_id=6, next_producer_id=8, client_version=V2
)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_nothing_of_transaction_v2_is_lost_at_any_level(level: int) -> None:
    codec = TransactionRecordCodec(lambda: level)
    key, value = codec.encode(TransactionRecord("tx", ROTATING))
    assert value is not None
    assert value[:2] == b"\0\1"
    assert codec.decode(key, value) == TransactionRecord("tx", ROTATING)


def test_from_level_1_on_version_1_is_written() -> None:
    _, value = TransactionRecordCodec(lambda: 1).encode(TransactionRecord("tx", ONGOING))
    assert value is not None
    assert value[:2] == b"\0\1"


def test_an_unknown_state_is_malformed_and_an_unknown_type_passed_over() -> None:
    key = encode_data(TransactionLogKey(transactional_id="tx"))
    with pytest.raises(MalformedMessage):
        CODEC.decode(key, encode_data(TransactionLogValue(transaction_status=99)))
    assert CODEC.decode(b"\0\7" + key[2:], b"") is None


def test_states_follow_each_other_by_the_table() -> None:
    state = TransactionState
    assert PREVIOUS_STATES[state.PREPARE_COMMIT] == {state.ONGOING}
    assert PREVIOUS_STATES[state.COMPLETE_COMMIT] == {state.PREPARE_COMMIT}
    assert PREVIOUS_STATES[state.EMPTY] == {state.EMPTY, state.COMPLETE_COMMIT, state.COMPLETE_ABORT}
    with pytest.raises(AssertionError):
        ONGOING.initialised(1, 3, 1, 0, last_epoch=-1)
    assert [state.title for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
