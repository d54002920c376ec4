"""Appends whole batches at the leaders of their partitions.

Keeps true:  when `produce` returns, all batches are acknowledged; otherwise it raises. Batches of one partition keep
             their order. Errors that new metadata may resolve are retried within `retry_timeout_ms`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import field
from typing import NamedTuple

from felice.client.blocking.brokers import Brokers
from felice.client.blocking.config import BlockingConfig
from felice.client.error import KafkaException, failure
from felice.client.model import Partition
from felice.client.net.requests import produce_request
from felice.client.net.topology import NO_LEADER
from felice.dataclass import dataclass
from felice.protocol.messages.produce import ProduceResponse
from felice.protocol.primitives import Buffer


class Appended(NamedTuple):
    """The offset of a produced batch. `log_append_time_ms` is -1 unless the topic uses the broker's time."""

    topic: str
    partition: int
    base_offset: int
    log_append_time_ms: int


@dataclass(slots=True)
class _Batch:
    topic: str
    partition: int
    data: Buffer
    tried_since: float = field(default_factory=time.monotonic)


class Producing:
    """Produces to the brokers of one client."""

    def __init__(self, brokers: Brokers, config: BlockingConfig) -> None:
        self._brokers = brokers
        self._config = config

    def produce(
        self,
        batches: Iterable[tuple[str, int, Buffer]],
        acks: int,
        max_request_bytes: int,
        transactional_id: str | None,
    ) -> list[Appended]:
        """Append the batches; the results are in their order."""
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
            expired = (time.monotonic() - oldest) * 1000 >= self._config.retry_timeout_ms
            if not error.error.retriable() or expired:
                raise error
            self._brokers.refresh_leaders((batch.topic, batch.partition) for batch in left.values())

    def _produce_once(
        self,
        left: dict[int, _Batch],
        acks: int,
        results: dict[int, Appended],
        transactional_id: str | None,
    ) -> KafkaException | None:
        indexes = {(batch.topic, batch.partition): index for index, batch in left.items()}
        try:
            led = self._brokers.by_leader(indexes)
            if NO_LEADER in led:
                return self._brokers.why_leaderless(*led[NO_LEADER][0])
            problem: KafkaException | None = None
            for node_id, partitions in led.items():
                batches = {p: left[indexes[p]].data for p in partitions}
                timeout_ms = self._config.request_timeout_ms
                request = produce_request(self._brokers.topology, batches, acks, timeout_ms, transactional_id)
                link = self._brokers.link_of(node_id)
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
            name = topic.name or self._brokers.topology.names_by_id.get(topic.topic_id, "")
            for row in topic.partition_responses:
                if row.error_code:
                    why = f"{name}-{row.index}: {row.error_message or ''}".rstrip(": ")
                    problem = failure(row.error_code, why)
                else:
                    index = indexes[name, row.index]
                    results[index] = Appended(name, row.index, row.base_offset, row.log_append_time_ms)
        return problem


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
