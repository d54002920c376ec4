"""The group coordinator of this broker: group requests in, answers out.

Keeps true:  every call is answered, with Kafka's error if the group is not coordinated here, not loaded yet, or cannot
             be written. An answer shows only state that is in the log.
How:         finds the group's shard in the runtime and lets it decide; names and ids of topics come from the cluster's
             image.
Leaves:      differences between request versions to the handlers.
"""

from __future__ import annotations

import base64
import contextlib
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from felice.config import BrokerConfig
from felice.coordinator.group.classic.rebalance import join_error
from felice.coordinator.group.configured_times import ConfiguredTimes
from felice.coordinator.group.modern.topics import NO_TOPICS, Topics
from felice.coordinator.group.offsets import topics as offset_topics
from felice.coordinator.group.offsets.commits import Commit
from felice.coordinator.group.records import GroupRecordCodec, Record
from felice.coordinator.group.settings import GroupSettings
from felice.coordinator.group.shard import GroupCounts, GroupShard
from felice.coordinator.group.turn import Caller
from felice.coordinator.runtime import CoordinatorRuntime, PartitionSource
from felice.coordinator.shard import (
    Instant,
    Outcome,
    Reply,
    ReplyAfterWrite,
    TransactionalProducer,
    Waiter,
)
from felice.dataclass import dataclass
from felice.env import Environment
from felice.metadata.image import ClusterImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.delete_groups import DeletableGroupResult
from felice.protocol.messages.describe_groups import DescribedGroup
from felice.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from felice.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from felice.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from felice.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from felice.records.control import EndTransactionMarker

if TYPE_CHECKING:
    from felice.coordinator.group.consumer.expressions import May
    from felice.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerDescribedGroup
    from felice.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )

T = TypeVar("T")

GROUP_TOPIC = "__consumer_offsets"
NO_NODE = -1


@dataclass(frozen=True, slots=True)
class Client:
    """The sender of a request: version of the request, client id, and address."""

    version: int
    client_id: str = ""
    host: str = ""


class GroupCoordinator:
    """`config` and `image` return the current configuration and cluster.

    `create_topic` begins to create an internal topic if it is missing.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        env: Environment,
        partitions: PartitionSource,
        image: Callable[[], ClusterImage],
        create_topic: Callable[[str], object],
    ) -> None:
        self._config = config
        self._random = env.random
        self._image = image
        self._known_topics: dict[str, uuid.UUID] = {}
        # Topics that the store lost without a request to delete them.
        self._missing_topics: dict[str, uuid.UUID] = {}
        self._create_topic = create_topic
        self._topics = NO_TOPICS
        self.counts = GroupCounts()
        settings = GroupSettings.of(config(), ConfiguredTimes(config, image).of)
        self._assignors = settings.consumer_assignors
        self._runtime: CoordinatorRuntime[GroupShard, Record] = CoordinatorRuntime(
            topic=GROUP_TOPIC,
            partition_count=self._partition_count,
            new_shard=lambda: GroupShard(settings, lambda: self._topics, self.counts),
            codec=GroupRecordCodec(),
            partitions=partitions,
            clock=env.clock,
            write_timeout_ms=config().offsets_commit_timeout_ms,
        )

    # Start and stop

    def start(self) -> None:
        """Loads the shards whose partitions this broker leads, and follows leadership from now on."""
        self._known_topics = self._topic_ids()
        self._follow_topics()
        self._runtime.start()

    def stop(self) -> None:
        """Answers every waiting request with COORDINATOR_NOT_AVAILABLE."""
        self._runtime.stop()

    def on_image(self) -> None:
        """The cluster changed: loads and closes shards by leadership, and removes offsets of deleted topics."""
        self._follow_topics()
        before, known = {**self._missing_topics, **self._known_topics}, self._topic_ids()
        self._known_topics = known
        self._runtime.follow_roles()
        # A topic may also be missing because the store lost it: then its offsets are kept for its return (C12), but
        # not for another topic of its name. This broker may also have missed a deletion, and its record.
        image = self._image()
        deleted = [
            name
            for name, topic_id in before.items()
            if known.get(name) != topic_id and (name in known or image.is_deletion_requested(topic_id))
        ]
        self._missing_topics = {name: before[name] for name in before.keys() - known.keys() - set(deleted)}
        if deleted:
            self.on_topics_deleted(deleted)

    def shards(self) -> list[GroupShard]:
        """The groups and offsets that this broker coordinates, for metrics: callers must not change them."""
        return [hosted.shard for hosted in self._runtime.loaded()]

    def on_topics_deleted(self, topics: Sequence[str]) -> None:
        """Deletes the committed offsets of topics that no longer exist."""
        for hosted in self._runtime.loaded():
            shard = hosted.shard
            # A shard that fails here is loaded again, with offsets that no request can reach; they expire.
            with contextlib.suppress(ApiError):
                hosted.run(lambda _, shard=shard: shard.on_topics_deleted(topics))  # type: ignore[misc]

    def _follow_topics(self) -> None:
        """Gives groups a new version of the topics if a topic was added or removed, or has more partitions."""
        image = self._image()
        if not self._topics.is_as(image.topics):
            self._topics = Topics(image.topics, image.topic_names, self._topics.version + 1)

    def _topic_ids(self) -> dict[str, uuid.UUID]:
        return {name: topic.topic_id for name, topic in self._image().topics.items()}

    def _partition_count(self) -> int:
        topic = self._image().topics.get(GROUP_TOPIC)
        return self._config().offsets_topic_num_partitions if topic is None else len(topic.partitions)

    # Finding

    def leader_of(self, group_id: str) -> int:
        """The broker that coordinates a group; `NO_NODE` while the topic is being created or has no leader."""
        topic = self._image().topics.get(GROUP_TOPIC)
        if topic is None:
            self._create_topic(GROUP_TOPIC)
            return NO_NODE
        partition = topic.partition(self._runtime.partition_for(group_id))
        return NO_NODE if partition is None else partition.leader

    # Membership

    async def join(self, request: JoinGroupRequest, client: Client) -> JoinGroupResponse:
        """JoinGroup. Waits until the join phase ends."""

        def event(shard: GroupShard, waiter: Waiter[JoinGroupResponse], now: Instant) -> Outcome[Record]:
            return shard.join(request, self._joining(request, client, waiter), now)

        return await self._call(request.group_id, event, lambda error: join_error(error, request.member_id))

    def _joining(
        self, request: JoinGroupRequest, client: Client, waiter: Waiter[JoinGroupResponse]
    ) -> Caller[JoinGroupResponse]:
        unique = uuid.UUID(int=self._random.getrandbits(128), version=4)
        new_member_id = f"{request.group_instance_id or client.client_id}-{unique}"
        return Caller(waiter, client.version, client.client_id, client.host, new_member_id)

    async def sync(self, request: SyncGroupRequest, client: Client) -> SyncGroupResponse:
        """SyncGroup. Waits until the leader's assignment is in the log."""

        def event(shard: GroupShard, waiter: Waiter[SyncGroupResponse], now: Instant) -> Outcome[Record]:
            return shard.sync(request, Caller(waiter, client.version), now)

        return await self._call(request.group_id, event, lambda error: SyncGroupResponse(error_code=error))

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """The most frequent request by far: answered without a waiter."""
        try:
            _check_group_id(request.group_id)
            hosted = self._runtime.hosted(request.group_id)
        except ApiError as error:
            if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # Members' sessions start when loading ends, and Java's consumer treats this error as fatal.
                return HeartbeatResponse()
            return HeartbeatResponse(error_code=error.code)
        response = hosted.shard.heartbeat(request, hosted.now())
        hosted.follow_deadlines()
        return response

    async def leave(self, group_id: str, leavers: list[MemberIdentity], client: Client) -> LeaveGroupResponse:
        """LeaveGroup, for several members at once (KIP-345)."""

        def event(shard: GroupShard, waiter: Waiter[LeaveGroupResponse], now: Instant) -> Outcome[Record]:
            return shard.leave(group_id, leavers, Caller(waiter, client.version), now)

        return await self._call(group_id, event, lambda error: LeaveGroupResponse(error_code=error))

    # Consumer groups (KIP-848)

    async def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, may_describe: May | None
    ) -> ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeat. A regular expression matches only topics that `may_describe` accepts; None: all."""
        from felice.coordinator.group.consumer.answers import error_response
        from felice.coordinator.group.consumer.checks import check_request

        unique = base64.urlsafe_b64encode(self._random.getrandbits(128).to_bytes(16)).rstrip(b"=").decode()
        try:
            check_request(request, client.version, self._assignors)
        except ApiError as error:
            return error_response(error.code, error.message)

        def event(
            shard: GroupShard, waiter: Waiter[ConsumerGroupHeartbeatResponse], now: Instant
        ) -> Outcome[Record]:
            caller = Caller(waiter, client.version, client.client_id, client.host, unique)
            return shard.consumer_heartbeat(request, caller, may_describe, now)

        return await self._call(request.group_id, event, error_response)

    def describe_consumer(self, group_id: str) -> ConsumerDescribedGroup:
        """One group of a ConsumerGroupDescribe request."""
        from felice.coordinator.group.consumer.describe import describe_missing

        try:
            _check_group_id(group_id)
            return self._runtime.hosted(group_id).shard.describe_consumer(group_id)
        except ApiError as error:
            return describe_missing(group_id, error.code, error.message)

    # Offsets

    async def commit(self, request: OffsetCommitRequest, client: Client) -> OffsetCommitResponse:
        """OffsetCommit. Waits until the commits are replicated; a row with an error does not stop the others."""
        response, commits = offset_topics.resolve_commits(request, client.version, self._image())
        if not commits:
            return response

        def failed(error: ErrorCode) -> OffsetCommitResponse:
            _fail(commits, error)
            return response

        def event(shard: GroupShard, waiter: Waiter[OffsetCommitResponse], now: Instant) -> Outcome[Record]:
            error, records = shard.commit(request, commits, Caller(waiter, client.version), now)
            outcome: Outcome[Record] = Outcome(records=records)
            if error != ErrorCode.NONE:
                outcome.reply(waiter, failed(error))
            else:
                outcome.after_write.append(ReplyAfterWrite(waiter, response, failed))
            return outcome

        # An empty group id is allowed: old consumers without a group commit under it.
        return await self._call(request.group_id, event, failed, may_be_empty=True)

    def answer_without_transaction(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | None:
        """The response to a request that commits nothing: it must not add a partition to the transaction."""
        response, commits = offset_topics.resolve_transactional(request, self._image())
        if request.group_id:
            return None if commits else response
        for wanted in commits:
            wanted.row.error_code = ErrorCode.INVALID_GROUP_ID
        return response

    async def commit_transactional(
        self, request: TxnOffsetCommitRequest, refusal: ErrorCode
    ) -> TxnOffsetCommitResponse:
        """`refusal` is the reason why the transaction may not write to the group's partition, or `NONE`."""
        response, commits = offset_topics.resolve_transactional(request, self._image())
        if not commits:
            return response

        def failed(error: ErrorCode) -> TxnOffsetCommitResponse:
            _fail(commits, error)
            return response

        def event(
            shard: GroupShard, waiter: Waiter[TxnOffsetCommitResponse], now: Instant
        ) -> Outcome[Record]:
            error, records = refusal, list[Record]()
            if error == ErrorCode.NONE:
                error, records = shard.commit_transactional(request, commits, now)
            if error != ErrorCode.NONE:
                return Outcome([Reply(waiter, failed(error))])
            producer = TransactionalProducer(request.producer_id, request.producer_epoch)
            after: ReplyAfterWrite[Record, TxnOffsetCommitResponse] = ReplyAfterWrite(
                waiter, response, failed
            )
            return Outcome(records=records, after_write=[after], producer=producer)

        return await self._call(request.group_id, event, failed)

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds a group."""
        return self._runtime.partition_for(group_id)

    def end_transaction(
        self,
        partition: int,
        marker: EndTransactionMarker,
        producer: TransactionalProducer,
        transaction_version: int = 0,
    ) -> int:
        """Writes the marker of a transaction that committed offsets into this partition; returns its offset."""
        try:
            hosted = self._runtime.hosted_at(partition)
        except ApiError as error:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from error
        return hosted.end_transaction(marker, producer, transaction_version)

    async def fetch(
        self, request: OffsetFetchRequestGroup, require_stable: bool, client: Client
    ) -> OffsetFetchResponseGroup:
        """OffsetFetch for one group. From version 9 on, a consumer group checks the member and its epoch (KIP-848)."""

        def failed(error: ErrorCode) -> OffsetFetchResponseGroup:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error)

        def event(
            shard: GroupShard, waiter: Waiter[OffsetFetchResponseGroup], now: Instant
        ) -> Outcome[Record]:
            image, version, group_id = self._image(), client.version, request.group_id
            refusal = shard.check_fetch(group_id, request.member_id, request.member_epoch)
            if refusal != ErrorCode.NONE:
                return Outcome([Reply(waiter, failed(refusal))])
            if request.topics is None:
                topics = offset_topics.fetch_all(shard.offsets, group_id, require_stable, version, image)
            else:
                topics = [
                    offset_topics.fetch_topic(shard.offsets, group_id, asked, require_stable, version, image)
                    for asked in request.topics
                ]
            response = OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)
            return Outcome(after_write=[ReplyAfterWrite(waiter, response, failed)])

        return await self._call(request.group_id, event, failed, may_be_empty=True)

    async def delete_offsets(self, request: OffsetDeleteRequest, client: Client) -> OffsetDeleteResponse:
        """OffsetDelete (KIP-496)."""
        response, narrowed = offset_topics.resolve_deletions(request, self._image())

        def event(shard: GroupShard, waiter: Waiter[OffsetDeleteResponse], now: Instant) -> Outcome[Record]:
            return shard.delete_offsets(narrowed, response, Caller(waiter, client.version))

        return await self._call(request.group_id, event, lambda error: OffsetDeleteResponse(error_code=error))

    # Administration

    def describe(self, group_id: str, client: Client) -> DescribedGroup:
        """One group of a DescribeGroups request."""
        try:
            return self._runtime.hosted(group_id).shard.describe(group_id, client.version)
        except ApiError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code)

    def list(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """Lists only the groups that this broker coordinates: a client asks every broker."""
        try:
            groups = [
                group
                for hosted in self._runtime.all_loaded()
                for group in hosted.shard.list(request.states_filter, request.types_filter)
            ]
        except ApiError as error:
            return ListGroupsResponse(error_code=error.code)
        return ListGroupsResponse(groups=groups)

    async def delete(self, group_id: str, client: Client) -> DeletableGroupResult:
        """One group of a DeleteGroups request. Waits until the tombstones are replicated."""

        def event(shard: GroupShard, waiter: Waiter[DeletableGroupResult], now: Instant) -> Outcome[Record]:
            return shard.delete(group_id, Caller(waiter, client.version))

        def failed(error: ErrorCode) -> DeletableGroupResult:
            return DeletableGroupResult(group_id=group_id, error_code=error)

        return await self._call(group_id, event, failed, may_be_empty=True)

    # Internals

    async def _call(
        self,
        group_id: str,
        event: Callable[[GroupShard, Waiter[T], Instant], Outcome[Record]],
        failed: Callable[[ErrorCode], T],
        *,
        may_be_empty: bool = False,
    ) -> T:
        try:
            if not may_be_empty:
                _check_group_id(group_id)
            return await self._runtime.call(group_id, event)
        except ApiError as error:
            return failed(error.code)


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)


def _fail(commits: list[Commit], error: ErrorCode) -> None:
    """Gives the rows of these commits the error, unless they have their own."""
    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error == ErrorCode.MESSAGE_TOO_LARGE else error
    for wanted in commits:
        wanted.row.error_code = wanted.row.error_code or code
