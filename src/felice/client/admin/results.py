"""Results and errors by item, and requests to several brokers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from felice.client.error import KafkaError, KafkaException, beyond_the_code, failure
from felice.client.model import Partition
from felice.client.net.cluster import Cluster
from felice.client.net.limits import deadline
from felice.client.net.topology import NO_LEADER
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode

K = TypeVar("K")
N = TypeVar("N")

# A broker's answer after all the time that it had for its work needs some time itself.
_ANSWER_S = 1.0


@dataclass(frozen=True, slots=True)
class WorkTime:
    """How long a broker may work on a request: the application's `operation_s`, by default as long as the call."""

    call_s: float
    operation_s: float | None = None

    @property
    def ms(self) -> int:
        """The time that the request names."""
        return int((self.call_s if self.operation_s is None else self.operation_s) * 1000)

    def answer_s(self, request_s: float) -> float:
        """How long to wait for the answer. `request_s`: request.timeout.ms.

        By default it is `request_s`, so that another broker is asked in time if this one has died.
        """
        return request_s if self.operation_s is None else max(request_s, self.operation_s + _ANSWER_S)


Results = dict[Any, Any]
"""For every requested item, its value or a `KafkaException`. Each function says which keys and values it returns."""


def outcome(code: int, message: str | None, what: str, value: object = None) -> object:
    """Return the value, or the exception for the error code."""
    if code == ErrorCode.NONE:
        return value
    said = beyond_the_code(code, message)
    return failure(code, f"{what}: {said}" if said else what)


async def from_each(asked: Mapping[N, list[K]], ask: Callable[[N, list[K]], Awaitable[Results]]) -> Results:
    """The results of one request to each broker, all asked at the same time.

    If a broker fails, or does not answer before the end of the call, the items that were asked of it get its error.
    Raises `KafkaException` only for _ALL_BROKERS_DOWN.
    """

    async def of_one(node_id: N, items: list[K]) -> Results:
        try:
            async with asyncio.timeout_at(deadline()):
                return await ask(node_id, items)
        except TimeoutError:
            broker = "any broker" if node_id is None else f"broker {node_id}"
            late = f"no answer from {broker} within the time limit of the call"
            return dict.fromkeys(items, failure(KafkaError._TIMED_OUT, late, retriable=True))
        except KafkaException as error:
            if error.code == KafkaError._ALL_BROKERS_DOWN:
                raise
            return dict.fromkeys(items, error)

    answers = await asyncio.gather(*(of_one(*part) for part in asked.items()), return_exceptions=True)
    found: Results = {}
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        found.update(answer)
    return found


async def from_all(cluster: Cluster, request: object) -> Results:
    """The response to a request, or the error, of each broker in the known metadata, by broker id."""

    async def ask(node_id: int, _: list[int]) -> Results:
        return {node_id: await cluster.call(node_id, request)}

    return await from_each({node_id: [node_id] for node_id in sorted(cluster.topology.brokers)}, ask)


def no_broker(node_id: int) -> KafkaException:
    """The error for a broker that is not in the metadata. Not retriable: the metadata was fetched just before."""
    return failure(KafkaError._UNKNOWN_BROKER, f"there is no broker {node_id}")


async def by_leader(
    cluster: Cluster, wanted: Iterable[Partition]
) -> tuple[dict[int, list[Partition]], Results]:
    """Group partitions by leader; returns an error for each partition without a leader."""
    partitions = list(wanted)
    await cluster.refresh(sorted({topic for topic, _ in partitions}))
    led: dict[int, list[Partition]] = {}
    errors: Results = {}
    for topic, number in partitions:
        leader = cluster.topology.leader(topic, number)
        if leader != NO_LEADER:
            led.setdefault(leader, []).append((topic, number))
            continue
        known = cluster.topology.partition(topic, number) is not None
        code = ErrorCode.LEADER_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        errors[topic, number] = failure(cluster.topology.topic_errors.get(topic, code), f"{topic}-{number}")
    return led, errors
