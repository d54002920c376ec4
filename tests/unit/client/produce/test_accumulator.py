import threading

import pytest

from felice.client.error import KafkaError, KafkaException
from felice.client.produce.accumulator import Accumulator, HeldRecord, Limits
from felice.client.produce.batches import ANONYMOUS
from felice.client.produce.partitioners import make_partitioner
from felice.records.batch import HEADER_SIZE, BatchHeader
from felice.records.compression import Codec
from felice.records.kernels import IMPLEMENTATION
from felice.records.reader import read_batch


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


clock = Clock()


def accumulator(partitions: int = 3, **limits: float) -> Accumulator:
    made = Accumulator(Limits(**limits), make_partitioner("murmur2_random"), clock)  # type: ignore[arg-type]
    if partitions:
        made.open_topic("t", partitions, range(partitions))
    return made


def put(
    acc: Accumulator, value: bytes = b"v", *, key: bytes | None = None, partition: int = -1, now: float = 0.0
) -> bool:
    clock.now = now
    return acc.append("t", partition, 1000, key, value, None, None)


def drain(acc: Accumulator) -> dict[int, list[bytes | None]]:
    acc.flushing = 1
    acc.close_lingering(0.0)
    found: dict[int, list[bytes | None]] = {}
    for queue in acc.queues():
        while queue.ready:
            batch = queue.take(ANONYMOUS, 1)
            records = read_batch(batch.data, BatchHeader.parse(batch.data))
            found.setdefault(queue.partition, []).extend(record.value for record in records)
    return found


def test_records_of_a_partition_leave_in_order() -> None:
    acc = accumulator(batch_records=3)
    for number in range(10):
        put(acc, b"%d" % number, partition=1)
    assert drain(acc) == {1: [b"%d" % number for number in range(10)]}


def test_full_queue_refuses_and_keeps_what_it_had() -> None:
    acc = accumulator(queue_records=2)
    put(acc)
    put(acc)
    with pytest.raises(BufferError, match="Queue full"):
        put(acc)
    assert acc.record_count == 2
    acc.release(1, 0)
    put(acc)


def test_bytes_are_bounded_too() -> None:
    acc = accumulator(queue_bytes=1000)
    put(acc, b"x" * 900)
    with pytest.raises(BufferError):
        put(acc, b"x" * 100)


def test_record_larger_than_the_limit_is_refused_by_size() -> None:
    with pytest.raises(KafkaException) as caught:
        put(accumulator(message_max_bytes=100), b"x" * 200)
    assert caught.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_partition_that_does_not_exist_is_refused() -> None:
    acc = accumulator()
    with pytest.raises(KafkaException) as caught:
        put(acc, partition=3)
    assert caught.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
    assert acc.record_count == 0


def test_sender_is_woken_for_the_first_record_and_for_full_batches_only() -> None:
    acc = accumulator(batch_records=3)
    assert [put(acc, partition=0) for _ in range(4)] == [True, False, True, True]
    assert put(acc, partition=1) is False


def test_batch_lingers_and_then_closes() -> None:
    acc = accumulator(linger_s=0.5)
    put(acc, partition=0, now=10.0)
    assert acc.close_lingering(10.2) == 10.5
    assert not acc.queues()
    assert acc.close_lingering(10.5) is None
    assert len(acc.queues()) == 1


def test_flush_does_not_wait_for_the_linger() -> None:
    acc = accumulator(linger_s=60)
    put(acc)
    acc.flushing = 1
    acc.close_lingering(0.0)
    assert len(acc.queues()) == 1


def test_batch_closes_before_it_grows_over_its_size() -> None:
    acc = accumulator(batch_size_bytes=520)
    for _ in range(4):
        put(acc, b"x" * 200, partition=0)
    acc.flushing = 1
    acc.close_lingering(0.0)
    assert [batch.record_count for batch in acc.queues()[0].ready] == [2, 2]


def test_a_batch_of_exactly_its_size_is_full() -> None:
    alone = accumulator()
    put(alone, partition=0)
    acc = accumulator(batch_size_bytes=HEADER_SIZE + alone.size_bytes)
    put(acc, partition=0)
    assert len(acc.queues()) == 1


@pytest.mark.parametrize(("level", "is_smaller"), [(None, True), (0, False), (1, True)])
def test_gzip_at_level_0_does_not_compress(level: int | None, is_smaller: bool) -> None:
    acc = Accumulator(Limits(), make_partitioner("murmur2_random"), clock, int(Codec.GZIP), level)
    acc.open_topic("t", 1, range(1))
    put(acc, bytes(5000))
    acc.close()
    batch = acc.queues()[0].take(ANONYMOUS, 1)
    assert (len(batch.data) < 5000) is is_smaller


@pytest.mark.skipif(IMPLEMENTATION == "plain", reason="the plain buffer takes no offers")
@pytest.mark.parametrize(("key", "partition"), [(None, -1), (None, 1), (b"k", -1), (b"k", 1)])
def test_a_record_for_an_open_batch_needs_no_lock(
    key: bytes | None, partition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    acc = accumulator(linger_s=60, sticky_s=60)
    put(acc, b"first", key=key, partition=partition)
    monkeypatch.setattr(acc, "_append_or_hold", None)
    put(acc, b"second", key=key, partition=partition)
    assert list(drain(acc).values()) == [[b"first", b"second"]]


@pytest.mark.skipif(IMPLEMENTATION == "plain", reason="the plain buffer takes no offers")
@pytest.mark.parametrize("ends", ["append", "drop"])
@pytest.mark.parametrize(("key", "partition"), [(None, -1), (None, 1), (b"k", -1)])
def test_records_need_no_lock_again_when_none_is_held_any_more(
    key: bytes | None, partition: int, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those for a batch that held records began, nor those for the batches behind it."""
    acc = accumulator(partitions=0, linger_s=60, sticky_s=60, batch_records=4)
    for number in range(2):
        put(acc, b"%d" % number, key=key, partition=partition)
    acc.open_topic("t", 3, range(3))
    assert acc.is_catching_up("t")
    if ends == "append":
        assert acc.append_held("t", 1) == ([], True)
        put(acc, b"2", key=key, partition=partition)
        assert acc.is_catching_up("t"), "a record must not overtake one that is held"
        assert acc.append_held("t", 10) == ([], False)
    else:
        assert len(acc.drop_topic("t")) == 2
    assert not acc.is_catching_up("t")
    slow: list[bytes | None] = []
    usual = acc._append_or_hold

    def count(record: HeldRecord) -> bool | None:
        slow.append(record.value)
        return usual(record)

    monkeypatch.setattr(acc, "_append_or_hold", count)
    for number in range(3, 9):
        put(acc, b"%d" % number, key=key, partition=partition)
    # The first record of a batch takes the lock, the others do not.
    assert slow == ([b"4", b"8"] if ends == "append" else [b"3", b"7"])
    kept = range(9) if ends == "append" else range(3, 9)
    assert list(drain(acc).values()) == [[b"%d" % number for number in kept]]


def test_records_without_key_stick_to_one_partition_for_a_while() -> None:
    acc = accumulator(partitions=50, sticky_s=1.0)
    for _ in range(20):
        put(acc, now=0.5)
    assert len(drain(acc)) == 1


def test_records_of_an_unknown_topic_are_held_and_then_partitioned_in_order() -> None:
    acc = accumulator(partitions=0)
    assert put(acc, b"0", key=b"k") is True
    assert put(acc, b"1", key=b"k") is False
    assert acc.waiting_topics == {"t"}
    acc.open_topic("t", 4, range(4))
    assert acc.append_held("t", 10) == ([], False)
    assert not acc.waiting_topics
    put(acc, b"2", key=b"k")
    assert list(drain(acc).values()) == [[b"0", b"1", b"2"]]


def test_the_time_while_a_record_was_held_counts_for_its_delivery() -> None:
    acc = accumulator(partitions=0)
    put(acc, now=1.0)
    clock.now = 5.0
    acc.open_topic("t", 1, range(1))
    acc.append_held("t", 10)
    acc.close_lingering(6.0)
    [queue] = acc.queues()
    assert acc.expire(queue, before=0.5) == []
    assert [batch.record_count for batch in acc.expire(queue, before=1.5)] == [1]


def test_held_record_for_a_partition_that_is_not_there_comes_back_with_its_error() -> None:
    acc = accumulator(partitions=0)
    put(acc, b"0", partition=9)
    acc.open_topic("t", 2, range(2))
    [(record, error)], left = acc.append_held("t", 10)
    assert not left
    assert record.value == b"0" and error == KafkaError._UNKNOWN_PARTITION


def test_dropped_topic_gives_up_what_was_held() -> None:
    acc = accumulator(partitions=0)
    put(acc, b"0")
    assert [record.value for record in acc.drop_topic("t")] == [b"0"]
    assert not acc.waiting_topics


def test_topic_may_gain_partitions() -> None:
    acc = accumulator(partitions=1)
    acc.open_topic("t", 3, range(3))
    put(acc, partition=2)
    assert drain(acc) == {2: [b"v"]}


def test_expired_batches_are_those_older_than_the_limit() -> None:
    acc = accumulator()
    put(acc, partition=0, now=1.0)
    acc.close_lingering(2.0)
    put(acc, partition=0, now=5.0)
    acc.close_lingering(6.0)
    [queue] = acc.queues()
    assert [batch.created for batch in acc.expire(queue, 3.0)] == [1.0]
    assert [batch.created for batch in queue.ready] == [5.0]


def test_purge_takes_open_ready_and_held_records() -> None:
    acc = accumulator()
    put(acc, partition=0)
    acc.append("unknown", -1, 0, None, b"h", None, None)
    batches, held = acc.purge()
    assert [batch.record_count for batch in batches] == [1]
    assert [record.value for record in held] == [b"h"]
    assert not acc.queues()


def test_built_batch_goes_behind_what_was_appended_before() -> None:
    acc = accumulator()
    other = accumulator()
    put(other, b"built", partition=0)
    other.flushing = 1
    other.close_lingering(0.0)
    data = other.queues()[0].take(ANONYMOUS, 1).data
    put(acc, b"first", partition=0)
    acc.append_batch("t", 0, data, 1, None)
    put(acc, b"last", partition=0)
    assert drain(acc) == {0: [b"first", b"built", b"last"]}


def test_batches_that_another_thread_closes_keep_every_record_in_order() -> None:
    acc = accumulator(partitions=1, queue_records=0)
    done = threading.Event()

    def close_batches() -> None:
        while not done.is_set():
            with acc.lock:
                acc.close_lingering(1e9)

    closer = threading.Thread(target=close_batches)
    closer.start()
    for number in range(30_000):
        put(acc, b"%d" % number)
    done.set()
    closer.join()
    assert acc.record_count == 30_000
    assert drain(acc) == {0: [b"%d" % number for number in range(30_000)]}


def test_a_closed_producer_refuses_a_record_for_a_batch_that_was_open() -> None:
    acc = accumulator(partitions=1)
    put(acc)
    with acc.lock:
        acc.close()
    with pytest.raises(RuntimeError, match="closed"):
        put(acc)


def test_reports_belong_to_their_records() -> None:
    acc = accumulator(partitions=1)
    reports = [None, print, None, repr, None]
    for number, report in enumerate(reports):
        acc.append("t", 0, 1000, None, b"%d" % number, None, report)
    with acc.lock:
        acc.flushing = 1
        acc.close_lingering(0.0)
    (batch,) = acc.queues()[0].ready
    assert batch.reports == reports[:4]


def test_records_without_key_choose_again_while_their_batch_lingers() -> None:
    acc = accumulator(partitions=50, sticky_s=1.0, linger_s=60.0)
    put(acc, now=0.0)
    assert acc.close_lingering(0.5) == 1.0
    put(acc, now=0.5)
    assert acc.close_lingering(1.0) == 60.0
    for _ in range(20):
        put(acc, now=1.0)
        acc.close_lingering(clock.now + 10.0)
    assert len(drain(acc)) > 2


def test_size_in_the_queue_returns_to_nothing_when_all_is_released() -> None:
    acc = accumulator(partitions=0, batch_size_bytes=300)
    put(acc, b"held")
    acc.open_topic("t", 1, range(1))
    for number in range(10):
        put(acc, b"x" * number * 10)
    assert acc.append_held("t", 100) == ([], False)
    acc.flushing = 1
    acc.close_lingering(0.0)
    for batch in acc.queues()[0].ready:
        acc.release(batch.record_count, batch.size_bytes)
    assert (acc.record_count, acc.size_bytes) == (0, 0)


def test_built_batches_count_for_both_bounds_of_the_queue() -> None:
    acc = accumulator(queue_records=3, queue_bytes=100)
    acc.append_batch("t", 0, b"x" * 500, 1, None)
    with pytest.raises(BufferError, match="Queue full"):
        acc.append_batch("t", 0, b"x", 1, None)
    acc.release(1, 500)
    acc.append_batch("t", 0, b"x" * 50, 1, None)
    acc.append_batch("t", 0, b"x" * 50, 1, None)
    with pytest.raises(BufferError, match="Queue full"):
        acc.append_batch("t", 0, b"x", 1, None)
    acc.release(2, 100)
    acc.append_batch("t", 0, b"x", 4, None)
    with pytest.raises(BufferError, match="Queue full"):
        acc.append_batch("t", 0, b"x", 1, None)
