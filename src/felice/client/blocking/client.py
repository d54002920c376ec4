"""A small client without event loop or threads, for processes with one task, such as Spark's executors.

Keeps true:  Batches pass through whole and undecoded. `fetch` yields the batches with all records between the requested
             offsets; the first and the last batch may contain offsets outside them. When `produce` returns, all its
             batches are acknowledged; otherwise it raises.
             Errors that new metadata may resolve are retried within `retry_timeout_ms`.
How:         `brokers` has the connections and the metadata; `fetching` and `producing` send what needs several rounds.
Only one thread at a time may use a client. A pickled client has the same configuration and no connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from felice.client.blocking.brokers import Brokers
from felice.client.blocking.config import BlockingConfig
from felice.client.blocking.fetching import Fetching, FetchOptions, RawBatches
from felice.client.blocking.producing import Appended, Producing
from felice.client.error import KafkaException, failure
from felice.client.model import ClusterMetadata, OffsetAndTimestamp, Partition
from felice.client.net.requests import list_offsets_request
from felice.client.net.topology import NO_LEADER
from felice.protocol.messages.list_offsets import ListOffsetsResponse
from felice.protocol.primitives import Buffer

LATEST = -1
EARLIEST = -2


class BlockingClient:
    """`BlockingClient("host:9092")`, or with a `BlockingConfig`, or with its fields as keywords."""

    # `BlockingConfig` has the names and types of the fields.
    def __init__(self, config: BlockingConfig | str, **fields: Any) -> None:
        chosen = BlockingConfig(config, **fields) if isinstance(config, str) else replace(config, **fields)
        self.config = chosen
        self._brokers = Brokers(chosen)
        self._fetching = Fetching(self._brokers, chosen)
        self._producing = Producing(self._brokers, chosen)

    def __reduce__(self) -> tuple[object, ...]:
        return BlockingClient, (self.config,)

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. The next use of the client opens them again."""
        self._brokers.close()

    # Requests without a method of their own

    def ask_any(self, request: object) -> Any:
        """Return the response of the first broker that gives one."""
        return self._brokers.call_any(request)

    def ask(self, address: tuple[str, int], request: object) -> Any:
        """Return the response of the broker at this address (host and port)."""
        return self._brokers.link(address).call(request)

    def ask_all(self, address: tuple[str, int], requests: Iterable[object]) -> list[Any]:
        """Send all requests, then return their responses in the same order."""
        link = self._brokers.link(address)
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
        self._brokers.refresh(names, allow_auto_create)
        return self._brokers.topology.describe(names)

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
            self._brokers.refresh_leaders(left)
        return found

    def _list_offsets_once(
        self, wanted: Mapping[Partition, int], isolation: int, found: dict[Partition, OffsetAndTimestamp]
    ) -> KafkaException | None:
        try:
            led = self._brokers.by_leader(wanted)
            if NO_LEADER in led:
                return self._brokers.why_leaderless(*led[NO_LEADER][0])
            for node_id, partitions in led.items():
                questions = {partition: wanted[partition] for partition in partitions}
                response = self._brokers.link_of(node_id).call(list_offsets_request(questions, isolation))
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
        options = FetchOptions(
            max_bytes or config.fetch_max_bytes,
            partition_max_bytes or config.partition_max_bytes,
            config.isolation_level if isolation_level is None else isolation_level,
            config.fetch_max_wait_ms,
        )
        return self._fetching.fetch(ranges, options)

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
        return self._producing.produce(batches, acks, max_request_bytes, transactional_id)


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
