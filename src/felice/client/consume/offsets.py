"""Asks brokers for offsets: by time, at the ends of partitions, and committed by a group.

Keeps true:  Every result comes from the current leader or coordinator. If it moved, the request is repeated until the
             time limit of the call (`limits`), otherwise for `request.timeout.ms`. Each partition gets a result or an
             error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from felice.client.error import KafkaError, KafkaException, error_of, failure
from felice.client.group.requests import (
    NOBODY,
    CommittedOffset,
    Committer,
    commit_results,
    fetched_offsets,
    offset_commit_request,
    offset_fetch_request,
)
from felice.client.model import OffsetAndTimestamp, Partition
from felice.client.net.cluster import Cluster
from felice.client.net.limits import deadline, time_left_s
from felice.client.net.requests import found_offsets, list_offsets_request
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.offset_fetch import OffsetFetchResponse

R = TypeVar("R")

LATEST = -1
EARLIEST = -2

_COORDINATOR_MOVED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)

_PAUSE_S = 0.1
# How long an application's call asks for a partition that brokers do not know: some learn of a new topic later.
UNKNOWN_LIMIT_S = 0.5

Found = dict[Partition, OffsetAndTimestamp | KafkaError]


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[Partition, int],
    isolation_level: int,
    unknown_limit_s: float | None = None,
) -> Found:
    """Return the first offset at or after each time in milliseconds; EARLIEST and LATEST name the ends of the log.

    A partition that brokers do not know may be a new one: it is asked for again, at most for `unknown_limit_s`.
    """
    began_s = asyncio.get_running_loop().time()
    end_s = began_s + time_left_s(cluster.timeout_s)
    unknown_until_s = end_s if unknown_limit_s is None else began_s + unknown_limit_s
    found: Found = {}
    first = True
    while True:
        left = {p: timestamps[p] for p in timestamps if not isinstance(found.get(p), OffsetAndTimestamp)}
        if not first:
            await cluster.refresh(sorted({topic for topic, _ in left}))
        found.update(await ask_leaders(cluster, left, isolation_level))
        now_s = asyncio.get_running_loop().time()
        time_s = end_s - now_s
        passing = [
            error
            for error in found.values()
            if isinstance(error, KafkaError)
            and error.retriable()
            and (error.code() != KafkaError._UNKNOWN_PARTITION or now_s < unknown_until_s)
        ]
        if not passing or time_s <= 0:
            return found
        first = False
        await asyncio.sleep(min(_PAUSE_S, time_s))


async def ask_leaders(cluster: Cluster, wanted: Mapping[Partition, int], isolation_level: int) -> Found:
    """Ask once: all leaders at the same time, so that none waits for another's broker."""
    found: Found = {}
    led: dict[int, list[Partition]] = {}
    unknown = {topic for topic, _ in wanted if not cluster.topology.partition_count(topic)}
    if unknown:
        await cluster.refresh(sorted(unknown))
    for topic, number in wanted:
        if cluster.topology.partition(topic, number) is None:
            found[topic, number] = error_of(
                KafkaError._UNKNOWN_PARTITION, f"{topic}-{number}", retriable=True
            )
        else:
            led.setdefault(cluster.topology.leader(topic, number), []).append((topic, number))

    async def ask(leader: int, partitions: list[Partition]) -> Found:
        try:
            request = list_offsets_request({p: wanted[p] for p in partitions}, isolation_level)
            async with asyncio.timeout_at(deadline()):
                response = await cluster.call(leader, request)
        except KafkaException as error:
            return dict.fromkeys(partitions, error.error)
        except TimeoutError:
            late = error_of(KafkaError._TIMED_OUT, f"no answer from broker {leader} in time", retriable=True)
            return dict.fromkeys(partitions, late)
        return found_offsets(response, partitions)

    for answer in await asyncio.gather(*(ask(*part) for part in led.items())):
        found.update(answer)
    return found


async def _coordinated(
    cluster: Cluster,
    group_id: str,
    request: object,
    codes_of: Callable[[R], Iterable[int]],
) -> R:
    """Return the coordinator's response; repeat the request while the error codes say that the coordinator moved."""
    end_s = asyncio.get_running_loop().time() + time_left_s(cluster.timeout_s)
    while True:
        left_s = end_s - asyncio.get_running_loop().time()
        try:
            node_id = await cluster.coordinator(group_id, max(0.0, left_s))
            response: R = await cluster.call(node_id, request)
            moved = [code for code in codes_of(response) if code in _COORDINATOR_MOVED]
            if not moved:
                return response
            reason = failure(moved[0], group_id)
        except KafkaException as error:
            if not error.error.retriable():
                raise
            reason = error
        except asyncio.CancelledError:
            # The next call asks again where the coordinator is: this one did not answer in time.
            cluster.forget_coordinator(group_id)
            raise
        cluster.forget_coordinator(group_id)
        if end_s - asyncio.get_running_loop().time() <= _PAUSE_S:
            raise reason
        await asyncio.sleep(_PAUSE_S)


async def fetch_committed(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[Partition],
    isolation_level: int,
    *,
    waits_for_all: bool = True,
    reader: Committer = NOBODY,
) -> dict[Partition, CommittedOffset]:
    """Return the group's committed offsets; -1 for a partition without one. A `reader` must be a current member.

    A row may have an error, for example of a transaction that still commits its offset. With `waits_for_all` the
    request is repeated until no row has one, or the time is over.
    """
    offsets: dict[Partition, CommittedOffset] = {}

    def codes_of(response: OffsetFetchResponse) -> Iterable[int]:
        nonlocal offsets
        code, offsets = fetched_offsets(response)
        return (code, *(row.error_code for row in offsets.values() if waits_for_all))

    request = offset_fetch_request(
        group_id, list(partitions), require_stable=isolation_level == 1, reader=reader
    )
    try:
        code, offsets = fetched_offsets(await _coordinated(cluster, group_id, request, codes_of))
    except KafkaException:
        if not any(row.error_code == ErrorCode.NONE for row in offsets.values()):
            raise
        # The time is over, and the coordinator has answered for some partitions.
        return offsets
    if code:
        raise failure(code, f"committed offsets of group {group_id!r}")
    return offsets


async def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[Partition, CommittedOffset],
    committer: Committer = NOBODY,
) -> dict[Partition, int]:
    """Commit and return the error code of each partition; raises if the whole commit failed."""
    request = offset_commit_request(group_id, offsets, committer)
    return commit_results(
        await _coordinated(cluster, group_id, request, lambda response: commit_results(response).values())
    )
