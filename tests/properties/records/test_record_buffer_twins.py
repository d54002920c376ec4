"""The compiled buffer in which a batch is filled, against its plain twin and against its bounds."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from felice.records.kernels.plain_record_buffer import Offers, OpenBatches, QueueBounds, RecordBuffer

compiled = pytest.importorskip("felice.records.kernels._kernels", reason="the extension was not built")

TIMES = st.integers(0, 10_000) | st.integers(-(2**63), 2**63 - 1)
OPTIONAL_BYTES = st.none() | st.binary(max_size=400)
HEADERS = st.just(()) | st.lists(st.tuples(st.text(max_size=5), OPTIONAL_BYTES), max_size=3)
RECORDS = st.lists(st.tuples(TIMES, OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS), max_size=30)


def offer(buffer: Any, *record: Any) -> int:
    """Offers a record to the partition whose open batch this buffer is."""
    batches, made = compiled.OpenBatches(), compiled.Offers(False)
    batches.add(0, buffer)
    made.topics["t"] = batches
    outcome: int = made.offer("t", 0, *record)
    return outcome


def outcomes(buffer: Any, records: list[Any]) -> list[Any]:
    """What `append` returns or raises, and the counts, after each record."""
    found: list[Any] = []
    for record in records:
        try:
            found.append(buffer.append(*record))
        except (OverflowError, TypeError) as error:
            found.append(type(error))
        found.append((buffer.record_count, buffer.base_timestamp, buffer.max_timestamp, buffer.size_bytes))
    return found


@given(RECORDS, st.sampled_from([0, 61, 5000]), st.sampled_from([None, 0, 100, 9000]))
@example([(-(2**63), None, None, ()), (2**63 - 1, None, None, ())], 0, None)
@example([(0, b"x" * 5000, None, ()), (1, None, "text", ())], 0, None)
def test_both_buffers_encode_the_same(records: list[Any], capacity: int, used_before: int | None) -> None:
    memory = None if used_before is None else bytearray(b"\xee" * used_before)
    plain, fast = RecordBuffer(), compiled.RecordBuffer(capacity, memory)
    assert outcomes(fast, records) == outcomes(plain, records)
    assert fast.take() == plain.take()
    for buffer in (plain, fast):
        with pytest.raises(ValueError, match="taken"):
            buffer.append(0, None, None)
        with pytest.raises(ValueError, match="taken"):
            buffer.take()


@given(
    st.lists(st.tuples(st.integers(0, 2**40), OPTIONAL_BYTES, OPTIONAL_BYTES, st.booleans()), max_size=30),
    st.integers(1, 20),
    st.integers(61, 3000),
    st.integers(0, 20),
    st.integers(0, 3000),
)
def test_offers_stay_within_all_bounds(
    records: list[Any], most_records: int, most_bytes: int, queue_records: int, queue_bytes: int
) -> None:
    bounds, reports = compiled.QueueBounds(queue_records, queue_bytes), []  # type: ignore[var-annotated]
    buffer, same = compiled.RecordBuffer(), RecordBuffer()
    buffer.open_for_offers(bounds, most_records, most_bytes, reports)
    expected_reports: dict[int, object] = {}
    for timestamp, key, value, is_reported in records:
        report = object() if is_reported else None
        before = buffer.size_bytes, bounds.record_count, bounds.size_bytes, len(reports)
        outcome = offer(buffer, timestamp, key, value, report)
        if outcome == 0:
            assert (buffer.size_bytes, bounds.record_count, bounds.size_bytes, len(reports)) == before
            continue
        assert (outcome == 2) == (buffer.record_count == most_records)
        same.append(timestamp, key, value)
        if report is not None:
            expected_reports[buffer.record_count - 1] = report
    assert buffer.record_count == bounds.record_count <= min(most_records, queue_records or most_records)
    assert bounds.size_bytes == buffer.size_bytes - 61 <= queue_bytes or not buffer.record_count
    assert buffer.size_bytes <= most_bytes
    assert {index: report for index, report in enumerate(reports) if report is not None} == expected_reports
    assert buffer.take() == same.take()


def opened(**changes: int) -> Any:
    limits = {"queue_records": 100, "queue_bytes": 10_000, "most_records": 10, "most_bytes": 5000, **changes}
    buffer = compiled.RecordBuffer()
    bounds = compiled.QueueBounds(limits["queue_records"], limits["queue_bytes"])
    buffer.open_for_offers(bounds, limits["most_records"], limits["most_bytes"], [])
    return buffer


@pytest.mark.parametrize(
    "record",
    [
        (-1, None, None),
        (2**63, None, None),
        (1.5, None, None),
        (True, None, None),
        (1, bytearray(b"k"), None),
        (1, None, "text"),
        (1, None, b"x" * 5000),
    ],
    ids=repr,
)
def test_an_unusual_record_is_not_taken(record: Any) -> None:
    buffer = opened()
    assert offer(buffer, *record, None) == 0
    assert buffer.record_count == 0


def test_a_record_is_taken_while_every_bound_allows_it() -> None:
    assert offer(opened(), 1, b"k", b"v", None) == 1
    assert offer(opened(most_records=1), 1, b"k", b"v", None) == 2
    assert offer(opened(most_bytes=61 + 36 + 1), 1, b"k", b"v", None) == 0
    assert offer(opened(most_bytes=61 + 36 + 2), 1, b"k", b"v", None) == 1
    assert offer(opened(queue_bytes=37), 1, b"k", b"v", None) == 0
    assert offer(opened(queue_bytes=38), 1, b"k", b"v", None) == 1
    assert offer(opened(queue_records=0), 1, b"k", b"v", None) == 1  # 0: no bound


def test_a_buffer_takes_no_offers_before_it_is_opened_and_after_it_is_closed() -> None:
    buffer = compiled.RecordBuffer()
    assert offer(buffer, 1, None, b"v", None) == 0
    buffer = opened()
    buffer.close_for_offers()
    assert offer(buffer, 1, None, b"v", None) == 0
    buffer = opened()
    buffer.take()
    assert offer(buffer, 1, None, b"v", None) == 0


@pytest.mark.parametrize("kind", [QueueBounds, compiled.QueueBounds])
def test_the_bounds_of_a_queue_count_both_ways(kind: Any) -> None:
    bounds = kind(2, 100)
    assert bounds.has_room(100)
    assert not bounds.has_room(101)
    bounds.add(2, 50)
    assert not bounds.has_room(1)
    bounds.add(-1, -20)
    assert (bounds.record_count, bounds.size_bytes) == (1, 30)
    assert bounds.has_room(70)
    assert not bounds.has_room(71)
    assert bounds.has_room(70, 1)
    assert not bounds.has_room(70, 2)
    assert kind(0, 100).has_room(100)
    assert kind(0, 100).has_room(100, 1 << 40)


def test_threads_that_offer_and_close_lose_and_repeat_nothing() -> None:
    bounds = compiled.QueueBounds(0, 1 << 40)
    buffers: list[Any] = []
    current = [compiled.RecordBuffer()]
    current[0].open_for_offers(bounds, 1 << 20, 1 << 30, [])
    done = threading.Event()

    def close_buffers() -> None:
        while not done.is_set():
            fresh = compiled.RecordBuffer()
            fresh.open_for_offers(bounds, 1 << 20, 1 << 30, [])
            old, current[0] = current[0], fresh
            old.close_for_offers()
            buffers.append((old, old.record_count))

    closer = threading.Thread(target=close_buffers)
    closer.start()
    taken = 0
    for number in range(100_000):
        while not offer(current[0], number, None, b"v", None):
            pass
        taken += 1
    done.set()
    closer.join()
    buffers.append((current[0], current[0].record_count))
    assert bounds.record_count == taken == sum(count for _, count in buffers)
    assert all(buffer.record_count == count for buffer, count in buffers)


class Name(str):
    """Text whose comparison may run Python code."""


def offers(*, sticks_without_key: bool = True) -> tuple[Any, Any, dict[int, Any]]:
    """Offers to topic t, whose partitions 0 and 1 have open batches and whose sticky partition is 1."""
    made, topic, buffers = (
        compiled.Offers(sticks_without_key),
        compiled.OpenBatches(),
        {0: opened(), 1: opened()},
    )
    for partition, buffer in buffers.items():
        topic.add(partition, buffer)
    topic.sticky = 1
    made.topics["t"] = topic
    return made, topic, buffers


@pytest.mark.parametrize(("partition", "key", "chosen"), [(0, None, 0), (1, b"k", 1), (-1, None, 1)])
def test_a_record_goes_to_its_partition_or_to_the_sticky_one(
    partition: int, key: bytes | None, chosen: int
) -> None:
    made, _, buffers = offers()
    assert made.offer("t", partition, 1, key, b"v", None) == 1
    assert {number: buffer.record_count for number, buffer in buffers.items()} == {chosen: 1, 1 - chosen: 0}


@pytest.mark.parametrize(
    ("topic", "partition", "key"),
    [
        ("t", -1, b"k"),
        ("t", 2, None),
        ("u", 0, None),
        (Name("t"), 0, None),
        (None, 0, None),
        ("t", True, None),
        ("t", 1 << 70, None),
        ("t", -(1 << 70), b"k"),
        ("t", "0", None),
    ],
    ids=repr,
)
def test_a_record_without_an_open_batch_is_not_taken(topic: Any, partition: Any, key: bytes | None) -> None:
    made, _, buffers = offers()
    assert made.offer(topic, partition, 1, key, b"v", None) == 0
    assert not any(buffer.record_count for buffer in buffers.values())


def test_a_record_without_a_key_is_not_taken_if_none_sticks() -> None:
    made, topic, _ = offers()
    topic.sticky = -1
    assert made.offer("t", -1, 1, None, b"v", None) == 0
    made, _, _ = offers(sticks_without_key=False)
    assert made.offer("t", -1, 1, None, b"v", None) == 0
    assert made.offer("t", 1, 1, None, b"v", None) == 1


def test_a_batch_that_was_removed_takes_no_record() -> None:
    made, topic, _ = offers()
    topic.remove(1)
    topic.remove(5)
    assert made.offer("t", -1, 1, None, b"v", None) == 0
    assert made.offer("t", 0, 1, None, b"v", None) == 1


def test_the_plain_offers_refuse_every_record() -> None:
    made, topic = Offers(True), OpenBatches()
    topic.add(0, RecordBuffer())
    topic.sticky = 0
    made.topics["t"] = topic
    assert made.offer("t", 0, 1, None, b"v", None) == 0
    topic.remove(0)
