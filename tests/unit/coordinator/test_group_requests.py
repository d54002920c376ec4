"""Every request that a group coordinator answers, through the coordinator of one broker with its log in memory."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from felice.coordinator.group.coordinator import GROUP_TOPIC, Client
from felice.coordinator.shard import TransactionalProducer
from felice.metadata.image import PartitionImage, TopicImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from felice.protocol.messages.leave_group import MemberIdentity
from felice.protocol.messages.list_groups import ListGroupsRequest
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from felice.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from felice.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from felice.records.control import ControlType, EndTransactionMarker

from .fake_partition import FakePartition
from .test_group_coordinator import World, image_of

NAMES, IDS = Client(9, "app", "/10.0.0.1"), Client(10, "app", "/10.0.0.1")
T_ID = UUID(int=len("t"))
NOWHERE = UUID(int=77)
GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def world() -> World:
    log = FakePartition(topic=GROUP_TOPIC)
    made = World(image_of(GROUP_TOPIC, "t"), log, group_initial_rebalance_delay_ms="0")
    await made.until_loaded()
    return made


async def answered(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


async def committed(made: World, partition: int = 0, *, stable: bool = False) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[partition])]
    group = await answered(
        made.coordinator.fetch(OffsetFetchRequestGroup(group_id="g", topics=topics), stable, Client(8))
    )
    [row] = group.topics[0].partitions
    return row.error_code, row.committed_offset


def commit_of(*rows: tuple[str | UUID, int, int], group: str = "g", **fields: Any) -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            **({"name": topic} if isinstance(topic, str) else {"topic_id": topic}),
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=None
                )
            ],
        )
        for topic, partition, offset in rows
    ]
    return OffsetCommitRequest(group_id=group, topics=topics, **fields)


def codes(response: Any) -> list[int]:
    return [row.error_code for topic in response.topics for row in topic.partitions]


async def joined(made: World) -> tuple[str, int]:
    """Lets one member join an empty group; returns its id and generation."""
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    named = await answered(made.coordinator.join(request, NAMES))
    assert named.error_code == ErrorCode.MEMBER_ID_REQUIRED
    request.member_id = named.member_id
    answer = await answered(made.coordinator.join(request, NAMES))
    assert (answer.error_code, answer.leader) == (ErrorCode.NONE, named.member_id)
    return answer.member_id, answer.generation_id


async def test_a_commit_answers_for_every_partition_and_stores_those_that_exist() -> None:
    made = await world()
    response = await answered(
        made.coordinator.commit(commit_of(("t", 0, 5), ("t", 1, 6), ("gone", 0, 7)), NAMES)
    )
    assert codes(response) == [ErrorCode.NONE, GONE, GONE]
    assert [topic.name for topic in response.topics] == ["t", "t", "gone"]
    assert await committed(made) == (ErrorCode.NONE, 5)


async def test_from_version_10_topics_have_ids_and_an_unknown_one_has_an_error_of_its_own() -> None:
    made = await world()
    response = await answered(
        made.coordinator.commit(commit_of((T_ID, 0, 5), (T_ID, 1, 6), (NOWHERE, 0, 7)), IDS)
    )
    assert codes(response) == [ErrorCode.NONE, GONE, ErrorCode.UNKNOWN_TOPIC_ID]
    assert [topic.topic_id for topic in response.topics] == [T_ID, T_ID, NOWHERE]
    assert await committed(made) == (ErrorCode.NONE, 5)


async def test_a_commit_without_valid_partitions_writes_nothing() -> None:
    made = await world()
    response = await answered(made.coordinator.commit(commit_of(("gone", 0, 7)), NAMES))
    assert codes(response) == [GONE]
    assert made.coordinator.list(ListGroupsRequest()).groups == []


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
async def test_a_commit_of_an_unknown_member_is_refused_in_every_row(version: int, code: ErrorCode) -> None:
    made = await world()
    request = commit_of(("t", 0, 5), ("gone", 0, 5), member_id="m", generation_id_or_member_epoch=3)
    refused = await answered(made.coordinator.commit(request, Client(version)))
    assert codes(refused) == [code, GONE]
    assert await committed(made) == (ErrorCode.NONE, -1)


async def test_a_consumer_without_a_group_may_commit_but_not_join() -> None:
    made = await world()
    response = await answered(made.coordinator.commit(commit_of(("t", 0, 5), group=""), NAMES))
    assert codes(response) == [ErrorCode.NONE]
    assert (await answered(made.coordinator.leave("", [], NAMES))).error_code == ErrorCode.INVALID_GROUP_ID


async def test_a_member_joins_is_described_and_leaves() -> None:
    made = await world()
    member_id, generation = await joined(made)
    assert member_id.startswith("app-") and generation == 1
    assignments = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")]
    synced = await answered(
        made.coordinator.sync(
            SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=assignments),
            NAMES,
        )
    )
    assert (synced.error_code, bytes(synced.assignment)) == (ErrorCode.NONE, b"mine")
    [row] = made.coordinator.describe("g", NAMES).members
    assert (row.member_id, row.client_id, row.client_host) == (member_id, "app", "/10.0.0.1")
    assert (bytes(row.member_metadata), bytes(row.member_assignment)) == (b"m", b"mine")

    leavers = [MemberIdentity(member_id=member_id), MemberIdentity(member_id="stranger")]
    left = await answered(made.coordinator.leave("g", leavers, NAMES))
    assert [(row.member_id, row.error_code) for row in left.members] == [
        (member_id, ErrorCode.NONE),
        ("stranger", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert made.coordinator.describe("g", NAMES).group_state == "Empty"


def in_transaction(*rows: tuple[str, int, int], group: str = "g") -> TxnOffsetCommitRequest:
    topics = [
        TxnOffsetCommitRequestTopic(
            name=name,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=None
                )
            ],
        )
        for name, partition, offset in rows
    ]
    return TxnOffsetCommitRequest(
        transactional_id="tx", group_id=group, producer_id=7, producer_epoch=0, topics=topics
    )


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
async def test_transactional_offsets_count_from_their_commit_marker_on(kind: ControlType) -> None:
    made = await world()
    request = in_transaction(("t", 0, 5), ("gone", 0, 6), ("t", 1, 7))
    response = await answered(made.coordinator.commit_transactional(request, ErrorCode.NONE))
    assert codes(response) == [ErrorCode.NONE, GONE, GONE]
    assert [topic.name for topic in response.topics] == ["t", "gone", "t"]
    assert await committed(made, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    marker, producer = EndTransactionMarker(kind, 0), TransactionalProducer(7, 0)
    made.coordinator.end_transaction(made.coordinator.partition_for("g"), marker, producer)
    await asyncio.sleep(0)
    expected = 5 if kind is ControlType.COMMIT else -1
    assert await committed(made, stable=True) == (ErrorCode.NONE, expected)


async def test_a_transaction_that_may_not_write_here_commits_no_offset() -> None:
    made = await world()
    request = in_transaction(("t", 0, 5), ("gone", 0, 6))
    refused = await answered(made.coordinator.commit_transactional(request, ErrorCode.INVALID_PRODUCER_EPOCH))
    assert codes(refused) == [ErrorCode.INVALID_PRODUCER_EPOCH, GONE]
    assert await committed(made, stable=True) == (ErrorCode.NONE, -1)


async def test_only_a_request_that_commits_something_adds_the_group_to_a_transaction() -> None:
    made = await world()
    assert made.coordinator.answer_without_transaction(in_transaction(("t", 0, 5))) is None
    nothing = made.coordinator.answer_without_transaction(in_transaction(("gone", 0, 5)))
    assert nothing is not None and codes(nothing) == [GONE]
    nameless = made.coordinator.answer_without_transaction(
        in_transaction(("t", 0, 5), ("gone", 0, 5), group="")
    )
    assert nameless is not None and codes(nameless) == [ErrorCode.INVALID_GROUP_ID, GONE]


async def test_a_marker_for_a_partition_that_is_not_led_here_is_for_another_broker() -> None:
    made = await world()
    with pytest.raises(ApiError) as refused:
        made.coordinator.end_transaction(
            9, EndTransactionMarker(ControlType.COMMIT, 0), TransactionalProducer(7, 0)
        )
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_offsets_are_deleted_where_they_exist_and_the_group_as_a_whole() -> None:
    made = await world()
    await answered(made.coordinator.commit(commit_of(("t", 0, 5)), NAMES))
    asked = [OffsetDeleteRequestPartition(partition_index=number) for number in (0, 1)]
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(name="t", partitions=asked),
            OffsetDeleteRequestTopic(name="gone", partitions=asked[:1]),
        ],
    )
    response = await answered(made.coordinator.delete_offsets(request, NAMES))
    rows = [
        (topic.name, row.partition_index, row.error_code)
        for topic in response.topics
        for row in topic.partitions
    ]
    assert sorted(rows) == [("gone", 0, GONE), ("t", 0, ErrorCode.NONE), ("t", 1, GONE)]
    assert await committed(made) == (ErrorCode.NONE, -1)

    await answered(made.coordinator.commit(commit_of(("t", 0, 6)), NAMES))
    [listed] = made.coordinator.list(ListGroupsRequest()).groups
    assert listed.group_id == "g"
    deleted = await answered(made.coordinator.delete("g", NAMES))
    assert (deleted.group_id, deleted.error_code) == ("g", ErrorCode.NONE)
    again = await answered(made.coordinator.delete("g", NAMES))
    assert (again.group_id, again.error_code) == ("g", ErrorCode.GROUP_ID_NOT_FOUND)
    assert await committed(made) == (ErrorCode.NONE, -1)


async def test_offsets_are_deleted_with_their_topic_alone() -> None:
    made = await world()
    made.image = image_of(GROUP_TOPIC, "t", "u2")
    made.coordinator.on_image()
    await answered(made.coordinator.commit(commit_of(("t", 0, 5), ("u2", 0, 6)), NAMES))
    requested = {made.image.topics["u2"].topic_id: {1: 1}}
    made.image = replace(image_of(GROUP_TOPIC, "t"), deleted_topics=requested)
    made.coordinator.on_image()
    await asyncio.sleep(0)
    group = await answered(
        made.coordinator.fetch(OffsetFetchRequestGroup(group_id="g", topics=None), False, Client(8))
    )
    assert [topic.name for topic in group.topics] == ["t"]


async def test_a_client_is_sent_to_the_broker_that_coordinates() -> None:
    made = await world()
    partition = PartitionImage(0, (2,), leader=2, leader_epoch=1)
    made.image = image_of("t")
    made.image.topics[GROUP_TOPIC] = TopicImage(GROUP_TOPIC, UUID(int=1), (partition,))
    assert made.coordinator.leader_of("g") == 2
    assert made.created == []


async def test_a_stopped_coordinator_refuses_every_request() -> None:
    made = await world()
    await answered(made.coordinator.commit(commit_of(("t", 0, 5)), NAMES))
    made.coordinator.stop()
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert made.coordinator.list(ListGroupsRequest()).error_code == gone
    assert made.coordinator.describe("g", NAMES).error_code == gone
    assert (await answered(made.coordinator.delete("g", NAMES))).error_code == gone
    assert codes(await answered(made.coordinator.commit(commit_of(("t", 0, 6)), NAMES))) == [gone]
