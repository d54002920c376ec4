"""Asks brokers for offsets: by time, at the ends of partitions, and committed by a group.

Keeps true:  Every result comes from the current leader or coordinator. If it moved, the request is repeated until the
             time limit. Each partition gets a result or an error.
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
from felice.client.net.requests import list_offsets_request
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

Found = dict[Partition, OffsetAndTimestamp | KafkaError]


async def list_offsets(
    cluster: Cluster, timestamps: Mapping[Partition, int], isolation_level: int, timeout_s: float
) -> Found:
    """Return the first offset at or after each time in milliseconds; EARLIEST and LATEST name the ends of the log."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    found: Found = {}
    first = True
    while True:
        left = {p: timestamps[p] for p in timestamps if not isinstance(found.get(p), OffsetAndTimestamp)}
        if not first:
            await cluster.refresh(sorted({topic for topic, _ in left}))
        await _ask_leaders(cluster, left, isolation_level, found)
        passing = [error for error in found.values() if isinstance(error, KafkaError) and error.retriable()]
        if not passing or loop.time() >= deadline:
            return found
        first = False
        await asyncio.sleep(0.1)


async def _ask_leaders(
    cluster: Cluster, wanted: Mapping[Partition, int], isolation_level: int, found: Found
) -> None:
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
    for leader, partitions in led.items():
        try:
            request = list_offsets_request({p: wanted[p] for p in partitions}, isolation_level)
            response = await cluster.call(leader, request)
        except KafkaException as error:
            found.update(dict.fromkeys(partitions, error.error))
            continue
        for topic_row in response.topics:
            for row in topic_row.partitions:
                key = (topic_row.name, row.partition_index)
                found[key] = (
                    error_of(row.error_code, f"{key[0]}-{key[1]}")
                    if row.error_code
                    else OffsetAndTimestamp(row.offset, row.timestamp, row.leader_epoch)
                )


async def _coordinated(
    cluster: Cluster,
    group_id: str,
    request: object,
    timeout_s: float,
    codes_of: Callable[[R], Iterable[int]],
) -> R:
    """Return the coordinator's response; repeat the request while the error codes say that the coordinator moved."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        try:
            left = deadline - loop.time()
            node_id = await cluster.coordinator(group_id, max(0.0, left))
            limit_s = max(0.01, min(left, cluster.timeout_s))
            response: R = await cluster.call(node_id, request, timeout_s=limit_s)
            moved = [code for code in codes_of(response) if code in _COORDINATOR_MOVED]
            if not moved:
                return response
            reason = failure(moved[0], group_id)
        except KafkaException as error:
            if not error.error.retriable():
                raise
            reason = error
        cluster.forget_coordinator(group_id)
        if loop.time() >= deadline:
            raise reason
        await asyncio.sleep(0.1)


async def fetch_committed(
    cluster: Cluster, group_id: str, partitions: Iterable[Partition], isolation_level: int, timeout_s: float
) -> dict[Partition, CommittedOffset]:
    """Return the group's committed offsets; -1 for a partition without one."""

    def codes_of(response: OffsetFetchResponse) -> Iterable[int]:
        code, offsets = fetched_offsets(response)
        return (code, *(row.error_code for row in offsets.values()))

    request = offset_fetch_request(group_id, list(partitions), require_stable=isolation_level == 1)
    code, offsets = fetched_offsets(await _coordinated(cluster, group_id, request, timeout_s, codes_of))
    if code:
        raise failure(code, f"committed offsets of group {group_id!r}")
    return offsets


async def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[Partition, CommittedOffset],
    committer: Committer = NOBODY,
    timeout_s: float = 30.0,
) -> dict[Partition, int]:
    """Commit and return the error code of each partition; raises if the whole commit failed."""
    request = offset_commit_request(group_id, offsets, committer)
    return commit_results(
        await _coordinated(
            cluster, group_id, request, timeout_s, lambda response: commit_results(response).values()
        )
    )
