"""Healthy clients during an attack: one produces, one fetches, one sends heartbeats, each on its own connection.

They run in their own process, so that delays by the attackers' own work are not attributed to the broker.
"""

from __future__ import annotations

import multiprocessing
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from felice.protocol.api import API, Api
from felice.protocol.frames import decode_response, encode_request
from felice.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.protocol.messages.sync_group import SyncGroupRequest
from felice.records.builder import BatchBuilder

TOPIC = "healthy"
_PAUSE_S = 0.02
_TIMEOUT_S = 120.0


class Line:
    """A connection with one request at a time."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, api: Api, version: int, message: Any) -> Any:
        """Sends a request and returns its response."""
        self.socket.sendall(encode_request(api.key, version, 1, "healthy", message))
        return decode_response(api, version, self._read(struct.unpack(">i", self._read(4))[0]))

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)

    def close(self) -> None:
        """Closes the connection."""
        self.socket.close()


def create_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    """Creates a topic on one broker."""
    line = Line(bootstrap)
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    answer = line.ask(API.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
    assert answer.topics[0].error_code == 0, answer
    while _produce(line, name) != 0:
        time.sleep(0.05)
    line.close()


def _produce(line: Line, topic: str) -> int:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), b"k", b"v" * 100)
    data = [PartitionProduceData(index=0, records=bytes(builder.build()))]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    code: int = line.ask(API.PRODUCE, 9, request).responses[0].partition_responses[0].error_code
    return code


def _fetch(line: Line) -> int:
    wanted = FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0, partition_max_bytes=10_000)])
    answer = line.ask(API.FETCH, 11, FetchRequest(max_wait_ms=0, max_bytes=10_000, topics=[wanted]))
    code: int = answer.responses[0].partitions[0].error_code
    return code


class _Member:
    """The only member of a group."""

    def __init__(self, bootstrap: str) -> None:
        line = Line(bootstrap)
        found = FindCoordinatorRequest(coordinator_keys=[TOPIC])
        while line.ask(API.FIND_COORDINATOR, 4, found).coordinators[0].error_code:
            time.sleep(0.05)
        protocol = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        joining = JoinGroupRequest(
            group_id=TOPIC,
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=protocol,
        )
        while (joined := line.ask(API.JOIN_GROUP, 3, joining)).error_code:
            time.sleep(0.05)
        self._beat = HeartbeatRequest(
            group_id=TOPIC, generation_id=joined.generation_id, member_id=joined.member_id
        )
        line.ask(
            API.SYNC_GROUP,
            3,
            SyncGroupRequest(group_id=TOPIC, generation_id=joined.generation_id, member_id=joined.member_id),
        )
        line.close()

    def beat(self, line: Line) -> int:
        """Sends a heartbeat and returns its error code."""
        code: int = line.ask(API.HEARTBEAT, 3, self._beat).error_code
        return code


@dataclass(slots=True)
class Waits:
    """How long requests of one kind waited for their responses."""

    times_s: list[float] = field(default_factory=list)
    failed: int = 0

    def figures(self, what: str) -> dict[str, float]:
        """Median, 99th percentile, maximum and failures."""
        ordered = sorted(self.times_s) or [float("inf")]
        return {
            f"{what} p50 ms": ordered[len(ordered) // 2] * 1000,
            f"{what} p99 ms": ordered[int(len(ordered) * 0.99)] * 1000,
            f"{what} longest ms": ordered[-1] * 1000,
            f"{what} failed": float(self.failed),
        }


def _repeat(bootstrap: str, ask: Callable[[Line], int], waits: Waits, stopping: threading.Event) -> None:
    line = Line(bootstrap)
    while not stopping.wait(_PAUSE_S):
        begun = time.monotonic()
        try:
            waits.failed += ask(line) != 0
        except OSError:
            waits.failed += 1
            line.close()
            line = Line(bootstrap)
        waits.times_s.append(time.monotonic() - begun)
    line.close()


def _run(bootstrap: str, parent: Connection) -> None:
    member = _Member(bootstrap)
    asks: dict[str, Callable[[Line], int]] = {
        "produce": lambda line: _produce(line, TOPIC),
        "fetch": _fetch,
        "heartbeat": member.beat,
    }
    waits = {name: Waits() for name in asks}
    stopping = threading.Event()
    threads = [
        threading.Thread(target=_repeat, args=(bootstrap, ask, waits[name], stopping))
        for name, ask in asks.items()
    ]
    for thread in threads:
        thread.start()
    parent.send("ready")
    parent.recv()
    stopping.set()
    for thread in threads:
        thread.join()
    parent.send({key: value for name, found in waits.items() for key, value in found.figures(name).items()})


class HealthyClients:
    """Runs the clients in their own process until `stop`, which returns their figures."""

    def __init__(self, bootstrap: str) -> None:
        create_topic(bootstrap, TOPIC)
        context = multiprocessing.get_context("fork")
        self._end, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(bootstrap, theirs), daemon=True)
        self._process.start()
        assert self._end.recv() == "ready"

    def stop(self) -> dict[str, float]:
        """Stops the clients and returns their figures."""
        self._end.send("stop")
        if not self._end.poll(_TIMEOUT_S + 10):
            raise TimeoutError("a healthy client still waits for its answer")
        found: dict[str, float] = self._end.recv()
        self._process.join()
        return found
