"""The power fails or the process dies at any moment: the log keeps what was guaranteed by then, and only that.

Every prefix of the disk's changes is tested, each with several choices of which unsynced changes survived.
The code that opens a log after a crash opens it, and the result is compared with the history. `CRASH_PROOF_SEEDS`
extends the test (`make crash-proof`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random

import pytest

from felice.log import AppendOrigin, Log
from felice.log.transaction_index import AbortedTransaction
from felice.records.batch import iter_batches
from felice.records.reader import read_batch
from felice.testing.simulation.disk import SimDisk
from felice.testing.simulation.replay import moments
from felice.testing.simulation.volume import Change
from properties.crash.log_history import (
    CONFIG,
    PARTITION,
    History,
    Stored,
    Truth,
    batches_in,
    open_directory,
)
from properties.crash.seeds import SEEDS
from unit.log.logs import NOW, ManualClock, append

CRASHES_A_MOMENT = 2


@lru_cache(maxsize=512)
def reference(batches: tuple[Stored, ...]) -> Log:
    """A log that holds only these batches and never crashed."""
    directory = Path("/reference")
    disk = SimDisk()
    disk.mkdir(directory)
    log = Log.open(disk, ManualClock(), directory, PARTITION, replace(CONFIG, segment_bytes=1 << 20))
    if batches and batches[0].base_offset:
        log.truncate_fully_and_start_at(batches[0].base_offset)
    for stored in batches:
        epoch = int.from_bytes(stored.data[12:16], "big")
        log.append(stored.data, leader_epoch=epoch, now_ms=NOW, origin=AppendOrigin.REPLICATION)
    return log


def opened(disk: SimDisk) -> tuple[Log | None, dict[tuple[str, int], int]]:
    directory = open_directory(disk, CONFIG, ManualClock())
    assert directory.failed == {}
    return directory.logs.get(PARTITION), directory.checkpoints.high_watermarks


def crashed_again(disk: SimDisk, random: Random) -> SimDisk:
    """The disk after a second power failure, during the recovery from the first."""
    start, disk.journal = disk.copy(), []
    opened(disk)
    count = random.randrange(len(disk.journal) + 1)
    (moment,) = moments(start, disk.journal, at=[count])
    return moment.after_power_failure(random)


def check_after_crash(disk: SimDisk, before: Truth, after: Truth, *, killed: bool) -> None:
    """Checks a disk that crashed between `before` and `after`."""
    log, high_watermarks = opened(disk)
    if log is None:
        # The name of the log's directory reaches the disk with the first flush.
        assert not killed
        assert min(before.durable_end, after.durable_end) == 0
        return
    start, end = log.log_start_offset, log.log_end_offset
    least = min(before.end, after.end) if killed else min(before.durable_end, after.durable_end)
    assert least <= end <= max(before.end, after.end), "lost or invented"
    assert min(before.durable_start, after.durable_start) <= start <= max(before.start, after.start)
    found = batches_in(log)
    truth = next((truth for truth in (before, after) if found == content(truth, start, end)), None)
    assert truth is not None, "not a prefix of what was appended"
    assert_derived(log, truth, max(before.start, after.start, start))
    marks = {min(mark, end) for mark in {0} | before.high_watermarks | after.high_watermarks}
    assert high_watermarks.get(PARTITION, 0) in marks
    assert_goes_on(log, found)


def content(truth: Truth, start: int, end: int) -> list[Stored]:
    return [stored for stored in truth.batches if start < stored.next_offset <= end]


def assert_derived(log: Log, truth: Truth, start: int) -> None:
    """Checks that producers, aborted transactions, epochs and timestamps agree with the batches."""
    expected = reference(tuple(s for s in truth.batches if s.next_offset <= log.log_end_offset))
    for producer in expected.producers:
        if producer.batches and producer.batches[-1].first_offset >= start:
            found = log.producers.get(producer.producer_id)
            assert found is not None
            assert facts(found) == facts(producer)
    visible = aborted_since(expected, start)
    if aborted_since(log, start) != visible:
        # If the state was rebuilt from the log start on, the first batch of a transaction may lie below the start,
        # where no reader reads.
        kept = content(truth, log.log_start_offset, log.log_end_offset)
        visible = aborted_since(reference(tuple(kept)), start)
    assert aborted_since(log, start) == visible
    for stored in content(truth, start, log.log_end_offset):
        assert log.epochs.epoch_at(max(stored.base_offset, start)) == expected.epochs.epoch_at(
            stored.base_offset
        )
    for timestamp in range(NOW - 60, NOW + 60, 7):
        at = log.offset_for_timestamp(timestamp, end_offset=log.log_end_offset)
        if at is not None and at.offset >= start:
            first = next(iter(reference_since(expected, timestamp, log.log_start_offset)), None)
            assert (at.timestamp, at.offset) == first


def aborted_since(log: Log, start: int) -> list[AbortedTransaction]:
    return [aborted for aborted in log.aborted_transactions(0, 1 << 40) if aborted.last_offset >= start]


def facts(state: object) -> tuple[int, int, bool]:
    return state.epoch, state.last_sequence, state.has_open_transaction  # type: ignore[attr-defined]


def reference_since(log: Log, timestamp: int, start: int) -> Iterable[tuple[int, int]]:
    """Timestamps and offsets in log order. Markers count, as in Kafka."""
    data = log.read_bytes(log.log_start_offset, 1 << 24, end_offset=log.log_end_offset)
    return (
        (record.timestamp, record.offset)
        for header in iter_batches(data)
        for record in read_batch(data, header)
        if record.timestamp >= timestamp and record.offset >= start
    )


def assert_goes_on(log: Log, found: list[Stored]) -> None:
    end = log.log_end_offset
    assert append(log, "next", leader_epoch=1000) == end
    assert batches_in(log)[:-1] == found
    log.flush()


@contextmanager
def naming(*facts: object) -> Iterator[None]:
    """Adds facts about the crash to a failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(" ".join(str(fact)[:100] for fact in facts))
        raise


def history_of(seed: int) -> tuple[History, list[Change]]:
    history = History(Random(seed))
    history.run(70)
    assert history.disk.journal is not None
    return history, history.disk.journal


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_power_failure_leaves_everything_flushed_and_no_gap(seed: int) -> None:
    history, journal = history_of(seed)
    for moment in moments(history.start, journal):
        before, after = history.promised(moment.count)
        for number in range(CRASHES_A_MOMENT):
            chance = Random(f"{seed} {moment.count} {number}")
            with naming(
                "seed", seed, "moment", moment.count, before.step, after.step, "crash", number, moment.last
            ):
                disk = moment.after_power_failure(chance)
                if chance.randrange(4) == 0:
                    disk = crashed_again(disk, chance)
                check_after_crash(disk, before, after, killed=False)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_killed_process_loses_nothing(seed: int) -> None:
    history, journal = history_of(seed)
    for moment in moments(history.start, journal):
        # The end of the process tears the last change, which counts as in progress.
        before, after = history.promised(max(moment.count - 1, 0))
        with naming("seed", seed, "moment", moment.count, before.step, after.step, moment.last):
            check_after_crash(moment.after_kill(Random(moment.count)), before, after, killed=True)
