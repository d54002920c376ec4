"""The simulated disk: what a crash may leave, faults, and the disk's history."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from felice.env import DiskLocked, File
from felice.testing.simulation.disk import SimDisk
from felice.testing.simulation.replay import moments

A, B, DIR = Path("/d/a"), Path("/d/b"), Path("/d")


def durable_disk(**files: bytes) -> SimDisk:
    disk = SimDisk()
    disk.mkdir(DIR)
    disk.sync_dir(Path("/"))
    for name, content in files.items():
        disk.write_atomic(DIR / name, content)
    return disk


def append(file: File, data: bytes) -> None:
    file.pwrite(data, file.size_bytes)


def outcomes(disk: SimDisk, look: Callable[[SimDisk], object], seeds: int = 400) -> set[object]:
    """Everything that `look` returns over many crashes."""
    found = set()
    for seed in range(seeds):
        after = disk.copy()
        after.crash(Random(seed))
        found.add(look(after))
    return found


def content(path: Path) -> Callable[[SimDisk], bytes | None]:
    return lambda disk: disk.read_bytes(path) if disk.exists(path) else None


# -- files -------------------------------------------------------------------------------------------------


def test_synced_data_stays() -> None:
    disk = durable_disk(a=b"")
    file = disk.open(A)
    append(file, b"x" * 5000)
    file.sync()
    assert outcomes(disk, content(A)) == {b"x" * 5000}


def test_an_unsynced_append_may_stay_be_lost_or_be_torn_at_sectors() -> None:
    disk = durable_disk(a=b"")
    append(disk.open(A), b"x" * 1500)
    seen = outcomes(disk, content(A))
    assert {b"", b"x" * 1500, b"x" * 512, b"x" * 1024, bytes(512) + b"x" * 988} <= seen
    for found in seen:
        assert isinstance(found, bytes)
        sectors = [found[at : at + 512] for at in range(0, len(found), 512)]
        assert all(set(sector) <= {0} or set(sector) <= {ord("x")} for sector in sectors)
        assert len(found) % 512 == 0 or len(found) == 1500


def test_later_writes_may_reach_the_disk_without_earlier_ones() -> None:
    disk = durable_disk(a=b"." * 8192)
    file = disk.open(A)
    file.pwrite(b"1", 0)
    file.pwrite(b"2", 8000)
    seen = outcomes(disk, lambda disk: (disk.read_bytes(A)[:1], disk.read_bytes(A)[8000:8001]))
    assert seen == {(b".", b"."), (b"1", b"."), (b".", b"2"), (b"1", b"2")}


def test_a_sector_may_be_in_any_state_since_the_last_sync_but_in_none_before_it() -> None:
    disk = durable_disk(a=b"0")
    file = disk.open(A)
    file.pwrite(b"1", 0)
    file.sync()
    file.pwrite(b"2", 0)
    file.pwrite(b"3", 0)
    assert outcomes(disk, content(A)) == {b"1", b"2", b"3"}


def test_new_content_of_a_dropped_page_comes_only_with_the_truncation() -> None:
    disk = durable_disk(a=b"o" * 9000)
    file = disk.open(A)
    file.truncate(0)
    append(file, b"n" * 9000)
    for found in outcomes(disk, content(A)):
        assert isinstance(found, bytes)
        assert not (b"o" in found and b"n" in found)


def test_the_tail_of_a_page_that_was_cut_may_be_overwritten_before_the_cut() -> None:
    disk = durable_disk(a=b"o" * 700)
    file = disk.open(A)
    file.truncate(512)
    append(file, b"n" * 100)
    assert b"o" * 512 + b"n" * 100 + bytes(88) in outcomes(disk, content(A))


def test_no_later_sync_writes_what_a_failed_sync_did_not() -> None:
    disk = durable_disk(a=b"")
    file = disk.open(A)
    append(file, b"lost?")
    disk.fail("sync", times=1)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    assert outcomes(disk, content(A)) == {bytes(5), b"lost?"}
    append(file, b" more")
    file.sync()
    assert outcomes(disk, content(A)) == {
        b"lost? more"
    }  # the page was written again, and so all of it is synced


def test_data_lost_by_a_failed_sync_stays_lost_until_its_page_is_written_again() -> None:
    disk = durable_disk(a=b"o" * 9000)
    file = disk.open(A)
    file.pwrite(b"n" * 100, 0)
    disk.fail("sync", times=1)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.pwrite(b"p" * 100, 8192)
    file.sync()
    end = b"o" * 8092 + b"p" * 100 + b"o" * 708
    assert outcomes(disk, content(A)) == {b"o" * 100 + end, b"n" * 100 + end}
    file.pwrite(b"n" * 100, 0)
    file.sync()
    assert outcomes(disk, content(A)) == {b"n" * 100 + end}


def test_data_truncated_after_a_failed_sync_does_not_come_back() -> None:
    disk = durable_disk(a=b"")
    file = disk.open(A)
    append(file, b"l" * 9000)
    disk.fail("sync", times=1)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.truncate(4096)
    append(file, b"n" * 50)
    file.sync()
    found = outcomes(disk, content(A))
    assert found >= {bytes(4096) + b"n" * 50, b"l" * 4096 + b"n" * 50}
    assert all(isinstance(one, bytes) and one.endswith(b"n" * 50) and len(one) == 4146 for one in found)


# -- names -------------------------------------------------------------------------------------------------


def test_a_synced_file_without_a_synced_name_may_be_lost() -> None:
    disk = durable_disk()
    file = disk.open(A, create=True)
    append(file, b"x")
    file.sync()
    assert outcomes(disk, content(A)) == {None, b"x"}
    disk.sync_dir(DIR)
    assert outcomes(disk, content(A)) == {b"x"}


def test_a_rename_is_atomic() -> None:
    disk = durable_disk(a=b"new", b=b"old")
    disk.rename(A, B)
    look = lambda disk: (content(A)(disk), content(B)(disk))  # noqa: E731
    assert outcomes(disk, look) == {(b"new", b"old"), (None, b"new")}
    disk.sync_dir(DIR)
    assert outcomes(disk, look) == {(None, b"new")}


def test_names_of_a_directory_keep_the_order_of_their_changes_and_directories_keep_none() -> None:
    disk = durable_disk(a=b"a", b=b"b")
    other = Path("/e")
    disk.mkdir(other)
    disk.sync_dir(Path("/"))
    disk.remove(A)
    disk.open(other / "c", create=True).close()
    disk.open(A, create=True).close()
    disk.remove(B)
    seen = outcomes(disk, lambda disk: (content(A)(disk), disk.exists(B), disk.exists(other / "c")))
    in_order = [(b"a", True), (None, True), (b"", True), (b"", False)]
    assert seen == {(*state, there) for state in in_order for there in (True, False)}


def test_an_atomic_write_leaves_the_old_or_the_new_and_when_it_returns_the_new() -> None:
    disk = durable_disk(a=b"old")
    start, disk.journal = disk.copy(), []
    disk.write_atomic(A, b"new" * 1000)
    seen = set()
    for moment in moments(start, disk.journal):
        for seed in range(40):
            seen.add(moment.after_power_failure(Random(seed)).read_bytes(A))
    assert seen == {b"old", b"new" * 1000}
    assert outcomes(disk, content(A)) == {b"new" * 1000}


def test_a_directory_whose_name_was_not_synced_is_lost_with_its_contents() -> None:
    disk = durable_disk()
    disk.mkdir(DIR / "sub")
    disk.write_atomic(DIR / "sub" / "a", b"x")
    assert outcomes(disk, lambda disk: disk.exists(DIR / "sub" / "a")) == {False, True}
    disk.sync_dir(DIR)
    assert outcomes(disk, lambda disk: disk.exists(DIR / "sub" / "a")) == {True}


# -- processes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [lambda disk: disk.kill(), lambda disk: disk.crash(Random(1))])
def test_handles_and_locks_end_with_their_process(end: Callable[[SimDisk], None]) -> None:
    disk = durable_disk(a=b"x")
    file = disk.open(A)
    lock = disk.lock(DIR / ".lock")
    end(disk)
    for act in (lambda: file.pread(1, 0), lambda: append(file, b"y"), file.sync, lambda: file.size_bytes):
        with pytest.raises(OSError, match="Bad file descriptor"):
            act()
    again = disk.lock(DIR / ".lock")
    lock.release()
    with pytest.raises(DiskLocked):
        disk.lock(DIR / ".lock")
    again.release()
    file.close()
    disk.open(A).close()


def test_a_killed_process_loses_nothing_that_it_wrote() -> None:
    disk = durable_disk()
    append(disk.open(A, create=True), b"x")
    disk.kill()
    assert disk.read_bytes(A) == b"x"


# -- faults ------------------------------------------------------------------------------------------------


def test_the_nth_write_fails_and_leaves_half_of_itself() -> None:
    disk = durable_disk(a=b"", b=b"")
    file, other = disk.open(A), disk.open(B)
    fault = disk.fail("write", errno.ENOSPC, path="/d/a", after=1, times=1)
    append(file, b"11")
    append(other, b"xx")
    with pytest.raises(OSError, match="No space left"):
        append(file, b"2222")
    append(file, b"33")
    assert (disk.read_bytes(A), fault.fired) == (b"112233", 1)


def test_faults_are_chosen_by_path_and_healed() -> None:
    disk = durable_disk(a=b"")
    disk.fail("*", path="/d/*")
    for act in (
        lambda: disk.open(A),
        lambda: disk.mkdir(DIR / "sub"),
        lambda: disk.lock(DIR / "l"),
        lambda: disk.remove(A),
    ):
        with pytest.raises(OSError, match="Input/output error"):
            act()
    disk.mkdir(Path("/other"))
    disk.heal()
    disk.open(A).close()
    with pytest.raises(ValueError, match="unknown operation 'flush'"):
        disk.fail("flush")


def test_a_full_disk_writes_what_fits_and_has_space_again_after_a_removal() -> None:
    disk = durable_disk(a=b"x" * 60)
    disk.capacity_bytes = 100
    file = disk.open(B, create=True)
    with pytest.raises(OSError, match="No space left"):
        append(file, b"y" * 50)
    assert file.size_bytes == 40
    file.pwrite(b"zz", 0)
    disk.remove(A)
    append(file, b"y" * 60)
    assert disk.used_bytes == 100


def test_a_hook_sees_every_operation_and_may_raise() -> None:
    disk = durable_disk(a=b"")
    seen: list[tuple[str, str]] = []
    disk.on_operation = lambda operation, path: seen.append((operation, path.name))
    file = disk.open(A)
    append(file, b"x")
    file.sync()
    disk.rename(A, B)
    assert seen == [("open", "a"), ("write", "a"), ("sync", "a"), ("rename", "a")]


# -- history -----------------------------------------------------------------------------------------------


def test_the_disk_can_be_rebuilt_for_every_moment_of_its_history() -> None:
    disk = durable_disk(a=b"")
    start, disk.journal = disk.copy(), []
    file = disk.open(A)
    states = [disk.read_bytes(A)]
    for number in range(5):
        append(file, bytes([number]) * 700)
        states.append(disk.read_bytes(A))
    assert [moment.after_kill().read_bytes(A) for moment in moments(start, disk.journal)] == states
    assert start.read_bytes(A) == b""


def test_a_process_may_end_in_the_middle_of_a_write() -> None:
    disk = durable_disk(a=b"")
    start, disk.journal = disk.copy(), []
    append(disk.open(A), b"x" * 1100)
    *_, last = moments(start, disk.journal)
    seen = {len(last.after_kill(Random(seed)).read_bytes(A)) for seed in range(30)}
    assert seen == {0, 512, 1024}


def test_a_copy_changes_independently() -> None:
    disk = durable_disk(a=b"x")
    other = disk.copy()
    append(other.open(A), b"other")
    append(disk.open(A), b"y")
    assert (disk.read_bytes(A), other.read_bytes(A)) == (b"xy", b"xother")


def test_the_same_seed_leaves_the_same_data() -> None:
    def run(seed: int) -> list[tuple[str, bytes]]:
        disk = durable_disk()
        chance = Random(seed)
        for _ in range(40):
            path = DIR / chance.choice("abc")
            file = disk.open(path, create=True)
            file.pwrite(chance.randbytes(1000), chance.randrange(3000))
            if chance.randrange(4) == 0:
                file.sync()
        disk.crash(chance)
        return [(name, disk.read_bytes(DIR / name)) for name in disk.listdir(DIR)]

    assert run(5) == run(5)
    assert len({str(run(seed)) for seed in range(10)}) > 5


def test_files_without_a_name_are_forgotten() -> None:
    disk = durable_disk()
    for _ in range(1000):
        append(disk.open(A, create=True), b"x" * 100)
        disk.sync_dir(DIR)
        disk.remove(A)
        disk.sync_dir(DIR)
    assert len(disk.contents.nodes) < 300


def test_the_disk_reports_its_size_and_free_space() -> None:
    disk = SimDisk(capacity_bytes=1000)
    append(disk.open(Path("/file"), create=True), b"x" * 300)
    volume = disk.volume(Path("/"))
    assert (volume.total_bytes, volume.usable_bytes) == (1000, 700)
