"""A transactional producer over `Wire`: each method sends one request, in the version that a test wants."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from conformance.batches import fetch_request
from conformance.topics import REQUEST_TIMEOUT_MS
from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from felice.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from felice.protocol.messages.end_txn import EndTxnRequest
from felice.protocol.messages.find_coordinator import TRANSACTION_KEY_TYPE, FindCoordinatorRequest
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from felice.records.batch import iter_batches
from felice.records.builder import build_batch
from felice.records.reader import read_batch
from felice.records.record import Record
from waiting import wait_until

T = TypeVar("T")
RETRIED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
PRODUCE_VERSION = 9
# The first versions of transaction V2 (KIP-890).
PRODUCE_V2, END_TXN_V2, TXN_OFFSET_COMMIT_V2, MARKERS_V2 = 12, 5, 5, 2
READ_COMMITTED = 1


def find_transaction_coordinator(wire: Wire, transactional_id: str) -> None:
    asked = FindCoordinatorRequest(key_type=TRANSACTION_KEY_TYPE, coordinator_keys=[transactional_id])
    wait_until(lambda: wire.ask(asked, 4).coordinators[0].error_code == 0)


@dataclass(slots=True)
class WireProducer:
    """Sends what the test says; `sequence` counts the records of its epoch in one partition."""

    wire: Wire
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    def init(self, version: int = 4, timeout_ms: int = 60_000, resume: bool = False) -> int:
        """Sends one request; returns its error."""
        asked = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        if resume:
            asked.producer_id, asked.producer_epoch = self.producer_id, self.epoch
        answer = self.wire.ask(asked, version)
        if answer.error_code == 0:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)

    def begin_life(self, timeout_ms: int = 60_000) -> WireProducer:
        """Repeats InitProducerId until it succeeds."""
        find_transaction_coordinator(self.wire, self.transactional_id)
        until_settled(lambda: self.init(timeout_ms=timeout_ms))
        return self

    def add(self, *partitions: tuple[str, int], version: int = 3) -> dict[tuple[str, int], int]:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, index in partitions:
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(index)
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=list(topics.values()),
        )
        answer = self.wire.ask(asked, version)
        return {
            (topic.name, row.partition_index): row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        }

    def add_one(self, topic: str, partition: int = 0, version: int = 3) -> int:
        """Waits until the previous transaction is complete."""
        return until_settled(lambda: self.add((topic, partition), version=version)[topic, partition])

    def produce_request(
        self, topic: str, *values: bytes, partition: int = 0, transactional: bool = True
    ) -> ProduceRequest:
        """The batch that `send` sends."""
        now_ms = int(time.time() * 1000)
        batch = build_batch(
            [Record(index, now_ms, None, value, ()) for index, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=transactional,
        )
        return ProduceRequest(
            transactional_id=self.transactional_id if transactional else None,
            acks=-1,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
                )
            ],
        )

    def send(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        version: int = PRODUCE_VERSION,
        transactional: bool = True,
    ) -> Any:
        """The row of the response."""
        asked = self.produce_request(topic, *values, partition=partition, transactional=transactional)
        row = self.wire.ask(asked, version).responses[0].partition_responses[0]
        if row.error_code == 0:
            self.sequence += len(values)
        return row

    def write(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Adds the partition and sends; returns the offset."""
        assert self.add_one(topic, partition) == 0
        row = self.send(topic, *values, partition=partition)
        assert row.error_code == 0, row
        return int(row.base_offset)

    def add_offsets(self, group: str, version: int = 3) -> int:
        asked = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return until_settled(lambda: self.wire.ask(asked, version).error_code)

    def commit_offset(self, group: str, topic: str, offset: int, version: int = 3, **member: Any) -> int:
        row = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        asked = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
            **member,
        )
        return int(self.wire.ask(asked, version).topics[0].partitions[0].error_code)

    def end(self, commit: bool, version: int = 3) -> int:
        asked = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        return int(self.wire.ask(asked, version).error_code)

    def end_v2(self, commit: bool) -> int:
        """EndTxn of transaction V2: takes the identity in the response."""
        asked = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = self.wire.ask(asked, END_TXN_V2)
        if answer.error_code == 0:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)

    def write_v2(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Sends without adding the partition, which the broker does; returns the offset."""
        rows: list[Any] = []

        def send() -> int:
            rows.append(self.send(topic, *values, partition=partition, version=PRODUCE_V2))
            return int(rows[-1].error_code)

        assert until_settled(send) == 0, rows[-1]
        return int(rows[-1].base_offset)

    def commit(self) -> None:
        assert self.end(True) == 0
        self.wait_complete(True)

    def abort(self) -> None:
        assert self.end(False) == 0
        self.wait_complete(False)

    def wait_complete(self, commit: bool) -> None:
        """Waits until every partition has its marker: only then the same EndTxn returns NONE again."""
        assert until_settled(lambda: self.end(commit)) == 0


def until_settled(ask: Any) -> int:
    """Repeats the request until its error is not a transient one."""
    found: list[int] = []

    def is_settled() -> bool:
        found.append(int(ask()))
        return found[-1] not in RETRIED

    wait_until(is_settled)
    return found[-1]


def within_timeout(timeout_ms: int, begin: Callable[[], object], act: Callable[[], T]) -> T:
    """Runs both, and returns what `act` does. Repeats both if a transaction timed out meanwhile.

    That happens on a machine under heavy load. An error before the time is over fails the test.
    """
    for _ in range(20):
        begin()
        began = time.monotonic()
        try:
            return act()
        except AssertionError:
            if time.monotonic() - began < timeout_ms / 1000:
                raise
    raise AssertionError(f"the transaction always took more than {timeout_ms} ms")


def fetch_row(wire: Wire, topic: str, offset: int = 0, committed: bool = True, max_wait_ms: int = 0) -> Any:
    asked = fetch_request(topic, offset, max_wait_ms=max_wait_ms, isolation_level=int(committed))
    row = wire.ask(asked, 12).responses[0].partitions[0]
    assert row.error_code == 0, row
    return row


def visible(row: Any) -> list[bytes]:
    """The records that a consumer shows of a read_committed response: without aborted transactions."""
    pending = sorted((entry.first_offset, entry.producer_id) for entry in row.aborted_transactions or [])
    aborting: set[int] = set()
    values: list[bytes] = []
    for header in iter_batches(row.records):
        while pending and pending[0][0] <= header.last_offset:
            aborting.add(pending.pop(0)[1])
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            values += [bytes(record.value or b"") for record in read_batch(row.records, header)]
    return values


def leave_hanging(wire: Wire, transactional_id: str, topic: str) -> WireProducer:
    """Leaves a transaction that no coordinator knows, on a broker that does not verify partitions."""
    producer = WireProducer(wire, transactional_id).begin_life()
    assert producer.send(topic, b"hanging").error_code == 0
    return producer
