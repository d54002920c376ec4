import pytest

from felice.client.produce.batches import ANONYMOUS, PartitionQueue, ProducerBatch, ProducerIdentity
from felice.records.batch import BatchHeader, verify_crc
from felice.records.builder import BatchBuilder
from felice.records.compression import Codec
from felice.records.reader import read_batch

OLD, NEW = ProducerIdentity(7, 0), ProducerIdentity(7, 1)


def batch(count: int, created: float = 0.0, codec: Codec = Codec.NONE) -> ProducerBatch:
    made = ProducerBatch("t", 0, created)
    made.builder = BatchBuilder(codec)
    for index in range(count):
        made.builder.append(1000 + index, None, b"v%d" % index)
        made.add_report(index, lambda error, message: None)
    made.record_count = count
    return made


def queue_of(*counts: int) -> PartitionQueue:
    queue = PartitionQueue("t", 0)
    queue.ready.extend(batch(count, created=float(index)) for index, count in enumerate(counts))
    return queue


def header(made: ProducerBatch) -> BatchHeader:
    return BatchHeader.parse(made.data)


def test_sequences_count_records() -> None:
    queue = queue_of(3, 2, 4)
    taken = [queue.take(OLD, 1) for _ in range(3)]
    assert [made.sequence for made in taken] == [0, 3, 5]
    assert [header(made).base_sequence for made in taken] == [0, 3, 5]
    assert {header(made).producer_id for made in taken} == {7}


def test_sequence_wraps_to_zero_after_the_largest() -> None:
    queue = queue_of(2, 1)
    queue.identity, queue.next_sequence = OLD, 2**31 - 1
    assert [queue.take(OLD, 1).sequence, queue.take(OLD, 1).sequence] == [2**31 - 1, 1]


def test_batches_without_identity_carry_no_sequence() -> None:
    assert header(queue_of(1).take(ANONYMOUS, 1)).base_sequence == -1


def test_returned_batches_precede_newer_batches_in_their_original_order() -> None:
    queue = queue_of(1, 1, 1, 1)
    first, second, third = (queue.take(OLD, 1) for _ in range(3))
    queue.in_flight.clear()
    for made in (second, first, third):
        queue.give_back([made])
    assert list(queue.ready)[:3] == [first, second, third]
    assert queue.ready[3].attempts == 0


def test_retried_batch_keeps_its_sequence() -> None:
    queue = queue_of(2, 2)
    first = queue.take(OLD, 1)
    queue.in_flight.clear()
    queue.give_back([first])
    assert queue.take(OLD, 1) is first
    assert (first.sequence, queue.take(OLD, 1).sequence) == (0, 2)


def test_nothing_overtakes_a_retry_while_later_batches_are_in_flight() -> None:
    queue = queue_of(1, 1, 1)
    first, _ = queue.take(OLD, 1), queue.take(OLD, 1)
    queue.in_flight.remove(first)
    queue.give_back([first])
    assert not queue.may_send_to(1)
    queue.in_flight.clear()
    assert queue.may_send_to(1)


def test_retry_is_sent_alone() -> None:
    queue = queue_of(1, 1)
    first = queue.take(OLD, 1)
    queue.in_flight.remove(first)
    queue.give_back([first])
    assert queue.take(OLD, 1) is first
    assert not queue.may_send_to(1)
    queue.in_flight.clear()
    assert queue.may_send_to(1)


def test_no_more_than_five_batches_are_in_flight() -> None:
    queue = queue_of(*[1] * 7)
    for _ in range(5):
        assert queue.may_send_to(1)
        queue.take(OLD, 1)
    assert not queue.may_send_to(1)


def test_renumbering_starts_at_zero_in_the_new_epoch_and_seals_again() -> None:
    queue = queue_of(2, 3)
    both = [queue.take(OLD, 1), queue.take(OLD, 1)]
    queue.in_flight.clear()
    queue.give_back(both)
    queue.renumber_all(NEW)
    assert [made.sequence for made in both] == [0, 2]
    for made in both:
        assert header(made).producer_epoch == 1
        assert verify_crc(made.data, header(made))
    assert queue.next_sequence == 5


def test_other_partitions_use_a_new_epoch_only_when_no_old_batch_is_in_flight() -> None:
    queue = queue_of(1, 1, 1)
    queue.take(OLD, 1)
    assert queue.take(NEW, 1).identity == OLD
    queue.in_flight.clear()
    last = queue.take(NEW, 1)
    assert (last.identity, last.sequence) == (NEW, 0)


def test_split_keeps_records_reports_and_numbering() -> None:
    queue = PartitionQueue("t", 0)
    queue.ready.append(batch(5, codec=Codec.ZSTD))
    whole = queue.take(OLD, 1)
    halves = whole.split()
    assert [half.record_count for half in halves] == [2, 3]
    assert [half.sequence for half in halves] == [0, 2]
    values = [record.value for half in halves for record in read_batch(half.data, header(half))]
    assert values == [b"v0", b"v1", b"v2", b"v3", b"v4"]
    assert [half.reports for half in halves] == [whole.reports[:2], whole.reports[2:]]
    assert all(header(half).codec is Codec.ZSTD for half in halves)


@pytest.mark.parametrize("transactional", [False, True])
def test_halves_belong_to_the_transaction_of_the_whole(transactional: bool) -> None:
    queue = PartitionQueue("t", 0)
    whole = ProducerBatch("t", 0, 0.0)
    whole.builder = BatchBuilder(transactional=transactional)
    for number in range(2):
        whole.builder.append(1000 + number, b"k", b"v", [("h", b"x")])
    whole.record_count = 2
    queue.ready.append(whole)
    halves = queue.take(OLD, 1).split()
    assert [header(half).is_transactional for half in halves] == [transactional] * 2
    [first], [second] = (read_batch(half.data, header(half)) for half in halves)
    assert [(record.timestamp, record.key, list(record.headers)) for record in (first, second)] == [
        (1000, b"k", [("h", b"x")]),
        (1001, b"k", [("h", b"x")]),
    ]


def test_first_is_the_batch_with_nothing_unanswered_before_it() -> None:
    queue = queue_of(1, 1)
    first, second = queue.take(OLD, 1), queue.take(OLD, 1)
    assert queue.is_first(first) and not queue.is_first(second)
    queue.in_flight.remove(first)
    queue.give_back([first])
    assert not queue.is_first(second)


def test_nothing_is_sent_to_a_new_leader_while_batches_are_in_flight_to_the_old_leader() -> None:
    """A leader that does not know the producer accepts any sequence, so a batch in flight would come after it."""
    queue = queue_of(2)
    first = queue.take(OLD, 1)
    assert queue.may_send_to(1) and not queue.may_send_to(2)
    queue.in_flight.remove(first)
    assert queue.may_send_to(2)


def test_a_batch_that_was_sent_gets_new_bytes_with_its_new_number() -> None:
    queue = queue_of(2)
    sent = queue.take(OLD, 1)
    before = sent.data
    copy = bytes(before)
    sent.number(NEW, 7)
    assert bytes(before) == copy
    assert (header(sent).base_sequence, header(sent).producer_epoch) == (7, NEW.epoch)
