"""The embedded store on disk: crashes, torn tails, damage, compaction."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from felice.env import File, SystemDisk
from felice.metadata import Create, NodeExists, SessionExpired
from felice.metadata.embedded import EmbeddedStore
from felice.metadata.store import StoreUnavailable
from felice.metadata.store_files import CorruptStore
from felice.testing.simulation.disk import SimDisk


async def _fill(directory: Path, count: int = 3) -> None:
    """Writes `/n0` and more nodes, and crashes: the store is not closed."""
    store = EmbeddedStore.open(SystemDisk(), directory)
    for number in range(count):
        await store.create(f"/n{number}", b"value %d" % number)
    await store.create("/ephemeral", ephemeral=True)
    store._journal.close()


def _names(directory: Path) -> list[str]:
    async def read() -> list[str]:
        store = EmbeddedStore.open(SystemDisk(), directory)
        names = await store.children("/")
        await store.close()
        return names

    return asyncio.run(read())


def test_acknowledged_writes_survive_a_crash_and_ephemeral_nodes_do_not(tmp_path: Path) -> None:
    asyncio.run(_fill(tmp_path / "m"))
    assert _names(tmp_path / "m") == ["n0", "n1", "n2"]


def test_a_torn_tail_is_cut_at_every_length(tmp_path: Path) -> None:
    asyncio.run(_fill(tmp_path / "m"))
    journal = tmp_path / "m" / "journal"
    whole = journal.read_bytes()
    for size in range(len(whole)):
        journal.write_bytes(whole[:size])
        names = _names(tmp_path / "m")
        assert names == ["n0", "n1", "n2"][: len(names)]


def test_a_tail_of_zeros_is_cut(tmp_path: Path) -> None:
    asyncio.run(_fill(tmp_path / "m"))
    journal = tmp_path / "m" / "journal"
    journal.write_bytes(journal.read_bytes() + bytes(4096))
    assert _names(tmp_path / "m") == ["n0", "n1", "n2"]
    assert _names(tmp_path / "m") == ["n0", "n1", "n2"]


def test_writes_after_a_cut_are_kept(tmp_path: Path) -> None:
    asyncio.run(_fill(tmp_path / "m", 1))
    journal = tmp_path / "m" / "journal"
    journal.write_bytes(journal.read_bytes() + b"\0\0\0\x40torn")
    asyncio.run(_more(tmp_path / "m"))
    assert _names(tmp_path / "m") == ["more", "n0"]


async def _more(directory: Path) -> None:
    store = EmbeddedStore.open(SystemDisk(), directory)
    await store.create("/more")
    with pytest.raises(NodeExists):
        await store.create("/n0")
    await store.close()


def test_damage_before_the_tail_is_refused_with_file_and_position(tmp_path: Path) -> None:
    asyncio.run(_fill(tmp_path / "m"))
    journal = tmp_path / "m" / "journal"
    damaged = bytearray(journal.read_bytes())
    damaged[20] ^= 1
    journal.write_bytes(damaged)
    with pytest.raises(CorruptStore, match="journal is damaged at byte 0 of"):
        _names(tmp_path / "m")


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    async def compacted() -> None:
        store = EmbeddedStore.open(SystemDisk(), tmp_path / "m")
        await store.create("/a")
        store.compact()
        await store.close()

    asyncio.run(compacted())
    snapshot = tmp_path / "m" / "snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    with pytest.raises(CorruptStore, match="snapshot"):
        _names(tmp_path / "m")


def test_compaction_keeps_data_versions_and_sequence_numbers(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = EmbeddedStore.open(SystemDisk(), tmp_path / "m")
        await store.multi([Create("/q"), Create("/q/s", sequential=True), Create("/a", b"x")])
        await store.set("/a", b"y")
        before = await store.get("/a")
        store.compact()
        await store.create("/after")
        await store.close()
        again = EmbeddedStore.open(SystemDisk(), tmp_path / "m")
        assert await again.get("/a") == before
        assert await again.children("/") == ["a", "after", "q"]
        assert await again.create("/q/s", sequential=True) == "/q/s0000000001"
        assert (await again.get("/q/s0000000001")).created_zxid > before.modified_zxid
        await again.close()

    asyncio.run(scenario())


def test_a_crash_between_snapshot_and_emptying_the_journal_does_no_harm(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = EmbeddedStore.open(SystemDisk(), tmp_path / "m")
        await store.create("/a", b"x")
        await store.set("/a", b"y")
        before = await store.get("/a")
        journal = (tmp_path / "m" / "journal").read_bytes()
        store.compact()
        await store.close()
        (tmp_path / "m" / "journal").write_bytes(journal)
        again = EmbeddedStore.open(SystemDisk(), tmp_path / "m")
        assert await again.get("/a") == before
        await again.close()

    asyncio.run(scenario())


def test_the_journal_may_grow_to_four_snapshots_after_a_restart_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = EmbeddedStore.open(SystemDisk(), tmp_path / "m")
        await store.create("/a", b"x" * 600_000)
        store.compact()
        await store.close()
        again = EmbeddedStore.open(SystemDisk(), tmp_path / "m")
        await again.create("/b")
        for number in range(12):
            await again.set("/b", bytes([number]) * 100_000)
        assert (tmp_path / "m" / "journal").stat().st_size > 1_200_000
        await again.close()

    asyncio.run(scenario())


def test_the_journal_is_compacted_when_it_outgrows_the_tree(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = EmbeddedStore.open(SystemDisk(), tmp_path / "m")
        await store.create("/a")
        for number in range(12):
            await store.set("/a", bytes([number]) * 100_000)
        assert (tmp_path / "m" / "journal").stat().st_size < 1_100_000
        await store.close()
        again = EmbeddedStore.open(SystemDisk(), tmp_path / "m")
        assert (await again.get("/a")).data[:1] == bytes([11])
        await again.close()

    asyncio.run(scenario())


def test_others_go_on_while_a_snapshot_is_written(tmp_path: Path) -> None:
    """A snapshot grows with the tree and waits for the disk, so the event loop must not write it."""

    class SlowDisk(SystemDisk):
        def write_atomic(self, path: Path, data: bytes, *, sync_name: bool = True) -> None:
            assert threading.current_thread() is not threading.main_thread()
            super().write_atomic(path, data, sync_name=sync_name)

    async def scenario() -> None:
        store = EmbeddedStore.open(SlowDisk(), tmp_path / "m")
        await store.create("/a")
        for number in range(12):
            await asyncio.gather(
                store.set("/a", bytes([number]) * 100_000), store.create(f"/n{number}"), store.get("/a")
            )
        await store.close()

    asyncio.run(scenario())
    assert (tmp_path / "m" / "snapshot").exists()
    assert len(_names(tmp_path / "m")) == 13


def test_a_store_without_a_connection_is_closed_anyway(tmp_path: Path) -> None:
    """If the disk is full, the ephemeral nodes are deleted when the store is opened again."""

    async def scenario() -> None:
        store = EmbeddedStore.open(SystemDisk(), tmp_path / "m")
        await store.multi([Create("/a"), Create("/e", ephemeral=True)])
        journal = store._journal
        store._journal = FullFile(journal)  # type: ignore[assignment]
        await store.close()
        with pytest.raises(SessionExpired):
            await store.get("/a")
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(journal.fileno())

    asyncio.run(scenario())
    assert _names(tmp_path / "m") == ["a"]


class FullFile:
    """A journal on a full disk."""

    def __init__(self, file: File) -> None:
        self._file = file

    def pwrite(self, data: bytes, position: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_cancelled_caller_leaves_no_write_half_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = EmbeddedStore.open(SystemDisk(), tmp_path / "m")
        task = asyncio.ensure_future(store.create("/a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.create("/b")
        assert await store.children("/") == ["a", "b"]
        await store.close()

    asyncio.run(scenario())
    assert _names(tmp_path / "m") == ["a", "b"]


def test_the_next_start_writes_the_pages_again_that_a_failed_sync_left() -> None:
    disk, directory = SimDisk(), Path("/m")

    async def write(*names: str) -> None:
        store = EmbeddedStore.open(disk, directory)
        for name in names:
            await store.create(f"/{name}", b"v" * 5000)

    async def fail() -> None:
        disk.fail("sync", path="*/journal", times=1, after=1)
        with pytest.raises(StoreUnavailable):
            await write("a", "b")
        disk.kill()

    asyncio.run(fail())
    asyncio.run(write("c", "d"))
    for seed in range(40):
        after = disk.copy()
        after.crash(Random(seed))
        assert asyncio.run(EmbeddedStore.open(after, directory).children("/")) == ["a", "b", "c", "d"]
