"""Random reads, interrupted reads, seeks, pauses, assignments and commits: what a consumer hands out, and what it
commits for it, against an oracle that knows for each partition the next offset and the last offset handed out.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from felice.client.consume.arrow import ArrowDelivery
from felice.client.consume.delivery import Delivery, Fetched
from felice.client.consume.isolation import whole_batches
from felice.client.consume.subscription import Subscription
from felice.client.model import Message, Partition, TopicPartition
from felice.records.batch import stamp
from felice.records.builder import build_batch
from felice.records.record import Record

COUNT = 3
BATCHES = (1, 4, 2, 7, 3, 5)
END = sum(BATCHES)
PARTITIONS = st.integers(0, COUNT - 1)
OFFSETS = st.integers(0, END)
LIMITS = st.integers(1, 12)


def build_log() -> list[tuple[int, bytes]]:
    """Batches of several sizes, each with its first offset."""
    found, base = [], 0
    for size in BATCHES:
        data = bytearray(build_batch([Record(0, 1, None, b"%d" % (base + i)) for i in range(size)]))
        stamp(data, 0, base, base // 5)
        found.append((base, bytes(data)))
        base += size
    return found


LOG = build_log()


class Consuming:
    """A subscription and its queue, with a fetcher that fetches when it is told to."""

    def __init__(self) -> None:
        self.subscription = Subscription()
        self.delivery = Delivery(check_crcs=True)

    def fetch(self, number: int, pieces: int) -> None:
        partition = self.subscription.assigned.get(("t", number))
        if partition is None or not partition.fetchable or partition.fetch_offset is None:
            return
        later = [data for base, data in LOG if base + len_of(data) > partition.fetch_offset]
        if later:
            records = memoryview(b"".join(later[:pieces]))
            headers = whole_batches(records)
            partition.fetch_offset = headers[-1].next_offset
            self.delivery.put(Fetched(partition, records, headers, partition.fetch_offset))

    def to_commit(self) -> dict[Partition, int]:
        return {key: found[0] for key, found in self.subscription.to_commit(auto_store=True).items()}


def len_of(data: bytes) -> int:
    return whole_batches(memoryview(data))[0].record_count


class Progress(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.real = Consuming()
        self.next: dict[int, int] = {}
        self.handed: dict[int, int] = {}
        self.committed: dict[int, int] = {}

    def got(self, offsets: list[tuple[int, int]]) -> None:
        for number, offset in offsets:
            assert number in self.next and not self.paused(number)
            assert offset == self.next[number], "in order, each once, none left out"
            self.next[number] = self.handed[number] = offset + 1

    def paused(self, number: int) -> bool:
        partition = self.real.subscription.of("t", number)
        return partition.paused or partition.withheld

    # What the application reads

    @rule(number=PARTITIONS, pieces=st.integers(1, 3))
    def fetch(self, number: int, pieces: int) -> None:
        self.real.fetch(number, pieces)

    @rule()
    def poll(self) -> None:
        message = self.real.delivery.take()
        if message is not None:
            self.got(places([message]))

    @rule(limit=LIMITS)
    def consume(self, limit: int) -> None:
        at_once = self.real.delivery.take_at_once(limit)
        self.got(places(self.real.delivery.take_many(limit) if at_once is None else at_once))

    @rule(limit=LIMITS)
    def consume_arrow(self, limit: int) -> None:
        taking = ArrowDelivery(self.real.delivery, with_headers=False, check_crcs=True)
        taking.take(limit, 1 << 30)
        table = taking.table()
        self.got(list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)))

    @rule(limit=LIMITS, number=PARTITIONS)
    def consume_in_two_rounds(self, limit: int, number: int) -> None:
        self.real.delivery.gather(limit)
        self.nothing_is_committed_before_it_is_handed_out()
        self.real.fetch(number, 1)
        self.real.delivery.gather(limit)
        self.got(places(self.real.delivery.hand_over()))

    @rule(limit=LIMITS, rows=st.booleans())
    def interrupted(self, limit: int, rows: bool) -> None:
        if rows:
            ArrowDelivery(self.real.delivery, with_headers=False, check_crcs=True).take(limit, 1 << 30)
        else:
            self.real.delivery.gather(limit)
        self.nothing_is_committed_before_it_is_handed_out()
        self.real.delivery.give_back()

    @rule(
        limit=LIMITS, number=PARTITIONS, offset=OFFSETS, change=st.sampled_from(["pause", "seek", "unassign"])
    )
    def changed_by_a_callback_while_it_gathers(
        self, limit: int, number: int, offset: int, change: str
    ) -> None:
        self.real.delivery.gather(limit)
        if change == "pause":
            self.pause(number)
        elif change == "seek":
            self.seek(number, offset)
        else:
            self.unassign(number)
        self.got(places(self.real.delivery.hand_over()))

    @rule(limit=LIMITS, first=LIMITS)
    def only_the_first_can_be_converted(self, limit: int, first: int) -> None:
        self.real.delivery.gather(limit)
        self.got(places(self.real.delivery.hand_over_first(first)))

    # What the application changes

    @rule(number=PARTITIONS, offset=OFFSETS)
    def seek(self, number: int, offset: int) -> None:
        if number in self.next:
            self.real.subscription.of("t", number).seek(offset)
            self.next[number] = offset

    @rule(number=PARTITIONS)
    def pause(self, number: int) -> None:
        if number in self.next:
            self.real.subscription.of("t", number).pause()

    @rule(number=PARTITIONS)
    def resume(self, number: int) -> None:
        if number in self.next:
            self.real.subscription.of("t", number).resume()

    @rule(numbers=st.sets(PARTITIONS), offset=OFFSETS)
    def assign(self, numbers: set[int], offset: int) -> None:
        removed = self.real.subscription.assign(TopicPartition("t", number, offset) for number in numbers)
        self.committed_at_the_end(removed, list(self.next))
        self.next = dict.fromkeys(numbers, offset)

    @precondition(lambda self: len(self.next) < COUNT)
    @rule(offset=OFFSETS)
    def incremental_assign(self, offset: int) -> None:
        number = min(set(range(COUNT)) - self.next.keys())
        self.real.subscription.incremental_assign([TopicPartition("t", number, offset)])
        self.next[number] = offset

    @rule(number=PARTITIONS)
    def unassign(self, number: int) -> None:
        if number in self.next:
            removed = self.real.subscription.incremental_unassign([("t", number)])
            self.committed_at_the_end(removed, [number])
            del self.next[number]

    @rule(number=PARTITIONS, keeps=st.booleans())
    def revoke(self, number: int, keeps: bool) -> None:
        self.real.subscription.withhold([("t", number)])
        if keeps:
            self.real.subscription.keep([("t", number)])
        else:
            self.unassign(number)

    def committed_at_the_end(self, removed: list[Any], numbers: list[int]) -> None:
        real = self.real.subscription.to_commit(auto_store=True, partitions=removed)
        assert {key[1]: found[0] for key, found in real.items()} == self.due(numbers)
        for number in numbers:
            self.handed.pop(number, None)
            self.committed.pop(number, None)

    @rule()
    def commit(self) -> None:
        moved = self.real.to_commit()
        self.real.subscription.on_committed(moved)
        self.committed |= {key[1]: offset for key, offset in moved.items()}

    # What is due to be committed

    def due(self, numbers: list[int]) -> dict[int, int]:
        return {
            n: self.handed[n] for n in numbers if n in self.handed and self.handed[n] != self.committed.get(n)
        }

    @invariant()
    def nothing_is_committed_before_it_is_handed_out(self) -> None:
        assert {key[1]: offset for key, offset in self.real.to_commit().items()} == self.due(list(self.next))

    def teardown(self) -> None:
        """Everything that was not handed out is still delivered."""
        for number in self.next:
            self.real.subscription.of("t", number).resume()
            for _ in LOG:
                self.real.fetch(number, 1)
        self.got(places(self.real.delivery.take_many(10_000)))
        assert all(offset == END for offset in self.next.values())
        assert self.real.delivery.take() is None and self.real.delivery.buffered_bytes == 0


def places(messages: list[Message]) -> list[tuple[int, int]]:
    return [(message.partition() or 0, message.offset() or 0) for message in messages]


def test_a_piece_of_a_partition_that_is_paused_while_it_is_gathered_comes_after_resume() -> None:
    state = Progress()
    state.incremental_assign(offset=0)
    state.fetch(number=0, pieces=1)
    state.changed_by_a_callback_while_it_gathers(limit=1, number=0, offset=0, change="pause")
    state.teardown()


TestProgress = Progress.TestCase
TestProgress.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


# A signal handler may raise anywhere


class Interrupt(BaseException):
    pass


# Lines without calls: the interpreter runs signal handlers only before or after them.
UNDIVIDED = ("hand_over", "_release", "give_back")
LAST = ("return messages", "return table", "return message")


@contextmanager
def interrupt_at_line(count: int) -> Iterator[None]:
    """Raises at the line of `delivery`, `arrow` or `subscription` that is executed as number `count`."""
    left = count

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        nonlocal left
        if "/client/consume/" not in frame.f_code.co_filename:
            return None
        code = frame.f_code
        text = linecache.getline(code.co_filename, frame.f_lineno).strip()
        if event == "line" and code.co_name not in UNDIVIDED and text not in LAST:
            left -= 1
            if left == 0:
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def take_messages(real: Consuming) -> list[tuple[int, int]]:
    found = real.delivery.take_at_once(9)
    if found is None:
        real.delivery.gather(5)
        real.delivery.gather(9)
        found = real.delivery.hand_over()
    return places(found)


def take_rows(real: Consuming) -> list[tuple[int, int]]:
    taking = ArrowDelivery(real.delivery, with_headers=False, check_crcs=True)
    taking.take(9, 1 << 30)
    table = taking.table()
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


@pytest.mark.parametrize("take", [take_messages, take_rows])
@pytest.mark.parametrize("begun", [0, 1, 3])
def test_an_interrupt_at_any_line_loses_and_repeats_nothing(
    take: Callable[[Consuming], list[tuple[int, int]]], begun: int
) -> None:
    line = 0
    interrupted = True
    while interrupted:
        line += 1
        real = Consuming()
        real.subscription.assign([TopicPartition("t", 0, 0), TopicPartition("t", 1, 2)])
        for number in (0, 1, 0, 1):
            real.fetch(number, 2)
        ends = [real.subscription.of("t", number).fetch_offset or 0 for number in (0, 1)]
        first = places(real.delivery.take_many(begun))
        before = real.to_commit()
        interrupted = False
        try:
            with interrupt_at_line(line):
                first += take(real)
        except Interrupt:
            interrupted = True
            real.delivery.give_back()
            assert real.to_commit() == before, f"interrupted at line {line}"
        rest = places(real.delivery.take_many(100))
        found = first + rest
        assert [offset for number, offset in found if number == 0] == list(range(ends[0])), line
        assert [offset for number, offset in found if number == 1] == list(range(2, ends[1])), line
        assert real.delivery.take() is None and real.delivery.buffered_bytes == 0
    assert line > 50
