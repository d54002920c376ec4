"""If the power fails at any moment of a cleaner's pass, even twice, every key keeps its last record."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from random import Random

import pytest

from felice.log import Log
from felice.testing.simulation.disk import SimDisk
from felice.testing.simulation.replay import moments
from properties.crash.seeds import SEEDS
from unit.log.cleaning import COMPACT, clean, end_transaction, live, put, records_in
from unit.log.logs import ManualClock

DIRECTORY = Path("/data/events-0")
CONFIG = dataclasses.replace(COMPACT, segment_bytes=1500, file_delete_delay_ms=0)


def open_log(disk: SimDisk, *, clean_shutdown: bool, recovery_point: int = 0) -> Log:
    return Log.open(
        disk,
        ManualClock(),
        DIRECTORY,
        ("events", 0),
        CONFIG,
        clean_shutdown=clean_shutdown,
        recovery_point=recovery_point,
    )


def filled(seed: int) -> SimDisk:
    """Several groups of several segments, with producers, tombstones and both kinds of transactions; all on disk."""
    random, disk = Random(seed), SimDisk()
    disk.mkdir(DIRECTORY)
    for directory in (DIRECTORY.parent, DIRECTORY.parent.parent):
        disk.sync_dir(directory)
    log = open_log(disk, clean_shutdown=True)
    for number in range(6):
        put(log, ("a", str(number)), (f"k{number % 4}", "x" * random.randrange(80)))
        put(log, ("t", None if number % 2 else "v"), producer_id=1, producer_epoch=0, base_sequence=number)
        put(
            log, ("c", f"{number}"), producer_id=2, producer_epoch=0, base_sequence=number, transactional=True
        )
        end_transaction(log, 2, commit=random.randrange(3) > 0)
        log.roll()
    put(log, ("a", "active"))
    log.close()
    return disk


def seen(log: Log) -> object:
    """The final values for readers of both isolation levels, the log's end, and the state of every producer."""
    aborted = [(entry.producer_id, entry.first_offset) for entry in log.aborted_transactions(0, 1 << 40)]
    hidden = {
        record.offset
        for record in records_in(log)
        if any(record.key == b"c" and record.offset == first for _, first in aborted)
    }
    committed = live(record for record in records_in(log) if record.offset not in hidden)
    states = {s.producer_id: (s.last_sequence, s.has_open_transaction) for s in log.producers}
    return committed, log.log_end_offset, states


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_power_failure_during_a_pass_leaves_an_equivalent_log(seed: int) -> None:
    disk = filled(seed)
    log = open_log(disk.copy(), clean_shutdown=True)
    expected, end = seen(log), log.log_end_offset
    start, disk.journal = disk.copy(), []
    log = open_log(disk, clean_shutdown=True)
    clean(log)
    for path in log.collect_deleted(1 << 60):
        disk.remove(path)
    assert seen(log) == expected
    assert len(disk.journal) > 60
    for moment in moments(start, disk.journal):
        for number in range(3):
            random = Random(f"{seed} {moment.count} {number}")
            after = moment.after_power_failure(random)
            recovery_point = random.choice((0, end))
            if number == 0:
                after.journal = []
                before = after.copy()
                open_log(after, clean_shutdown=False, recovery_point=recovery_point)
                (second,) = moments(before, after.journal, at=[random.randrange(len(after.journal) + 1)])
                after = second.after_power_failure(random)
            found = open_log(after, clean_shutdown=False, recovery_point=recovery_point)
            assert seen(found) == expected, (moment.count, number, moment.last)
            assert not [name for name in after.listdir(DIRECTORY) if name.endswith((".swap", ".cleaned"))]
            clean(found)
            assert seen(found) == expected, (moment.count, number, moment.last)
