"""Requests about a group's offsets, for consumers and administrators, and a common form of their responses.

Keeps true:  In every version, the caller sees partitions by topic name, each with an offset or an error.
Topics are sent by name, at most in version 9 of both APIs: a commit must not fail because metadata lacks a topic id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from felice.client.error import KafkaError, failure
from felice.client.model import Message, Partition, TopicPartition
from felice.client.net.requests import by_topic
from felice.client.net.wire import ByVersion
from felice.dataclass import dataclass
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

LAST_VERSION_BY_NAME = 9
BATCHED_OFFSET_FETCH = 8
REQUIRE_STABLE = 7


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset for a partition; offset -1 if there is none."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class Committer:
    """The identity that commits offsets: a member of a generation or epoch, or no member (generation -1).

    `stay` counts the memberships of one consumer, and is not sent: what a lost membership could not commit, the next
    one must not commit.
    """

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    stay: int = 0


NOBODY = Committer()


def offset_commit_request(
    group_id: str, offsets: Mapping[Partition, CommittedOffset], committer: Committer = NOBODY
) -> ByVersion:
    """An OffsetCommit request for one group."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[_commit_row(number, offsets[topic, number]) for number in numbers],
        )
        for topic, numbers in by_topic(offsets).items()
    ]
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=committer.generation,
        member_id=committer.member_id,
        group_instance_id=committer.instance_id,
        topics=topics,
    )
    return ByVersion(OffsetCommitRequest, lambda version: request, LAST_VERSION_BY_NAME)


def _commit_row(number: int, offset: CommittedOffset) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def commit_results(response: OffsetCommitResponse) -> dict[Partition, int]:
    """Return the error code of each partition."""
    return {
        (topic.name, row.partition_index): row.error_code
        for topic in response.topics
        for row in topic.partitions
    }


def offset_fetch_request(
    group_id: str,
    partitions: Iterable[Partition] | None,
    *,
    require_stable: bool = False,
    reader: Committer = NOBODY,
) -> ByVersion:
    """An OffsetFetch request; `partitions` None asks for all committed offsets of the group.

    A `reader` with an epoch is refused if it is not, or no longer, a member of the group (KIP-848).
    """
    grouped = None if partitions is None else by_topic(partitions)

    def build(version: int) -> OffsetFetchRequest:
        stable = require_stable and version >= REQUIRE_STABLE
        if version >= BATCHED_OFFSET_FETCH:
            topics = (
                None
                if grouped is None
                else [
                    OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
                    for topic, numbers in grouped.items()
                ]
            )
            group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
            if reader.generation >= 0:
                group.member_id, group.member_epoch = reader.member_id, reader.generation
            groups = [group]
            return OffsetFetchRequest(groups=groups, require_stable=stable)
        old = (
            None
            if grouped is None
            else [
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in grouped.items()
            ]
        )
        return OffsetFetchRequest(group_id=group_id, topics=old, require_stable=stable)

    return ByVersion(OffsetFetchRequest, build, LAST_VERSION_BY_NAME)


def fetched_offsets(response: OffsetFetchResponse) -> tuple[int, dict[Partition, CommittedOffset]]:
    """Return the group's own error code, and its committed offsets."""
    group = response.groups[0] if response.groups else response
    return group.error_code, {
        (topic.name, row.partition_index): CommittedOffset(
            row.committed_offset, row.metadata or "", row.committed_leader_epoch, row.error_code
        )
        for topic in group.topics
        for row in topic.partitions
    }


def offsets_of(
    message: Message | None, offsets: Sequence[TopicPartition] | None
) -> dict[Partition, CommittedOffset] | None:
    """Convert what `commit` and `store_offsets` get: a message (the offset after it), partitions, or neither.

    Partitions whose offset is negative are left out. Raises `ValueError` for both arguments, `KafkaException` for a
    message that is an error event.
    """
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if message is not None:
        if not isinstance(message, Message):
            raise TypeError(f"expected a Message, not {type(message).__name__}")
        if message.error() is not None:
            raise failure(KafkaError._INVALID_ARG, f"the message is an error event: {message.error()}")
        epoch = message.leader_epoch()
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None or offset is None:
            raise failure(KafkaError._NO_OFFSET, "the message has no topic, partition or offset")
        return {(topic, partition): CommittedOffset(offset + 1, "", -1 if epoch is None else epoch)}
    if offsets is None:
        return None
    return {
        tp.key: CommittedOffset(
            tp.offset, tp.metadata or "", -1 if tp.leader_epoch is None else tp.leader_epoch
        )
        for tp in offsets
        if tp.offset >= 0
    }


def stored_offsets(
    message: Message | None, offsets: Sequence[TopicPartition] | None
) -> dict[Partition, CommittedOffset]:
    """Convert what `store_offsets` gets; raises `ValueError` for neither argument and for both."""
    chosen = offsets_of(message, offsets)
    if chosen is None:
        raise ValueError("expected either message or offsets")
    return chosen
