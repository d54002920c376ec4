from types import SimpleNamespace
from typing import Any

import pytest

from felice.client.consume.arrow import ArrowDelivery
from felice.client.consume.delivery import Delivery, Fetched
from felice.client.consume.isolation import visible_batches, visible_ranges, whole_batches
from felice.client.consume.subscription import AssignedPartition
from felice.client.error import KafkaError, KafkaException, error_of
from felice.client.model import error_message
from felice.records.batch import BatchHeader, stamp
from felice.records.builder import build_batch, build_control
from felice.records.compression import Codec
from felice.records.control import ControlType, EndTransactionMarker
from felice.records.record import Record


def batch(base: int, count: int, **fields: int) -> bytes:
    records = [Record(0, 1000 + i, b"k", b"%d" % (base + i), (("h", b"x"),)) for i in range(count)]
    data = bytearray(build_batch(records, Codec.LZ4, **fields))  # type: ignore[arg-type]
    stamp(data, 0, base, 4)
    return bytes(data)


def marker(base: int, kind: ControlType, producer_id: int) -> bytes:
    return build_control(
        EndTransactionMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=1,
        base_offset=base,
    )


def fetched(partition: AssignedPartition, *pieces: bytes) -> Fetched:
    records = memoryview(b"".join(pieces))
    headers = whole_batches(records)
    return Fetched(partition, records, headers, headers[-1].next_offset)


class Drained:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def drained() -> Drained:
    return Drained()


@pytest.fixture
def delivery(drained: Drained) -> Delivery:
    return Delivery(check_crcs=True, on_drained=drained)


def offsets(delivery: Delivery, limit: int = 100) -> list[int | None]:
    return [message.offset() for message in delivery.take_many(limit)]


def test_records_are_delivered_in_order_from_the_position(delivery: Delivery) -> None:
    partition = AssignedPartition("t", 0, 2)
    delivery.put(fetched(partition, batch(0, 4), batch(4, 2)))
    assert offsets(delivery) == [2, 3, 4, 5]
    assert partition.position == 6


def test_message_carries_the_fields_of_record_and_batch(delivery: Delivery) -> None:
    delivery.put(fetched(AssignedPartition("t", 3, 0), batch(0, 1)))
    message = delivery.take()
    assert message is not None
    assert (message.topic(), message.partition(), message.leader_epoch()) == ("t", 3, 4)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"0", [("h", b"x")])
    assert message.timestamp() == (1, 1000)


def test_stale_data_is_dropped_even_in_the_middle_of_a_batch(delivery: Delivery) -> None:
    partition = AssignedPartition("t", 0, 0)
    delivery.put(fetched(partition, batch(0, 4)))
    assert offsets(delivery, 2) == [0, 1]
    partition.seek(1)
    assert delivery.take() is None
    delivery.put(fetched(partition, batch(0, 4)))
    assert offsets(delivery) == [1, 2, 3]


def test_position_skips_markers_and_gaps_after_the_last_record(delivery: Delivery) -> None:
    partition = AssignedPartition("t", 0, 0)
    item = fetched(partition, batch(0, 2))
    item.next_offset = 7
    delivery.put(item)
    assert offsets(delivery) == [0, 1]
    assert partition.position == 7


def test_broken_batch_is_reported_in_its_place_and_skipped(delivery: Delivery) -> None:
    broken = bytearray(batch(2, 2))
    broken[-1] ^= 1
    delivery.put(fetched(AssignedPartition("t", 0, 0), batch(0, 2), bytes(broken), batch(4, 1)))
    messages = delivery.take_many(10)
    assert [message.offset() for message in messages] == [0, 1, 2, 4]
    error = messages[2].error()
    assert error is not None and error.code() == KafkaError._BAD_MSG and "t-0 offset 2" in error.str()


def test_events_keep_their_place_among_the_data(delivery: Delivery) -> None:
    partition = AssignedPartition("t", 0, 0)
    delivery.put(fetched(partition, batch(0, 1)))
    delivery.put(Fetched(partition, memoryview(b""), [], 1, error_of(KafkaError._PARTITION_EOF)))
    first, second = delivery.take_many(10)
    assert first.error() is None
    assert second.error() == KafkaError._PARTITION_EOF and second.offset() == 1


def test_room_is_released_when_a_piece_is_delivered(delivery: Delivery, drained: Drained) -> None:
    partition = AssignedPartition("t", 0, 0)
    delivery.put(fetched(partition, batch(0, 3)))
    assert partition.lease.buffered_records == 3 and delivery.buffered_bytes > 0
    offsets(delivery)
    assert partition.lease.buffered_records == 0 and delivery.buffered_bytes == 0
    assert drained.count == 1


def test_columns_take_the_same_records_and_move_the_same_positions(delivery: Delivery) -> None:
    pytest.importorskip("pyarrow")
    partition = AssignedPartition("t", 0, 1)
    delivery.put(fetched(partition, batch(0, 4), batch(4, 4)))
    taking = ArrowDelivery(delivery, with_headers=True, check_crcs=True)
    assert taking.take(5, 1 << 20)
    table = taking.table()
    assert table.column("offset").to_pylist() == [1, 2, 3, 4, 5]
    assert table.column("headers").to_pylist()[0] == [{"key": "h", "value": b"x"}]
    assert partition.position == 6
    assert offsets(delivery) == [6, 7]


def test_aborted_transactions_and_markers_are_not_visible() -> None:
    pieces = [
        batch(0, 2, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
        batch(2, 1, producer_id=2, producer_epoch=0, base_sequence=0, transactional=True),
        marker(3, ControlType.ABORT, 1),
        marker(4, ControlType.COMMIT, 2),
        batch(5, 1, producer_id=1, producer_epoch=0, base_sequence=2, transactional=True),
        marker(6, ControlType.COMMIT, 1),
        batch(7, 1),
    ]
    records = memoryview(b"".join(pieces))
    headers = whole_batches(records)
    aborted = [SimpleNamespace(producer_id=1, first_offset=0)]
    assert [header.base_offset for header in visible_batches(records, headers, aborted)] == [2, 5, 7]
    assert [header.base_offset for header in visible_batches(records, headers, None)] == [0, 2, 5, 7]


def test_ranges_join_neighbours_only() -> None:
    records = memoryview(b"".join(batch(base, 1) for base in range(4)))
    headers = whole_batches(records)
    pieces = list(visible_ranges(records, [headers[0], headers[1], headers[3]]))
    assert [BatchHeader.parse(piece).base_offset for piece in pieces] == [0, 3]
    assert len(pieces[0]) == headers[2].position


def test_cut_last_batch_is_left_out() -> None:
    whole = batch(0, 1) + batch(1, 1)
    assert [header.base_offset for header in whole_batches(memoryview(whole[:-3]))] == [0]


def test_columns_lose_nothing_to_a_batch_that_cannot_be_read(delivery: Delivery) -> None:
    pytest.importorskip("pyarrow")
    broken = bytearray(batch(2, 2))
    broken[-1] ^= 1
    other = AssignedPartition("u", 0, 0)
    delivery.put(fetched(other, batch(0, 1)))
    partition = AssignedPartition("t", 0, 0)
    delivery.put(fetched(partition, batch(0, 2), bytes(broken), batch(4, 2)))
    first = ArrowDelivery(delivery, with_headers=False, check_crcs=True)
    assert first.take(100, 1 << 20)
    assert first.table().column("offset").to_pylist() == [0, 0, 1]
    second = ArrowDelivery(delivery, with_headers=False, check_crcs=True)
    assert second.take(100, 1 << 20)
    with pytest.raises(KafkaException, match="offset 2"):
        second.table()
    third = ArrowDelivery(delivery, with_headers=False, check_crcs=True)
    assert not third.take(100, 1 << 20)
    assert third.table().column("offset").to_pylist() == [4, 5]
    assert partition.position == 6


def test_error_event_after_rows_is_raised_by_the_next_call(delivery: Delivery) -> None:
    pytest.importorskip("pyarrow")
    delivery.put(fetched(AssignedPartition("t", 0, 0), batch(0, 2)))
    delivery.put(error_message(error_of(KafkaError._MAX_POLL_EXCEEDED)))
    first = ArrowDelivery(delivery, with_headers=False, check_crcs=True)
    assert first.take(100, 1 << 20) and first.table().num_rows == 2
    second = ArrowDelivery(delivery, with_headers=False, check_crcs=True)
    assert second.take(100, 1 << 20)
    with pytest.raises(KafkaException):
        second.table()


def test_the_queue_counts_what_is_in_it(delivery: Delivery) -> None:
    first, second = AssignedPartition("t", 0, 0), AssignedPartition("t", 1, 0)
    pieces = [batch(0, 2), batch(0, 3), batch(3, 1)]
    assert delivery.empty
    delivery.put(fetched(first, pieces[0]))
    delivery.put(fetched(second, pieces[1]))
    delivery.put(fetched(second, pieces[2]))
    assert not delivery.empty
    sizes = [len(piece) for piece in pieces]
    assert delivery.buffered_bytes == sum(sizes)
    assert (first.lease.buffered_bytes, first.lease.buffered_records) == (sizes[0], 2)
    assert (second.lease.buffered_bytes, second.lease.buffered_records) == (sizes[1] + sizes[2], 4)
    assert delivery.received == {("t", 0): (2, sizes[0]), ("t", 1): (4, sizes[1] + sizes[2])}
    assert offsets(delivery, 3) == [0, 1, 0]
    assert delivery.buffered_bytes == sizes[1] + sizes[2], "a piece counts until its last record"
    assert offsets(delivery) == [1, 2, 3]
    assert delivery.buffered_bytes == 0 == second.lease.buffered_records and delivery.empty
    # Counters of the client's life stay.
    assert delivery.received["t", 1] == (4, sizes[1] + sizes[2])


def test_an_error_that_waits_is_not_queued_again() -> None:
    delivery = Delivery(check_crcs=True)
    partition = AssignedPartition("t", 0, 0)
    lasting = error_of(KafkaError._AUTHENTICATION, "no")

    def repeat() -> None:
        delivery.put(error_message(lasting))
        delivery.put(error_message(lasting, "t", 1))
        delivery.put(Fetched(partition, memoryview(b""), [], 5, lasting))

    def places() -> list[tuple[str | None, int | None]]:
        return [(message.topic(), message.partition()) for message in delivery.take_many(100)]

    for _ in range(3):
        repeat()
    everything = places()
    assert [topic for topic, _ in everything] == [None, "t", "t"]
    repeat()
    assert places() == everything, "an error that was delivered may come again"
    repeat()
    partition.seek(0)
    repeat()
    assert places() == everything, "after a seek the error counts as another"


def test_an_error_that_was_put_back_waits_again() -> None:
    delivery = Delivery(check_crcs=True)
    lasting = error_message(error_of(KafkaError._AUTHENTICATION, "no"))
    delivery.put(lasting)
    assert delivery.take_fetched() is lasting
    delivery.put_back(lasting)
    delivery.put(lasting)
    delivery.put(fetched(AssignedPartition("t", 0, 0), batch(0, 1)))
    assert [message.error() is None for message in delivery.take_many(9)] == [False, True]


@pytest.mark.parametrize("take", [Delivery.take_many, lambda delivery, limit: delivery.take()])
def test_a_position_that_would_go_back_stops_the_partition(delivery: Delivery, take: Any) -> None:
    partition, other = AssignedPartition("t", 0, 0), AssignedPartition("t", 1, 0)
    piece = fetched(partition, batch(0, 2))
    delivery.put(piece)
    assert [offsets(delivery, 1), offsets(delivery, 1)] == [[0], [1]]
    partition.position = 7
    delivery.put(fetched(other, batch(0, 1)))
    with pytest.raises(KafkaException, match="invariant K1 is broken.*t-0.*from 7 to 2") as error:
        take(delivery, 5)
    assert error.value.args[0].code() == KafkaError._INCONSISTENT
    assert partition.paused and piece.stale
    partition.resume()
    assert offsets(delivery) == [0], "only the other partition goes on"
    partition.seek(2)
    delivery.put(fetched(partition, batch(2, 2)))
    assert offsets(delivery) == [2, 3]
