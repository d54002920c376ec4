"""DescribeLogDirs (key 35): this broker's log directories, their replicas and their free space.

A failed directory has the error KAFKA_STORAGE_ERROR and no partitions. A replica that moves to another directory is
listed in both: in the new one as a future replica, with the number of offsets that are still to be copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from operator import itemgetter
from typing import TYPE_CHECKING

from felice.env import Volume
from felice.log.directory import LogDirectory
from felice.log.log import Log
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from felice.replication.partition import Partition
from felice.security.acl import Operation
from felice.server.access.guards import cluster_permission, request_needs
from felice.server.flow.pace import paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext
    from felice.server.services import Services

_UNKNOWN = Volume(total_bytes=-1, usable_bytes=-1)

guard = request_needs(
    API.DESCRIBE_LOG_DIRS,
    cluster_permission(Operation.DESCRIBE),
    refuse=lambda request, code, context: DescribeLogDirsResponse(error_code=code),
)


async def handle(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Reads the free space of each directory on a thread; -1 if the system call fails."""
    services, loop = context.services, asyncio.get_running_loop()
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    results = []
    for directory in services.disks.directories:
        volume = await loop.run_in_executor(None, _volume_of, directory, services)
        results.append(await _result(directory, volume, wanted, services))
    return DescribeLogDirsResponse(results=results)


def _volume_of(directory: LogDirectory, services: Services) -> Volume:
    try:
        return services.env.disk.volume(directory.path)
    except OSError:
        return _UNKNOWN


async def _result(
    directory: LogDirectory, volume: Volume, wanted: Collection[tuple[str, int]] | None, services: Services
) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=str(directory.path))
    if directory.offline_reason is not None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    result.stray_logs = [path.name for path in directory.strays.present()]
    result.total_bytes, result.usable_bytes = volume.total_bytes, volume.usable_bytes
    found = [(key, False, log) for key, log in directory.logs.items()]
    found += [(key, True, log) for key, log in directory.futures.items()]
    topics: dict[str, DescribeLogDirsTopic] = {}
    async for (topic, index), is_future, log in paced(
        sorted(found, key=itemgetter(0, 1)), services.env.clock
    ):
        if wanted is None or (topic, index) in wanted:
            row = _row(services.partitions.get(topic, index), log, index, is_future=is_future)
            topics.setdefault(topic, DescribeLogDirsTopic(name=topic)).partitions.append(row)
    result.topics = list(topics.values())
    return result


def _row(partition: Partition | None, log: Log, index: int, *, is_future: bool) -> DescribeLogDirsPartition:
    row = DescribeLogDirsPartition(
        partition_index=index, partition_size=log.size_bytes, is_future_key=is_future
    )
    if partition is not None:
        end_offset = partition.log_end_offset if is_future else partition.high_watermark
        row.offset_lag = max(end_offset - log.log_end_offset, 0)
    return row
