"""Appends whole batches at the leaders of their partitions.

Keeps true:  when `produce` returns, all batches are acknowledged; otherwise it raises. Batches of one partition keep
             their order. Errors that new metadata may resolve are retried within `retry_timeout_ms`, which is the limit
             of the whole call. A partition without a leader holds back no batch of another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from felice.client.blocking.brokers import Brokers
from felice.client.blocking.config import BlockingConfig
from felice.client.error import KafkaError, KafkaException, failure
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
        with self._brokers.limit.within(self._config.retry_timeout_ms / 1000):
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
        limit = self._brokers.limit
        reason: KafkaException | None = None
        while left:
            error = self._produce_once(left, acks, results, transactional_id)
            for index in [index for index in left if index in results]:
                del left[index]
            if error is None:
                continue
            if not error.error.retriable():
                raise error
            if reason is None or not limit.is_over:
                reason = error
            self._brokers.doubt((batch.topic, batch.partition) for batch in left.values())
            self._brokers.pause()
            if limit.is_over:
                # The last attempt may have had a moment only: the one before it tells why.
                raise reason

    def _produce_once(
        self,
        left: dict[int, _Batch],
        acks: int,
        results: dict[int, Appended],
        transactional_id: str | None,
    ) -> KafkaException | None:
        indexes = {(batch.topic, batch.partition): index for index, batch in left.items()}
        problems = list[KafkaException]()
        try:
            led = self._brokers.by_leader(indexes)
        except KafkaException as unknown:
            return unknown
        if NO_LEADER in led:
            problems.append(self._brokers.why_leaderless(*led.pop(NO_LEADER)[0]))
        for number, (node_id, partitions) in enumerate(led.items()):
            batches = {p: left[indexes[p]].data for p in partitions}
            timeout_ms = self._config.request_timeout_ms
            request = produce_request(self._brokers.topology, batches, acks, timeout_ms, transactional_id)
            try:
                with self._brokers.limit.share(len(led) - number):
                    link = self._brokers.link_of(node_id)
                    link.send(request, answered=acks != 0)
                    response = link.receive() if acks else None
            except KafkaException as raised:
                problems.append(raised)
                continue
            if response is None:
                results.update({indexes[p]: Appended(*p, -1, -1) for p in partitions})
            elif error := self._take_produced(response, indexes, results) or _left_out(
                p for p in partitions if indexes[p] not in results
            ):
                problems.append(error)
        lasting = [error for error in problems if not error.error.retriable()]
        return next(iter(lasting or problems), None)

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


def _left_out(partitions: Iterable[Partition]) -> KafkaException | None:
    first = next(iter(partitions), None)
    if first is None:
        return None
    return failure(KafkaError._BAD_MSG, f"the reply leaves out {first[0]}-{first[1]}", retriable=True)
