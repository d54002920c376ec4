"""Reads ranges of offsets from the leaders of their partitions, or from the replicas that the leaders name.

Keeps true:  batches pass through whole and undecoded, in order for each partition. All records between the requested
             offsets are read; the first and the last batch may contain offsets outside them.
             Errors that new metadata may resolve are retried within `retry_timeout_ms`, which is also the limit of
             each step of the reading: it yields, ends or raises until then.
How:         while the caller processes a response, the next request is already in flight (`prefetch`); this keeps one
             more response in memory.
Leaves:      the choice of a replica to `read_replicas`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from felice.client.blocking.brokers import Brokers
from felice.client.blocking.config import BlockingConfig
from felice.client.blocking.link import BlockingLink
from felice.client.consume.isolation import READ_COMMITTED, visible_batches, visible_ranges, whole_batches
from felice.client.error import KafkaError, KafkaException, failure
from felice.client.model import Partition
from felice.client.net.read_replicas import ReadReplicas
from felice.client.net.requests import fetch_request
from felice.client.net.topology import NO_LEADER
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import FetchResponse, PartitionData


class RawBatches(NamedTuple):
    """Whole batches of one partition. `next_offset` is the offset at which reading continues."""

    topic: str
    partition: int
    data: memoryview
    next_offset: int


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
    log_end: int | None = None
    """The high watermark in the last response, if it had no more records."""
    problem: KafkaException | None = None
    """Why the last attempt failed that had its full time."""
    is_at_leader: bool = True
    """Whether this round asks the partition's leader, and not another replica."""

    @property
    def key(self) -> Partition:
        return self.topic, self.partition

    @property
    def done(self) -> bool:
        return self.position >= self.end


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """The limits of one `fetch`: bytes of a response, bytes of a partition in it, and the wait in milliseconds.

    `isolation_level` is READ_UNCOMMITTED or READ_COMMITTED.
    """

    max_bytes: int
    partition_max_bytes: int
    isolation_level: int
    max_wait_ms: int


class Fetching:
    """Fetches from the brokers of one client."""

    def __init__(self, brokers: Brokers, config: BlockingConfig) -> None:
        self._brokers = brokers
        self._config = config
        max_age_s = config.metadata_max_age_ms / 1000
        self._replicas = ReadReplicas(brokers.topology, config.client_rack, max_age_s)

    def fetch(
        self, ranges: Mapping[Partition, tuple[int, int]], options: FetchOptions
    ) -> Iterator[RawBatches]:
        """Yield the batches between each partition's start and end offset (exclusive), partitions interleaved."""
        pieces = self._fetch_rounds(ranges, options)
        limit_s = self._config.retry_timeout_ms / 1000
        while True:
            # The caller's time between two pieces does not count.
            with self._brokers.limit.within(limit_s):
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def _fetch_rounds(
        self, ranges: Mapping[Partition, tuple[int, int]], options: FetchOptions
    ) -> Iterator[RawBatches]:
        left = [_Range(t, p, start, end) for (t, p), (start, end) in ranges.items() if start < end]
        while left:
            yield from self._fetch_round(left, options)
            left = [piece for piece in left if not piece.done]

    def _fetch_round(self, left: list[_Range], options: FetchOptions) -> Iterator[RawBatches]:
        """Read from each broker in turn; a failing broker does not keep back the data of the others."""
        ranges = {piece.key: piece for piece in left}
        try:
            led = self._brokers.by_leader(ranges)
        except KafkaException as error:
            self._on_fetch_failure(list(ranges.values()), error)
            return
        if NO_LEADER in led:
            self._on_fetch_failure(
                [ranges[p] for p in led[NO_LEADER]], self._brokers.why_leaderless(*led.pop(NO_LEADER)[0])
            )
        served: dict[int, list[_Range]] = {}
        for partitions in led.values():
            for piece in map(ranges.__getitem__, partitions):
                node_id = self._node_of(piece)
                piece.is_at_leader = node_id == self._brokers.topology.leader(*piece.key)
                served.setdefault(node_id, []).append(piece)
        for node_id, pieces in served.items():
            yield from self._fetch_from(node_id, pieces, options)

    def _node_of(self, piece: _Range) -> int:
        return self._replicas.node_of(piece.key, time.monotonic())

    def _fetch_from(self, node_id: int, left: list[_Range], options: FetchOptions) -> Iterator[RawBatches]:
        """Read from one broker until its ranges are done or served elsewhere, or an error requires new metadata.

        Without `prefetch`, and with several brokers, it reads one response only, so that the brokers take turns.
        """
        alone = len(self._brokers.topology.brokers) == 1
        error: KafkaException | None = None
        try:
            link = self._brokers.link_of(node_id)
            self._send_fetch(link, left, options)
            while left:
                response = link.receive(extra_s=options.max_wait_ms / 1000)
                pieces, error = self._take_fetch(node_id, response, left, options)
                here = [piece for piece in left if error is not None or self._node_of(piece) == node_id]
                left = _turned([piece for piece in here if not piece.done])
                ahead = self._config.prefetch and error is None and bool(left)
                unsent = self._try_to_send(link, left, options) if ahead else None
                # Also after an error: the positions are behind these batches already.
                yield from pieces
                if (problem := error or unsent) is not None:
                    raise problem
                if left and not ahead:
                    if not alone:
                        return
                    self._send_fetch(link, left, options)
        except KafkaException as raised:
            if raised is not error:
                # The whole response is missing, or an error. Of the partitions in a response, only those with an error
                # leave their replica (`_failure_of`).
                for piece in left:
                    if not piece.is_at_leader:
                        self._replicas.leave(piece.key, time.monotonic())
            self._on_fetch_failure(left, raised)

    def _try_to_send(
        self, link: BlockingLink, left: list[_Range], options: FetchOptions
    ) -> KafkaException | None:
        try:
            self._send_fetch(link, left, options)
        except KafkaException as error:
            return error
        return None

    def _send_fetch(self, link: BlockingLink, left: list[_Range], options: FetchOptions) -> None:
        positions = {piece.key: piece.position for piece in left}
        link.send(
            fetch_request(
                self._brokers.topology,
                positions,
                max_wait_ms=options.max_wait_ms,
                max_bytes=options.max_bytes,
                partition_max_bytes=options.partition_max_bytes,
                isolation_level=options.isolation_level,
                rack_id=self._replicas.rack_for(positions, time.monotonic()),
            )
        )

    def _take_fetch(
        self, node_id: int, response: FetchResponse, left: list[_Range], options: FetchOptions
    ) -> tuple[list[RawBatches], KafkaException | None]:
        if response.error_code:
            raise failure(response.error_code)
        wanted = {piece.key: piece for piece in left}
        pieces: list[RawBatches] = []
        problem: KafkaException | None = None
        for topic in response.responses:
            name = topic.topic or self._brokers.topology.names_by_id.get(topic.topic_id, "")
            for row in topic.partitions:
                piece = wanted.get((name, row.partition_index))
                if piece is None:
                    continue
                error = self._failure_of(node_id, piece, row)
                if error is None and row.preferred_read_replica < 0:
                    pieces += _advance(piece, row, options.isolation_level)
                    error = self._stalled(piece, row)
                if problem is None or isinstance(error, OffsetOutOfRange):
                    problem = error or problem
        return pieces, problem

    def _failure_of(self, node_id: int, piece: _Range, row: PartitionData) -> KafkaException | None:
        where, code, named = f"{piece.topic}-{piece.partition}", row.error_code, row.preferred_read_replica
        if not piece.is_at_leader:
            if code:
                self._replicas.leave(piece.key, time.monotonic())
                # A replica may lag behind the leader, so its error says nothing about the partition: ask the leader.
                return failure(code, f"{where}, at the replica of broker {node_id}", retriable=True)
            self._replicas.answered(piece.key)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return OffsetOutOfRange(*piece.key, piece.position)
        if code:
            return failure(code, where)
        if named >= 0 and not self._replicas.follow(piece.key, named, time.monotonic()):
            why = f"{where}: broker {named}, which the leader named, is not an available replica in the metadata"
            return failure(ErrorCode.REPLICA_NOT_AVAILABLE, why)
        return None

    def _stalled(self, piece: _Range, row: PartitionData) -> KafkaException | None:
        """Return an error if the log stays shorter than the requested end: the wait must be bounded."""
        since, now = piece.failing_since, time.monotonic()
        piece.log_end = None if since is None else row.high_watermark
        waited_ms = 0.0 if since is None else (now - since) * 1000
        if not piece.is_at_leader and 2 * waited_ms >= self._config.retry_timeout_ms:
            # The leader may have the records. It has the other half of the time.
            self._replicas.leave(piece.key, now)
        elif waited_ms >= self._config.retry_timeout_ms:
            return self._too_short(piece)
        return None

    def _too_short(self, piece: _Range) -> KafkaException:
        where = f"{piece.topic}-{piece.partition} ends at {piece.log_end}, {piece.end} was asked for"
        return failure(
            KafkaError._TIMED_OUT, f"{where}, and nothing came in {self._config.retry_timeout_ms} ms"
        )

    def _on_fetch_failure(self, pieces: list[_Range], error: KafkaException) -> None:
        """Raise the error, or keep the ranges for the next round if it is transient."""
        now = time.monotonic()
        for piece in pieces:
            piece.failing_since = piece.failing_since or now
        longest = max((now - (piece.failing_since or now) for piece in pieces), default=0.0)
        if not error.error.retriable():
            raise error
        if not self._brokers.limit.is_over:
            for piece in pieces:
                piece.problem = error
            self._brokers.doubt(piece.key for piece in pieces)
            self._brokers.pause()
        if self._brokers.limit.is_over or longest * 1000 >= self._config.retry_timeout_ms:
            # The last attempt may have had a moment only: the one before it tells why.
            reasons = [piece.problem for piece in pieces if piece.problem is not None]
            reasons += [self._too_short(piece) for piece in pieces if piece.log_end is not None]
            raise next(iter(reasons), error)


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
    piece.failing_since = piece.problem = None
    piece.position = headers[-1].next_offset
    headers = [header for header in headers if header.base_offset < piece.end]
    if isolation_level == READ_COMMITTED:
        headers = list(visible_batches(records, headers, row.aborted_transactions))
    return [
        RawBatches(piece.topic, piece.partition, data, piece.position)
        for data in visible_ranges(records, headers)
    ]
