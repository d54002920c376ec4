"""`python -m bench.scale`: simulated clusters of many brokers and partitions, and what their metadata costs.

Each size runs in a process of its own, on virtual time. The brokers are whole: logs on simulated disks, fetchers,
controllers. Each size goes through the same phases; see `Phases`.

Virtual time has the network, the session timeouts and the waits of the code, but no computation: the processor time
beside it says how long the brokers of the cluster computed, all together, simulation included.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import click
from rich.console import Console
from rich.table import Table

from bench.scale_cluster import CountingEnsemble, QuietWorld
from felice.client.admin.model import NewTopic
from felice.client.aio import Admin
from felice.metadata import layout
from felice.metadata.image import ClusterImage
from felice.metadata.layout import StateNode, TopicNode
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.metadata.store import Create
from felice.metadata.watcher import Watcher
from felice.server.process.local_cluster import local_settings
from felice.testing.simulation.world import BrokerMachine

SESSION_TIMEOUT_S = 18.0
_POLL_S = 0.1
_LIMIT_S = 100_000.0
_PHASE_LIMIT_S = 3_000.0
_TOPICS_A_REQUEST = 20
REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Size:
    """How large a cluster is."""

    brokers: int
    partitions: int
    partitions_a_topic: int = 100

    @property
    def topics(self) -> int:
        return -(-self.partitions // self.partitions_a_topic)


@dataclass(frozen=True, slots=True)
class Phase:
    """What one phase cost. `events` are those of watches, of all brokers together."""

    brokers: int
    partitions: int
    phase: str
    virtual_s: float
    cpu_s: float
    # The longest time, of the processor, that one callback held the event loop of its broker.
    longest_hold_s: float
    resident_mib: float
    transactions: int
    nodes_written: int
    bytes_written: int
    events: int
    event_bytes: int
    nodes_read: int
    read_bytes: int


class ScaleRun:
    """One cluster, and the phases that it goes through."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.phases: list[Phase] = []
        self._world = QuietWorld(1, limit_s=_LIMIT_S)
        self._ensemble = CountingEnsemble(self._world, timeout_s=SESSION_TIMEOUT_S)
        self._states = self._ensemble.states
        settings = {**local_settings(REPLICAS), "auto.leader.rebalance.enable": "false"}
        self._brokers: dict[int, BrokerMachine] = {
            number: self._world.broker(f"b{number}", settings, node_id=number, ensemble=self._ensemble)
            for number in range(1, size.brokers + 1)
        }

    def run(self) -> list[Phase]:
        self._world.run(self._all_phases())
        if self._world.errors:
            raise RuntimeError("\n".join(self._world.errors[:3]))
        return self.phases

    async def _all_phases(self) -> None:
        await self._measured("first start, empty", self._start_all)
        await self._measured("create all partitions", self._create)
        dead = self._not_the_controller()
        await self._measured("loss of a broker", lambda: self._lose(dead))
        await self._measured("return of that broker", lambda: self._return(dead))
        controller = self._controller()
        await self._measured("loss of the controller", lambda: self._lose(controller))
        await self._measured("return of that broker ", lambda: self._return(controller))
        rolled = list(self._brokers)[: min(len(self._brokers), 3)]
        await self._measured(f"rolling restart of {len(rolled)}", lambda: self._roll(rolled))
        await self._measured("all connections to the store break", self._cut_all)
        await self._measured("clean stop of all", self._stop_all)
        await self._measured("start of all", self._start_all)
        await self._measured("10 idle seconds", lambda: asyncio.sleep(10))

    async def _measured(self, name: str, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        gc.collect()
        loop, traffic = self._world.loop, self._ensemble.traffic.copy()
        virtual_s, cpu_s = loop.time(), time.process_time()
        self._world.longest_hold_s = 0.0
        await act()
        await self._until(self._all_images_are_current)
        counted = self._ensemble.traffic.since(traffic)
        phase = Phase(
            self.size.brokers,
            self.size.partitions,
            name.strip(),
            loop.time() - virtual_s,
            time.process_time() - cpu_s,
            self._world.longest_hold_s,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            *asdict(counted).values(),
        )
        self.phases.append(phase)
        print(json.dumps(asdict(phase)), flush=True)

    async def _until(self, condition: Callable[[], bool]) -> None:
        deadline = self._world.loop.time() + _PHASE_LIMIT_S
        while not condition():
            if self._world.loop.time() > deadline:
                raise RuntimeError(f"{condition.__name__} was not reached")
            await asyncio.sleep(_POLL_S)

    # Phases

    async def _start_all(self) -> None:
        await asyncio.gather(*(machine.start() for machine in self._brokers.values()))
        await self._until(self._all_know_each_other)
        await self._until(self._is_whole)

    async def _stop_all(self) -> None:
        await asyncio.gather(*(machine.stop() for machine in self._brokers.values()))

    async def _create(self) -> None:
        client = self._world.machine("admin").boot()
        await client.run(self._create_from(client.env))
        await self._until(self._is_whole)

    async def _create_from(self, env: Any) -> None:
        bootstrap = ",".join(machine.bootstrap for machine in list(self._brokers.values())[:3])
        async with Admin({"bootstrap.servers": bootstrap}, env=env) as admin:
            names = [f"topic-{number:05}" for number in range(self.size.topics)]
            for start in range(0, len(names), _TOPICS_A_REQUEST):
                topics = [
                    NewTopic(name, self.size.partitions_a_topic, REPLICAS)
                    for name in names[start : start + _TOPICS_A_REQUEST]
                ]
                await admin.create_topics(topics, timeout_s=600)

    async def _lose(self, broker_id: int) -> None:
        self._brokers[broker_id].kill()
        await self._until(lambda: self._states.led_by.get(broker_id, 0) == 0)

    async def _return(self, broker_id: int) -> None:
        await self._brokers[broker_id].start()
        await self._until(self._is_whole)

    async def _roll(self, broker_ids: list[int]) -> None:
        for broker_id in broker_ids:
            await self._brokers[broker_id].stop()
            await self._return(broker_id)

    async def _cut_all(self) -> None:
        for machine in self._brokers.values():
            self._ensemble.cut(machine.name)
        # The sessions answer pings again, and then the brokers read everything.
        await asyncio.sleep(SESSION_TIMEOUT_S / 2)

    # Conditions

    def _running(self) -> list[BrokerMachine]:
        return [machine for machine in self._brokers.values() if machine.is_running]

    def _images(self) -> list[ClusterImage]:
        return [machine.broker.image for machine in self._running() if machine.broker is not None]

    def _all_know_each_other(self) -> bool:
        return all(len(image.brokers) == len(self._brokers) for image in self._images())

    def _is_whole(self) -> bool:
        """Whether every partition has a leader and all its replicas in sync."""
        states = self._states
        in_sync = sum(states.in_sync.values())
        return states.led_by.get(-1, 0) == 0 and in_sync == len(states.by_path) * REPLICAS

    def _all_images_are_current(self) -> bool:
        """Whether every broker knows the partition state that was written last."""
        path = self._states.last_path
        if not path:
            return True
        node = self._ensemble.tree.get(path)
        topic, partition = path.split("/")[3], int(path.split("/")[5])
        found = [image.partition(topic, partition) for image in self._images()]
        return all(one is not None and one.partition_epoch >= node.version for one in found)

    def _controller(self) -> int:
        node = self._ensemble.tree.get(layout.CONTROLLER)
        return layout.decode_controller(node.data)

    def _not_the_controller(self) -> int:
        return max(number for number in self._brokers if number != self._controller())


# The memory of one image


@dataclass(frozen=True, slots=True)
class ImageCost:
    """What the image of a cluster needs in one broker, and what one change of a partition's state costs it."""

    partitions: int
    brokers: int
    image_mib: float
    read_all_cpu_s: float
    read_all_longest_hold_s: float
    one_change_cpu_ms: float


def image_cost(size: Size) -> ImageCost:
    """Fills a store, lets a watcher read it, and changes single states."""
    return asyncio.run(_image_cost(size))


async def _image_cost(size: Size) -> ImageCost:
    store = MemoryEnsemble().connect()
    await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
    for number in range(size.topics):
        await _create_topic(store, number, size)
    watcher = Watcher(store, lambda old, new: None)
    gc.collect()
    tracemalloc.start()
    await watcher.start()
    gc.collect()
    image_mib = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    await watcher.stop()
    watcher = Watcher(store, lambda old, new: None)
    begun_s = time.process_time()
    hold = asyncio.create_task(_longest_hold_s())
    await watcher.start()
    read_s = time.process_time() - begun_s
    hold.cancel()
    change_s = await _change_states(store, watcher)
    await watcher.stop()
    return ImageCost(size.partitions, size.brokers, image_mib, read_s, await hold, 1000 * change_s)


async def _longest_hold_s() -> float:
    """The longest processor time of one turn of the event loop, until this task is cancelled."""
    longest_s, before_s = 0.0, time.thread_time()
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(0)
            now_s = time.thread_time()
            longest_s, before_s = max(longest_s, now_s - before_s), now_s
    return longest_s


async def _create_topic(store: MemoryStore, number: int, size: Size) -> None:
    name, count, brokers = f"topic-{number:05}", size.partitions_a_topic, size.brokers
    replicas = {
        index: tuple((number + index + step) % brokers + 1 for step in range(REPLICAS))
        for index in range(count)
    }
    node = layout.encode_topic(TopicNode(UUID(int=number + 1), replicas, {}, {}))
    creates = [Create(layout.topic_path(name), node), Create(layout.partitions_path(name))]
    for index in range(count):
        state = StateNode(leader=replicas[index][0], leader_epoch=0, isr=replicas[index], controller_epoch=1)
        path = layout.state_path(name, index)
        creates += [Create(path.rpartition("/")[0]), Create(path, layout.encode_state(state))]
    await store.multi(creates)


async def _change_states(store: MemoryStore, watcher: Watcher, changes: int = 200) -> float:
    """Processor seconds for each of some changes of single states."""
    state = StateNode(leader=1, leader_epoch=1, isr=(1, 2), controller_epoch=1)
    begun_s = time.process_time()
    for index in range(changes):
        await store.set(layout.state_path("topic-00000", index % 100), layout.encode_state(state))
        await watcher.catch_up(60)
    return (time.process_time() - begun_s) / changes


# The command

_DEFAULT_SIZES = ("3x1000", "3x10000", "30x1000", "30x10000", "100x1000")
_IMAGE_SIZES = (1_000, 10_000, 50_000, 200_000)


def _size_of(text: str, partitions_a_topic: int) -> Size:
    brokers, _, partitions = text.partition("x")
    return Size(int(brokers), int(partitions), partitions_a_topic)


def _in_process_of_its_own(size: Size) -> list[dict[str, Any]]:
    """Each size has a process, so that its memory is its own."""
    command = [sys.executable, "-m", "bench.scale", "--only-size", f"{size.brokers}x{size.partitions}"]
    command += ["--partitions-a-topic", str(size.partitions_a_topic)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        phases = []
        for line in process.stdout:
            click.echo(line, nl=False, err=True)
            phases.append(json.loads(line))
    if process.returncode:
        click.echo(f"{size} ended with {process.returncode} after {len(phases)} phases", err=True)
    return phases


_COLUMNS = (
    ("virtual s", lambda row: f"{row['virtual_s']:,.2f}"),
    ("cpu s", lambda row: f"{row['cpu_s']:,.1f}"),
    ("cpu s/broker", lambda row: f"{row['cpu_s'] / row['brokers']:,.2f}"),
    ("longest hold s", lambda row: f"{row['longest_hold_s']:.3f}"),
    ("transactions", lambda row: f"{row['transactions']:,}"),
    ("nodes written", lambda row: f"{row['nodes_written']:,}"),
    ("events MB", lambda row: f"{row['event_bytes'] / 1e6:,.2f}"),
    ("read MB", lambda row: f"{row['read_bytes'] / 1e6:,.2f}"),
    ("MiB", lambda row: f"{row['resident_mib']:,.0f}"),
)


def _show(phases: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("cluster", "phase"):
        table.add_column(heading)
    for heading, _ in _COLUMNS:
        table.add_column(heading, justify="right")
    for row in phases:
        cells = (cell(row) for _, cell in _COLUMNS)
        table.add_row(f"{row['brokers']}x{row['partitions']}", row["phase"], *cells)
    Console(width=160).print(table)


@click.command()
@click.argument("sizes", nargs=-1)
@click.option("--partitions-a-topic", default=100, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False), help="Also write all figures to this file, as JSON.")
@click.option("--images/--no-images", default=True, show_default=True, help="Measure the image's memory.")
@click.option("--only-size", hidden=True)
def main(
    sizes: tuple[str, ...], partitions_a_topic: int, out: str | None, images: bool, only_size: str | None
) -> None:
    """Simulates clusters of these sizes, written as BROKERSxPARTITIONS.

    \b
    python -m bench.scale 3x1000 30x10000 100x10000
    """
    if only_size is not None:
        # The simulation makes few cycles, and collections of a heap with millions of objects take most of the time.
        gc.disable()
        ScaleRun(_size_of(only_size, partitions_a_topic)).run()
        return
    found: dict[str, Any] = {"phases": [], "images": []}
    for text in sizes or _DEFAULT_SIZES:
        found["phases"] += _in_process_of_its_own(_size_of(text, partitions_a_topic))
    if images:
        found["images"] = [asdict(image_cost(Size(100, count, partitions_a_topic))) for count in _IMAGE_SIZES]
    if out is not None:
        Path(out).write_text(json.dumps(found, indent=1) + "\n")
    _show(found["phases"])
    for cost in found["images"]:
        click.echo(cost)


if __name__ == "__main__":
    main()
