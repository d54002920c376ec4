"""The steps that requests which read records share: finding, reading within limits, waiting, naming leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from felice.env import SystemClock
from felice.metadata import ClusterImage
from felice.metadata.image import BrokerImage, Endpoint, PartitionImage, TopicImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.replication.replica import Listeners
from felice.security.acl import Operation, ResourceType
from felice.server.fetching.fetch_alarm import FetchAlarm
from felice.server.fetching.finding import PartitionFinder
from felice.server.fetching.leaders import Leaders
from felice.server.fetching.partition_reads import PartitionReads
from felice.server.flow.pace import Wakeups

FOREVER_MS = 600_000
TOPIC_ID = UUID(int=3)
IMAGE = ClusterImage(topic_names={TOPIC_ID: "t"})
CLOCK = SystemClock()


@dataclass
class Slice:
    """Records of a partition that nobody reads."""

    size_bytes: int


@dataclass
class Traffic:
    failed_fetch_requests: int = 0


@dataclass
class PartitionWith:
    """A partition with batches of these sizes."""

    sizes: list[int] = field(default_factory=list)
    on_advance: Listeners = field(default_factory=Listeners)
    change_count: int = 0
    traffic: Traffic = field(default_factory=Traffic)

    def append(self, size_bytes: int) -> None:
        self.sizes.append(size_bytes)
        self.change_count += 1
        for wake in list(self.on_advance):
            wake()


class Held(dict[tuple[str, int], Any]):
    """The partitions of a broker."""

    def find(self, topic: str, partition: int) -> Any:
        if (topic, partition) not in self:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self[topic, partition]

    def get(self, topic: str, partition: Any = None) -> Any:
        return super().get((topic, partition))


@dataclass(frozen=True)
class Asked:
    partition: int
    topic: str | UUID = "t"
    max_bytes: int = 1000


@dataclass
class Row:
    records: Any
    error_code: int = 0


class Rows:
    """Reads whole batches, as a partition does."""

    def __init__(self) -> None:
        self.limits: list[tuple[int, bool]] = []

    def row(self, asked: Asked, partition: Any, max_bytes: int, min_one: bool) -> Row:
        self.limits.append((max_bytes, min_one))
        total = 0
        for size in partition.sizes:
            if total + size > max_bytes and not (min_one and not total):
                break
            total += size
        return Row(Slice(total) if total else b"")

    def refusal(self, asked: Asked, error: ApiError) -> Row:
        return Row(b"", error.code)

    def demands_answer(self, asked: Asked, row: Row) -> bool:
        return row.error_code != 0


class Metadata:
    def __init__(self, image: ClusterImage = IMAGE) -> None:
        self.image = image


class OnlyTopic:
    """A client that may read one topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.questions: list[str] = []

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        assert (operation, kind) == (Operation.READ, ResourceType.TOPIC)
        self.questions.append(name)
        return name == self.name


Reads = PartitionReads[Asked, Row]


def held(*sizes: list[int]) -> Held:
    return Held({("t", number): PartitionWith(list(batches)) for number, batches in enumerate(sizes)})


def finder_of(held: Any, access: OnlyTopic | None = None, image: ClusterImage = IMAGE) -> PartitionFinder:
    return PartitionFinder(held, Metadata(image), access)


def reads_of(
    held: Held, rows: Rows, *, max_bytes: int = 1000, min_bytes: int = 1, is_over: Callable[[], bool] = bool
) -> Reads:
    asked = [Asked(number) for _, number in held]
    return PartitionReads(
        asked, finder_of(held), rows, is_over, CLOCK, min_bytes=min_bytes, max_bytes=max_bytes
    )


def sizes(reads: Reads) -> list[int]:
    return [row.records.size_bytes if row.records else 0 for row in reads.rows.values()]


def code_of(call: Callable[[], object]) -> int:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.code


@pytest.mark.parametrize(
    ("batches", "max_bytes", "expected", "limits"),
    [
        ([[60, 60], [30, 30]], 100, [60, 30], [(100, True), (40, False)]),
        ([[], [500], [10]], 100, [0, 500, 0], [(100, True), (100, True), (0, False)]),
        ([[100], [1]], 100, [100, 0], [(100, True), (0, False)]),
    ],
)
def test_the_partitions_share_the_bytes_and_the_first_gives_a_whole_batch(
    batches: list[list[int]], max_bytes: int, expected: list[int], limits: list[tuple[int, bool]]
) -> None:
    rows = Rows()
    reads = reads_of(held(*batches), rows, max_bytes=max_bytes)
    asyncio.run(reads.read_all())
    assert (sizes(reads), rows.limits) == (expected, limits)
    assert reads.is_enough()


def test_a_partition_gives_no_more_than_its_own_limit() -> None:
    rows, found = Rows(), held([30, 30, 30])
    reads: Reads = PartitionReads(
        [Asked(0, max_bytes=70)], finder_of(found), rows, bool, CLOCK, min_bytes=1, max_bytes=1000
    )
    asyncio.run(reads.read_all())
    assert sizes(reads) == [60]


def test_an_error_or_a_reason_outside_the_rows_is_enough_without_bytes() -> None:
    over: list[int] = []
    reads = reads_of(held([], []), Rows(), is_over=lambda: bool(over))
    asyncio.run(reads.read_all())
    assert not reads.is_enough()
    over.append(1)
    assert reads.is_enough()

    known = held([], [])
    failed = reads_of(known, Rows())
    del known["t", 1]
    asyncio.run(failed.read_all())
    assert [row.error_code for row in failed.rows.values()] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert failed.is_enough()


def test_a_wait_ends_when_the_bytes_of_all_partitions_are_enough_and_leaves_no_listener() -> None:
    async def scenario() -> None:
        found = held([10], [])
        first, second = found.values()
        reads = reads_of(found, Rows(), min_bytes=60)
        await reads.read_all()
        second.append(20)  # before the wait has begun: it must count
        waiting = asyncio.create_task(
            reads.wait(FetchAlarm(asyncio.get_running_loop()), Wakeups(CLOCK), FOREVER_MS)
        )
        async with asyncio.timeout(60):
            while sizes(reads) != [10, 20] or not first.on_advance:
                await asyncio.sleep(0)
            first.append(29)
            while sizes(reads) != [39, 20]:
                await asyncio.sleep(0)
            assert not waiting.done()
            first.append(1)
            await waiting
        assert sizes(reads) == [40, 20]
        assert not first.on_advance
        assert not second.on_advance

    asyncio.run(scenario())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_wait_that_ends_otherwise_leaves_no_listener(is_cancelled: bool) -> None:
    async def scenario() -> None:
        found = held([])
        (partition,) = found.values()
        reads = reads_of(found, Rows())
        await reads.read_all()
        alarm: FetchAlarm[Asked] = FetchAlarm(asyncio.get_running_loop())
        waiting = asyncio.create_task(reads.wait(alarm, Wakeups(CLOCK), FOREVER_MS if is_cancelled else 1))
        async with asyncio.timeout(60):
            if is_cancelled:
                while not partition.on_advance:
                    await asyncio.sleep(0)
                waiting.cancel()
            await asyncio.wait([waiting])
        assert sizes(reads) == [0]
        assert not partition.on_advance

    asyncio.run(scenario())


def test_a_partition_that_the_caller_wakes_is_read_too() -> None:
    async def scenario() -> None:
        found = held([], [5])
        reads: Reads = PartitionReads(
            [Asked(0)], finder_of(found), Rows(), bool, CLOCK, min_bytes=1, max_bytes=1000
        )
        await reads.read_all()
        alarm: FetchAlarm[Asked] = FetchAlarm(asyncio.get_running_loop())
        alarm.wake(Asked(1))
        async with asyncio.timeout(60):
            await reads.wait(alarm, Wakeups(CLOCK), FOREVER_MS)
        assert sizes(reads) == [0, 5]

    asyncio.run(scenario())


def test_topics_are_found_by_name_and_by_id() -> None:
    found = held([1])
    finder = finder_of(found)
    assert finder.find(Asked(0)) is finder.find(Asked(0, TOPIC_ID)) is found["t", 0]
    assert code_of(lambda: finder.find(Asked(0, UUID(int=9)))) == ErrorCode.UNKNOWN_TOPIC_ID
    assert code_of(lambda: finder.find(Asked(0, "u"))) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (finder.name_of(TOPIC_ID), finder.name_of(UUID(int=9))) == ("t", "")


def test_permission_is_asked_once_for_each_topic_and_hides_whether_it_exists() -> None:
    access = OnlyTopic("t")
    finder = finder_of(held([1], [1]), access, replace(IMAGE, topic_names={TOPIC_ID: "t", UUID(int=4): "x"}))
    for asked in (Asked(0), Asked(1), Asked(0, TOPIC_ID)):
        assert finder.find(asked)
    for topic in ("x", "missing", UUID(int=4)):
        for number in (0, 1):
            refused = Asked(number, topic)
            assert code_of(lambda asked=refused: finder.find(asked)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert code_of(lambda: finder.find(Asked(0, UUID(int=9)))) == ErrorCode.UNKNOWN_TOPIC_ID
    assert access.questions == ["t", "t", "x", "missing", "x"]


def test_only_unexpected_errors_count_as_failures() -> None:
    found = held([1])
    finder = finder_of(found)
    finder.count_failure(Asked(0), ErrorCode.OFFSET_OUT_OF_RANGE)
    assert found["t", 0].traffic.failed_fetch_requests == 0
    finder.count_failure(Asked(0, TOPIC_ID), ErrorCode.UNKNOWN_SERVER_ERROR)
    finder.count_failure(Asked(7), ErrorCode.UNKNOWN_SERVER_ERROR)
    assert found["t", 0].traffic.failed_fetch_requests == 1


def test_a_response_names_the_endpoints_of_its_leaders_that_are_alive() -> None:
    class Client:
        listener_name = "INSIDE"

    def broker(number: int, listener: str) -> BrokerImage:
        endpoint = Endpoint(listener, f"h{number}", 9000 + number)
        return BrokerImage(number, {listener: endpoint}, f"r{number}", number)

    partitions = tuple(PartitionImage(number, (), leader, 5) for number, leader in enumerate((33, 4, 9, 2)))
    image = ClusterImage(
        brokers={
            number: broker(number, listener)
            for number, listener in ((2, "INSIDE"), (4, "OUTSIDE"), (33, "INSIDE"))
        },
        topics={"t": TopicImage("t", TOPIC_ID, partitions)},
    )
    leaders = Leaders(Metadata(image), Client())
    assert leaders.endpoints() == []
    assert leaders.name("missing", 0) is None
    for number in range(4):
        known = leaders.name("t", number)
        assert known is not None
        assert known.leader == partitions[number].leader
    named = [(one.node_id, one.host, one.port, one.rack) for one in leaders.endpoints()]
    assert named == [(2, "h2", 9002, "r2"), (33, "h33", 9033, "r33")]
