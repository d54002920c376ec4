"""What a request costs on the hot paths, counted instead of timed, so that a busy machine does not matter.

`costs.txt` has the calls of Python functions, of built-in functions, and of the system, per request. A test fails if
one of them grows. If a growth is worth its price, run `pytest tests/unit/server/test_costs.py --rewrite` and commit
the new numbers with the change that caused them; do the same after an improvement, so that it is kept.

The requests come on connections without sockets, in this thread, so that the counts are the same on each run.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from felice.env import Environment
from felice.protocol import kernels as codec_kernels
from felice.protocol.frames import encode_request
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.records import kernels
from felice.records.builder import build_batch
from felice.records.compression import Codec
from felice.records.record import Record
from felice.server.broker import Broker
from felice.server.net.session import Session
from felice.server.process.embedded import embedded_config
from unit.server.test_session import HeldTransport

COSTS = Path(__file__).with_name("costs.txt")
# Python versions and asyncio differ a little.
TOLERANCE = 1.02
ROUNDS = 8
SYSTEM_CALLS = ("pwrite", "pread", "sendfile", "time_ns", "monotonic")

Costs = dict[str, float]


class Line:
    """A connection whose client has read every reply at once."""

    def __init__(self, broker: Broker) -> None:
        self.session = Session(broker.listeners[0])
        self.transport = HeldTransport()
        self.session.connection_made(self.transport)

    def feed(self, request: bytes) -> None:
        rest = memoryview(request)
        while rest:
            buffer = self.session.get_buffer(-1)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            self.session.buffer_updated(count)

    async def ask(self, request: bytes) -> bytes:
        begin = len(self.transport.written)
        self.feed(request)
        async with asyncio.timeout(60):
            while len(self.transport.written) == begin:
                await asyncio.sleep(0)
        return bytes(self.transport.written[begin:])


class Counting:
    """Counts calls in this thread while it is entered."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __enter__(self) -> Counting:
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, found: Any) -> None:
        if event == "call":
            self.calls["python"] += 1
        elif event == "c_call":
            self.calls["built-in"] += 1
            if found.__name__ in SYSTEM_CALLS:
                self.calls[found.__name__] += 1


def produce(partitions: int, codec: Codec = Codec.NONE) -> bytes:
    batch = build_batch([Record(0, int(time.time() * 1000), None, bytes(100))], codec=codec)
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topic = TopicProduceData(name="topic", partition_data=data)
    return encode_request(0, 10, 1, "client", ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic]))


def fetch(partitions: int) -> bytes:
    asked = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100)
        for index in range(partitions)
    ]
    topic = FetchTopic(topic="topic", partitions=asked)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic])
    return encode_request(1, 11, 1, "client", request)


def heartbeat() -> bytes:
    return encode_request(12, 4, 1, "client", HeartbeatRequest(group_id="group", member_id="member"))


REQUESTS: dict[str, tuple[Callable[[], bytes], int]] = {
    "produce, one connection": (lambda: produce(1), 1),
    "produce, 16 connections": (lambda: produce(1), 16),
    "produce of 10 batches": (lambda: produce(10), 1),
    "produce of 10 lz4 batches": (lambda: produce(10, Codec.LZ4), 1),
    "fetch, one connection": (lambda: fetch(1), 1),
    "fetch, 16 connections": (lambda: fetch(1), 16),
    "fetch of 10 partitions": (lambda: fetch(10), 1),
    "heartbeat, one connection": (heartbeat, 1),
    "heartbeat, 16 connections": (heartbeat, 16),
}


async def measured(directory: Path, request: bytes, connections: int) -> Costs:
    """The least of some rounds: periodic tasks of the broker take part in others."""
    broker = Broker(embedded_config(directory, 0, {}), Environment.system())
    await broker.start()
    try:
        lines = [Line(broker) for _ in range(connections)]
        topic = CreatableTopic(name="topic", num_partitions=10, replication_factor=1)
        await lines[0].ask(encode_request(19, 5, 1, "client", CreateTopicsRequest(topics=[topic])))
        for _ in range(10):  # compiles codecs, opens files, and gives `fetch` something to read
            await lines[0].ask(produce(10))
            await lines[0].ask(request)
        rounds = [await _round(lines, request) for _ in range(ROUNDS)]
        return {
            kind: min(found[kind] for found in rounds) / connections
            for kind in ("python", "built-in", *SYSTEM_CALLS)
        }
    finally:
        await broker.kill()


async def _round(lines: list[Line], request: bytes) -> Counter[str]:
    await asyncio.sleep(0.002)  # the connection that sends next is alone again
    before = [len(line.transport.written) for line in lines]
    with Counting() as counting:
        for line in lines:
            line.feed(request)
        while any(len(line.transport.written) == begin for line, begin in zip(lines, before, strict=True)):
            await asyncio.sleep(0)
    return counting.calls


def as_text(costs: dict[str, Costs]) -> str:
    kinds = ["python", "built-in", *SYSTEM_CALLS]
    rows = [
        ["request", *kinds],
        *([name, *(f"{found[kind]:.1f}" for kind in kinds)] for name, found in costs.items()),
    ]
    return "".join("  ".join([f"{row[0]:26}", *(f"{cell:>9}" for cell in row[1:])]) + "\n" for row in rows)


def recorded() -> dict[str, Costs]:
    header, *rows = COSTS.read_text().splitlines()
    kinds = header.split()[1:]
    found = {}
    for row in rows:
        name, cells = row[:26].strip(), row[26:].split()
        found[name] = dict(zip(kinds, map(float, cells), strict=True))
    return found


IS_COMPILED = kernels.IMPLEMENTATION == codec_kernels.IMPLEMENTATION == "compiled"


@pytest.mark.skipif(not IS_COMPILED, reason="the plain kernels make more calls")
def test_a_request_costs_no_more_calls_than_before(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    costs = {
        name: asyncio.run(measured(tmp_path / name.replace(",", ""), make(), connections))
        for name, (make, connections) in REQUESTS.items()
    }
    if pytestconfig.getoption("--rewrite"):
        COSTS.write_text(as_text(costs))
    known = recorded()
    grown = [
        f"{name}: {kind} {found[kind]:.1f}, was {known[name][kind]:.1f}"
        for name, found in costs.items()
        for kind in found
        if found[kind] > known[name][kind] * TOLERANCE + 0.5
    ]
    assert not grown, "; ".join(grown)


def test_the_counts_notice_a_call_more() -> None:
    def work(times: int) -> None:
        for _ in range(times):
            time.monotonic()

    with Counting() as few:
        work(3)
    with Counting() as more:
        work(4)
    assert more.calls["monotonic"] - few.calls["monotonic"] == 1
    assert more.calls["python"] == few.calls["python"]
