"""The errors of Metadata for partitions whose leader a client cannot reach, which one node alone never shows."""

from __future__ import annotations

import pytest

from felice.metadata import BrokerImage, ClusterImage, PartitionImage
from felice.metadata.image import Endpoint
from felice.protocol.errors import ErrorCode
from felice.server.handlers.metadata import leader_fault

HERE = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
THERE = Endpoint("OTHER", "127.0.0.1", 9093)
IMAGE = ClusterImage(
    brokers={
        1: BrokerImage(1, {"PLAINTEXT": HERE, "OTHER": THERE}, None, 0),
        2: BrokerImage(2, {"OTHER": THERE}, None, 0),
    }
)


@pytest.mark.parametrize(
    ("leader", "listener", "tells_listener", "fault"),
    [
        (1, "PLAINTEXT", True, ErrorCode.NONE),
        (2, "OTHER", True, ErrorCode.NONE),
        (-1, "PLAINTEXT", True, ErrorCode.LEADER_NOT_AVAILABLE),
        (3, "PLAINTEXT", True, ErrorCode.LEADER_NOT_AVAILABLE),
        (2, "PLAINTEXT", True, ErrorCode.LISTENER_NOT_FOUND),
        (2, "PLAINTEXT", False, ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
def test_a_leader_is_there_and_has_the_clients_listener_or_the_partition_says_what_lacks(
    leader: int, listener: str, tells_listener: bool, fault: ErrorCode
) -> None:
    """24: LISTENER_NOT_FOUND from v6, LEADER_NOT_AVAILABLE before."""
    partition = PartitionImage(0, (1, 2), leader)
    assert leader_fault(partition, IMAGE, listener, tells_listener) == fault
