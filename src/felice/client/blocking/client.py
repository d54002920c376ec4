"""A small client without event loop or threads, for processes with one task, such as Spark's executors.

Keeps true:  Batches pass through whole and undecoded. `fetch` yields the batches with all records between the requested
             offsets; the first and the last batch may contain offsets outside them. When `produce` returns, all its
             batches are acknowledged; otherwise it raises.
             Errors that new metadata may resolve are retried within `retry_timeout_ms`.
How:         One connection per broker. While the caller processes a response, the next request is already in flight
             (`prefetch`); this keeps one more response in memory.
Only one thread at a time may use a client. A pickled client has the same configuration and no connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from felice.client.blocking.link import BlockingLink
from felice.client.consume.isolation import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    visible_batches,
    visible_ranges,
    whole_batches,
)
from felice.client.error import KafkaError, KafkaException, failure
from felice.client.model import ClusterMetadata, OffsetAndTimestamp, Partition
from felice.client.net.requests import fetch_request, list_offsets_request, metadata_request, produce_request
from felice.client.net.topology import NO_LEADER, Topology
from felice.client.options import parse_addresses
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import FetchResponse, PartitionData
from felice.protocol.messages.list_offsets import ListOffsetsResponse
from felice.protocol.messages.produce import ProduceResponse
from felice.protocol.primitives import Buffer

LATEST = -1
EARLIEST = -2

_RETRY_BACKOFF_S = 0.1


@dataclass(frozen=True, slots=True)
class BlockingConfig:
    """The configuration of a `BlockingClient`: plain values, so that it can be sent to an executor."""

    bootstrap_servers: str
    client_id: str = "felice"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 60_000
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 8 * 1024 * 1024
    isolation_level: int = READ_UNCOMMITTED
    prefetch: bool = True
    client_rack: str = ""


class RawBatches(NamedTuple):
    """Whole batches of one partition. `next_offset` is the offset at which reading continues."""

    topic: str
    partition: int
    data: memoryview
    next_offset: int


class Appended(NamedTuple):
    """The offset of a produced batch. `log_append_time_ms` is -1 unless the topic uses the broker's time."""

    topic: str
    partition: int
    base_offset: int
    log_append_time_ms: int


class OffsetOutOfRange(KafkaException):
    """The partition does not hold the requested offset: it was deleted, or is not written yet."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(
            KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}-{partition} does not hold offset {offset}")
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __reduce__(self) -> tuple[object, ...]:
        return OffsetOutOfRange, (self.topic, self.partition, self.offset)


@dataclass(slots=True)
class _Range:
    """How far one partition was read."""

    topic: str
    partition: int
    position: int
    end: int
    failing_since: float | None = None

    @property
    def done(self) -> bool:
        return self.position >= self.end


@dataclass(slots=True)
class _Batch:
    topic: str
    partition: int
    data: Buffer
    tried_since: float = field(default_factory=time.monotonic)


class BlockingClient:
    """`BlockingClient("host:9092")`, or with a `BlockingConfig`, or with its fields as keywords."""

    # `BlockingConfig` has the names and types of the fields.
    def __init__(self, config: BlockingConfig | str, **fields: Any) -> None:
        chosen = BlockingConfig(config, **fields) if isinstance(config, str) else replace(config, **fields)
        self.config = chosen
        self._bootstrap = parse_addresses(chosen.bootstrap_servers)
        self._topology = Topology()
        self._links: dict[tuple[str, int], BlockingLink] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return BlockingClient, (self.config,)

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. The next use of the client opens them again."""
        links, self._links = self._links, {}
        for link in links.values():
            link.close()

    # Requests without a method of their own

    def ask_any(self, request: object) -> Any:
        """Return the response of the first broker that gives one."""
        return self._call_any(request)

    def ask(self, address: tuple[str, int], request: object) -> Any:
        """Return the response of the broker at this address (host and port)."""
        return self._idle_link(address).call(request)

    def ask_all(self, address: tuple[str, int], requests: Iterable[object]) -> list[Any]:
        """Send all requests, then return their responses in the same order."""
        link = self._idle_link(address)
        count = 0
        for request in requests:
            link.send(request)
            count += 1
        return [link.receive() for _ in range(count)]

    # Metadata

    def metadata(
        self, topics: Iterable[str] | None = None, *, allow_auto_create: bool = False
    ) -> ClusterMetadata:
        """Return the brokers and these topics (None: all). A topic that does not exist carries its error."""
        names = None if topics is None else list(topics)
        self._refresh(names, allow_auto_create)
        return self._topology.describe(names)

    def _refresh(self, topics: list[str] | None, allow_auto_create: bool = False) -> None:
        response = self._call_any(metadata_request(topics, allow_auto_create=allow_auto_create))
        self._topology.update(response, complete=topics is None)

    def _call_any(self, request: object) -> Any:
        reasons = []
        known = [(broker.host, broker.port) for broker in self._topology.brokers.values()]
        for address in dict.fromkeys([*self._links, *known, *self._bootstrap]):
            try:
                return self._idle_link(address).call(request)
            except KafkaException as error:
                if not error.error.retriable():
                    raise
                reasons.append(error.error.str())
        raise failure(KafkaError._ALL_BROKERS_DOWN, "; ".join(dict.fromkeys(reasons)), retriable=True)

    def _idle_link(self, address: tuple[str, int]) -> BlockingLink:
        link = self._link(address)
        if link.in_flight:
            # A generator that was not read to its end leaves responses in the connection.
            link.close()
            link = self._link(address)
        return link

    def _link(self, address: tuple[str, int]) -> BlockingLink:
        link = self._links.get(address)
        if link is None or link.closed:
            config = self.config
            link = self._links[address] = BlockingLink(
                *address,
                client_id=config.client_id,
                connect_s=config.connect_timeout_ms / 1000,
                request_s=config.request_timeout_ms / 1000,
            )
        return link

    def _broker_link(self, node_id: int) -> BlockingLink:
        broker = self._topology.brokers[node_id]
        return self._idle_link((broker.host, broker.port))

    def _by_leader(self, wanted: Iterable[Partition]) -> dict[int, list[Partition]]:
        """Group partitions by leader, in the given order; those without a leader under NO_LEADER."""
        partitions = list(wanted)
        unknown = {t for t, p in partitions if self._topology.leader(t, p) not in self._topology.brokers}
        if unknown:
            self._refresh(sorted(unknown))
        led: dict[int, list[Partition]] = {}
        for topic, partition in partitions:
            leader = self._topology.leader(topic, partition)
            leader = leader if leader in self._topology.brokers else NO_LEADER
            led.setdefault(leader, []).append((topic, partition))
        return led

    def _why_leaderless(self, topic: str, partition: int) -> KafkaException:
        if self._topology.partition_count(topic) and self._topology.partition(topic, partition) is not None:
            return failure(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        code = self._topology.topic_errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # The metadata is current: a retry would only delay the error for a misspelt name.
        return failure(code, f"{topic}-{partition}", retriable=False)

    def _forget_leaders(self, partitions: Iterable[Partition]) -> None:
        time.sleep(_RETRY_BACKOFF_S)
        self._refresh(sorted({topic for topic, _ in partitions}))

    # Offsets

    def list_offsets(
        self, timestamps: Mapping[Partition, int], isolation_level: int | None = None
    ) -> dict[Partition, OffsetAndTimestamp]:
        """Return the first offset at or after each timestamp (ms), or -1; LATEST and EARLIEST name the ends."""
        isolation = self.config.isolation_level if isolation_level is None else isolation_level
        found: dict[Partition, OffsetAndTimestamp] = {}
        deadline = time.monotonic() + self.config.retry_timeout_ms / 1000
        while left := [partition for partition in timestamps if partition not in found]:
            error = self._list_offsets_once({p: timestamps[p] for p in left}, isolation, found)
            if error is None:
                continue
            if not error.error.retriable() or time.monotonic() >= deadline:
                raise error
            self._forget_leaders(left)
        return found

    def _list_offsets_once(
        self, wanted: Mapping[Partition, int], isolation: int, found: dict[Partition, OffsetAndTimestamp]
    ) -> KafkaException | None:
        try:
            led = self._by_leader(wanted)
            if NO_LEADER in led:
                return self._why_leaderless(*led[NO_LEADER][0])
            for node_id, partitions in led.items():
                questions = {partition: wanted[partition] for partition in partitions}
                response = self._broker_link(node_id).call(list_offsets_request(questions, isolation))
                error = _take_offsets(response, found)
                if error is not None:
                    return error
        except KafkaException as error:
            return error
        return None

    # Fetch

    def fetch_raw(
        self,
        topic: str,
        partition: int,
        start_offset: int,
        end_offset: int,
        *,
        max_bytes: int | None = None,
        partition_max_bytes: int | None = None,
        isolation_level: int | None = None,
    ) -> Iterator[memoryview]:
        """Yield the batches that hold `start_offset` to `end_offset` (exclusive). Options as in `fetch`."""
        for batches in self.fetch(
            {(topic, partition): (start_offset, end_offset)},
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
            isolation_level=isolation_level,
        ):
            yield batches.data

    def fetch(
        self,
        ranges: Mapping[Partition, tuple[int, int]],
        *,
        max_bytes: int | None = None,
        partition_max_bytes: int | None = None,
        isolation_level: int | None = None,
    ) -> Iterator[RawBatches]:
        """Read many partitions in few requests; each partition's pieces come in order, partitions interleaved.

        Raises `OffsetOutOfRange` if an offset does not exist. With read_committed, aborted batches and control batches
        are left out. Without it, control batches are included (they hold no data, and readers skip them).
        """
        config = self.config
        options = _FetchOptions(
            max_bytes or config.fetch_max_bytes,
            partition_max_bytes or config.partition_max_bytes,
            config.isolation_level if isolation_level is None else isolation_level,
            config.fetch_max_wait_ms,
            config.client_rack,
        )
        left = [_Range(t, p, start, end) for (t, p), (start, end) in ranges.items() if start < end]
        while left:
            yield from self._fetch_round(left, options)
            left = [piece for piece in left if not piece.done]

    def _fetch_round(self, left: list[_Range], options: _FetchOptions) -> Iterator[RawBatches]:
        """Read from every leader once; a failing broker does not delay the data of the others."""
        ranges = {(piece.topic, piece.partition): piece for piece in left}
        try:
            led = self._by_leader(ranges)
        except KafkaException as error:
            self._on_fetch_failure(list(ranges.values()), error)
            return
        if NO_LEADER in led:
            self._on_fetch_failure(
                [ranges[p] for p in led[NO_LEADER]], self._why_leaderless(*led.pop(NO_LEADER)[0])
            )
        for node_id, partitions in led.items():
            yield from self._fetch_from(node_id, [ranges[p] for p in partitions], options)

    def _fetch_from(self, node_id: int, left: list[_Range], options: _FetchOptions) -> Iterator[RawBatches]:
        """Read from one leader until its ranges are done or an error requires new metadata."""
        alone = len(self._topology.brokers) == 1
        try:
            link = self._broker_link(node_id)
            self._send_fetch(link, left, options)
            while left:
                response = link.receive(extra_s=options.max_wait_ms / 1000)
                pieces, error = self._take_fetch(response, left, options)
                left = _turned([piece for piece in left if not piece.done])
                ahead = self.config.prefetch and error is None and bool(left)
                if ahead:
                    self._send_fetch(link, left, options)
                yield from pieces
                if error is not None:
                    raise error
                if left and not ahead:
                    if not alone:
                        return
                    self._send_fetch(link, left, options)
        except KafkaException as error:
            self._on_fetch_failure(left, error)

    def _send_fetch(self, link: BlockingLink, left: list[_Range], options: _FetchOptions) -> None:
        positions = {(piece.topic, piece.partition): piece.position for piece in left}
        link.send(
            fetch_request(
                self._topology,
                positions,
                max_wait_ms=options.max_wait_ms,
                max_bytes=options.max_bytes,
                partition_max_bytes=options.partition_max_bytes,
                isolation_level=options.isolation_level,
                rack_id=options.rack_id,
            )
        )

    def _take_fetch(
        self, response: FetchResponse, left: list[_Range], options: _FetchOptions
    ) -> tuple[list[RawBatches], KafkaException | None]:
        if response.error_code:
            return [], failure(response.error_code)
        wanted = {(piece.topic, piece.partition): piece for piece in left}
        pieces: list[RawBatches] = []
        problem: KafkaException | None = None
        for topic in response.responses:
            name = topic.topic or self._topology.names_by_id.get(topic.topic_id, "")
            for row in topic.partitions:
                piece = wanted.get((name, row.partition_index))
                if piece is None:
                    continue
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    problem = OffsetOutOfRange(name, piece.partition, piece.position)
                elif row.error_code:
                    problem = problem or failure(row.error_code, f"{name}-{piece.partition}")
                else:
                    pieces += _advance(piece, row, options.isolation_level)
                    problem = problem or self._stalled(piece, row)
        return pieces, problem

    def _stalled(self, piece: _Range, row: PartitionData) -> KafkaException | None:
        """Return an error if the log stays shorter than the requested end: the wait must be bounded."""
        since = piece.failing_since
        if since is None or (time.monotonic() - since) * 1000 < self.config.retry_timeout_ms:
            return None
        where = f"{piece.topic}-{piece.partition} ends at {row.high_watermark}, {piece.end} was asked for"
        return failure(
            KafkaError._TIMED_OUT, f"{where}, and nothing came in {self.config.retry_timeout_ms} ms"
        )

    def _on_fetch_failure(self, pieces: list[_Range], error: KafkaException) -> None:
        """Raise the error, or keep the ranges for the next round if it is transient."""
        now = time.monotonic()
        for piece in pieces:
            piece.failing_since = piece.failing_since or now
        longest = max((now - (piece.failing_since or now) for piece in pieces), default=0.0)
        if not error.error.retriable() or longest * 1000 >= self.config.retry_timeout_ms:
            raise error
        try:
            self._forget_leaders((piece.topic, piece.partition) for piece in pieces)
        except KafkaException as unreachable:
            if not unreachable.error.retriable():
                raise

    # Produce

    def produce_raw(self, topic: str, partition: int, batch: Buffer, acks: int = -1) -> Appended:
        """Append one whole batch, built by `records.builder`. With acks=0 the returned offset is -1."""
        return self.produce([(topic, partition, batch)], acks)[0]

    def produce(
        self,
        batches: Iterable[tuple[str, int, Buffer]],
        acks: int = -1,
        max_request_bytes: int = 16 << 20,
        transactional_id: str | None = None,
    ) -> list[Appended]:
        """Append whole batches, several partitions per request; results are in the given order.

        Batches of one partition keep their order. A batch without an acknowledgement is sent again, so it may be
        written twice unless it carries a producer id and a sequence.
        """
        waiting = [_Batch(topic, partition, data) for topic, partition, data in batches]
        results: dict[int, Appended] = {}
        queue = list(enumerate(waiting))
        while queue:
            request, queue = _next_request(queue, max_request_bytes)
            self._produce_until_done(request, acks, results, transactional_id)
        return [results[index] for index in range(len(waiting))]

    def _produce_until_done(
        self,
        request: list[tuple[int, _Batch]],
        acks: int,
        results: dict[int, Appended],
        transactional_id: str | None,
    ) -> None:
        left = dict(request)
        while left:
            error = self._produce_once(left, acks, results, transactional_id)
            for index in [index for index in left if index in results]:
                del left[index]
            if error is None:
                continue
            oldest = min(batch.tried_since for batch in left.values()) if left else time.monotonic()
            expired = (time.monotonic() - oldest) * 1000 >= self.config.retry_timeout_ms
            if not error.error.retriable() or expired:
                raise error
            self._forget_leaders((batch.topic, batch.partition) for batch in left.values())

    def _produce_once(
        self,
        left: dict[int, _Batch],
        acks: int,
        results: dict[int, Appended],
        transactional_id: str | None,
    ) -> KafkaException | None:
        indexes = {(batch.topic, batch.partition): index for index, batch in left.items()}
        try:
            led = self._by_leader(indexes)
            if NO_LEADER in led:
                return self._why_leaderless(*led[NO_LEADER][0])
            problem: KafkaException | None = None
            for node_id, partitions in led.items():
                batches = {p: left[indexes[p]].data for p in partitions}
                timeout_ms = self.config.request_timeout_ms
                request = produce_request(self._topology, batches, acks, timeout_ms, transactional_id)
                link = self._broker_link(node_id)
                link.send(request, answered=acks != 0)
                if acks == 0:
                    results.update({indexes[p]: Appended(*p, -1, -1) for p in partitions})
                else:
                    problem = self._take_produced(link.receive(), indexes, results) or problem
            return problem
        except KafkaException as error:
            return error

    def _take_produced(
        self, response: ProduceResponse, indexes: dict[Partition, int], results: dict[int, Appended]
    ) -> KafkaException | None:
        problem: KafkaException | None = None
        for topic in response.responses:
            name = topic.name or self._topology.names_by_id.get(topic.topic_id, "")
            for row in topic.partition_responses:
                if row.error_code:
                    why = f"{name}-{row.index}: {row.error_message or ''}".rstrip(": ")
                    problem = failure(row.error_code, why)
                else:
                    index = indexes[name, row.index]
                    results[index] = Appended(name, row.index, row.base_offset, row.log_append_time_ms)
        return problem


@dataclass(frozen=True, slots=True)
class _FetchOptions:
    max_bytes: int
    partition_max_bytes: int
    isolation_level: int
    max_wait_ms: int
    rack_id: str


def _turned(left: list[_Range]) -> list[_Range]:
    """Move the partition served first to the end: a broker fills a response in the order of the request."""
    return left[1:] + left[:1]


def _advance(piece: _Range, row: PartitionData, isolation_level: int) -> list[RawBatches]:
    """Advance the position past the whole batches of a response, and return the visible ones."""
    records = memoryview(row.records) if row.records is not None else memoryview(b"")
    headers = [header for header in whole_batches(records) if header.next_offset > piece.position]
    if not headers:
        piece.failing_since = piece.failing_since or time.monotonic()
        return []
    piece.failing_since = None
    piece.position = headers[-1].next_offset
    headers = [header for header in headers if header.base_offset < piece.end]
    if isolation_level == READ_COMMITTED:
        headers = list(visible_batches(records, headers, row.aborted_transactions))
    return [
        RawBatches(piece.topic, piece.partition, data, piece.position)
        for data in visible_ranges(records, headers)
    ]


def _next_request(
    queue: list[tuple[int, _Batch]], max_bytes: int
) -> tuple[list[tuple[int, _Batch]], list[tuple[int, _Batch]]]:
    """Split into the batches of one request, in order and at most one per partition, and the rest."""
    taken: list[tuple[int, _Batch]] = []
    rest: list[tuple[int, _Batch]] = []
    held: set[Partition] = set()
    size = 0
    for index, batch in queue:
        key = (batch.topic, batch.partition)
        if key in held or (taken and size + len(batch.data) > max_bytes):
            rest.append((index, batch))
        else:
            taken.append((index, batch))
            size += len(batch.data)
        held.add(key)
    return taken, rest


def _take_offsets(
    response: ListOffsetsResponse, found: dict[Partition, OffsetAndTimestamp]
) -> KafkaException | None:
    problem: KafkaException | None = None
    for topic in response.topics:
        for row in topic.partitions:
            if row.error_code:
                problem = failure(row.error_code, f"{topic.name}-{row.partition_index}")
            else:
                answer = OffsetAndTimestamp(row.offset, row.timestamp, row.leader_epoch)
                found[topic.name, row.partition_index] = answer
    return problem
