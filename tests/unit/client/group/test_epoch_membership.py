"""A consumer with `group.protocol=consumer` and a scripted coordinator: requests, callbacks, commits and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import confluent_kafka
import pytest

from felice.client import Consumer, ConsumerGroupMetadata, KafkaError, KafkaException, TopicPartition, aio
from felice.client.group import epoch_membership
from felice.client.options import ConsumerSettings
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from felice.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from felice.records.builder import build_batch
from felice.records.record import Record
from unit.client.admin.exchange import broker_ranges
from unit.client.fake_broker import Disconnect, FakeBroker, Hang
from unit.client.group.test_membership import spin
from waiting import LIMIT_S, wait_until

HEARTBEAT = 68
LONG_MS = 3_600_000


class EpochCoordinator(FakeBroker):
    """Assigns partition 0 of topic t to every member, and takes every commit."""

    def __init__(self) -> None:
        super().__init__({"t": 3})
        self.interval_ms = LONG_MS
        self.epoch = 2
        self.handlers[ConsumerGroupHeartbeatRequest] = self._heartbeat
        self.handlers[OffsetFetchRequest] = self._committed
        self.handlers[OffsetCommitRequest] = lambda request, version: committed(request)
        for partition in range(3):
            self.append("t", partition, build_batch([Record(0, 1, None, b"v")] * 3))

    @property
    def topic_id(self) -> UUID:
        return self.topics["t"][0]

    def _heartbeat(self, request: Any, version: int) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch < 0:
            return ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch)
        return self.answer(*([[0]] if request.rebalance_timeout_ms != -1 else []))

    def answer(self, *partitions: list[int], topic_id: UUID | None = None) -> ConsumerGroupHeartbeatResponse:
        """An answer with the coordinator's epoch, and with an assignment if there are `partitions`."""
        response = ConsumerGroupHeartbeatResponse(
            member_epoch=self.epoch, heartbeat_interval_ms=self.interval_ms
        )
        for numbers in partitions:
            rows = (
                [TopicPartitions(topic_id=topic_id or self.topic_id, partitions=numbers)] if numbers else []
            )
            response.assignment = Assignment(topic_partitions=rows)
        return response

    def _committed(self, request: Any, version: int) -> OffsetFetchResponse:
        rows = [
            OffsetFetchResponsePartitions(partition_index=n, committed_offset=-1, metadata="")
            for n in range(3)
        ]
        topics = [OffsetFetchResponseTopics(name="t", partitions=rows)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])

    @property
    def heartbeats(self) -> list[Any]:
        return self.asked(ConsumerGroupHeartbeatRequest)


def committed(request: OffsetCommitRequest, *stale: int) -> OffsetCommitResponse:
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                OffsetCommitResponsePartition(
                    partition_index=row.partition_index,
                    error_code=ErrorCode.STALE_MEMBER_EPOCH if row.partition_index in stale else 0,
                )
                for row in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetCommitResponse(topics=topics)


@pytest.fixture
def broker() -> Iterator[EpochCoordinator]:
    with EpochCoordinator() as started:
        yield started


def settings(broker: FakeBroker, **keys: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,
        **{name.replace("_", "."): value for name, value in keys.items()},
    }


class Events(list[tuple[str, list[int]]]):
    """What the callbacks got."""

    def callbacks(self) -> dict[str, Callable[[Any, list[TopicPartition]], None]]:
        return {f"on_{what}": self._note(what) for what in ("assign", "revoke", "lost")}

    def _note(self, what: str) -> Callable[[Any, list[TopicPartition]], None]:
        return lambda _, partitions: self.append((what, sorted(tp.partition for tp in partitions)))


def is_fatal(error: KafkaError) -> bool:
    return error.fatal() and error == KafkaError._FATAL


def test_requests_say_what_is_new_and_a_change_is_told_at_once(broker: EpochCoordinator) -> None:
    events = Events()
    keys = {"max.poll.interval.ms": 70_000, "client.rack": "r", "group.remote.assignor": "range"}
    with Consumer(settings(broker, **keys)) as consumer:
        consumer.subscribe(["t"], **events.callbacks())
        # The interval is an hour: these heartbeats did not wait for it.
        broker.script(ConsumerGroupHeartbeatRequest, broker.answer([0, 1]), broker.answer([1]))
        spin(consumer, lambda: len(broker.heartbeats) == 3)
        member_id = consumer.memberid()
        assert consumer.consumer_group_metadata() == ConsumerGroupMetadata("g", 2, member_id or "", None)
    join, told, revoked, left = broker.heartbeats
    assert (join.member_id, join.member_epoch, join.rebalance_timeout_ms) == (member_id, 0, 70_000)
    assert (join.rack_id, join.server_assignor, join.subscribed_topic_names) == ("r", "range", ["t"])
    owned = [[row.partitions for row in each.topic_partitions] for each in (join, told, revoked)]
    assert owned == [[], [[0, 1]], [[1]]]
    assert told.subscribed_topic_names is None and told.rebalance_timeout_ms == -1
    assert (left.member_epoch, left.member_id) == (-1, member_id)
    assert events == [("assign", [0, 1]), ("revoke", [0]), ("revoke", [1])]


def test_a_static_member_says_that_it_will_come_back(broker: EpochCoordinator) -> None:
    with Consumer(settings(broker, group_instance_id="i")) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: len(broker.heartbeats) == 2)
    assert [(each.member_epoch, each.instance_id) for each in broker.heartbeats] == [
        (0, "i"),
        (2, "i"),
        (-2, "i"),
    ]


def test_heartbeats_go_on_while_partitions_wait_to_be_revoked(broker: EpochCoordinator) -> None:
    broker.interval_ms = 50
    events = Events()
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"], **events.callbacks())
        spin(consumer, lambda: bool(consumer.assignment()))
        broker.script(ConsumerGroupHeartbeatRequest, broker.answer([]))
        wait_until(lambda: not broker.scripts[ConsumerGroupHeartbeatRequest])
        before = len(broker.heartbeats)
        wait_until(lambda: len(broker.heartbeats) >= before + 4)
        assert events == [("assign", [0])]
        assert all(not each.topic_partitions for each in broker.heartbeats[before + 1 :])
        spin(consumer, lambda: ("revoke", [0]) in events)
        wait_until(lambda: broker.heartbeats[-1].topic_partitions is None)
        owned = [each.topic_partitions for each in broker.heartbeats]
        assert owned.count([]) == 2, "the join, and the revocation"


def test_a_fenced_member_loses_its_partitions_and_joins_with_its_id(broker: EpochCoordinator) -> None:
    broker.interval_ms = 50
    events = Events()
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"], **events.callbacks())
        spin(consumer, lambda: bool(consumer.assignment()))
        fenced = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        broker.script(ConsumerGroupHeartbeatRequest, fenced)
        spin(consumer, lambda: len(events) == 3)
    assert events[:3] == [("assign", [0]), ("lost", [0]), ("assign", [0])]
    joins = [each for each in broker.heartbeats if each.member_epoch == 0]
    assert len(joins) == 2 and len({each.member_id for each in joins}) == 1


def test_a_fenced_member_without_partitions_joins_again(broker: EpochCoordinator) -> None:
    unknown = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    broker.interval_ms = 50
    with Consumer(settings(broker)) as consumer:
        broker.script(ConsumerGroupHeartbeatRequest, broker.answer([]), unknown)
        consumer.subscribe(["t"])
        spin(consumer, lambda: bool(consumer.assignment()))
    assert [each.member_epoch for each in broker.heartbeats][:3] == [0, 2, 0]


@pytest.mark.parametrize("trouble", ["silence", "moved"])
def test_after_trouble_the_member_says_everything_again(broker: EpochCoordinator, trouble: str) -> None:
    events = Events()
    moved = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    with Consumer(settings(broker)) as consumer:
        broker.script(
            ConsumerGroupHeartbeatRequest, broker.answer([0]), Disconnect if trouble == "silence" else moved
        )
        consumer.subscribe(["t"], **events.callbacks())
        spin(consumer, lambda: len(broker.heartbeats) == 3)
        again = broker.heartbeats[2]
        assert (again.member_epoch, again.subscribed_topic_names) == (2, ["t"])
        assert [row.partitions for row in again.topic_partitions] == [[0]]
        assert events == [("assign", [0])], "nothing was lost"
    assert len(broker.asked(FindCoordinatorRequest)) == 2


def test_a_member_that_is_not_polled_leaves_and_comes_back(broker: EpochCoordinator) -> None:
    events = Events()
    with Consumer(settings(broker, max_poll_interval_ms=1000)) as consumer:
        consumer.subscribe(["t"], **events.callbacks())
        spin(consumer, lambda: bool(consumer.assignment()))
        wait_until(lambda: any(each.member_epoch == -1 for each in broker.heartbeats))
        errors = spin(consumer, lambda: events[-2:] == [("lost", [0]), ("assign", [0])])
    assert KafkaError._MAX_POLL_EXCEEDED in errors
    assert len({each.member_id for each in broker.heartbeats}) == 1


def test_topics_that_an_expression_found_are_looked_up_by_their_ids(
    broker: EpochCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_membership, "_NAMES_INTERVAL_S", 0.05)
    known, asked = broker.handlers[MetadataRequest], list[list[UUID]]()
    unknown = MetadataResponseTopic(name=None, error_code=ErrorCode.UNKNOWN_TOPIC_ID)

    def by_id(request: MetadataRequest, version: int) -> MetadataResponse:
        assert request.topics is not None, "the metadata of all topics"
        if any(row.name is None for row in request.topics):
            asked.append([row.topic_id for row in request.topics])
            request.topics[0].name = "t"
        response: MetadataResponse = known(request, version)
        if len(asked) == 1:
            # The broker that answers has not heard of the new topic yet.
            response.topics = [unknown]
        return response

    broker.handlers[MetadataRequest] = by_id
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["^t.*", "^[[:alpha:]]$"])  # the second is RE2's, not Python's
        spin(consumer, lambda: bool(consumer.assignment()))
    assert broker.heartbeats[0].subscribed_topic_regex == "(?:^t.*)|(?:^[[:alpha:]]$)"
    assert broker.heartbeats[0].subscribed_topic_names == []
    assert asked == [[broker.topic_id]] * 2


# Commits


def test_a_commit_with_a_stale_epoch_is_repeated_with_the_new_one(broker: EpochCoordinator) -> None:
    rows = [TopicPartition("t", 0, 1), TopicPartition("t", 1, 2)]
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: len(broker.heartbeats) == 2)
        broker.epoch = 3
        broker.script(OffsetCommitRequest, lambda request, version: committed(request, 1))
        told = consumer.commit(offsets=rows, asynchronous=False)
        assert told is not None and [(row.partition, row.error) for row in told] == [(0, None), (1, None)]
    first, second = broker.asked(OffsetCommitRequest)
    assert (first.generation_id_or_member_epoch, second.generation_id_or_member_epoch) == (2, 3)
    assert [row.partition_index for row in second.topics[0].partitions] == [1]
    assert first.member_id == broker.heartbeats[0].member_id


def test_a_commit_that_stays_stale_fails(broker: EpochCoordinator) -> None:
    broker.handlers[OffsetCommitRequest] = lambda request, version: committed(request, 0)
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: len(broker.heartbeats) == 2)
        with pytest.raises(KafkaException) as caught:
            consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        assert caught.value.code == ErrorCode.STALE_MEMBER_EPOCH
    assert len(broker.asked(OffsetCommitRequest)) == 1


def test_a_member_that_was_fenced_does_not_repeat_its_commit(broker: EpochCoordinator) -> None:
    """The next membership has a newer epoch, with which the coordinator would take the commit of what was lost."""

    def fence(request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        broker.script(
            ConsumerGroupHeartbeatRequest,
            ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH),
        )
        broker.epoch = 4
        return committed(request, 0)

    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: len(broker.heartbeats) == 2)
        broker.script(OffsetCommitRequest, fence)
        with pytest.raises(KafkaException):
            consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        spin(consumer, lambda: consumer.consumer_group_metadata().generation_id == 4)
    assert len(broker.asked(OffsetCommitRequest)) == 1


def test_nothing_of_a_lost_membership_is_renewed_by_the_next_one(broker: EpochCoordinator) -> None:
    broker.interval_ms = 50
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: len(broker.heartbeats) >= 2)
        membership = consumer._core.membership
        assert membership is not None
        first = membership.member.committer
        broker.epoch = 3
        spin(consumer, lambda: membership.member.committer.generation == 3)
        assert consumer._thread.run(membership.is_renewed(first))
        second = membership.member.committer
        broker.epoch = 4
        fenced = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        broker.script(ConsumerGroupHeartbeatRequest, fenced)
        spin(consumer, lambda: membership.member.committer.generation == 4)
        assert not consumer._thread.run(membership.is_renewed(second))


def test_committed_offsets_are_read_as_a_member_and_again_after_a_stale_epoch(
    broker: EpochCoordinator,
) -> None:
    group = OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.STALE_MEMBER_EPOCH)
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: len(broker.heartbeats) == 2 and bool(broker.asked(OffsetFetchRequest)))
        before = len(broker.asked(OffsetFetchRequest))
        broker.script(OffsetFetchRequest, OffsetFetchResponse(groups=[group]))
        broker.epoch = 3
        assert [row.error for row in consumer.committed([TopicPartition("t", 0)])] == [None]
    asked = [
        (row.groups[0].member_id, row.groups[0].member_epoch) for row in broker.asked(OffsetFetchRequest)
    ]
    member_id = broker.heartbeats[0].member_id
    assert asked == [(member_id, 2)] * (before + 1) + [(member_id, 3)]


# Errors


@pytest.mark.parametrize("missing", ["api", "feature"])
def test_a_cluster_without_the_protocol_is_a_clear_fatal_error(
    broker: EpochCoordinator, missing: str
) -> None:
    if missing == "api":
        broker.ranges = {key: row for key, row in broker_ranges({}).items() if key != HEARTBEAT}
    else:
        refusal = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        broker.script(ConsumerGroupHeartbeatRequest, refusal)
    told: list[KafkaError] = []
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        while not told:
            message = consumer.poll(0.05)
            told += [error] if message is not None and (error := message.error()) is not None else []
        with pytest.raises(KafkaException) as caught:
            consumer.subscribe(["t"])
    assert is_fatal(told[0]) and is_fatal(caught.value.error)
    assert "does not work with this cluster: use" in told[0].str() and "group.version" in told[0].str()


def test_a_refusal_is_told_and_the_member_goes_on(broker: EpochCoordinator) -> None:
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    with Consumer(settings(broker)) as consumer:
        broker.script(
            FindCoordinatorRequest,
            FindCoordinatorResponse(coordinators=[FoundCoordinator(key="g", error_code=denied)]),
        )
        broker.script(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse(error_code=denied))
        consumer.subscribe(["t"])
        errors = spin(consumer, lambda: bool(consumer.assignment()))
    assert [error.code() for error in errors] == [denied, denied]
    assert not any(error.fatal() for error in errors)


def test_a_topic_that_does_not_exist_is_told_once_and_looked_for(
    broker: EpochCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_membership, "_WATCH_INTERVAL_S", 0.02)
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t", "nope"])
        errors = spin(consumer, lambda: len(broker.asked(MetadataRequest)) >= 6)
    assert [error.code() for error in errors] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_the_end_of_a_membership_ends_a_wait_for_a_newer_epoch(
    broker: EpochCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_membership, "_LEAVE_S", 0.1)
    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"])
        spin(consumer, lambda: len(broker.heartbeats) == 2)
        membership = consumer._core.membership
        assert membership is not None
        broker.script(ConsumerGroupHeartbeatRequest, Hang)
        waiting = consumer._thread.submit(membership.is_renewed(membership.member.committer))
        wait_until(lambda: len(broker.heartbeats) == 3)
        consumer._thread.run(membership.end())
        assert waiting.result(LIMIT_S) is False


def test_partitions_are_lost_with_a_fatal_error(broker: EpochCoordinator) -> None:
    broker.interval_ms = 50
    events = Events()
    with Consumer(settings(broker, group_instance_id="i")) as consumer:
        consumer.subscribe(["t"], **events.callbacks())
        spin(consumer, lambda: bool(consumer.assignment()))
        fenced = ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.FENCED_INSTANCE_ID, error_message="by another"
        )
        broker.script(ConsumerGroupHeartbeatRequest, fenced)
        errors = spin(consumer, lambda: ("lost", [0]) in events)
        errors += spin(consumer, lambda: True)
        count = len(broker.heartbeats)
        with pytest.raises(KafkaException) as caught:
            consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        assert is_fatal(caught.value.error) and "by another" in caught.value.error.str()
    assert len(broker.heartbeats) == count, "it does not leave a group in which another member has its place"


def test_an_application_changes_the_assignment_only_by_increments(broker: EpochCoordinator) -> None:
    events: list[str] = []

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for call in (lambda: consumer.assign(partitions), consumer.unassign):
            with pytest.raises(KafkaException) as caught:
                call()
            events.append(caught.value.error.name())
        consumer.incremental_assign([TopicPartition("t", tp.partition, 2) for tp in partitions])

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.unassign()  # as with librdkafka, allowed while the consumer closes
        events.append("unassigned")

    with Consumer(settings(broker)) as consumer:
        consumer.subscribe(["t"], on_assign=on_assign, on_revoke=on_revoke)
        [message] = consumer.consume(1, 20)
        assert message.offset() == 2
    assert events == ["_STATE", "_STATE", "unassigned"]


def test_the_asyncio_consumer_has_the_protocol(broker: EpochCoordinator) -> None:
    async def main() -> None:
        events: list[tuple[str, int]] = []

        async def on_assign(partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            events.append(("assign", len(partitions)))

        async with aio.Consumer(settings(broker)) as consumer:
            await consumer.subscribe(["t"], on_assign=on_assign)
            table = await consumer.consume_arrow(3, 20)
            assert (table.num_rows, events) == (3, [("assign", 1)])

    asyncio.run(main())
    assert broker.heartbeats[-1].member_epoch == -1


# Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session.timeout.ms", 6000),
        ("heartbeat.interval.ms", 100),
        ("partition.assignment.strategy", "range"),
        ("group.protocol.type", "consumer"),
    ],
)
def test_keys_of_the_classic_protocol_are_refused_in_words_of_librdkafka(name: str, value: object) -> None:
    config = {"bootstrap.servers": "localhost:1", "group.id": "g", "group.protocol": "consumer", name: value}
    with pytest.raises(KafkaException) as ours:
        ConsumerSettings.parse(config)
    with pytest.raises(confluent_kafka.KafkaException) as theirs:
        confluent_kafka.Consumer(config)
    words = ours.value.error.str().removeprefix("Local: Invalid argument or configuration: ")
    their_words = theirs.value.args[0].str().removeprefix("Failed to create consumer: ")
    assert words == their_words.replace(" or share consumer", "")


def test_the_assignor_of_the_broker_has_no_effect_in_the_classic_protocol() -> None:
    config = {"bootstrap.servers": "localhost:1", "group.remote.assignor": "range"}
    assert ConsumerSettings.parse(config).without_effect == ("group.remote.assignor",)
    assert ConsumerSettings.parse({**config, "group.protocol": "consumer"}).without_effect == ()


def test_a_short_poll_interval_is_not_compared_with_a_session_of_the_broker() -> None:
    config = {"bootstrap.servers": "localhost:1", "group.protocol": "consumer", "max.poll.interval.ms": 1000}
    assert ConsumerSettings.parse(config).max_poll_interval_ms == 1000
