"""A log behaves like a list of batches, under any sequence of operations."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from felice.config import TopicConfig
from felice.env import SystemDisk
from felice.log.log import Log
from felice.records.batch import BatchHeader, iter_batches
from felice.records.compression import Codec
from felice.records.reader import read_records
from unit.log.logs import NOW, ManualClock, batch

CONFIG = TopicConfig(segment_bytes=600, index_interval_bytes=100, retention_bytes=900, file_delete_delay_ms=0)


@dataclass
class Stored:
    """One batch of the model."""

    base_offset: int
    values: list[str]
    timestamps: list[int]
    leader_epoch: int

    @property
    def end(self) -> int:
        return self.base_offset + len(self.values)


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.temporary = tempfile.TemporaryDirectory()
        self.directory = Path(self.temporary.name)
        self.clock = ManualClock()
        self.batches: list[Stored] = []
        self.start = self.end = self.flushed = 0
        self.epoch = 0
        self.sequence = 0
        self.count = 0
        self.log = self.opened(clean=True)

    def opened(self, *, clean: bool) -> Log:
        return Log.open(
            SystemDisk(),
            self.clock,
            self.directory,
            ("t", 0),
            CONFIG,
            recovery_point=self.flushed,
            log_start_offset=self.start,
            clean_shutdown=clean,
        )

    def teardown(self) -> None:
        if hasattr(self, "temporary"):
            self.temporary.cleanup()

    # -- operations ------------------------------------------------------------------------------------

    @rule(
        times=st.lists(st.integers(-50, 50), min_size=1, max_size=6),
        codec=st.sampled_from([Codec.NONE, Codec.ZSTD]),
    )
    def append(self, times: list[int], codec: Codec) -> None:
        values = [f"{self.count + number}" for number in range(len(times))]
        self.count += len(times)
        timestamps = [NOW + time for time in times]
        data = batch(
            values,
            timestamps=timestamps,
            codec=codec,
            producer_id=1,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        again = bytearray(data)
        info = self.log.append(data, leader_epoch=self.epoch, now_ms=NOW)
        assert (info.base_offset, info.last_offset) == (self.end, self.end + len(values) - 1)
        repeated = self.log.append(again, leader_epoch=self.epoch, now_ms=NOW)
        assert repeated.duplicate and repeated[:2] == info[:2]
        self.batches.append(Stored(self.end, values, timestamps, self.epoch))
        self.end += len(values)
        self.sequence += len(values)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        self.log.close(clean=clean)
        if clean:
            self.flushed = self.end
        self.log = self.opened(clean=clean)
        assert self.log.cuts == []

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.delete_records_before(self.start)

    @rule()
    def retain(self) -> None:
        self.log.apply_retention(NOW, self.end)
        assert self.log.log_start_offset >= self.start
        self.start = self.log.log_start_offset
        for path in self.log.collect_deleted(NOW):
            path.unlink(missing_ok=True)  # a segment that was truncated twice left one name twice

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.truncate_to(offset)
        if offset < self.end:
            self.batches = [stored for stored in self.batches if stored.end <= offset]
            self.end = self.log.log_end_offset
            assert self.end <= offset
            self.start = min(self.start, self.end)
            self.flushed = min(self.flushed, self.end)
            state = self.log.producers.get(1)
            # Without state any sequence may come next; with state only the one after the last remaining batch.
            self.sequence = (state.last_sequence + 1) if state and state.batches else 0

    # -- invariants ------------------------------------------------------------------------------------

    def visible(self) -> list[Stored]:
        return [stored for stored in self.batches if stored.end > self.start]

    @invariant()
    def ends_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self.log.recovery_point <= self.end
        assert [segment.base_offset for segment in self.log.segments] == self.log.segments.bases

    @rule(max_bytes=st.integers(1, 1000))
    def read_everything(self, max_bytes: int) -> None:
        seen: list[tuple[int, str]] = []
        offset = self.start
        while offset < self.end:
            data = self.log.read_bytes(offset, max_bytes, end_offset=self.end)
            assert data
            records = list(read_records(data, check_crcs=True))
            first = next(iter_batches(data))
            assert first.base_offset <= offset < records[-1].offset + 1
            assert len(data) <= max_bytes or len(data) == first.size_bytes
            seen += [(r.offset, (r.value or b"").decode()) for r in records if r.offset >= offset]
            offset = records[-1].offset + 1
        assert seen == [
            (offset, value)
            for stored in self.visible()
            for offset, value in enumerate(stored.values, stored.base_offset)
            if offset >= self.start
        ]

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def read_below_an_end(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end - 1))
        end = data.draw(st.integers(offset, self.end))
        found = self.log.read_bytes(offset, 10_000, end_offset=end)
        headers: list[BatchHeader] = list(iter_batches(found))
        expected = next(stored for stored in self.batches if stored.end > offset)
        if expected.end <= end:
            assert headers[0].base_offset == expected.base_offset
            assert headers[-1].next_offset <= end
        else:
            assert headers == []

    @rule(time=st.integers(-60, 60))
    def find_by_time(self, time: int) -> None:
        found = self.log.offset_for_timestamp(NOW + time, end_offset=self.end)
        expected = next(
            (
                (timestamp, offset, stored.leader_epoch)
                for stored in self.visible()
                for offset, timestamp in enumerate(stored.timestamps, stored.base_offset)
                if timestamp >= NOW + time and offset >= self.start
            ),
            None,
        )
        assert found == expected

    @rule()
    def epochs_agree(self) -> None:
        for stored in self.visible():
            at = max(stored.base_offset, self.start)
            assert self.log.epochs.epoch_at(at) == stored.leader_epoch


TestLogIsAList = LogMachine.TestCase
TestLogIsAList.settings = settings(
    max_examples=120, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
