"""Two brokers, and the mirror between them: topics, records, options, groups, both ways, exactly once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pytest

import waiting
from connect_rest import TIMEOUT_S, RestClient
from connect_worker import ProcessJobs
from felice.client import AdminClient, Consumer, NewPartitions, NewTopic, Producer, TopicPartition
from felice.client.admin import ConfigResource, ResourceType
from felice.client.model import OFFSET_BEGINNING
from felice.pipelines.connect.configuration.mirroring import CONNECTORS, flows
from felice.pipelines.connect.connectors.mirror import watching
from felice.pipelines.connect.connectors.mirror.records import checkpoint, heartbeat, offset_sync
from felice.pipelines.connect.herder import mirror
from felice.pipelines.connect.herder.errors import RequestError
from felice.pipelines.connect.herder.mirror import Mirror
from felice.pipelines.connect.model.errors import ConnectError
from felice.testing import Broker

wait_until = partial(waiting.wait_until, timeout_s=TIMEOUT_S)
pytestmark = pytest.mark.timeout(600)

PARTITIONS = 2
Row = tuple[bytes | None, bytes | None, object, int]


@pytest.fixture
def brokers() -> Iterator[dict[str, Broker]]:
    with Broker() as a, Broker() as b:
        yield {"A": a, "B": b}


def options(brokers: Mapping[str, Broker], **more: str) -> dict[str, str]:
    """The options of a mirror. `more` are options, with `__` for dots and `to` for arrows."""
    return {
        "clusters": ",".join(brokers),
        **{f"{name}.bootstrap.servers": broker.bootstrap for name, broker in brokers.items()},
        "A->B.enabled": "true",
        "replication.factor": "1",
        **{f"{name}.topic.replication.factor": "1" for name in ("checkpoints", "heartbeats", "offset-syncs")},
        **{f"{name}.storage.replication.factor": "1" for name in ("offset", "config", "status")},
        "offset.storage.partitions": "2",
        "offset.flush.interval.ms": "200",
        "consumer.poll.timeout.ms": "100",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.interval.seconds": "1",
        "sync.topic.configs.interval.seconds": "1",
        "refresh.topics.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        **more,
    }


class RunningMirror:
    """A mirror on a thread."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.jobs = ProcessJobs()
        self.workers: dict[str, RestClient] = {}
        self._flows = flows(given)
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._started.wait(TIMEOUT_S)
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            running = Mirror(self._flows, lambda config: self.jobs, on_ready=self._note)
            await running.start()
        except BaseException as error:
            self._error = error
            self._started.set()
            return
        self._started.set()
        await self._stop.wait()
        await running.stop()

    def _note(self, name: str, url: str) -> None:
        self.workers[name] = RestClient(url)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


@contextmanager
def mirroring(given: Mapping[str, str]) -> Iterator[RunningMirror]:
    running = RunningMirror(given)
    try:
        yield running
    except AssertionError as error:
        told = {
            name: worker.ask("GET", "/connectors?expand=status") for name, worker in running.workers.items()
        }
        raise AssertionError(f"{error}: {told}") from error
    finally:
        running.close()


def create(broker: Broker, topic: str, partitions: int = PARTITIONS, **config: str) -> None:
    with AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        [made] = admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values()
        made.result(TIMEOUT_S)


def topics(broker: Broker) -> set[str]:
    with AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        return set(admin.list_topics(timeout=TIMEOUT_S).topics)


def produce(broker: Broker, topic: str, numbers: range, **settings: str) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap, **settings}) as producer:
        if settings:
            producer.init_transactions()
            producer.begin_transaction()
        for number in numbers:
            producer.produce(
                topic,
                None if number % 7 == 0 else f"v{number}",
                f"k{number}",
                number % PARTITIONS,
                timestamp=1_700_000_000_000 + number,
                headers=[("number", b"%d" % number), ("empty", None)],
            )
        if settings:
            producer.commit_transaction()


def rows(broker: Broker, topic: str, partition: int = 0) -> list[Row]:
    """All committed records of a partition."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    found: list[Row] = []
    with Consumer({**settings, "isolation.level": "read_committed"}) as consumer:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "no answer"
            if message.error() is not None:
                return found
            found.append((message.key(), message.value(), message.headers(), message.timestamp()[1]))


def read_as(broker: Broker, group: str, topic: str, count: int) -> list[bytes]:
    """The keys of so many records that a group reads and commits."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    found: list[bytes] = []
    with Consumer({**settings, "enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic])
        while len(found) < count:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{len(found)} of {count}"
            if message.error() is None:
                found.append(message.key())
        consumer.commit(asynchronous=False)
    return found


def are_equal(brokers: Mapping[str, Broker], topic: str, mirrored: str) -> bool:
    return all(
        rows(brokers["B"], mirrored, one) == rows(brokers["A"], topic, one) for one in range(PARTITIONS)
    )


def test_topics_records_and_groups_are_mirrored(brokers: dict[str, Broker]) -> None:
    a, b = brokers["A"], brokers["B"]
    create(a, "orders", **{"max.message.bytes": "123456", "min.insync.replicas": "1"})
    create(a, "private")
    produce(a, "orders", range(500))
    assert len(read_as(a, "billing", "orders", 500)) == 500
    given = options(brokers) | {
        "A->B.topics": "ord.*",
        "A->B.groups": "billing",
        "A->B.sync.group.offsets.enabled": "true",
        "A->B.tasks.max": "2",
    }
    with mirroring(given):
        wait_until(lambda: "A.orders" in topics(b))
        wait_until(lambda: are_equal(brokers, "orders", "A.orders"))
        with AdminClient({"bootstrap.servers": b.bootstrap}) as admin:
            resource = ConfigResource(ResourceType.TOPIC, "A.orders")

            def configured() -> str | None:
                [asked] = admin.describe_configs([resource]).values()
                return asked.result(TIMEOUT_S)["max.message.bytes"].value

            assert configured() == "123456"
            with AdminClient({"bootstrap.servers": a.bootstrap}) as there:
                changed = ConfigResource(ResourceType.TOPIC, "orders", {"max.message.bytes": "234567"})
                [done] = there.alter_configs([changed]).values()
                done.result(TIMEOUT_S)
                wait_until(lambda: configured() == "234567")
                [done] = there.create_partitions([NewPartitions("orders", 3)]).values()
                done.result(TIMEOUT_S)
            wait_until(lambda: len(admin.list_topics(timeout=TIMEOUT_S).topics["A.orders"].partitions) == 3)
        wanted = {("billing", "A.orders", number, 250, 250) for number in range(PARTITIONS)}
        wait_until(lambda: wanted <= checkpoints(b), describe=lambda: str(checkpoints(b)))
        wait_until(lambda: is_moved(b, "billing", "A.orders", [250, 250]))
        produce(a, "orders", range(500, 550))
        wait_until(lambda: are_equal(brokers, "orders", "A.orders"))
    assert sorted(read_as(b, "billing", "A.orders", 50)) == [b"k%d" % one for one in range(500, 550)]
    assert not {"A.private", "A.heartbeats.internal"} & topics(b)
    assert "mm2-offset-syncs.B.internal" in topics(a)
    syncs = {
        (key.topic, key.partition, value.upstream_offset, value.downstream_offset)
        for row in rows(a, "mm2-offset-syncs.B.internal")
        for key, value in [offset_sync(row[0] or b"", row[1] or b"")]
    }
    assert {("orders", number, 0, 0) for number in range(PARTITIONS)} <= syncs


def checkpoints(broker: Broker) -> set[tuple[str, str, int, int, int]]:
    """Group, topic, partition, offset in the source and in the mirror of all checkpoints."""
    if "A.checkpoints.internal" not in topics(broker):
        return set()
    return {
        (key.group, key.topic, key.partition, value.upstream_offset, value.downstream_offset)
        for row in rows(broker, "A.checkpoints.internal")
        for key, value in [checkpoint(row[0] or b"", row[1] or b"")]
    }


def is_moved(broker: Broker, group: str, topic: str, offsets: list[int]) -> bool:
    with Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group}) as consumer:
        places = [TopicPartition(topic, number) for number in range(len(offsets))]
        return [one.offset for one in consumer.committed(places, timeout=TIMEOUT_S)] == offsets


def test_both_ways_without_a_loop(brokers: dict[str, Broker]) -> None:
    for name, broker in brokers.items():
        create(broker, f"of-{name.lower()}")
        create(broker, "both")
        produce(broker, "both", range(10))
    with mirroring(options(brokers) | {"B->A.enabled": "true", "emit.checkpoints.enabled": "false"}):
        for name, other in (("A", "B"), ("B", "A")):
            here, mirrored = (
                brokers[name],
                {f"{other}.of-{other.lower()}", f"{other}.both", f"{other}.heartbeats"},
            )
            wait_until(lambda here=here, mirrored=mirrored: mirrored <= topics(here))
            for topic, count in ((f"{other}.both", 5), (f"{other}.heartbeats", 1)):
                wait_until(lambda here=here, topic=topic, count=count: len(rows(here, topic)) >= count)
            assert len(rows(here, f"{other}.both")) == 5
            key, _ = heartbeat(*[one or b"" for one in rows(here, f"{other}.heartbeats")[0][:2]])
            assert (key.source, key.target) == (name, other)
    names = topics(brokers["A"]) | topics(brokers["B"])
    assert not [one for one in names if one.count(".") > 1 and not one.endswith(".internal")], names


def test_names_may_stay(brokers: dict[str, Broker]) -> None:
    create(brokers["A"], "orders")
    produce(brokers["A"], "orders", range(20))
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    with mirroring(options(brokers) | {"replication.policy.class": policy}):
        wait_until(lambda: "orders" in topics(brokers["B"]))
        wait_until(lambda: are_equal(brokers, "orders", "orders"))


def test_each_record_is_there_once_over_killed_tasks(brokers: dict[str, Broker]) -> None:
    create(brokers["A"], "orders")
    given = options(brokers) | {
        "B.exactly.once.source.support": "enabled",
        "A.consumer.isolation.level": "read_committed",
        "emit.checkpoints.enabled": "false",
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "200",
        "topics": "orders",
    }
    produce(brokers["A"], "orders", range(1000), **{"transactional.id": "x"})
    with mirroring(given) as running:
        for turn in range(1, 4):
            wait_until(lambda: "A.orders" in topics(brokers["B"]) and rows(brokers["B"], "A.orders"))
            produce(
                brokers["A"], "orders", range(turn * 1000, (turn + 1) * 1000), **{"transactional.id": "x"}
            )
            running.jobs.kill("MirrorSourceConnector-0")
        wait_until(lambda: are_equal(brokers, "orders", "A.orders"))


def test_a_source_that_comes_later_is_mirrored(
    brokers: dict[str, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "START_AGAIN_S", 0.5)
    monkeypatch.setattr(watching, "RETRY_S", 0.5)
    a = brokers["A"]
    create(a, "orders")
    produce(a, "orders", range(10))
    read_as(a, "billing", "orders", 10)
    a.kill()
    with mirroring(options(brokers) | {"admin.timeout.ms": "1000"}) as running:
        worker = running.workers["A->B"]
        wait_until(lambda: worker.states(CONNECTORS[0]) == ["RUNNING"])
        assert "B->A" not in running.workers
        a.start()
        wait_until(lambda: "A.orders" in topics(brokers["B"]))
        wait_until(lambda: are_equal(brokers, "orders", "A.orders"))
        wait_until(lambda: "B->A" in running.workers and rows(a, "heartbeats"))
        wait_until(lambda: checkpoints(brokers["B"]))
        a.kill()
        time.sleep(3.0)  # for some questions of each task
        a.start()
        produce(a, "orders", range(10, 20))
        wait_until(lambda: are_equal(brokers, "orders", "A.orders"))
        for name in CONNECTORS:
            assert "FAILED" not in worker.states(name), worker.ask("GET", f"/connectors/{name}/status")


def test_a_mirror_whose_target_is_away_says_so(brokers: dict[str, Broker]) -> None:
    brokers["B"].stop()
    given = options(brokers) | {"emit.heartbeats.enabled": "false"}
    with pytest.raises(ConnectError, match="the cluster cannot be reached|cannot look for topic"):
        RunningMirror(given)


def test_options_that_are_wrong_end_the_start(brokers: dict[str, Broker]) -> None:
    given = options(brokers) | {"A->B.topics": "[", "A->B.groups": "("}
    with pytest.raises(RequestError, match="Invalid value .* for configuration topics"):
        RunningMirror(given)
