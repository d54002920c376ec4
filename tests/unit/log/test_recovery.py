"""Loading a log after a clean stop, a crash, or damage by the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.config import TopicConfig
from felice.log import CorruptLog
from felice.log.log import Log
from unit.log.logs import NOW, FailingDisk, append, batch, open_log, values_in

SMALL_SEGMENTS = TopicConfig(segment_bytes=300, index_interval_bytes=50)


def filled(directory: Path, count: int = 9, *, config: TopicConfig = SMALL_SEGMENTS) -> Log:
    """Values "0", "1", ...: one per batch, three batches per segment, all from one producer."""
    log = open_log(directory, config)
    for number in range(count):
        append(log, f"{number:030d}", producer_id=1, producer_epoch=0, base_sequence=number)
    return log


def numbers(log: Log) -> list[int]:
    return [int(value) for value in values_in(log)]


def crashed(directory: Path, *, recovery_point: int = 0, config: TopicConfig = SMALL_SEGMENTS) -> Log:
    return open_log(directory, config, clean_shutdown=False, recovery_point=recovery_point)


def path_of(directory: Path, base: int, suffix: str = "log") -> Path:
    return directory / f"{base:020d}.{suffix}"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_loads_everything_that_was_written(tmp_path: Path, clean: bool) -> None:
    filled(tmp_path).close(clean=clean)
    log = open_log(tmp_path, SMALL_SEGMENTS, clean_shutdown=clean)
    assert numbers(log) == list(range(9))
    assert log.cuts == []
    assert append(log, "9", producer_id=1, producer_epoch=0, base_sequence=9) == 9


@pytest.mark.parametrize("clean", [True, False])
def test_repeated_batches_are_recognised_after_a_restart(tmp_path: Path, clean: bool) -> None:
    filled(tmp_path).close(clean=clean)
    log = open_log(tmp_path, SMALL_SEGMENTS, clean_shutdown=clean)
    again = batch([f"{8:030d}"], producer_id=1, producer_epoch=0, base_sequence=8)
    info = log.append(again, leader_epoch=0, now_ms=NOW)
    assert (info.duplicate, info.base_offset, log.log_end_offset) == (True, 8, 9)


def test_a_clean_stop_needs_no_scan_of_the_records(tmp_path: Path) -> None:
    filled(tmp_path).close()
    flip(path_of(tmp_path, 3), -1)
    assert open_log(tmp_path, SMALL_SEGMENTS).log_end_offset == 9


def test_a_torn_tail_is_cut_after_the_last_whole_batch(tmp_path: Path) -> None:
    filled(tmp_path).close(clean=False)
    path = path_of(tmp_path, 6)
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes() + bytes(batch(["torn"]))[:-3])
    log = crashed(tmp_path)
    assert numbers(log) == list(range(9))
    assert [(cut.path, cut.position) for cut in log.cuts] == [(path, whole)]
    assert path.stat().st_size == whole


def test_garbage_after_the_last_batch_is_cut(tmp_path: Path) -> None:
    filled(tmp_path).close(clean=False)
    path = path_of(tmp_path, 6)
    path.write_bytes(path.read_bytes() + b"\0" * 4096)
    log = crashed(tmp_path)
    assert numbers(log) == list(range(9))
    assert append(log, f"{9:030d}") == 9
    assert numbers(log) == list(range(10))


def test_unflushed_segments_after_a_bad_batch_are_removed_too(tmp_path: Path) -> None:
    filled(tmp_path).close(clean=False)
    flip(path_of(tmp_path, 3), 120)
    log = crashed(tmp_path)
    assert numbers(log) == [0, 1, 2, 3]
    assert log.epochs.end_offset_for(0, log.log_end_offset).end_offset == 4
    assert append(log, "4", producer_id=1, producer_epoch=0, base_sequence=4) == 4


@pytest.mark.parametrize("recovery_point", [5, 6, 9])
def test_damage_below_the_recovery_point_is_reported_and_nothing_is_cut(
    tmp_path: Path, recovery_point: int
) -> None:
    filled(tmp_path, 6).close(clean=False)
    path = path_of(tmp_path, 3)
    flip(path, 120)
    before = path.read_bytes()
    with pytest.raises(CorruptLog) as caught:
        crashed(tmp_path, recovery_point=min(recovery_point, 5))
    assert caught.value.path == path
    assert 0 < caught.value.position < 200
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_records_after_a_tail_that_never_reached_the_disk_are_removed(tmp_path: Path, policy: str) -> None:
    filled(tmp_path).close(clean=False)
    path = path_of(tmp_path, 3)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3 * 2])
    config = TopicConfig(segment_bytes=300, index_interval_bytes=50, cleanup_policy=(policy,))
    log = crashed(tmp_path, config=config)
    # In a compacted log gaps are no sign of loss.
    assert numbers(log) == [*range(5), *([6, 7, 8] if policy == "compact" else [])]
    assert [cut.reason for cut in log.cuts] == (
        [] if policy == "compact" else ["offset 5 is missing: the next segment begins at 6"]
    )


def test_a_log_shorter_than_was_flushed_is_reported(tmp_path: Path) -> None:
    filled(tmp_path).close(clean=False)
    path = path_of(tmp_path, 6)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    with pytest.raises(CorruptLog, match="ends at offset 7, but was flushed up to 8"):
        crashed(tmp_path, recovery_point=8)


def test_segments_below_the_recovery_point_are_not_scanned(tmp_path: Path) -> None:
    filled(tmp_path).flush()
    flip(path_of(tmp_path, 0), -1)
    assert crashed(tmp_path, recovery_point=6).log_end_offset == 9


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["missing", "torn", "zeros", "foreign"])
def test_a_bad_index_is_rebuilt(tmp_path: Path, suffix: str, damage: str, clean: bool) -> None:
    filled(tmp_path).close()
    path = path_of(tmp_path, 3, suffix)
    sound = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {"torn": sound[:-1], "zeros": sound + b"\0" * 48, "foreign": b"\x11" * len(sound)}[damage]
        )
    log = open_log(tmp_path, SMALL_SEGMENTS, clean_shutdown=clean)
    assert numbers(log) == list(range(9))
    assert path.read_bytes() == sound


def test_files_without_a_log_are_removed(tmp_path: Path) -> None:
    filled(tmp_path).close()
    for name in (
        f"{77:020d}.index",
        f"{77:020d}.timeindex",
        f"{0:020d}.log.deleted",
        f"{9:020d}.log.cleaned",
    ):
        (tmp_path / name).write_bytes(b"x")
    assert open_log(tmp_path, SMALL_SEGMENTS).log_end_offset == 9
    names = {path.name for path in tmp_path.iterdir()}
    assert not any(f"{77:020d}" in name or name.endswith((".deleted", ".cleaned")) for name in names)


def test_a_swap_file_that_is_not_a_log_is_left_for_an_operator(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / f"{0:020d}.log.swap").write_bytes(b"x")
    with pytest.raises(CorruptLog, match=r"log\.swap"):
        open_log(tmp_path)


@pytest.mark.parametrize("content", [b"", b"garbage", b"0\n5\n1 1\n"])
def test_a_bad_epoch_history_is_rebuilt_from_the_batches(tmp_path: Path, content: bytes) -> None:
    log = open_log(tmp_path)
    append(log, "a", leader_epoch=3)
    append(log, "b", leader_epoch=8)
    log.close()
    (tmp_path / "leader-epoch-checkpoint").write_bytes(content)
    assert [tuple(entry) for entry in open_log(tmp_path).epochs.entries] == [(3, 0), (8, 1)]


def test_epochs_that_were_not_flushed_are_restored_from_the_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a", leader_epoch=3)
    log.flush()
    append(log, "b", leader_epoch=3)
    append(log, "c", leader_epoch=8)
    log.close(clean=False)
    log = open_log(tmp_path, clean_shutdown=False, recovery_point=1)
    assert [tuple(entry) for entry in log.epochs.entries] == [(3, 0), (8, 2)]


def test_instead_of_a_bad_snapshot_an_older_one_and_the_batches_after_it_are_used(tmp_path: Path) -> None:
    filled(tmp_path).close()
    snapshots = sorted(tmp_path.glob("*.snapshot"))
    assert [int(path.stem) for path in snapshots] == [3, 6, 9]
    flip(snapshots[-1], 20)
    log = open_log(tmp_path, SMALL_SEGMENTS)
    assert append(log, "9", producer_id=1, producer_epoch=0, base_sequence=9) == 9
    assert not snapshots[-1].exists()


def test_without_a_snapshot_the_whole_log_is_replayed(tmp_path: Path) -> None:
    filled(tmp_path).close()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    log = open_log(tmp_path, SMALL_SEGMENTS)
    state = log.producers.get(1)
    assert state is not None
    assert [batch.last_offset for batch in state.batches] == [4, 5, 6, 7, 8]


def test_a_log_start_beyond_the_end_begins_there(tmp_path: Path) -> None:
    filled(tmp_path).close()
    log = open_log(tmp_path, SMALL_SEGMENTS, log_start_offset=50, clean_shutdown=False)
    assert (log.log_start_offset, log.log_end_offset, values_in(log)) == (50, 50, [])
    assert append(log, "a") == 50


def test_an_empty_segment_between_others_is_removed(tmp_path: Path) -> None:
    filled(tmp_path).close()
    path_of(tmp_path, 5).write_bytes(b"")
    path_of(tmp_path, 9).write_bytes(b"")
    log = open_log(tmp_path, SMALL_SEGMENTS)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert numbers(log) == list(range(9))


def test_a_restarted_log_appends_to_its_last_segment(tmp_path: Path) -> None:
    filled(tmp_path, 8).close()
    log = open_log(tmp_path, SMALL_SEGMENTS)
    append(log, f"{8:030d}")
    append(log, f"{9:030d}")
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    log.close()
    log = open_log(tmp_path, SMALL_SEGMENTS)
    assert numbers(log) == list(range(10))
    assert all(segment.index_fault() is None for segment in log.segments)


def test_a_log_not_written_since_a_clean_stop_needs_no_sync_at_the_next_stop(tmp_path: Path) -> None:
    filled(tmp_path).close()
    disk = FailingDisk()
    log = open_log(tmp_path, SMALL_SEGMENTS, disk=disk)
    written: list[Path] = []
    disk.write_atomic = lambda path, data: written.append(path)  # type: ignore[method-assign]
    log.epochs.assign(5, log.log_end_offset)  # a leader epoch in which nothing is written
    log.close()
    assert (log.was_closed_cleanly, disk.synced, written) == (True, [], [])
    del disk.write_atomic
    log = open_log(tmp_path, SMALL_SEGMENTS, disk=disk)
    append(log, f"{9:030d}")
    log.close()
    assert disk.synced
    assert numbers(open_log(tmp_path, SMALL_SEGMENTS)) == list(range(10))


@pytest.mark.parametrize("clean", [True, False])
def test_restarts_do_not_accumulate_snapshots(tmp_path: Path, clean: bool) -> None:
    config = TopicConfig(segment_bytes=10_000)
    filled(tmp_path, 1, config=config).close()
    for number in range(1, 4):
        log = open_log(tmp_path, config, clean_shutdown=clean, recovery_point=number)
        append(log, "a", producer_id=1, producer_epoch=0, base_sequence=number)
        log.close()
    assert sorted(int(path.stem) for path in tmp_path.glob("*.snapshot")) == [3, 4]
    assert open_log(tmp_path, config).producers.get(1) is not None


@pytest.mark.parametrize("clean", [True, False])
def test_a_flushed_log_whose_segments_are_gone_is_reported(tmp_path: Path, clean: bool) -> None:
    filled(tmp_path).close()
    for path in tmp_path.glob("*.log"):
        path.unlink()
    with pytest.raises(CorruptLog, match="ends at offset 0, but was flushed up to 9"):
        open_log(tmp_path, SMALL_SEGMENTS, clean_shutdown=clean, recovery_point=9)


def test_a_log_cut_between_batches_after_a_clean_stop_is_reported(tmp_path: Path) -> None:
    filled(tmp_path).close()
    path_of(tmp_path, 6).unlink()
    with pytest.raises(CorruptLog, match="ends at offset 6, but was flushed up to 9"):
        open_log(tmp_path, SMALL_SEGMENTS, recovery_point=9)


def test_a_repeated_batch_returns_its_append_time_after_a_restart_too(tmp_path: Path) -> None:
    config = TopicConfig(message_timestamp_type="LogAppendTime")
    log = open_log(tmp_path, config)
    again = batch(["a"], producer_id=1, producer_epoch=0, base_sequence=0)
    log.append(bytearray(again), leader_epoch=0, now_ms=NOW + 7)
    log.close(clean=False)
    log = open_log(tmp_path, config, clean_shutdown=False)
    info = log.append(again, leader_epoch=0, now_ms=NOW + 50)
    assert (info.duplicate, info.log_append_time_ms) == (True, NOW + 7)
