"""The files of the embedded store at a start: warnings, refusals, gaps, and repairs."""

from __future__ import annotations

import asyncio
import logging
import struct
from pathlib import Path
from zlib import crc32

import pytest

from felice.env import SystemDisk
from felice.metadata.embedded import EmbeddedStore
from felice.metadata.frames import read_frames
from felice.metadata.store_files import CorruptStore, load_tree, read_contents, repair

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
        logging.WARNING, str(journal), start, len(whole) - 5 - start,
    )  # fmt: skip


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


def test_repair_cuts_only_when_told_to(store: Path) -> None:
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
