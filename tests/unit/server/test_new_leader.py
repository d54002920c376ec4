"""The latest offset of a new leader before its followers have fetched from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from felice.config import TopicConfig
from felice.env import SystemClock, SystemDisk
from felice.log.log import Log
from felice.metadata.image import PartitionImage
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from felice.records.builder import BatchBuilder
from felice.replication.dependencies import PartitionDependencies
from felice.replication.partition import Partition
from felice.server.handlers import list_offsets
from felice.server.services import Services
from rooms import context_with

NOW_MS = SystemClock().now_ms()
FOREVER = NOW_MS + 10_000
Ask: TypeAlias = Callable[..., ListOffsetsPartitionResponse]


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    """It followed, has a record that it does not know to be committed, and was elected just now."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = Log.open(SystemDisk(), SystemClock(), directory, ("t", 0), TopicConfig())
    found = Partition(1, log, log.topic_id, PartitionDependencies(SystemClock()))  # type: ignore[arg-type]
    found.update_role(PartitionImage(0, (1, 2), 2, 0, (1, 2), 0))
    builder = BatchBuilder()
    builder.append(NOW_MS, None, b"v")
    found.append_as_follower(bytearray(builder.build()), high_watermark=0, log_start_offset=0, now_ms=NOW_MS)
    found.update_role(PartitionImage(0, (1, 2), 1, 1, (1, 2), 1))
    return found


@pytest.fixture
def ask(services: Services, partition: Partition) -> Ask:
    """Asks for an offset of the partition."""
    partitions: Any = SimpleNamespace(find=lambda topic, number: partition)

    def ask(timestamp: int, version: int = 5, replica_id: int = -1) -> ListOffsetsPartitionResponse:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name="t", partitions=[asked])
        request = ListOffsetsRequest(replica_id=replica_id, topics=[topic])
        context = context_with(replace(services, partitions=partitions), version)
        return asyncio.run(list_offsets.handle(request, context)).topics[0].partitions[0]

    return ask


@pytest.mark.parametrize("timestamp", [LATEST_TIMESTAMP, NOW_MS])
def test_a_new_leader_returns_no_older_offset_than_its_predecessor(ask: Ask, timestamp: int) -> None:
    assert ask(timestamp).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    # Old clients do not know that error, and try again for this one.
    assert ask(timestamp, version=4).error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_a_new_leader_knows_the_log_start_and_the_log_end(ask: Ask) -> None:
    assert ask(EARLIEST_TIMESTAMP).offset == 0
    assert ask(LATEST_TIMESTAMP, replica_id=2).offset == 1


def test_a_new_leader_knows_the_latest_offset_after_its_followers_fetched(
    partition: Partition, ask: Ask
) -> None:
    partition.on_follower_fetch(
        2, 1, log_start_offset=0, broker_epoch=-1, current_leader_epoch=1, last_fetched_epoch=-1
    )
    assert ask(LATEST_TIMESTAMP).offset == 1
    assert ask(NOW_MS).offset == 0
    assert (ask(FOREVER).error_code, ask(FOREVER).offset) == (0, -1)
