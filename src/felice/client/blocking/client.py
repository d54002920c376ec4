"""A small client without event loop or threads, for processes with one task, such as Spark's executors.

Keeps true:  Batches pass through whole and undecoded. `fetch` yields the batches with all records between the requested
             offsets; the first and the last batch may contain offsets outside them. When `produce` returns, all its
             batches are acknowledged; otherwise it raises.
             Errors that new metadata may resolve are retried within `retry_timeout_ms`.
             Every call ends at its time limit, also if brokers answer nothing: requests without retries after
             `request_timeout_ms`, all others after `retry_timeout_ms`. Between two pieces of a `fetch` no more than
             `retry_timeout_ms` pass.
How:         `brokers` has the connections and the metadata; `fetching` and `producing` send what needs several rounds.
Only one thread at a time may use a client. A pickled client has the same configuration and no connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from felice.client.arguments import takes_lists
from felice.client.blocking.brokers import Brokers
from felice.client.blocking.config import BlockingConfig
from felice.client.blocking.fetching import Fetching, FetchOptions, RawBatches
from felice.client.blocking.limits import TimeLimit
from felice.client.blocking.producing import Appended, Producing
from felice.client.error import KafkaError, KafkaException, detail_of, failure
from felice.client.model import ClusterMetadata, OffsetAndTimestamp, Partition
from felice.client.net.requests import found_offsets, list_offsets_request
from felice.client.net.topology import NO_LEADER
from felice.protocol.primitives import Buffer

LATEST = -1
EARLIEST = -2


@takes_lists
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

    @property
    def limit(self) -> TimeLimit:
        """The time limit of the current call."""
        return self._brokers.limit

    @contextmanager
    def limited(self, limit_ms: int | None = None) -> Iterator[TimeLimit]:
        """Limit all calls inside the block to `limit_ms` in total; by default to `retry_timeout_ms`."""
        limit = self.limit
        with limit.within((self.config.retry_timeout_ms if limit_ms is None else limit_ms) / 1000):
            yield limit

    # Requests without a method of their own

    def ask_any(self, request: object) -> Any:
        """Return the response of the first broker that gives one."""
        return self._brokers.call_any(request)

    def ask(self, address: tuple[str, int], request: object) -> Any:
        """Return the response of the broker at this address (host and port)."""
        with self.limited(self.config.request_timeout_ms):
            return self._brokers.link(address).call(request)

    def ask_all(self, address: tuple[str, int], requests: Iterable[object]) -> list[Any]:
        """Send all requests, then return their responses in the same order."""
        with self.limited(self.config.request_timeout_ms):
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
        """Return the first offset at or after each timestamp (ms), or -1; LATEST and EARLIEST name the ends.

        The error for partitions that cannot be looked up within `retry_timeout_ms` names the first of them.
        """
        found: dict[Partition, OffsetAndTimestamp] = {}
        reasons: dict[Partition, KafkaException] = {}
        with self.limited() as limit:
            while left := {p: timestamps[p] for p in timestamps if p not in found}:
                rows = self.offsets_of_each(left, isolation_level)
                found |= {p: row for p, row in rows.items() if not isinstance(row, KafkaException)}
                failed = {p: row for p, row in rows.items() if isinstance(row, KafkaException)}
                lasting = [error for error in failed.values() if not error.error.retriable()]
                if lasting:
                    raise lasting[0]
                # The last attempt may have had a moment only: the one before it tells why.
                reasons = failed | reasons if limit.is_over else failed
                self._brokers.pause()
                if failed and limit.is_over:
                    raise next(reasons[p] for p in failed)
        return found

    def offsets_of_each(
        self, timestamps: Mapping[Partition, int], isolation_level: int | None = None
    ) -> dict[Partition, OffsetAndTimestamp | KafkaException]:
        """Ask each leader once, as `list_offsets` does; a partition that cannot be looked up now has its error.

        It ends after `request_timeout_ms`. A leader that does not answer leaves time for the leaders after it.
        """
        isolation = self.config.isolation_level if isolation_level is None else isolation_level
        rows: dict[Partition, OffsetAndTimestamp | KafkaException] = {}
        with self.limited(self.config.request_timeout_ms) as limit:
            try:
                led = self._brokers.by_leader(timestamps)
            except KafkaException as error:
                return dict.fromkeys(timestamps, error)
            for key in led.pop(NO_LEADER, []):
                rows[key] = self._brokers.why_leaderless(*key)
            for number, (node_id, partitions) in enumerate(led.items()):
                with limit.share(len(led) - number):
                    questions = {partition: timestamps[partition] for partition in partitions}
                    rows |= self._offsets_of_leader(node_id, questions, isolation)
        self._brokers.doubt(key for key, row in rows.items() if isinstance(row, KafkaException))
        return rows

    def _offsets_of_leader(
        self, node_id: int, questions: Mapping[Partition, int], isolation: int
    ) -> dict[Partition, OffsetAndTimestamp | KafkaException]:
        try:
            response = self._brokers.link_of(node_id).call(list_offsets_request(questions, isolation))
        except KafkaException as error:
            return {key: _of_partition(key, error) for key in questions}
        found = found_offsets(response, questions)
        return {
            key: KafkaException(row) if isinstance(row, KafkaError) else row for key, row in found.items()
        }

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


def _of_partition(key: Partition, error: KafkaException) -> KafkaException:
    """The error of the broker that leads a partition, with the partition's name."""
    cause = error.error
    return failure(cause.code(), f"{key[0]}-{key[1]}: {detail_of(cause)}", retriable=cause.retriable())
