"""The shell around shards: loading, batching, commits, refusals, timers, and the end of leadership."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from begun_calls import at_once, under_way
from felice.config import TopicConfig
from felice.coordinator.java_hash import java_string_hash, partition_for
from felice.coordinator.runtime import CoordinatorRuntime
from felice.coordinator.shard import (
    Instant,
    Outcome,
    Reply,
    ReplyAfterWrite,
    TransactionalProducer,
    Waiter,
)
from felice.log.answers import AppendOrigin
from felice.protocol.errors import ApiError, ErrorCode
from felice.records.batch import BatchHeader
from felice.records.builder import BatchBuilder, build_control
from felice.records.control import ControlType, EndTransactionMarker
from unit.coordinator.fake_partition import (
    FakeClock,
    FakeLog,
    FakePartition,
    FakePartitions,
    Word,
    WordCodec,
    WordShard,
)
from waiting import LIMIT_S, let_run, until

# For tests that wait for the time limit of a write; in the others it is never reached.
SHORT_MS = 200


class World:
    def __init__(
        self,
        partition: FakePartition | None = None,
        others: Sequence[FakePartition] = (),
        write_timeout_ms: int = int(LIMIT_S * 1000),
    ) -> None:
        self.partition = partition or FakePartition()
        self.partition_count = 1 + len(others)
        self.partitions = FakePartitions({0: self.partition, **dict(enumerate(others, 1))})
        self.clock = FakeClock()
        self.runtime: CoordinatorRuntime[WordShard, Word] = CoordinatorRuntime(
            topic="words",
            partition_count=lambda: self.partition_count,
            new_shard=WordShard,
            codec=WordCodec(),
            partitions=self.partitions,
            clock=self.clock,
            write_timeout_ms=write_timeout_ms,
        )
        self.runtime.start()

    def take_time(self) -> None:
        """From now on no write reaches its time limit."""
        self.runtime.hosted("any")._write_timeout_ms = int(LIMIT_S * 1000)

    @property
    def shard(self) -> WordShard:
        return self.runtime.hosted("any").shard

    def put(self, *words: Word) -> Any:
        def event(shard: WordShard, waiter: Waiter, now: Instant) -> Outcome[Word]:
            after = ReplyAfterWrite(waiter, "stored", lambda error: error)
            return Outcome(records=list(words), after_write=[after])

        return under_way(self.runtime.call("any", event))

    def put_in_transaction(self, producer_id: int, *words: Word) -> Any:
        def event(shard: WordShard, waiter: Waiter, now: Instant) -> Outcome[Word]:
            after: ReplyAfterWrite[Word] = ReplyAfterWrite(waiter, "stored", lambda error: error)
            producer = TransactionalProducer(producer_id, 3)
            return Outcome(records=list(words), after_write=[after], producer=producer)

        return under_way(self.runtime.call("any", event))

    def end(self, producer_id: int, kind: ControlType) -> int:
        producer = TransactionalProducer(producer_id, 3)
        return self.runtime.hosted_at(0).end_transaction(EndTransactionMarker(kind, 5), producer)

    def read(self, key: str) -> Any:
        def event(shard: WordShard, waiter: Waiter, now: Instant) -> Outcome[Word]:
            return Outcome(after_write=[ReplyAfterWrite(waiter, shard.words.get(key), lambda error: error)])

        return under_way(self.runtime.call("any", event))


# Keys


def test_the_hash_is_javas() -> None:
    assert java_string_hash("") == 0
    assert java_string_hash("hello") == 99162322
    assert java_string_hash("polygenelubricants") == -(1 << 31)
    assert java_string_hash("\U0001f600") == 0xD83D * 31 + 0xDE00


def test_a_group_belongs_to_javas_partition() -> None:
    assert partition_for("polygenelubricants", 50) == 0  # abs of the smallest int is 0
    assert partition_for("hello", 50) == 22
    assert partition_for("my-group", 50) == abs(java_string_hash("my-group")) % 50


# Writing


async def test_one_turn_of_the_loop_is_one_append() -> None:
    world = World()
    answers = [world.put((f"k{n}", "v")) for n in range(5)]
    assert world.partition.log.batches == []
    assert await asyncio.gather(*answers) == ["stored"] * 5
    assert len(world.partition.log.batches) == 1
    await world.put(("later", "v"))
    assert len(world.partition.log.batches) == 2


async def test_no_answer_shows_uncommitted_state() -> None:
    world = World(FakePartition(commits_at_once=False))
    stored, read = world.put(("k", "v")), world.read("k")
    await let_run()
    assert not stored.done()
    assert not read.done()
    world.partition.commit()
    assert await stored == "stored"
    assert await read == "v"


async def test_a_read_without_writes_before_it_answers_at_once() -> None:
    world = World()
    assert world.read("k") is None
    await world.put(("k", "v"))
    assert world.read("k") == "v"


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_a_refused_write_leaves_no_trace(refusal: ErrorCode, told: ErrorCode) -> None:
    world = World()
    await world.put(("k", "old"))
    world.partition.refusal = refusal
    answers = [world.put(("k", "1")), world.put(("k", "2"), ("n", "3"))]
    assert await asyncio.gather(*answers) == [told, told]
    assert world.shard.words == {"k": "old"}
    world.partition.refusal = None
    assert await world.put(("k", "new")) == "stored"


async def test_a_record_that_fits_into_no_batch_fails_alone() -> None:
    world = World(FakePartition(log=FakeLog(TopicConfig(max_message_bytes=1000))))
    answers = [world.put(("k", "v")), world.put(("n", "x" * 1000)), world.put(("m", "v"))]
    assert answers[1] == ErrorCode.MESSAGE_TOO_LARGE
    assert await asyncio.gather(answers[0], answers[2]) == ["stored", "stored"]
    assert world.shard.words == {"k": "v", "m": "v"}


async def test_a_record_that_cannot_be_encoded_fails_alone() -> None:
    world = World()
    answers = [world.put(("k", "v")), world.put(("unencodable", "v"))]
    assert answers[1] == ErrorCode.INVALID_REQUEST
    assert await answers[0] == "stored"
    assert world.shard.words == {"k": "v"}


async def test_many_records_are_spread_over_batches_that_fit() -> None:
    world = World(FakePartition(log=FakeLog(TopicConfig(max_message_bytes=1000))))
    assert await world.put(*[(f"k{n}", "v" * 100) for n in range(20)]) == "stored"
    assert len(world.partition.log.batches) > 2
    assert all(len(batch) <= 1000 for batch in world.partition.log.batches)
    assert len(world.shard.words) == 20


async def test_a_commit_that_takes_too_long_is_reported_but_stays() -> None:
    world = World(FakePartition(commits_at_once=False), write_timeout_ms=SHORT_MS)
    assert await world.put(("k", "v")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.shard.words == {"k": "v"}
    world.take_time()
    later = world.put(("k", "w"))
    await asyncio.sleep(0)
    world.partition.commit()
    assert await later == "stored"


async def test_a_write_that_timed_out_is_shown_only_after_its_commit() -> None:
    """It is in the log, but the next leader may never have had it."""
    world = World(FakePartition(commits_at_once=False), write_timeout_ms=SHORT_MS)
    assert await world.put(("k", "v")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await world.read("k") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.take_time()
    read = world.read("k")
    await asyncio.sleep(0)
    world.partition.commit()
    assert await read == "v"
    assert world.read("k") == "v"


# Transactions


async def test_records_of_a_transaction_have_their_own_batch() -> None:
    world = World()
    waiting = [
        world.put(("a", "1")),
        world.put_in_transaction(7, ("b", "1")),
        world.put_in_transaction(7, ("c", "1")),
        world.put_in_transaction(8, ("d", "1")),
        world.put(("e", "1")),
    ]
    assert [await one for one in waiting] == ["stored"] * 5
    headers = [BatchHeader.parse(batch) for batch in world.partition.log.batches]
    assert [(one.producer_id, one.producer_epoch, one.record_count) for one in headers] == [
        (-1, -1, 1),
        (7, 3, 2),
        (8, 3, 1),
        (-1, -1, 1),
    ]
    assert [one.is_transactional for one in headers] == [False, True, True, False]
    assert world.shard.words == {"a": "1", "e": "1"}


async def test_a_marker_is_written_after_earlier_records() -> None:
    world = World()
    waiting = world.put_in_transaction(7, ("a", "1")), world.put_in_transaction(8, ("b", "1"))
    assert world.end(7, ControlType.COMMIT) == 2
    assert world.end(8, ControlType.ABORT) == 3
    assert [await one for one in waiting] == ["stored"] * 2
    assert world.shard.words == {"a": "1"}
    last = BatchHeader.parse(world.partition.log.batches[-1])
    assert (last.is_control, last.producer_id, last.producer_epoch) == (True, 8, 3)
    world.partition.leader_epoch += 1
    world.runtime.follow_roles()
    await until(world.runtime.loaded)
    assert world.shard.words == {"a": "1"}
    assert world.shard.pending == {}


async def test_committed_transactional_offsets_are_shown_only_after_the_marker_is_committed() -> None:
    world = World()
    assert await world.put_in_transaction(7, ("a", "1")) == "stored"
    world.partition.commits_at_once = False
    world.end(7, ControlType.COMMIT)
    read = world.read("a")
    await let_run()
    assert not read.done()
    world.partition.commit()
    assert await read == "1"


async def test_a_fenced_producer_does_not_spoil_other_writes() -> None:
    world = World()
    world.partition.fenced.add(7)
    waiting = [world.put(("a", "1")), world.put_in_transaction(7, ("b", "1")), world.put(("c", "1"))]
    assert [await one for one in waiting] == ["stored", ErrorCode.INVALID_PRODUCER_EPOCH, "stored"]
    assert world.shard.words == {"a": "1", "c": "1"}


async def test_a_marker_of_an_old_epoch_is_refused() -> None:
    world = World()
    hosted = world.runtime.hosted_at(0)
    world.partition.leader_epoch += 1
    with pytest.raises(ApiError) as refused:
        hosted.end_transaction(EndTransactionMarker(ControlType.COMMIT, 0), TransactionalProducer(7, 0))
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# Loading


def log_of(*batches: bytes) -> FakePartition:
    partition = FakePartition()
    for batch in batches:
        partition.append(bytearray(batch), required_acks=-1, now_ms=0, origin=AppendOrigin.COORDINATOR)
    return partition


def words(*pairs: Word, producer_id: int = -1) -> bytes:
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, transactional=producer_id >= 0)
    for key, value in pairs:
        builder.append(1, key.encode(), value.encode())
    return bytes(builder.build())


async def test_the_log_is_replayed_before_the_first_call() -> None:
    world = World(log_of(words(("a", "1"), ("b", "1")), words(("a", "2"), ("unknown", "x"))))
    with pytest.raises(ApiError) as loading:
        world.put(("c", "1"))
    assert loading.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await until(world.runtime.loaded)
    assert world.shard.words == {"a": "2", "b": "1"}
    assert world.shard.is_loaded


async def test_others_have_their_turn_while_a_long_log_is_read() -> None:
    """A record takes some 10 us to replay: 64 KiB of offset commits are 10 ms."""
    world = World(log_of(*(words(("key", "value" * 3000)) for _ in range(70))))
    turns = 0
    with pytest.raises(ApiError):
        _ = world.shard
    while not world.runtime.loaded():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 70 * 15_000 / 65_536


async def test_transactional_records_wait_for_their_marker() -> None:
    world = World(
        log_of(
            words(("a", "1"), producer_id=7),
            words(("b", "1"), producer_id=8),
            words(("c", "1"), producer_id=9),
            marker(7, ControlType.COMMIT),
            marker(8, ControlType.ABORT),
        )
    )
    await until(world.runtime.loaded)
    assert world.shard.words == {"a": "1"}
    assert list(world.shard.pending) == [9]


def marker(producer_id: int, kind: ControlType) -> bytes:
    return bytes(
        build_control(
            EndTransactionMarker(kind, 0), timestamp_ms=1, producer_id=producer_id, producer_epoch=0
        )
    )


async def test_loading_is_repeated_after_a_read_error() -> None:
    partition = log_of(words(("a", "1")))
    partition.log.faults.append(ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
    world = World(partition)
    await until(lambda: not partition.log.faults)
    await let_run()
    with pytest.raises(ApiError):
        world.put(("b", "1"))
    await until(world.runtime.loaded)
    assert world.shard.words == {"a": "1"}


async def test_a_new_leader_answers_once_its_whole_log_is_committed() -> None:
    partition = log_of(words(("a", "1")), words(("a", "2")))
    partition.high_watermark, partition.commits_at_once = 1, False
    reads = [0]
    _count_reads(partition.log, reads, 0)
    world = World(partition, write_timeout_ms=SHORT_MS)
    await asyncio.sleep(1.5 * SHORT_MS / 1000)
    with pytest.raises(ApiError) as loading:
        _ = world.shard
    assert loading.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    partition.commit()
    await until(world.runtime.loaded)
    assert world.shard.words == {"a": "2"}
    assert reads == [1], "it is read once, however long it takes"


async def test_one_log_is_read_at_a_time_and_a_waiting_one_blocks_no_other() -> None:
    logs = [log_of(*(words((f"k{n}", "value" * 3000)) for _ in range(20))) for n in range(3)]
    logs[0].high_watermark = 0
    world = World(logs[0], others=logs[1:])
    reading = [0, 0, 0]
    for n, partition in enumerate(logs):
        _count_reads(partition.log, reading, n)
    while len(world.runtime.loaded()) < 2:
        await asyncio.sleep(0)
        assert sum(1 for n in range(3) if 0 < reading[n] < len(logs[n].log.batches) / 5) <= 1, reading
    assert [hosted.partition for hosted in world.runtime.loaded()] == logs[1:]


async def test_leadership_that_moves_back_and_forth_loads_once_for_each_lasting_term() -> None:
    partition = log_of(*(words(("a", str(n)), ("pad", "value" * 3000)) for n in range(20)))
    world = World(partition)
    reads = [0]
    _count_reads(partition.log, reads, 0)
    for _ in range(5):
        await asyncio.sleep(0)
        partition.is_leader = False
        world.runtime.follow_roles()
        partition.is_leader, partition.leader_epoch = True, partition.leader_epoch + 1
        world.runtime.follow_roles()
    bounced = reads[0]
    while not world.runtime.loaded():
        await asyncio.sleep(0)
    assert world.shard.words["a"] == "19"
    assert bounced <= 5
    assert reads[0] - bounced == 5  # of four batches each: one load, from the beginning


def _count_reads(log: FakeLog, counts: list[int], index: int) -> None:
    read_bytes = log.read_bytes

    def counted(offset: int, max_bytes: int, *, end_offset: int) -> bytes:
        counts[index] += 1
        return read_bytes(offset, max_bytes, end_offset=end_offset)

    log.read_bytes = counted  # type: ignore[method-assign]


async def test_shards_of_a_deleted_topic_are_closed() -> None:
    world = World(others=[FakePartition()])
    parked = asyncio.get_running_loop().create_future()
    world.runtime.hosted_at(1).shard.waiting.append(Reply(_Future(parked), None))
    del world.partitions.held[1]
    world.partition_count = 1
    world.runtime.follow_roles()
    assert await parked == ErrorCode.NOT_COORDINATOR


# Leadership


async def test_only_the_leader_coordinates() -> None:
    world = World()
    world.partition.is_leader = False
    with pytest.raises(ApiError) as moved:
        world.put(("k", "v"))
    assert moved.value.code == ErrorCode.NOT_COORDINATOR


async def test_waiting_requests_are_answered_when_leadership_ends() -> None:
    world = World(FakePartition(commits_at_once=False))
    waiting = world.put(("k", "v"))
    parked = asyncio.get_running_loop().create_future()
    world.shard.waiting.append(Reply(_Future(parked), None))
    await asyncio.sleep(0)
    world.partition.is_leader = False
    world.runtime.follow_roles()
    assert await waiting == ErrorCode.NOT_COORDINATOR
    assert await parked == ErrorCode.NOT_COORDINATOR


async def test_a_new_epoch_loads_the_log_again() -> None:
    world = World()
    before = world.shard
    await world.put(("k", "v"))
    world.partition.leader_epoch += 1
    world.runtime.follow_roles()
    await until(world.runtime.loaded)
    assert world.shard is not before
    assert world.shard.words == {"k": "v"}


async def test_a_write_of_an_old_epoch_is_refused() -> None:
    world = World()
    answer = world.put(("k", "v"))
    world.partition.leader_epoch += 1
    assert await answer == ErrorCode.NOT_COORDINATOR
    assert world.partition.log.batches == []


async def test_no_request_is_answered_after_the_stop() -> None:
    world = World(FakePartition(commits_at_once=False))
    waiting = world.put(("k", "v"))
    world.runtime.stop()
    assert await waiting == ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(ApiError) as stopped:
        world.put(("k", "v"))
    assert stopped.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# Time


async def test_the_timer_follows_the_earliest_deadline() -> None:
    world = World()
    hosted = world.runtime.hosted("any")
    hosted.shard.deadline_ms = 60_000
    hosted.follow_deadlines()
    hosted.shard.deadline_ms = 10
    hosted.follow_deadlines()
    world.clock.steady_s = 0.02
    await until(lambda: hosted.shard.rung)
    assert hosted.shard.rung == [20]
    await until(lambda: world.partition.log.batches)
    assert len(world.partition.log.batches) == 1
    assert BatchHeader.parse(world.partition.log.batches[0]).record_count == 1


# Unexpected exceptions


async def test_an_exception_in_an_event_is_an_unknown_server_error_and_the_log_is_loaded_again() -> None:
    world = World()
    await world.put(("k", "v"))

    def event(shard: WordShard, waiter: Waiter, now: Instant) -> Outcome[Word]:
        shard.words["k"] = "half changed"
        raise AssertionError("broken invariant")

    before = world.shard
    waiting = world.put(("n", "v"))
    with pytest.raises(ApiError) as fault:
        at_once(world.runtime.call("any", event))
    assert fault.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await waiting == ErrorCode.NOT_COORDINATOR
    world.runtime.follow_roles()
    await until(world.runtime.loaded)
    assert world.shard is not before
    assert world.shard.words == {"k": "v"}


async def test_an_exception_while_writing_leaves_no_request_waiting() -> None:
    world = World()

    class Faulty:
        def on_committed(self, now: Instant) -> Outcome[Word]:
            raise AssertionError("broken invariant")

        def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[Word]:
            return Outcome()

    world.runtime.hosted("any").run(lambda now: Outcome(records=[("k", "v")], after_write=[Faulty()]))
    assert await world.put(("n", "v")) == ErrorCode.NOT_COORDINATOR
    world.runtime.follow_roles()
    await until(world.runtime.loaded)
    assert world.shard.words == {"k": "v", "n": "v"}


async def test_an_exception_while_closing_leaves_no_other_request_waiting() -> None:
    """The state may be half changed, and a continuation may raise another exception."""
    world = World()

    class Faulty:
        def on_committed(self, now: Instant) -> Outcome[Word]:
            return Outcome()

        def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[Word]:
            raise AssertionError("broken invariant")

    world.runtime.hosted("any").run(lambda now: Outcome(records=[("k", "v")], after_write=[Faulty()]))
    later = world.put(("n", "v"))
    world.runtime.stop()
    async with asyncio.timeout(LIMIT_S / 2):  # the time limit of the write ends it, too
        assert await later == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_an_exception_in_a_timer_loads_the_shard_again() -> None:
    world = World()
    hosted = world.runtime.hosted("any")
    hosted.shard.on_time = None  # type: ignore[assignment, method-assign]
    hosted.shard.deadline_ms = 0
    hosted.follow_deadlines()
    await until(lambda: hosted.is_closed)
    assert hosted.is_closed
    assert world.runtime.hosted("any") is not hosted


class _Future:
    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future

    def answer(self, response: Any) -> None:
        self._future.set_result(response)


# Broken invariants


def broken(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The invariants that ERROR lines name, with their partitions."""
    lines = [vars(record) for record in caplog.records if record.levelname == "ERROR"]
    return [f"{line['invariant']} {line['partition']}" for line in lines]


async def test_a_shard_shows_nothing_outside_its_leader_epoch(caplog: pytest.LogCaptureFixture) -> None:
    world = World(FakePartition(commits_at_once=False))
    hosted = world.runtime.hosted("any")
    stored = world.put(("k", "v"))
    await let_run()
    world.partition.leader_epoch = 1  # and nobody tells the runtime
    world.partition.commit()
    assert await stored == ErrorCode.NOT_COORDINATOR
    assert hosted.is_closed
    assert broken(caplog) == ["C7 words-0"]
    await until(lambda: bool(world.runtime.loaded()) or not _loads(world))
    assert world.shard.words == {"k": "v"}, "it was loaded again from the log"


def _loads(world: World) -> bool:
    try:
        world.runtime.hosted("any")
    except ApiError as error:
        return error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return False


async def test_a_shards_record_never_comes_before_an_earlier_one(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    await world.put(("k", "1"))
    await world.put(("k", "2"))
    hosted = world.runtime.hosted("any")
    world.partition.log_end_offset = 0
    assert await world.put(("k", "3")) == ErrorCode.NOT_COORDINATOR
    assert hosted.is_closed
    assert broken(caplog) == ["L1 words-0"]


async def test_a_marker_never_comes_before_an_earlier_record(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    await world.put_in_transaction(7, ("k", "1"))
    await world.put_in_transaction(7, ("k", "2"))
    hosted = world.runtime.hosted("any")
    world.partition.log_end_offset = 0
    with pytest.raises(ApiError) as error:
        world.end(7, ControlType.COMMIT)
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert hosted.is_closed
    assert broken(caplog) == ["L1 words-0"]


# Work in threads


class Counting:
    """Work that counts what it reads, in a thread, and then writes the count."""

    name = "count"

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault, self.faults, self.threads = fault, list[Exception | None](), list[int]()

    def run(self) -> None:
        self.threads.append(threading.get_ident())
        if self.fault is not None:
            raise self.fault

    def on_done(self, now: Instant, fault: Exception | None) -> Outcome[Word]:
        self.faults.append(fault)
        return Outcome(records=[("counted", "yes")])


def begin(world: World, work: Counting) -> None:
    world.runtime.hosted("any").run(lambda now: Outcome(work=[work]))


async def test_work_runs_in_a_thread_and_its_result_is_an_event() -> None:
    world, work = World(), Counting()
    begin(world, work)
    assert not work.faults
    await until(lambda: bool(work.faults))
    assert work.faults == [None] and work.threads != [threading.get_ident()]
    assert world.shard.words == {"counted": "yes"}


async def test_work_that_fails_is_logged_and_tells_the_shard(caplog: pytest.LogCaptureFixture) -> None:
    world, work = World(), Counting(ValueError("no"))
    begin(world, work)
    await until(lambda: bool(work.faults))
    assert work.faults == [work.fault]
    assert "a computation of a coordinator's shard failed" in caplog.text


async def test_the_result_for_a_shard_that_was_closed_is_dropped() -> None:
    world, work = World(), Counting()
    begin(world, work)
    world.runtime.stop()
    await until(lambda: bool(work.threads))
    await let_run()
    assert not work.faults
