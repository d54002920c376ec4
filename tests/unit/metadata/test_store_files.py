"""The files of the embedded store at a start: warnings, refusals, gaps, and repairs."""

from __future__ import annotations

import asyncio
import errno
import logging
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

from felice.env import SystemDisk
from felice.metadata.embedded import EmbeddedStore
from felice.metadata.frames import read_frames
from felice.metadata.store import StoreUnavailable
from felice.metadata.store_files import CorruptStore, load_tree, read_contents, repair
from felice.testing.simulation.disk import SimDisk

DISK = SystemDisk()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with the nodes `/n0` to `/n3`, each one write."""
    asyncio.run(_fill(tmp_path))
    return tmp_path


async def _fill(directory: Path) -> None:
    opened = EmbeddedStore.open(DISK, directory)
    for number in range(4):
        await opened.create(f"/n{number}", b"value %d" % number)
    await opened.close()


def _names(directory: Path) -> list[str]:
    return load_tree(DISK, directory).children("/")


def _to_version_1(journal: Path) -> None:
    frames = read_frames(journal.read_bytes()).frames
    bodies = [frame.body for frame in frames]
    journal.write_bytes(b"".join(struct.pack(">II", len(body), crc32(body)) + body for body in bodies))


@pytest.mark.parametrize("version", [1, 2])
def test_no_flipped_bit_loses_a_node(store: Path, version: int) -> None:
    journal = store / "journal"
    if version == 1:
        _to_version_1(journal)
    whole = journal.read_bytes()
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        journal.write_bytes(flipped)
        with pytest.raises(CorruptStore, match=r"is damaged at byte \d+ of"):
            load_tree(DISK, store)
        assert journal.read_bytes() == flipped


def test_a_journal_of_version_1_is_read_and_written_on(store: Path) -> None:
    _to_version_1(store / "journal")

    async def more() -> None:
        opened = EmbeddedStore.open(DISK, store)
        await opened.create("/more")
        await opened.close()

    asyncio.run(more())
    assert _names(store) == ["more", "n0", "n1", "n2", "n3"]
    versions = [frame.version for frame in read_frames((store / "journal").read_bytes()).frames]
    assert versions == [1, 1, 1, 1, 2]


def test_a_dropped_tail_is_logged_with_path_offset_and_size(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = store / "journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-5])
    start = read_frames(whole).frames[-1].start
    with caplog.at_level(logging.WARNING):
        assert _names(store) == ["n0", "n1", "n2"]
    (record,) = caplog.records
    assert (record.levelno, record.path, record.offset, record.bytes) == (  # type: ignore[attr-defined]
        logging.WARNING,
        str(journal),
        start,
        len(whole) - 5 - start,
    )


def test_the_refusal_is_one_line_that_names_the_commands(store: Path) -> None:
    journal = store / "journal"
    damaged = bytearray(journal.read_bytes())
    damaged[4] ^= 0x40
    journal.write_bytes(damaged)
    with pytest.raises(CorruptStore) as caught:
        load_tree(DISK, store)
    text = str(caught.value)
    assert "\n" not in text
    assert "byte 0 of" in text and f"felice metadata journal repair {store}" in text


def test_missing_writes_are_refused(store: Path) -> None:
    journal = store / "journal"
    whole = journal.read_bytes()
    second = read_frames(whole).frames[1]
    journal.write_bytes(whole[: second.start] + whole[second.end :])
    with pytest.raises(CorruptStore, match="the writes 2 to 2 are missing"):
        load_tree(DISK, store)


def _compact(directory: Path) -> None:
    async def act() -> None:
        opened = EmbeddedStore.open(DISK, directory)
        opened.compact()
        await opened.create("/later")
        await opened.close()

    asyncio.run(act())


def test_a_journal_without_its_snapshot_is_refused(store: Path) -> None:
    _compact(store)
    (store / "snapshot").unlink()
    with pytest.raises(CorruptStore, match="the writes 1 to 4 are missing"):
        load_tree(DISK, store)


def test_a_snapshot_without_its_journal_is_refused(store: Path) -> None:
    _compact(store)
    (store / "journal").unlink()
    with pytest.raises(CorruptStore, match="missing beside a snapshot"):
        EmbeddedStore.open(DISK, store)
    (store / "journal").write_bytes(b"")
    assert _names(store) == ["n0", "n1", "n2", "n3"]


@pytest.mark.parametrize("version", [1, 2])
def test_repair_keeps_frames_with_damaged_headers(store: Path, version: int) -> None:
    journal = store / "journal"
    if version == 1:
        _to_version_1(journal)
    damaged = bytearray(journal.read_bytes())
    for frame in read_frames(bytes(damaged)).frames[:3:2]:
        damaged[frame.start + (4 if version == 2 else 0)] ^= 0x40
    journal.write_bytes(damaged)
    done = repair(DISK, store, cut=False)
    assert (done.recovered, done.dropped_bytes, done.dropped) == (2, 0, ())
    assert _names(store) == ["n0", "n1", "n2", "n3"]
    assert done.copy is not None and done.copy.read_bytes() == damaged


def test_repair_truncates_only_on_request(store: Path) -> None:
    journal = store / "journal"
    damaged = bytearray(journal.read_bytes())
    second = read_frames(bytes(damaged)).frames[1]
    damaged[second.end - 1] ^= 1
    journal.write_bytes(damaged)
    with pytest.raises(CorruptStore, match="with --cut"):
        repair(DISK, store, cut=False)
    assert journal.read_bytes() == damaged
    done = repair(DISK, store, cut=True)
    assert (done.recovered, done.dropped_bytes) == (0, len(damaged) - second.start)
    assert [frame.zxid for frame in done.dropped] == [3, 4]
    assert _names(store) == ["n0"]
    assert done.copy is not None and done.copy.read_bytes() == damaged


def test_repair_of_a_whole_journal_changes_nothing(store: Path) -> None:
    before = (store / "journal").read_bytes()
    assert repair(DISK, store, cut=True).copy is None
    assert (store / "journal").read_bytes() == before
    assert sorted(path.name for path in store.iterdir()) == ["journal"]


def test_reading_changes_nothing(store: Path) -> None:
    journal = store / "journal"
    journal.write_bytes(journal.read_bytes()[:-5])
    before = journal.read_bytes()
    assert read_contents(DISK, store).tree.children("/") == ["n0", "n1", "n2"]
    assert journal.read_bytes() == before


def test_a_copy_of_the_journal_and_then_of_the_snapshot_is_whole(store: Path, tmp_path: Path) -> None:
    """The order of docs/backup.md: a compaction may come between the two."""
    journal = (store / "journal").read_bytes()
    _compact(store)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "journal").write_bytes(journal)
    (copy / "snapshot").write_bytes((store / "snapshot").read_bytes())
    assert read_contents(DISK, copy).tree.children("/") == ["n0", "n1", "n2", "n3"]
    # In the other order the snapshot would be an older one, or none.
    (copy / "snapshot").unlink()
    (copy / "journal").write_bytes((store / "journal").read_bytes())
    with pytest.raises(CorruptStore, match="are missing"):
        load_tree(DISK, copy)


def test_a_start_brings_the_journal_to_disk_before_it_builds_on_it(store: Path) -> None:
    """If a sync failed in an earlier run, the frames may be only in the page cache."""
    directory = Path("/metadata")
    for seed in range(20):
        disk = SimDisk()
        disk.mkdir(directory)
        disk.open(directory / "journal", create=True).pwrite((store / "journal").read_bytes(), 0)
        disk.sync_dir(directory)
        disk.sync_dir(directory.parent)
        load_tree(disk, directory)
        disk.crash(Random(seed))
        assert load_tree(disk, directory).children("/") == ["n0", "n1", "n2", "n3"], seed


@pytest.mark.parametrize("change", [lambda data: b"", lambda data: data + b"\0", lambda data: data * 2])
def test_a_snapshot_is_one_whole_frame(store: Path, change: Callable[[bytes], bytes]) -> None:
    _compact(store)
    snapshot = store / "snapshot"
    snapshot.write_bytes(change(snapshot.read_bytes()))
    with pytest.raises(CorruptStore, match="snapshot is damaged"):
        load_tree(DISK, store)


def test_leftovers_of_a_compacted_journal_are_no_damage(store: Path) -> None:
    leftovers = (store / "journal").read_bytes()
    _compact(store)
    (store / "journal").write_bytes(bytes(512) + leftovers)
    assert _names(store) == ["n0", "n1", "n2", "n3"]


def test_repair_behind_a_snapshot(store: Path) -> None:
    _compact(store)
    journal = store / "journal"
    for number in (1, 2):
        damaged = bytearray(journal.read_bytes())
        damaged[4] ^= 0x40
        journal.write_bytes(damaged)
        done = repair(DISK, store, cut=False)
        assert (done.recovered, done.copy) == (1, store / f"journal.damaged-{number}")
        assert _names(store) == ["later", "n0", "n1", "n2", "n3"]


def test_repair_does_not_pass_over_missing_writes(store: Path) -> None:
    journal = store / "journal"
    data = bytearray(journal.read_bytes())
    second = read_frames(bytes(data)).frames[1]
    data[4] ^= 0x40
    journal.write_bytes(data[: second.start] + data[second.end :])
    with pytest.raises(CorruptStore, match=r"the writes 2 to 2 are missing.*with --cut"):
        repair(DISK, store, cut=False)
    done = repair(DISK, store, cut=True)
    assert (done.recovered, [frame.zxid for frame in done.dropped]) == (1, [3, 4])
    assert _names(store) == ["n0"]


def test_the_emptied_journal_is_on_disk_before_the_next_write() -> None:
    """Otherwise a power failure could mix the next write with older ones, which would look like damage."""

    async def compacted(disk: SimDisk) -> None:
        opened = EmbeddedStore.open(disk, Path("/metadata"))
        await opened.create("/a", b"x" * 2000)
        opened.compact()

    for seed in range(20):
        disk = SimDisk()
        asyncio.run(compacted(disk))
        disk.crash(Random(seed))
        assert disk.read_bytes(Path("/metadata/journal")) == b"", seed


def test_bytes_of_a_failed_write_are_cut_off_on_disk() -> None:
    async def scenario(disk: SimDisk) -> None:
        opened = EmbeddedStore.open(disk, Path("/metadata"))
        await opened.create("/a")
        before = opened._journal.size_bytes
        operations: list[str] = []
        disk.fail("write", errno.ENOSPC, path="*/journal", times=1)
        disk.on_operation = lambda operation, path: operations.append(operation)
        with pytest.raises(StoreUnavailable):
            await opened.create("/b")
        assert (opened._journal.size_bytes, operations) == (before, ["write", "truncate", "sync"])
        await opened.create("/b")

    asyncio.run(scenario(SimDisk()))
