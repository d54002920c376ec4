"""A small request with a large answer is handled in slices, and the answer is the same as without pauses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from felice.env import Clock
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.frames import decode_response, encode_request
from felice.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from felice.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from felice.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from felice.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access import guards
from felice.server.flow import pace
from felice.server.handlers import describe_log_dirs
from felice.server.requests import large_answers
from felice.server.topics.topic_rows import TopicRows
from unit.server.test_costs import Line
from unit.server.test_large_refusals import deny, with_authorizer
from unit.server.test_large_requests import passes_until_answered

TOPICS = ("topic", "secret")
COMMIT_VERSION = 8


def named(group: str, *topics: str) -> OffsetFetchRequestGroup:
    asked = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1]) for topic in topics]
    return OffsetFetchRequestGroup(group_id=group, topics=asked)


def every(group: str) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(group_id=group, topics=None)


REQUESTS = {
    "Metadata": encode_request(3, 12, 1, "c", MetadataRequest(topics=None)),
    "DescribeTopicPartitions": encode_request(75, 0, 1, "c", DescribeTopicPartitionsRequest(topics=[])),
    "a full page": encode_request(
        75, 0, 1, "c", DescribeTopicPartitionsRequest(topics=[], response_partition_limit=3)
    ),
    "DescribeClientQuotas": encode_request(48, 1, 1, "c", DescribeClientQuotasRequest()),
    "OffsetFetch of topics": encode_request(
        9, 8, 1, "c", OffsetFetchRequest(groups=[named("g", *TOPICS), named("h", *reversed(TOPICS))])
    ),
    "OffsetFetch of one group twice": encode_request(
        9, 8, 1, "c", OffsetFetchRequest(groups=[named("g", *TOPICS), every("h"), named("h", *TOPICS)])
    ),
    "OffsetFetch of everything": encode_request(
        9, 8, 1, "c", OffsetFetchRequest(groups=[every("g"), every("h")])
    ),
    "OffsetFetch of all topics": encode_request(9, 7, 1, "c", OffsetFetchRequest(group_id="g", topics=None)),
}


PACED = {
    "Metadata": ("str", 3),
    "DescribeTopicPartitions": ("str", 3),
    "a full page": ("str", 3),
    "DescribeClientQuotas": ("tuple", 3),
    "OffsetFetch of topics": ("OffsetFetchRequestTopics", 4),
    "OffsetFetch of one group twice": ("OffsetFetchRequestTopics", 4),
    "OffsetFetch of everything": ("OffsetFetchResponseTopics", 4),
    "OffsetFetch of all topics": ("OffsetFetchResponseTopic", 2),
}
"""The type and number of items between which other connections are served. The third topic is `__consumer_offsets`."""


async def fill(line: Line) -> None:
    """Creates quotas of three users and commits of two groups. Then the client may not describe topic `secret`."""
    quotas = [
        EntryData(
            entity=[EntityData(entity_type="user", entity_name=name)],
            ops=[OpData(key="producer_byte_rate", value=1e6)],
        )
        for name in ("a", "b", "c")
    ]
    await line.ask(encode_request(49, 1, 1, "c", AlterClientQuotasRequest(entries=quotas)))
    for group in ("g", "h"):
        await commit(line, group)
    await deny(line, Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    await deny(line, Operation.READ, ResourceType.TOPIC, "secret")


async def commit(line: Line, group: str) -> None:
    """Commits offset 5 of partition 0 of both topics, as soon as the topic of committed offsets exists."""
    find = encode_request(10, 3, 1, "c", FindCoordinatorRequest(key=group))
    topics = [
        OffsetCommitRequestTopic(
            name=topic, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
        )
        for topic in TOPICS
    ]
    request = encode_request(
        8,
        COMMIT_VERSION,
        1,
        "c",
        OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics),
    )
    async with asyncio.timeout(60):
        while True:
            await line.ask(find)
            answer = await line.ask(request)
            found = decode_response(API.OFFSET_COMMIT, COMMIT_VERSION, answer[4:]).topics
            if {row.error_code for topic in found for row in topic.partitions} == {ErrorCode.NONE}:
                return
            await asyncio.sleep(0.01)


def pace_every_item(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Lets the event loop serve others after each item. Returns how many items of each type there were."""
    paced, real = Counter[str](), pace.paced

    async def counted(items: Iterable[Any], clock: Clock) -> AsyncIterator[Any]:
        async for item in real(items, clock):
            paced[type(item).__name__] += 1
            yield item

    for module in (pace, large_answers, guards):
        monkeypatch.setattr(module, "MAX_ITEMS_WITHOUT_PAUSE", 1)
    for module in (pace, guards, describe_log_dirs):
        monkeypatch.setattr(module, "paced", counted)
    monkeypatch.setattr(pace, "_WORK_S", 1e-9)
    return paced


@pytest.mark.parametrize("what", REQUESTS)
def test_a_large_answer_is_built_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async def scenario(line: Line) -> None:
        await fill(line)
        begin = len(line.transport.written)
        await passes_until_answered(line, REQUESTS[what])
        usual = bytes(line.transport.written[begin:])
        paced = pace_every_item(monkeypatch)
        begin = len(line.transport.written)
        await passes_until_answered(line, REQUESTS[what])
        assert bytes(line.transport.written[begin:]) == usual
        kind, count = PACED[what]
        assert paced[kind] == count

    with_authorizer(tmp_path, scenario)


def test_the_logs_of_a_directory_are_described_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(line: Line) -> None:
        paced = pace_every_item(monkeypatch)
        answer = await line.ask(encode_request(35, 4, 1, "c", DescribeLogDirsRequest(topics=None)))
        [directory] = decode_response(API.DESCRIBE_LOG_DIRS, 4, answer[4:]).results
        found = {topic.name: [row.partition_index for row in topic.partitions] for topic in directory.topics}
        assert found == {topic: list(range(10)) for topic in TOPICS}
        assert list(found) == sorted(TOPICS)
        assert paced["tuple"] == 20

    with_authorizer(tmp_path, scenario)


def test_the_later_requests_of_a_connection_wait_for_a_large_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one client could have hundreds of answers built at the same time, and read none."""

    async def scenario(line: Line) -> None:
        described, real = list[str](), TopicRows.row

        def row(rows: TopicRows, image: Any, topic: Any, *rest: Any) -> Any:
            described.append(topic.name)
            return real(rows, image, topic, *rest)

        monkeypatch.setattr(TopicRows, "row", row)
        pace_every_item(monkeypatch)
        await passes_until_answered(line, REQUESTS["Metadata"] * 5)
        assert described == [*line.session._services.image.topics] * 5

    with_authorizer(tmp_path, scenario)


@pytest.mark.parametrize("what", ["Metadata", "DescribeTopicPartitions"])
def test_a_topic_that_is_deleted_between_two_slices_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async def scenario(line: Line) -> None:
        watcher, real = line.session._services.watcher, TopicRows.row

        def row(rows: TopicRows, image: Any, topic: Any, *rest: Any) -> Any:
            watcher.image = replace(watcher.image, topics={topic.name: topic})
            return real(rows, image, topic, *rest)

        monkeypatch.setattr(TopicRows, "row", row)
        pace_every_item(monkeypatch)
        api, version = (API.METADATA, 12) if what == "Metadata" else (API.DESCRIBE_TOPIC_PARTITIONS, 0)
        answer = await line.ask(REQUESTS[what])
        assert [row.error_code for row in decode_response(api, version, answer[4:]).topics] == [
            ErrorCode.NONE
        ]

    with_authorizer(tmp_path, scenario)


def test_all_topics_come_page_by_page(tmp_path: Path) -> None:
    async def scenario(line: Line) -> None:
        found, cursor = list[tuple[str, int]](), None
        while True:
            request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=3, cursor=cursor)
            answer = decode_response(
                API.DESCRIBE_TOPIC_PARTITIONS, 0, (await line.ask(encode_request(75, 0, 1, "c", request)))[4:]
            )
            found += [
                (topic.name, row.partition_index) for topic in answer.topics for row in topic.partitions
            ]
            if (cursor := answer.next_cursor) is None:
                break
        assert found == [(topic, number) for topic in sorted(TOPICS) for number in range(10)]

    with_authorizer(tmp_path, scenario)


def test_a_group_that_is_named_twice_has_its_refused_topics_in_both_rows(tmp_path: Path) -> None:
    async def scenario(line: Line) -> None:
        await fill(line)
        groups = [named("g", "secret"), named("g", "topic")]
        answer = await line.ask(encode_request(9, 8, 1, "c", OffsetFetchRequest(groups=groups)))
        found = decode_response(API.OFFSET_FETCH, 8, answer[4:]).groups
        assert [[topic.name for topic in group.topics] for group in found] == [["secret"], ["topic"]]

    with_authorizer(tmp_path, scenario)


def test_a_group_may_be_asked_for_some_topics_and_for_all(tmp_path: Path) -> None:
    async def scenario(line: Line) -> None:
        await fill(line)
        groups = [every("g"), named("g", "secret"), every("h"), named("g", "topic"), every("g")]
        answer = await line.ask(encode_request(9, 8, 1, "c", OffsetFetchRequest(groups=groups)))
        found = decode_response(API.OFFSET_FETCH, 8, answer[4:]).groups
        assert [(group.group_id, [topic.name for topic in group.topics]) for group in found] == [
            ("g", ["topic"]),
            ("g", ["secret"]),
            ("h", ["topic"]),
            ("g", ["topic"]),
        ]

    with_authorizer(tmp_path, scenario)


@pytest.mark.parametrize("is_paced", [False, True])
def test_topics_may_be_named_by_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_paced: bool
) -> None:
    """Version 10 of OffsetFetch."""

    async def scenario(line: Line) -> None:
        await fill(line)
        if is_paced:
            pace_every_item(monkeypatch)
        image = line.session._services.image
        ids = [*(image.topics[topic].topic_id for topic in TOPICS), UUID(int=7)]
        asked = [OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0]) for one in ids]
        groups = [OffsetFetchRequestGroup(group_id="g", topics=asked), every("h")]
        answer = await line.ask(encode_request(9, 10, 1, "c", OffsetFetchRequest(groups=groups)))
        of_some, of_all = decode_response(API.OFFSET_FETCH, 10, answer[4:]).groups
        found = {topic.topic_id: topic.partitions[0] for topic in of_some.topics}
        codes = (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID)
        assert [found[one].error_code for one in ids] == list(codes)
        assert [found[one].committed_offset for one in ids] == [5, -1, -1]
        assert [topic.topic_id for topic in of_all.topics] == ids[:1]

    with_authorizer(tmp_path, scenario)


def test_the_answers_contain_what_the_client_may_see(tmp_path: Path) -> None:
    """Otherwise the test above would compare empty answers."""

    async def scenario(line: Line) -> None:
        await fill(line)
        answer = await line.ask(REQUESTS["Metadata"])
        names = [row.name for row in decode_response(API.METADATA, 12, answer[4:]).topics]
        assert "topic" in names
        assert "secret" not in names
        answer = await line.ask(REQUESTS["OffsetFetch of topics"])
        rows = [
            (group.group_id, topic.name, row.partition_index, row.committed_offset, row.error_code)
            for group in decode_response(API.OFFSET_FETCH, 8, answer[4:]).groups
            for topic in group.topics
            for row in topic.partitions
        ]
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert rows == [
            (group, *row)
            for group in ("g", "h")
            for row in (
                ("topic", 0, 5, 0),
                ("topic", 1, -1, 0),
                ("secret", 0, -1, denied),
                ("secret", 1, -1, denied),
            )
        ]
        answer = await line.ask(REQUESTS["OffsetFetch of everything"])
        found = decode_response(API.OFFSET_FETCH, 8, answer[4:]).groups
        assert [(group.group_id, [topic.name for topic in group.topics]) for group in found] == [
            ("g", ["topic"]),
            ("h", ["topic"]),
        ]
        answer = await line.ask(REQUESTS["DescribeClientQuotas"])
        assert len(decode_response(API.DESCRIBE_CLIENT_QUOTAS, 1, answer[4:]).entries) == 3

    with_authorizer(tmp_path, scenario)
