"""Rules 56-60: ListOffsets and OffsetForLeaderEpoch."""

from typing import Any

import pytest

from conformance.topics import list_offset, metadata_of, new_topic, produce, produce_values, record
from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from felice.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from felice.records.builder import build_batch
from felice.records.compression import Codec

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
BASE_MS = 1_700_000_000_000
READ_COMMITTED = 1


def timed_topic(wire: Wire, codec: Codec = Codec.NONE) -> str:
    """Two batches: +100, +300, +200 and +400, +350."""
    topic = new_topic(wire)
    for stamps in ((100, 300, 200), (400, 350)):
        records = [record(b"v", timestamp_ms=BASE_MS + stamp) for stamp in stamps]
        assert produce(wire, topic, build_batch(records, codec)).error_code == 0
    return topic


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("target", "offset", "stamp"),
    [(0, 0, 100), (100, 0, 100), (101, 1, 300), (200, 1, 300), (301, 3, 400), (400, 3, 400)],
)
def test_a_timestamp_finds_the_first_record_not_the_batch(
    wire: Wire, codec: Codec, target: int, offset: int, stamp: int
) -> None:
    """56: with that record's own timestamp."""
    row = list_offset(wire, timed_topic(wire, codec), BASE_MS + target)
    assert (row.error_code, row.offset, row.timestamp) == (0, offset, BASE_MS + stamp)


def test_a_timestamp_after_all_records_finds_nothing_without_error(wire: Wire) -> None:
    """56: offset -1, timestamp -1."""
    row = list_offset(wire, timed_topic(wire), BASE_MS + 401)
    assert (row.error_code, row.offset, row.timestamp) == (0, -1, -1)
    empty = list_offset(wire, new_topic(wire), 0)
    assert (empty.error_code, empty.offset, empty.timestamp) == (0, -1, -1)


@pytest.mark.parametrize("isolation_level", [0, READ_COMMITTED])
@pytest.mark.parametrize("version", range(2, 12))
def test_the_ends_of_the_log(wire: Wire, version: int, isolation_level: int) -> None:
    """57: latest is the last stable offset for read_committed; both ends have timestamp -1."""
    topic = timed_topic(wire)
    for asked, offset in ((EARLIEST, 0), (LATEST, 5)):
        row = list_offset(wire, topic, asked, version=version, isolation_level=isolation_level)
        assert (row.error_code, row.offset, row.timestamp) == (0, offset, -1)
        assert row.leader_epoch == (0 if version >= 4 else -1)


def test_the_maximal_timestamp_names_its_record(wire: Wire) -> None:
    """58: from v7."""
    topic = timed_topic(wire)
    row = list_offset(wire, topic, MAX_TIMESTAMP, version=7)
    assert (row.error_code, row.offset, row.timestamp) == (0, 3, BASE_MS + 400)
    assert list_offset(wire, new_topic(wire), MAX_TIMESTAMP, version=7).offset == -1


@pytest.mark.parametrize(
    ("timestamp", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (-5, 8), (-6, 10)]
)
def test_special_timestamps_are_refused_before_their_version(
    wire: Wire, timestamp: int, version: int
) -> None:
    """58: UNSUPPORTED_VERSION for that partition."""
    row = list_offset(wire, timed_topic(wire), timestamp, version=version)
    assert row.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_earliest_local_offset_is_the_log_start(wire: Wire) -> None:
    """58: no segment is in tiered storage."""
    assert list_offset(wire, timed_topic(wire), EARLIEST_LOCAL, version=8).offset == 0


def test_a_partition_asked_twice_is_an_invalid_request(wire: Wire) -> None:
    """59: only for that partition."""
    topic = new_topic(wire, partitions=2)
    twice = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in (0, 1, 0)]
    asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=twice)])
    rows = wire.ask(asked, 7).topics[0].partitions
    assert {(row.partition_index, row.error_code) for row in rows} == {(0, ErrorCode.INVALID_REQUEST), (1, 0)}


def test_an_unknown_partition_is_named_in_the_error(wire: Wire) -> None:
    """59: UNKNOWN_TOPIC_OR_PARTITION."""
    topic = new_topic(wire)
    assert list_offset(wire, topic, LATEST, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(wire, "absent", LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def end_of_epoch(wire: Wire, topic: str, epoch: int, version: int = 4) -> Any:
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    asked = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )
    return wire.ask(asked, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_unknown_leader_epoch_has_no_end_offset(wire: Wire, version: int) -> None:
    """60: (-1, -1) and no error."""
    topic = timed_topic(wire)
    row = end_of_epoch(wire, topic, 99, version)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, -1, -1)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_current_leader_epoch_ends_at_the_end(wire: Wire, version: int) -> None:
    """60: a known epoch ends at the end of the log."""
    topic = timed_topic(wire)
    epoch = metadata_of(wire, topic).partitions[0].leader_epoch
    row = end_of_epoch(wire, topic, epoch, version)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, epoch, 5)


def test_leader_epoch_of_an_unknown_partition(wire: Wire) -> None:
    """60: UNKNOWN_TOPIC_OR_PARTITION."""
    assert end_of_epoch(wire, "absent", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offsets_after_a_produce_are_seen_at_once(wire: Wire) -> None:
    """57: when acks=all is answered, the high watermark covers the records."""
    topic = new_topic(wire)
    for count in range(1, 20):
        produce_values(wire, topic, [b"a"])
        assert list_offset(wire, topic, LATEST).offset == count
