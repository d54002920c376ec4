"""Metadata may arrive in any order: a known leader epoch never decreases while the topic exists."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from felice.client.net.topology import Topology
from felice.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

IDS = [uuid.UUID(int=1), uuid.UUID(int=2)]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(1, 3))))
def test_epochs_only_rise(replies: list[tuple[int, int, int]]) -> None:
    topology = Topology()
    last_id, highest = -1, -1
    for which, epoch, leader in replies:
        row = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
        topic = MetadataResponseTopic(name="t", topic_id=IDS[which], partitions=[row])
        topology.update(MetadataResponse(topics=[topic]))
        highest = epoch if which != last_id else max(highest, epoch)
        last_id = which
        assert topology.leader_epoch("t", 0) == highest
        assert topology.topic_id("t") == IDS[which]
