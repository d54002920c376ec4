"""Kafka's own DumpLogSegments reads the files of `felice.log` and finds nothing wrong.

An independent check: the tool reads every record and compares each index entry with the log.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from felice.config import TopicConfig
from felice.log import AppendOrigin, Log
from felice.records.compression import Codec
from peers.java import require_java, run_tool
from unit.log.cleaning import (
    COMPACT,
    DAY_MS,
    batches_in,
    clean,
    compacted,
    end_transaction,
    put,
    roll_and_clean,
)
from unit.log.logs import NOW, append, batch, marker, open_log

pytestmark = pytest.mark.felice_only

CONFIG = TopicConfig(segment_bytes=20_000, index_interval_bytes=500)
COMPLAINTS = (
    "mismatch",
    "out of order",
    "non-consecutive",
    "does not",
    "not found",
    "corrupt",
    "Exception",
    "invalid",
)


def fill(log: Log, seed: int, count: int = 150) -> None:
    """Batches of every codec and size, timestamps out of order, a producer with and without transactions."""
    chance = random.Random(seed)
    sequence = log.producers.get(1).last_sequence + 1 if log.producers.get(1) else 0  # type: ignore[union-attr]
    for _ in range(count):
        values = [chance.randbytes(chance.randrange(40)).hex() for _ in range(chance.randrange(1, 20))]
        times = [NOW + chance.randrange(-5000, 5000) for _ in values]
        producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence}
        transactional = chance.random() < 0.1
        data = batch(
            values,
            timestamps=times,
            codec=chance.choice(list(Codec)),
            transactional=transactional,
            **producer,
        )
        log.append(data, leader_epoch=seed, now_ms=NOW)
        sequence += len(values)
        if transactional:
            end = marker(1, commit=chance.random() < 0.5)
            log.append(end, leader_epoch=seed, now_ms=NOW, origin=AppendOrigin.COORDINATOR)


def closed(log: Log) -> None:
    log.close()


def live(log: Log) -> None:
    """The directory as a running broker leaves it between two flushes."""


def reopened(log: Log) -> None:
    log.close()
    again = open_log(log.directory, CONFIG)
    fill(again, 2)
    again.close()


def recovered(log: Log) -> None:
    log.close(clean=False)
    last = max(log.directory.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5])
    for index in log.directory.glob("*index"):
        index.unlink()
    again = open_log(log.directory, CONFIG, clean_shutdown=False)
    fill(again, 2)
    again.close()


def truncated(log: Log) -> None:
    log.truncate_to(log.log_end_offset * 2 // 3)
    fill(log, 3)
    log.close()


@pytest.mark.parametrize("end", [closed, live, reopened, recovered, truncated], ids=lambda end: end.__name__)
def test_dump_log_segments_finds_nothing_wrong(tmp_path: Path, end: Callable[[Log], None]) -> None:
    require_java()
    log = open_log(tmp_path, CONFIG)
    fill(log, 1)
    end(log)
    files = [
        str(path)
        for path in sorted(tmp_path.iterdir())
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex")
    ]
    assert len(files) > 10
    dumped = run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(files)
    )
    said = [line for line in dumped.stdout.splitlines() if not line.startswith(("baseOffset:", "| offset:"))]
    assert not [line for line in said if any(complaint in line for complaint in COMPLAINTS)]
    assert "isvalid: false" not in dumped.stdout
    assert dumped.stdout.count("| offset:") == open_log_end(tmp_path, log)
    checked = run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--index-sanity-check", "--files", ",".join(files)
    )
    indexes = [name for name in files if name.endswith((".index", ".timeindex"))]
    # The index of a live segment follows behind, and may have nothing on disk yet.
    assert checked.stdout.count("passed sanity check") + checked.stdout.count(".index is empty") == len(
        indexes
    )


def open_log_end(directory: Path, log: Log) -> int:
    """Every offset from 0 to the end holds a record, so the tool must have read that many."""
    if log.offline_reason is None:
        return log.log_end_offset
    return open_log(directory, CONFIG).log_end_offset


def test_kafka_reads_our_snapshots_and_epochs(tmp_path: Path) -> None:
    require_java()
    log = open_log(tmp_path, CONFIG)
    append(log, "a", producer_id=77, producer_epoch=3, base_sequence=5)
    log.close()
    snapshot = tmp_path / f"{1:020d}.snapshot"
    dumped = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", str(snapshot))
    for field in ("producerId: 77", "producerEpoch: 3", "coordinatorEpoch: -1", "lastSequence: 5"):
        assert field in dumped.stdout


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "live"])
def test_dump_log_segments_finds_nothing_wrong_after_compaction(tmp_path: Path, is_closed: bool) -> None:
    """A compacted log: emptied batches, delete horizons, merged segments, remains of transactions."""
    require_java()
    log = compacted(tmp_path, config=replace(COMPACT, segment_bytes=20_000, index_interval_bytes=500))
    chance = random.Random(5)
    put(log, ("k0", "x"), producer_id=2, producer_epoch=0, base_sequence=0)
    for number in range(300):
        pairs = [(f"k{chance.randrange(60)}", chance.choice([None, "x" * 30])) for _ in range(8)]
        producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 8 * number}
        transactional = number % 10 == 0
        put(log, *pairs, codec=chance.choice(list(Codec)), transactional=transactional, **producer)
        if transactional:
            end_transaction(log, 1, commit=number % 20 > 0)
        if number == 150:
            clean(log)
    reached = roll_and_clean(log).end_offset
    assert roll_and_clean(log, reached, now_ms=NOW + DAY_MS).end_offset == reached
    records = sum(len(found) for _, found in batches_in(log))
    if is_closed:
        log.close()
    files = [
        str(path)
        for path in sorted(tmp_path.iterdir())
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex")
    ]
    dumped = run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(files)
    )
    said = [line for line in dumped.stdout.splitlines() if not line.startswith(("baseOffset:", "| offset:"))]
    # Offsets of a compacted log have gaps, which the tool calls by this name.
    complaints = [line for line in said if any(complaint in line for complaint in COMPLAINTS)]
    assert all("non-consecutive" in line for line in complaints), complaints
    assert "isvalid: false" not in dumped.stdout
    assert dumped.stdout.count("| offset:") == records
    assert "count: 0" in dumped.stdout
    assert "deleteHorizonMs: OptionalLong[" in dumped.stdout
    checked = run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--index-sanity-check", "--files", ",".join(files)
    )
    indexes = [name for name in files if name.endswith((".index", ".timeindex"))]
    assert checked.stdout.count("passed sanity check") + checked.stdout.count(".index is empty") == len(
        indexes
    )
