"""The API of a partition's log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from felice.config import TopicConfig
from felice.log import AppendOrigin
from felice.log.log import Log
from felice.log.replicated import OverlappingBatch
from felice.protocol.errors import ErrorCode
from felice.records.batch import BatchHeader, iter_batches, stamp
from felice.records.compression import Codec
from felice.records.errors import InvalidRecord
from felice.records.reader import read_records
from unit.log.logs import (
    LAST,
    NOW,
    FailingDisk,
    ManualClock,
    append,
    batch,
    code_of,
    headers_of,
    marker,
    open_log,
    replicate,
    replicated,
    values_in,
)

# -- appending ---------------------------------------------------------------------------------------------


def test_offsets_are_dense_from_zero(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert [append(log, "a", "b"), append(log, "c"), append(log, "d")] == [0, 2, 3]
    assert (log.log_start_offset, log.log_end_offset) == (0, 4)
    assert values_in(log) == ["a", "b", "c", "d"]


def test_base_offset_and_leader_epoch_are_stamped_into_the_stored_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a", "b", leader_epoch=3)
    append(log, "c", leader_epoch=5)
    assert [(header.base_offset, header.leader_epoch) for header in headers_of(log)] == [(0, 3), (2, 5)]
    assert [tuple(entry) for entry in log.epochs.entries] == [(3, 0), (5, 2)]


@pytest.mark.parametrize("make", [bytes, bytearray, lambda data: memoryview(bytearray(b"frame" + data))[5:]])
def test_any_buffer_may_be_appended(tmp_path: Path, make: Any) -> None:
    log = open_log(tmp_path)
    log.append(make(batch(["a"])), leader_epoch=0, now_ms=NOW)
    assert values_in(log) == ["a"]


def test_a_header_that_the_caller_has_is_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, data = open_log(tmp_path), batch(["a"])
    monkeypatch.setattr("felice.log.log.only_batch", None)
    log.append(data, header=BatchHeader.parse(data), leader_epoch=0, now_ms=NOW)
    assert values_in(log) == ["a"]


def test_the_stored_batch_differs_from_the_request_only_in_the_stamped_fields(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = bytes(batch(["a", "b"], codec=Codec.LZ4))
    log.append(data, leader_epoch=0, now_ms=NOW)
    assert log.read_bytes(0, 10**6, end_offset=LAST)[16:] == data[16:]


def test_a_refused_batch_leaves_no_trace(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a")
    damaged = batch(["b"])
    damaged[-1] ^= 1
    size = log.size_bytes
    assert code_of(log.append, damaged, leader_epoch=9, now_ms=NOW) is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.size_bytes, log.epochs.latest) == (1, size, 0)


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(segment_bytes=100))
    assert code_of(append, log, "x" * 200) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_log_append_time_is_the_brokers_clock(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(message_timestamp_type="LogAppendTime"))
    info = log.append(batch(["a"], timestamps=[5]), leader_epoch=0, now_ms=NOW + 7)
    assert info.log_append_time_ms == NOW + 7
    assert headers_of(log)[0].max_timestamp == NOW + 7
    assert (
        open_log(tmp_path / "other").append(batch(["a"]), leader_epoch=0, now_ms=NOW).log_append_time_ms == -1
    )


def test_a_repeated_batch_returns_its_first_offset_and_is_not_stored_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "x")
    first = log.append(
        batch(["a", "b"], producer_id=1, producer_epoch=0, base_sequence=0), leader_epoch=0, now_ms=NOW
    )
    again = log.append(
        batch(["a", "b"], producer_id=1, producer_epoch=0, base_sequence=0), leader_epoch=0, now_ms=NOW
    )
    assert (first.duplicate, again.duplicate) == (False, True)
    assert again[:2] == first[:2] == (1, 2)
    assert log.log_end_offset == 3


def test_a_changed_config_applies_from_the_next_append_on(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "x" * 100)
    log.update_config(TopicConfig(max_message_bytes=100))
    assert code_of(append, log, "x" * 100) is ErrorCode.MESSAGE_TOO_LARGE


# -- replication -------------------------------------------------------------------------------------------


def test_a_leaders_batches_keep_their_offsets_and_epochs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = replicated((0, 1, ["a"]), (1, 1, ["b", "c"]), (5, 2, ["d"]))
    info = log.append(data, leader_epoch=2, now_ms=NOW, origin=AppendOrigin.REPLICATION)
    assert (info.base_offset, info.last_offset, log.log_end_offset) == (0, 5, 6)
    assert log.read_bytes(0, 10**6, end_offset=LAST) == data
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (2, 5)]


def test_batches_of_a_later_epoch_than_the_fetch_are_left_out(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = replicated((0, 1, ["a"]), (1, 2, ["b"]))
    log.append(data, leader_epoch=1, now_ms=NOW, origin=AppendOrigin.REPLICATION)
    assert log.log_end_offset == 1


def test_a_response_with_decreasing_offsets_or_a_broken_batch_is_refused_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    options: dict[str, Any] = {"leader_epoch": 1, "now_ms": NOW, "origin": AppendOrigin.REPLICATION}
    assert (
        code_of(log.append, replicated((5, 1, ["a"]), (3, 1, ["b"])), **options) is ErrorCode.INVALID_RECORD
    )
    damaged = replicated((0, 1, ["a"]), (1, 1, ["b"]))
    damaged[-1] ^= 1
    assert code_of(log.append, damaged, **options) is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


def test_a_fetch_larger_than_a_segment_is_split_between_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(segment_bytes=250))
    data = replicated(*((number, 0, ["x" * 20]) for number in range(10)))
    log.append(data, leader_epoch=0, now_ms=NOW, origin=AppendOrigin.REPLICATION)
    assert len(log.segments) > 3
    assert len(values_in(log)) == 10


def transactional(base: int, values: list[str], producer_id: int = 7, sequence: int = 0) -> bytearray:
    data = batch(
        values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )
    stamp(data, 0, base, 0)
    return data


def marker_at(base: int, producer_id: int = 7, *, commit: bool) -> bytearray:
    data = marker(producer_id, commit=commit)
    stamp(data, 0, base, 0)
    return data


FROM_LEADER: dict[str, Any] = {"leader_epoch": 0, "now_ms": NOW, "origin": AppendOrigin.REPLICATION}


def begun_inside(directory: Path, **options: Any) -> Log:
    """A follower's log after the leader's log start was moved to 130, into the batch of 100 to 139."""
    log = open_log(directory, **options)
    log.truncate_fully_and_start_at(130)
    log.append(
        transactional(100, [f"v{number}" for number in range(100, 140)]) + marker_at(140, commit=False),
        **FROM_LEADER,
    )
    return log


def test_a_log_begins_with_the_whole_batch_around_its_start(tmp_path: Path) -> None:
    log = begun_inside(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (130, 141)
    assert [segment.base_offset for segment in log.segments] == [100]
    assert [entry.start_offset for entry in log.epochs.entries] == [130]
    assert [header.base_offset for header in iter_batches(log.read_bytes(130, 10**6, end_offset=LAST))] == [
        100,
        140,
    ]
    assert code_of(log.read, 129, 10, end_offset=LAST) is ErrorCode.OFFSET_OUT_OF_RANGE
    found = log.offset_for_timestamp(NOW, end_offset=LAST)
    assert found is not None and found.offset == 130
    # A consumer of committed records that begins at the log start must know that the batch was aborted.
    assert [aborted.first_offset for aborted in log.aborted_transactions(130, LAST)] == [100]
    assert log.last_stable_offset(141) == 141


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crash"])
def test_a_log_that_starts_inside_its_first_batch_is_loaded_so(tmp_path: Path, is_clean: bool) -> None:
    begun_inside(tmp_path).close(clean=is_clean)
    log = open_log(tmp_path, clean_shutdown=is_clean, log_start_offset=130)
    assert (log.log_start_offset, log.log_end_offset) == (130, 141)
    assert values_in(log)[:2] == ["v130", "v131"]
    assert [aborted.first_offset for aborted in log.aborted_transactions(130, LAST)] == [100]
    log.append(transactional(141, ["more"], sequence=40), **FROM_LEADER)
    assert log.last_stable_offset(142) == 141
    # Retention keeps the first batch for as long as any record of it may be read.
    log.roll()
    log.delete_records_before(139)
    assert not log.apply_retention(NOW, 142)
    log.delete_records_before(142)
    assert [gone.base_offset for gone in log.apply_retention(NOW, 142)] == [100]
    log.close()


def test_a_log_that_could_not_write_the_batch_around_its_start_is_loaded_empty(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    log.truncate_fully_and_start_at(130)
    disk.failing, disk.suffix = {"write"}, ".log"
    assert code_of(log.append, transactional(100, ["a"] * 40), **FROM_LEADER) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    disk.failing = set()
    log.close()
    log = open_log(tmp_path, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    log.truncate_fully_and_start_at(130)
    log.append(transactional(100, ["a"] * 40), **FROM_LEADER)
    assert (log.log_start_offset, log.log_end_offset) == (130, 140)
    log.close()


def test_only_the_first_batch_may_begin_below_an_empty_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(130)
    for base, count in ((100, 30), (100, 20)):
        # It ends below the log's start: no leader sends it.
        with pytest.raises(InvalidRecord):
            log.append(replicated((base, 0, ["x"] * count)), **FROM_LEADER)
    log.append(replicated((130, 0, ["x"])), **FROM_LEADER)
    with pytest.raises(OverlappingBatch):
        log.append(replicated((130, 0, ["x", "y"])), **FROM_LEADER)
    assert (log.log_start_offset, log.log_end_offset) == (130, 131)


def test_a_read_below_the_first_segment_begins_with_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(replicated((2**40, 0, ["a"])), **FROM_LEADER)
    log.roll()
    log.append(replicated((2**40 + 1, 0, ["b"])), **FROM_LEADER)
    assert values_in(log, 0) == ["a", "b"]


@pytest.mark.parametrize("offset", [1, 7])
def test_an_epoch_without_records_does_not_refuse_those_of_an_earlier_one(
    tmp_path: Path, offset: int
) -> None:
    """A broker led epoch 5 and wrote nothing; an unclean election made another one lead, with records of epoch 4."""
    log = open_log(tmp_path)
    assert replicate(log, replicated((0, 4, ["a"]))) == 1
    log.epochs.assign(5, 1)
    assert replicate(log, replicated((offset, 4, ["b"]))) == offset + 1
    assert code_of(replicate, log, replicated((offset + 1, 3, ["c"]))) is ErrorCode.KAFKA_STORAGE_ERROR
    assert "R2" in (log.offline_reason or "")


# -- rolling -----------------------------------------------------------------------------------------------


def test_a_segment_ends_before_it_would_exceed_segment_bytes(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(segment_bytes=300))
    for _ in range(9):
        append(log, "x" * 30)
    size = headers_of(log)[0].size_bytes
    assert [segment.size_bytes for segment in log.segments] == [300 // size * size] * 3
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]


def test_a_segment_ends_when_its_records_span_segment_ms(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(segment_ms=1000))
    append(log, "a", timestamps=[NOW])
    append(log, "b", timestamps=[NOW + 1000])
    assert len(log.segments) == 1
    append(log, "c", timestamps=[NOW + 1001])
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_records_without_timestamps_age_by_the_brokers_clock(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(segment_ms=1000))
    append(log, "a", timestamps=[-1])
    append(log, "b", timestamps=[-1], now_ms=NOW + 1001)
    assert len(log.segments) == 2


def test_jitter_rolls_earlier_and_differs_between_partitions(tmp_path: Path) -> None:
    config = TopicConfig(segment_ms=1000, segment_jitter_ms=900)
    log = open_log(tmp_path, config)
    assert 100 < log._max_age_ms <= 1000
    append(log, "a", timestamps=[NOW])
    append(log, "b", timestamps=[NOW + log._max_age_ms + 1])
    assert len(log.segments) == 2


def test_a_full_index_ends_the_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(index_interval_bytes=0, segment_index_bytes=48))
    for number in range(12):
        append(log, "a", timestamps=[NOW + number])
    assert len(log.segments) > 2
    assert all(segment.time_index.count * 12 <= 48 for segment in log.segments)


def test_an_offset_too_large_for_an_index_entry_starts_a_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a")
    options: dict[str, Any] = {"leader_epoch": 0, "now_ms": NOW, "origin": AppendOrigin.REPLICATION}
    log.append(replicated((2**31 - 1, 0, ["b"])), **options)
    assert len(log.segments) == 1
    log.append(replicated((2**31, 0, ["c"])), **options)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]


def test_an_empty_segment_is_replaced_if_the_offset_is_too_large_for_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = replicated((2**40, 0, ["a"]))
    log.append(data, leader_epoch=0, now_ms=NOW, origin=AppendOrigin.REPLICATION)
    assert [segment.base_offset for segment in log.segments] == [2**40]
    assert values_in(log, 2**40) == ["a"]


def test_rolling_an_empty_log_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.roll()
    assert len(log.segments) == 1


def test_a_roll_leaves_a_snapshot_for_the_new_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a", producer_id=1, producer_epoch=0, base_sequence=0)
    log.roll()
    log.flush()
    assert (tmp_path / f"{1:020d}.snapshot").exists()


# -- reading -----------------------------------------------------------------------------------------------


def test_offsets_outside_the_log_are_out_of_range(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a", "b", "c")
    log.delete_records_before(2)
    for offset in (-1, 1, 4):
        assert code_of(log.read, offset, 100, end_offset=LAST) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(3, 100, end_offset=LAST) is None


def test_a_read_above_the_visible_end_finds_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a")
    append(log, "b")
    assert log.read(1, 100, end_offset=1) is None


def test_a_read_continues_in_the_next_segment_and_after_gaps(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    options: dict[str, Any] = {"leader_epoch": 0, "now_ms": NOW, "origin": AppendOrigin.REPLICATION}
    log.append(replicated((0, 0, ["a"]), (5, 0, ["b"])), **options)
    log.roll()
    log.append(replicated((10, 0, ["c"])), **options)
    for offset, value in [(0, "a"), (1, "b"), (5, "b"), (6, "c"), (9, "c"), (10, "c")]:
        data = log.read_bytes(offset, 1, end_offset=LAST)
        assert [record.value.decode() for record in read_records(data) if record.value] == [value]


def test_a_read_in_progress_continues_when_the_segment_is_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(retention_bytes=0, file_delete_delay_ms=0))
    append(log, "a")
    found = log.read(0, 100, end_offset=LAST)
    log.apply_retention(NOW, 1)
    for path in log.collect_deleted(NOW):
        path.unlink()
    assert found is not None
    assert [record.value for record in read_records(found.read())] == [b"a"]


def test_a_log_without_files_behaves_like_an_empty_one(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(retention_ms=1))
    assert log.read(0, 100, end_offset=LAST) is None
    assert log.offset_for_timestamp(NOW, end_offset=LAST) is None
    assert log.offset_of_max_timestamp(LAST) is None
    assert log.apply_retention(NOW + 10**9, 0) == []
    log.roll()
    log.truncate_to(0)
    log.truncate_fully_and_start_at(5)
    assert append(log, "a") == 5


# -- timestamps --------------------------------------------------------------------------------------------


@pytest.fixture
def timed(tmp_path: Path) -> Log:
    log = open_log(tmp_path, TopicConfig(index_interval_bytes=0))
    append(log, "a", "b", "c", timestamps=[NOW + 10, NOW + 30, NOW + 20], codec=Codec.GZIP, leader_epoch=4)
    append(log, "d", timestamps=[NOW + 5], leader_epoch=4)
    log.roll()
    append(log, "e", "f", timestamps=[NOW + 40, NOW + 50], leader_epoch=5)
    return log


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, (NOW + 10, 0, 4)),
        (NOW + 11, (NOW + 30, 1, 4)),
        (NOW + 30, (NOW + 30, 1, 4)),
        (NOW + 31, (NOW + 40, 4, 5)),
        (NOW + 50, (NOW + 50, 5, 5)),
        (NOW + 51, None),
    ],
)
def test_the_first_record_at_or_after_a_time(
    timed: Log, timestamp: int, expected: tuple[int, ...] | None
) -> None:
    assert timed.offset_for_timestamp(timestamp, end_offset=LAST) == expected


def test_a_time_found_beyond_the_visible_end_is_none(timed: Log) -> None:
    assert timed.offset_for_timestamp(NOW + 40, end_offset=4) is None
    assert timed.offset_of_max_timestamp(4) is None


def test_deleted_records_are_not_found_by_time(timed: Log) -> None:
    timed.delete_records_before(2)
    assert timed.offset_for_timestamp(0, end_offset=LAST) == (NOW + 20, 2, 4)


def test_the_record_with_the_largest_timestamp(timed: Log, tmp_path: Path) -> None:
    assert timed.offset_of_max_timestamp(LAST) == (NOW + 50, 5, 5)
    append(timed, "g", "h", timestamps=[NOW + 60, NOW + 60], leader_epoch=5)
    assert timed.offset_of_max_timestamp(LAST) == (NOW + 60, 6, 5)
    assert open_log(tmp_path / "empty").offset_of_max_timestamp(LAST) is None


# -- retention and DeleteRecords ---------------------------------------------------------------------------


def test_retention_moves_the_log_start_and_removes_files_after_the_delay(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(segment_bytes=300, retention_bytes=280, file_delete_delay_ms=1000))
    for _ in range(9):
        append(log, "x" * 30)
    deleted = log.apply_retention(NOW, 9)
    assert [segment.base_offset for segment in deleted] == [0, 3]
    assert log.log_start_offset == 6
    assert (tmp_path / f"{0:020d}.log.deleted").exists()
    assert not log.collect_deleted(NOW + 999)
    assert tmp_path / f"{0:020d}.log.deleted" in log.collect_deleted(NOW + 1000)


def test_the_active_segment_is_rolled_before_retention_deletes_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(retention_ms=1000))
    append(log, "a", timestamps=[NOW - 5000])
    assert len(log.apply_retention(NOW, 1)) == 1
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (1, 1, 1)
    assert append(log, "b") == 1


@pytest.mark.parametrize("policy", [("compact",), ()])
def test_only_the_delete_policy_deletes_by_age_or_size(tmp_path: Path, policy: tuple[str, ...]) -> None:
    log = open_log(tmp_path, TopicConfig(cleanup_policy=policy, retention_ms=0, retention_bytes=0))
    append(log, "a", timestamps=[5])
    log.roll()
    append(log, "b", timestamps=[5])
    assert log.apply_retention(NOW, 2) == []
    log.delete_records_before(1)
    assert len(log.apply_retention(NOW, 2)) == 1


def test_delete_records_moves_the_start_only_forward_and_not_past_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a", "b", "c", leader_epoch=3)
    assert log.delete_records_before(2) == 2
    assert log.delete_records_before(1) == 2
    assert code_of(log.delete_records_before, 4) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_in(log) == ["c"]
    assert [tuple(entry) for entry in log.epochs.entries] == [(3, 2)]


# -- truncating --------------------------------------------------------------------------------------------


def test_truncation_removes_batches_epochs_and_producers_above_the_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a", producer_id=1, producer_epoch=0, base_sequence=0)
    append(log, "b", producer_id=1, producer_epoch=0, base_sequence=1, leader_epoch=1)
    log.roll()
    append(log, "c", producer_id=1, producer_epoch=0, base_sequence=2, leader_epoch=2)
    log.flush()
    log.truncate_to(1)
    assert (log.log_end_offset, log.recovery_point, log.epochs.latest) == (1, 0, 0)
    assert append(log, "B", producer_id=1, producer_epoch=0, base_sequence=1, leader_epoch=3) == 1
    assert values_in(log) == ["a", "B"]
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (3, 1)]
    log.close()
    assert values_in(open_log(tmp_path)) == ["a", "B"]


def test_truncation_reports_the_lowered_recovery_point_before_it_removes_anything(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a")
    log.roll()
    append(log, "b")
    append(log, "c")
    log.flush()
    lowered = []
    log.on_recovery_point_lowered = lambda log: lowered.append((log.recovery_point, log.log_end_offset))
    log.truncate_to(2)
    assert lowered == [(1, 3), (1, 2)]


def test_truncating_everything_restarts_the_log_at_an_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a", producer_id=1, producer_epoch=0, base_sequence=0)
    log.roll()
    append(log, "b")
    log.flush()
    assert list(tmp_path.glob("*.snapshot"))
    log.truncate_fully_and_start_at(100)
    assert not list(tmp_path.glob("*.snapshot")), "they tell of producers whose batches are gone"
    assert (log.log_start_offset, log.log_end_offset, len(log.producers), log.epochs.entries) == (
        100,
        100,
        0,
        [],
    )
    assert append(log, "c") == 100
    log.close()
    assert values_in(open_log(tmp_path)) == ["c"]


# -- transactions ------------------------------------------------------------------------------------------


def in_txn(log: Log, value: str, pid: int, sequence: int) -> int:
    return append(log, value, producer_id=pid, producer_epoch=0, base_sequence=sequence, transactional=True)


def end_txn(log: Log, pid: int, *, commit: bool) -> int:
    info = log.append(marker(pid, commit=commit), leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    return info.base_offset


def test_clients_may_not_write_markers(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert code_of(log.append, marker(1, commit=True), leader_epoch=0, now_ms=NOW) is ErrorCode.INVALID_RECORD


def test_the_last_stable_offset_waits_until_the_marker_is_committed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "plain")
    in_txn(log, "a", 1, 0)
    assert log.last_stable_offset(2) == 1
    end_txn(log, 1, commit=True)
    assert log.last_stable_offset(2) == 1
    assert log.last_stable_offset(3) == 3


def test_the_last_stable_offset_is_never_below_the_log_start(tmp_path: Path) -> None:
    """DeleteRecords may remove the beginning of an open transaction; consumers can no longer read there."""
    log = open_log(tmp_path / "log")
    in_txn(log, "a", 1, 0)
    in_txn(log, "b", 1, 1)
    in_txn(log, "c", 1, 2)
    log.delete_records_before(2)
    assert log.last_stable_offset(3) == 2
    assert log.last_stable_offset(1) == 1, "nor above the high watermark"


def test_aborted_transactions_come_in_the_order_of_their_first_offsets(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    in_txn(log, "a", 1, 0)
    in_txn(log, "b", 2, 0)
    end_txn(log, 2, commit=False)
    log.roll()
    in_txn(log, "c", 3, 0)
    end_txn(log, 3, commit=True)
    end_txn(log, 1, commit=False)
    for end in (log.log_end_offset, LAST):
        found = log.aborted_transactions(0, end)
        assert [tuple(aborted)[:3] for aborted in found] == [(1, 0, 5), (2, 1, 2)]
    assert [aborted.producer_id for aborted in log.aborted_transactions(3, 6)] == [1]
    assert [aborted.producer_id for aborted in log.aborted_transactions(0, 1)] == [1]


@pytest.mark.parametrize("clean", [True, False])
def test_transaction_state_and_index_survive_a_restart(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path)
    in_txn(log, "a", 1, 0)
    end_txn(log, 1, commit=False)
    in_txn(log, "b", 2, 0)
    before = log.aborted_transactions(0, 10)
    log.close(clean=clean)
    log = open_log(tmp_path, clean_shutdown=clean)
    assert log.aborted_transactions(0, 10) == before != []
    assert log.last_stable_offset(3) == 2
    end_txn(log, 2, commit=True)
    assert log.last_stable_offset(4) == 4


def test_a_crash_recovery_rebuilds_the_transaction_index_although_a_newer_snapshot_exists(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    in_txn(log, "a", 1, 0)
    end_txn(log, 1, commit=False)
    before = log.aborted_transactions(0, 10)
    log.close()
    log = open_log(tmp_path, clean_shutdown=False, recovery_point=2)
    assert log.aborted_transactions(0, 10) == before != []


def test_damaged_transaction_indexes_of_several_segments_are_all_rebuilt(tmp_path: Path) -> None:
    """Each index has an aborted transaction that the log does not have."""
    log = open_log(tmp_path)
    for sequence in range(3):
        in_txn(log, "a", 1, sequence)
        end_txn(log, 1, commit=False)
        log.roll()
    append(log, "b")
    before = log.aborted_transactions(0, 10)
    log.close()
    indexes = sorted(path for path in tmp_path.glob("*.txnindex") if path.stat().st_size)
    assert len(indexes) == len(before) == 3
    for index in indexes:
        data = bytearray(index.read_bytes())
        data[9] ^= 1  # of the producer id
        index.write_bytes(data)
    log = open_log(tmp_path)
    assert log.aborted_transactions(0, 10) == before
    log.close()
    assert open_log(tmp_path).aborted_transactions(0, 10) == before


def test_truncation_removes_aborted_transactions_with_their_markers(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(2):
        in_txn(log, "a", 1, sequence)
        end_txn(log, 1, commit=False)
    log.truncate_to(3)
    assert [aborted.last_offset for aborted in log.aborted_transactions(0, LAST)] == [1]
    assert log.last_stable_offset(3) == 2


# -- flushing ----------------------------------------------------------------------------------------------


def test_nothing_is_synced_by_default(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    append(log, "a")
    assert (disk.synced, log.recovery_point, log.needs_flush) == ([], 0, False)


def test_flush_messages_requires_a_flush_before_the_acknowledgement(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, TopicConfig(flush_messages=3), disk=disk)
    append(log, "a", "b")
    assert not log.needs_flush
    append(log, "c")
    assert log.needs_flush and log.flush_is_due(NOW)
    log.flush()
    assert not log.needs_flush
    assert log.recovery_point == 3
    assert [path.suffix for path in disk.synced] == [".log"]


def test_flush_ms_makes_a_flush_due(tmp_path: Path) -> None:
    clock = ManualClock()
    log = open_log(tmp_path, TopicConfig(flush_ms=100), clock=clock)
    append(log, "a")
    assert not log.flush_is_due(NOW + 99)
    assert log.flush_is_due(NOW + 100)
    clock.ms = NOW + 100
    log.flush()
    append(log, "b")
    assert not log.flush_is_due(NOW + 199)


def test_a_closed_segment_is_due_and_reaches_the_disk_with_its_indexes(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    append(log, "a")
    log.roll()
    append(log, "b")
    assert log.flush_is_due(NOW)
    log.flush()
    assert sorted(path.name.lstrip("0") for path in disk.synced) == [".index", ".log", ".timeindex", "1.log"]


def test_a_segment_closed_right_after_a_flush_still_reaches_the_disk_with_its_indexes(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    append(log, "a")
    log.flush()
    log.roll()
    append(log, "b")
    disk.synced.clear()
    log.flush()
    assert {".index", ".timeindex"} <= {path.name.lstrip("0") for path in disk.synced}
    disk.synced.clear()
    append(log, "c")
    log.flush()
    assert [path.name.lstrip("0") for path in disk.synced] == ["1.log"]


def test_a_clean_stop_syncs_the_active_segments_indexes_too(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, TopicConfig(index_interval_bytes=0), disk=disk)
    append(log, "a")
    append(log, "b")
    log.close()
    assert sorted(path.name.lstrip("0") for path in disk.synced) == [".index", ".log", ".timeindex"]


def test_a_flush_covers_the_records_appended_before_it_began(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a")
    flush = log.begin_flush()
    append(log, "b")
    flush.run()
    log.end_flush(flush)
    assert log.recovery_point == 1


def test_a_truncation_during_a_flush_keeps_the_recovery_point(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a")
    append(log, "b")
    flush = log.begin_flush()
    log.truncate_to(1)
    append(log, "B")
    flush.run()
    log.end_flush(flush)
    assert log.recovery_point == 0
