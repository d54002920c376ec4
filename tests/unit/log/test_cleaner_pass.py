"""A pass of the cleaner: which records, batches and markers it keeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from felice.config import TopicConfig
from felice.log import Log
from felice.log.cleaner_pass import CleaningAborted
from felice.log.errors import CorruptLog
from felice.records.batch import BatchHeader
from felice.records.builder import build_batch
from felice.records.compression import Codec
from felice.records.record import Record
from unit.log.cleaning import (
    COMPACT,
    DAY_MS,
    SETTINGS,
    batches_in,
    clean,
    compacted,
    end_transaction,
    found_in,
    make_pass,
    pairs_in,
    put,
    roll_and_clean,
    segment_bases,
)
from unit.log.logs import NOW, append


@pytest.mark.parametrize("codec", list(Codec))
def test_the_last_value_of_each_key_stays_where_it_was(tmp_path: Path, codec: Codec) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), ("b", "2"), ("a", "3"), codec=codec)
    put(log, ("c", "4"), ("b", "5"), codec=codec)
    put(log, ("d", "6"), codec=codec)
    work = roll_and_clean(log)
    assert pairs_in(log) == [(2, "a", "3"), (3, "c", "4"), (4, "b", "5"), (5, "d", "6")]
    assert (work.stats.records_read, work.stats.records_kept, work.end_offset) == (6, 4, 6)


def test_batches_keep_offsets_epochs_and_producers(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), ("b", "2"), ("a", "3"), producer_id=7, producer_epoch=2, base_sequence=10)
    before = batches_in(log)[0][0]
    put(log, ("b", "4"))
    roll_and_clean(log)
    after = batches_in(log)[0][0]
    for name in (
        "base_offset",
        "last_offset",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "last_sequence",
        "max_timestamp",
    ):
        assert getattr(after, name) == getattr(before, name), name
    assert after.record_count == 1


def test_the_active_segment_is_not_touched(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"))
    log.roll()
    put(log, ("a", "2"), ("a", "3"))
    active = log.segments[-1].log_path.read_bytes()
    clean(log)
    assert log.segments[-1].log_path.read_bytes() == active
    # The newer value is in the active segment, which cannot be cleaned, so the older one stays.
    assert pairs_in(log) == [(0, "a", "1"), (1, "a", "2"), (2, "a", "3")]


def test_small_segments_are_merged(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for number in range(6):
        put(log, ("a", str(number)), (f"k{number}", "x"))
        log.roll()
    assert segment_bases(log) == [0, 2, 4, 6, 8, 10, 12]
    clean(log)
    assert segment_bases(log) == [0, 12]
    assert [pair for pair in pairs_in(log) if pair[1] == "a"] == [(10, "a", "5")]


def test_a_key_replaced_since_the_last_pass_is_removed_from_the_clean_part(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), ("b", "1"))
    first = roll_and_clean(log)
    put(log, ("a", "2"))
    second = roll_and_clean(log, first.end_offset)
    assert second.first_dirty_offset == 2
    assert second.stats.keys == 1
    assert pairs_in(log) == [(1, "b", "1"), (2, "a", "2")]


def test_a_tombstone_outlives_its_value_by_delete_retention(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None), ("c", "1"))
    roll_and_clean(log)
    assert pairs_in(log) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    batch, records = batches_in(log)[-1]
    assert batch.delete_horizon_ms == NOW + DAY_MS
    assert {record.timestamp for record in records} == {NOW}
    clean(log, 0, now_ms=NOW + DAY_MS - 1)
    assert (2, "a", None) in pairs_in(log)
    clean(log, 0, now_ms=NOW + DAY_MS)
    assert pairs_in(log) == [(1, "b", "1"), (3, "c", "1")]
    assert batches_in(log)[-1][0].delete_horizon_ms == NOW + DAY_MS


def test_a_batch_with_its_horizon_set_is_not_written_again(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", None), ("b", "1"))
    assert roll_and_clean(log).stats.segments_after == 1
    assert clean(log, 0, now_ms=NOW + 1).stats.segments_after == 0


def test_a_cleaned_batch_has_the_largest_timestamp_of_its_remaining_records(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    records = [Record(0, NOW + 10, b"a", b"1"), Record(0, NOW + 5, b"b", b"1")]
    log.append(bytearray(build_batch(records)), leader_epoch=0, now_ms=NOW)
    put(log, ("a", "2"))
    roll_and_clean(log)
    assert [header.max_timestamp for header, _ in batches_in(log)] == [NOW + 5, NOW]
    assert [record.timestamp for record in batches_in(log)[0][1]] == [NOW + 5]


def test_log_append_times_survive_cleaning(tmp_path: Path) -> None:
    config = dataclasses.replace(COMPACT, message_timestamp_type="LogAppendTime")
    log = compacted(tmp_path, config=config)
    put(log, ("a", "1"), ("b", "1"), ("t", None), at=NOW)
    log.append(bytearray(build_batch([Record(0, 5, b"a", b"2")])), leader_epoch=0, now_ms=NOW + 7)
    roll_and_clean(log)
    left = [(record.key, record.timestamp) for _, records in batches_in(log) for record in records]
    assert left == [(b"b", NOW), (b"t", NOW), (b"a", NOW + 7)]


def test_the_last_batch_of_a_producer_stays_when_it_is_empty(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, ("a", "2"), producer_id=8, producer_epoch=0, base_sequence=0)
    put(log, ("a", "3"))
    roll_and_clean(log)
    left = [(header.producer_id, header.record_count) for header, _ in batches_in(log)]
    assert left == [(7, 0), (8, 0), (-1, 1)]
    log.close(clean=False)
    again = compacted(tmp_path, clean_shutdown=False)
    assert [state.last_sequence for state in again.producers] == [0, 0]


def test_the_last_batch_of_an_expired_producer_is_removed(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, ("a", "2"))
    log.expire_producers(NOW + 2 * DAY_MS)
    roll_and_clean(log)
    assert [header.producer_id for header, _ in batches_in(log)] == [-1]


def test_the_last_batch_of_a_group_stays_so_that_offsets_continue(tmp_path: Path) -> None:
    config = dataclasses.replace(COMPACT, segment_bytes=70)
    log = compacted(tmp_path, config=config)
    put(log, ("a", "1"))
    log.roll()
    put(log, ("a", "2"))
    roll_and_clean(log)
    assert [(h.base_offset, h.record_count) for h, _ in batches_in(log)] == [(0, 0), (1, 1)]
    assert [segment.next_offset for segment in log.segments] == [1, 2, 2]


def test_a_segment_that_loses_no_record_is_not_rewritten(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), ("b", "2"))
    log.roll()
    before = log.segments[0]
    assert clean(log).stats.segments_after == 0
    assert log.segments[0] is before
    assert not list(tmp_path.glob("*.cleaned"))


def test_a_second_pass_changes_nothing(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for number in range(20):
        put(log, ("a", str(number)), (f"k{number % 3}", "x"), codec=Codec.LZ4)
    roll_and_clean(log)
    before = log.segments[0].log_path.read_bytes()
    clean(log, 0)
    assert log.segments[0].log_path.read_bytes() == before


def test_a_full_map_ends_the_pass_early(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for number in range(40):
        put(log, (f"k{number}", "old"), (f"k{number}", "new"))
    log.roll()
    small = dataclasses.replace(SETTINGS, map_bytes=24 * 10, load_factor=1.0)
    work = clean(log, settings=small)
    assert work.stats.is_map_full
    assert (work.stats.keys, work.end_offset) == (10, 20)
    assert len(pairs_in(log)) == 70
    rounds = 1
    while work.end_offset < 80:
        work = clean(log, work.end_offset, settings=small)
        rounds += 1
    assert rounds == 4
    assert pairs_in(log) == [(2 * number + 1, f"k{number}", "new") for number in range(40)]


def test_a_pass_that_ended_inside_a_batch_continues_inside_it(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, *[(f"k{number % 12}", str(number)) for number in range(24)])
    log.roll()
    tiny = dataclasses.replace(SETTINGS, map_bytes=24 * 5, load_factor=1.0)
    end = 0
    while end < 24:
        end = clean(log, end, settings=tiny).end_offset
    assert pairs_in(log)[-12:] == [(12 + number, f"k{number}", str(12 + number)) for number in range(12)]


def test_the_map_is_no_larger_than_the_dirty_part_needs(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, *[(str(number), "x") for number in range(90)])
    assert roll_and_clean(log).stats.map_slots == 102


def test_keyless_records_from_before_compaction_are_removed(tmp_path: Path) -> None:
    log = compacted(tmp_path, config=TopicConfig())
    append(log, "x", key=None)
    append(log, "y")
    log.update_config(COMPACT)
    roll_and_clean(log)
    assert pairs_in(log) == [(1, "k", "y")]


# -- transactions --------------------------------------------------------------------------------------


def transactional(producer_id: int, sequence: int) -> dict[str, object]:
    return {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}


def test_aborted_records_are_removed_and_never_replace_a_committed_value(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "committed"), **transactional(1, 0))
    end_transaction(log, 1, commit=True)
    put(log, ("a", "aborted"), **transactional(2, 0))
    end_transaction(log, 2, commit=False)
    put(log, ("z", "end"))
    roll_and_clean(log)
    assert pairs_in(log) == [(0, "a", "committed"), (4, "z", "end")]


def test_a_marker_is_removed_after_its_data_and_its_delete_horizon(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), **transactional(1, 0))
    end_transaction(log, 1, commit=True)
    put(log, ("a", "2"))
    log.expire_producers(NOW + 2 * DAY_MS)

    def markers() -> list[int]:
        return [header.base_offset for header, _ in batches_in(log) if header.is_control]

    roll_and_clean(log)
    assert markers() == [1]
    assert batches_in(log)[0][0].delete_horizon_ms is None  # its data was still there
    clean(log, 0, now_ms=NOW)
    assert batches_in(log)[0][0].delete_horizon_ms == NOW + DAY_MS
    clean(log, 0, now_ms=NOW + DAY_MS - 1)
    assert markers() == [1]
    clean(log, 0, now_ms=NOW + DAY_MS)
    assert markers() == []


def test_the_transaction_index_follows_the_abort_marker(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), **transactional(1, 0))
    end_transaction(log, 1, commit=False)
    put(log, ("b", "1"))
    log.expire_producers(NOW + 2 * DAY_MS)
    roll_and_clean(log)
    assert [entry.first_offset for entry in log.aborted_transactions(0, log.log_end_offset)] == [0]
    clean(log, 0)
    # No aborted data is left. An entry would only hide what the producer writes later.
    assert log.aborted_transactions(0, log.log_end_offset) == []


def test_each_aborted_transaction_is_indexed_once(tmp_path: Path) -> None:
    log = compacted(tmp_path, config=dataclasses.replace(COMPACT, segment_bytes=400))
    for number in range(3):
        put(log, ("a", "1" * 100), **transactional(1, number))
        end_transaction(log, 1, commit=False)
        log.roll()
    clean(log)
    assert [entry.first_offset for entry in log.aborted_transactions(0, log.log_end_offset)] == [0, 2, 4]


def test_an_open_transaction_bounds_cleaning(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), ("a", "2"))
    log.roll()
    put(log, ("a", "3"), **transactional(1, 0))
    log.roll()
    assert found_in(log).end_offset == 2
    end_transaction(log, 1, commit=True)
    log.roll()
    assert found_in(log).end_offset == 4


# -- concurrent changes --------------------------------------------------------------------------------


def test_a_truncation_ends_the_pass(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for number in range(4):
        put(log, ("a", str(number)))
        log.roll()
    work = make_pass(log)
    work.index()
    group = work.groups()[0]
    segment = work.clean(group)
    assert segment is not None
    log.truncate_to(2)
    assert not work.swap_in(group, segment)
    work.discard(segment)
    with pytest.raises(CleaningAborted):
        work.clean(group)
    assert pairs_in(log) == [(0, "a", "0"), (1, "a", "1")]
    assert not list(tmp_path.glob("*.cleaned"))


@pytest.mark.parametrize("when", ["before index", "before clean", "before swap"])
def test_retention_may_delete_segments_during_cleaning(tmp_path: Path, when: str) -> None:
    config = dataclasses.replace(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=1000)
    log = compacted(tmp_path, config=config)
    put(log, ("a", "old"), at=NOW - 5000)
    log.roll()
    put(log, ("a", "1"), ("b", "1"), ("a", "2"))
    log.roll()

    def retain(now: str) -> None:
        if now == when:
            assert len(log.apply_retention(NOW, log.log_end_offset)) == 1

    work = make_pass(log)
    retain("before index")
    work.index()
    retain("before clean")
    group = work.groups()[0]
    segment = work.clean(group)
    retain("before swap")
    if segment is not None:
        assert not work.swap_in(group, segment)
        work.discard(segment)
    assert log.log_start_offset == 1
    assert clean(log, 1).stats.segments_after == 1
    assert pairs_in(log) == [(2, "b", "1"), (3, "a", "2")]


def test_closing_the_log_ends_the_pass(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), ("a", "2"))
    log.roll()
    work = make_pass(log)
    log.close(clean=False)
    with pytest.raises(CleaningAborted):
        work.index()


def test_appends_continue_while_a_pass_runs(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), ("a", "2"))
    log.roll()
    work = make_pass(log)
    work.index()
    put(log, ("a", "3"))
    log.roll()
    put(log, ("b", "1"))
    group = work.groups()[0]
    segment = work.clean(group)
    assert segment is not None
    reading = log.read(0, 1000, end_offset=2)
    assert work.swap_in(group, segment)
    assert reading is not None
    assert len(reading.read()) == reading.size_bytes
    assert pairs_in(log) == [(1, "a", "2"), (2, "a", "3"), (3, "b", "1")]


def test_a_damaged_batch_is_refused_and_gets_no_new_crc(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), ("a", "2"))
    log.roll()
    path = log.segments[0].log_path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match="CRC"):
        make_pass(log).index()
    assert path.read_bytes() == data


# -- reading a cleaned log -----------------------------------------------------------------------------


def gappy(directory: Path) -> Log:
    """A log of two hundred batches, of which only a few have records left."""
    log = compacted(directory)
    for number in range(200):
        put(log, ("a" if number % 50 else f"k{number}", str(number)), at=NOW + number)
    roll_and_clean(log)
    return log


def test_reading_never_stalls_on_a_gap(tmp_path: Path) -> None:
    log = gappy(tmp_path)
    kept = [record[0] for record in pairs_in(log)]
    assert kept == [0, 50, 100, 150, 199]
    for offset in range(200):
        data = log.read_bytes(offset, 1, end_offset=200)
        assert data, offset
        assert BatchHeader.parse(data).last_offset == next(k for k in kept if k >= offset)


def test_times_are_found_in_a_compacted_log(tmp_path: Path) -> None:
    log = gappy(tmp_path)
    for again in (log, None):
        if again is None:
            log.close()
            log = compacted(tmp_path)
        found = log.offset_for_timestamp(NOW + 51, end_offset=200)
        assert found is not None
        assert (found.offset, found.timestamp) == (100, NOW + 100)
        largest = log.offset_of_max_timestamp(200)
        assert largest is not None
        assert largest.offset == 199


def test_the_largest_time_is_that_of_a_record_not_of_an_emptied_batch(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, ("a", "1"), at=NOW + 9000, producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, ("a", "2"), at=NOW)
    put(log, ("b", "1"), at=NOW + 5)
    put(log, ("c", "1"), at=NOW + 4)
    roll_and_clean(log)
    largest = log.offset_of_max_timestamp(log.log_end_offset)
    assert largest is not None
    assert (largest.offset, largest.timestamp) == (2, NOW + 5)


def test_indexes_of_a_compacted_log_can_be_rebuilt(tmp_path: Path) -> None:
    log = gappy(tmp_path)
    expected = pairs_in(log)
    log.close()
    for path in tmp_path.glob("*index"):
        path.unlink()
    log = compacted(tmp_path)
    assert pairs_in(log) == expected
    assert all(log.read_bytes(offset, 1, end_offset=200) for offset in range(200))


def test_snapshots_of_merged_segments_are_removed(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for number in range(3):
        put(log, ("a", str(number)), producer_id=1, producer_epoch=0, base_sequence=number)
        log.roll()
    log.flush()
    assert len(list(tmp_path.glob("*.snapshot"))) == 3
    clean(log)
    assert [path.name for path in tmp_path.glob("*.snapshot")] == [f"{3:020d}.snapshot"]
    assert log.collect_deleted(NOW + DAY_MS)
