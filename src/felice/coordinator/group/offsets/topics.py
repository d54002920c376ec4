"""Names, ids and partitions of topics in requests about offsets, looked up in the cluster's image. Pure.

Keeps true: an offset is committed, returned or deleted only for the topic that the request means: from version 10 on,
            OffsetCommit and OffsetFetch name topics by id (KIP-848).
How:        `resolve_…` returns the response with a row for each requested partition, and the part of the request whose
            partitions exist; the rows of the others have their error already.
"""

from __future__ import annotations

from felice.coordinator.group.offsets import commits
from felice.coordinator.group.offsets.commits import Commit
from felice.coordinator.group.offsets.store import OffsetStore
from felice.metadata.image import ClusterImage, TopicImage
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from felice.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from felice.protocol.messages.offset_fetch import OffsetFetchRequestTopics, OffsetFetchResponseTopics
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from felice.protocol.primitives import ZERO_UUID

_TOPIC_IDS_SINCE = 10  # of OffsetCommit and OffsetFetch


def resolve_commits(
    request: OffsetCommitRequest, version: int, image: ClusterImage
) -> tuple[OffsetCommitResponse, list[Commit]]:
    """The response with a row for every requested partition, and the commits to partitions that exist."""
    response = OffsetCommitResponse()
    found: list[Commit] = []
    for asked in request.topics:
        topic, unknown = _resolve_topic(asked, version, image)
        rows = []
        for partition in asked.partitions:
            row = OffsetCommitResponsePartition(partition_index=partition.partition_index)
            rows.append(row)
            if topic is None or topic.partition(partition.partition_index) is None:
                row.error_code = unknown
            else:
                found.append(Commit(topic.name, partition, row, topic.topic_id))
        response.topics.append(
            OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=rows)
        )
    return response, found


def resolve_transactional(
    request: TxnOffsetCommitRequest, image: ClusterImage
) -> tuple[TxnOffsetCommitResponse, list[Commit]]:
    """The same for a transaction's commits, whose requests always name their topics."""
    response = TxnOffsetCommitResponse()
    found: list[Commit] = []
    for asked in request.topics:
        topic = image.topics.get(asked.name)
        rows = []
        for partition in asked.partitions:
            row = TxnOffsetCommitResponsePartition(partition_index=partition.partition_index)
            rows.append(row)
            if topic is None or topic.partition(partition.partition_index) is None:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                found.append(Commit(topic.name, partition, row, topic.topic_id))
        response.topics.append(TxnOffsetCommitResponseTopic(name=asked.name, partitions=rows))
    return response, found


def resolve_deletions(
    request: OffsetDeleteRequest, image: ClusterImage
) -> tuple[OffsetDeleteResponse, OffsetDeleteRequest]:
    """The response with a row for every partition that does not exist, and a request for the others."""
    response, narrowed = OffsetDeleteResponse(), OffsetDeleteRequest(group_id=request.group_id)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for topic in request.topics:
        rows, known = [], []
        for asked in topic.partitions:
            if image.partition(topic.name, asked.partition_index) is None:
                index = asked.partition_index
                rows.append(OffsetDeleteResponsePartition(partition_index=index, error_code=unknown))
            else:
                known.append(asked)
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
        narrowed.topics.append(OffsetDeleteRequestTopic(name=topic.name, partitions=known))
    return response, narrowed


def fetch_all(
    offsets: OffsetStore, group_id: str, require_stable: bool, version: int, image: ClusterImage
) -> list[OffsetFetchResponseTopics]:
    """All committed offsets of a group, by topic. Offsets of an earlier topic of the same name are left out."""
    found = []
    for name, partitions in offsets.topics(group_id).items():
        topic = image.topics.get(name)
        if topic is None and version >= _TOPIC_IDS_SINCE:
            continue  # a deleted topic has no id to report
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        current = [index for index, committed in partitions.items() if committed.is_of(topic_id)]
        rows = commits.fetch(offsets, group_id, name, current, require_stable, topic_id)
        if rows:
            found.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=rows))
    return found


def fetch_topic(
    offsets: OffsetStore,
    group_id: str,
    asked: OffsetFetchRequestTopics,
    require_stable: bool,
    version: int,
    image: ClusterImage,
) -> OffsetFetchResponseTopics:
    """A row for each partition of one requested topic; -1 is the offset of a partition without a commit."""
    topic, unknown = _resolve_topic(asked, version, image)
    indexes = asked.partition_indexes
    if unknown == ErrorCode.UNKNOWN_TOPIC_ID:
        rows = [commits.no_offset(index, unknown) for index in indexes]
        return OffsetFetchResponseTopics(topic_id=asked.topic_id, partitions=rows)
    # A name may be requested after its topic was deleted; its commits are returned while they are kept.
    name, topic_id = (asked.name, ZERO_UUID) if topic is None else (topic.name, topic.topic_id)
    rows = commits.fetch(offsets, group_id, name, indexes, require_stable, topic_id)
    return OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id, partitions=rows)


def _resolve_topic(
    asked: OffsetCommitRequestTopic | OffsetFetchRequestTopics, version: int, image: ClusterImage
) -> tuple[TopicImage | None, ErrorCode]:
    """The topic, and the error for partitions that it does not have."""
    if version < _TOPIC_IDS_SINCE:
        return image.topics.get(asked.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = image.topic_by_id(asked.topic_id)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic, unknown
