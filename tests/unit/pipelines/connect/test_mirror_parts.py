"""Parts of the mirror: names of topics, translation of offsets, offset syncs, and the file of `felice mirror`."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from felice.client.error import KafkaException
from felice.pipelines.connect.configuration.mirroring import CONNECTORS, flows
from felice.pipelines.connect.configuration.worker_options import worker_config
from felice.pipelines.connect.connectors.mirror import records
from felice.pipelines.connect.connectors.mirror.names import Names
from felice.pipelines.connect.connectors.mirror.offset_syncs import OffsetSyncs
from felice.pipelines.connect.connectors.mirror.options import PARTITIONS, Chosen, client_settings
from felice.pipelines.connect.connectors.mirror.source import MirrorSource
from felice.pipelines.connect.connectors.mirror.source_task import MirrorSourceTask
from felice.pipelines.connect.connectors.mirror.translation import Sync, Translation
from felice.pipelines.connect.model.errors import ConfigError, ConnectError, RetriableError

AT = ("orders", 0)


# Names


def test_names_show_where_a_topic_came_from() -> None:
    names = Names()
    assert names.remote("A", "orders") == "A.orders"
    assert list(names.path("B.A.orders")) == ["B", "A"]
    assert list(names.path("orders")) == []
    assert names.checkpoints("A") == "A.checkpoints.internal"
    assert names.offset_syncs("B") == "mm2-offset-syncs.B.internal"


def test_names_without_prefixes() -> None:
    names = Names(prefixes=False)
    assert names.remote("A", "orders") == "orders"
    assert list(names.path("B.orders")) == []
    assert names.remote("A", "heartbeats") == "A.heartbeats"
    assert list(names.path("B.heartbeats")) == ["B"]


def test_a_separator_may_be_for_mirrored_topics_alone() -> None:
    assert Names("_").checkpoints("A") == "A_checkpoints_internal"
    assert Names("_", separates_internal=False).checkpoints("A") == "A.checkpoints.internal"


@pytest.mark.parametrize(
    ("topic", "is_internal"),
    [
        ("__consumer_offsets", True),
        (".hidden", True),
        ("mm2-configs.A.internal", True),
        ("A.checkpoints.internal", True),
        ("orders.internal", False),
        ("heartbeats", False),
    ],
)
def test_internal_topics(topic: str, is_internal: bool) -> None:
    assert Names().is_internal(topic) == is_internal


def test_patterns_are_for_whole_names() -> None:
    chosen = Chosen(["ord", "pay.*"], [r".*\.old"])
    assert [one for one in ("ord", "orders", "pay", "payments", "pay.old") if chosen.has(one)] == [
        "ord",
        "pay",
        "payments",
    ]
    assert not Chosen([], []).has("orders")


# Translation


def test_offsets_are_exact_at_a_sync_and_one_later_after_it() -> None:
    translation = Translation()
    translation.add(AT, Sync(100, 10))
    assert [translation.downstream(AT, one) for one in (99, 100, 101, 500)] == [None, 10, 11, 11]
    assert translation.downstream(("other", 0), 100) is None


def test_a_mirror_that_was_created_again_forgets_older_syncs() -> None:
    translation = Translation()
    for one in (Sync(0, 0), Sync(100, 100), Sync(200, 5)):
        translation.add(AT, one)
    assert [translation.downstream(AT, one) for one in (50, 150, 200)] == [None, None, 5]


def test_records_that_are_mirrored_again_replace_their_syncs() -> None:
    translation = Translation()
    for one in (Sync(0, 0), Sync(100, 100), Sync(200, 200), Sync(100, 250)):
        translation.add(AT, one)
    assert [translation.downstream(AT, one) for one in (50, 100, 200)] == [1, 250, 251]


@pytest.mark.parametrize("seed", range(20))
def test_no_record_is_skipped_and_few_syncs_are_kept(seed: int) -> None:
    chance = random.Random(seed)
    translation, places, downstream = Translation(), {}, 0
    for upstream in range(5000):
        if chance.random() < 0.9:  # other offsets are those of transactions' markers
            downstream += chance.choice((1, 1, 2))
            places[upstream] = downstream
            if chance.random() < 0.2:
                translation.add(AT, Sync(upstream, downstream))
    assert len(translation._syncs[AT]) <= 2 * 13
    for upstream in chance.sample(sorted(places), 500):
        found = translation.downstream(AT, upstream)
        assert found is None or found <= places[upstream]


class NotedProducer:
    """Keeps what is written. With `is_full` it takes nothing."""

    def __init__(self) -> None:
        self.is_full = False
        self.found: list[tuple[int, int]] = []

    def produce(self, topic: str, value: bytes, key: bytes, **more: Any) -> None:
        if self.is_full:
            raise BufferError
        _, offsets = records.offset_sync(key, value)
        self.found.append((offsets.upstream_offset, offsets.downstream_offset))

    def poll(self, timeout: float) -> None: ...


def test_which_offset_syncs_are_written() -> None:
    producer = NotedProducer()
    syncs = OffsetSyncs(producer, "syncs", max_lag=3)  # type: ignore[arg-type]
    for number in range(6):
        syncs.mirrored(AT, Sync(number, number))
    assert producer.found == [(0, 0), (4, 4)]
    syncs.committed()
    syncs.committed()
    assert producer.found[2:] == [(5, 5)]
    syncs.mirrored(AT, Sync(8, 6))  # offsets are left out
    syncs.mirrored(AT, Sync(9, 0))  # the mirror was created again
    assert producer.found[3:] == [(8, 6), (9, 0)]


def test_a_full_producer_gets_the_newest_sync_later() -> None:
    producer = NotedProducer()
    producer.is_full = True
    syncs = OffsetSyncs(producer, "syncs", max_lag=0)  # type: ignore[arg-type]
    for number in range(3):
        syncs.mirrored(AT, Sync(number, number))
    producer.is_full = False
    syncs.committed()
    assert producer.found == [(2, 2)]


# The file


CLUSTERS = {"clusters": "A, B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1"}


def test_the_flows_of_a_file() -> None:
    given = CLUSTERS | {
        "A->B.enabled": "true",
        "A->B.topics": "orders",
        "topics": "other",
        "A.security.protocol": "SSL",
        "A.consumer.isolation.level": "read_committed",
        "B.producer.linger.ms": "5",
        "B.exactly.once.source.support": "enabled",
        "offset.storage.partitions": "3",
        "consumer.poll.timeout.ms": "100",
        "tasks.max": "4",
    }
    there, back = flows(given)
    assert (there.name, there.is_enabled, back.name, back.is_enabled) == ("A->B", True, "B->A", False)
    assert set(there.connectors) == set(CONNECTORS)
    config = there.connectors["MirrorSourceConnector"]
    assert config == {
        "name": "MirrorSourceConnector",
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "enabled": "true",
        "topics": "orders",
        "tasks.max": "4",
        "consumer.poll.timeout.ms": "100",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": "a:1",
        "source.cluster.security.protocol": "SSL",
        "source.consumer.isolation.level": "read_committed",
        "target.cluster.bootstrap.servers": "b:1",
        "target.producer.linger.ms": "5",
    }
    assert there.worker["bootstrap.servers"] == "b:1"
    assert there.worker["group.id"] == "A-mm2"
    assert there.worker["config.storage.topic"] == "mm2-configs.A.internal"
    assert there.worker["producer.linger.ms"] == "5"
    assert there.worker["exactly.once.source.support"] == "enabled"
    assert there.worker["offset.storage.partitions"] == "3"
    assert "consumer.poll.timeout.ms" not in there.worker
    assert back.connectors["MirrorSourceConnector"]["topics"] == "other"
    assert "exactly.once.source.support" not in back.worker


def test_options_for_all_clusters_and_of_one_flow() -> None:
    given = CLUSTERS | {
        "A->B.enabled": "true",
        "security.protocol": "SSL",
        "B.security.protocol": "PLAINTEXT",
        "A->B.producer.linger.ms": "7",
    }
    there = flows(given)[0]
    config = there.connectors["MirrorSourceConnector"]
    assert config["source.cluster.security.protocol"] == "SSL"
    assert config["target.cluster.security.protocol"] == "PLAINTEXT"
    assert (there.worker["security.protocol"], there.worker["producer.linger.ms"]) == ("PLAINTEXT", "7")


def test_a_flow_without_work_is_left_out() -> None:
    given = CLUSTERS | {"A->B.enabled": "true", "emit.heartbeats.enabled": "false"}
    assert [one.name for one in flows(given)] == ["A->B"]


def test_an_option_without_effect_is_named() -> None:
    given = CLUSTERS | {"A->B.enabled": "true", "dedicated.mode.enable.internal.rest": "true"}
    config = worker_config(flows(given)[0].worker, distributed=True)
    assert config.without_effect == ("dedicated.mode.enable.internal.rest",)


def test_flows_have_ports_of_their_own() -> None:
    given = CLUSTERS | {"A->B.enabled": "true", "listeners": "http://10.0.0.1:8083"}
    assert [one.worker["listeners"] for one in flows(given)] == [
        "http://10.0.0.1:8083",
        "http://10.0.0.1:8084",
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "must name two clusters"),
        ({"clusters": "A"}, "must name two clusters"),
        ({"clusters": "A,A"}, "must name two clusters"),
        ({"clusters": "A.x,B"}, "letters, digits"),
        ({"clusters": "A,B", "A.bootstrap.servers": "a:1"}, "B.bootstrap.servers is missing"),
        (CLUSTERS, "no flow is enabled"),
        (CLUSTERS | {"A->B.enabled": "true", "topicz": "x"}, "unknown options: topicz"),
        (CLUSTERS | {"A->B.enabled": "true", "A->C.topics": "x"}, "unknown options: A->C.topics"),
        (CLUSTERS | {"A->B.enabled": "true", "A->B.topicz": "x"}, "unknown options: A->B.topicz"),
        (CLUSTERS | {"A->B.enabled": "true", "C.bootstrap.servers": "x"}, "unknown options: C.bootstrap"),
    ],
)
def test_a_file_that_cannot_be_followed(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        flows(given)


def test_options_of_clients() -> None:
    config = {
        "source.cluster.bootstrap.servers": "a:1",
        "source.cluster.alias": "A",
        "source.cluster.client.id": "all",
        "consumer.client.id": "consumers",
        "consumer.poll.timeout.ms": "1",
        "admin.timeout.ms": "1",
        "source.consumer.isolation.level": "read_committed",
    }
    assert client_settings(config, "source", "consumer") == {
        "bootstrap.servers": "a:1",
        "client.id": "consumers",
        "isolation.level": "read_committed",
    }
    assert client_settings(config, "source", "admin")["client.id"] == "all"
    with pytest.raises(KafkaException, match="interceptor.classes"):
        client_settings(config | {"source.cluster.interceptor.classes": "x"}, "source", "admin")


# The connector


def test_what_is_wrong_with_a_configuration() -> None:
    given = {
        "source.cluster.alias": "A",
        "topics": "[",
        "replication.policy.class": "com.example.Own",
        "topics.blacklist": "x",
    }
    errors = {one.name: one.errors for one in MirrorSource.validate(given) if one.errors}
    assert set(errors) == {
        "topics",
        "replication.policy.class",
        "topics.blacklist",
        "source.cluster.bootstrap.servers",
        "target.cluster.bootstrap.servers",
    }


def test_offsets_that_a_user_sets() -> None:
    good = '{"cluster":"A","topic":"orders","partition":0}'
    assert MirrorSource.alter_offsets(
        {}, {good: {"offset": 5}, '{"cluster":"A","topic":"x","partition":1}': None}
    )
    for partition, offset in (
        ('{"cluster":"A","topic":"orders"}', {"offset": 5}),
        (good, {"offset": -1}),
        (good, {"offset": "5"}),
        (good, {}),
    ):
        with pytest.raises(ConnectError):
            MirrorSource.alter_offsets({}, {partition: offset})


def test_exactly_once_needs_committed_records() -> None:
    assert MirrorSource.exactly_once_support({}) is False
    committed = {"source.consumer.isolation.level": "read_committed"}
    assert MirrorSource.exactly_once_support(committed) is True
    assert (
        MirrorSource.exactly_once_support({"consumer.isolation.level": "read_uncommitted", **committed})
        is True
    )


# Tasks


class _NoOffsets:
    def offsets(self, places: Any) -> Any:
        raise RetriableError("the offsets cannot be read")


def test_a_task_that_did_not_start_closes_its_clients() -> None:
    before = set(threading.enumerate())
    task = MirrorSourceTask()
    context: Any = _NoOffsets()
    task.context = context
    with pytest.raises(RetriableError):
        task.start(
            {
                "source.cluster.alias": "A",
                "target.cluster.alias": "B",
                "source.cluster.bootstrap.servers": "127.0.0.1:1",
                "target.cluster.bootstrap.servers": "127.0.0.1:1",
                PARTITIONS: "orders-0",
            }
        )
    assert set(threading.enumerate()) > before, "the clients have threads"
    task.close()
    assert set(threading.enumerate()) == before
