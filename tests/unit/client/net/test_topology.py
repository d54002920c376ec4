import uuid

from felice.client.net.topology import NO_LEADER, Topology
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


def reply(leader: int, epoch: int, topic_id: uuid.UUID = FIRST, error: int = 0) -> MetadataResponse:
    rows = [MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)]
    topic = MetadataResponseTopic(
        name="t", topic_id=topic_id, partitions=[] if error else rows, error_code=error
    )
    brokers = [MetadataResponseBroker(node_id=number, host="h", port=number) for number in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=[topic])


def test_older_leader_epoch_does_not_replace_a_newer_epoch() -> None:
    topology = Topology()
    topology.update(reply(leader=2, epoch=5))
    topology.update(reply(leader=1, epoch=4))
    assert (topology.leader("t", 0), topology.leader_epoch("t", 0)) == (2, 5)
    topology.update(reply(leader=1, epoch=6))
    assert (topology.leader("t", 0), topology.leader_epoch("t", 0)) == (1, 6)


def test_topic_created_again_forgets_the_old_epochs() -> None:
    topology = Topology()
    topology.update(reply(leader=2, epoch=5))
    topology.update(reply(leader=1, epoch=0, topic_id=SECOND))
    assert topology.leader("t", 0) == 1
    assert topology.names_by_id == {SECOND: "t"}


def test_deleted_topic_is_forgotten_and_its_error_kept() -> None:
    topology = Topology()
    topology.update(reply(leader=2, epoch=5))
    topology.update(reply(0, 0, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert topology.partition_count("t") == 0
    assert topology.leader("t", 0) == NO_LEADER
    assert topology.describe(["t"]).topics["t"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_complete_reply_drops_topics_it_does_not_name() -> None:
    topology = Topology()
    topology.update(reply(leader=2, epoch=5))
    topology.update(MetadataResponse(topics=[]))
    assert topology.partition_count("t") == 1
    topology.update(MetadataResponse(topics=[]), complete=True)
    assert topology.partition_count("t") == 0


def test_leader_hint_counts_only_if_it_is_newer_and_the_broker_is_known() -> None:
    topology = Topology()
    topology.update(reply(leader=2, epoch=5))
    assert not topology.on_leader_hint("t", 0, 1, 5)
    assert not topology.on_leader_hint("t", 0, 9, 6)
    assert topology.on_leader_hint("t", 0, 1, 6)
    assert topology.leader("t", 0) == 1
