"""The rows of a Fetch response: the records that were read of each partition, or the error."""

from __future__ import annotations

from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    LeaderIdAndEpoch,
    PartitionData,
)
from felice.replication.fetched import FetchedRecords
from felice.replication.partition import CONSUMER, Partition
from felice.replication.selector import NO_PREFERENCE, same_rack_replica
from felice.server.configs.settings import Settings
from felice.server.fetching.fetch_sessions import FetchedPartition
from felice.server.fetching.finding import NOT_FOUND, PartitionFinder
from felice.server.fetching.leaders import Leaders

_READ_COMMITTED = 1
_ANY_REPLICA_FROM, _LEADER_IN_ROW_FROM = 11, 12


class FetchRows:
    """The rows that a consumer gets; `FollowerRows` has those of a follower."""

    # Bytes that count against the throttle of replication.
    throttled_bytes = 0
    _replica_id = CONSUMER

    def __init__(
        self,
        request: FetchRequest,
        version: int,
        finder: PartitionFinder,
        leaders: Leaders,
        settings: Settings,
    ) -> None:
        self._rack = request.rack_id
        self._read_committed = request.isolation_level == _READ_COMMITTED
        self._version = version
        self._finder = finder
        self._leaders = leaders
        self._settings = settings

    def row(
        self, asked: FetchedPartition, partition: Partition, max_bytes: int, min_one: bool
    ) -> PartitionData:
        """Reads a partition, or redirects a consumer to a replica in its rack. Raises `ApiError`."""
        found = partition.fetch(
            asked.fetch_offset,
            max_bytes,
            read_committed=self._read_committed,
            replica_id=self._replica_id,
            current_leader_epoch=asked.current_leader_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
            min_one=min_one,
            from_any_replica=self._version >= _ANY_REPLICA_FROM,
        )
        row = PartitionData(
            partition_index=asked.partition,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            records=found.records or b"",
        )
        row.aborted_transactions = _aborted(found) if self._read_committed else None
        if found.divergence is not None:
            row.diverging_epoch = EpochEndOffset(
                epoch=found.divergence.epoch, end_offset=found.divergence.end_offset
            )
        elif self._rack:
            self._redirect(partition, asked.fetch_offset, row)
        return row

    def _redirect(self, partition: Partition, offset: int, row: PartitionData) -> None:
        if self._settings.config.replica_selector_class is None or partition.leader is None:
            return
        racks = {known.broker_id: known.rack for known in self._finder.metadata.image.brokers.values()}
        preferred = same_rack_replica(partition.leader, racks, self._rack, offset)
        if preferred != NO_PREFERENCE:
            row.preferred_read_replica, row.records = preferred, b""

    def refusal(self, asked: FetchedPartition, error: ApiError) -> PartitionData:
        """The row of a partition that was not read. If another broker leads it, the row names that broker."""
        row = PartitionData(
            partition_index=asked.partition, error_code=error.code, high_watermark=-1, records=b""
        )
        if error.code not in NOT_FOUND:
            # As in Kafka. The row of a partition that was not found has an empty list.
            row.aborted_transactions = None
        self._finder.count_failure(asked, error.code)
        if self._version >= _LEADER_IN_ROW_FROM and error.code in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
        ):
            known = self._leaders.name(self._finder.name_of(asked.topic), asked.partition)
            if known is not None:
                row.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
        return row

    def demands_answer(self, asked: FetchedPartition, row: PartitionData) -> bool:
        """Whether the response must be sent because of this row, however few bytes it has."""
        return row.error_code != 0 or row.diverging_epoch is not None or row.preferred_read_replica != -1

    def served(self, asked: FetchedPartition, partition: Partition, row: PartitionData) -> None:
        """Counts the bytes of a partition in the response. Call it once, when the response is made."""
        if row.records:
            partition.traffic.bytes_out += row.records.size_bytes


def _aborted(found: FetchedRecords) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in sorted(found.aborted or (), key=lambda aborted: aborted.first_offset)
    ]
