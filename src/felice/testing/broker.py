"""A whole broker on a thread of the test's process, with direct access to its topics and records.

Keeps true: acknowledged records are there after `restart` and after `kill`, at the same address. A directory that the
            broker created is removed by `stop`; a directory of the caller stays. A process that was forked from the
            broker's stops and removes nothing.
            `create_topic`, `produce` and `records` use the broker's components directly, so scripted faults
            neither act on these calls nor count them. `records` returns what a read_committed consumer reads.
How:        `EmbeddedBroker` with a table of handlers that `Faults` has wrapped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from felice.client.arguments import takes_lists
from felice.config import Listener
from felice.controller.topic_plans import NewTopic
from felice.env.forks import Owner
from felice.env.own_directory import OwnDirectory
from felice.env.ports import free_ports
from felice.protocol.errors import ApiError, ErrorCode
from felice.records.aborted import AbortedTransactions
from felice.records.batch import iter_batches
from felice.records.builder import BatchBuilder
from felice.records.kernels import murmur2
from felice.records.reader import read_batch
from felice.replication.partition import ACKS_ALL, Partition
from felice.server.broker import Broker as Server
from felice.server.process.embedded import HOST, EmbeddedBroker, named
from felice.testing.faults import Faults
from felice.testing.serving import TEST_SETTINGS, Serving

Text: TypeAlias = str | bytes
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

_READ_BYTES = 16 * 1024 * 1024
_POLL_S = 0.005
_COMMIT_TIMEOUT_S = 60.0


class Record(NamedTuple):
    """One record as the log holds it. Times are in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@takes_lists
class Broker(Serving):
    """A broker for tests. It starts when created, or raises `StartupError`; `stop`, or `with`, ends it.

    `data_dir` keeps its data beyond this object; `topics` are created at once (names, or names with their numbers of
    partitions); `properties` are broker options by Kafka's names, other keywords by attribute (`num_partitions=3`).
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        port: int = 0,
        topics: Iterable[str] | Mapping[str, int] = (),
        properties: Mapping[str, str] | None = None,
        **overrides: object,
    ) -> None:
        self.faults = Faults()
        # Absolute: the test may change the working directory while the broker runs, and before it starts again.
        self._given_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._own_dir: OwnDirectory | None = None
        self._owner = Owner()
        # A start or a stop on another thread (`AsyncBroker`) ends before the next one begins.
        self._changing = threading.RLock()
        self._properties = {**TEST_SETTINGS, **(properties or {}), **named(overrides)}
        listeners = _with_ports(self._properties.get("listeners", f"PLAINTEXT://{HOST}:{port}"))
        self._properties["listeners"] = ",".join(map(str, listeners))
        # A KRaft node's file also names listeners of its controller, on which nobody listens here.
        controllers = self._properties.get("controller.listener.names", "").upper().split(",")
        first = next((each for each in listeners if each.name not in controllers), listeners[0])
        self._port = first.port
        self._host = HOST if first.host in ("", "0.0.0.0", "::") else first.host
        self._running: EmbeddedBroker | None = None
        self.start()
        self._create_topics(topics)

    # Starting and stopping

    @property
    def is_running(self) -> bool:
        """Whether the broker runs: False after `kill` and `stop`."""
        return self._running is not None

    @property
    def port(self) -> int:
        """The port; it stays the same across restarts."""
        return self._port

    @property
    def bootstrap(self) -> str:
        """The address, for `bootstrap.servers`."""
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    @property
    def data_dir(self) -> Path:
        """The directory of the broker's data."""
        if self._given_dir is not None:
            return self._given_dir
        if self._own_dir is None:
            raise RuntimeError("the broker was stopped, and its directory is gone")
        return self._own_dir.path

    def start(self) -> None:
        """Start again after `kill` or `stop`; does nothing while the broker runs. The constructor calls it."""
        with self._changing_state():
            if self._running is not None:
                return
            made = self._given_dir is None and self._own_dir is None
            if made:
                self._own_dir = OwnDirectory("felice-")
            try:
                self._running = EmbeddedBroker(
                    self.data_dir,
                    self._port,
                    properties=self._properties,
                    handlers=self.faults.handlers,
                )
            except BaseException:
                if made:
                    self._remove_own_dir()
                raise
            self.faults.attach(self._running)

    def stop(self) -> None:
        """Stop cleanly and remove the directory if the broker created it.

        A second call does nothing, nor does a call in a process that was forked from the broker's.
        """
        if self._owner.is_here:
            with self._changing:
                self._end(EmbeddedBroker.stop)
                self._remove_own_dir()

    def kill(self) -> None:
        """End as `kill -9` would: connections are cut, nothing is closed cleanly, the directory stays."""
        if self._owner.is_here:
            with self._changing:
                self._end(EmbeddedBroker.kill)

    def restart(self) -> None:
        """Stop cleanly, unless the broker was killed, and start with the same directory and port."""
        with self._changing_state():
            self._end(EmbeddedBroker.stop)
            self.start()

    @contextmanager
    def _changing_state(self) -> Iterator[None]:
        self._owner.check("broker")
        with self._changing:
            yield

    def _end(self, how: Callable[[EmbeddedBroker], None]) -> None:
        running, self._running = self._running, None
        if running is not None:
            self.faults.detach()
            how(running)

    def _remove_own_dir(self) -> None:
        own, self._own_dir = self._own_dir, None
        if own is not None:
            own.remove()

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap} {'running' if self.is_running else 'stopped'}>"

    # Topics and records

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic that is ready when this returns; raises `ApiError` if it cannot be created."""
        requested = NewTopic(name, partitions, 1, configs=dict(configs or {}))
        self._embedded.run(self._server.services.changes.cluster.create_topic(requested))

    def delete_topic(self, name: str) -> None:
        """Delete a topic; raises `ApiError` if there is none of this name."""
        self._embedded.run(self._server.services.changes.cluster.delete_topic(name))

    def produce(
        self,
        topic: str,
        value: Text | None,
        *,
        key: Text | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Record:
        """Append one record, which is committed when this returns; a missing topic is created.

        Without `partition` the key decides, as in Java's client; without a key it is partition 0. Raises `ApiError`.
        """
        timestamp_ms = -1 if timestamp_ms is None else timestamp_ms
        record = Record(topic, -1, -1, timestamp_ms, _bytes(key), _bytes(value), tuple(headers))
        return self._embedded.run(_append(self._server, record, partition))

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """Every committed record, by partition and offset; records of aborted transactions are left out.

        Raises `ApiError` if the topic or the partition does not exist.
        """
        return self._embedded.run(_read(self._server, topic, partition))

    def wait_for_records(self, topic: str, count: int, timeout_s: float = 60.0) -> list[Record]:
        """Wait until a topic has `count` records and return them; raises `TimeoutError`."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.records(topic) if topic in self._server.image.topics else []
            if len(found) >= count:
                return found
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{topic} has {len(found)} records after {timeout_s} s, not {count}")
            time.sleep(_POLL_S)

    @property
    def _embedded(self) -> EmbeddedBroker:
        if self._running is None:
            raise RuntimeError("the broker is not running")
        return self._running

    @property
    def _server(self) -> Server:
        return self._embedded.broker


def _with_ports(text: str) -> list[Listener]:
    """The listeners of an option, with free ports instead of 0: an address stays the same across restarts."""
    found = [Listener.parse(part.strip(), "listeners") for part in text.split(",")]
    free = iter(free_ports(len(found)))
    return [replace(listener, port=listener.port or next(free)) for listener in found]


def _bytes(text: Text | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


async def _append(server: Server, record: Record, partition: int | None) -> Record:
    code = await server.services.topics.auto.create(record.topic)
    if code:
        raise ApiError(ErrorCode.of(code), f"topic {record.topic} cannot be created")
    if partition is None:
        count = len(server.image.topics[record.topic].partitions)
        partition = murmur2(record.key) % count if record.key is not None else 0
    now_ms = server.env.clock.now_ms()
    record = record._replace(
        partition=partition, timestamp_ms=now_ms if record.timestamp_ms < 0 else record.timestamp_ms
    )
    builder = BatchBuilder()
    builder.append(record.timestamp_ms, record.key, record.value, record.headers)
    found = server.services.partitions.find(record.topic, partition)
    info = found.append(builder.build(), required_acks=ACKS_ALL, now_ms=now_ms)
    await found.wait_committed(info.last_offset, _COMMIT_TIMEOUT_S)
    if info.log_append_time_ms >= 0:
        record = record._replace(timestamp_ms=info.log_append_time_ms)
    return record._replace(offset=info.base_offset)


async def _read(server: Server, topic: str, partition: int | None) -> list[Record]:
    known = server.image.topics.get(topic)
    if known is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
    asked = range(len(known.partitions)) if partition is None else (partition,)
    return [record for index in asked for record in _committed(server.services.partitions.find(topic, index))]


def _committed(partition: Partition) -> list[Record]:
    records: list[Record] = []
    offset = partition.log_start_offset
    while offset < partition.last_stable_offset:
        found = partition.fetch(offset, _READ_BYTES, read_committed=True)
        if found.records is None:
            break
        data = found.records.read()
        aborted = AbortedTransactions((row.producer_id, row.first_offset) for row in found.aborted or ())
        next_offset = offset
        for header in iter_batches(data):
            next_offset = header.next_offset
            if aborted.hides(data, header) or header.is_control:
                continue
            for row in read_batch(data, header):
                if row.offset >= offset:
                    records.append(Record(partition.topic, partition.partition, *row))
        if next_offset <= offset:
            break
        offset = next_offset
    return records
