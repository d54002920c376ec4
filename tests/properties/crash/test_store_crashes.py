"""If the power fails at any moment, the embedded metadata store holds every acknowledged write."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from felice.metadata import Create, Delete, SetData
from felice.metadata.embedded import EmbeddedStore
from felice.testing.simulation.disk import SimDisk
from felice.testing.simulation.replay import moments
from properties.crash.seeds import SEEDS

DIRECTORY = Path("/data/metadata")
Tree = dict[str, bytes]


async def tree_of(store: EmbeddedStore) -> Tree:
    found = {}
    for name in await store.children("/"):
        node = await store.exists(f"/{name}")
        assert node is not None
        found[name] = node.data
    return found


async def history(random: Random) -> tuple[SimDisk, SimDisk, list[tuple[int, Tree]]]:
    """A store that is written, compacted and reopened, and its content after each number of changes of the disk."""
    disk = SimDisk()
    disk.mkdir(DIRECTORY.parent)
    disk.sync_dir(Path("/"))
    start, disk.journal = disk.copy(), []
    store = EmbeddedStore.open(disk, DIRECTORY)
    truths = [(0, await tree_of(store))]
    for _ in range(60):
        await change(store, random)
        truths.append((len(disk.journal), await tree_of(store)))
        if random.randrange(8) == 0:
            store.compact()
        if random.randrange(12) == 0:
            await store.close()
            store = EmbeddedStore.open(disk, DIRECTORY)
    return start, disk, truths


async def change(store: EmbeddedStore, random: Random) -> None:
    """Writes one to three nodes, all or none."""
    held = await tree_of(store)
    operations: list[Any] = []
    for name in random.sample("abcdefgh", random.randrange(1, 4)):
        data = random.randbytes(random.choice((3, 40, 700)))
        if name not in held:
            operations.append(Create(f"/{name}", data))
        elif random.randrange(3):
            operations.append(SetData(f"/{name}", data))
        else:
            operations.append(Delete(f"/{name}"))
    await store.multi(operations)


async def opened(disk: SimDisk) -> Tree:
    store = EmbeddedStore.open(disk, DIRECTORY)
    found = await tree_of(store)
    await store.create("/next", b"")
    await store.close()
    again = EmbeddedStore.open(disk, DIRECTORY)
    assert await tree_of(again) == {**found, "next": b""}
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_writes_survive_whole_and_in_order(seed: int) -> None:
    async def prove() -> None:
        start, disk, truths = await history(Random(seed))
        assert disk.journal is not None
        for moment in moments(start, disk.journal):
            done = max(number for number, (count, _) in enumerate(truths) if count <= moment.count)
            allowed = [tree for _, tree in truths[done : done + 2]]
            for number in range(3):
                random = Random(f"{seed} {moment.count} {number}")
                assert await opened(moment.after_power_failure(random)) in allowed, (
                    moment.count,
                    moment.last,
                )
            assert await opened(moment.after_kill(Random(moment.count))) in [
                truths[max(done - 1, 0)][1],
                *allowed,
            ]

    asyncio.run(prove())
