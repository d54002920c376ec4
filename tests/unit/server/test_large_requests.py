"""Requests with thousands of elements, and requests that wake together, leave the event loop to others in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from felice.env import Environment
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.frames import decode_response, encode_request
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from felice.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from felice.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from felice.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.delete_groups import DeleteGroupsRequest
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from felice.protocol.messages.describe_transactions import DescribeTransactionsRequest
from felice.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from felice.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from felice.protocol.messages.end_txn import EndTxnRequest
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from felice.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from felice.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from felice.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from felice.records.builder import build_batch
from felice.records.record import Record
from felice.server.broker import Broker
from felice.server.flow import pace
from felice.server.process.embedded import embedded_config
from felice.server.requests.commit_parts import parts_of
from unit.server.test_costs import Line, produce

COUNT = 3000


def metadata() -> bytes:
    topics = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(COUNT)]
    return encode_request(3, 9, 1, "c", MetadataRequest(topics=topics, allow_auto_topic_creation=False))


def list_offsets(timestamp: int) -> bytes:
    asked = [ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in range(COUNT)]
    topic = ListOffsetsTopic(name="topic", partitions=asked)
    return encode_request(2, 5, 1, "c", ListOffsetsRequest(replica_id=-1, topics=[topic]))


def delete_records() -> bytes:
    asked = [DeleteRecordsPartition(partition_index=number, offset=0) for number in range(COUNT)]
    topic = DeleteRecordsTopic(name="topic", partitions=asked)
    return encode_request(21, 1, 1, "c", DeleteRecordsRequest(topics=[topic], timeout_ms=100))


def delete_groups() -> bytes:
    names = [f"group-{number}" for number in range(COUNT)]
    return encode_request(42, 1, 1, "c", DeleteGroupsRequest(groups_names=names))


def epochs() -> bytes:
    asked = [
        OffsetForLeaderPartition(partition=number, leader_epoch=0, current_leader_epoch=-1)
        for number in range(COUNT)
    ]
    topic = OffsetForLeaderTopic(topic="topic", partitions=asked)
    return encode_request(23, 3, 1, "c", OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]))


def fetch() -> bytes:
    asked = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=100) for number in range(COUNT)
    ]
    topic = FetchTopic(topic="topic", partitions=asked)
    return encode_request(1, 11, 1, "c", FetchRequest(max_wait_ms=0, session_epoch=-1, topics=[topic]))


def produce_many() -> bytes:
    data = [PartitionProduceData(index=number, records=bytes(61)) for number in range(COUNT)]
    topic = TopicProduceData(name="topic", partition_data=data)
    return encode_request(0, 9, 1, "c", ProduceRequest(acks=1, timeout_ms=100, topic_data=[topic]))


def produce_many_in_a_transaction() -> bytes:
    data = [PartitionProduceData(index=number, records=bytes(61)) for number in range(COUNT)]
    request = ProduceRequest(
        transactional_id="x",
        acks=1,
        timeout_ms=100,
        topic_data=[TopicProduceData(name="topic", partition_data=data)],
    )
    return encode_request(0, 12, 1, "c", request)


def describe_transactions() -> bytes:
    names = [f"transaction-{number}" for number in range(COUNT)]
    return encode_request(65, 0, 1, "c", DescribeTransactionsRequest(transactional_ids=names))


def alter_log_dirs() -> bytes:
    topic = AlterReplicaLogDirTopic(name="topic", partitions=list(range(COUNT)))
    dirs = [AlterReplicaLogDir(path="/nowhere", topics=[topic])]
    return encode_request(34, 2, 1, "c", AlterReplicaLogDirsRequest(dirs=dirs))


def verify_partitions() -> bytes:
    topic = AddPartitionsToTxnTopic(name="topic", partitions=[number % 10 for number in range(COUNT)])
    asked = AddPartitionsToTxnTransaction(transactional_id="x", verify_only=True, topics=[topic])
    return encode_request(24, 4, 1, "c", AddPartitionsToTxnRequest(transactions=[asked]))


def verify_transactions() -> bytes:
    topics = [AddPartitionsToTxnTopic(name="topic", partitions=[0])]
    asked = [
        AddPartitionsToTxnTransaction(transactional_id=f"x{number}", verify_only=True, topics=topics)
        for number in range(COUNT)
    ]
    return encode_request(24, 4, 1, "c", AddPartitionsToTxnRequest(transactions=asked))


def write_markers() -> bytes:
    topic = WritableTxnMarkerTopic(name="topic", partition_indexes=[number % 10 for number in range(COUNT)])
    marker = WritableTxnMarker(producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic])
    return encode_request(27, 1, 1, "c", WriteTxnMarkersRequest(markers=[marker]))


def reassign() -> bytes:
    partition = ReassignablePartition(partition_index=0, replicas=[0])
    topics = [ReassignableTopic(name=f"topic-{number}", partitions=[partition]) for number in range(COUNT)]
    return encode_request(45, 0, 1, "c", AlterPartitionReassignmentsRequest(topics=topics))


def elect_leaders() -> bytes:
    topic = TopicPartitions(topic="topic", partitions=list(range(COUNT)))
    request = ElectLeadersRequest(election_type=0, topic_partitions=[topic])
    return encode_request(43, 2, 1, "c", request)


def describe_users() -> bytes:
    users = [UserName(name=f"user-{number}") for number in range(COUNT)]
    return encode_request(50, 0, 1, "c", DescribeUserScramCredentialsRequest(users=users))


def with_broker(directory: Path, scenario: Callable[[Broker, Line], Awaitable[None]]) -> None:
    async def run() -> None:
        broker = Broker(embedded_config(directory, 0, {}), Environment.system())
        await broker.start()
        try:
            line = Line(broker)
            topic = CreatableTopic(name="topic", num_partitions=10, replication_factor=1)
            await line.ask(encode_request(19, 5, 1, "c", CreateTopicsRequest(topics=[topic])))
            await scenario(broker, line)
        finally:
            await broker.kill()

    asyncio.run(run())


async def passes_until_answered(line: Line, request: bytes) -> int:
    """How often the event loop looked at its sockets until everything was answered."""
    passes = 0
    line.feed(request)
    async with asyncio.timeout(60):
        while not line.session.is_idle:
            await asyncio.sleep(0)
            passes += 1
    assert not line.transport.aborted
    return passes


@pytest.fixture(autouse=True)
def _every_item_ends_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_WORK_S", 1e-9)


@pytest.mark.parametrize(
    "request_bytes",
    [
        metadata(),
        list_offsets(-1),
        list_offsets(5),
        delete_records(),
        delete_groups(),
        epochs(),
        fetch(),
        produce_many(),
        produce_many_in_a_transaction(),
        describe_transactions(),
        alter_log_dirs(),
        verify_partitions(),
        verify_transactions(),
        write_markers(),
        reassign(),
        describe_users(),
    ],
    ids=[
        "Metadata",
        "ListOffsets",
        "ListOffsets by time",
        "DeleteRecords",
        "DeleteGroups",
        "OffsetForLeaderEpoch",
        "Fetch",
        "Produce",
        "Produce in a transaction",
        "DescribeTransactions",
        "AlterReplicaLogDirs",
        "AddPartitionsToTxn",
        "AddPartitionsToTxn of many transactions",
        "WriteTxnMarkers",
        "AlterPartitionReassignments",
        "DescribeUserScramCredentials",
    ],
)
def test_a_request_with_thousands_of_elements_lets_others_be_served_between_them(
    tmp_path: Path, request_bytes: bytes
) -> None:
    async def scenario(broker: Broker, line: Line) -> None:
        assert await passes_until_answered(line, request_bytes) >= COUNT

    with_broker(tmp_path, scenario)


def test_a_connection_has_at_most_one_large_request_in_memory(tmp_path: Path) -> None:
    async def scenario(broker: Broker, line: Line) -> None:
        line.feed(describe_transactions() * 3)
        most = 0
        async with asyncio.timeout(60):
            while not line.session.is_idle:
                await asyncio.sleep(0)
                read = [one for one in line.session._connection.unanswered if one.message is not None]
                most = max(most, len(read))
        assert most == 1

    with_broker(tmp_path, scenario)


def test_leaders_of_thousands_of_partitions_are_elected_in_parts(tmp_path: Path) -> None:
    async def scenario(broker: Broker, line: Line) -> None:
        begin = len(line.transport.written)
        assert await passes_until_answered(line, elect_leaders()) >= COUNT // 500
        response = decode_response(API.ELECT_LEADERS, 2, bytes(line.transport.written[begin + 4 :]))
        (topic,) = response.replica_election_results
        codes = [row.error_code for row in topic.partition_result]
        missing = COUNT - 10
        assert (
            codes == [ErrorCode.ELECTION_NOT_NEEDED] * 10 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * missing
        )

    with_broker(tmp_path, scenario)


def test_a_resource_with_more_configurations_than_exist_is_refused(tmp_path: Path) -> None:
    """They would be checked in one step of the event loop."""

    async def scenario(broker: Broker, line: Line) -> None:
        configs = [AlterableConfig(name=f"name-{number}", value="1") for number in range(1001)]
        resource = AlterConfigsResource(resource_type=4, resource_name="0", configs=configs)
        request = AlterConfigsRequest(resources=[resource], validate_only=True)
        answer = await line.ask(encode_request(33, 1, 1, "c", request))
        (row,) = decode_response(API.ALTER_CONFIGS, 1, answer[4:]).responses
        assert row.error_code == ErrorCode.INVALID_REQUEST
        assert row.error_message == "The request has 1001 configurations, at most 1000 are taken."
        configs.pop()
        answer = await line.ask(encode_request(33, 1, 1, "c", request))
        assert decode_response(API.ALTER_CONFIGS, 1, answer[4:]).responses[0].error_code == 0

    with_broker(tmp_path, scenario)


async def begin_transaction(line: Line) -> InitProducerIdResponse:
    """Initialises the transactional id `x` as soon as it has a coordinator."""
    finding = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
    beginning = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    async with asyncio.timeout(60):
        while True:
            await line.ask(encode_request(10, 4, 1, "c", finding))
            answer = await line.ask(encode_request(22, 4, 1, "c", beginning))
            found = decode_response(API.INIT_PRODUCER_ID, 4, answer[4:])
            if found.error_code == 0:
                return found
            await asyncio.sleep(0.01)


def transactional(producer: InitProducerIdResponse, sequences: range) -> bytes:
    """A request with ten batches of each sequence, one for each partition."""
    data = [
        PartitionProduceData(index=index, records=transactional_batch(producer, sequence))
        for sequence in sequences
        for index in range(10)
    ]
    topics = [TopicProduceData(name="topic", partition_data=data)]
    request = ProduceRequest(transactional_id="x", acks=1, timeout_ms=30_000, topic_data=topics)
    return encode_request(0, 12, 1, "c", request)


def transactional_batch(producer: InitProducerIdResponse, sequence: int) -> bytes:
    record = Record(0, int(time.time() * 1000), None, b"v")
    return build_batch(
        [record],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        transactional=True,
    )


def test_hundreds_of_batches_of_a_transaction_are_appended_in_steps_and_in_their_order(
    tmp_path: Path,
) -> None:
    async def scenario(broker: Broker, line: Line) -> None:
        producer = await begin_transaction(line)
        begin = len(line.transport.written)
        requests = [
            transactional(producer, sequences) for sequences in (range(30), range(30, 60), range(60, 61))
        ]
        assert await passes_until_answered(line, b"".join(requests)) >= 600
        answers, errors = bytes(line.transport.written[begin:]), []
        while answers:
            size = 4 + int.from_bytes(answers[:4], "big")
            response = decode_response(API.PRODUCE, 12, answers[4:size])
            errors.append([row.error_code for row in response.responses[0].partition_responses])
            answers = answers[size:]
        assert errors == [[0] * 300, [0] * 300, [0] * 10]

    with_broker(tmp_path, scenario)


def commit_request(offset: int, *counts: int) -> OffsetCommitRequest:
    """Commits the offsets from `offset` on, each to partition 0; `counts` has the number for each topic."""
    offsets = iter(range(offset, offset + sum(counts)))
    topics = [
        OffsetCommitRequestTopic(
            name="topic",
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=next(offsets), committed_metadata=""
                )
                for _ in range(count)
            ],
        )
        for count in counts
    ]
    return OffsetCommitRequest(group_id="g", topics=topics)


def commit(offset: int, *counts: int) -> bytes:
    return encode_request(8, 8, 1, "c", commit_request(offset, *counts))


def committed(answers: bytes) -> list[list[int]]:
    """The error codes in the first response, by topic."""
    size = int.from_bytes(answers[:4], "big")
    response = decode_response(API.OFFSET_COMMIT, 8, answers[4 : 4 + size])
    assert isinstance(response, OffsetCommitResponse)
    return [[row.error_code for row in topic.partitions] for topic in response.topics]


def test_a_commit_of_thousands_of_offsets_is_made_in_parts_and_no_later_commit_overtakes_it(
    tmp_path: Path,
) -> None:
    counts = (1, 250, 0, 3, 2746)
    parts = list(parts_of(commit_request(0, *counts)))
    assert [sum(len(topic.partitions) for topic in part.topics) for part in parts] == [200] * 15

    async def scenario(broker: Broker, line: Line) -> None:
        groups = broker.services.coordinators.groups
        async with asyncio.timeout(60):
            while groups.leader_of("g") < 0 or committed(await line.ask(commit(0, 1))) != [[0]]:
                await asyncio.sleep(0.01)
        begin = len(line.transport.written)
        passes = await passes_until_answered(line, commit(0, *counts) + commit(COUNT, 1))
        assert passes >= len(parts)
        answers = bytes(line.transport.written[begin:])
        assert committed(answers) == [[0] * count for count in counts]
        (shard,) = (found for found in groups.shards() if found.offsets.get("g", "topic", 0) is not None)
        assert shard.offsets.get("g", "topic", 0).offset == COUNT

    with_broker(tmp_path, scenario)


def transactional_commit(producer: InitProducerIdResponse, version: int, *counts: int) -> bytes:
    topics = [
        TxnOffsetCommitRequestTopic(
            name="topic",
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=number % 10, committed_offset=number, committed_metadata=""
                )
                for number in range(count)
            ],
        )
        for count in counts
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=topics,
    )
    return encode_request(28, version, 1, "c", request)


def test_thousands_of_offsets_of_a_transaction_are_committed_in_parts(tmp_path: Path) -> None:
    counts = (1, 250, COUNT - 251)

    async def scenario(broker: Broker, line: Line) -> None:
        producer = await begin_transaction(line)
        groups = broker.services.coordinators.groups
        async with asyncio.timeout(60):
            while groups.leader_of("g") < 0 or committed(await line.ask(commit(0, 1))) != [[0]]:
                await asyncio.sleep(0.01)
        begin = len(line.transport.written)
        assert await passes_until_answered(line, transactional_commit(producer, 5, *counts)) >= COUNT // 200
        answer = bytes(line.transport.written[begin:])
        response = decode_response(API.TXN_OFFSET_COMMIT, 5, answer[4:])
        found = [[row.error_code for row in topic.partitions] for topic in response.topics]
        assert found == [[0] * count for count in counts]
        ending = EndTxnRequest(
            transactional_id="x",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        await line.ask(encode_request(26, 5, 1, "c", ending))
        (shard,) = (found for found in groups.shards() if found.offsets.get("g", "topic", 0) is not None)
        async with asyncio.timeout(60):
            while (last := shard.offsets.get("g", "topic", 8)) is None:
                await asyncio.sleep(0.01)
        assert last.offset == COUNT - 251 - 1

    with_broker(tmp_path, scenario)


def test_long_polls_that_wake_together_are_answered_in_several_passes_of_the_loop(tmp_path: Path) -> None:
    polls = 100

    async def scenario(broker: Broker, line: Line) -> None:
        asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)]
        topics = [FetchTopic(topic="topic", partitions=asked)]
        poll = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=100, session_epoch=-1, topics=topics)
        line.feed(b"".join(encode_request(1, 11, number, "c", poll) for number in range(polls)))
        partition = broker.services.partitions.find("topic", 0)
        async with asyncio.timeout(60):
            while len(partition.on_advance) < polls:
                await asyncio.sleep(0)
        await Line(broker).ask(produce(1))
        assert await passes_until_answered(line, b"") >= polls

    with_broker(tmp_path, scenario)
