from __future__ import annotations

from typing import Any

import pytest

from felice.client.net.read_replicas import ReadReplicas
from felice.client.net.topology import NO_LEADER, Topology
from felice.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

KEY = ("t", 0)
MAX_AGE_S = 100.0


def metadata(brokers: tuple[int, ...] = (1, 2), **fields: Any) -> MetadataResponse:
    """Partition 0 of topic t: broker 1 leads it in epoch 5, brokers 1 and 2 have replicas."""
    row = {"leader_id": 1, "leader_epoch": 5, "replica_nodes": [1, 2], "isr_nodes": [1, 2], **fields}
    topic = MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(partition_index=0, **row)])
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="h", port=node) for node in brokers],
        topics=[topic],
    )


@pytest.fixture
def topology() -> Topology:
    made = Topology()
    made.update(metadata())
    return made


@pytest.fixture
def replicas(topology: Topology) -> ReadReplicas:
    return ReadReplicas(topology, "r", MAX_AGE_S)


def test_the_leader_serves_until_it_names_a_replica(replicas: ReadReplicas) -> None:
    assert replicas.node_of(KEY, 0.0) == 1
    assert replicas.node_of(("other", 0), 0.0) == NO_LEADER
    assert replicas.follow(KEY, 2, 0.0)
    assert replicas.node_of(KEY, 0.0) == 2
    assert replicas.rack_for([KEY], 0.0) == "r"


def test_after_the_maximal_age_the_leader_is_asked_again(replicas: ReadReplicas) -> None:
    replicas.follow(KEY, 2, 10.0)
    assert replicas.node_of(KEY, 109.9) == 2
    assert replicas.node_of(KEY, 110.0) == 1
    assert replicas.node_of(KEY, 10.0) == 1, "it is forgotten"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"brokers": (1,)}, id="dead"),
        pytest.param({"offline_replicas": [2]}, id="offline"),
        pytest.param({"replica_nodes": [1, 3]}, id="no replica"),
        pytest.param({"leader_epoch": 6}, id="new epoch"),
    ],
)
def test_a_change_of_the_metadata_leads_back_to_the_leader(
    topology: Topology, replicas: ReadReplicas, change: dict[str, Any]
) -> None:
    replicas.follow(KEY, 2, 0.0)
    topology.update(metadata(**change))
    assert replicas.node_of(KEY, 0.0) == 1


def test_a_partition_without_a_leader_is_not_fetched_from_a_replica(
    topology: Topology, replicas: ReadReplicas
) -> None:
    replicas.follow(KEY, 2, 0.0)
    topology.update(metadata(leader_id=NO_LEADER, leader_epoch=6))
    assert replicas.node_of(KEY, 0.0) == NO_LEADER


@pytest.mark.parametrize("change", [{"brokers": (1,)}, {"offline_replicas": [2]}, {"replica_nodes": [1, 3]}])
def test_a_replica_that_the_metadata_does_not_have_is_not_followed(
    topology: Topology, replicas: ReadReplicas, change: dict[str, Any]
) -> None:
    topology.update(metadata(**change))
    assert not replicas.follow(KEY, 2, 0.0)
    assert (replicas.node_of(KEY, 0.0), replicas.rack_for([KEY], 0.0)) == (1, "")


def test_after_a_failure_the_leader_is_asked_without_the_rack_for_a_while(replicas: ReadReplicas) -> None:
    replicas.follow(KEY, 2, 0.0)
    replicas.leave(KEY, 1.0)
    assert replicas.node_of(KEY, 1.0) == 1
    assert replicas.rack_for([("other", 0)], 1.0) == "r"
    assert replicas.rack_for([("other", 0), KEY], 30.9) == ""
    assert replicas.rack_for([("other", 0), KEY], 31.0) == "r"


def test_the_time_without_the_rack_doubles_until_the_replica_answers(replicas: ReadReplicas) -> None:
    now = 0.0
    for pause_s in (30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0):
        replicas.leave(KEY, now)
        assert replicas.rack_for([KEY], now + pause_s - 0.1) == ""
        now += pause_s
        assert replicas.rack_for([KEY], now) == "r"
    replicas.answered(KEY)
    replicas.leave(KEY, now)
    assert replicas.rack_for([KEY], now + 30.0) == "r"
