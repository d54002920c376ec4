"""Every client behind one small face: produce, consume, join a group, administer.

Keeps true: each call is the client's own public API with its defaults, but for what a test must fix (the
bootstrap address, the codec, manual commits, limits for a loaded machine, the range assignor so that different
clients can share a group).
"""

import functools
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol

from peers.golang import require_go_peer
from peers.java import java_command, require_java_programs
from peers.kcat import run_kcat
from peers.node import require_kafkajs
from peers.pipe import PipePeer, record_from_json, record_to_json
from peers.record import PeerRecord

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONSUME_TIMEOUT_S = 100.0
Assignment = set[tuple[str, int]]


class GroupMember(Protocol):
    def assignment(self) -> Assignment: ...
    def poll(self, count: int, timeout_s: float) -> list[PeerRecord]: ...
    def commit(self) -> None: ...
    def leave(self) -> None: ...


class PeerClient(Protocol):
    name: str

    def produce(self, bootstrap: str, topic: str, records: Sequence[PeerRecord], codec: str) -> None: ...
    def consume(self, bootstrap: str, topic: str, count: int) -> list[PeerRecord]: ...
    def join(self, bootstrap: str, group: str, topics: Sequence[str]) -> GroupMember: ...


class PipeMember:
    def __init__(self, peer: PipePeer, name: str) -> None:
        self._peer, self._name = peer, name

    def assignment(self) -> Assignment:
        return {(topic, number) for topic, number in self._peer.call("assignment", member=self._name)}

    def poll(self, count: int, timeout_s: float) -> list[PeerRecord]:
        rows = self._peer.call("poll", member=self._name, count=count, timeout_ms=int(timeout_s * 1000))
        return [record_from_json(row) for row in rows]

    def commit(self) -> None:
        self._peer.call("commit", member=self._name)

    def leave(self) -> None:
        self._peer.call("leave", member=self._name)


class PipeClient:
    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.peer = PipePeer(command)
        self._members = 0

    def produce(self, bootstrap: str, topic: str, records: Sequence[PeerRecord], codec: str) -> None:
        rows = [record_to_json(record) for record in records]
        self.peer.call("produce", bootstrap=bootstrap, topic=topic, codec=codec, records=rows)

    def consume(self, bootstrap: str, topic: str, count: int) -> list[PeerRecord]:
        timeout_ms = int(CONSUME_TIMEOUT_S * 1000)
        rows = self.peer.call("consume", bootstrap=bootstrap, topic=topic, count=count, timeout_ms=timeout_ms)
        return [record_from_json(row) for row in rows]

    def join(self, bootstrap: str, group: str, topics: Sequence[str]) -> GroupMember:
        self._members += 1
        name = f"member-{self._members}"
        options = {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"}
        self.peer.call(
            "join", bootstrap=bootstrap, group=group, topics=list(topics), member=name, options=options
        )
        return PipeMember(self.peer, name)

    def administer(self, bootstrap: str, topic: str, group: str, phase: str) -> dict[str, Any]:
        seen: dict[str, Any] = self.peer.call(
            "admin", bootstrap=bootstrap, topic=topic, group=group, phase=phase
        )
        return seen

    def close(self) -> None:
        self.peer.close()


class PollingMember:
    """A Python consumer on its own thread, since each rebalances only while somebody polls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._assigned: Assignment = set()
        self._polled: list[PeerRecord] = []
        self._commit_asked: threading.Event | None = None
        self._failure: BaseException | None = None
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def open(self) -> None:
        raise NotImplementedError

    def poll_once(self) -> list[PeerRecord]:
        raise NotImplementedError

    def current_assignment(self) -> Assignment:
        raise NotImplementedError

    def commit_polled(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self.open()
            while not self._leaving.is_set():
                self._step()
            self.close()
        except BaseException as failure:
            self._failure = failure

    def _step(self) -> None:
        polled = self.poll_once()
        assigned = self.current_assignment()
        with self._lock:
            self._polled += polled
            self._assigned = assigned
        if self._commit_asked and not self._commit_asked.is_set():
            self.commit_polled()
            self._commit_asked.set()

    def assignment(self) -> Assignment:
        self._fail_if_dead()
        with self._lock:
            return set(self._assigned)

    def poll(self, count: int, timeout_s: float) -> list[PeerRecord]:
        taken: list[PeerRecord] = []
        deadline = time.monotonic() + timeout_s
        while len(taken) < count and time.monotonic() < deadline:
            self._fail_if_dead()
            with self._lock:
                wanted = count - len(taken)
                taken += self._polled[:wanted]
                del self._polled[:wanted]
            time.sleep(0.01)
        return taken

    def commit(self) -> None:
        self._commit_asked = threading.Event()
        assert self._commit_asked.wait(CONSUME_TIMEOUT_S), "the commit was never answered"
        self._fail_if_dead()

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(CONSUME_TIMEOUT_S)
        assert not self._thread.is_alive(), "the consumer did not close"
        self._fail_if_dead()

    def _fail_if_dead(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"the group member died: {self._failure!r}") from self._failure


class Kcat:
    """kcat: one run for each record written, since headers and partition are options; `-Z` makes empty null."""

    name = "kcat"

    def produce(self, bootstrap: str, topic: str, records: Sequence[PeerRecord], codec: str) -> None:
        for record in records:
            self._produce_one(bootstrap, topic, record, codec)

    def _produce_one(self, bootstrap: str, topic: str, record: PeerRecord, codec: str) -> None:
        options = ["-P", "-b", bootstrap, "-t", topic, "-p", str(record.partition), "-z", codec]
        options += ["-D", "\x1e", "-K", "\x1d", "-Z"]
        for name, value in record.headers:
            options += ["-H", name if value is None else f"{name}={value.decode()}"]
        run_kcat(*options, stdin=b"\x1d".join([record.key or b"", record.value or b""]) + b"\x1e")

    def consume(self, bootstrap: str, topic: str, count: int) -> list[PeerRecord]:
        separator = "\x1f"
        layout = separator.join(["%p", "%o", "%T", "%K", "%k", "%S", "%s", "%h"]) + "\x1e"
        out = run_kcat(
            "-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-q", "-f", layout, "-c", str(count)
        )
        return [_kcat_record(row.split(separator)) for row in out.split("\x1e") if row]

    def join(self, bootstrap: str, group: str, topics: Sequence[str]) -> GroupMember:
        raise NotImplementedError


def _kcat_record(columns: list[str]) -> PeerRecord:
    partition, offset, timestamp, key_size, key, value_size, value, headers = columns
    pairs = [pair.partition("=") for pair in headers.split(",") if pair]
    return PeerRecord(
        key=None if key_size == "-1" else key.encode(),
        value=None if value_size == "-1" else value.encode(),
        headers=tuple((name, None if text == "NULL" else text.encode()) for name, _, text in pairs),
        timestamp_ms=int(timestamp),
        partition=int(partition),
        offset=int(offset),
    )


class Clients:
    """The clients of one test session; foreign processes start on first use and end with `close`."""

    def __init__(self) -> None:
        self._pipes: list[PipeClient] = []

    def get(self, name: str) -> PeerClient:
        return self._start(name)

    @functools.cache  # noqa: B019 - one per session
    def _start(self, name: str) -> Any:
        if name == "kcat":
            return Kcat()
        if name in _PIPES:
            client = PipeClient(name, _PIPES[name]())
            self._pipes.append(client)
            return client
        return _python_client(name)

    def pipe(self, name: str) -> PipeClient:
        client = self._start(name)
        assert isinstance(client, PipeClient)
        return client

    def close(self) -> None:
        for client in self._pipes:
            client.close()

    def __enter__(self) -> "Clients":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _java_peer_command() -> list[str]:
    programs = require_java_programs()
    return java_command(
        "JavaPeer", first=[programs], options=["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    )


_PIPES = {
    "java": _java_peer_command,
    "franz-go": lambda: [str(require_go_peer())],
    "kafkajs": require_kafkajs,
}


def _python_client(name: str) -> PeerClient:
    from peers import python_clients

    made: PeerClient = python_clients.CLIENTS[name]()
    return made
