"""The batches that a read_committed reader skips."""

from __future__ import annotations

from felice.records.aborted import AbortedTransactions, is_abort_marker
from felice.records.batch import BatchHeader, stamp
from felice.records.builder import build_batch, build_control
from felice.records.control import ControlType, EndTransactionMarker
from felice.records.record import Record


def data(offset: int, producer_id: int, transactional: bool = True, records: int = 1) -> bytes:
    rows = [Record(0, 0, None, b"%d" % producer_id)] * records
    batch = bytearray(
        build_batch(
            rows, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=transactional
        )
    )
    stamp(batch, 0, offset, 0)
    return bytes(batch)


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return build_control(
        EndTransactionMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=0,
        base_offset=offset,
    )


def hidden(aborted: list[tuple[int, int]], *batches: bytes) -> list[int]:
    """Base offsets of the batches that the filter hides."""
    transactions = AbortedTransactions(aborted)
    headers = [(batch, BatchHeader.parse(batch)) for batch in batches]
    return [header.base_offset for batch, header in headers if transactions.hides(batch, header)]


LOG = (
    data(0, 1),
    data(1, 2),
    data(2, 3, transactional=False),
    marker(3, 1, ControlType.ABORT),
    data(4, 1),
    marker(5, 2, ControlType.COMMIT),
    data(6, 2),
    marker(7, 2, ControlType.ABORT),
    marker(8, 1, ControlType.COMMIT),
)


def test_only_aborted_batches_are_hidden() -> None:
    assert hidden([(1, 0), (2, 6)], *LOG) == [0, 6]
    assert hidden([], *LOG) == []


def test_the_list_need_not_be_sorted() -> None:
    assert hidden([(2, 6), (1, 0)], *LOG) == [0, 6]


def test_records_outside_transactions_are_seen_even_from_the_same_producer() -> None:
    assert hidden([(3, 2)], *LOG) == []


def test_a_transaction_that_began_before_the_first_batch_is_hidden() -> None:
    assert hidden([(2, 5)], *LOG[6:]) == [6]


def test_a_transaction_that_begins_inside_a_batch_hides_it() -> None:
    assert hidden([(1, 2)], data(0, 1, records=3)) == [0]
    assert hidden([(1, 3)], data(0, 1, records=3)) == []


def test_abort_markers_are_distinguished_from_other_batches() -> None:
    found = [is_abort_marker(batch, BatchHeader.parse(batch)) for batch in LOG]
    assert found == [False, False, False, True, False, False, False, True, False]
