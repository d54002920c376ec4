"""Counts of what clients and followers moved, by topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.config import TopicConfig
from felice.protocol.errors import ApiError
from felice.replication.traffic import BrokerTraffic
from unit.replication.test_partition import NOW_MS, append, batch, lead, make


def test_appends_and_reads_are_counted(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition)
    append(partition, 3)
    append(partition, 2)
    partition.fetch(0, 1000)
    traffic = partition.traffic
    assert (traffic.produce_requests, traffic.messages_in) == (2, 5)
    assert traffic.bytes_in == partition.log.size_bytes
    assert traffic.fetch_requests == 1


def test_a_batch_that_is_too_large_is_rejected_and_not_failed(tmp_path: Path) -> None:
    partition = make(tmp_path, TopicConfig(max_message_bytes=10))
    lead(partition)
    with pytest.raises(ApiError):
        append(partition)
    assert partition.traffic.bytes_rejected == len(batch())
    assert (partition.traffic.failed_produce_requests, partition.traffic.bytes_in) == (0, 0)


def test_an_append_fails_without_enough_replicas(tmp_path: Path) -> None:
    partition = make(tmp_path, TopicConfig(min_insync_replicas=2))
    lead(partition, replicas=(1, 2))
    with pytest.raises(ApiError):
        append(partition, acks=-1)
    assert (partition.traffic.produce_requests, partition.traffic.failed_produce_requests) == (1, 1)


def test_a_follower_counts_copied_bytes(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition, leader=2, replicas=(1, 2))
    partition.append_as_follower(batch(2), high_watermark=0, log_start_offset=0, now_ms=NOW_MS)
    assert partition.traffic.replication_bytes_in == len(batch(2))
    assert partition.traffic.bytes_in == 0


def test_the_total_contains_deleted_topics() -> None:
    traffic = BrokerTraffic()
    traffic.of("kept").bytes_in = 5
    traffic.of("deleted").bytes_in = 7
    traffic.keep_only(["kept", "unused"])
    assert list(traffic.topics) == ["kept"]
    assert traffic.total().bytes_in == 12
    assert traffic.of("deleted").bytes_in == 0
