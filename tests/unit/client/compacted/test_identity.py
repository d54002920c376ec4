"""When a topic of the same name is another topic, or none any more."""

from __future__ import annotations

import uuid

from felice.client.compacted.identity import MISSING_S, TopicIdentity
from felice.client.net.topology import Topology
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from felice.protocol.primitives import ZERO_UUID

ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


def topology(topic_id: uuid.UUID | None) -> Topology:
    """Metadata with the topic `t`; None: a broker says that it does not exist."""
    found = Topology()
    row = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="t")
    if topic_id is not None:
        partition = MetadataResponsePartition(partition_index=0, leader_id=1)
        row = MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[partition])
    found.update(MetadataResponse(topics=[row]))
    return found


def test_the_same_id_is_the_same_topic_and_another_id_is_another() -> None:
    identity = TopicIdentity("t", ONE)
    assert identity.fault(topology(ONE), 0.0) is None
    assert identity.fault(topology(OTHER), 1.0) == "topic 't' was deleted and created again: its id changed"


def test_metadata_that_does_not_name_the_topic_says_nothing() -> None:
    assert TopicIdentity("t", ONE).fault(Topology(), 0.0) is None


def test_without_ids_only_the_absence_shows() -> None:
    identity = TopicIdentity("t", ZERO_UUID)
    assert identity.fault(topology(OTHER), 0.0) is None
    assert identity.fault(topology(ZERO_UUID), 0.0) is None


def test_a_topic_that_is_missing_for_long_was_deleted() -> None:
    identity = TopicIdentity("t", ONE)
    assert identity.fault(topology(None), 100.0) is None
    assert identity.fault(topology(None), 100.0 + MISSING_S - 0.1) is None
    assert identity.fault(topology(None), 100.0 + MISSING_S) == "topic 't' was deleted"


def test_a_topic_that_is_known_again_is_not_missing() -> None:
    identity = TopicIdentity("t", ONE)
    identity.fault(topology(None), 100.0)
    assert identity.fault(topology(ONE), 101.0) is None
    assert identity.fault(topology(None), 200.0) is None
