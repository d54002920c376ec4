"""Whatever a crash or a bad disk does to the bytes, records are served unchanged or not at all."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from felice.config import TopicConfig
from felice.env import SystemDisk
from felice.log.errors import CorruptLog
from felice.log.files import OpenFiles
from felice.log.log import Log
from felice.log.recovery import verified_batches
from felice.protocol.errors import ApiError
from felice.records.batch import iter_batches
from felice.records.compression import Codec
from unit.log.logs import append, open_log, values_in

CONFIG = TopicConfig(segment_bytes=500, index_interval_bytes=60)
VALUES = [f"value-{number:03d}" for number in range(24)]
CODECS = [Codec.NONE, Codec.LZ4, Codec.GZIP]

# Base offset and leader epoch lie outside a batch's CRC, which covers byte 21 on; the CRC itself is 17 to 20.
OUTSIDE_THE_CRC = {*range(8), *range(12, 16)}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve batches of two records in several segments, not flushed, as a killed broker leaves them."""
    directory = tmp_path_factory.mktemp("written") / "log"
    log = open_log(directory, CONFIG)
    for number in range(0, len(VALUES), 2):
        append(
            log,
            *VALUES[number : number + 2],
            codec=CODECS[number // 2 % 3],
            producer_id=1,
            producer_epoch=0,
            base_sequence=number,
        )
    log.close(clean=False)
    return directory


def copy_of(written: Path, tmp_path: Path) -> Path:
    target = tmp_path / "copy"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(written, target)
    return target


def after_crash(directory: Path, recovery_point: int = 0) -> Log:
    return open_log(directory, CONFIG, clean_shutdown=False, recovery_point=recovery_point)


def assert_usable(log: Log, expected: list[str]) -> None:
    """Checks that the log holds `expected`, that its state agrees, and that it takes appends."""
    assert values_in(log) == expected
    assert log.log_end_offset == len(expected)
    assert log.epochs.end_offset_for(0, log.log_end_offset).end_offset in (log.log_end_offset, -1)
    state = log.producers.get(1)
    assert (state.last_sequence + 1 if state else 0) == len(expected)
    assert all(segment.index_fault() is None for segment in log.segments[:-1])
    append(log, "next", producer_id=1, producer_epoch=0, base_sequence=len(expected))
    assert values_in(log) == [*expected, "next"]


def test_a_crash_at_any_byte_leaves_a_prefix_of_whole_batches(written: Path, tmp_path: Path) -> None:
    logs = sorted(written.glob("*.log"))
    assert len(logs) > 2
    whole_before = 0
    for path in logs:
        data = path.read_bytes()
        ends = [(header.end, header.next_offset) for header in iter_batches(data)]
        for cut in range(0, len(data), 7):
            directory = copy_of(written, tmp_path)
            (directory / path.name).write_bytes(data[:cut])
            for later in logs[logs.index(path) + 1 :]:
                (directory / later.name).unlink()
            survivors = max((next_offset for end, next_offset in ends if end <= cut), default=whole_before)
            assert_usable(after_crash(directory), VALUES[:survivors])
        whole_before = ends[-1][1]


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_may_leave_any_garbage_after_the_last_batch(written: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    last = max(written.glob("*.log")).name
    for _ in range(10):
        directory = copy_of(written, tmp_path)
        garbage = chance.choice([chance.randbytes, bytes])(chance.randrange(1, 300))
        (directory / last).write_bytes((directory / last).read_bytes() + garbage)
        assert_usable(after_crash(directory), VALUES)


def test_damaged_index_files_and_snapshots_do_no_harm_after_a_crash(written: Path, tmp_path: Path) -> None:
    chance = random.Random(1)
    derived = [
        path.name for path in written.iterdir() if path.suffix in (".index", ".timeindex", ".snapshot")
    ]
    for name in derived:
        for content in (None, b"", chance.randbytes(7), chance.randbytes(48)):
            directory = copy_of(written, tmp_path)
            (directory / name).unlink()
            if content is not None:
                (directory / name).write_bytes(content)
            assert_usable(after_crash(directory), VALUES)


def test_every_flipped_byte_of_a_closed_segment_is_found_by_its_crc(written: Path, tmp_path: Path) -> None:
    source = min(written.glob("*.log"))
    data = source.read_bytes()
    headers = list(iter_batches(data))
    path = tmp_path / source.name
    for header in headers:
        for at in range(header.size_bytes):
            if at in OUTSIDE_THE_CRC:
                continue
            damaged = bytearray(data)
            damaged[header.position + at] ^= 0x24
            path.write_bytes(damaged)
            with pytest.raises(CorruptLog) as caught:
                list(verified_batches(OpenFiles(SystemDisk()).get(path), 0))
            assert (caught.value.path, caught.value.position) == (path, header.position)


def test_flipped_bytes_below_the_recovery_point_are_never_served_after_a_crash(
    written: Path, tmp_path: Path
) -> None:
    chance = random.Random(2)
    last = max(written.glob("*.log"))
    data = last.read_bytes()
    end = list(iter_batches(data))[-1].next_offset
    for header in iter_batches(data):
        for at in chance.sample(range(header.size_bytes), 25):
            if at in OUTSIDE_THE_CRC:
                continue
            directory = copy_of(written, tmp_path)
            damaged = bytearray(data)
            damaged[header.position + at] ^= 1 << chance.randrange(8)
            (directory / last.name).write_bytes(damaged)
            with pytest.raises(CorruptLog) as caught:
                after_crash(directory, recovery_point=end)
            assert caught.value.position == header.position
            assert (directory / last.name).read_bytes() == damaged


def test_flipped_bytes_above_the_recovery_point_cut_the_log_there(written: Path, tmp_path: Path) -> None:
    chance = random.Random(3)
    last = max(written.glob("*.log"))
    data = last.read_bytes()
    for header in iter_batches(data):
        for at in chance.sample(range(header.size_bytes), 15):
            if at in OUTSIDE_THE_CRC:
                continue
            directory = copy_of(written, tmp_path)
            damaged = bytearray(data)
            damaged[header.position + at] ^= 1 << chance.randrange(8)
            (directory / last.name).write_bytes(damaged)
            assert_usable(after_crash(directory), VALUES[: header.base_offset])


def test_damage_after_a_clean_stop_never_yields_records_that_were_not_written(
    written: Path, tmp_path: Path
) -> None:
    """The broker checks no CRC when it serves a batch, because clients do; it checks the structure."""
    clean = tmp_path / "clean"
    shutil.copytree(written, clean)
    after_crash(clean).close()
    chance = random.Random(4)
    for _ in range(300):
        directory = copy_of(clean, tmp_path)
        path = chance.choice(
            [path for path in sorted(directory.iterdir()) if path.suffix in (".log", ".index")]
        )
        damaged = bytearray(path.read_bytes())
        if not damaged:
            continue
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            found = values_in(open_log(directory, CONFIG))
        except ApiError:
            continue
        assert set(found) <= set(VALUES)
        assert path.suffix == ".log" or found == VALUES
