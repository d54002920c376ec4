"""Kafka's rules for transactional batches and markers under compaction."""

from __future__ import annotations

from felice.log.cleaner_transactions import CleanedTransactions, LastOfProducer
from felice.log.transaction_index import AbortedTransaction
from felice.records.batch import BatchHeader
from felice.records.builder import attributes, new_header
from felice.records.control import ControlType

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def data(offset: int, producer_id: int = 1, *, transactional: bool = True) -> BatchHeader:
    return new_header(
        record_count=1,
        base_timestamp=0,
        max_timestamp=0,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        attributes=attributes(transactional=transactional),
    )


def control(offset: int, producer_id: int = 1, count: int = 1) -> BatchHeader:
    header = new_header(
        record_count=1,
        base_timestamp=0,
        max_timestamp=0,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        attributes=attributes(transactional=True, control=True),
    )
    return header._replace(record_count=count)


def test_a_commit_marker_is_spent_when_no_data_came_before_it() -> None:
    walk = CleanedTransactions([])
    assert not walk.is_aborted(data(0))
    assert not walk.is_spent(control(1), COMMIT)
    assert walk.is_spent(control(2), COMMIT)
    assert walk.is_spent(control(3, producer_id=2), COMMIT)


def test_aborted_and_committed_data_of_one_producer_are_distinguished() -> None:
    first, second = AbortedTransaction(1, 2, 3, 4), AbortedTransaction(1, 6, 7, 8)
    walk = CleanedTransactions([second, first, first])
    assert not walk.is_aborted(data(0))
    assert not walk.is_spent(control(1), COMMIT)
    assert walk.is_aborted(data(2))
    assert not walk.is_spent(control(3), ABORT)
    assert walk.kept == [first]
    assert not walk.is_aborted(data(4))
    assert not walk.is_spent(control(5), COMMIT)
    assert walk.is_aborted(data(6))
    assert not walk.is_spent(control(7), ABORT)
    assert walk.kept == [first, second]


def test_an_abort_marker_without_data_is_spent_and_leaves_the_index() -> None:
    walk = CleanedTransactions([AbortedTransaction(1, 0, 5, 6)])
    assert walk.is_spent(control(5), ABORT)
    assert walk.kept == []


def test_producers_do_not_disturb_each_other() -> None:
    walk = CleanedTransactions([AbortedTransaction(2, 1, 4, 5)])
    assert not walk.is_aborted(data(0, 1))
    assert walk.is_aborted(data(1, 2))
    assert not walk.is_aborted(data(2, 1))
    assert not walk.is_aborted(data(3, 2, transactional=False))
    assert not walk.is_spent(control(4, 2), ABORT)
    assert not walk.is_spent(control(5, 1), COMMIT)


def test_empty_and_unknown_control_batches() -> None:
    walk = CleanedTransactions([])
    assert walk.is_spent(control(0, count=0), None)
    assert not walk.is_spent(control(1), None)
    assert not walk.is_spent(control(2), ControlType.LEADER_CHANGE)


def test_the_last_batch_or_epoch_of_a_producer_must_stay() -> None:
    last = LastOfProducer(7, 0)
    assert last.is_in(data(7))
    assert not last.is_in(data(6))
    without_data = LastOfProducer(None, 0)
    assert without_data.is_in(control(9))
    assert not without_data.is_in(data(9))
    assert not LastOfProducer(None, 1).is_in(control(9))
