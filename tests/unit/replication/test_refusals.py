"""Batches that are refused for a passing reason, and the batches that were sent after them."""

from __future__ import annotations

import pytest

from felice.protocol.errors import ApiError, ErrorCode
from felice.records.builder import build_batch
from felice.records.record import Record
from felice.replication.refusals import Refusals

SHORT = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
FEW = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
DISORDER = ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap")


def told(refusals: Refusals, records: bytes, error: ApiError) -> ErrorCode:
    """The error code that a producer gets for a batch that failed with `error`."""
    try:
        refusals.check(records, error)
    except ApiError as instead:
        assert instead is not error
        return ErrorCode(instead.code)
    return ErrorCode(error.code)


def batch(sequence: int, producer_id: int = 7, epoch: int = 0) -> bytes:
    return build_batch(
        [Record(0, 0, None, b"v")], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


@pytest.mark.parametrize("reason", [SHORT, FEW], ids=["storage", "replicas"])
def test_a_batch_after_a_refused_one_is_refused_for_the_same_reason(reason: ApiError) -> None:
    refusals = Refusals()
    assert told(refusals, batch(5), reason) == reason.code
    assert told(refusals, batch(6), DISORDER) == reason.code
    assert told(refusals, batch(8), DISORDER) == reason.code


def test_a_gap_that_no_refusal_explains_is_out_of_order() -> None:
    refusals = Refusals()
    assert told(refusals, batch(6), DISORDER) == DISORDER.code
    refusals.check(batch(5), SHORT)
    assert told(refusals, batch(5), DISORDER) == DISORDER.code
    assert told(refusals, batch(4), DISORDER) == DISORDER.code
    assert told(refusals, batch(6, producer_id=8), DISORDER) == DISORDER.code
    assert told(refusals, batch(6, epoch=1), DISORDER) == DISORDER.code


def test_the_first_refused_batch_decides_until_it_is_appended() -> None:
    refusals = Refusals()
    refusals.check(batch(5), SHORT)
    refusals.check(batch(6), FEW)
    assert told(refusals, batch(6), DISORDER) == SHORT.code
    refusals.forget(batch(5))
    assert told(refusals, batch(6), DISORDER) == DISORDER.code
    assert not refusals


def test_sequence_numbers_wrap() -> None:
    refusals = Refusals()
    refusals.check(batch(2**31 - 1), SHORT)
    assert told(refusals, batch(0), DISORDER) == SHORT.code


def test_other_errors_and_producers_without_ids_leave_no_trace() -> None:
    refusals = Refusals()
    refusals.check(batch(5), ApiError(ErrorCode.CORRUPT_MESSAGE, "broken"))
    refusals.check(build_batch([Record(0, 0, None, b"v")]), SHORT)
    assert not refusals


def test_memory_is_bounded() -> None:
    refusals = Refusals()
    for producer_id in range(1_500):
        refusals.check(batch(5, producer_id), SHORT)
    assert len(refusals) == 1_000
    assert told(refusals, batch(6, 1_499), DISORDER) == SHORT.code
    assert told(refusals, batch(6, 0), DISORDER) == DISORDER.code
