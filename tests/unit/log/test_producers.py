"""The state of producers in a partition: sequences, duplicates, epochs, open transactions."""

from __future__ import annotations

import pytest

from felice.log import snapshots
from felice.log.producers import ProducerStates, RememberedBatch
from felice.log.snapshots import CorruptSnapshot, SnapshotEntry
from felice.log.transaction_index import AbortedTransaction
from felice.protocol.errors import ApiError, ErrorCode
from felice.records.batch import BatchHeader
from felice.records.control import ControlType, EndTransactionMarker

PID = 7
DAY = 86_400_000
LAST_SEQUENCE = 2**31 - 1


def header(
    sequence: int = 0, count: int = 1, *, epoch: int = 0, pid: int = PID, txn: bool = False
) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        size_bytes=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0x10 if txn else 0,
        last_offset_delta=count - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


class Appender:
    """Appends to producer state as a log would."""

    def __init__(self) -> None:
        self.states = ProducerStates(DAY)
        self.offset = 0

    def append(self, sequence: int, count: int = 1, *, now_ms: int = 0, **fields: object) -> int | None:
        """Returns the base offset; for a duplicate the offset of the first append."""
        batch = header(sequence, count, **fields)  # type: ignore[arg-type]
        duplicate = self.states.check(batch)
        if duplicate is not None:
            return duplicate.first_offset
        base, self.offset = self.offset, self.offset + count
        self.states.update(batch, base, now_ms)
        return base

    def end(
        self, pid: int = PID, *, epoch: int = 0, commit: bool = True, coordinator_epoch: int = 0
    ) -> AbortedTransaction | None:
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        marker, batch = (
            EndTransactionMarker(kind, coordinator_epoch),
            header(-1, epoch=epoch, pid=pid, txn=True),
        )
        self.states.check_marker(batch, marker)
        self.offset += 1
        return self.states.complete(batch, marker, self.offset - 1, 0)


@pytest.fixture
def log() -> Appender:
    return Appender()


def refused(code: ErrorCode, log: Appender, *args: int, **fields: object) -> None:
    with pytest.raises(ApiError) as caught:
        log.append(*args, **fields)  # type: ignore[arg-type]
    assert caught.value.code is code


def test_sequences_that_follow_one_another_are_accepted(log: Appender) -> None:
    assert [log.append(0, 3), log.append(3), log.append(4, 6)] == [0, 3, 4]


@pytest.mark.parametrize("sequence", [0, 1, 4, 100])
def test_a_sequence_that_does_not_follow_is_out_of_order(log: Appender, sequence: int) -> None:
    log.append(0, 3)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, sequence)


def test_a_repeat_of_one_of_the_last_five_batches_returns_its_old_offset(log: Appender) -> None:
    offsets = [log.append(sequence, 2) for sequence in range(0, 14, 2)]
    for sequence, offset in list(zip(range(0, 14, 2), offsets, strict=True))[2:]:
        assert log.append(sequence, 2) == offset
    assert log.offset == 14


def test_a_repeat_of_the_sixth_last_batch_is_out_of_order(log: Appender) -> None:
    for sequence in range(6):
        log.append(sequence)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 0)


def test_a_batch_forgotten_by_a_restart_is_a_duplicate_and_not_out_of_order(log: Appender) -> None:
    """Found by a simulation run: clients wrote such batches again, in a new epoch."""
    for sequence in (0, 2, 4, 6):
        log.append(sequence, 2)
    log.states.restore(log.states.entries(), log.offset, now_ms=0)
    assert log.append(6, 2) == 6
    for sequence in (0, 2, 4):
        refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, log, sequence, 2)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 10, 2)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 5, 2)
    assert log.append(8, 2) == 8


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_batch_older_than_all_that_is_known_of_a_producer_is_not_a_duplicate(
    log: Appender, epoch: int
) -> None:
    """The first batch was refused for a while, the second was not: so the repeated first batch was never stored."""
    if epoch:
        log.append(0)
        log.states.restore(log.states.entries(), log.offset, now_ms=0)
        log.end(epoch=1)
        log.states._states[PID].batches.append(RememberedBatch(9, log.offset, 4, 0))
    else:
        log.append(5, 5)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 0, 5, epoch=epoch)


def test_forgotten_sequences_are_distinguished_from_future_ones_across_the_wrap(log: Appender) -> None:
    log.append(LAST_SEQUENCE - 1, 2)
    log.append(0)
    log.states.restore(log.states.entries(), log.offset, now_ms=0)
    refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, log, LAST_SEQUENCE - 1, 2)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 2)


def test_a_repeat_must_match_first_and_last_sequence(log: Appender) -> None:
    log.append(0, 5)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 0, 4)


def test_sequences_wrap_to_zero(log: Appender) -> None:
    log.append(LAST_SEQUENCE - 1, 2)
    assert log.append(0) == 2
    assert log.append(LAST_SEQUENCE - 1, 2) == 0


def test_a_batch_may_wrap_in_its_middle(log: Appender) -> None:
    log.append(LAST_SEQUENCE, 3)
    assert log.append(LAST_SEQUENCE, 3) == 0
    assert log.append(2) == 3
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 0)


def test_an_unknown_producer_may_begin_with_any_sequence(log: Appender) -> None:
    assert log.append(1234, 5) == 0
    assert log.append(1239) == 5


def test_an_older_epoch_is_fenced(log: Appender) -> None:
    log.append(0, epoch=3)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 1, epoch=2)


def test_a_newer_epoch_begins_at_zero(log: Appender) -> None:
    log.append(0, 5, epoch=3)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 5, epoch=4)
    assert log.append(0, epoch=4) == 5
    assert log.append(1, epoch=4) == 6


def test_a_new_epoch_forgets_the_batches_of_the_old(log: Appender) -> None:
    log.append(0, epoch=3)
    log.append(0, epoch=4)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 0, epoch=3)


def test_coordinators_write_without_sequences_but_not_with_an_old_epoch(log: Appender) -> None:
    log.append(0, epoch=3)
    assert log.states.check(header(-1, epoch=3), sequences=False) is None
    with pytest.raises(ApiError) as caught:
        log.states.check(header(-1, epoch=2), sequences=False)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_plain_batch_inside_an_open_transaction_is_refused(log: Appender) -> None:
    log.append(0, txn=True)
    refused(ErrorCode.INVALID_TXN_STATE, log, 1)


def test_idle_producers_expire_and_may_start_again(log: Appender) -> None:
    log.append(0, 5, now_ms=1000)
    assert log.states.expire(1000 + DAY - 1) == 0
    assert log.states.expire(1000 + DAY) == 1
    assert log.append(77) == 5


def test_an_open_transaction_does_not_expire(log: Appender) -> None:
    log.append(0, txn=True)
    assert log.states.expire(10 * DAY) == 0
    log.end()
    assert log.states.expire(10 * DAY) == 1


# -- transactions ------------------------------------------------------------------------------------------


def test_the_first_unstable_offset_is_the_earliest_open_transactions(log: Appender) -> None:
    assert log.states.first_unstable_offset(0) is None
    log.append(0)
    log.append(0, 2, pid=8, txn=True)
    log.append(0, pid=9, txn=True)
    assert log.states.first_unstable_offset(4) == 1
    log.end(8)
    assert log.states.first_unstable_offset(5) == 3
    log.end(9)
    assert log.states.first_unstable_offset(6) is None


def test_an_ended_transaction_is_unstable_until_its_marker_is_committed(log: Appender) -> None:
    log.append(0, 4, txn=True)
    log.end()
    assert log.states.first_unstable_offset(4) == 0
    assert log.states.first_unstable_offset(5) is None


def test_an_aborted_transaction_is_returned_with_the_last_stable_offset_at_its_end(log: Appender) -> None:
    log.append(0, 2, pid=8, txn=True)
    log.append(0, 3, pid=9, txn=True)
    assert log.end(9, commit=False) == AbortedTransaction(9, 2, 5, 0)
    assert log.end(8, commit=False) == AbortedTransaction(8, 0, 6, 7)


def test_commits_and_markers_without_a_transaction_leave_no_index_entry(log: Appender) -> None:
    log.append(0, txn=True)
    assert log.end(commit=True) is None
    assert log.end(commit=False) is None


def test_markers_of_an_old_producer_or_coordinator_are_fenced(log: Appender) -> None:
    log.append(0, epoch=2, txn=True)
    with pytest.raises(ApiError) as caught:
        log.end(epoch=1)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    log.end(epoch=2, coordinator_epoch=5)
    with pytest.raises(ApiError) as caught:
        log.end(epoch=2, coordinator_epoch=4)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_after_a_marker_with_a_new_epoch_sequences_begin_at_zero(log: Appender) -> None:
    log.append(0, 5, epoch=2, txn=True)
    log.end(epoch=3)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 5, epoch=3, txn=True)
    assert log.append(0, epoch=3, txn=True) == 6


def test_after_a_marker_of_the_same_epoch_sequences_continue(log: Appender) -> None:
    log.append(0, 5, txn=True)
    log.end()
    assert log.append(5, txn=True) == 6


# -- snapshots ---------------------------------------------------------------------------------------------

GOLDEN = (
    "0001"
    "e5c26276"
    "00000001"
    "0000000000000007"
    "0002"
    "0000000b"
    "000000000000002a"
    "00000003"
    "0000018bcfe56800"
    "00000005"
    "ffffffffffffffff"
)


def test_a_snapshot_has_kafkas_bytes() -> None:
    entry = SnapshotEntry(7, 2, 11, 42, 3, 1_700_000_000_000, 5, -1)
    data = snapshots.encode([entry])
    assert data.hex() == GOLDEN
    assert snapshots.decode(data) == [entry]


def test_every_damaged_byte_of_a_snapshot_is_detected() -> None:
    data = snapshots.encode([SnapshotEntry(7, 2, 11, 42, 3, 1, 5, -1)] * 3)
    for at in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            snapshots.decode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(CorruptSnapshot):
            snapshots.decode(data[:at])


def test_a_snapshot_keeps_the_state_but_only_the_last_batch(log: Appender) -> None:
    log.append(0, 5)
    log.append(5, 5)
    log.append(0, 2, pid=8, txn=True)
    restored = Appender()
    restored.states.restore(snapshots.decode(snapshots.encode(log.states.entries())), 12, now_ms=0)
    restored.offset = 12
    assert restored.append(5, 5) == 5
    assert restored.append(10) == 12
    refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, restored, 0, 5)
    assert restored.states.first_unstable_offset(13) == 10


def test_producers_that_expired_meanwhile_are_not_restored(log: Appender) -> None:
    log.append(0, now_ms=1000)
    log.append(0, pid=8, txn=True, now_ms=1000)
    restored = ProducerStates(DAY)
    restored.restore(log.states.entries(), 2, now_ms=1000 + DAY)
    assert [state.producer_id for state in restored] == [8]


def test_after_a_restart_the_earliest_open_transaction_counts_whatever_the_order_in_the_snapshot(
    log: Appender,
) -> None:
    """Producer 8 comes first in the snapshot, but producer 9 began its transaction earlier."""
    log.append(0, pid=8)
    log.append(0, pid=9, txn=True)
    log.append(1, pid=8, txn=True)
    restored = Appender()
    restored.states.restore(log.states.entries(), log.offset, now_ms=0)
    restored.offset = log.offset
    assert restored.states.first_unstable_offset(3) == 1
    assert restored.end(8, commit=False) == AbortedTransaction(8, 2, 3, 1)
    assert restored.states.first_unstable_offset(4) == 1


def test_a_restored_snapshot_replaces_the_previous_state(log: Appender) -> None:
    log.append(0, now_ms=10 * DAY)
    entries = log.states.entries()
    other = Appender()
    other.append(0, pid=8, txn=True)
    other.append(0, pid=9, txn=True)
    other.end(9)
    other.states.restore(entries, 5, now_ms=10 * DAY + 1)
    assert [(state.producer_id, state.last_sequence) for state in other.states] == [(PID, 0)]
    assert (other.states.end_offset, other.states.first_unstable_offset(0)) == (5, None)


def test_a_snapshot_after_a_transaction_has_none_open_and_the_coordinators_epoch(log: Appender) -> None:
    log.append(0, 2, txn=True)
    assert log.states.entries()[0].current_txn_first_offset == 0
    log.end(coordinator_epoch=4)
    [entry] = log.states.entries()
    assert (entry.current_txn_first_offset, entry.coordinator_epoch) == (-1, 4)


def test_every_marker_of_a_producer_is_counted_with_and_without_a_transaction(log: Appender) -> None:
    for number in range(3):
        log.append(number, txn=True)
        log.end(commit=bool(number % 2))
        log.end()
        state = log.states.get(PID)
        assert state is not None and state.markers_seen == 2 * number + 2
