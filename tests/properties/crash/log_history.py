"""A log and its directory on a simulated disk, changed at random, and the guaranteed content at every moment.

Keeps true: `promised(count)` returns the content before and after the step during which the disk had seen `count`
            changes. A crash at that point may leave any state between the two, and no other.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from uuid import UUID

from felice.config import TopicConfig
from felice.log import AppendOrigin, Log
from felice.log.directory import LogDirectory
from felice.records.batch import BatchHeader, iter_batches
from felice.records.compression import Codec
from felice.testing.simulation.disk import SimDisk
from unit.log.logs import NOW, ManualClock, batch, marker

DIRECTORY = Path("/data")
PARTITION = ("events", 0)
TOPIC_ID = UUID(int=7)
CONFIG = TopicConfig(
    segment_bytes=900, index_interval_bytes=150, file_delete_delay_ms=0, retention_bytes=2500
)
CODECS = (Codec.NONE, Codec.LZ4)


@dataclass(frozen=True, slots=True)
class Stored:
    base_offset: int
    next_offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truth:
    """The content of the log, and how much of it must survive a power failure."""

    batches: tuple[Stored, ...] = ()
    start: int = 0
    end: int = 0
    durable_end: int = 0
    durable_start: int = 0
    high_watermarks: frozenset[int] = frozenset({0})
    step: str = "new"


@dataclass(slots=True)
class Producer:
    epoch: int = 0
    sequence: int = 0
    in_transaction: bool = False


@dataclass(slots=True)
class History:
    """See the module."""

    random: Random
    config: TopicConfig = CONFIG
    disk: SimDisk = field(default_factory=SimDisk)
    truths: list[tuple[int, Truth]] = field(default_factory=list)
    producers: dict[int, Producer] = field(default_factory=lambda: {1: Producer(), 2: Producer()})
    leader_epoch: int = 0
    truth: Truth = field(default_factory=Truth)
    clock: ManualClock = field(default_factory=ManualClock)
    directory: LogDirectory = field(init=False)
    log: Log = field(init=False)
    start: SimDisk = field(init=False)

    def __post_init__(self) -> None:
        self.disk.mkdir(DIRECTORY)
        self.disk.sync_dir(DIRECTORY.parent)
        self.directory = open_directory(self.disk, self.config, self.clock)
        self.log = self.directory.create(*PARTITION, self.config, TOPIC_ID)
        self.start, self.disk.journal = self.disk.copy(), []
        self._promise("new")

    @property
    def journal_size(self) -> int:
        assert self.disk.journal is not None
        return len(self.disk.journal)

    def _promise(self, step: str, **changes: object) -> None:
        truth = replace(self.truth, start=self.log.log_start_offset, end=self.log.log_end_offset, step=step)
        self.truth = replace(truth, **changes)  # type: ignore[arg-type]
        self.truths.append((self.journal_size, self.truth))

    def promised(self, count: int) -> tuple[Truth, Truth]:
        """The content before and after the step in progress after `count` changes."""
        found = bisect_right([size for size, _ in self.truths], count) - 1
        following = min(found + 1, len(self.truths) - 1)
        return self.truths[found][1], self.truths[following][1]

    # -- steps -----------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        kinds = [
            *["append"] * 10,
            *["end_transaction"] * 3,
            *["flush"] * 2,
            "roll",
            "roll",
            "checkpoint",
            "truncate",
            "delete_records",
            "retain",
            "reopen",
            "new_leader",
            "remove_files",
        ]
        for _ in range(steps):
            getattr(self, self.random.choice(kinds))()

    def _append(self, data: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        base = self.log.append(data, leader_epoch=self.leader_epoch, now_ms=NOW, origin=origin).base_offset
        stored = Stored(base, self.log.log_end_offset, bytes(data))
        self._promise("append", batches=(*self.truth.batches, stored))

    def append(self) -> None:
        base, random = self.log.log_end_offset, self.random
        values = [f"{base}-" + "x" * random.randrange(120) for _ in range(random.randrange(1, 4))]
        options: dict[str, object] = {}
        if self.random.randrange(3):
            number = self.random.choice((1, 2))
            producer = self.producers[number]
            producer.in_transaction = producer.in_transaction or number == 2
            options = {
                "producer_id": number,
                "producer_epoch": producer.epoch,
                "base_sequence": producer.sequence,
                "transactional": producer.in_transaction,
            }
            producer.sequence += len(values)
        times = [NOW + self.random.randrange(-50, 50) for _ in values]
        self._append(batch(values, timestamps=times, codec=self.random.choice(CODECS), **options))

    def end_transaction(self) -> None:
        producer = self.producers[2]
        if producer.in_transaction:
            data = marker(2, producer.epoch, commit=self.random.randrange(2) == 0)
            self._append(data, AppendOrigin.COORDINATOR)
            producer.in_transaction = False

    def flush(self) -> None:
        self.log.flush()
        self._promise("flush", durable_end=self.log.log_end_offset)

    def roll(self) -> None:
        self.log.roll()
        self._promise("roll")

    def checkpoint(self) -> None:
        self.directory.checkpoints.capture_recovery_points()()
        self._promise("recovery points")
        self.directory.checkpoints.capture_log_starts()()
        self._promise("log starts", durable_start=self.log.log_start_offset)
        mark = self.log.log_end_offset
        self.directory.checkpoints.capture_high_watermarks({PARTITION: mark})()
        self._promise("high watermarks", high_watermarks=frozenset({mark}))

    def truncate(self) -> None:
        low = max(self.log.log_start_offset, self.log.log_end_offset - 12)
        offset = self.random.randrange(low, self.log.log_end_offset + 1)
        self.log.truncate_to(offset)
        end = self.log.log_end_offset
        kept = tuple(stored for stored in self.truth.batches if stored.next_offset <= end)
        durable_start = min(self.truth.durable_start, self.log.log_start_offset)
        self._promise(
            "truncate",
            batches=kept,
            durable_end=min(self.truth.durable_end, end),
            durable_start=durable_start,
            high_watermarks=frozenset(min(mark, end) for mark in self.truth.high_watermarks),
        )
        self.leader_epoch += 1
        for number, producer in self.producers.items():
            state = self.log.producers.get(number)
            producer.sequence = state.last_sequence + 1 if state is not None and state.batches else 0
            producer.in_transaction = state is not None and state.has_open_transaction

    def delete_records(self) -> None:
        offset = self.random.randrange(self.log.log_start_offset, self.log.log_end_offset + 1)
        self.log.delete_records_before(offset)
        self._promise("delete records")

    def retain(self) -> None:
        self.log.apply_retention(NOW, self.log.log_end_offset)
        self._promise("retention")

    def remove_files(self) -> None:
        self.directory.remove_paths(self.directory.collect_deleted(self.clock.now_ms()))
        self._promise("remove files")

    def new_leader(self) -> None:
        self.leader_epoch += 1

    def reopen(self) -> None:
        self.directory.close({PARTITION: self.log.log_end_offset})
        self.directory = open_directory(self.disk, self.config, self.clock)
        self.log = self.directory.logs[PARTITION]
        self.log.update_config(self.config)
        end = self.log.log_end_offset
        self._promise(
            "reopen",
            durable_end=end,
            durable_start=self.log.log_start_offset,
            high_watermarks=frozenset({end}),
        )


def open_directory(disk: SimDisk, config: TopicConfig, clock: ManualClock) -> LogDirectory:
    directory = LogDirectory(disk, clock, DIRECTORY, recovery_threads=1)
    directory.acquire(node_id=1, cluster_id="c", new_directory_id=UUID(int=3))
    directory.load(lambda topic: config)
    return directory


def batches_in(log: Log) -> list[Stored]:
    """The batches that a reader of the whole log gets."""
    found: list[Stored] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_bytes(offset, 700, end_offset=log.log_end_offset)
        assert data, f"nothing at {offset} of {log.log_end_offset}"
        headers: list[BatchHeader] = list(iter_batches(data))
        found += [Stored(h.base_offset, h.next_offset, data[h.position : h.end]) for h in headers]
        offset = headers[-1].next_offset
    return found
