"""What the fetch of a follower does beside reading: offsets, idle partitions, the throttle, and who may replicate."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from felice.env import SystemClock
from felice.log.throttle import RateLimit
from felice.metadata import ClusterImage
from felice.metadata.image import BrokerImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.replication.fetched import FetchedRecords
from felice.replication.leader import FollowerProgress
from felice.replication.replica import Listeners
from felice.server.fetching import followers
from felice.server.fetching.fetch_sessions import FetchedPartition, FetchPlan, FetchSessions
from felice.server.fetching.followers import FollowerFinder, FollowerRows
from felice.server.flow import pace

FOLLOWER, BROKER = 7, 1
END_OFFSET = 5
CLOCK = SystemClock()


class LeadPartition:
    """A partition that is led here, with records of 100 bytes up to `END_OFFSET`."""

    def __init__(self, number: int) -> None:
        self.partition = number
        self.isr: tuple[int, ...] = (BROKER,)
        self.on_advance = Listeners()
        self.change_count = 0
        self.offsets: list[tuple[int, int]] = []
        self.reads: list[tuple[int, bool]] = []
        self.traffic = SimpleNamespace(replication_bytes_out=0, bytes_out=0)
        self.log = SimpleNamespace(
            log_start_offset=0, config=SimpleNamespace(leader_replication_throttled_replicas=[])
        )
        self.refuses = False

    def on_follower_fetch(self, replica_id: int, offset: int, **_: int) -> None:
        if self.refuses:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        self.offsets.append((replica_id, offset))

    def fetch(self, offset: int, max_bytes: int, *, min_one: bool, **_: object) -> FetchedRecords:
        self.reads.append((max_bytes, min_one))
        records: Any = SimpleNamespace(size_bytes=100) if offset < END_OFFSET and max_bytes else None
        return FetchedRecords(records, END_OFFSET, END_OFFSET, 0, None)

    def begin_idle(self, *_: object) -> FollowerProgress:
        return FollowerProgress()


class Broker:
    """The part of a broker that leads three partitions."""

    def __init__(self, *, is_allowed: bool = True) -> None:
        self.led = [LeadPartition(number) for number in range(3)]
        self.image = ClusterImage(brokers={FOLLOWER: BrokerImage(FOLLOWER, {}, None, 10)})
        self.sessions = FetchSessions(10, random.Random(1))
        self.throttle = RateLimit(lambda: 1.0)
        self.is_allowed = is_allowed
        self.checks = 0

    def find(self, topic: str, partition: int) -> LeadPartition:
        return self.led[partition]

    def _check_session(self) -> None:
        self.checks += 1

    def plan(self, offset: int = END_OFFSET, **fields: int) -> FetchPlan:
        asked = [FetchPartition(partition=n, fetch_offset=offset, partition_max_bytes=100) for n in range(3)]
        topics = [FetchTopic(topic="t", partitions=asked)] if "session_id" not in fields else []
        return self.sessions.open(
            FetchRequest(**{"session_epoch": 0, **fields}, replica_id=FOLLOWER, topics=topics), 11, 0
        )

    def begin(self, plan: FetchPlan) -> tuple[FollowerFinder, FollowerRows]:
        metadata: Any = self
        finder = FollowerFinder(metadata, metadata, FOLLOWER, -1, CLOCK, is_allowed=self.is_allowed)
        asyncio.run(finder.record_offsets(plan, self._check_session))
        nothing: Any = SimpleNamespace(config=SimpleNamespace(replica_selector_class="rack"))
        rows = FollowerRows(
            FetchRequest(rack_id="r"),
            11,
            finder,
            nothing,
            nothing,
            session=plan.session,
            broker_id=BROKER,
            throttle=self.throttle,
            clock=CLOCK,
        )
        return finder, rows


def serve(plan: FetchPlan, finder: FollowerFinder, rows: FollowerRows) -> None:
    """Reads every partition of the plan, and concludes it."""
    for asked in list(plan.partitions):
        partition = finder.find(asked)
        rows.served(asked, partition, rows.row(asked, partition, 100, True))


def numbers(plan: FetchPlan) -> list[int]:
    return [asked.partition for asked in plan.partitions]


def code_of(finder: FollowerFinder, asked: FetchedPartition) -> int:
    with pytest.raises(ApiError) as caught:
        finder.find(asked)
    return caught.value.code


def idle_session(broker: Broker) -> int:
    """The id of a session whose partitions are all idle."""
    plan = broker.plan()
    serve(plan, *broker.begin(plan))
    assert plan.session is not None
    assert not plan.session.reading.active
    return plan.session_id


def test_the_offsets_of_all_partitions_are_recorded_before_one_is_read() -> None:
    broker = Broker()
    plan = broker.plan(offset=2)
    broker.begin(plan)
    assert [partition.offsets for partition in broker.led] == [[(FOLLOWER, 2)]] * 3
    assert not any(partition.reads for partition in broker.led)
    assert broker.checks == 0


def test_the_session_is_checked_after_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pace, followers):
        monkeypatch.setattr(module, "MAX_ITEMS_WITHOUT_PAUSE", 2)
    broker = Broker()
    broker.begin(broker.plan())
    assert broker.checks == 3


def test_a_partition_whose_offset_was_refused_is_not_read() -> None:
    broker = Broker()
    broker.led[1].refuses = True
    plan = broker.plan()
    finder, _ = broker.begin(plan)
    assert code_of(finder, plan.partitions[1]) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert finder.find(plan.partitions[2]) is broker.led[2]


def test_a_client_that_may_not_replicate_gets_an_error_for_all_partitions_also_idle_ones() -> None:
    broker = Broker()
    session_id = idle_session(broker)
    broker.is_allowed = False
    plan = broker.plan(session_id=session_id, session_epoch=1)
    finder, _ = broker.begin(plan)
    assert sorted(numbers(plan)) == [0, 1, 2]
    assert {code_of(finder, asked) for asked in plan.partitions} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert [len(partition.offsets) for partition in broker.led] == [1, 1, 1]


def test_idle_partitions_are_read_again_when_the_registration_of_the_follower_changed() -> None:
    broker = Broker()
    session_id = idle_session(broker)
    same = broker.plan(session_id=session_id, session_epoch=1)
    broker.begin(same)
    assert numbers(same) == []
    broker.image = replace(broker.image, brokers={FOLLOWER: BrokerImage(FOLLOWER, {}, None, 11)})
    changed = broker.plan(session_id=session_id, session_epoch=2)
    broker.begin(changed)
    assert sorted(numbers(changed)) == [0, 1, 2]


def test_a_partition_that_changed_since_it_was_read_does_not_become_idle() -> None:
    broker = Broker()
    plan = broker.plan()
    finder, rows = broker.begin(plan)
    assert plan.session is not None
    first = plan.partitions[0]
    row = rows.row(first, finder.find(first), 100, True)
    broker.led[0].log.log_start_offset = 1
    rows.served(first, finder.find(first), row)
    assert first in plan.session.reading.active


def test_only_followers_that_are_throttled_and_not_in_sync_wait_for_the_rate() -> None:
    broker = Broker()
    throttled, in_sync, unlimited = broker.led
    throttled.log.config.leader_replication_throttled_replicas = [f"0:{BROKER}"]
    in_sync.log.config.leader_replication_throttled_replicas = ["*"]
    in_sync.isr = (BROKER, FOLLOWER)
    plan = broker.plan(offset=0)
    finder, rows = broker.begin(plan)
    serve(plan, finder, rows)
    assert rows.throttled_bytes == 100
    assert [partition.traffic.replication_bytes_out for partition in broker.led] == [100, 100, 100]

    broker.throttle.record(10_000_000, CLOCK.monotonic())
    serve(plan, finder, rows)
    assert rows.throttled_bytes == 100
    assert throttled.reads == [(100, True), (0, False)]
    assert in_sync.reads == unlimited.reads == [(100, True), (100, True)]
    assert not throttled.traffic.bytes_out
