"""A simulated cluster that counts what its brokers ask of the metadata store.

Keeps true: counting changes nothing: the brokers, the store and the network are those of the cluster simulation.
            Bytes are those of ZooKeeper's protocol (a watch event, the request and the response of a read), without
            TCP and without the grouping of several reads into one request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from felice.metadata import layout
from felice.metadata.layout import StateNode
from felice.metadata.store import EventKind, Node, Operation
from felice.metadata.tree import Change, OperationResult
from felice.testing.simulation.ensemble import EnsembleHost, SimEnsemble, SimSession, SimSource
from felice.testing.simulation.process import Process
from felice.testing.simulation.world import World

# ZooKeeper's framing: the length, the header of a reply (16), and in an event its type and the session's state (8).
_EVENT_BYTES = 4 + 16 + 8 + 4
# Length, header of a request (8) and the length of the path; then the flag for watches.
_REQUEST_BYTES = 4 + 8 + 4 + 1
# Length, header of a reply, length of the data, and the 68 bytes of `Stat`.
_RESPONSE_BYTES = 4 + 16 + 4 + 68


@dataclass(slots=True)
class StoreTraffic:
    """Counts of one store since its start."""

    transactions: int = 0
    nodes_written: int = 0
    bytes_written: int = 0
    events: int = 0
    event_bytes: int = 0
    nodes_read: int = 0
    read_bytes: int = 0

    def copy(self) -> StoreTraffic:
        return StoreTraffic(*(getattr(self, one.name) for one in fields(self)))

    def since(self, earlier: StoreTraffic) -> StoreTraffic:
        return StoreTraffic(*(getattr(self, one.name) - getattr(earlier, one.name) for one in fields(self)))


class QuietWorld(World):
    """A world without a trace (a line for each packet would need more memory than the brokers) that measures how
    long single callbacks hold the event loop of their broker.
    """

    def __init__(self, seed: int, *, limit_s: float) -> None:
        super().__init__(seed, limit_s=limit_s)
        self.longest_hold_s = 0.0
        self._run_handle = self.loop._run
        self.loop._run = self._timed

    def note(self, line: str) -> None:
        pass

    def _timed(self, handle: asyncio.Handle, process: Process | None) -> None:
        begun_s = time.thread_time()
        self._run_handle(handle, process)
        took_s = time.thread_time() - begun_s
        if process is not None and took_s > self.longest_hold_s and not _is_threads_work(handle):
            self.longest_hold_s = took_s


def _is_threads_work(handle: asyncio.Handle) -> bool:
    """Whether this is work for an executor, which the simulation runs on the loop."""
    return "run_in_executor" in getattr(handle._callback, "__qualname__", "")


@dataclass(slots=True)
class PartitionStates:
    """The states of all partitions as the store has them, and counts that make questions cheap."""

    by_path: dict[str, StateNode] = field(default_factory=dict)
    led_by: dict[int, int] = field(default_factory=dict)
    # How often each broker is in an ISR.
    in_sync: dict[int, int] = field(default_factory=dict)
    last_path: str = ""

    def put(self, path: str, data: bytes | None) -> None:
        old = self.by_path.pop(path, None)
        if old is not None:
            self._count(old, -1)
        if data is not None:
            self.by_path[path] = state = layout.decode_state(data)
            self._count(state, 1)
            self.last_path = path

    def _count(self, state: StateNode, by: int) -> None:
        self.led_by[state.leader] = self.led_by.get(state.leader, 0) + by
        for replica in state.isr:
            self.in_sync[replica] = self.in_sync.get(replica, 0) + by


class CountingEnsemble(SimEnsemble):
    """The simulated store, which counts its traffic and follows the partitions' states."""

    def __init__(self, world: EnsembleHost, *, timeout_s: float) -> None:
        super().__init__(world, timeout_s=timeout_s)
        self.traffic = StoreTraffic()
        self.states = PartitionStates()

    def source(self, host: str, process: Process) -> SimSource:
        return _CountingSource(self, host, process)

    def multi(self, operations: Sequence[Operation], session_id: int) -> list[OperationResult]:
        self.traffic.transactions += 1
        return super().multi(operations, session_id)

    def write(self, changes: Sequence[Change], by: str = "") -> None:
        super().write(changes, by)
        self.history.clear()
        sessions = len({known.session.host for known in self._sessions.values()})
        for change in changes:
            self.traffic.nodes_written += 1
            self.traffic.bytes_written += len(change.path) + len(change.data)
            self.traffic.events += sessions
            self.traffic.event_bytes += sessions * (_EVENT_BYTES + len(change.path))
            if change.path.endswith("/state"):
                self.states.put(change.path, None if change.kind is EventKind.DELETED else change.data)

    def count_read(self, path: str, answer_bytes: int) -> None:
        self.traffic.nodes_read += 1
        self.traffic.read_bytes += _REQUEST_BYTES + len(path) + _RESPONSE_BYTES + answer_bytes


class _CountingSource(SimSource):
    async def open(self) -> SimSession:
        assert isinstance(self._ensemble, CountingEnsemble)
        session = _CountingSession(self._ensemble, self._host, self._process)
        await session.begin()
        return session


class _CountingSession(SimSession):
    def __init__(self, ensemble: CountingEnsemble, host: str, process: Process) -> None:
        super().__init__(ensemble, host, process)
        self._counts = ensemble

    async def get(self, path: str) -> Node:
        node = await super().get(path)
        self._counts.count_read(path, len(node.data))
        return node

    async def exists(self, path: str) -> Node | None:
        node = await super().exists(path)
        self._counts.count_read(path, len(node.data) if node else 0)
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        nodes = await super().get_many(paths)
        for path, node in zip(paths, nodes, strict=True):
            self._counts.count_read(path, len(node.data) if node else 0)
        return nodes

    async def children(self, path: str) -> list[str]:
        names = await super().children(path)
        self._counts.count_read(path, sum(4 + len(name) for name in names))
        return names

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        families = await super().children_many(paths)
        for path, names in zip(paths, families, strict=True):
            self._counts.count_read(path, sum(4 + len(name) for name in names or ()))
        return families
